/* The pixels that the fill changes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/colour.h"
#include "server/pipeline/repair_private.h"

/* ---- which ------------------------------------------------------------------------------------------------------- */

_Static_assert(REPAIR_FEATHER == 2, "the distances of change_away");

struct away_loop {
    const uint8_t *mask;
    struct fill_changes *changes;
    atomic_bool failed;
};

/* Whether there is a pixel of the mask in a row's columns, one row away at most, and two. */
static void change_near(const uint8_t *const restrict rows[5], int width, uint8_t *restrict one, uint8_t *restrict two)
{
    const uint8_t *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2], *restrict d = rows[3],
                            *restrict e = rows[4];
    for (int x = 0; x < width; x++) {
        const uint8_t near = b[x] | c[x] | d[x];
        one[x] = near;
        two[x] = near | a[x] | e[x];
    }
}

/* How far each pixel is from the mask, of a row with two columns more at both its ends: 3 is farther than counts. */
static void change_away(const uint8_t *restrict own, const uint8_t *restrict one, const uint8_t *restrict two,
                        int width, uint8_t *restrict away)
{
    for (int x = 0; x < width; x++) {
        const uint8_t first = one[x - 1] | one[x] | one[x + 1],
                      second = two[x - 2] | two[x - 1] | two[x] | two[x + 1] | two[x + 2];
        uint8_t far = second ? 2 : 3;
        far = first ? 1 : far;
        away[x] = own[x] ? 0 : far;
    }
}

/* Room for a row of `width`: zeros, and the row's distances. */
struct away_room {
    uint8_t *zeros, *one, *two, *away;
};

/* Sets room->away. false: the row has no changes. */
static bool change_row(const struct away_loop *loop, int y, const struct away_room *room)
{
    const int width = loop->changes->width, height = loop->changes->height;
    const uint8_t *rows[5];
    bool any = false;
    for (int i = 0; i < 5; i++) {
        const int at = y + i - 2;
        const bool inside = at >= 0 && at < height;
        rows[i] = inside ? loop->mask + (size_t)at * (size_t)width : room->zeros;
        any = any || (inside && defect_clear(rows[i], 0, (size_t)width) + 8 <= (size_t)width);
        for (int x = width - width % 8; x < width && inside; x++)
            any = any || rows[i][x];
    }
    if (!any)
        return false;
    change_near(rows, width, room->one, room->two);
    change_away(rows[2], room->one, room->two, width, room->away);
    return true;
}

static uint8_t *change_room(struct away_room *room, int width)
{
    const size_t n = (size_t)width, part = n + 4;
    uint8_t *all = mem_calloc(4 * part, 1);
    if (all)
        *room = (struct away_room){all, all + part + 2, all + 2 * part + 2, all + 3 * part};
    return all;
}

/* Counts the changes of a band's rows; or lists them, where they are counted. */
static void change_band(void *context, int item)
{
    struct away_loop *loop = context;
    struct fill_changes *changes = loop->changes;
    struct away_room room = {0};
    uint8_t *all = change_room(&room, changes->width);
    int begin, end;
    thread_band(changes->height, item, &begin, &end);
    if (!all)
        atomic_store(&loop->failed, true);
    for (int y = begin; y < end && all; y++) {
        const bool listing = changes->list != NULL;
        const size_t first = y && listing ? changes->row_ends[y - 1] : 0;
        size_t count = 0;
        if ((listing && changes->row_ends[y] == first) || !change_row(loop, y, &room))
            continue;
        for (int x = 0; x < changes->width; x++)
            if (room.away[x] <= REPAIR_FEATHER) {
                if (listing)
                    changes->list[first + count] = (struct fill_change){.x = (uint32_t)x, .away = room.away[x] & 3};
                count++;
            }
        if (!listing)
            changes->row_ends[y] = count;
    }
    free(all);
}

void fill_changes_free(struct fill_changes *changes)
{
    free(changes->list);
    free(changes->row_ends);
    *changes = (struct fill_changes){0};
}

