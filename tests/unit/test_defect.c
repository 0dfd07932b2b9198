/* Which pixels are defects, on maps of chance and of any width, beside the plainest way to find out: a flood from each
 * pixel, a look at all neighbours, roundf. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/raster.h"
#include "server/image/defect.h"

#define SIDE 41 /* px at most: rows of whole eights and of others */

static uint32_t seed = 7;

static uint32_t chance(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* A value's level as its header has it, for ties and what is next to them, too. */
static void test_levels(void **state)
{
    (void)state;
    float logits[3 * 4097];
    uint8_t levels[3 * 4097];
    const int count = (int)(sizeof logits / sizeof logits[0]);
    for (int i = 0; i < count / 3; i++) {
        const float at = (float)(i - 2048) / 128; /* all halves of a level, and beyond both ends */
        logits[3 * i] = at;
        logits[3 * i + 1] = nextafterf(at, -99);
        logits[3 * i + 2] = nextafterf(at, 99);
    }
    const struct raster_values values = {logits, 1, 1, 0, 0, 1};
    const struct raster_target target = {RASTER_LEVEL, .data = levels, .width = count, .height = 1};
    raster_write(&values, NULL, &target);
    for (int i = 0; i < count; i++) {
        const float level = roundf(logits[i] * 16) + 128;
        assert_int_equal(levels[i], level > 0 ? level < 255 ? level : 255 : 0);
        assert_int_equal(levels[i], raster_level(logits[i]));
    }
    assert_int_equal(raster_level(NAN), 0);
    assert_int_equal(raster_level(INFINITY), 255);
    assert_int_equal(raster_level(-INFINITY), 0);
}

struct flood {
    const struct defect_map *map;
    const struct defect_rule *rule;
    const uint8_t *had; /* a mask that is added to; NULL: none */
    uint8_t seen[SIDE * SIDE];
    int list[SIDE * SIDE], count;
};

static void flood(struct flood *f, int x, int y)
{
    const int at = y * f->map->width + x;
    if (x < 0 || y < 0 || x >= f->map->width || y >= f->map->height || f->seen[at] ||
        f->map->level[at] < f->rule->kinds[f->map->kind[at]].low || (f->had && f->had[at]))
        return;
    f->seen[at] = 1;
    f->list[f->count++] = at;
    for (int i = 0; i < 9; i++)
        flood(f, x + i % 3 - 1, y + i / 3 - 1);
}

/* The mask of the defect that a flood found, and its counts. */
static void judge(const struct flood *f, uint8_t *mask, struct defect_counts *counts)
{
    uint64_t sure = 0, kinds[DEFECT_KINDS] = {0};
    int best = 0;
    for (int i = 0; i < f->count; i++) {
        const int kind = f->map->kind[f->list[i]];
        sure += f->map->level[f->list[i]] >= f->rule->kinds[kind].high;
        if (f->map->level[f->list[i]] > counts->highest)
            counts->highest = f->map->level[f->list[i]];
        kinds[kind]++;
    }
    for (int k = 1; k < DEFECT_KINDS; k++)
        best = kinds[k] > kinds[best] ? k : best;
    const double area = f->count, pixels = (double)f->map->width * f->map->height;
    const int side = f->map->width < f->map->height ? f->map->width : f->map->height;
    const int huge = f->rule->huge > 0 && area > (double)f->rule->huge * pixels && area > 5.0 * side;
    const double share = huge                                     ? f->rule->kinds[best].sure_huge
                         : area > (double)f->rule->large * pixels ? f->rule->kinds[best].sure_large
                                                                  : f->rule->sure;
    if (f->count < f->rule->least || !sure || (double)sure < share * area)
        return;
    counts->defects[best]++;
    counts->pixels[best] += (uint64_t)f->count;
    for (int i = 0; i < f->count; i++)
        mask[f->list[i]] = (uint8_t)(1 + best);
}

static void test_floods(void **state)
{
    (void)state;
    static const struct defect_rule rules[] = {
        {.kinds = {{110, 160, 0.4f, 0.5f}, {130, 160, 0.6f, 0.6f}, {130, 185, 0.7f, 0.6f}, {110, 165, 0.7f, 0.8f}},
         .sure = 0.25f,
         .large = 0.02f,
         .huge = 0.1f,
         .least = 2},
        {.kinds = {{150, 200, 0.5f, 0.5f}, {150, 200, 0.5f, 0.5f}, {150, 200, 0.5f, 0.5f}, {150, 200, 0.5f, 0.5f}},
         .sure = 0.5f,
         .large = 0.1f,
         .least = 1},
        {.kinds = {{130, 180, 0.5f, 2}, {130, 180, 0.5f, 2}, {130, 180, 0.5f, 2}, {130, 180, 0.5f, 2}},
         .sure = 0.3f,
         .large = 0.1f,
         .huge = 0.2f,
         .least = 3,
         .more = true}};
    int found = 0;
    for (int round = 0; round < 300; round++) {
        uint8_t level[SIDE * SIDE], kind[SIDE * SIDE], mask[SIDE * SIDE], expected[SIDE * SIDE] = {0};
        const struct defect_map map = {1 + (int)chance(SIDE), 1 + (int)chance(SIDE), level, kind};
        uint8_t had[SIDE * SIDE];
        const struct defect_rule *rule = &rules[round % 3];
        struct defect_counts counts = {.pixels = {1, 2, 3, 4}, .defects = {5, 6, 7, 8}}, all = {0};
        struct error err = ERROR_INIT;
        struct flood f = {.map = &map, .rule = rule, .had = rule->more ? had : NULL};
        const uint32_t rare = 1 + chance(30); /* from nearly all to a few */
        for (int i = 0; i < map.width * map.height; i++) {
            level[i] = (uint8_t)(chance(rare) ? chance(109) : 100 + chance(156));
            kind[i] = (uint8_t)chance(DEFECT_KINDS);
            mask[i] = had[i] = (uint8_t)(chance(8) ? 0 : 1 + chance(DEFECT_KINDS));
        }
        if (rule->more) {
            memcpy(expected, had, sizeof had);
            all = counts;
        }
        for (int i = 0; i < map.width * map.height; i++) {
            f.count = 0;
            flood(&f, i % map.width, i / map.width);
            if (f.count)
                judge(&f, expected, &all);
        }
        assert_int_equal(defect_find(&map, rule, mask, &counts, &err), OK);
        assert_memory_equal(mask, expected, (size_t)(map.width * map.height));
        assert_memory_equal(&counts, &all, sizeof all);
        found += all.defects[0] + all.defects[1] + all.defects[2] + all.defects[3];
    }
    assert_true(found > 500);
}

/* Grown by one pixel, in masks of a few pixels and of many. */
static void test_neighbours(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        uint8_t mask[SIDE * SIDE], before[SIDE * SIDE], level[SIDE * SIDE], copy[SIDE * SIDE], out[SIDE * SIDE];
        const int w = 1 + (int)chance(SIDE), h = 1 + (int)chance(SIDE);
        const uint32_t rare = 1 + chance(400);
        struct error err = ERROR_INIT;
        for (int i = 0; i < w * h; i++) {
            mask[i] = before[i] = (uint8_t)(chance(rare) ? 0 : chance(DEFECT_GIVEN + 1));
            level[i] = (uint8_t)chance(256);
        }
        struct defect_grown grown = {.copy = copy};
        uint64_t counts[DEFECT_GIVEN + 1];
        memset(out, 7, sizeof out);
        assert_int_equal(defect_grow(mask, out, round % 2 ? level : NULL, 110, w, h, round % 3 ? &grown : NULL, &err),
                         OK);
        assert_memory_equal(mask, before, (size_t)(w * h));
        defect_count(out, w, h, counts);
        if (round % 3) {
            assert_memory_equal(copy, out, (size_t)(w * h));
            assert_memory_equal(grown.counts, counts, sizeof counts);
        }
        for (int i = 0; i < w * h; i++) {
            uint8_t most = 0;
            for (int k = 0; k < 9; k++) {
                const int x = i % w + k % 3 - 1, y = i / w + k / 3 - 1;
                if (x >= 0 && y >= 0 && x < w && y < h && before[y * w + x] > most)
                    most = before[y * w + x];
            }
            assert_int_equal(out[i], round % 2 && level[i] < 110 ? before[i] : most);
        }
    }
}

