#include "runtime/cpu/cpu_ref.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

/* The vectoriser may use AVX2; without contraction to FMA the results are the same everywhere. Not with
 * ThreadSanitizer: the code that chooses the clone runs before the sanitizer starts. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define CPU_REF_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define CPU_REF_CLONES
#endif

static float *cpu_plane(const struct cpu_view *v, int n, int c)
{
    return v->data + (size_t)n * v->image + (size_t)c * (size_t)v->h * (size_t)v->w;
}

static double cpu_activate(double v, enum activation activation, double slope)
{
    if (activation == ACTIVATION_SILU)
        return v / (1 + exp(-v));
    if (activation == ACTIVATION_MISH)
        return v * tanh(v > 40 ? v : log1p(exp(v)));
    if (activation == ACTIVATION_TANH)
        return tanh(v);
    if (activation == ACTIVATION_GELU)
        return v / 2 * (1 + erf(v * 0.70710678118654752440));
    if (activation == ACTIVATION_SIGMOID)
        return 1 / (1 + exp(-v));
    if (activation == ACTIVATION_NONE || v >= 0)
        return v;
    return activation == ACTIVATION_RELU ? 0 : v * slope;
}

static double cpu_slope(const struct cpu_node *node, enum activation activation, float slope, int c)
{
    return activation == ACTIVATION_PRELU ? node->param[OP_SLOPE][c] : slope;
}

/* torch's ReflectionPad2d index; a side too short to reflect repeats its edge. */
static int cpu_reflect(int i, int n, int pad)
{
    if (n <= pad)
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (i < 0)
        i = -i;
    return i >= n ? 2 * n - 2 - i : i;
}

/* One image's input planes as the convolution sees them: scaled, upsampled and padded, [c][ph][pw]. */
static void cpu_padded(float *out, const struct cpu_node *node, int n, int ph, int pw)
{
    const struct cpu_view *x = &node->in[OP_X], *s = &node->in[OP_IN_SCALE];
    const struct op_conv2d *a = &node->args.conv2d;
    int h = x->h * a->upsample, w = x->w * a->upsample;
    for (int c = 0; c < x->c; c++) {
        const float *src = cpu_plane(x, n, c);
        float scale = s->data ? *cpu_plane(s, n, c) : 1.0f;
        for (int py = 0; py < ph; py++) {
            for (int px = 0; px < pw; px++) {
                int iy = py - a->pad, ix = px - a->pad;
                if (a->pad_mode == PAD_REFLECT) {
                    iy = cpu_reflect(iy, h, a->pad);
                    ix = cpu_reflect(ix, w, a->pad);
                }
                float v = 0;
                if (iy >= 0 && iy < h && ix >= 0 && ix < w)
                    v = src[(size_t)(iy / a->upsample) * (size_t)x->w + (size_t)(ix / a->upsample)] * scale;
                *out++ = v;
            }
        }
    }
}

/* acc[k][x] += weight[k] * src[x * stride] for four output channels at once. */
CPU_REF_CLONES static void cpu_rows(double *restrict acc, const float *restrict src, const double weight[4], int w,
                                    int stride)
{
    double *restrict a0 = acc, *restrict a1 = acc + w, *restrict a2 = acc + 2 * w, *restrict a3 = acc + 3 * w;
    for (int x = 0; x < w; x++) {
        double v = src[x * stride];
        a0[x] += weight[0] * v;
        a1[x] += weight[1] * v;
        a2[x] += weight[2] * v;
        a3[x] += weight[3] * v;
    }
}

/* Everything after the sum, for one row of one output channel. */
static void cpu_conv_finish(const struct cpu_node *node, const double *acc, int n, int o, int y)
{
    const struct op_conv2d *a = &node->args.conv2d;
    const struct cpu_view *out = &node->out, *r1 = &node->in[OP_RESIDUAL1], *r2 = &node->in[OP_RESIDUAL2];
    const struct cpu_view *noise = &node->in[OP_NOISE_MAP], *os = &node->in[OP_OUT_SCALE];
    size_t row = (size_t)y * (size_t)out->w;
    double gain = (double)a->gain * (os->data ? *cpu_plane(os, n, o) : 1.0f);
    double bias = node->param[OP_BIAS] ? node->param[OP_BIAS][o] : 0;
    double slope = cpu_slope(node, a->activation, a->slope, o);
    for (int x = 0; x < out->w; x++) {
        size_t i = row + (size_t)x;
        double v = acc[x] * gain + bias;
        if (noise->data)
            v += (double)a->noise_weight * cpu_plane(noise, n, 0)[i];
        if (!a->activation_last)
            v = cpu_activate(v, a->activation, slope);
        v *= a->scale;
        if (r1->data)
            v += (double)a->residual1_scale * cpu_plane(r1, n, o)[i];
        if (r2->data)
            v += (double)a->residual2_scale * cpu_plane(r2, n, o)[i];
        if (a->activation_last)
            v = cpu_activate(v, a->activation, slope);
        cpu_plane(out, n, o)[i] = (float)v;
    }
}

