/* The nodes of a graph as tasks of a cpu_plan. Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_OPS_H
#define RUNTIME_CPU_CPU_OPS_H

#include "runtime/cpu/cpu_plan.h"

/* Appends the node's tasks. UNSUPPORTED, NO_MEMORY. */
enum error_code cpu_ops_node(struct cpu_build *build, const struct node *node, struct error *err) MUST_CHECK;

/* Appends a copy of x, with the layout `from`, to y, with the layout `to`. */
enum error_code cpu_ops_relayout(struct cpu_build *build, const struct cpu_operand *x, const struct cpu_layout *from,
                                 const struct cpu_operand *y, const struct cpu_layout *to,
                                 struct error *err) MUST_CHECK;

/* The caller's float32 NCHW memory to a tensor, as a task that is not part of a plan yet: each run sets gather.x. */
enum error_code cpu_ops_input(struct cpu_build *build, struct view whole, struct cpu_task *out,
                              struct error *err) MUST_CHECK;

#endif