/* What goes on from one value of a mask, step by step over the whole picture, and what is beside that. */
static void test_follow(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        uint8_t mask[SIDE * SIDE], level[SIDE * SIDE], beyond[SIDE * SIDE], expected[SIDE * SIDE], before[SIDE * SIDE];
        struct error err = ERROR_INIT;
        const int w = 1 + (int)chance(SIDE), h = 1 + (int)chance(SIDE), reach = round % 5;
        for (int i = 0; i < w * h; i++) {
            mask[i] = expected[i] = (uint8_t)(chance(40) ? 0 : 1 + chance(DEFECT_GIVEN));
            level[i] = (uint8_t)chance(160);
        }
        for (int step = 0; step <= reach && reach; step++) {
            memcpy(before, expected, sizeof before);
            for (int i = 0; i < w * h; i++)
                for (int k = 0; k < 9; k++) {
                    const int x = i % w + k % 3 - 1, y = i / w + k / 3 - 1;
                    const bool inside = x >= 0 && y >= 0 && x < w && y < h;
                    const int at = inside ? y * w + x : i;
                    const bool from = (mask[at] == 2 && step < reach) || (before[at] && !mask[at]);
                    if (!expected[i] && inside && from && (level[i] >= 95 || step == reach))
                        expected[i] = 1;
                }
        }
        memcpy(beyond, mask, (size_t)(w * h));
        assert_int_equal(defect_follow(mask, 2, level, 95, reach, w, h, beyond, &err), OK);
        assert_memory_equal(beyond, expected, (size_t)(w * h));
        assert_int_equal(defect_follow(mask, 2, level, 95, reach, w, h, mask, &err), OK); /* in place */
        assert_memory_equal(mask, expected, (size_t)(w * h));
    }
}