static enum error_code cpu_conv2d(const struct cpu_node *node, struct error *err)
{
    const struct op_conv2d *a = &node->args.conv2d;
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    int ph = x->h * a->upsample + 2 * a->pad, pw = x->w * a->upsample + 2 * a->pad, k = a->kernel;
    float *padded = mem_alloc((size_t)x->c * (size_t)ph, (size_t)pw * sizeof(float));
    double *acc = mem_alloc(4 * (size_t)out->w, sizeof(double));
    if (!padded || !acc) {
        free(padded);
        free(acc);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a convolution of %d×%d", x->w, x->h);
    }
    size_t filter = (size_t)x->c * (size_t)k * (size_t)k;
    for (int n = 0; n < out->n; n++) {
        cpu_padded(padded, node, n, ph, pw);
        for (int o = 0; o < out->c; o += 4) {
            for (int y = 0; y < out->h; y++) {
                memset(acc, 0, 4 * (size_t)out->w * sizeof *acc);
                for (size_t f = 0; f < filter; f++) {
                    int i = (int)(f / (size_t)(k * k)), ky = (int)(f / (size_t)k % (size_t)k),
                        kx = (int)(f % (size_t)k);
                    double weight[4] = {0};
                    for (int j = 0; j < 4 && o + j < out->c; j++)
                        weight[j] = node->param[OP_WEIGHT][(size_t)(o + j) * filter + f];
                    cpu_rows(acc,
                             padded + ((size_t)i * (size_t)ph + (size_t)(y * a->stride + ky)) * (size_t)pw + (size_t)kx,
                             weight, out->w, a->stride);
                }
                for (int j = 0; j < 4 && o + j < out->c; j++)
                    cpu_conv_finish(node, acc + (size_t)j * (size_t)out->w, n, o + j, y);
            }
        }
    }
    free(padded);
    free(acc);
    return OK;
}

static void cpu_depthwise(const struct cpu_node *node)
{
    const struct op_depthwise *a = &node->args.depthwise;
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    for (int n = 0; n < out->n; n++) {
        for (int c = 0; c < out->c; c++) {
            const float *src = cpu_plane(x, n, c),
                        *weight = node->param[OP_WEIGHT] + (size_t)c * (size_t)(a->kernel * a->kernel);
            float *dst = cpu_plane(out, n, c);
            double slope = cpu_slope(node, a->activation, a->slope, c);
            for (int i = 0; i < out->h * out->w; i++) {
                int y0 = i / out->w * a->stride - a->pad, x0 = i % out->w * a->stride - a->pad;
                double v = node->param[OP_BIAS] ? node->param[OP_BIAS][c] : 0;
                for (int ky = 0; ky < a->kernel; ky++)
                    for (int kx = 0; kx < a->kernel; kx++) {
                        const bool reflect = a->pad_mode == PAD_REFLECT;
                        const int iy = reflect ? cpu_reflect(y0 + ky, x->h, a->pad) : y0 + ky,
                                  ix = reflect ? cpu_reflect(x0 + kx, x->w, a->pad) : x0 + kx;
                        if (iy >= 0 && iy < x->h && ix >= 0 && ix < x->w)
                            v += (double)weight[ky * a->kernel + kx] * src[(size_t)iy * (size_t)x->w + (size_t)ix];
                    }
                dst[i] = (float)cpu_activate(v, a->activation, slope);
            }
        }
    }
}

