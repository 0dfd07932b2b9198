/* The order of a graph's nodes in steps (order.h) and the arena that follows it, against brute force: random graphs
 * with branches, writes in place, tensors that several nodes write segment by segment, and nodes that write nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "runtime/models/model_random.h"
#include "runtime/nn/arena_plan.h"
#include "runtime/nn/order.h"

#define TRIALS 20000
#define MAX_NODES 40
#define MAX_TENSORS 16 /* of up to 4 segments each: a bit for each segment of a graph */

static uint32_t state = 1;

static int draw(int below)
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)below);
}

static struct view draw_view(const struct graph *graph, int tensor)
{
    const int segments = graph->tensors[tensor].segment_count, first = draw(segments);
    return (struct view){tensor, first, 1 + draw(segments - first)};
}

/* Few tensors make chains, many make branches. The first is the input. */
static struct graph *draw_graph(void)
{
    struct graph *graph;
    struct error err = ERROR_INIT;
    const int tensors = 2 + draw(MAX_TENSORS - 1), nodes = draw(MAX_NODES + 1), inputs = 1 + draw(3);
    assert_int_equal(graph_create(&graph, &err), OK);
    for (int t = 0; t < tensors; t++) {
        static const int segments[] = {4, 4, 4, 4};
        const enum tensor_role role = t == 0 ? TENSOR_INPUT : t == 1 || draw(8) == 0 ? TENSOR_OUTPUT : TENSOR_TEMP;
        graph_tensor(graph, role, 1, 1, 1, draw(3) ? 1 : 1 + draw(4), segments);
    }
    for (int n = 0; n < nodes; n++) {
        const bool nothing = draw(10) == 0, in_place = draw(6) == 0;
        struct node *node = graph_node(graph, OP_ADD, nothing ? VIEW_NONE : draw_view(graph, 1 + draw(tensors - 1)));
        for (int i = 0; i < inputs && !nothing; i++)
            node->in[draw(OP_MAX_INPUTS)] = draw_view(graph, draw(tensors));
        if (in_place)
            node->in[OP_X] = node->out;
    }
    return graph;
}

/* --- brute force ---------------------------------------------------------------------------------------------------
 */

struct touched {
    uint64_t read, written; /* a bit for each segment */
};

static uint64_t segments_of(struct view view)
{
    uint64_t bits = 0;
    for (int s = view.first; view.tensor >= 0 && s < view.first + view.count; s++)
        bits |= UINT64_C(1) << (view.tensor * 4 + s);
    return bits;
}

static struct touched touched_by(const struct node *node)
{
    struct touched all = {.written = segments_of(node->out)};
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        all.read |= segments_of(node->in[i]);
    return all;
}

static bool conflict(struct touched a, struct touched b)
{
    return (a.written & (b.written | b.read)) || (a.read & b.written);
}

/* Rounds that each do all nodes which wait for none that is left; round[n] of each node, -1: it writes nothing. */
static int peel(const struct touched *touched, int count, int *round)
{
    int rounds = 0, left = 0;
    for (int n = 0; n < count; n++) {
        round[n] = touched[n].written ? count : -1;
        left += touched[n].written != 0;
    }
    for (; left > 0; rounds++)
        for (int n = 0; n < count; n++) {
            bool waits = round[n] != count;
            for (int e = 0; e < n && !waits; e++)
                waits = round[e] >= rounds && conflict(touched[e], touched[n]);
            if (!waits) {
                round[n] = rounds;
                left--;
            }
        }
    return rounds;
}

/* Groups of nodes side by side in the graph's own order. */
static int groups(const struct touched *touched, int count)
{
    struct touched open = {0};
    int found = 1;
    for (int n = 0; n < count; n++) {
        if (conflict(open, touched[n])) {
            open = (struct touched){0};
            found++;
        }
        open.read |= touched[n].read;
        open.written |= touched[n].written;
    }
    return found;
}

/* Whether the order was changed. */
static bool check_order(const struct graph *graph, const struct order *order)
{
    const int count = graph->node_count;
    struct touched touched[MAX_NODES];
    int round[MAX_NODES], place[MAX_NODES], writing = 0;
    for (int n = 0; n < count; n++) {
        touched[n] = touched_by(&graph->nodes[n]);
        writing += touched[n].written != 0;
        place[n] = -1;
    }
    const int rounds = peel(touched, count, round);
    const bool changed = rounds < groups(touched, count);
    assert_int_equal(order->count, writing);
    for (int i = 0; i < order->count; i++) {
        const int n = order->node[i], before = i ? order->node[i - 1] : -1;
        assert_true(n >= 0 && n < count && place[n] < 0 && touched[n].written);
        assert_true(i == 0 || order->step[before] < order->step[n] ||
                    (order->step[before] == order->step[n] && before < n));
        place[n] = i;
    }
    for (int n = 0; n < count; n++) {
        assert_int_equal(order->step[n], !touched[n].written ? -1 : changed ? round[n] : n);
        for (int e = 0; e < n; e++)
            if (conflict(touched[e], touched[n]))
                assert_true(order->step[e] < order->step[n] && place[e] < place[n]);
    }
    return changed;
}

