/* Pictures printed in a screen of dots, as in newspapers and books. Where the dots are strong, some look like dust or
 * lines: what is found there counts only where the picture at half its size, in which the dots are gone, shows it, too.
 * What that shows alone does not count: noses and sleeves would. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/repair_private.h"

/* Cells are looked at, spread over the picture, for how far pixels differ by how far apart they are, to the right and
 * downwards: least where dots come again. */
#define SCREEN_GRID 8   /* cells a side */
#define SCREEN_CELL 32  /* px a side */
#define SCREEN_APART 14 /* px, at most; dots come again after two of them, or more */
#define SCREEN_SIDE (SCREEN_CELL + SCREEN_APART)
/* A cell has dots if it differs there by less than this share of the most that it does nearer by, */
#define SCREEN_DIP 0.7f
#define SCREEN_ROUGH 3 /* and if that is, within six px, so many levels at least. */
#define SCREEN_NEAR 6
/* A screen is the same everywhere: of so many of the cells, beside those that are rough, dots are equally far apart. Of
 * 661 photos, drawings and pages without one .25 at most; of 214 prints .44 at least, but for two with faint dots. */
#define SCREEN_SHARE 0.4f
#define SCREEN_CELLS 8 /* that are rough, at least */

struct screen_look {
    const struct image *picture;
    atomic_int rough[2], dots[2][2][SCREEN_APART + 1]; /* of the luminance and of blue; to the right and down */
};

/* Luminance and blue: in colour prints the yellow dots lie the straightest. */
static void screen_read(const struct image *picture, int left, int top, uint8_t light[2][SCREEN_SIDE][SCREEN_SIDE])
{
    for (int y = 0; y < SCREEN_SIDE; y++) {
        const uint8_t *row =
            (const uint8_t *)picture->pixels + 3 * ((size_t)(top + y) * (size_t)picture->width + (size_t)left);
        for (int x = 0; x < SCREEN_SIDE; x++) {
            light[0][y][x] = (uint8_t)((77 * row[3 * x] + 150 * row[3 * x + 1] + 29 * row[3 * x + 2]) >> 8);
            light[1][y][x] = row[3 * x + 2];
        }
    }
}

/* The sum of the differences of a cell's pixels and those so far from them. */
static int screen_apart(const uint8_t light[SCREEN_SIDE][SCREEN_SIDE], int right, int down)
{
    int sum = 0;
    for (int y = 0; y < SCREEN_CELL; y++)
        for (int x = 0; x < SCREEN_CELL; x++)
            sum += abs(light[y][x] - light[y + down][x + right]);
    return sum;
}

/* Counts how far apart dots may be in one direction. Returns whether there is anything. */
static bool screen_count(const uint8_t light[SCREEN_SIDE][SCREEN_SIDE], bool down, atomic_int dots[SCREEN_APART + 1])
{
    int most = 0;
    bool rough = false;
    for (int apart = 1; apart <= SCREEN_APART; apart++) {
        const int sum = screen_apart(light, down ? 0 : apart, down ? apart : 0);
        if ((float)sum < SCREEN_DIP * (float)most)
            atomic_fetch_add_explicit(&dots[apart], 1, memory_order_relaxed);
        most = sum > most ? sum : most;
        rough = rough || (apart <= SCREEN_NEAR && sum > SCREEN_ROUGH * SCREEN_CELL * SCREEN_CELL);
    }
    return rough;
}

static void screen_cell(void *context, int item)
{
    struct screen_look *look = context;
    const struct image *picture = look->picture;
    uint8_t light[2][SCREEN_SIDE][SCREEN_SIDE];
    const int x = (picture->width - SCREEN_SIDE) * (item % SCREEN_GRID) / (SCREEN_GRID - 1),
              y = (picture->height - SCREEN_SIDE) * (item / SCREEN_GRID) / (SCREEN_GRID - 1);
    screen_read(picture, x, y, light);
    for (int k = 0; k < 2; k++) {
        const bool across = screen_count(light[k], false, look->dots[k][0]),
                   down = screen_count(light[k], true, look->dots[k][1]);
        if (across || down)
            atomic_fetch_add_explicit(&look->rough[k], 1, memory_order_relaxed);
    }
}