static void cpu_linear(const struct cpu_node *node)
{
    const struct op_linear *a = &node->args.linear;
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    size_t flat = (size_t)x->c * (size_t)x->h * (size_t)x->w;
    for (int n = 0; n < out->n; n++) {
        const float *src = cpu_plane(x, n, 0);
        for (int o = 0; o < out->c; o++) {
            const float *weight = node->param[OP_WEIGHT] + (size_t)o * flat;
            double v = node->param[OP_BIAS] ? node->param[OP_BIAS][o] : 0;
            for (size_t i = 0; i < flat; i++)
                v += (double)weight[i] * src[i];
            *cpu_plane(out, n, o) = (float)cpu_activate(v, a->activation, cpu_slope(node, a->activation, a->slope, o));
        }
    }
}

static void cpu_demodulate(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    for (int n = 0; n < out->n; n++) {
        for (int o = 0; o < out->c; o++) {
            const float *weight = node->param[OP_WEIGHT] + (size_t)o * (size_t)x->c;
            double sum = node->args.demodulate.epsilon;
            for (int i = 0; i < x->c; i++) {
                double s = *cpu_plane(x, n, i);
                sum += weight[i] * s * s;
            }
            *cpu_plane(out, n, o) = (float)(1 / sqrt(sum));
        }
    }
}

/* Source index and weight of the second of two neighbours, as torch's interpolate with align_corners=False. */
static void cpu_bilinear(int i, int in, int out, int *low, int *high, double *t)
{
    float f = ((float)i + 0.5f) * ((float)in / (float)out) - 0.5f;
    if (f < 0)
        f = 0;
    *low = (int)f < in - 1 ? (int)f : in - 1;
    *high = *low + (*low < in - 1);
    *t = (double)f - *low;
}

static void cpu_resize(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    for (int n = 0; n < out->n; n++) {
        for (int c = 0; c < out->c; c++) {
            const float *src = cpu_plane(x, n, c);
            float *dst = cpu_plane(out, n, c);
            for (int oy = 0; oy < out->h; oy++) {
                for (int ox = 0; ox < out->w; ox++) {
                    float *d = dst + (size_t)oy * (size_t)out->w + (size_t)ox;
                    if (node->args.resize.mode == RESIZE_NEAREST) {
                        int sy = (int)((int64_t)oy * x->h / out->h), sx = (int)((int64_t)ox * x->w / out->w);
                        *d = src[(size_t)sy * (size_t)x->w + (size_t)sx];
                        continue;
                    }
                    int y0, y1, x0, x1;
                    double ty, tx;
                    cpu_bilinear(oy, x->h, out->h, &y0, &y1, &ty);
                    cpu_bilinear(ox, x->w, out->w, &x0, &x1, &tx);
                    const float *r0 = src + (size_t)y0 * (size_t)x->w, *r1 = src + (size_t)y1 * (size_t)x->w;
                    double top = r0[x0] * (1 - tx) + r0[x1] * tx, bottom = r1[x0] * (1 - tx) + r1[x1] * tx;
                    *d = (float)(top * (1 - ty) + bottom * ty);
                }
            }
        }
    }
}

/* Both directions: the value at (c*r*r + i*r + j, y, x) of the deep tensor is the one at (c, y*r+i, x*r+j) of the wide
 * one. */
static void cpu_shuffle(const struct cpu_node *node)
{
    int r = node->args.shuffle.factor;
    bool shuffle = node->kind == OP_PIXEL_SHUFFLE;
    const struct cpu_view *wide = shuffle ? &node->out : &node->in[OP_X];
    const struct cpu_view *deep = shuffle ? &node->in[OP_X] : &node->out;
    const struct cpu_view *residual = &node->in[OP_RESIDUAL1];
    for (int n = 0; n < wide->n; n++) {
        for (int c = 0; c < wide->c; c++) {
            for (int y = 0; y < wide->h; y++) {
                for (int x = 0; x < wide->w; x++) {
                    size_t at = (size_t)(y / r) * (size_t)deep->w + (size_t)(x / r);
                    float *d = cpu_plane(deep, n, c * r * r + y % r * r + x % r) + at;
                    float *w = cpu_plane(wide, n, c) + (size_t)y * (size_t)wide->w + (size_t)x;
                    if (shuffle)
                        *w = *d + (residual->data ? cpu_plane(residual, n, c)[at] : 0);
                    else
                        *d = *w;
                }
            }
        }
    }
}

/* A pixel of out in a view that is as large, or larger by as many pixels on each side, or of one pixel. */
static size_t cpu_pixel_in(const struct cpu_view *view, const struct cpu_view *out, size_t i)
{
    if (view->h == 1 && view->w == 1)
        return 0;
    const size_t more = (size_t)(view->h - out->h) / 2, w = (size_t)out->w;
    return (i / w + more) * (size_t)view->w + i % w + more;
}

