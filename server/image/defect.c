#include "server/image/defect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

uint8_t defect_level(float logit)
{
    const float level = roundf(logit * 16) + 128;
    return (uint8_t)(level > 0 ? level < 255 ? level : 255 : 0); /* NaN: 0 */
}

/* Pixels of a row that hang together. Runs that touch have one root, whose sums are those of the whole defect. */
struct defect_run {
    int begin, end;
    size_t root;
    uint64_t sure, kinds[DEFECT_KINDS];
};

struct defect_runs {
    struct defect_run *list;
    size_t count, room;
};

static size_t defect_root(struct defect_runs *runs, size_t at)
{
    while (runs->list[at].root != at)
        at = runs->list[at].root = runs->list[runs->list[at].root].root;
    return at;
}

static void defect_join(struct defect_runs *runs, size_t a, size_t b)
{
    a = defect_root(runs, a);
    b = defect_root(runs, b);
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
    *run = (struct defect_run){.begin = begin, .root = runs->count};
    runs->count++;
    return run;
}

/* One row's runs; those of the row above begin at `above`. */
static bool defect_row(const struct defect_map *map, const struct defect_rule *rule, int y, struct defect_runs *runs,
                       size_t above)
{
    const size_t first = runs->count;
    const uint8_t *level = map->level + (size_t)y * (size_t)map->width,
                  *kind = map->kind + (size_t)y * (size_t)map->width;
    struct defect_run *run = NULL;
    for (int x = 0; x < map->width; x++) {
        if (level[x] < rule->kinds[kind[x]].low) {
            run = NULL;
            continue;
        }
        if (!run && !(run = defect_add(runs, x)))
            return false;
        run->end = x + 1;
        run->sure += level[x] >= rule->kinds[kind[x]].high;
        run->kinds[kind[x]]++;
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
    const float share = (double)area > (double)rule->large * pixels ? rule->kinds[best].sure_large : rule->sure;
    const bool counts =
        area >= (uint64_t)rule->least && root->sure && (double)root->sure >= (double)share * (double)area;
    return counts ? best : -1;
}

static void defect_sum(struct defect_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++) {
        const size_t root = defect_root(runs, i);
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
            const size_t root = defect_root(runs, i);
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
    memset(mask, 0, (size_t)map->width * (size_t)map->height);
    *counts = (struct defect_counts){0};
    for (int y = 0; y < map->height && room; y++) {
        rows[y] = runs.count;
        room = defect_row(map, rule, y, &runs, y ? rows[y - 1] : 0);
    }
    if (room) {
        rows[map->height] = runs.count;
        defect_sum(&runs);
        defect_paint(&runs, rows, map, rule, mask, counts);
    }
    free(rows);
    free(runs.list);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a list of defects");
}

static uint8_t defect_larger(uint8_t a, uint8_t b)
{
    return a > b ? a : b;
}

/* A row's own values and those beside them. */
static void defect_widen(const uint8_t *row, uint8_t *out, int width)
{
    for (int x = 0; x < width; x++)
        out[x] = defect_larger(row[x], defect_larger(x ? row[x - 1] : 0, x + 1 < width ? row[x + 1] : 0));
}

enum error_code defect_grow(uint8_t *mask, const uint8_t *level, uint8_t from, int width, int height, struct error *err)
{
    const size_t n = (size_t)width;
    uint8_t *wide = mem_calloc(3 * n, 1); /* rows y-1, y, y+1, widened, at their numbers modulo 3 */
    if (!wide)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a mask");
    defect_widen(mask, wide, width);
    for (int y = 0; y < height; y++) {
        uint8_t *next = wide + (size_t)((y + 1) % 3) * n, *row = mask + (size_t)y * n;
        const uint8_t *before = wide + (size_t)((y + 2) % 3) * n, *here = wide + (size_t)(y % 3) * n;
        if (y + 1 < height)
            defect_widen(row + n, next, width);
        else
            memset(next, 0, n);
        for (size_t x = 0; x < n; x++)
            if (!level || level[(size_t)y * n + x] >= from)
                row[x] = defect_larger(here[x], defect_larger(y ? before[x] : 0, next[x]));
    }
    free(wide);
    return OK;
}
