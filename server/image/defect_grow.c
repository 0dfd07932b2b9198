/* What is done with a mask of defects (defect.c): it grows, goes on, and is counted. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/defect.h"

static inline uint8_t defect_larger(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

size_t defect_clear(const uint8_t *mask, size_t at, size_t count)
{
    for (uint64_t eight; at + 8 <= count; at += 8) {
        memcpy(&eight, mask + at, sizeof eight);
        if (eight)
            break;
    }
    return at;
}

typedef _Atomic uint64_t defect_sums[DEFECT_GIVEN + 1];

/* Counts some of a mask's values. */
static void defect_tally(const uint8_t *mask, size_t begin, size_t end, defect_sums sums)
{
    uint64_t counts[DEFECT_GIVEN + 1] = {0};
    for (size_t i = begin; (i = defect_clear(mask, i, end)) < end; i++)
        counts[mask[i]]++;
    for (int v = 1; v <= DEFECT_GIVEN; v++)
        if (counts[v])
            atomic_fetch_add_explicit(&sums[v], counts[v], memory_order_relaxed);
}

static uint64_t defect_total(defect_sums sums, uint64_t counts[DEFECT_GIVEN + 1])
{
    uint64_t all = 0;
    for (int v = 0; v <= DEFECT_GIVEN; v++)
        all += counts[v] = atomic_load(&sums[v]);
    return all;
}

struct count_loop {
    const uint8_t *mask;
    int width, height;
    defect_sums sums;
};

static void defect_count_band(void *context, int item)
{
    struct count_loop *loop = context;
    int begin, end;
    thread_band(loop->height, item, &begin, &end);
    defect_tally(loop->mask, (size_t)begin * (size_t)loop->width, (size_t)end * (size_t)loop->width, loop->sums);
}

uint64_t defect_count(const uint8_t *mask, int width, int height, uint64_t counts[DEFECT_GIVEN + 1])
{
    struct count_loop loop = {.mask = mask, .width = width, .height = height};
    thread_for(thread_bands(height), defect_count_band, &loop);
    return defect_total(loop.sums, counts);
}

/* A row's own values and those beside them. Returns whether there is one that is not 0; else it sets none. */
static bool defect_widen(const uint8_t *restrict row, uint8_t *restrict out, int width)
{
    size_t first = 0;
    while ((first = defect_clear(row, first, (size_t)width)) < (size_t)width && !row[first])
        first++;
    if (first == (size_t)width)
        return false;
    memset(out, 0, (size_t)width);
    const int from = first > 1 ? (int)first - 1 : 1;
    out[0] = defect_larger(row[0], width > 1 ? row[1] : 0);
    for (int x = from; x < width - 1; x++)
        out[x] = defect_larger(row[x], defect_larger(row[x - 1], row[x + 1]));
    if (width > 1)
        out[width - 1] = defect_larger(row[width - 1], row[width - 2]);
    return true;
}

static void defect_spread(uint8_t *restrict row, const uint8_t *restrict before, const uint8_t *restrict here,
                          const uint8_t *restrict next, size_t n)
{
    for (size_t x = 0; x < n; x++)
        row[x] = defect_larger(here[x], defect_larger(before[x], next[x]));
}

/* Only where the level is at least `from`. */
static void defect_spread_likely(uint8_t *restrict row, const uint8_t *restrict own, const uint8_t *restrict before,
                                 const uint8_t *restrict here, const uint8_t *restrict next,
                                 const uint8_t *restrict level, uint8_t from, size_t n)
{
    for (size_t x = 0; x < n; x++) {
        const uint8_t value = defect_larger(here[x], defect_larger(before[x], next[x]));
        row[x] = level[x] >= from ? value : own[x];
    }
}

struct grow_loop {
    const uint8_t *mask, *level;
    uint8_t *out, *copy, *room; /* room: of each band three widened rows */
    uint8_t from;
    int width, height;
    defect_sums sums;
};

/* Widens row y, beyond the mask's edges one of zeros, into its place in the room: y modulo 3. */
static void defect_widen_at(const struct grow_loop *loop, int y, uint8_t *wide, bool any[3])
{
    const size_t n = (size_t)loop->width, at = (size_t)(y + 3) % 3;
    any[at] = y >= 0 && y < loop->height && defect_widen(loop->mask + (size_t)y * n, wide + at * n, loop->width);
    if (!any[at])
        memset(wide + at * n, 0, n);
}

static void defect_grow_band(void *context, int item)
{
    struct grow_loop *loop = context;
    const size_t n = (size_t)loop->width;
    uint8_t *wide = loop->room + 3 * (size_t)item * n;
    bool any[3];
    int begin, end;
    thread_band(loop->height, item, &begin, &end);
    defect_widen_at(loop, begin - 1, wide, any);
    defect_widen_at(loop, begin, wide, any);
    for (int y = begin; y < end; y++) {
        const uint8_t *own = loop->mask + (size_t)y * n, *before = wide + (size_t)((y + 2) % 3) * n,
                      *here = wide + (size_t)(y % 3) * n, *next = wide + (size_t)((y + 1) % 3) * n;
        uint8_t *row = loop->out + (size_t)y * n;
        defect_widen_at(loop, y + 1, wide, any);
        if (!any[0] && !any[1] && !any[2])
            memset(row, 0, n);
        else if (loop->level)
            defect_spread_likely(row, own, before, here, next, loop->level + (size_t)y * n, loop->from, n);
        else
            defect_spread(row, before, here, next, n);
        if (loop->copy)
            memcpy(loop->copy + (size_t)y * n, row, n);
    }
    if (loop->copy)
        defect_tally(loop->out, (size_t)begin * n, (size_t)end * n, loop->sums);
}