enum error_code fill_changes_create(struct fill_changes *changes, const uint8_t *mask, int width, int height,
                                    struct error *err)
{
    *changes = (struct fill_changes){.width = width, .height = height};
    struct away_loop loop = {.mask = mask, .changes = changes};
    size_t count = 0;
    changes->row_ends = mem_calloc((size_t)height, sizeof *changes->row_ends);
    bool room = changes->row_ends != NULL;
    if (room)
        thread_for(thread_bands(height), change_band, &loop);
    for (int y = 0; y < height && room; y++)
        count = changes->row_ends[y] += count;
    if (room && !atomic_load(&loop.failed))
        changes->list = mem_alloc(count, sizeof *changes->list);
    room = room && changes->list;
    if (room)
        thread_for(thread_bands(height), change_band, &loop);
    if (room && !atomic_load(&loop.failed))
        return OK;
    fill_changes_free(changes);
    return error_set(err, ERROR_NO_MEMORY, "out of memory for the repaired pixels");
}

static size_t changes_begin(const struct fill_changes *changes, int y)
{
    return y ? changes->row_ends[y - 1] : 0;
}

/* Of a side, the first core and the last that have a pixel, or are blended over it, or over one beside it. */
static void change_cores(int at, int side, int more, int cores, int *first, int *last)
{
    *first = at > more ? (at - more) / side : 0;
    *last = (at + more) / side < cores ? (at + more) / side : cores - 1;
}

static void change_use(const struct fill_cut *cut, int x, int y, atomic_bool *used)
{
    const int more = cut->blend + REPAIR_FEATHER;
    int left, right, top, bottom;
    change_cores(x, cut->core_width, more, cut->columns, &left, &right);
    change_cores(y, cut->core_height, more, cut->rows, &top, &bottom);
    for (int i = top; i <= bottom; i++)
        for (int k = left; k <= right; k++)
            if (!atomic_load_explicit(&used[i * cut->columns + k], memory_order_relaxed))
                atomic_store_explicit(&used[i * cut->columns + k], true, memory_order_relaxed);
}

struct look_loop {
    const uint8_t *mask;
    int width, height;
    const struct fill_cut *cut;
    atomic_bool *used;
};

static void change_look_band(void *context, int item)
{
    struct look_loop *loop = context;
    const size_t width = (size_t)loop->width;
    int begin, end;
    thread_band(loop->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const uint8_t *mask = loop->mask + (size_t)y * width;
        for (size_t x = 0; (x = defect_clear(mask, x, width)) < width; x++)
            if (mask[x])
                change_use(loop->cut, (int)x, y, loop->used);
    }
}

void fill_look(const uint8_t *mask, int width, int height, const struct fill_cut *cut, atomic_bool *used)
{
    struct look_loop loop = {mask, width, height, cut, used};
    thread_for(thread_bands(height), change_look_band, &loop);
}

/* ---- their colours ----------------------------------------------------------------------------------------------- */

/* A core's share at a place: 1 but near a border that it shares with another, where the two make 1. */
static float change_share(int side, int overlap, int place, int core, int cores)
{
    const float at = (float)place + 0.5f, begin = (float)(core * side), end = begin + (float)side,
                blend = (float)overlap;
    float share = 1;
    if (core > 0)
        share = fminf(share, (at - begin + blend) / (2 * blend));
    if (core + 1 < cores)
        share = fminf(share, (end + blend - at) / (2 * blend));
    return share > 0 ? share : 0;
}

