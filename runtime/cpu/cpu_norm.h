/* GROUP_NORM and LAYER_NORM of op.h on the CPU device. Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_NORM_H
#define RUNTIME_CPU_CPU_NORM_H

#include "runtime/cpu/cpu_plan.h"

/* Appends the node's task. NO_MEMORY. */
enum error_code cpu_norm_node(struct cpu_build *build, const struct node *node, struct error *err) MUST_CHECK;

#endif
