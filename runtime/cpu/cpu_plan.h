/* A graph on the device "cpu": the places of its tensors in the device's arena, and the list of tasks that cpu_ops
 * makes from its nodes.
 * Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_PLAN_H
#define RUNTIME_CPU_CPU_PLAN_H

#include "runtime/cpu/cpu_band.h"
#include "runtime/cpu/cpu_conv.h"
#include "runtime/cpu/cpu_device.h"

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

/* One run of a plan. */
struct cpu_run {
    const struct cpu_isa *isa;
    struct cpu_pool *pool;
    float *shared, *own; /* scratch; own: own_floats for each thread */
    size_t own_floats;
    uint64_t seed;
    uint32_t first_image;
    int first_row, end_row; /* the task computes these rows alone; end_row 0: all */
    bool ready;             /* what it made of its weights for other rows is still in `shared` */
};

/* Sums over all of x for each image: LINEAR, and DEMODULATE over squares. */
struct cpu_linear {
    struct cpu_operand x;
    const float *weight;
    struct cpu_finish finish;
    float epsilon;   /* DEMODULATE: y = 1/sqrt(sum + epsilon) for used lanes; LINEAR: no `used` */
    const int *used; /* channels in each block of y */
};

/* Lanes taken from another layout: y[image][block][pixel][lane] = x[image][pixel of x + offset of (block, phase, lane)]
 * + residual. A pixel (row, column) of y comes from (row*times/over, column*times/over) of x, which is x_width wide and
 * has x_step floats a pixel; its phase is (row % over, column % over). */
struct cpu_gather {
    const float *x; /* NULL: the caller's memory */
    size_t x_image, x_step;
    int x_width, times, over;
    const ptrdiff_t *offsets; /* [block][over*over][16]; < 0: the lane is 0 */
    const float *residual;    /* at the same pixel as x; NULL: none */
    size_t residual_image;
    const ptrdiff_t *residual_offsets; /* [block][16] */
    struct cpu_operand y;
};

/* GROUP_NORM and LAYER_NORM. */
struct cpu_norm {
    struct cpu_operand x, like, y; /* of one layout; like: absent where there are weights */
    int channels;
    const int *lanes;           /* of the channels */
    const int *used;            /* channels in each block */
    const float *weight, *bias; /* lanes or NULL */
    struct op_norm args;
};

/* ATTENTION; and LOOKUP, whose table is [block][entry][16]. */
struct cpu_attention {
    struct cpu_operand q, k, v, y;
    int channels;
    const int *lanes[4]; /* of the channels of q, k, v and y */
    struct op_attention args;
};

struct cpu_lookup {
    struct cpu_operand x, y;
    int entries;
    const int *lanes; /* of the channels of x */
    const float *table;
};

struct cpu_task {
    void (*run)(const struct cpu_task *task, const struct cpu_run *run);
    int node; /* of the graph: the node that its time counts for */
    union {
        struct cpu_conv_job conv;
        struct cpu_linear linear;
        struct cpu_window window;
        struct cpu_combine combine;
        struct cpu_gather gather;
        struct cpu_norm norm;
        struct cpu_attention attention;
        struct cpu_lookup lookup;
        struct {
            struct cpu_operand x, y;
            bool bilinear;
        } resize;
        struct {
            struct cpu_operand x, y, map;
            size_t map_step;
        } mean;
        struct {
            struct cpu_operand x, places, y;
            const float *weight;
            int groups, factor, channels;
        } sample;
        struct {
            struct cpu_operand y;
            size_t step;
            int layer;
        } noise;
    };
};

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
