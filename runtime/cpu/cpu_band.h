/* The end of a network, computed in bands of rows. An upscaler's last layers work at the size of its result, where a
 * tensor takes more memory than everything before: 16 lanes or more for each of a result's pixels. Each of these layers
 * needs only a few rows of the one before, so they take turns, band by band, and of their tensors only some rows exist
 * at a time. A network that is one chain of layers is computed so from its input on. What is computed for a pixel does
 * not depend on the bands, and neither does the result.
 * Thread-safety: functions without state; a pool is its device's. */
#ifndef RUNTIME_CPU_CPU_BAND_H
#define RUNTIME_CPU_CPU_BAND_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/cpu/cpu_kernel.h"
#include "runtime/cpu/cpu_pool.h"
#include "runtime/nn/graph.h"

#define CPU_BAND_MOST 40 /* layers */

struct cpu_band_layer {
    int tensor, h;       /* that it writes; its rows in all */
    int kernel, pad, up; /* how it reads the layer before; kernel 0: it reads another tensor, which is whole */
    int room;            /* rows of its tensor that exist at a time */
};

struct cpu_band {
    int first, count; /* the graph's nodes first .. first+count-1; count 0: there is no such end */
    int step;         /* rows of the first layer in a band */
    struct cpu_band_layer layer[CPU_BAND_MOST];
};

/* Finds the nodes at the graph's end that can be computed so, if that saves memory. threads: that share the work. */
void cpu_band_plan(struct cpu_band *band, const struct graph *graph, int threads);

/* The layer that writes a tensor; NULL: none. */
const struct cpu_band_layer *cpu_band_layer_of(const struct cpu_band *band, int tensor);

/* Which rows there are. Zero it. */
struct cpu_band_rows {
    int done[CPU_BAND_MOST]; /* rows computed */
    int low[CPU_BAND_MOST];  /* the first of them that still exists; it is the first in memory */
};

/* The rows that each layer has done after the next turn of each; false: all is done. At first and in the end some
 * layers have nothing to do. */
bool cpu_band_next(const struct cpu_band *band, const struct cpu_band_rows *rows, int need[CPU_BAND_MOST]);

/* The lowest row of a layer that the one after it, which has `done` rows, still reads. */
int cpu_band_lowest(const struct cpu_band *band, int layer, int done);

/* Moves a layer's rows low .. done-1 to the beginning of its tensor, whose rows now begin with *had. */
void cpu_band_keep(struct cpu_pool *pool, const struct cpu_operand *whole, int had, int low, int done);

/* Where row 0 would be of a tensor w px wide whose row `low` is at data. */
float *cpu_band_before(const float *data, int low, int w);

/* The tensor with row `low` at the beginning of its memory, for code that counts rows from the picture's first. */
struct cpu_operand cpu_band_shift(const struct cpu_operand *whole, int low);

#endif