/* The first change of a row whose x is not below `x`. */
static size_t changes_find(const struct fill_changes *changes, int y, int x)
{
    size_t low = changes_begin(changes, y), high = changes->row_ends[y];
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((int)changes->list[middle].x < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How much of its grain a luminance has: what is nearly white or black is clipped, and has little. */
static float change_grain(float light)
{
    return fminf(fmaxf((fminf(light, 255 - light) - 4) / 12, 0), 1);
}

/* A row's changes that lie in a window, by its share there. */
static void change_add(const struct fill_changes *changes, const struct fill_window *w, int y)
{
    const struct fill_cut *cut = w->cut;
    const int left = w->column * cut->core_width - cut->blend, right = left + cut->core_width + 2 * cut->blend;
    const float down = change_share(cut->core_height, cut->blend, y, w->row, cut->rows);
    struct fill_grain_row grain = {.w = w, .y = y};
    const float *row = w->rgb + (y - w->y) * cut->width - w->x;
    for (size_t i = changes_find(changes, y, left); i < changes->row_ends[y]; i++) {
        struct fill_change *change = &changes->list[i];
        const int x = (int)change->x;
        if (x >= right)
            break;
        const float share = down * change_share(cut->core_width, cut->blend, x, w->column, cut->columns);
        const float light = repair_luminance(row + x, cut->pixels),
                    lack = fill_grain_at(&grain, x, change->away, light),
                    rough = lack != 0 ? lack * change_grain(light) : 0;
        for (int c = 0; c < 3; c++)
            change->rgb[c] += share * (row[c * cut->pixels + x] + rough);
    }
}

/* ---- into the picture -------------------------------------------------------------------------------------------- */

/* Nearest, between 0 and `most`. fmaxf and fminf are calls here, and this is asked for each sample that changes. */
static long change_sample(float value, float most)
{
    return lrintf(value < 0 ? 0 : value > most ? most : value);
}

/* Mixes RGB on the 8-bit scale into a pixel. */
static void change_mix(struct image *image, int y, int x, const float *rgb, float share)
{
    const size_t at = ((size_t)y * (size_t)image->width + (size_t)x) * (size_t)image->channels;
    for (int c = 0; c < image->channels; c++) {
        const float value = image->channels == 3 ? rgb[c] : (rgb[0] + rgb[1] + rgb[2]) / 3;
        const size_t k = at + (size_t)c;
        if (image->bits == 16) {
            uint16_t *sample = (uint16_t *)image->pixels + k;
            *sample = (uint16_t)change_sample(*sample + share * (value * 257 - *sample), 65535);
        } else {
            uint8_t *sample = (uint8_t *)image->pixels + k;
            *sample = (uint8_t)change_sample(*sample + share * (value - *sample), 255);
        }
    }
}

struct apply_loop {
    const struct fill_changes *changes;
    struct image *to; /* NULL: none yet */
    const struct colour *colour;
    float strength;
};

static void change_apply_rows(const struct apply_loop *loop, int begin, int end)
{
    const struct fill_changes *changes = loop->changes;
    for (int y = begin; y < end; y++)
        for (size_t i = changes_begin(changes, y); i < changes->row_ends[y]; i++) {
            const struct fill_change *change = &changes->list[i];
            const float alpha = 1 - (float)change->away / (REPAIR_FEATHER + 1);
            float own[3] = {change->rgb[0], change->rgb[1], change->rgb[2]};
            if (loop->colour)
                colour_from_srgb(loop->colour, own, own, 1);
            if (loop->colour && loop->to->channels == 1)
                own[1] = own[2] = own[0];
            change_mix(loop->to, y, (int)change->x, own, alpha * loop->strength);
        }
}

static void change_apply(void *context, int item)
{
    const struct apply_loop *loop = context;
    int begin, end;
    thread_band(loop->changes->height, item, &begin, &end);
    change_apply_rows(loop, begin, end);
}

void fill_changes_apply(const struct fill_changes *changes, struct image *to, const struct colour *colour,
                        double strength)
{
    struct apply_loop loop = {changes, to, colour, (float)strength};
    thread_for(thread_bands(changes->height), change_apply, &loop);
}

/* ---- from windows ------------------------------------------------------------------------------------------------ */

struct add_loop {
    struct apply_loop apply;
    struct fill_window *windows;
    int count, top, bottom; /* the rows */
};

static void changes_add_band(void *context, int item)
{
    const struct add_loop *loop = context;
    int begin, end;
    thread_band(loop->bottom - loop->top, item, &begin, &end);
    for (int i = 0; i < loop->count; i++) {
        struct fill_window *w = &loop->windows[i];
        const int first = w->row * w->cut->core_height - w->cut->blend,
                  last = (w->row + 1) * w->cut->core_height + w->cut->blend;
        for (int y = loop->top + begin; y < loop->top + end; y++)
            if (y >= first && y < last)
                change_add(loop->apply.changes, w, y);
    }
    if (loop->apply.to)
        change_apply_rows(&loop->apply, loop->top + begin, loop->top + end);
}

void fill_changes_add(struct fill_changes *changes, struct fill_window *windows, int count, struct image *to,
                      double strength)
{
    const struct fill_cut *cut = windows->cut;
    const int top = windows[0].row * cut->core_height - cut->blend,
              bottom = (windows[count - 1].row + 1) * cut->core_height + cut->blend;
    struct add_loop loop = {.apply = {changes, to, NULL, (float)strength},
                            .windows = windows,
                            .count = count,
                            .top = top > 0 ? top : 0,
                            .bottom = bottom < changes->height ? bottom : changes->height};
    thread_for(thread_bands(loop.bottom - loop.top), changes_add_band, &loop);
}
