/* A vector of floats in the width of the instruction set that a kernel file is compiled for. Every cpu_kernel_*.c is
 * compiled once for each set (see the Makefile), and its functions' names end in the set's name: CPU_FN(cpu_gemm) is
 * cpu_gemm_avx2. With CPU_DOUBLE it is a vector of doubles that are floats in memory: the same kernels, exact except
 * for the rounding of what they store. Thread-safety: functions without state. */
#ifndef RUNTIME_CPU_CPU_VECTOR_H
#define RUNTIME_CPU_CPU_VECTOR_H

#include <math.h>

#include "runtime/cpu/cpu_kernel.h"

#ifndef CPU_ISA
#define CPU_ISA base
#endif
#define CPU_JOIN2(a, b) a##_##b
#define CPU_JOIN(a, b) CPU_JOIN2(a, b)
#define CPU_FN(name) CPU_JOIN(name, CPU_ISA)

/* Loops over constant bounds whose arrays are meant to live in registers. */
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#ifdef CPU_DOUBLE
#ifdef __AVX__
#include <immintrin.h>
#define VF_LANES 4
typedef __m256d vf;
static inline vf vf_set(float x)
{
    return _mm256_set1_pd(x);
}
static inline vf vf_load(const float *p)
{
    return _mm256_cvtps_pd(_mm_loadu_ps(p));
}
static inline void vf_store(float *p, vf v)
{
    _mm_storeu_ps(p, _mm256_cvtpd_ps(v));
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_pd(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_pd(a, b);
}
#else
#define VF_LANES 2
typedef double vf __attribute__((vector_size(16)));
typedef long long vf_mask __attribute__((vector_size(16)));
static inline vf vf_set(float x)
{
    return (vf){x, x};
}
static inline vf vf_load(const float *p)
{
    return (vf){p[0], p[1]};
}
static inline void vf_store(float *p, vf v)
{
    p[0] = (float)v[0];
    p[1] = (float)v[1];
}
#endif
#elif defined __AVX512F__
#include <immintrin.h>
#define VF_LANES 16
typedef __m512 vf;
static inline vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
#elif defined __AVX__
#include <immintrin.h>
#define VF_LANES 8
typedef __m256 vf;
static inline vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
#else /* what any compiler makes of vectors of four: SSE2, NEON, or scalars */
#define VF_LANES 4
typedef float vf __attribute__((vector_size(16)));
typedef int vf_mask __attribute__((vector_size(16)));
typedef float vf_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
static inline vf vf_set(float x)
{
    return (vf){x, x, x, x};
}
static inline vf vf_load(const float *p)
{
    return *(const vf_anywhere *)p;
}
static inline void vf_store(float *p, vf v)
{
    *(vf_anywhere *)p = v;
}
#endif

#ifndef __AVX__
static inline vf vf_max(vf a, vf b)
{
    vf_mask more = a > b;
    return (vf)(((vf_mask)a & more) | ((vf_mask)b & ~more));
}
static inline vf vf_min(vf a, vf b)
{
    vf_mask less = a < b;
    return (vf)(((vf_mask)a & less) | ((vf_mask)b & ~less));
}
#endif

#define VF_PARTS (CPU_BLOCK / VF_LANES) /* vectors that hold a block of channels */

/* x < 0 ? slope*x : x. A NaN stays a NaN: max and min then return their second operand. */
static inline vf vf_leaky(vf x, vf slope)
{
    const vf zero = vf_set(0);
    return vf_max(zero, x) + slope * vf_min(zero, x);
}

#ifdef CPU_DOUBLE
static inline vf vf_exp(vf x)
{
    vf y;
    for (int i = 0; i < VF_LANES; i++)
        y[i] = exp(x[i]);
    return y;
}
#else
typedef unsigned vf_bits __attribute__((vector_size(sizeof(vf))));

/* e^x for -80 <= x <= 80, to about two units of the last place: 2^n is written into the exponent's bits, and the rest,
 * at most ln(2)/2, goes into a polynomial (Taylor's, whose error is below 2^-24 there). A NaN stays a NaN. */
static inline vf vf_exp(vf x)
{
    const vf magic = vf_set(12582912.0f); /* 1.5 * 2^23: adding it leaves a rounded integer in the low bits */
    const vf shifted = x * vf_set(1.44269504f) + magic, n = shifted - magic;
    const vf r = (x - n * vf_set(0.693359375f)) - n * vf_set(-2.12194440e-4f);
    vf p = vf_set(1.0f / 5040);
    p = p * r + vf_set(1.0f / 720);
    p = p * r + vf_set(1.0f / 120);
    p = p * r + vf_set(1.0f / 24);
    p = p * r + vf_set(1.0f / 6);
    p = p * r + vf_set(0.5f);
    p = p * r + vf_set(1);
    p = p * r + vf_set(1);
    const vf_bits bits = ((vf_bits)shifted << 23) + 0x3f800000u;
    return p * (vf)bits;
}
#endif

static inline vf vf_clamp(vf x, float low, float high) /* a NaN stays one: see vf_leaky */
{
    return vf_min(vf_set(high), vf_max(vf_set(low), x));
}

static inline vf vf_sigmoid(vf x)
{
    return vf_set(1) / (vf_set(1) + vf_exp(vf_clamp(vf_set(0) - x, -80, 80)));
}

/* erf, with an error below 1.5e-7 (Abramowitz & Stegun 1964, 7.1.26; exact where sums are in double). */
static inline vf vf_erf(vf x)
{
#ifdef CPU_DOUBLE
    vf y;
    for (int i = 0; i < VF_LANES; i++)
        y[i] = erf(x[i]);
    return y;
#else
    const vf size = vf_max(x, vf_set(0) - x), t = vf_set(1) / (vf_set(1) + vf_set(0.3275911f) * size);
    vf p = vf_set(1.061405429f);
    p = p * t + vf_set(-1.453152027f);
    p = p * t + vf_set(1.421413741f);
    p = p * t + vf_set(-0.284496736f);
    p = p * t + vf_set(0.254829592f);
    const vf y = vf_set(1) - p * t * vf_exp(vf_clamp(vf_set(0) - x * x, -80, 0));
    return y * vf_clamp(x * vf_set(1e30f), -1, 1); /* its sign */
#endif
}

static inline vf vf_curve(vf x, enum cpu_curve curve)
{
    if (curve == CPU_CURVE_GELU)
        return x * vf_set(0.5f) * (vf_set(1) + vf_erf(x * vf_set(0.707106781f)));
    if (curve == CPU_CURVE_SILU)
        return x * vf_sigmoid(x);
    if (curve == CPU_CURVE_SIGMOID)
        return vf_sigmoid(x);
    if (curve == CPU_CURVE_TANH)
        return vf_set(2) * vf_sigmoid(x + x) - vf_set(1);
    const vf e = vf_exp(vf_clamp(x, -80, 20)), a = e * (e + vf_set(2)); /* tanh(ln(1 + e^x)) = a / (a + 2) */
    return x * (a / (a + vf_set(2)));
}

/* Everything that follows a convolution's sum, for one block of channels of one pixel. */
static inline void cpu_finish_block(const struct cpu_finish *f, int n, int block, size_t pixel, const vf *sum)
{
    const size_t at = (size_t)block * f->y.plane + pixel * CPU_BLOCK;
    UNROLL for (int i = 0; i < VF_PARTS; i++)
    {
        const size_t lane = (size_t)block * CPU_BLOCK + (size_t)(i * VF_LANES), to = at + (size_t)(i * VF_LANES);
        vf v = sum[i] * vf_set(f->gain);
        if (f->gains)
            v = v * vf_load(f->gains + (size_t)n * f->gains_image + lane);
        if (f->noise)
            v = v +
                vf_set(f->noise[(size_t)n * f->noise_image + pixel * f->noise_step]) * vf_load(f->noise_weight + lane);
        if (f->bias)
            v = v + vf_load(f->bias + lane);
        if (f->slope && !f->activation_last)
            v = vf_leaky(v, vf_load(f->slope + lane));
        if (f->curve && !f->activation_last)
            v = vf_curve(v, f->curve);
        v = v * vf_set(f->scale);
        if (f->r1.data)
            v = v + vf_set(f->r1_scale) * vf_load(f->r1.data + (size_t)n * f->r1.image + to);
        if (f->r2.data)
            v = v + vf_set(f->r2_scale) * vf_load(f->r2.data + (size_t)n * f->r2.image + to);
        if (f->slope && f->activation_last)
            v = vf_leaky(v, vf_load(f->slope + lane));
        if (f->curve && f->activation_last)
            v = vf_curve(v, f->curve);
        vf_store(f->y.data + (size_t)n * f->y.image + to, v);
    }
}

#endif
