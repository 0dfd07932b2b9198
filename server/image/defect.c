#include "server/image/defect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

/* A line across a small picture is a large part of it: what has fewer px than so many of its shorter sides is not huge.
 */
#define DEFECT_LINE 5

const char *const defect_names[DEFECT_KINDS] = {"thin", "crack", "dust", "stain"};
const uint8_t defect_grays[DEFECT_GIVEN + 1] = {0, 240, 224, 208, 192, 255};

bool defect_kinds_read(const char *text, unsigned *kinds)
{
    unsigned found = 0;
    if (!strcmp(text, "all") || !strcmp(text, "none")) {
        *kinds = *text == 'a' ? DEFECT_ALL : 0;
        return true;
    }
    for (;; text++) {
        const size_t n = strcspn(text, ",");
        int kind = 0;
        while (kind < DEFECT_KINDS && (strlen(defect_names[kind]) != n || strncmp(text, defect_names[kind], n) != 0))
            kind++;
        if (kind == DEFECT_KINDS || found & 1u << kind)
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
        const size_t room = runs->room ? 2 * runs->room : 1024;
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
    for (size_t i = first; i < runs->count; i++) {
        while (above < first && runs->list[above].end < runs->list[i].begin)
            above++;
        for (size_t k = above; k < first && runs->list[k].begin <= runs->list[i].end; k++)
            defect_join(runs, k, i);
    }
    return true;
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

static void defect_sum(struct defect_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++) {
        const uint32_t root = defect_root(runs, (uint32_t)i);
        if (root == i)
            continue;
        runs->list[root].sure += runs->list[i].sure;
        for (int k = 0; k < DEFECT_KINDS; k++)
            runs->list[root].kinds[k] += runs->list[i].kinds[k];
    }
}

static void defect_paint(struct defect_runs *runs, const size_t *rows, const struct defect_map *map,
                         const struct defect_rule *rule, uint8_t *mask, struct defect_counts *counts)
{
    for (int y = 0; y < map->height; y++)
        for (size_t i = rows[y]; i < rows[y + 1]; i++) {
            const struct defect_run *run = &runs->list[i];
            const uint32_t root = defect_root(runs, (uint32_t)i);
            const int kind = defect_judge(&runs->list[root], rule, map);
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
    struct defect_runs runs = {0};
    size_t *rows = mem_alloc((size_t)map->height + 1, sizeof *rows);
    bool room = rows != NULL;
    if (!rule->more) {
        memset(mask, 0, (size_t)map->width * (size_t)map->height);
        *counts = (struct defect_counts){0};
    }
    for (int y = 0; y < map->height && room; y++) {
        rows[y] = runs.count;
        room = defect_row(map, rule, mask, y, &runs, y ? rows[y - 1] : 0);
    }
    if (room) {
        rows[map->height] = runs.count;
        defect_sum(&runs);
        defect_paint(&runs, rows, map, rule, mask, counts);
        counts->highest = runs.highest > counts->highest ? runs.highest : counts->highest;
    }
    free(rows);
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

/* A row's own values and those beside them. Returns whether there is one that is not 0. */
static bool defect_widen(const uint8_t *restrict row, uint8_t *restrict out, int width)
{
    size_t first = 0;
    while ((first = defect_clear(row, first, (size_t)width)) < (size_t)width && !row[first])
        first++;
    memset(out, 0, (size_t)width);
    if (first == (size_t)width)
        return false;
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
static void defect_spread_likely(uint8_t *restrict row, const uint8_t *restrict before, const uint8_t *restrict here,
                                 const uint8_t *restrict next, const uint8_t *restrict level, uint8_t from, size_t n)
{
    for (size_t x = 0; x < n; x++) {
        const uint8_t value = defect_larger(here[x], defect_larger(before[x], next[x]));
        row[x] = level[x] >= from ? value : row[x];
    }
}

enum error_code defect_grow(uint8_t *mask, const uint8_t *level, uint8_t from, int width, int height, struct error *err)
{
    const size_t n = (size_t)width;
    uint8_t *wide = mem_calloc(3 * n, 1); /* rows y-1, y, y+1, widened, at their numbers modulo 3 */
    bool any[3] = {false, false, false};
    if (!wide)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a mask");
    any[0] = defect_widen(mask, wide, width);
    for (int y = 0; y < height; y++) {
        const int after = (y + 1) % 3;
        uint8_t *next = wide + (size_t)after * n, *row = mask + (size_t)y * n;
        const uint8_t *before = wide + (size_t)((y + 2) % 3) * n, *here = wide + (size_t)(y % 3) * n;
        if (y + 1 < height)
            any[after] = defect_widen(row + n, next, width);
        else
            memset(next, 0, n);
        any[after] = any[after] && y + 1 < height;
        if ((any[0] || any[1] || any[2]) && level)
            defect_spread_likely(row, before, here, next, level + (size_t)y * n, from, n);
        else if (any[0] || any[1] || any[2])
            defect_spread(row, before, here, next, n);
    }
    free(wide);
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
        const size_t room = list->room ? 2 * list->room : 4096;
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

enum error_code defect_follow(const uint8_t *mask, uint8_t value, const uint8_t *level, uint8_t from, int reach,
                              int width, int height, uint8_t *beyond, struct error *err)
{
    const size_t pixels = (size_t)width * (size_t)height;
    struct defect_list list = {0};
    memcpy(beyond, mask, pixels);
    for (size_t i = 0; (i = defect_clear(mask, i, pixels)) < pixels; i++)
        if (mask[i] == value && reach > 0)
            defect_step(&list, i, level, from, width, height, beyond);
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
