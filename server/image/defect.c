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
    int kind;    /* of a root: the defect's, or -1 */
    bool taken;  /* the mask has some of it */
    bool beside; /* it touches one of which that is so */
    bool held;   /* of a root, of lines: the mask has some of the defect */
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

int defect_next(const uint8_t *level, int x, int width, uint8_t from)
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
        for (size_t k = above; k < first && runs->list[k].begin <= runs->list[i].end; k++) {
            runs->list[k].beside = runs->list[k].beside || runs->list[i].taken;
            runs->list[i].beside = runs->list[i].beside || runs->list[k].taken;
            defect_join(runs, k, i);
        }
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
        if (level[x] < rule->kinds[kind[x]].low || (own && own[x] && !rule->line)) {
            run = NULL;
            continue;
        }
        if (!run && !(run = defect_add(runs, x)))
            return false;
        run->end = x + 1;
        run->sure += level[x] >= rule->kinds[kind[x]].high;
        run->kinds[kind[x]]++;
        run->taken = run->taken || (own && own[x]);
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

/* Sums of a defect's places. */
struct defect_shape {
    double n, x, y, xx, xy, yy;
};

/* A line's px: at least so long, so wide and, on the mean square, so far from straight at most, or by such a share of
 * its length. */
#define DEFECT_LONG 22
#define DEFECT_WIDE 3
#define DEFECT_BENT 1.2
#define DEFECT_BENT_SHARE 0.03

static void defect_place(struct defect_shape *shape, const struct defect_run *run, int y)
{
    const double n = run->end - run->begin, x = (run->begin + run->end - 1) / 2.0;
    shape->n += n;
    shape->x += n * x;
    shape->y += n * y;
    shape->xx += n * (x * x + (n * n - 1) / 12);
    shape->xy += n * x * y;
    shape->yy += n * y * y;
}

/* Whether it is a line, from the variances along and across its longest axis. */
static bool defect_is_line(const struct defect_shape *shape)
{
    const double n = shape->n, x = shape->x / n, y = shape->y / n, xx = shape->xx / n - x * x,
                 xy = shape->xy / n - x * y, yy = shape->yy / n - y * y;
    const double half = (xx + yy) / 2, apart = hypot((xx - yy) / 2, xy), length = sqrt(12 * (half + apart)) + 1;
    const double bent = fmax(DEFECT_BENT, DEFECT_BENT_SHARE * length);
    return length >= DEFECT_LONG && n <= DEFECT_WIDE * length && half - apart <= bent * bent;
}

/* Nothing counts but lines. */
static bool defect_lines(struct defect_runs *runs, const size_t *rows, int height)
{
    struct defect_shape *shapes = mem_calloc(runs->count, sizeof *shapes);
    for (int y = 0; y < height && shapes; y++)
        for (size_t i = rows[y]; i < rows[y + 1]; i++) {
            const uint32_t root = defect_root(runs, (uint32_t)i);
            runs->list[root].held = runs->list[root].held || runs->list[i].taken;
            defect_place(&shapes[root], &runs->list[i], y);
        }
    for (size_t i = 0; i < runs->count && shapes; i++)
        if (runs->list[i].root == i && !defect_is_line(&shapes[i]))
            runs->list[i].kind = -1;
    free(shapes);
    return shapes || !runs->count;
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
            if (kind < 0 || run->taken || run->beside)
                continue;
            counts->defects[kind] += root == i && !run->held;
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
        room = !rule->line || defect_lines(&runs, loop.rows, map->height);
    }
    if (room) {
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
