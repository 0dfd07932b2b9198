/* Convolutions without barriers between them (vk_chain.h): what is decided for lists of random dispatches must keep
 * every workgroup behind all those whose memory it needs, which is checked byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/vulkan/vk_chain.h"

#define COUNT 24     /* dispatches of a list */
#define MAX_TILES 64 /* of a dispatch, one below the other */
#define WIDTH 4
#define PLANES 10 /* memory has so many of the largest kind */

static uint32_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

/* --- lists of dispatches -------------------------------------------------------------------------------------------
 */

struct list {
    struct vk_dispatch dispatch[COUNT];
    int waits[COUNT]; /* -1: for none */
};

static uint64_t plane_bytes(uint32_t h, uint32_t group_log)
{
    return (uint64_t)h * WIDTH * 8 << group_log;
}

/* Some planes of memory, mostly where others of that size lie, too. */
static void place(struct vk_dispatch *d, int slot, struct params_operand *operand, uint32_t h, uint32_t group_log,
                  uint32_t planes)
{
    const uint64_t plane = plane_bytes(h, group_log);
    d->span[slot].begin = draw(PLANES) * plane + (draw(12) == 0 ? plane / 2 : 0);
    d->span[slot].end = d->span[slot].begin + planes * plane;
    operand->stride = group_log << OPERAND_STRIDE_BITS;
}

/* A convolution that keeps the size, or now and then something else. */
static void make(struct vk_dispatch *d, uint32_t h, uint32_t *counters)
{
    static const uint32_t tiles[] = {1, 2, 4, 8, 16};
    struct params_conv2d *p = &d->push.conv2d;
    const uint32_t group_log = draw(16) == 0 ? 0 : 2;
    *d = (struct vk_dispatch){.key.fp16 = true, .groups = {WIDTH, 1 + draw(2), 1 + draw(2)}};
    p->in_h = p->out_h = h;
    p->in_w = p->out_w = WIDTH;
    p->tiles_x = 1 + draw(3);
    place(d, BIND_Y, &p->y, h, group_log, 1 + draw(2));
    place(d, BIND_X, &p->x, h, group_log, 1 + draw(3));
    if (draw(3) == 0)
        place(d, BIND_RESIDUAL1, &p->residual1, h, group_log, 1);
    if (draw(20) == 0)
        place(d, BIND_IN_SCALE, &p->in_scale, h, group_log, 1);
    if (draw(20) == 0)
        return; /* of another shader */
    d->tune.kernel = draw(3) == 0 ? 1 : 3;
    d->tune.upsample = 1;
    d->tile_rows = tiles[draw(5)];
    d->counter = *counters;
    *counters += vk_chain_counters(d);
}

static void make_list(struct list *list)
{
    uint32_t counters = CHAIN_LATE + 1;
    const uint32_t h = 16 + draw(40);
    for (int i = 0; i < COUNT; i++)
        make(&list->dispatch[i], draw(20) == 0 ? 16 + draw(40) : h, &counters);
    vk_chain_link(list->dispatch, COUNT);
    for (int i = 0; i < COUNT; i++) {
        const struct vk_dispatch *d = &list->dispatch[i];
        list->waits[i] = -1;
        if (d->tile_rows == 0 || d->push.conv2d.chain_wait == 0)
            continue;
        for (int j = 0; j < i; j++)
            if (list->dispatch[j].tile_rows && list->dispatch[j].push.conv2d.chain_own == d->push.conv2d.chain_wait)
                list->waits[i] = j;
        const struct vk_dispatch *before = &list->dispatch[list->waits[i]];
        assert_true(list->waits[i] >= 0 && !d->barrier);
        assert_int_equal(d->push.conv2d.chain_row & ((1u << CHAIN_ROWS_BIT) - 1),
                         before->push.conv2d.tiles_x * before->groups[1] * before->groups[2]);
        assert_int_equal(1u << (d->push.conv2d.chain_row >> CHAIN_ROWS_BIT), before->tile_rows);
    }
}

/* --- what runs after what ------------------------------------------------------------------------------------------
 */

static int tile_count(const struct vk_dispatch *d)
{
    return d->tile_rows ? (int)((d->push.conv2d.out_h + d->tile_rows - 1) / d->tile_rows) : 1;
}

static bool behind[COUNT][MAX_TILES][COUNT][MAX_TILES]; /* [later][its tile][earlier][its tile] */

/* As shaders/matrix/chain.glsl waits: for whole bands. */
static void order(const struct list *list)
{
    memset(behind, 0, sizeof behind);
    for (int d = 0, first = 0; d < COUNT; d++) {
        if (list->dispatch[d].barrier)
            first = d;
        for (int t = 0; t < tile_count(&list->dispatch[d]); t++) {
            for (int e = 0; e < first; e++)
                memset(behind[d][t][e], true, sizeof behind[d][t][e]);
            const int e = list->waits[d];
            if (e < 0)
                continue;
            const struct vk_dispatch *later = &list->dispatch[d], *earlier = &list->dispatch[e];
            const int from = t * (int)later->tile_rows - 1, to = (t + 1) * (int)later->tile_rows;
            const int first_band = (from < 0 ? 0 : from) / CHAIN_BAND, last_band = to / CHAIN_BAND;
            for (int u = 0; u < tile_count(earlier); u++) {
                const int band = u * (int)earlier->tile_rows / CHAIN_BAND;
                if (band < first_band || band > last_band)
                    continue;
                behind[d][t][e][u] = true;
                for (int f = 0; f < e; f++)
                    for (int v = 0; v < MAX_TILES; v++)
                        behind[d][t][f][v] |= behind[e][u][f][v];
            }
        }
    }
}

