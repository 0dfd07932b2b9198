/* The kernels other than Winograd's and the matrix product, and the table of all kernels. */
#include <math.h>

#include "runtime/cpu/cpu_kernel_list.h"

static const float *kernel_pixel_at(const struct cpu_operand *x, int image, int block, int row, int column)
{
    return x->data + (size_t)image * x->image + cpu_kernel_block(x, block) +
           ((size_t)row * (size_t)x->w + (size_t)column) * CPU_BLOCK;
}

static float *kernel_pixel_of(const struct cpu_operand *y, int image, int block, int row)
{
    return y->data + (size_t)image * y->image + (size_t)block * y->plane + (size_t)row * (size_t)y->w * CPU_BLOCK;
}

static void kernel_finish(const struct cpu_finish *f, int image, int image_step, size_t pixel, size_t pixel_step,
                          int rows, int first_out, int cols, const float *sums)
{
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols; c++, sums += CPU_BLOCK) {
            vf v[VF_PARTS];
            UNROLL for (int i = 0; i < VF_PARTS; i++) v[i] = vf_load(sums + i * VF_LANES);
            cpu_finish_block(f, image + r * image_step, first_out + c, pixel + (size_t)r * pixel_step, v);
        }
    }
}

static void kernel_strip(const struct cpu_conv *conv, int image, int row, int rows, int width, float *to, size_t block)
{
    const struct cpu_operand *x = &conv->x;
    const int up = conv->upsample, h = x->h * up, w = x->w * up;
    for (int b = 0; b < x->blocks; b++) {
        float *out = to + (size_t)b * block;
        const float *scale =
            conv->in_scale ? conv->in_scale + (size_t)image * conv->in_scale_image + b * CPU_BLOCK : NULL;
        for (int r = 0; r < rows; r++) {
            int y = row + r - conv->pad;
            if (conv->reflect)
                y = cpu_kernel_reflect(y, h, conv->pad);
            const float *from = y < 0 || y >= h ? NULL : kernel_pixel_at(x, image, b, y / up, 0);
            for (int i = 0; i < width; i++, out += CPU_BLOCK) {
                int column = i - conv->pad;
                if (conv->reflect)
                    column = cpu_kernel_reflect(column, w, conv->pad);
                const float *p = from && column >= 0 && column < w ? from + (size_t)(column / up) * CPU_BLOCK : NULL;
                UNROLL for (int k = 0; k < CPU_BLOCK; k += VF_LANES)
                {
                    vf v = p ? vf_load(p + k) : vf_set(0);
                    if (scale)
                        v = v * vf_load(scale + k);
                    vf_store(out + k, v);
                }
            }
        }
    }
}

/* The part of a window along one side that lies in the picture: its first tap and the one after its last. */
static void kernel_window_span(int at, int kernel, int size, int *first, int *end)
{
    *first = at < 0 ? -at : 0;
    *end = size - at < kernel ? size - at : kernel;
}

/* A pixel's sums where the window reaches beyond the picture, which is reflected there. */
static void kernel_depthwise_edge(const struct cpu_window *d, const float *weight, int image, int block, int y0, int x0,
                                  vf *sum)
{
    for (int ky = 0; ky < d->kernel; ky++)
        for (int kx = 0; kx < d->kernel; kx++, weight += CPU_BLOCK) {
            const float *from = kernel_pixel_at(&d->x, image, block, cpu_kernel_reflect(y0 + ky, d->x.h, d->pad),
                                                cpu_kernel_reflect(x0 + kx, d->x.w, d->pad));
            UNROLL for (int k = 0; k < VF_PARTS; k++) sum[k] =
                sum[k] + vf_load(from + k * VF_LANES) * vf_load(weight + k * VF_LANES);
        }
}

