/* Where a graph's tensors lie in one arena, from their liveness: a tensor occupies its place from the first step that
 * touches it to the last, so tensors that are never alive together share bytes. So may the segments of one tensor each:
 * of a dense block's only the first lives on when the block is done.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_NN_ARENA_PLAN_H
#define RUNTIME_NN_ARENA_PLAN_H

#include "runtime/nn/graph.h"

/* step[node_count]: the step in which each node is computed (those of one step at once), -1: never (order.h); NULL: one
 * node after another. bytes[tensor_count]: the size that the backend gives each tensor; 0: not placed (constants).
 * offsets[tensor_count]: where each begins, a multiple of alignment. *total: the arena's size. Inputs live from the
 * start, outputs to the end. ERROR_TOO_LARGE when the total overflows. */
enum error_code arena_plan(const struct graph *graph, const int *step, const uint64_t *bytes, uint64_t alignment,
                           uint64_t *offsets, uint64_t *total, struct error *err) MUST_CHECK;

/* What lies in one place: some segments of a tensor. */
struct arena_piece {
    int tensor, first, count; /* as a view's */
    uint64_t bytes, offset;
};

/* The same for tensors in pieces: those of a tensor follow each other, in the tensors' order. Sets every offset. */
enum error_code arena_plan_pieces(const struct graph *graph, const int *step, struct arena_piece *pieces, int count,
                                  uint64_t alignment, uint64_t *total, struct error *err) MUST_CHECK;

#endif
