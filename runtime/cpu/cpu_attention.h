/* ATTENTION of op.h on the CPU device. Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_ATTENTION_H
#define RUNTIME_CPU_CPU_ATTENTION_H

#include "runtime/cpu/cpu_plan.h"

/* Appends the node's task. NO_MEMORY. */
enum error_code cpu_attention_node(struct cpu_build *build, const struct node *node, struct error *err) MUST_CHECK;

/* A channel's value at the first pixel, by its lane. */
static inline const float *cpu_attention_lane(const struct cpu_operand *x, int image, int lane)
{
    return x->data + (size_t)image * x->image + cpu_kernel_block(x, lane / CPU_BLOCK) + lane % CPU_BLOCK;
}

/* The lane of each of the view's channels, in memory of the plan. */
enum error_code cpu_attention_lanes(struct cpu_build *build, struct view view, const int **out,
                                    struct error *err) MUST_CHECK;

#endif