static void cpu_elementwise(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *a = &node->in[OP_RESIDUAL1], *b = &node->in[OP_RESIDUAL2];
    const struct cpu_view *out = &node->out;
    const struct op_add *add = &node->args.add;
    size_t pixels = (size_t)out->h * (size_t)out->w;
    for (int n = 0; n < out->n; n++) {
        for (int c = 0; c < out->c; c++) {
            const float *px = cpu_plane(x, n, c), *pa = cpu_plane(a, n, c);
            float *dst = cpu_plane(out, n, c);
            for (size_t i = 0; i < pixels; i++) {
                const double vx = px[cpu_pixel_in(x, out, i)], va = pa[cpu_pixel_in(a, out, i)];
                if (node->kind == OP_SCALE_SHIFT) {
                    dst[i] = (float)(vx * va + cpu_plane(b, n, c)[i]);
                } else {
                    double v = vx * add->x_scale + va * add->residual1_scale;
                    dst[i] = (float)cpu_activate(v, add->activation, cpu_slope(node, add->activation, add->slope, c));
                }
            }
        }
    }
}

static void cpu_gate(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *add = &node->in[OP_RESIDUAL1], *gate = &node->in[OP_RESIDUAL2];
    const size_t pixels = (size_t)x->h * (size_t)x->w;
    for (int n = 0; n < x->n; n++) {
        for (int c = 0; c < x->c; c++) {
            const float *px = cpu_plane(x, n, c), *pg = cpu_plane(gate, n, c);
            float *dst = cpu_plane(&node->out, n, c);
            for (size_t i = 0; i < pixels; i++) {
                const double sum = (double)px[i] + (add->data ? cpu_plane(add, n, c)[i] : 0);
                dst[i] = (float)(sum * (1 / (1 + exp(-(double)pg[i])) + node->args.gate.offset));
            }
        }
    }
}

/* A position on one axis: the pixel at or before it, the next one, and how far between them. A NaN stays one. */
static void cpu_between(double at, int last, int *low, int *high, double *t)
{
    at = at < 0 ? 0 : at > last ? last : at;
    *low = at > 0 ? (int)at : 0;
    *high = *low + (*low < last);
    *t = at - *low;
}

static void cpu_sample(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *places = &node->in[OP_RESIDUAL1], *out = &node->out;
    const int r = node->args.sample.factor, groups = node->args.sample.groups;
    for (int i = 0; i < out->n * out->h * out->w; i++) {
        const int n = i / out->w / out->h, oy = i / out->w % out->h, ox = i % out->w, iy = oy / r, ix = ox / r;
        double sum[4] = {0};
        for (int g = 0; g < groups; g++) {
            const int k = g * r * r + oy % r * r + ox % r, ky = groups * r * r + k;
            const size_t from = (size_t)iy * (size_t)x->w + (size_t)ix;
            int x0, x1, y0, y1;
            double tx, ty;
            cpu_between(ix + (double)cpu_plane(places, n, k)[from] + node->param[OP_WEIGHT][k], x->w - 1, &x0, &x1,
                        &tx);
            cpu_between(iy + (double)cpu_plane(places, n, ky)[from] + node->param[OP_WEIGHT][ky], x->h - 1, &y0, &y1,
                        &ty);
            for (int c = 0; c < out->c; c++) {
                const float *top = cpu_plane(x, n, g * out->c + c) + (size_t)y0 * (size_t)x->w,
                            *bottom = cpu_plane(x, n, g * out->c + c) + (size_t)y1 * (size_t)x->w;
                sum[c] +=
                    (top[x0] * (1 - tx) + top[x1] * tx) * (1 - ty) + (bottom[x0] * (1 - tx) + bottom[x1] * tx) * ty;
            }
        }
        for (int c = 0; c < out->c; c++)
            cpu_plane(out, n, c)[(size_t)oy * (size_t)out->w + (size_t)ox] = (float)sum[c];
    }
}

static void cpu_mean(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *map = &node->in[OP_NOISE_MAP];
    const size_t pixels = (size_t)x->h * (size_t)x->w;
    for (int n = 0; n < x->n; n++) {
        for (int c = 0; c < x->c; c++) {
            const float *src = cpu_plane(x, n, c);
            double sum = 0;
            for (size_t i = 0; i < pixels; i++)
                sum += map->data ? (double)src[i] * cpu_plane(map, n, 0)[i] : src[i];
            *cpu_plane(&node->out, n, c) = (float)(sum / (double)pixels);
        }
    }
}

