#include "server/image/filter.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

/* exp() as OpenCV computes it for its kernels, some units in the last place beside libm's: 2^(n/64) from a table that
 * is scaled by a constant, times a polynomial that is divided by it. x <= 0. */
static double filter_exp(double x)
{
    const double table_scale = .9670371139572337719125840413672004409288e-2;
    static const double terms[6] = {.13369713757180123244806654839424e-2, .96180973140732918010002372686186e-2,
                                    .55504108793649567998466049042729e-1, .24022650695886477918181338054308,
                                    .69314718055994546743029643825322,    .99999999999999999998285227504999};
    if (x < -700)
        return 0;
    double scaled = x * (1.4426950408889634073599246810019 * 64), whole = rint(scaled), y = (scaled - whole) / 64;
    double sum = terms[0] / table_scale;
    for (int i = 1; i < 6; i++)
        sum = sum * y + terms[i] / table_scale;
    int n = (int)whole, power = n >> 6;
    return ldexp(sum, power) * (exp2((n & 63) / 64.) * table_scale);
}

/* Follows OpenCV 4.6's getGaussianKernelBitExact step by step, so that every bit agrees. */
void filter_gaussian_kernel(double *weights, int n, double sigma)
{
    static const double small[5][5] = {{1},
                                       {.25, .5},
                                       {.0625, .25, .375},
                                       {.03125, .109375, .21875, .28125},
                                       {4 / 256., 13 / 256., 30 / 256., 51 / 256., 60 / 256.}};
    int half = n / 2;
    assert(n >= 1 && n % 2 == 1);
    if (sigma <= 0 && n <= 9) {
        for (int i = 0; i <= half; i++)
            weights[i] = weights[n - 1 - i] = small[half][i];
        return;
    }
    if (sigma <= 0)
        sigma = fma(n, 0.15, 0.35);
    double scale = -0.125 / (sigma * sigma), sum = 0;
    for (int i = 0, x = 1 - n; i < half; i++, x += 2) {
        weights[i] = filter_exp((double)x * x * scale);
        sum += weights[i];
    }
    double norm = 1 / (sum * 2 + 1);
    for (int i = 0; i < half; i++)
        weights[i] = weights[n - 1 - i] = weights[i] * norm;
    weights[half] = norm;
}

/* BORDER_REFLECT_101: the edge pixel is not repeated. */
static int filter_reflect(int i, int n)
{
    if (n == 1)
        return 0;
    while (i < 0 || i >= n)
        i = i < 0 ? -i : 2 * n - 2 - i;
    return i;
}

/* Sums of weighted rows, fused. fma() without the instruction is a slow library call, so on x86-64 each has a twin for
 * processors that have it; both give the same bits. Four taps at a time, since sums come from memory and go there. */
#if defined(__x86_64__)
#define FILTER_FMA_TARGET __attribute__((target("avx2,fma")))
#define FILTER_HAS_FMA() (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define FILTER_FMA_TARGET
#define FILTER_HAS_FMA() true
#endif

#define FILTER_ROWS(T, FMA, TARGET, ACROSS, DOWN)                                                                      \
    /* sum[x] = weight[0]*a[x] + weight[1]*a[x + 1] + …, in this order. */                                           \
    TARGET static void ACROSS(T *restrict sum, const T *restrict a, const T *restrict w, int taps, int n)              \
    {                                                                                                                  \
        int k = 1;                                                                                                     \
        for (int i = 0; i < n; i++)                                                                                    \
            sum[i] = w[0] * a[i];                                                                                      \
        for (; k + 4 <= taps; k += 4) {                                                                                \
            const T *restrict p = a + k, w0 = w[k], w1 = w[k + 1], w2 = w[k + 2], w3 = w[k + 3];                       \
            for (int i = 0; i < n; i++)                                                                                \
                sum[i] = FMA(w3, p[i + 3], FMA(w2, p[i + 2], FMA(w1, p[i + 1], FMA(w0, p[i], sum[i]))));               \
        }                                                                                                              \
        for (; k < taps; k++)                                                                                          \
            for (int i = 0; i < n; i++)                                                                                \
                sum[i] = FMA(w[k], a[i + k], sum[i]);                                                                  \
    }                                                                                                                  \
                                                                                                                       \
    /* sum[x] += w[0]*(up[0][x] + down[0][x]) + …; taps 1..4. */                                                     \
    TARGET static void DOWN(T *restrict sum, const T *const up[4], const T *const down[4], const T *w, int taps,       \
                            int n)                                                                                     \
    {                                                                                                                  \
        const T *a0 = up[0], *a1 = up[1], *a2 = up[2], *a3 = up[3];                                                    \
        const T *b0 = down[0], *b1 = down[1], *b2 = down[2], *b3 = down[3];                                            \
        const T w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];                                                            \
        if (taps == 4)                                                                                                 \
            for (int i = 0; i < n; i++)                                                                                \
                sum[i] = FMA(w3, a3[i] + b3[i],                                                                        \
                             FMA(w2, a2[i] + b2[i], FMA(w1, a1[i] + b1[i], FMA(w0, a0[i] + b0[i], sum[i]))));          \
        else                                                                                                           \
            for (int k = 0; k < taps; k++)                                                                             \
                for (int i = 0; i < n; i++)                                                                            \
                    sum[i] = FMA(w[k], up[k][i] + down[k][i], sum[i]);                                                 \
    }

