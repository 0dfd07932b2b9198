/* The order of a graph's nodes for a device that computes many at once and has to wait between those that depend on
 * each other. Nodes are put into as few steps as possible; nodes of one step do not depend on each other, so branches
 * run side by side.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_NN_ORDER_H
#define RUNTIME_NN_ORDER_H

#include "runtime/nn/graph.h"

struct order {
    int count; /* the number of nodes that write something */
    int *node; /* [count], in the order of their steps; within a step in the graph's order */
    int *step; /* [graph->node_count] the step of each node, from 0; -1: it writes nothing */
};

/* Puts each node into the earliest step that is possible. If that does not save a wait over the graph's own order,
 * which needs less memory, the graph's order is kept and each node is a step. ERROR_NO_MEMORY. */
enum error_code order_create(struct order *out, const struct graph *graph, struct error *err) MUST_CHECK;
void order_free(struct order *order);

#endif
