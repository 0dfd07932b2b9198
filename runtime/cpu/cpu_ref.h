/* The operators in plain C: the oracle that every backend's results are compared with. Sums run in double precision; it
 * only has to be fast enough for tests to end. Formulas: runtime/nn/op.h.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_CPU_CPU_REF_H
#define RUNTIME_CPU_CPU_REF_H

#include "runtime/nn/graph.h"

/* A view's values: float32 NCHW, `image` floats from one image of the batch to the next (0: one for all). */
struct cpu_view {
    float *data; /* NULL: absent */
    int n, c, h, w;
    size_t image;
};

struct cpu_node {
    enum op_kind kind;
    struct cpu_view out, in[OP_MAX_INPUTS];
    const float *param[OP_MAX_PARAMS]; /* NULL: absent */
    union op_args args;
    uint64_t seed;
    uint32_t first_image;
};

/* Computes one node. ERROR_NO_MEMORY, ERROR_UNSUPPORTED. */
enum error_code cpu_ref_run(const struct cpu_node *node, struct error *err) MUST_CHECK;

/* Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). */
void cpu_ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

#endif