/* Tensors that are alive in a common step lie apart. */
static void check_arena(const struct graph *graph, const struct order *order)
{
    uint64_t bytes[MAX_TENSORS + 1], offsets[MAX_TENSORS + 1], total;
    int first[MAX_TENSORS + 1], last[MAX_TENSORS + 1];
    struct error err = ERROR_INIT;
    for (int t = 0; t < graph->tensor_count; t++) {
        const enum tensor_role role = graph->tensors[t].role;
        bytes[t] = (uint64_t)(1 + draw(500));
        first[t] = role == TENSOR_INPUT ? 0 : graph->node_count;
        last[t] = role == TENSOR_OUTPUT ? graph->node_count : role == TENSOR_INPUT ? 0 : -1;
    }
    assert_int_equal(arena_plan(graph, order->step, bytes, 64, offsets, &total, &err), OK);
    for (int n = 0; n < graph->node_count; n++)
        for (int i = -1; i < OP_MAX_INPUTS; i++) {
            const int t = i < 0 ? graph->nodes[n].out.tensor : graph->nodes[n].in[i].tensor, step = order->step[n];
            if (t < 0)
                continue;
            first[t] = step < first[t] ? step : first[t];
            last[t] = step > last[t] ? step : last[t];
        }
    for (int a = 0; a < graph->tensor_count; a++) {
        assert_int_equal(offsets[a] % 64, 0);
        assert_true(last[a] < 0 || offsets[a] + bytes[a] <= total);
        for (int b = 0; b < a; b++)
            if (last[a] >= 0 && last[b] >= 0 && first[a] <= last[b] && first[b] <= last[a])
                assert_true(offsets[a] + bytes[a] <= offsets[b] || offsets[b] + bytes[b] <= offsets[a]);
    }
}

static void test_random(void **unused)
{
    int changed = 0;
    (void)unused;
    for (int trial = 0; trial < TRIALS; trial++) {
        struct graph *graph = draw_graph();
        struct order order;
        struct error err = ERROR_INIT;
        assert_int_equal(order_create(&order, graph, &err), OK);
        changed += check_order(graph, &order);
        check_arena(graph, &order);
        order_free(&order);
        assert_null(order.node);
        graph_destroy(&graph);
    }
    print_message("%d of %d graphs in another order\n", changed, TRIALS);
    assert_true(changed > TRIALS / 10 && changed < TRIALS * 9 / 10);
}

/* --- a network -----------------------------------------------------------------------------------------------------
 */

static bool touches(const struct node *node, int tensor)
{
    bool found = node->out.tensor == tensor;
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        found |= node->in[i].tensor == tensor;
    return found;
}

/* GFPGAN's branches go side by side: scales and shifts beside the way up, RGB beside the next size. */
static void test_gfpgan(void **unused)
{
    const struct session_shape shape = {.n = 1, .h = 512, .w = 512, .variant = MODEL_NOISE_STORED};
    struct error err = ERROR_INIT;
    struct model *model;
    struct graph *graph = NULL;
    struct order order;
    uint8_t *file;
    size_t size;
    int steps = 0, stops = 1;
    (void)unused;
    if (model_random_file("gfpgan", &file, &size, &err) ||
        model_open_memory(&model, "gfpgan", file, size, NULL, &err) || model_graph(model, &shape, &graph, &err) ||
        order_create(&order, graph, &err))
        fail_msg("%s", err.text);
    assert_int_equal(order.count, graph->node_count);
    for (int n = 0, first = 0; n < graph->node_count; n++) {
        bool waits = false;
        for (int e = 0; e < n; e++)
            if (touches(&graph->nodes[n], graph->nodes[e].out.tensor)) {
                assert_true(order.step[e] < order.step[n]);
                waits |= e >= first;
            }
        first = waits ? n : first;
        stops += waits;
        steps = order.step[n] >= steps ? order.step[n] + 1 : steps;
    }
    printf("    gfpgan: %d nodes in %d steps, not %d\n", graph->node_count, steps, stops);
    assert_true(steps < stops);
    order_free(&order);
    graph_destroy(&graph);
    model_close(&model);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_gfpgan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
