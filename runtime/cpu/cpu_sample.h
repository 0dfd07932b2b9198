/* MEAN and SAMPLE on the device "cpu". Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_SAMPLE_H
#define RUNTIME_CPU_CPU_SAMPLE_H

#include "runtime/cpu/cpu_plan.h"

/* Append the node's task. NO_MEMORY. */
enum error_code cpu_mean_node(struct cpu_build *build, const struct node *node, struct error *err) MUST_CHECK;
enum error_code cpu_sample_node(struct cpu_build *build, const struct node *node, struct error *err) MUST_CHECK;

#endif
