/* What a picture of 7680 × 4320 takes of a device's memory through RRDBNet of the official size, by the same placement
 * of tensors as plans have: the whole of it many times 2 GiB, its tiles less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "runtime/models/model_random.h"
#include "runtime/nn/arena_plan.h"

#define WIDTH 7680
#define HEIGHT 4320
#define LIMIT ((double)(2ull << 30))
#define PAD 32 /* of feathered tiles */

/* Bytes of all tensors of one window, in quads of channels as on a GPU. */
static double arena_bytes(const struct model *model, int w, int h, int element)
{
    struct error err = ERROR_INIT;
    struct graph *graph;
    const struct session_shape shape = {.n = 1, .h = h, .w = w};
    uint64_t total;
    if (model_graph(model, &shape, &graph, &err))
        fail_msg("%s", err.text);
    uint64_t *bytes = calloc((size_t)graph->tensor_count, 2 * sizeof *bytes);
    for (int i = 0; i < graph->tensor_count; i++) {
        const struct tensor *t = &graph->tensors[i];
        uint64_t lanes = 0;
        for (int k = 0; k < t->segment_count; k++)
            lanes += (uint64_t)(t->segment[k] + 3) / 4 * 4;
        bytes[i] = t->role == TENSOR_CONSTANT ? 0 : lanes * (uint64_t)t->h * (uint64_t)t->w * (uint64_t)element;
    }
    assert_int_equal(arena_plan(graph, NULL, bytes, 256, bytes + graph->tensor_count, &total, &err), OK);
    free(bytes);
    graph_destroy(&graph);
    return (double)total;
}

/* All that is on the device while tiles of `core` px are at work: tensors, sums, weights, two windows going in. */
static double tile_bytes(const struct model *model, int core, int element)
{
    const int s = model_info(model)->scale;
    const int w = core + 2 * PAD < WIDTH ? core + 2 * PAD : WIDTH,
              h = core + 2 * PAD < HEIGHT ? core + 2 * PAD : HEIGHT;
    const double weights = 16.8e6 * element, sums = core < WIDTH ? 12.0 * WIDTH * s * h * s : 0;
    return arena_bytes(model, w, h, element) + sums + weights + 2 * 3.0 * w * h;
}

static void check(const char *name, int element)
{
    static const int cores[] = {2048, 1536, 1024, 768, 512, 384, 256, 192, 128};
    struct error err = ERROR_INIT;
    struct model *model;
    uint8_t *file;
    size_t size;
    int largest = 0;
    if (model_random_file(name, &file, &size, &err) || model_open_memory(&model, name, file, size, NULL, &err))
        fail_msg("%s", err.text);
    const double whole = tile_bytes(model, WIDTH, element);
    assert_true(whole > 8 * LIMIT);
    for (size_t i = 0; i < sizeof cores / sizeof cores[0] && !largest; i++)
        if (tile_bytes(model, cores[i], element) <= LIMIT)
            largest = cores[i];
    assert_true(largest >= 128);
    printf("    %s, %d bytes a value: whole %.1f GiB, tiles of %d px %.2f GiB\n", name, element, whole / 0x1p30,
           largest, tile_bytes(model, largest, element) / 0x1p30);
    model_close(&model);
    free(file);
}

static void test_fits(void **state)
{
    (void)state;
    static const char *const names[] = {"rrdbnet_x2", "rrdbnet_x4"};
    for (int n = 0; n < 2; n++)
        for (int element = 2; element <= 4; element += 2)
            check(names[n], element);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fits)};
    return cmocka_run_group_tests_name("tile memory", tests, NULL, NULL);
}