static void cpu_max_pool(const struct cpu_node *node)
{
    const struct op_max_pool *a = &node->args.max_pool;
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    for (int n = 0; n < out->n; n++) {
        for (int c = 0; c < out->c; c++) {
            const float *src = cpu_plane(x, n, c);
            float *dst = cpu_plane(out, n, c);
            for (int i = 0; i < out->h * out->w; i++) {
                int y0 = i / out->w * a->stride - a->pad, x0 = i % out->w * a->stride - a->pad;
                float best = -INFINITY;
                for (int y = y0 < 0 ? 0 : y0; y < y0 + a->kernel && y < x->h; y++)
                    for (int xx = x0 < 0 ? 0 : x0; xx < x0 + a->kernel && xx < x->w; xx++)
                        best = fmaxf(best, src[(size_t)y * (size_t)x->w + (size_t)xx]);
                dst[i] = best;
            }
        }
    }
}

void cpu_ref_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = 0xD2511F53u * (uint64_t)c[0], p1 = 0xCD9E8D57u * (uint64_t)c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ c[3] ^ k1,
                            (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u; /* the golden ratio's and sqrt(3)-1's fractions, as published */
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

static void cpu_noise(const struct cpu_node *node)
{
    static const double pi = 3.14159265358979323846;
    uint32_t key[2] = {(uint32_t)node->seed, (uint32_t)(node->seed >> 32)};
    size_t pixels = (size_t)node->out.h * (size_t)node->out.w;
    for (int n = 0; n < node->out.n; n++) {
        float *dst = cpu_plane(&node->out, n, 0);
        for (size_t quad = 0; quad * 4 < pixels; quad++) {
            uint32_t u[4],
                counter[4] = {(uint32_t)quad, (uint32_t)node->args.noise.layer, node->first_image + (uint32_t)n, 0};
            cpu_ref_philox(counter, key, u);
            for (size_t i = 0; i < 4 && quad * 4 + i < pixels; i++) {
                double r = sqrt(-2 * log((u[i & 2] + 1.0) / 4294967296.0)), t = 2 * pi * u[(i & 2) + 1] / 4294967296.0;
                dst[quad * 4 + i] = (float)(r * (i & 1 ? sin(t) : cos(t)));
            }
        }
    }
}

/* Mean and deviation of `channels` channels from c of a view, at pixels first .. first+pixels-1. */
static void cpu_moments(const struct cpu_view *x, int n, int c, int channels, size_t first, size_t pixels,
                        const struct op_norm *a, double *mean, double *deviation)
{
    const double count = (double)channels * (double)pixels;
    double sum = 0, squares = 0;
    for (int i = c; i < c + channels; i++)
        for (size_t p = first; p < first + pixels; p++)
            sum += cpu_plane(x, n, i)[p];
    *mean = sum / count;
    for (int i = c; i < c + channels; i++)
        for (size_t p = first; p < first + pixels; p++)
            squares += (cpu_plane(x, n, i)[p] - *mean) * (cpu_plane(x, n, i)[p] - *mean);
    *deviation = sqrt(squares / (a->unbiased ? count - 1 : count) + (double)a->epsilon);
}

static void cpu_norm(const struct cpu_node *node)
{
    const struct op_norm *a = &node->args.norm;
    const struct cpu_view *x = &node->in[OP_X], *like = &node->in[OP_RESIDUAL1], *out = &node->out;
    const bool layer = node->kind == OP_LAYER_NORM;
    const size_t all = (size_t)out->h * (size_t)out->w, pixels = layer ? 1 : all;
    const int each = out->c / a->groups;
    for (int n = 0; n < out->n; n++)
        for (int group = 0; group < a->groups; group++)
            for (size_t first = 0; first < all; first += pixels) {
                double mean, deviation, like_mean = 0, like_deviation = 1;
                cpu_moments(x, n, group * each, each, first, pixels, a, &mean, &deviation);
                if (like->data)
                    cpu_moments(like, n, group * each, each, first, pixels, a, &like_mean, &like_deviation);
                for (int c = group * each; c < (group + 1) * each; c++)
                    for (size_t p = first; p < first + pixels; p++) {
                        double v = (cpu_plane(x, n, c)[p] - mean) / deviation * like_deviation + like_mean;
                        if (node->param[OP_WEIGHT])
                            v *= node->param[OP_WEIGHT][c];
                        if (node->param[OP_BIAS])
                            v += node->param[OP_BIAS][c];
                        cpu_plane(out, n, c)[p] = (float)cpu_activate(v, a->activation, 0);
                    }
            }
}

/* One query's scores become its weights. */
static void cpu_softmax(double *scores, int count)
{
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < count; j++)
        most = scores[j] > most ? scores[j] : most;
    for (int j = 0; j < count; j++)
        sum += scores[j] = exp(scores[j] - most);
    for (int j = 0; j < count; j++)
        scores[j] /= sum;
}

