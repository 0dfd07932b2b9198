/* A plan of the device "cpu": shared by cpu_plan.c, which makes it, and cpu_plan_run.c.
 * Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_PLAN_PRIVATE_H
#define RUNTIME_CPU_CPU_PLAN_PRIVATE_H

#include "runtime/cpu/cpu_plan.h"

struct plan_memory {
    struct plan_memory *next;
    float *data;
    uint64_t bytes;
};

struct cpu_output {
    struct cpu_operand operand;
    int channels;
    int *lanes; /* NULL: a map, which has the caller's layout */
};

struct cpu_plan {
    struct plan base;
    char name[64];
    const struct cpu_isa *isa;
    struct cpu_plan *before, *after; /* of the device's */
    /* In the arena: the tensors, copies of them for one node at a time, scratch. */
    uint64_t tensor_bytes, copy_bytes, copies, bytes; /* copies: of the node that is built now */
    float *scratch, *rows;                            /* rows: of the result, for a band */
    struct arena_piece *pieces;                       /* of the tensors; this and the next two only while it is built */
    int *first_piece;                                 /* by tensor, and the number of all behind the last */
    bool *maps;                                       /* by tensor */
    struct cpu_band band;
    size_t band_task;                  /* the first of its layers, which are one task each */
    float *band_shared[CPU_BAND_MOST]; /* each layer's shared scratch, which lasts from band to band; NULL: need not */
    size_t shared_floats, thread_floats;
    struct plan_memory *memory;
    struct cpu_task *tasks;
    size_t task_count, task_capacity;
    int input_count, output_count;
    struct cpu_task inputs[sizeof((struct graph *)0)->inputs / sizeof(int)];
    struct cpu_output outputs[sizeof((struct graph *)0)->outputs / sizeof(int)];
    uint64_t held; /* bytes of `memory` */
    int node_count;
    double run_ms, *node_ms; /* of the last run; node_ms NULL: not measured */
};

#endif