static void kernel_depthwise(const struct cpu_window *d, int image, int block, int row, int rows)
{
    const float *weight = d->weight + (size_t)(block * d->kernel * d->kernel) * CPU_BLOCK;
    for (int y = row; y < row + rows; y++) {
        float *out = kernel_pixel_of(&d->y, image, block, y);
        int ky0, ky1, kx0, kx1;
        kernel_window_span(y * d->stride - d->pad, d->kernel, d->x.h, &ky0, &ky1);
        for (int x = 0; x < d->y.w; x++, out += CPU_BLOCK) {
            const int x0 = x * d->stride - d->pad;
            vf sum[VF_PARTS];
            kernel_window_span(x0, d->kernel, d->x.w, &kx0, &kx1);
            UNROLL for (int k = 0; k < VF_PARTS; k++) sum[k] =
                d->bias ? vf_load(d->bias + block * CPU_BLOCK + k * VF_LANES) : vf_set(0);
            const bool edge = d->reflect && (ky1 - ky0 < d->kernel || kx1 - kx0 < d->kernel);
            if (edge)
                kernel_depthwise_edge(d, weight, image, block, y * d->stride - d->pad, x0, sum);
            for (int ky = ky0; ky < ky1 && !edge; ky++) {
                const float *from = kernel_pixel_at(&d->x, image, block, y * d->stride - d->pad + ky, x0 + kx0);
                const float *w = weight + (ky * d->kernel + kx0) * CPU_BLOCK;
                for (int kx = kx0; kx < kx1; kx++, from += CPU_BLOCK, w += CPU_BLOCK)
                    UNROLL for (int k = 0; k < VF_PARTS; k++) sum[k] =
                        sum[k] + vf_load(from + k * VF_LANES) * vf_load(w + k * VF_LANES);
            }
            UNROLL for (int k = 0; k < VF_PARTS; k++)
            {
                if (d->slope)
                    sum[k] = vf_leaky(sum[k], vf_load(d->slope + block * CPU_BLOCK + k * VF_LANES));
                vf_store(out + k * VF_LANES, sum[k]);
            }
        }
    }
}

static void kernel_max_pool(const struct cpu_window *d, int image, int block, int row, int rows)
{
    for (int y = row; y < row + rows; y++) {
        float *out = kernel_pixel_of(&d->y, image, block, y);
        int ky0, ky1, kx0, kx1;
        kernel_window_span(y * d->stride - d->pad, d->kernel, d->x.h, &ky0, &ky1);
        for (int x = 0; x < d->y.w; x++, out += CPU_BLOCK) {
            const int x0 = x * d->stride - d->pad;
            vf best[VF_PARTS];
            kernel_window_span(x0, d->kernel, d->x.w, &kx0, &kx1);
            UNROLL for (int k = 0; k < VF_PARTS; k++) best[k] = vf_set(-INFINITY);
            for (int ky = ky0; ky < ky1; ky++) {
                const float *from = kernel_pixel_at(&d->x, image, block, y * d->stride - d->pad + ky, x0 + kx0);
                for (int kx = kx0; kx < kx1; kx++, from += CPU_BLOCK)
                    UNROLL for (int k = 0; k < VF_PARTS; k++) best[k] = vf_max(best[k], vf_load(from + k * VF_LANES));
            }
            UNROLL for (int k = 0; k < VF_PARTS; k++) vf_store(out + k * VF_LANES, best[k]);
        }
    }
}

/* The two neighbours and the weight of the second, as torch's interpolate with align_corners=False. */
static void kernel_bilinear_source(int i, int in, int out, int *low, int *high, float *t)
{
    float f = ((float)i + 0.5f) * ((float)in / (float)out) - 0.5f;
    if (f < 0)
        f = 0;
    *low = (int)f < in - 1 ? (int)f : in - 1;
    *high = *low + (*low < in - 1);
    *t = f - (float)*low;
}

