#include "server/image/defect.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

/* A line across a small picture is a large part of it: what has fewer px than so many of its shorter sides is not huge.
 */
#define DEFECT_LINE 5

const char *const defect_names[DEFECT_KINDS] = {"thin", "crack", "dust", "stain"};
const uint8_t defect_grays[DEFECT_GIVEN + 1] = {0, 240, 224, 208, 192, 255};

bool defect_kinds_read(const char *text, unsigned *kinds)
{
    unsigned found = 0;
    if (!strcasecmp(text, "all") || !strcasecmp(text, "none")) {
        *kinds = strcasecmp(text, "all") ? 0 : DEFECT_ALL;
        return true;
    }
    for (;; text++) {
        const size_t n = strcspn(text, ",");
        int kind = 0;
        while (kind < DEFECT_KINDS &&
               (strlen(defect_names[kind]) != n || strncasecmp(text, defect_names[kind], n) != 0))
            kind++;
        if (kind == DEFECT_KINDS)
            return false;
        found |= 1u << kind;
        text += n;
        if (!*text)
            break;
    }
    *kinds = found;
    return true;
}

void defect_kinds_text(unsigned kinds, char out[DEFECT_TEXT_MAX])
{
    snprintf(out, DEFECT_TEXT_MAX, "%s", kinds == DEFECT_ALL ? "all" : kinds ? "" : "none");
    for (int k = 0; k < DEFECT_KINDS && kinds != DEFECT_ALL; k++)
        if (kinds & 1u << k)
            snprintf(out + strlen(out), DEFECT_TEXT_MAX - strlen(out), "%s%s", *out ? "," : "", defect_names[k]);
}

/* Pixels of a row that hang together. Runs that touch have one root, whose sums are those of the whole defect. */
struct defect_run {
    int begin, end;
    uint32_t root; /* a picture has fewer pixels than that */
    uint32_t sure, kinds[DEFECT_KINDS];
    int kind; /* of a root: the defect's, or -1 */
};

struct defect_runs {
    struct defect_run *list;
    size_t count, room;
    uint8_t highest; /* level */
};

static uint32_t defect_root(struct defect_runs *runs, uint32_t at)
{
    while (runs->list[at].root != at)
        at = runs->list[at].root = runs->list[runs->list[at].root].root;
    return at;
}

static void defect_join(struct defect_runs *runs, size_t one, size_t other)
{
    const uint32_t a = defect_root(runs, (uint32_t)one), b = defect_root(runs, (uint32_t)other);
    if (a < b)
        runs->list[b].root = a;
    else
        runs->list[a].root = b;
}

static struct defect_run *defect_add(struct defect_runs *runs, int begin)
{
    if (runs->count == runs->room) {
        const size_t room = runs->room ? 2 * runs->room : 128;
        struct defect_run *list = room > SIZE_MAX / sizeof *list ? NULL : realloc(runs->list, room * sizeof *list);
        if (!list)
            return NULL;
        runs->list = list;
        runs->room = room;
    }
    struct defect_run *run = &runs->list[runs->count];
    *run = (struct defect_run){.begin = begin, .root = (uint32_t)runs->count};
    runs->count++;
    return run;
}

/* The first of a row's pixels from x on whose level may be `from` or more: eight at a time are passed over. */
static int defect_next(const uint8_t *level, int x, int width, uint8_t from)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    const uint64_t add = ones * (uint64_t)(128 - (from < 128 ? from : 128));
    for (uint64_t eight; x + 8 <= width; x += 8) {
        memcpy(&eight, level + x, sizeof eight);
        if ((((eight & ~high) + add) | eight) & high)
            break;
    }
    return x;
}

static uint8_t defect_least(const struct defect_rule *rule)
{
    uint8_t least = rule->kinds[0].low;
    for (int k = 1; k < DEFECT_KINDS; k++)
        least = rule->kinds[k].low < least ? rule->kinds[k].low : least;
    return least;
}

/* Joins the runs from `first` on, of a row, to those of the row above, which are before them from `above` on. */
static void defect_touch(struct defect_runs *runs, size_t above, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        while (above < first && runs->list[above].end < runs->list[i].begin)
            above++;
        for (size_t k = above; k < first && runs->list[k].begin <= runs->list[i].end; k++)
            defect_join(runs, k, i);
    }
}

/* One row's runs; those of the row above begin at `above`. */
static bool defect_row(const struct defect_map *map, const struct defect_rule *rule, const uint8_t *mask, int y,
                       struct defect_runs *runs, size_t above)
{
    const size_t first = runs->count;
    const uint8_t *level = map->level + (size_t)y * (size_t)map->width,
                  *kind = map->kind + (size_t)y * (size_t)map->width;
    const uint8_t *own = rule->more ? mask + (size_t)y * (size_t)map->width : NULL;
    const uint8_t least = defect_least(rule);
    struct defect_run *run = NULL;
    for (int x = 0; x < map->width; x++) {
        if (!run && (x = defect_next(level, x, map->width, least)) == map->width)
            break;
        if (level[x] < rule->kinds[kind[x]].low || (own && own[x])) {
            run = NULL;
            continue;
        }
        if (!run && !(run = defect_add(runs, x)))
            return false;
        run->end = x + 1;
        run->sure += level[x] >= rule->kinds[kind[x]].high;
        run->kinds[kind[x]]++;
        runs->highest = level[x] > runs->highest ? level[x] : runs->highest;
    }
    defect_touch(runs, above, first, runs->count);
    return true;
}

