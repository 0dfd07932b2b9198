/* Winograd's minimal filtering F(4×4, 3×3) (Lavin and Gray, "Fast algorithms for convolutional neural networks", 2016)
 * at the points 0, ±a, ±b, ∞ with a² = 1/2 and b² = 2: a·b = 1 keeps the transforms' numbers small. Over 64 channels of
 * random values the rounding error is half of that at the usual 0, ±1, ±2, ∞ (root mean square), the largest a quarter.
 * With M(x) = (x²-a²)(x²-b²)·x, a point p's row of the input's transform is M(x)/(x-p), of the weights' (1, p,
 * p²)/M'(p), and of the output's (1, p, p², p³). */
#include "runtime/cpu/cpu_kernel_list.h"

#define POINT_A 0.70710678118654752f
#define POINT_B 1.41421356237309505f

static inline void winograd_transform_input(const vf d[6], vf out[6])
{
    const vf half = vf_set(0.5f), two = vf_set(2), sum = vf_set(2.5f), a = vf_set(POINT_A), b = vf_set(POINT_B);
    const vf even_a = d[4] - two * d[2], odd_a = d[3] - two * d[1];
    const vf even_b = d[4] - half * d[2], odd_b = d[3] - half * d[1];
    out[0] = (d[0] + d[4]) - sum * d[2];
    out[1] = even_a + a * odd_a;
    out[2] = even_a - a * odd_a;
    out[3] = even_b + b * odd_b;
    out[4] = even_b - b * odd_b;
    out[5] = (d[1] + d[5]) - sum * d[3];
}

static inline void winograd_transform_weight(const vf g[3], vf out[6])
{
    const vf third = vf_set(-1 / 3.0f), a = vf_set(-POINT_A / 1.5f), sixth = vf_set(1 / 6.0f), b = vf_set(POINT_B / 6);
    const vf even_a = vf_set(-1 / 1.5f) * g[0] + third * g[2], even_b = sixth * g[0] + vf_set(1 / 3.0f) * g[2];
    out[0] = g[0];
    out[1] = even_a + a * g[1];
    out[2] = even_a - a * g[1];
    out[3] = even_b + b * g[1];
    out[4] = even_b - b * g[1];
    out[5] = g[2];
}

static inline void winograd_transform_output(const vf m[6], vf out[4])
{
    const vf even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    out[0] = m[0] + even_a + even_b;
    out[1] = vf_set(POINT_A) * odd_a + vf_set(POINT_B) * odd_b;
    out[2] = vf_set(0.5f) * even_a + vf_set(2) * even_b;
    out[3] = m[5] + vf_set(POINT_A / 2) * odd_a + vf_set(POINT_B * 2) * odd_b;
}

void CPU_FN(cpu_kernel_winograd_weight)(const float *weight, int in_blocks, int first_out, int outs, int first_in,
                                        int ins, float *u, size_t point_u)
{
    for (int o = 0; o < outs; o++) {
        for (int i = first_in; i < first_in + ins; i++) {
            const float *from = weight + ((size_t)(first_out + o) * (size_t)in_blocks + (size_t)i) * 9 * CPU_CELL;
            float *to = u + ((size_t)o * (size_t)in_blocks + (size_t)i) * CPU_CELL;
            for (int lane = 0; lane < CPU_CELL; lane += VF_LANES) {
                vf rows[6][3];
                UNROLL for (int x = 0; x < 3; x++)
                {
                    vf g[3], t[6];
                    UNROLL for (int y = 0; y < 3; y++) g[y] = vf_load(from + (y * 3 + x) * CPU_CELL + lane);
                    winograd_transform_weight(g, t);
                    UNROLL for (int y = 0; y < 6; y++) rows[y][x] = t[y];
                }
                for (int y = 0; y < 6; y++) {
                    vf t[6];
                    winograd_transform_weight(rows[y], t);
                    UNROLL for (int x = 0; x < 6; x++) vf_store(to + (size_t)(y * 6 + x) * point_u + lane, t[x]);
                }
            }
        }
    }
}

/* Where the six rows or columns of a tile come from: an index into the source, or -1 for 0. */
static void winograd_tile_source(const struct cpu_conv *conv, int first, int size, int out[6])
{
    const int up = size * conv->upsample;
    for (int i = 0; i < 6; i++) {
        int at = first + i;
        if (conv->reflect)
            at = cpu_kernel_reflect(at, up, conv->pad);
        out[i] = at < 0 || at >= up ? -1 : at / conv->upsample;
    }
}

/* One part of a block of one tile: pixel (y, x) is at from + y*row + x*16. */
static inline void winograd_tile_transform(const float *from, size_t row, const float *scale, float *to, size_t point)
{
    vf rows[6][6];
    UNROLL for (int x = 0; x < 6; x++)
    {
        vf column[6], t[6];
        UNROLL for (int y = 0; y < 6; y++) column[y] = vf_load(from + (size_t)y * row + (size_t)(x * CPU_BLOCK));
        winograd_transform_input(column, t);
        UNROLL for (int y = 0; y < 6; y++) rows[y][x] = t[y];
    }
    const vf s = scale ? vf_load(scale) : vf_set(1);
    UNROLL for (int y = 0; y < 6; y++)
    {
        vf t[6];
        if (scale) /* the transform is linear */
            UNROLL for (int x = 0; x < 6; x++) rows[y][x] = rows[y][x] * s;
        winograd_transform_input(rows[y], t);
        UNROLL for (int x = 0; x < 6; x++) vf_store(to + (size_t)(y * 6 + x) * point, t[x]);
    }
}

