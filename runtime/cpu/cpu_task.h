/* A task of a cpu_plan, which is a node of a graph or a part of one: what it reads and writes, and how it runs. Those
 * of some operators have files of their own: cpu_norm, cpu_attention, cpu_lookup, cpu_sample. Thread-safety: as the
 * device. */
#ifndef RUNTIME_CPU_CPU_TASK_H
#define RUNTIME_CPU_CPU_TASK_H

#include "runtime/cpu/cpu_conv.h"
#include "runtime/nn/op.h"

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

/* For `run` of a task: each computes what the member of its name tells of (depthwise and max_pool: window). */
void cpu_task_conv(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_linear(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_depthwise(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_max_pool(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_resize(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_combine(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_gather(const struct cpu_task *task, const struct cpu_run *run);
void cpu_task_noise(const struct cpu_task *task, const struct cpu_run *run);
/* gather of a noise map, which keeps the caller's layout. */
void cpu_task_copy(const struct cpu_task *task, const struct cpu_run *run);

/* Whether a task is a gather: a copy, or a pixel shuffle. */
bool cpu_task_is_gather(const struct cpu_task *task);

/* Floats of the run's shared scratch that a task fills from its weights alone: it need not again for other rows. */
size_t cpu_task_kept_floats(const struct cpu_task *task);

/* Rows first .. end-1 of a tensor to the caller's float32 NCHW memory. lanes[channels]. */
void cpu_task_output(const struct cpu_operand *x, int channels, const int *lanes, int first, int end,
                     struct cpu_pool *pool, float *to);

#endif