FILTER_ROWS(float, fmaf, FILTER_FMA_TARGET, filter_across_f32_fast, filter_down_f32_fast)
FILTER_ROWS(float, fmaf, , filter_across_f32, filter_down_f32)
FILTER_ROWS(double, fma, FILTER_FMA_TARGET, filter_across_f64_fast, filter_down_f64_fast)
FILTER_ROWS(double, fma, , filter_across_f64, filter_down_f64)

#define FILTER_GAUSSIAN(NAME, T, VIEW, ACROSS, DOWN)                                                                   \
    struct NAME##_loop {                                                                                               \
        const VIEW *dst, *src;                                                                                         \
        const T *weights;                                                                                              \
        T *lines, *plane; /* a source row with its borders, for each band; rows blurred */                             \
        int n;                                                                                                         \
    };                                                                                                                 \
                                                                                                                       \
    /* Along the rows. */                                                                                              \
    static void NAME##_across(void *context, int item)                                                                 \
    {                                                                                                                  \
        const struct NAME##_loop *loop = context;                                                                      \
        int width = loop->src->width, n = loop->n, r = n / 2, begin, end;                                              \
        void (*across)(T *restrict, const T *restrict, const T *restrict, int, int) =                                  \
            FILTER_HAS_FMA() ? ACROSS##_fast : ACROSS;                                                                 \
        T *line = loop->lines + (size_t)item * (size_t)(width + n);                                                    \
        thread_band(loop->src->height, item, &begin, &end);                                                            \
        for (int y = begin; y < end; y++) {                                                                            \
            const T *from = loop->src->data + (size_t)y * loop->src->stride;                                           \
            memcpy(line + r, from, (size_t)width * sizeof(T));                                                         \
            for (int i = 1; i <= r; i++) {                                                                             \
                line[r - i] = from[filter_reflect(-i, width)];                                                         \
                line[r + width - 1 + i] = from[filter_reflect(width - 1 + i, width)];                                  \
            }                                                                                                          \
            across(loop->plane + (size_t)y * (size_t)width, line, loop->weights, n, width);                            \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void NAME##_down(void *context, int item)                                                                   \
    {                                                                                                                  \
        const struct NAME##_loop *loop = context;                                                                      \
        int width = loop->src->width, height = loop->src->height, r = loop->n / 2, begin, end;                         \
        size_t row = (size_t)width;                                                                                    \
        void (*down)(T *restrict, const T *const[4], const T *const[4], const T *, int, int) =                         \
            FILTER_HAS_FMA() ? DOWN##_fast : DOWN;                                                                     \
        thread_band(height, item, &begin, &end);                                                                       \
        for (int y = begin; y < end; y++) {                                                                            \
            const T *centre = loop->plane + (size_t)y * row;                                                           \
            T *to = loop->dst->data + (size_t)y * loop->dst->stride;                                                   \
            for (int x = 0; x < width; x++)                                                                            \
                to[x] = loop->weights[r] * centre[x];                                                                  \
            for (int i = 1, taps; i <= r; i += taps) {                                                                 \
                const T *after[4] = {NULL}, *before[4] = {NULL};                                                       \
                T w[4] = {0};                                                                                          \
                taps = r - i + 1 < 4 ? r - i + 1 : 4;                                                                  \
                for (int k = 0; k < taps; k++) {                                                                       \
                    after[k] = loop->plane + (size_t)filter_reflect(y + i + k, height) * row;                          \
                    before[k] = loop->plane + (size_t)filter_reflect(y - i - k, height) * row;                         \
                    w[k] = loop->weights[r + i + k];                                                                   \
                }                                                                                                      \
                down(to, after, before, w, taps, width);                                                               \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    enum error_code NAME(const VIEW *dst, const VIEW *src, int n, double sigma, struct error *err)                     \
    {                                                                                                                  \
        int bands = thread_bands(src->height);                                                                         \
        size_t width = (size_t)src->width, height = (size_t)src->height, line = width + (size_t)n;                     \
        assert(src->channels == 1 && dst->width == src->width && dst->height == src->height && n % 2 == 1);            \
        double *kernel = mem_alloc((size_t)n, sizeof *kernel + sizeof(T));                                             \
        T *weights = (T *)(kernel + n), *lines = mem_alloc(width * height + line * (size_t)bands, sizeof(T));          \
        enum error_code code = OK;                                                                                     \
        if (kernel && lines) {                                                                                         \
            struct NAME##_loop loop = {dst, src, weights, lines, lines + line * (size_t)bands, n};                     \
            filter_gaussian_kernel(kernel, n, sigma);                                                                  \
            for (int i = 0; i < n; i++)                                                                                \
                weights[i] = (T)kernel[i];                                                                             \
            thread_for(bands, NAME##_across, &loop);                                                                   \
            thread_for(bands, NAME##_down, &loop);                                                                     \
        } else {                                                                                                       \
            code = error_set(err, ERROR_NO_MEMORY, "out of memory to blur %d×%d pixels", src->width, src->height);     \
        }                                                                                                              \
        free(kernel);                                                                                                  \
        free(lines);                                                                                                   \
        return code;                                                                                                   \
    }

FILTER_GAUSSIAN(filter_gaussian_f32, float, struct view_f32, filter_across_f32, filter_down_f32)
FILTER_GAUSSIAN(filter_gaussian_f64, double, struct view_f64, filter_across_f64, filter_down_f64)

static void filter_min(float *to, const float *other, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = other[i] < to[i] ? other[i] : to[i];
}

/* Turns rows into the minimum of themselves and the n-1 after them, for all rows that have so many: windows double
 * until two of them cover n, so the cost grows with log n. In place: row y only looks at rows not yet changed. */
static void filter_running_min(float *rows, size_t count, size_t length, size_t n)
{
    size_t window = 1;
    for (; window * 2 <= n; window *= 2)
        for (size_t y = 0; y + window * 2 <= count; y++)
            filter_min(rows + y * length, rows + (y + window) * length, length);
    if (n > window)
        for (size_t y = 0; y + n <= count; y++)
            filter_min(rows + y * length, rows + (y + n - window) * length, length);
}

static void filter_transpose(float *to, size_t to_stride, const float *from, size_t from_stride, size_t width,
                             size_t height)
{
    enum { BLOCK = 16 };
    for (size_t y0 = 0; y0 < height; y0 += BLOCK)
        for (size_t x0 = 0; x0 < width; x0 += BLOCK)
            for (size_t y = y0; y < y0 + BLOCK && y < height; y++)
                for (size_t x = x0; x < x0 + BLOCK && x < width; x++)
                    to[x * to_stride + y] = from[y * from_stride + x];
}

enum error_code filter_erode_f32(const struct view_f32 *dst, const struct view_f32 *src, int n, struct error *err)
{
    assert(src->channels == 1 && dst->width == src->width && dst->height == src->height && n >= 0);
    size_t width = (size_t)src->width, height = (size_t)src->height, window = n ? (size_t)n : 3;
    size_t before = window / 2, edge = window - 1, cells;
    size_t larger = width > height ? width : height, smaller = width + height - larger;
    if (!mem_add(smaller, edge, &cells) || !mem_mul(cells, larger, &cells))
        return error_set(err, ERROR_NO_MEMORY, "out of memory to erode %d×%d pixels", src->width, src->height);
    float *work = mem_alloc(cells, sizeof *work);
    if (!work)
        return error_set(err, ERROR_NO_MEMORY, "out of memory to erode %d×%d pixels", src->width, src->height);
    /* Down the rows, then the same on the transposed plane. Infinity around stands for "ignored". */
    for (size_t i = 0; i < (height + edge) * width; i++)
        work[i] = INFINITY;
    for (size_t y = 0; y < height; y++)
        memcpy(work + (before + y) * width, src->data + y * src->stride, width * sizeof *work);
    filter_running_min(work, height + edge, width, window);
    for (size_t y = 0; y < height; y++)
        memcpy(dst->data + y * dst->stride, work + y * width, width * sizeof *work);
    for (size_t i = 0; i < (width + edge) * height; i++)
        work[i] = INFINITY;
    filter_transpose(work + before * height, height, dst->data, dst->stride, width, height);
    filter_running_min(work, width + edge, height, window);
    filter_transpose(dst->data, dst->stride, work, height, height, width);
    free(work);
    return OK;
}
