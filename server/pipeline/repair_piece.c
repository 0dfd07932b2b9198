/* Pieces of a mask: what hangs together and has one value. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/pipeline/repair_private.h"

/* How far a value goes on from a place in steps of so many bytes, up to FILL_PIECE_SIDE - 1, of the `room` that there
 * are. */
static int piece_run(const uint8_t *at, ptrdiff_t step, int room)
{
    int run = 0;
    while (run < room && run < FILL_PIECE_SIDE - 1 && at[(run + 1) * step] == *at)
        run++;
    return run;
}

bool fill_piece_wide(const uint8_t *mask, int width, int height, int x, int y)
{
    const uint8_t *at = mask + (size_t)y * (size_t)width + x;
    const int left = piece_run(at, -1, x), right = piece_run(at, 1, width - 1 - x),
              up = piece_run(at, -(ptrdiff_t)width, y), down = piece_run(at, width, height - 1 - y);
    for (int i = FILL_PIECE_SIDE - 1 - down > 0 ? FILL_PIECE_SIDE - 1 - down : 0;
         i <= up && left + right + 1 >= FILL_PIECE_SIDE; i++)
        for (int k = FILL_PIECE_SIDE - 1 - right > 0 ? FILL_PIECE_SIDE - 1 - right : 0; k <= left; k++) {
            const uint8_t *corner = at - (ptrdiff_t)i * width - k;
            int rows = 0;
            while (rows < FILL_PIECE_SIDE && *corner == *at &&
                   piece_run(corner, 1, FILL_PIECE_SIDE - 1) == FILL_PIECE_SIDE - 1) {
                rows++;
                corner += width;
            }
            if (rows == FILL_PIECE_SIDE)
                return true;
        }
    return false;
}

static bool piece_push(struct fill_places *places, size_t place)
{
    if (places->count == places->room) {
        const size_t room = places->room ? 2 * places->room : 4096;
        uint32_t *list = mem_alloc(room, sizeof *list);
        if (!list)
            return false;
        if (places->count)
            memcpy(list, places->list, places->count * sizeof *list);
        free(places->list);
        places->list = list;
        places->room = room;
    }
    places->list[places->count++] = (uint32_t)place;
    return true;
}

bool fill_piece_collect(uint8_t *mask, int width, int height, int x, int y, uint8_t value, int more,
                        struct fill_piece *piece, struct fill_places *places)
{
    const size_t place = (size_t)y * (size_t)width + (size_t)x;
    *piece = (struct fill_piece){.kind = mask[place], .left = x, .top = y, .right = x, .bottom = y};
    mask[place] = value;
    bool room = piece_push(places, place);
    while (room && places->count) {
        const size_t at = places->list[--places->count];
        const int column = (int)(at % (size_t)width), row = (int)(at / (size_t)width);
        piece->left = column < piece->left ? column : piece->left;
        piece->right = column > piece->right ? column : piece->right;
        piece->top = row < piece->top ? row : piece->top;
        piece->bottom = row > piece->bottom ? row : piece->bottom;
        for (int i = row > 0 ? row - 1 : 0; i <= row + 1 && i < height; i++)
            for (int k = column > 0 ? column - 1 : 0; k <= column + 1 && k < width; k++) {
                const size_t next = (size_t)i * (size_t)width + (size_t)k;
                if (mask[next] != piece->kind)
                    continue;
                mask[next] = value;
                room = room && piece_push(places, next);
            }
    }
    piece->left = piece->left > more ? piece->left - more : 0;
    piece->top = piece->top > more ? piece->top - more : 0;
    piece->right = piece->right + 1 + more < width ? piece->right + 1 + more : width;
    piece->bottom = piece->bottom + 1 + more < height ? piece->bottom + 1 + more : height;
    return room;
}

static uint8_t piece_nearer(const uint8_t *at, int x, int width, int other)
{
    uint8_t least = at[other];
    least = x > 0 && at[other - 1] < least ? at[other - 1] : least;
    return x + 1 < width && at[other + 1] < least ? at[other + 1] : least;
}

void fill_distances(uint8_t *plane, int width, int height)
{
    for (int pass = 0; pass < 2; pass++) /* down, and up */
        for (int i = 0; i < height; i++)
            for (int k = 0; k < width; k++) {
                const int y = pass ? height - 1 - i : i, x = pass ? width - 1 - k : k;
                uint8_t *at = plane + (size_t)y * (size_t)width + x, least = *at;
                const int beside = pass ? 1 : -1;
                if (i > 0) {
                    const uint8_t near = piece_nearer(at, x, width, beside * width);
                    least = near + 1 < least ? (uint8_t)(near + 1) : least;
                }
                if (k > 0 && at[beside] + 1 < least)
                    least = (uint8_t)(at[beside] + 1);
                *at = least;
            }
}