/* No pixel of a mask is passed over. */
static void test_clear(void **state)
{
    (void)state;
    uint8_t mask[SIDE] = {0};
    for (size_t i = 0; i < SIDE; i++) {
        memset(mask, 0, sizeof mask);
        mask[i] = 1;
        for (size_t from = 0; from <= i; from++) {
            const size_t at = defect_clear(mask, from, SIDE);
            assert_true(at <= i && at + 8 > i);
        }
        assert_true(defect_clear(mask, i + 1, SIDE) + 8 > SIDE);
    }
}

/* Half of what is likely is sure, in a small picture: a line across it counts, a spot of more px does not. */
static void test_small(void **state)
{
    (void)state;
    static const struct defect_rule rule = {
        .kinds = {{110, 160, 0.35f, 0.7f}, {0}, {0}, {0}}, .sure = 0.35f, .large = 0.001f, .huge = 0.01f, .least = 8};
    uint8_t level[SIDE * SIDE], kind[SIDE * SIDE] = {0}, mask[SIDE * SIDE];
    const struct defect_map map = {SIDE, SIDE, level, kind};
    struct defect_counts counts;
    struct error err = ERROR_INIT;
    for (int width = 2; width <= 16; width += 14) {
        for (int i = 0; i < SIDE * SIDE; i++)
            level[i] = i % SIDE / width != 1 || (width > 2 && i / SIDE > width) ? 0 : i & 1 ? 170 : 120;
        assert_int_equal(defect_find(&map, &rule, mask, &counts, &err), OK);
        assert_int_equal(counts.defects[0], width == 2);
    }
}

/* Of a rule for lines alone: long, narrow and straight ones count, in any direction. What goes on from the mask in a
 * line becomes part of it, but is no other defect, and what is beside the mask stays as it is. */
static void test_lines(void **state)
{
    (void)state;
    enum { W = 90, H = 70, HELD = 6 };
    static const struct defect_rule rule = {
        .kinds = {{30, 58, 1, 1}, {255, 255, 1, 1}, {255, 255, 1, 1}, {255, 255, 1, 1}},
        .sure = 0.4f,
        .large = 1,
        .least = 30,
        .more = true,
        .line = true};
    static const struct {
        const char *what;
        bool counts;
        int length, width;
        double slope, bend; /* px down for each across; and in all, in its middle */
        bool kind, held;
    } lines[] = {
        {"flat", true, 50, 1, 0, 0, false, false},
        {"slanted", true, 50, 2, 0.7, 0, false, false},
        {"rather bent", true, 50, 2, 0.3, 3, false, false},
        {"bent", false, 50, 2, 0.3, 12, false, false},
        {"short", false, 18, 2, 0.3, 0, false, false},
        {"wide", false, 50, 6, 0, 0, false, false},
        {"a crack", false, 50, 2, 0.3, 0, true, false},
        {"from the mask on", false, 50, 2, 0.7, 0, false, true},
        {"bent as much, but longer", true, 74, 2, 0.3, 6, false, false},
        {"bent by 6", false, 40, 2, 0.3, 6, false, false},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        for (int turned = 0; turned < 2; turned++) {
            static uint8_t level[W * H], kind[W * H], mask[W * H], before[W * H];
            const int width = turned ? H : W, height = turned ? W : H;
            const struct defect_map map = {width, height, level, kind};
            struct defect_counts counts = {0};
            struct error err = ERROR_INIT;
            memset(level, 0, sizeof level);
            memset(mask, 0, sizeof mask);
            memset(kind, lines[i].kind, sizeof kind);
            for (int along = 0; along < lines[i].length; along++)
                for (int across = 0; across < lines[i].width; across++) {
                    const double part = along / (lines[i].length - 1.0);
                    const int x = 10 + along,
                              y = 8 + across + (int)(along * lines[i].slope + 4 * lines[i].bend * part * (1 - part)),
                              at = turned ? x * width + y : y * width + x;
                    level[at] = along % 2 ? 60 : 40;
                    mask[at] = lines[i].held && along < HELD ? 3 : 0;
                }
            memcpy(before, mask, sizeof before);
            assert_int_equal(defect_find(&map, &rule, mask, &counts, &err), OK);
            if (counts.defects[0] != lines[i].counts)
                fail_msg("%s, turned %d: %d defects", lines[i].what, turned, counts.defects[0]);
            int left = 0, set = 0;
            for (int at = 0; at < W * H; at++) {
                set += mask[at] == 1;
                left += level[at] && !mask[at];
                assert_true(before[at] ? mask[at] == 3 : mask[at] == 0 || (mask[at] == 1 && level[at]));
            }
            assert_int_equal(set, counts.pixels[0]);
            if (lines[i].held)
                assert_true(left > 0 && left < 10 && set > 60);
            else
                assert_true(lines[i].counts ? !left : !set);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels),     cmocka_unit_test(test_floods),
                                       cmocka_unit_test(test_neighbours), cmocka_unit_test(test_clear),
                                       cmocka_unit_test(test_follow),     cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests_name("defect", tests, NULL, NULL);
}
