/* Convolutions and linear layers of the device "cpu": which way to compute one, its scratch memory, and the division of
 * the work among threads. Thread-safety: as the device. */
#ifndef RUNTIME_CPU_CPU_CONV_H
#define RUNTIME_CPU_CPU_CONV_H

#include "runtime/cpu/cpu_kernel.h"
#include "runtime/cpu/cpu_pool.h"

enum cpu_conv_way {
    CPU_CONV_DIRECT, /* one strip of input rows at a time, each tap a matrix product */
    CPU_CONV_TILES,  /* Winograd: all weights transformed first, then some tiles at a time */
    CPU_CONV_OUTPUTS /* Winograd: all tiles transformed first, then some output channels at a time */
};

/* How a convolution is computed. */
struct cpu_conv_job {
    struct cpu_conv conv;
    enum cpu_conv_way way;
    struct cpu_tiles tiles;
    int room;     /* tiles at a time */
    int cols;     /* blocks of output channels at a time */
    int rows;     /* direct: output rows at a time */
    bool copies;  /* direct: the input goes through a strip */
    int width;    /* direct: of a strip, or of x without copies */
    size_t block; /* direct: floats from one input block to the next */
    struct cpu_term *terms;
    int term_count;
    int first_row, end_row;              /* those of y that are computed, whole tiles of 4 */
    bool ready;                          /* CPU_CONV_TILES: the transformed weights are in shared already */
    size_t point_u, point_v, point_m;    /* Winograd: floats from one point to the next */
    size_t shared_floats, thread_floats; /* scratch */
};

/* Fills all members except conv, from conv. used[in blocks]: channels in each block. terms is the caller's to free().
 * ERROR_NO_MEMORY. */
enum error_code cpu_conv_plan(struct cpu_conv_job *job, const struct cpu_isa *isa, int threads, const int *used,
                              struct error *err) MUST_CHECK;

/* shared: shared_floats; own: thread_floats for each thread, consecutive. */
void cpu_conv_run(const struct cpu_conv_job *job, const struct cpu_isa *isa, struct cpu_pool *pool, float *shared,
                  float *own);

#endif