/* Marks the bytes of a slot that the tile touches: rows `reach` above and below it, too. */
static void touch(const struct vk_dispatch *d, int slot, const struct params_operand *operand, int t, int reach,
                  uint8_t mark, uint8_t *memory)
{
    const struct vk_span *span = &d->span[slot];
    const uint32_t h = d->push.conv2d.out_h, log = operand ? operand->stride >> OPERAND_STRIDE_BITS : 0;
    if (d->tile_rows == 0 || !operand) {
        for (uint64_t at = span->begin; at < span->end; at += 16)
            memory[at / 16] |= mark;
        return;
    }
    const int from = t * (int)d->tile_rows - reach, to = (t + 1) * (int)d->tile_rows + reach;
    const uint64_t row = plane_bytes(1, log);
    for (uint64_t plane = span->begin; plane < span->end; plane += row * h)
        for (int r = from < 0 ? 0 : from; r < to && r < (int)h; r++)
            for (uint64_t at = 0; at < row; at += 16)
                memory[(plane + (uint64_t)r * row + at) / 16] |= mark;
}

enum { READ = 1, WRITTEN = 2 };

static void touch_all(const struct vk_dispatch *d, int t, uint8_t *memory)
{
    const struct params_conv2d *p = &d->push.conv2d;
    touch(d, BIND_Y, &p->y, t, 0, WRITTEN, memory);
    touch(d, BIND_X, &p->x, t, (int)d->tune.kernel / 2, READ, memory);
    touch(d, BIND_RESIDUAL1, &p->residual1, t, 0, READ, memory);
    touch(d, BIND_IN_SCALE, NULL, t, 0, READ, memory);
}

static void test_order(void **unused)
{
    enum { BYTES = (PLANES + 4) * 56 * WIDTH * 8 * 4 / 16 };
    static uint8_t memory[COUNT][MAX_TILES][BYTES];
    int links = 0, barriers = 0;
    (void)unused;
    for (int trial = 0; trial < 60; trial++) {
        static struct list list;
        make_list(&list);
        order(&list);
        memset(memory, 0, sizeof memory);
        for (int d = 0; d < COUNT; d++) {
            links += list.waits[d] >= 0;
            barriers += list.dispatch[d].barrier;
            for (int t = 0; t < tile_count(&list.dispatch[d]); t++)
                touch_all(&list.dispatch[d], t, memory[d][t]);
        }
        for (int d = 0; d < COUNT; d++)
            for (int t = 0; t < tile_count(&list.dispatch[d]); t++)
                for (int e = 0; e < d; e++)
                    for (int u = 0; u < tile_count(&list.dispatch[e]); u++) {
                        if (behind[d][t][e][u])
                            continue;
                        for (int i = 0; i < BYTES; i++) {
                            const uint8_t a = memory[d][t][i], b = memory[e][u][i];
                            if (a && b && ((a | b) & WRITTEN))
                                fail_msg("list %d: tile %d of %d need not wait for tile %d of %d", trial, t, d, u, e);
                        }
                    }
    }
    print_message("%d waits, %d barriers in %d dispatches\n", links, barriers, 60 * COUNT);
    assert_true(links > 60 && barriers > 60);
}

/* A dense block: every convolution reads all before it, and waits only for the last. */
static void test_dense(void **unused)
{
    const uint64_t plane = plane_bytes(32, 2);
    struct vk_dispatch list[6];
    (void)unused;
    for (uint32_t i = 0; i < 6; i++) {
        struct params_conv2d *p = &list[i].push.conv2d;
        list[i] = (struct vk_dispatch){
            .key.fp16 = true, .groups = {2, 1, 1}, .tune = {.kernel = 3, .upsample = 1}, .tile_rows = 4};
        p->in_h = p->out_h = 32;
        p->in_w = p->out_w = WIDTH;
        p->tiles_x = 1;
        list[i].counter = 1 + 2 * i;
        p->y.stride = p->x.stride = 2u << OPERAND_STRIDE_BITS;
        list[i].span[BIND_X] = (struct vk_span){0, (i + 1) * plane};
        list[i].span[BIND_Y] = (struct vk_span){(i + 1) * plane, (i + 2) * plane};
        assert_int_equal(vk_chain_counters(&list[i]), 2);
    }
    vk_chain_link(list, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_false(list[i].barrier);
        assert_int_equal(list[i].push.conv2d.chain_wait, i ? 2 * i - 1 : 0);
        assert_int_equal(list[i].push.conv2d.chain_own, i < 5 ? 2 * i + 1 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_dense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