static void kernel_resize(const struct cpu_operand *x, const struct cpu_operand *y, bool bilinear, int image, int block,
                          int row, int rows)
{
    for (int oy = row; oy < row + rows; oy++) {
        float *out = kernel_pixel_of(y, image, block, oy);
        if (!bilinear) {
            const float *from = kernel_pixel_at(x, image, block, (int)((int64_t)oy * x->h / y->h), 0);
            for (int ox = 0; ox < y->w; ox++, out += CPU_BLOCK) {
                const float *p = from + (size_t)((int64_t)ox * x->w / y->w) * CPU_BLOCK;
                UNROLL for (int k = 0; k < CPU_BLOCK; k += VF_LANES) vf_store(out + k, vf_load(p + k));
            }
            continue;
        }
        int y0, y1, x0, x1;
        float ty, tx;
        kernel_bilinear_source(oy, x->h, y->h, &y0, &y1, &ty);
        const float *top = kernel_pixel_at(x, image, block, y0, 0), *bottom = kernel_pixel_at(x, image, block, y1, 0);
        for (int ox = 0; ox < y->w; ox++, out += CPU_BLOCK) {
            kernel_bilinear_source(ox, x->w, y->w, &x0, &x1, &tx);
            const vf right = vf_set(tx), left = vf_set(1 - tx), low = vf_set(ty), high = vf_set(1 - ty);
            UNROLL for (int k = 0; k < CPU_BLOCK; k += VF_LANES)
            {
                const vf a = vf_load(top + x0 * CPU_BLOCK + k) * left + vf_load(top + x1 * CPU_BLOCK + k) * right;
                const vf b = vf_load(bottom + x0 * CPU_BLOCK + k) * left + vf_load(bottom + x1 * CPU_BLOCK + k) * right;
                vf_store(out + k, a * high + b * low);
            }
        }
    }
}

static void kernel_gate(const struct cpu_combine *c, int image, int block, int row, int rows)
{
    const size_t count = (size_t)rows * (size_t)c->y.w * CPU_BLOCK;
    const float *x = kernel_pixel_at(&c->x, image, block, row, 0),
                *gate = kernel_pixel_at(&c->gate, image, block, row, 0);
    const float *a = c->a.data ? kernel_pixel_at(&c->a, image, block, row, 0) : NULL;
    float *out = kernel_pixel_of(&c->y, image, block, row);
    for (size_t i = 0; i < count; i += VF_LANES) {
        vf v = vf_load(x + i);
        if (a)
            v = v + vf_load(a + i);
        vf_store(out + i, v * (vf_sigmoid(vf_load(gate + i)) + vf_set(c->offset)));
    }
}

/* A pixel of y in an operand that is as large, or larger by as many pixels on each side, or of one pixel. */
static const float *kernel_inner_at(const struct cpu_operand *x, const struct cpu_operand *y, int image, int block,
                                    int row)
{
    const int more = (x->h - y->h) / 2;
    return x->h == 1 && x->w == 1 ? kernel_pixel_at(x, image, block, 0, 0)
                                  : kernel_pixel_at(x, image, block, row + more, more);
}

static void kernel_combine_rows(const struct cpu_combine *c, int image, int block, int row, int rows)
{
    const size_t count = (size_t)rows * (size_t)c->y.w, a_step = c->a.h == 1 && c->a.w == 1 ? 0 : CPU_BLOCK;
    const float *x = kernel_inner_at(&c->x, &c->y, image, block, row),
                *a = kernel_inner_at(&c->a, &c->y, image, block, row);
    float *out = kernel_pixel_of(&c->y, image, block, row);
    if (c->b.data) {
        const float *b = kernel_pixel_at(&c->b, image, block, row, 0);
        for (size_t i = 0; i < count; i++, x += CPU_BLOCK, a += a_step, b += CPU_BLOCK, out += CPU_BLOCK)
            UNROLL for (int k = 0; k < CPU_BLOCK; k += VF_LANES)
                vf_store(out + k, vf_load(x + k) * vf_load(a + k) + vf_load(b + k));
        return;
    }
    const vf x_scale = vf_set(c->x_scale), a_scale = vf_set(c->a_scale);
    vf slope[VF_PARTS];
    UNROLL for (int k = 0; k < VF_PARTS; k++) slope[k] =
        c->slope ? vf_load(c->slope + block * CPU_BLOCK + k * VF_LANES) : vf_set(1);
    for (size_t i = 0; i < count; i++, x += CPU_BLOCK, a += a_step, out += CPU_BLOCK) {
        UNROLL for (int k = 0; k < VF_PARTS; k++)
        {
            const vf v = vf_load(x + k * VF_LANES) * x_scale + vf_load(a + k * VF_LANES) * a_scale;
            vf_store(out + k * VF_LANES, c->slope ? vf_leaky(v, slope[k]) : v);
        }
    }
}

