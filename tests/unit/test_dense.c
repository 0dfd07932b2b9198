/* Dense blocks, whose convolutions read all that came before them in the block: their segments lie where there is room,
 * each as long as it is read. On the device "cpu" the result is bit by bit what it is where a block lies in one piece,
 * as with two pictures at once, and the memory is less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/nn/arena_plan.h"

#define BLOCKS 6
#define SEGMENTS 4
#define PARAMS_MAX (BLOCKS * SEGMENTS + 2)

static struct param *params[PARAMS_MAX];
static int param_count;

static void convolve(struct graph *graph, struct view x, struct view y)
{
    struct error err = ERROR_INIT;
    const int in = graph_channels(graph, x), out = graph_channels(graph, y);
    const size_t count = (size_t)(in * out * 9);
    float *values = malloc(count * sizeof *values);
    uint32_t random = (uint32_t)param_count;
    assert_non_null(values);
    for (size_t k = 0; k < count; k++) {
        random = random * 1664525u + 1013904223u;
        values[k] = (float)(int32_t)random / 2147483648.0f / (float)(3 * in);
    }
    assert_int_equal(param_from_values(&params[param_count], values, count, &err), OK);
    free(values);
    struct node *node = graph_node(graph, OP_CONV2D, y);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = params[param_count++];
    node->args.conv2d = (struct op_conv2d){.kernel = 3,
                                           .stride = 1,
                                           .pad = 1,
                                           .upsample = 1,
                                           .gain = 1,
                                           .scale = 1,
                                           .residual1_scale = 1,
                                           .residual2_scale = 1};
}

/* Every second block adds what the one before it began with. */
static struct graph *make(int n, int side)
{
    static const int segments[SEGMENTS] = {20, 12, 16, 5};
    const int rgb = 3;
    struct error err = ERROR_INIT;
    struct graph *graph;
    assert_int_equal(graph_create(&graph, &err), OK);
    struct view wide = graph_tensor(graph, TENSOR_TEMP, n, side, side, SEGMENTS, segments), outer = VIEW_NONE;
    convolve(graph, graph_tensor(graph, TENSOR_INPUT, n, side, side, 1, &rgb), graph_segments(wide, 0, 1));
    for (int b = 0; b < BLOCKS; b++) {
        const struct view next = graph_tensor(graph, TENSOR_TEMP, n, side, side, SEGMENTS, segments);
        for (int i = 1; i < SEGMENTS; i++)
            convolve(graph, graph_segments(wide, 0, i), graph_segments(wide, i, 1));
        convolve(graph, wide, graph_segments(next, 0, 1));
        struct node *last = &graph->nodes[graph->node_count - 1];
        last->in[OP_RESIDUAL1] = graph_segments(wide, 0, 1);
        if (b % 2)
            last->in[OP_RESIDUAL2] = outer;
        outer = graph_segments(wide, 0, 1);
        wide = next;
    }
    convolve(graph, graph_segments(wide, 0, 1), graph_tensor(graph, TENSOR_OUTPUT, n, side, side, 1, &rgb));
    assert_int_equal(graph_finish(graph, &err), OK);
    return graph;
}

static void unmake(struct graph *graph)
{
    graph_destroy(&graph);
    while (param_count)
        param_destroy(&params[--param_count]);
}

/* The result of n pictures; bytes: of the plan. */
static float *run(struct device *device, int n, int side, uint64_t *bytes)
{
    struct error err = ERROR_INIT;
    struct plan *plan;
    struct graph *graph = make(n, side);
    const size_t count = (size_t)(3 * side * side);
    float *in = malloc(2 * count * sizeof *in), *out = malloc(2 * count * sizeof *out);
    assert_true(in && out);
    for (size_t i = 0; i < 2 * count; i++)
        in[i] = (float)(i % count * 37 % 101) / 101.0f;
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), OK);
    for (int i = 0; i < 2; i++) /* the second meets what the first left */
        assert_int_equal(plan_run(plan, (const float *const *)&in, &out, NULL, &err), OK);
    *bytes = plan_bytes(plan);
    plan_destroy(&plan);
    device_forget_params(device, (const struct param *const *)params, (size_t)param_count);
    unmake(graph);
    free(in);
    return out;
}

static void results_do_not_depend_on_places(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct device *device;
    static const int sides[] = {9, 64, 201}; /* small ones are not transformed */
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    for (int i = 0; i < 3; i++) {
        uint64_t apart, whole;
        const size_t size = (size_t)(3 * sides[i] * sides[i]) * sizeof(float);
        float *one = run(device, 1, sides[i], &apart), *two = run(device, 2, sides[i], &whole);
        assert_memory_equal(one, two, size);
        assert_memory_equal(one, (char *)two + size, size);
        if (i == 2) /* else scratch counts */
            assert_true((double)whole / 2 > 1.3 * (double)apart);
        free(one);
        free(two);
    }
    device_close(&device);
}

static void live(int step, int *first, int *last)
{
    *first = step < *first ? step : *first;
    *last = step > *last ? step : *last;
}

/* When a piece is read or written. */
static void lifetime(const struct graph *graph, const struct arena_piece *piece, int *first, int *last)
{
    *first = graph->node_count;
    *last = -1;
    for (int n = 0; n < graph->node_count; n++)
        for (int k = -1; k < OP_MAX_INPUTS; k++) {
            const struct view view = k < 0 ? graph->nodes[n].out : graph->nodes[n].in[k];
            for (int i = view.first; i < view.first + view.count; i++)
                if (view.tensor == piece->tensor && i >= piece->first && i < piece->first + piece->count)
                    live(n, first, last);
        }
    const enum tensor_role role = graph->tensors[piece->tensor].role;
    if (role != TENSOR_TEMP)
        live(role == TENSOR_INPUT ? 0 : graph->node_count, first, last);
}

/* Pieces that are alive together are apart, however the tensors are cut, and smaller pieces need less. */
static void pieces_share_bytes(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct graph *graph = make(1, 8);
    struct arena_piece pieces[(BLOCKS + 1) * SEGMENTS + 2];
    uint64_t total[SEGMENTS + 1];
    for (int each = 1; each <= SEGMENTS; each++) {
        int count = 0;
        for (int t = 0; t < graph->tensor_count; t++)
            for (int i = 0; i < graph->tensors[t].segment_count; i += each) {
                const int rest = graph->tensors[t].segment_count - i, some = rest < each ? rest : each;
                pieces[count++] = (struct arena_piece){t, i, some, (uint64_t)(100 * some + 7 * i), 1};
            }
        assert_int_equal(arena_plan_pieces(graph, NULL, pieces, count, 64, &total[each], &err), OK);
        for (int a = 0; a < count; a++) {
            int first, last;
            lifetime(graph, &pieces[a], &first, &last);
            assert_int_equal(pieces[a].offset % 64, 0);
            assert_true(last < 0 || pieces[a].offset + pieces[a].bytes <= total[each]);
            for (int b = 0; b < a; b++) {
                int begin, end;
                lifetime(graph, &pieces[b], &begin, &end);
                if (first <= end && begin <= last)
                    assert_true(pieces[a].offset + pieces[a].bytes <= pieces[b].offset ||
                                pieces[b].offset + pieces[b].bytes <= pieces[a].offset);
            }
        }
    }
    assert_true(total[1] < total[SEGMENTS] * 3 / 4);
    unmake(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_places),
        cmocka_unit_test(pieces_share_bytes),
    };
    return cmocka_run_group_tests_name("dense blocks", tests, NULL, NULL);
}