struct defect_loop {
    const struct defect_map *map;
    const struct defect_rule *rule;
    uint8_t *mask;
    size_t *rows;              /* where each row's runs begin */
    struct defect_runs *bands; /* of each band of rows */
    atomic_bool failed;
};

/* A band's runs, as if there were no others; clears its mask, if it is not added to. */
static void defect_band(void *context, int item)
{
    struct defect_loop *loop = context;
    const struct defect_map *map = loop->map;
    struct defect_runs *runs = &loop->bands[item];
    int begin, end;
    thread_band(map->height, item, &begin, &end);
    if (!loop->rule->more)
        memset(loop->mask + (size_t)begin * (size_t)map->width, 0, (size_t)(end - begin) * (size_t)map->width);
    for (int y = begin; y < end; y++) {
        loop->rows[y] = runs->count;
        if (!defect_row(map, loop->rule, loop->mask, y, runs, y > begin ? loop->rows[y - 1] : runs->count)) {
            atomic_store(&loop->failed, true);
            return;
        }
    }
}

/* One list of all bands' runs. */
static bool defect_gather(const struct defect_loop *loop, struct defect_runs *all)
{
    const int height = loop->map->height;
    for (int i = 0; i < thread_bands(height); i++)
        all->room += loop->bands[i].count;
    all->list = mem_alloc(all->room, sizeof *all->list);
    for (int i = 0; i < thread_bands(height) && all->list; i++) {
        const struct defect_runs *band = &loop->bands[i];
        const size_t first = all->count;
        int begin, end;
        thread_band(height, i, &begin, &end);
        for (size_t k = 0; k < band->count; k++) {
            all->list[all->count] = band->list[k];
            all->list[all->count++].root += (uint32_t)first;
        }
        all->highest = band->highest > all->highest ? band->highest : all->highest;
        for (int y = begin; y < end; y++)
            loop->rows[y] += first;
        if (begin > 0)
            defect_touch(all, loop->rows[begin - 1], first, begin + 1 < end ? loop->rows[begin + 1] : all->count);
    }
    loop->rows[height] = all->count;
    return all->list;
}

/* The kind of a defect, from its sums; -1: it counts for nothing. */
static int defect_judge(const struct defect_run *root, const struct defect_rule *rule, const struct defect_map *map)
{
    uint64_t area = 0;
    int best = 0;
    for (int k = 0; k < DEFECT_KINDS; k++) {
        area += root->kinds[k];
        best = root->kinds[k] > root->kinds[best] ? k : best;
    }
    const double pixels = (double)map->width * map->height;
    float share = (double)area > (double)rule->large * pixels ? rule->kinds[best].sure_large : rule->sure;
    const double across = DEFECT_LINE * fmin(map->width, map->height);
    if (rule->huge > 0 && (double)area > fmax((double)rule->huge * pixels, across))
        share = rule->kinds[best].sure_huge;
    const bool counts =
        area >= (uint64_t)rule->least && root->sure && (double)root->sure >= (double)share * (double)area;
    return counts ? best : -1;
}

static void defect_sum(struct defect_runs *runs, const struct defect_rule *rule, const struct defect_map *map)
{
    for (size_t i = 0; i < runs->count; i++) {
        const uint32_t root = defect_root(runs, (uint32_t)i);
        if (root == i)
            continue;
        runs->list[root].sure += runs->list[i].sure;
        for (int k = 0; k < DEFECT_KINDS; k++)
            runs->list[root].kinds[k] += runs->list[i].kinds[k];
    }
    for (size_t i = 0; i < runs->count; i++)
        if (runs->list[i].root == i)
            runs->list[i].kind = defect_judge(&runs->list[i], rule, map);
}

static void defect_paint(struct defect_runs *runs, const size_t *rows, const struct defect_map *map, uint8_t *mask,
                         struct defect_counts *counts)
{
    for (int y = 0; y < map->height; y++)
        for (size_t i = rows[y]; i < rows[y + 1]; i++) {
            const struct defect_run *run = &runs->list[i];
            const uint32_t root = defect_root(runs, (uint32_t)i);
            const int kind = runs->list[root].kind;
            if (kind < 0)
                continue;
            counts->defects[kind] += root == i;
            counts->pixels[kind] += (uint64_t)(run->end - run->begin);
            memset(mask + (size_t)y * (size_t)map->width + run->begin, 1 + kind, (size_t)(run->end - run->begin));
        }
}

enum error_code defect_find(const struct defect_map *map, const struct defect_rule *rule, uint8_t *mask,
                            struct defect_counts *counts, struct error *err)
{
    const int bands = thread_bands(map->height);
    struct defect_runs runs = {0};
    struct defect_loop loop = {.map = map, .rule = rule, .mask = mask};
    loop.rows = mem_alloc((size_t)map->height + 1, sizeof *loop.rows);
    loop.bands = mem_calloc((size_t)bands, sizeof *loop.bands);
    bool room = loop.rows && loop.bands;
    if (!rule->more)
        *counts = (struct defect_counts){0};
    if (room)
        thread_for(bands, defect_band, &loop);
    room = room && !atomic_load(&loop.failed) && defect_gather(&loop, &runs);
    if (room) {
        defect_sum(&runs, rule, map);
        defect_paint(&runs, loop.rows, map, mask, counts);
        counts->highest = runs.highest > counts->highest ? runs.highest : counts->highest;
    }
    for (int i = 0; i < bands && loop.bands; i++)
        free(loop.bands[i].list);
    free(loop.bands);
    free(loop.rows);
    free(runs.list);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a list of defects");
}

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