enum error_code defect_grow(const uint8_t *mask, uint8_t *out, const uint8_t *level, uint8_t from, int width,
                            int height, struct defect_grown *grown, struct error *err)
{
    const int bands = thread_bands(height);
    struct grow_loop loop = {.mask = mask, .out = out, .level = level, .from = from, .width = width, .height = height};
    loop.copy = grown ? grown->copy : NULL;
    loop.room = mem_alloc((size_t)bands, 3 * (size_t)width);
    if (!loop.room)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a mask");
    thread_for(bands, defect_grow_band, &loop);
    if (grown)
        defect_total(loop.sums, grown->counts);
    free(loop.room);
    return OK;
}

struct defect_list {
    uint32_t *places;
    size_t count, room;
    bool full; /* of memory */
};

static void defect_push(struct defect_list *list, size_t place)
{
    if (list->count == list->room) {
        const size_t room = list->room ? 2 * list->room : 256;
        uint32_t *places = room > SIZE_MAX / sizeof *places ? NULL : realloc(list->places, room * sizeof *places);
        if (!places) {
            list->full = true;
            return;
        }
        list->places = places;
        list->room = room;
    }
    list->places[list->count++] = (uint32_t)place;
}

/* Marks the neighbours of a place whose level is at least `from` and lists them. */
static void defect_step(struct defect_list *list, size_t place, const uint8_t *level, uint8_t from, int width,
                        int height, uint8_t *beyond)
{
    const int x = (int)(place % (size_t)width), y = (int)(place / (size_t)width);
    for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < height; v++)
        for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < width; u++) {
            const size_t at = (size_t)v * (size_t)width + (size_t)u;
            if (beyond[at] || level[at] < from)
                continue;
            beyond[at] = 1;
            defect_push(list, at);
        }
}

/* Whether one of a place's neighbours has that value. */
static bool defect_beside(const uint8_t *mask, uint8_t value, int x, int y, int width, int height)
{
    for (int v = y > 0 ? y - 1 : 0; v <= y + 1 && v < height; v++)
        for (int u = x > 0 ? x - 1 : 0; u <= x + 1 && u < width; u++)
            if (mask[(size_t)v * (size_t)width + (size_t)u] == value)
                return true;
    return false;
}

struct defect_border {
    const uint8_t *mask, *level, *beyond;
    uint8_t value, from;
    int width, height;
    struct defect_list *lists; /* of each band */
};

/* Lists what lies beside a mask's pixels of that value and has a level of at least `from`, of a band's rows. */
static void defect_border_band(void *context, int item)
{
    const struct defect_border *border = context;
    const int width = border->width;
    int begin, end;
    thread_band(border->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const uint8_t *level = border->level + (size_t)y * (size_t)width;
        for (int x = 0; (x = defect_next(level, x, width, border->from)) < width; x++) {
            const size_t at = (size_t)y * (size_t)width + (size_t)x;
            if (level[x] >= border->from && !border->beyond[at] &&
                defect_beside(border->mask, border->value, x, y, width, border->height))
                defect_push(&border->lists[item], at);
        }
    }
}

/* The same of all rows, as one list, and marked. */
static void defect_begin(struct defect_list *list, struct defect_border *border, uint8_t *beyond)
{
    const int bands = thread_bands(border->height);
    border->lists = mem_calloc((size_t)bands, sizeof *border->lists);
    list->full = !border->lists;
    if (list->full)
        return;
    thread_for(bands, defect_border_band, border);
    for (int i = 0; i < bands; i++) {
        const struct defect_list *part = &border->lists[i];
        list->full = list->full || part->full;
        for (size_t k = 0; k < part->count; k++) {
            beyond[part->places[k]] = 1;
            defect_push(list, part->places[k]);
        }
        free(part->places);
    }
    free(border->lists);
}

enum error_code defect_follow(const uint8_t *mask, uint8_t value, const uint8_t *level, uint8_t from, int reach,
                              int width, int height, uint8_t *beyond, struct error *err)
{
    struct defect_list list = {0};
    struct defect_border border = {mask, level, beyond, value, from, width, height, NULL};
    if (reach > 0)
        defect_begin(&list, &border, beyond);
    size_t done = 0, end = list.count;
    for (int step = 1; step < reach; step++, end = list.count)
        for (; done < end; done++)
            defect_step(&list, list.places[done], level, from, width, height, beyond);
    for (size_t i = 0; i < end; i++)
        defect_step(&list, list.places[i], level, 0, width, height, beyond);
    const bool full = list.full;
    free(list.places);
    return full ? error_set(err, ERROR_NO_MEMORY, "out of memory for a mask") : OK;
}
