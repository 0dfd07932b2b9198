/* A graph on the device "cpu": the places of its tensors in the device's arena, and the list of tasks that cpu_ops
 * makes from its nodes.
 * Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_PLAN_H
#define RUNTIME_CPU_CPU_PLAN_H

#include "runtime/cpu/cpu_band.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/cpu/cpu_task.h"

/* The functions of the backend. */
enum error_code cpu_plan_create(struct plan **out, struct device *device, const struct graph *graph,
                                enum precision precision, const char *name, struct error *err) MUST_CHECK;
void cpu_plan_destroy(struct plan *plan);
enum error_code cpu_plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                             const struct run_options *options, struct error *err) MUST_CHECK;
bool cpu_plan_in_rows(const struct plan *plan);
enum error_code cpu_plan_run_rows(struct plan *plan, const float *const *inputs, run_rows_fn *take, void *user,
                                  const struct run_options *options, struct error *err) MUST_CHECK;
uint64_t cpu_plan_bytes(const struct plan *plan);
enum error_code cpu_plan_profile(struct plan *plan, struct error *err) MUST_CHECK;
double cpu_plan_ms(const struct plan *plan, double *node_ms);

/* --- for cpu_ops ---------------------------------------------------------------------------------------------------
 */

/* A plan while it is made. */
struct cpu_build {
    struct cpu_device *device;
    const struct cpu_isa *isa;
    struct cpu_plan *plan;
    const struct graph *graph;
    int node; /* of the tasks that are being made */
};

/* The view's operand. If `wanted` is given and the view has another layout, a task is added that makes a copy. A
 * constant is packed. VIEW_NONE: none. */
enum error_code cpu_plan_operand(struct cpu_build *build, struct view view, const struct cpu_layout *wanted,
                                 struct cpu_operand *out, struct error *err) MUST_CHECK;

/* True if the tensor is a noise map: one channel, without padding. */
bool cpu_plan_is_map(const struct cpu_build *build, int tensor);

/* Zeroed memory that lives as long as the plan. */
enum error_code cpu_plan_memory(struct cpu_build *build, size_t bytes, void **out, struct error *err) MUST_CHECK;

/* Appends a task and makes sure that the scratch memory is large enough. */
enum error_code cpu_plan_add(struct cpu_build *build, const struct cpu_task *task, size_t shared_floats,
                             size_t thread_floats, struct error *err) MUST_CHECK;

#endif