static enum error_code cpu_attention(const struct cpu_node *node, struct error *err)
{
    const struct cpu_view *q = &node->in[OP_X], *k = &node->in[OP_RESIDUAL1], *v = &node->in[OP_RESIDUAL2];
    const struct cpu_view *out = &node->out;
    const int tokens = out->h * out->w, each = out->c / node->args.attention.heads;
    double *scores = mem_alloc((size_t)tokens, sizeof *scores);
    if (!scores)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the attention of %d tokens", tokens);
    for (int n = 0; n < out->n; n++)
        for (int first = 0; first < out->c; first += each)
            for (int p = 0; p < tokens; p++) {
                for (int j = 0; j < tokens; j++) {
                    double sum = 0;
                    for (int c = first; c < first + each; c++)
                        sum += (double)cpu_plane(q, n, c)[p] * cpu_plane(k, n, c)[j];
                    scores[j] = sum * node->args.attention.scale;
                }
                cpu_softmax(scores, tokens);
                for (int c = first; c < first + each; c++) {
                    double sum = 0;
                    for (int j = 0; j < tokens; j++)
                        sum += scores[j] * cpu_plane(v, n, c)[j];
                    cpu_plane(out, n, c)[p] = (float)sum;
                }
            }
    free(scores);
    return OK;
}

static void cpu_lookup(const struct cpu_node *node)
{
    const struct cpu_view *x = &node->in[OP_X], *out = &node->out;
    for (int n = 0; n < out->n; n++)
        for (int p = 0; p < out->h * out->w; p++) {
            float best = -INFINITY;
            bool broken = false;
            int entry = 0;
            for (int k = 0; k < x->c; k++) {
                const float v = cpu_plane(x, n, k)[p];
                broken = broken || isnan(v);
                if (v > best) {
                    best = v;
                    entry = k;
                }
            }
            for (int c = 0; c < out->c; c++)
                cpu_plane(out, n, c)[p] =
                    broken ? NAN : node->param[OP_WEIGHT][(size_t)c * (size_t)x->c + (size_t)entry];
        }
}

enum error_code cpu_ref_run(const struct cpu_node *node, struct error *err)
{
    switch (node->kind) {
    case OP_CONV2D:
        return cpu_conv2d(node, err);
    case OP_DEPTHWISE:
        cpu_depthwise(node);
        return OK;
    case OP_LINEAR:
        cpu_linear(node);
        return OK;
    case OP_DEMODULATE:
        cpu_demodulate(node);
        return OK;
    case OP_RESIZE:
        cpu_resize(node);
        return OK;
    case OP_PIXEL_SHUFFLE:
    case OP_PIXEL_UNSHUFFLE:
        cpu_shuffle(node);
        return OK;
    case OP_ADD:
    case OP_SCALE_SHIFT:
        cpu_elementwise(node);
        return OK;
    case OP_MAX_POOL:
        cpu_max_pool(node);
        return OK;
    case OP_NOISE:
        cpu_noise(node);
        return OK;
    case OP_GROUP_NORM:
    case OP_LAYER_NORM:
        cpu_norm(node);
        return OK;
    case OP_ATTENTION:
        return cpu_attention(node, err);
    case OP_LOOKUP:
        cpu_lookup(node);
        return OK;
    case OP_GATE:
        cpu_gate(node);
        return OK;
    case OP_MEAN:
        cpu_mean(node);
        return OK;
    case OP_SAMPLE:
        cpu_sample(node);
        return OK;
    default:
        return error_set(err, ERROR_UNSUPPORTED, "the reference has no operator %s", op_name(node->kind));
    }
}