/* The most cells that have dots equally far apart. */
static int screen_most(atomic_int dots[SCREEN_APART + 1])
{
    int most = 0;
    for (int apart = 1; apart <= SCREEN_APART; apart++)
        most = atomic_load(&dots[apart]) > most ? atomic_load(&dots[apart]) : most;
    return most;
}

bool repair_is_screen(const struct image *picture)
{
    struct screen_look look = {.picture = picture};
    bool screen = false;
    if (picture->width < 2 * SCREEN_SIDE || picture->height < 2 * SCREEN_SIDE)
        return false;
    thread_for(SCREEN_GRID * SCREEN_GRID, screen_cell, &look);
    for (int k = 0; k < 2; k++) {
        const float rough = (float)atomic_load(&look.rough[k]);
        screen = screen || (rough >= SCREEN_CELLS && (float)screen_most(look.dots[k][0]) > SCREEN_SHARE * rough &&
                            (float)screen_most(look.dots[k][1]) > SCREEN_SHARE * rough);
    }
    return screen;
}

/* ---- what both sizes show ---------------------------------------------------------------------------------------- */

/* What is less likely than this in the half (80: 0.05) is no damage. Of 162 photos printed in drawn screens without
 * damage 17 had some before, .26 % of all pixels, and 8 have now, .037 %; of what was gained by repairs of damaged
 * prints, pieces that have more are 98 %. With 100 less dust on prints is found. */
#define SCREEN_SHOWN 80
/* A defect goes on so far, over what is this likely in the picture itself, from where the half shows it. */
#define SCREEN_FOLLOW 128
#define SCREEN_FOLLOW_FROM 114

struct screen_half {
    int width, height; /* of the picture */
    const uint8_t *half;
    uint8_t *level, *shown;
};

static void screen_seed_band(void *context, int item)
{
    const struct screen_half *both = context;
    int begin, end;
    thread_band(both->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const uint8_t *half = both->half + (size_t)(y / 2) * (size_t)((both->width + 1) / 2);
        for (int x = 0; x < both->width; x++)
            both->shown[(size_t)y * (size_t)both->width + (size_t)x] = half[x / 2] >= SCREEN_SHOWN;
    }
}

static void screen_clear_band(void *context, int item)
{
    const struct screen_half *both = context;
    int begin, end;
    thread_band(both->height, item, &begin, &end);
    for (size_t i = (size_t)begin * (size_t)both->width; i < (size_t)end * (size_t)both->width; i++)
        both->level[i] = both->shown[i] ? both->level[i] : 0;
}

enum error_code repair_find_halved(struct step *step, uint8_t *level, uint8_t *room, struct error *err)
{
    const struct image *picture = step->r->picture;
    const size_t pixels = (size_t)((picture->width + 1) / 2) * (size_t)((picture->height + 1) / 2);
    struct image *image = NULL;
    uint8_t *half = mem_alloc(pixels, 2);
    enum error_code code = half ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory to find damage");
    if (code == OK)
        code = fill_inner_halve(picture, NULL, &image, NULL, err);
    if (code == OK)
        code = repair_find(step, image, 0, half, half + pixels, err);
    struct screen_half both = {picture->width, picture->height, half, level, room};
    if (code == OK)
        thread_for(thread_bands(both.height), screen_seed_band, &both);
    if (code == OK)
        code = defect_follow(room, 1, level, SCREEN_FOLLOW_FROM, SCREEN_FOLLOW, both.width, both.height, room, err);
    if (code == OK)
        thread_for(thread_bands(both.height), screen_clear_band, &both);
    image_destroy(&image);
    free(half);
    return code;
}
