#include "runtime/nn/order.h"

#include <stdlib.h>

#include "runtime/base/mem.h"

static bool order_meet(struct view a, struct view b)
{
    return a.tensor >= 0 && a.tensor == b.tensor && a.first < b.first + b.count && b.first < a.first + a.count;
}

/* Whether the later node has to wait for the earlier one: one of them writes what the other one reads or writes. */
static bool order_waits(const struct node *later, const struct node *earlier)
{
    bool waits = order_meet(later->out, earlier->out);
    for (int i = 0; i < OP_MAX_INPUTS && !waits; i++)
        waits = order_meet(later->in[i], earlier->out) || order_meet(later->out, earlier->in[i]);
    return waits;
}

/* Finds each node's step, the first in which it can be computed; returns the number of steps. */
static int order_steps(const struct graph *graph, int *step)
{
    int steps = 0;
    for (int n = 0; n < graph->node_count; n++) {
        step[n] = graph->nodes[n].out.tensor >= 0 ? 0 : -1;
        for (int earlier = 0; earlier < n && step[n] >= 0; earlier++)
            if (step[earlier] >= step[n] && order_waits(&graph->nodes[n], &graph->nodes[earlier]))
                step[n] = step[earlier] + 1;
        steps = step[n] >= steps ? step[n] + 1 : steps;
    }
    return steps;
}

/* How often a device must wait that computes the nodes in the graph's order and waits only where necessary, plus 1. */
static int order_stops(const struct graph *graph)
{
    int stops = 1;
    for (int n = 0, first = 0; n < graph->node_count; n++)
        for (int earlier = first; earlier < n; earlier++)
            if (order_waits(&graph->nodes[n], &graph->nodes[earlier])) {
                first = n;
                stops++;
                break;
            }
    return stops;
}

enum error_code order_create(struct order *out, const struct graph *graph, struct error *err)
{
    const size_t count = (size_t)graph->node_count;
    *out = (struct order){.node = mem_calloc(count, sizeof(int)), .step = mem_calloc(count, sizeof(int))};
    if (!out->node || !out->step) {
        order_free(out);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    }
    const int steps = order_steps(graph, out->step);
    const bool better = steps < order_stops(graph);
    for (int n = 0; n < graph->node_count && !better; n++)
        out->step[n] = out->step[n] < 0 ? -1 : n;
    for (int step = 0; step < (better ? steps : graph->node_count); step++)
        for (int n = 0; n < graph->node_count; n++)
            if (out->step[n] == step)
                out->node[out->count++] = n;
    return OK;
}

void order_free(struct order *order)
{
    free(order->node);
    free(order->step);
    *order = (struct order){0};
}
