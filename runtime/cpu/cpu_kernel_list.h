/* The kernels of the instruction set that is being compiled; struct cpu_isa says what they do.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_CPU_CPU_KERNEL_LIST_H
#define RUNTIME_CPU_CPU_KERNEL_LIST_H

#include "runtime/cpu/cpu_vector.h"

void CPU_FN(cpu_kernel_gemm)(const float *const *rows, int row_count, const float *weight, size_t weight_col, int cols,
                             const struct cpu_term *terms, int term_count, float *out);
void CPU_FN(cpu_kernel_winograd_weight)(const float *weight, int in_blocks, int first_out, int outs, int first_in,
                                        int ins, float *u, size_t point_u);
void CPU_FN(cpu_kernel_winograd_input)(const struct cpu_conv *conv, const struct cpu_tiles *tiles, int first, int count,
                                       int first_in, int ins, float *v, int room, size_t point_v);
void CPU_FN(cpu_kernel_winograd_output)(const struct cpu_conv *conv, const struct cpu_tiles *tiles, int first,
                                        int count, int first_out, int outs, const float *m, size_t point_m);

#endif
