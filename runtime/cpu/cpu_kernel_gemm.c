#include "runtime/cpu/cpu_kernel_list.h"

/* One register tile: ROWS rows against COLS blocks of output channels. Each block of input channels is far from the one
 * before, where no processor expects it: the rows that the next call will read there are prefetched, which halves the
 * time of a 1×1 convolution. */
#define GEMM(ROWS, COLS)                                                                                               \
    static void gemm_##ROWS##_##COLS(const float *const rows[], const float *weight, size_t weight_col,                \
                                     const struct cpu_term *terms, int term_count, float *out)                         \
    {                                                                                                                  \
        vf sum[ROWS][COLS * VF_PARTS];                                                                                 \
        const float *row[ROWS];                                                                                        \
        UNROLL for (int r = 0; r < ROWS; r++)                                                                          \
        {                                                                                                              \
            row[r] = rows[r];                                                                                          \
            UNROLL for (int k = 0; k < COLS * VF_PARTS; k++) sum[r][k] = vf_set(0);                                    \
        }                                                                                                              \
        for (int t = 0; t < term_count; t++, weight += CPU_CELL) {                                                     \
            const size_t end = terms[t].offset + terms[t].channels;                                                    \
            const float *at = weight;                                                                                  \
            UNROLL for (int r = 0; r < ROWS; r++)                                                                      \
                __builtin_prefetch(row[r] + terms[t].offset + CPU_GEMM_ROWS * CPU_BLOCK);                              \
            for (size_t c = terms[t].offset; c < end; c++, at += CPU_BLOCK) {                                          \
                vf w[COLS * VF_PARTS];                                                                                 \
                UNROLL for (int k = 0; k < COLS * VF_PARTS; k++) w[k] =                                                \
                    vf_load(at + (size_t)(k / VF_PARTS) * weight_col + k % VF_PARTS * VF_LANES);                       \
                UNROLL for (int r = 0; r < ROWS; r++)                                                                  \
                {                                                                                                      \
                    const vf x = vf_set(row[r][c]);                                                                    \
                    UNROLL for (int k = 0; k < COLS * VF_PARTS; k++) sum[r][k] = sum[r][k] + x * w[k];                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int k = 0; k < COLS * VF_PARTS; k++)                         \
            vf_store(out + (r * COLS * VF_PARTS + k) * VF_LANES, sum[r][k]);                                           \
    }

#if VF_LANES == 16
#define GEMM_COLS 4
#define GEMM_ROWS_TABLE(R)                                                                                             \
    {                                                                                                                  \
        gemm_##R##_1, gemm_##R##_2, gemm_##R##_3, gemm_##R##_4                                                         \
    }
#define GEMM_ROWS_ALL(R) GEMM(R, 1) GEMM(R, 2) GEMM(R, 3) GEMM(R, 4)
#else
#define GEMM_COLS 1
#define GEMM_ROWS_TABLE(R)                                                                                             \
    {                                                                                                                  \
        gemm_##R##_1                                                                                                   \
    }
#define GEMM_ROWS_ALL(R) GEMM(R, 1)
#endif

#if defined __AVX512F__ || defined __aarch64__
#define REGISTERS 32
#else
#define REGISTERS 16
#endif
#if 6 * VF_PARTS > REGISTERS
#define GEMM_ROWS_MOST 2
GEMM_ROWS_ALL(1)
GEMM_ROWS_ALL(2)
#else
#define GEMM_ROWS_MOST 6
GEMM_ROWS_ALL(1)
GEMM_ROWS_ALL(2)
GEMM_ROWS_ALL(3)
GEMM_ROWS_ALL(4)
GEMM_ROWS_ALL(5)
GEMM_ROWS_ALL(6)
#endif

typedef void gemm_fn(const float *const rows[], const float *weight, size_t weight_col, const struct cpu_term *terms,
                     int term_count, float *out);

void CPU_FN(cpu_kernel_gemm)(const float *const *rows, int row_count, const float *weight, size_t weight_col, int cols,
                             const struct cpu_term *terms, int term_count, float *out)
{
    static gemm_fn *const table[GEMM_ROWS_MOST][GEMM_COLS] = {
        GEMM_ROWS_TABLE(1),
        GEMM_ROWS_TABLE(2),
#if GEMM_ROWS_MOST == 6
        GEMM_ROWS_TABLE(3),
        GEMM_ROWS_TABLE(4),
        GEMM_ROWS_TABLE(5),
        GEMM_ROWS_TABLE(6),
#endif
    };
    for (int r = 0; r < row_count;) {
        const int now = row_count - r < GEMM_ROWS_MOST ? row_count - r : GEMM_ROWS_MOST;
        table[now - 1][cols - 1](rows + r, weight, weight_col, terms, term_count, out + r * cols * CPU_BLOCK);
        r += now;
    }
}
