/* The order of a graph's nodes for a device that computes many at once and stops between those that depend on each
 * other: in steps, whose nodes need nothing of each other, as few as there can be, so that branches go side by side.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_NN_ORDER_H
#define RUNTIME_NN_ORDER_H

#include "runtime/nn/graph.h"

struct order {
    int count; /* of the nodes that write something */
    int *node; /* [count], in the order of their steps; within a step in that of the graph */
    int *step; /* [graph->node_count] of each node, from 0; -1: it writes nothing */
};

/* Each node comes in the first step in which it can. Where that makes no fewer stops than the graph's own order, which
 * needs less memory, the order stays that, and each node is a step. ERROR_NO_MEMORY. */
enum error_code order_create(struct order *out, const struct graph *graph, struct error *err) MUST_CHECK;
void order_free(struct order *order);

#endif
