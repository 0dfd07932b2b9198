/* Where a graph's tensors lie in one arena, from their liveness: a tensor occupies its place from the node that first
 * touches it to the node that last does, so tensors that are never alive together share bytes.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_NN_ARENA_PLAN_H
#define RUNTIME_NN_ARENA_PLAN_H

#include "runtime/nn/graph.h"

/* bytes[tensor_count]: the size that the backend gives each tensor; 0: not placed (constants). offsets[tensor_count]:
 * where each begins, a multiple of alignment. *total: the arena's size. Inputs live from the start, outputs to the end.
 * ERROR_TOO_LARGE when the total overflows. */
enum error_code arena_plan(const struct graph *graph, const uint64_t *bytes, uint64_t alignment, uint64_t *offsets,
                           uint64_t *total, struct error *err) MUST_CHECK;

#endif