static void kernel_combine(const struct cpu_combine *c, int image, int block, int row, int rows)
{
    if (c->gate.data) {
        kernel_gate(c, image, block, row, rows);
        return;
    }
    const bool apart = c->x.w != c->y.w || (c->a.w != c->y.w && c->a.w > 1); /* rows do not lie behind each other */
    const int each = apart ? 1 : rows;
    for (int done = 0; done < rows; done += each)
        kernel_combine_rows(c, image, block, row + done, each);
}

static void kernel_moments(const struct cpu_operand *x, int image, int block, size_t first, size_t count,
                           double sums[2 * CPU_BLOCK])
{
    const float *from = kernel_pixel_at(x, image, block, 0, 0) + first * CPU_BLOCK;
    double sum[CPU_BLOCK] = {0}, squares[CPU_BLOCK] = {0};
    for (size_t i = 0; i < count; i++, from += CPU_BLOCK)
        for (int k = 0; k < CPU_BLOCK; k++) {
            const double v = from[k];
            sum[k] += v;
            squares[k] += v * v;
        }
    for (int k = 0; k < CPU_BLOCK; k++) {
        sums[k] += sum[k];
        sums[CPU_BLOCK + k] += squares[k];
    }
}

static void kernel_affine(const struct cpu_operand *x, const struct cpu_operand *y, const float *scale,
                          const float *shift, enum cpu_curve curve, int image, int block, size_t first, size_t count)
{
    const float *from = kernel_pixel_at(x, image, block, 0, 0) + first * CPU_BLOCK;
    float *out = kernel_pixel_of(y, image, block, 0) + first * CPU_BLOCK;
    for (size_t i = 0; i < count; i++, from += CPU_BLOCK, out += CPU_BLOCK)
        UNROLL for (int k = 0; k < CPU_BLOCK; k += VF_LANES)
        {
            const vf v = vf_load(from + k) * vf_load(scale + k) + vf_load(shift + k);
            vf_store(out + k, curve ? vf_curve(v, curve) : v);
        }
}

#define NAME_TEXT2(x) #x
#define NAME_TEXT(x) NAME_TEXT2(x)

#ifdef __AVX2__ /* a separate set with AVX-512 doubles is not worthwhile */
#define EXACT cpu_isa_avx2_exact
#else
#define EXACT cpu_isa_base_exact
#endif

const struct cpu_isa CPU_FN(cpu_isa) = {
    .name = NAME_TEXT(CPU_ISA),
    .gemm_cols = VF_LANES == 16 ? 4 : 1,
    .gemm = CPU_FN(cpu_kernel_gemm),
    .finish = kernel_finish,
    .strip = kernel_strip,
#ifndef CPU_DOUBLE
    .exact = &EXACT,
    .winograd_weight = CPU_FN(cpu_kernel_winograd_weight),
    .winograd_input = CPU_FN(cpu_kernel_winograd_input),
    .winograd_output = CPU_FN(cpu_kernel_winograd_output),
#endif
    .depthwise = kernel_depthwise,
    .max_pool = kernel_max_pool,
    .resize = kernel_resize,
    .combine = kernel_combine,
    .moments = kernel_moments,
    .affine = kernel_affine,
};