/* The 36 pixels of a tile that reaches beyond the picture, or into an upsampled one. plane: the block's. */
static void winograd_tile_gather(const struct cpu_conv *conv, const float *plane, int x0, int y0, float *pixels)
{
    int ys[6], xs[6];
    winograd_tile_source(conv, y0, conv->x.h, ys);
    winograd_tile_source(conv, x0, conv->x.w, xs);
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 6; j++, pixels += CPU_BLOCK) {
            const float *from =
                ys[i] < 0 || xs[j] < 0 ? NULL : plane + ((size_t)ys[i] * (size_t)conv->x.w + (size_t)xs[j]) * CPU_BLOCK;
            UNROLL for (int k = 0; k < CPU_BLOCK; k += VF_LANES)
                vf_store(pixels + k, from ? vf_load(from + k) : vf_set(0));
        }
    }
}

void CPU_FN(cpu_kernel_winograd_input)(const struct cpu_conv *conv, const struct cpu_tiles *tiles, int first, int count,
                                       int first_in, int ins, float *v, int room, size_t point_v)
{
    const struct cpu_operand *x = &conv->x;
    float pixels[36 * CPU_BLOCK];
    for (int b = first_in; b < first_in + ins; b++) {
        float *to = v + (size_t)b * (size_t)room * CPU_BLOCK;
        struct cpu_tile at = cpu_kernel_tile(tiles, first);
        for (int t = 0; t < count; t++, to += CPU_BLOCK, cpu_kernel_next_tile(tiles, &at)) {
            const int x0 = at.x * 4 - conv->pad, y0 = at.y * 4 - conv->pad;
            const float *from = x->data + (size_t)at.image * x->image + cpu_kernel_block(x, b);
            const float *scale =
                conv->in_scale ? conv->in_scale + (size_t)at.image * conv->in_scale_image + (size_t)(b * CPU_BLOCK)
                               : NULL;
            size_t row = (size_t)x->w * CPU_BLOCK;
            if (conv->upsample == 1 && y0 >= 0 && x0 >= 0 && y0 + 6 <= x->h && x0 + 6 <= x->w) {
                from += ((size_t)y0 * (size_t)x->w + (size_t)x0) * CPU_BLOCK;
                /* Prefetches what the tile after the next adds: a tensor is larger than a core's own cache. */
                for (int i = 0; i < 6; i++)
                    for (int j = 10; j < 14; j++)
                        __builtin_prefetch(from + (size_t)i * row + (size_t)(j * CPU_BLOCK));
            } else {
                winograd_tile_gather(conv, from, x0, y0, pixels);
                from = pixels;
                row = 6 * CPU_BLOCK;
            }
            for (int part = 0; part < CPU_BLOCK; part += VF_LANES)
                winograd_tile_transform(from + part, row, scale ? scale + part : NULL, to + part, point_v);
        }
    }
}

void CPU_FN(cpu_kernel_winograd_output)(const struct cpu_conv *conv, const struct cpu_tiles *tiles, int first,
                                        int count, int first_out, int outs, const float *m, size_t point_m)
{
    const struct cpu_finish *f = &conv->finish;
    for (int o = 0; o < outs; o++) {
        struct cpu_tile at = cpu_kernel_tile(tiles, first);
        for (int t = 0; t < count; t++, cpu_kernel_next_tile(tiles, &at)) {
            const int x0 = at.x * 4, y0 = at.y * 4;
            const int ys = f->y.h - y0 < 4 ? f->y.h - y0 : 4, xs = f->y.w - x0 < 4 ? f->y.w - x0 : 4;
            vf result[4][4][VF_PARTS];
            UNROLL for (int part = 0; part < VF_PARTS; part++)
            {
                const float *from = m + ((size_t)t * (size_t)outs + (size_t)o) * CPU_BLOCK + part * VF_LANES;
                vf rows[4][6];
                UNROLL for (int x = 0; x < 6; x++)
                {
                    vf column[6], out[4];
                    UNROLL for (int y = 0; y < 6; y++) column[y] = vf_load(from + (size_t)(y * 6 + x) * point_m);
                    winograd_transform_output(column, out);
                    UNROLL for (int y = 0; y < 4; y++) rows[y][x] = out[y];
                }
                UNROLL for (int y = 0; y < 4; y++)
                {
                    vf out[4];
                    winograd_transform_output(rows[y], out);
                    UNROLL for (int x = 0; x < 4; x++) result[y][x][part] = out[x];
                }
            }
            for (int y = 0; y < ys; y++)
                for (int x = 0; x < xs; x++)
                    cpu_finish_block(f, at.image, first_out + o, (size_t)(y0 + y) * (size_t)f->y.w + (size_t)(x0 + x),
                                     result[y][x]);
        }
    }
}
