/* The kernels of the device "cpu", as a table of functions for each instruction set, and their arguments. A tensor is
 * stored as [n][block][h][w][16], its channels in blocks of 16, each segment beginning a new block. Lanes after a
 * segment's last channel are padding; they hold 0, and every kernel keeps them 0. A tensor of "maps" (noise) is plain
 * [n][h][w]. Weights of a sum over channels are stored as [out block][in block][tap][in lane][out lane].
 * Thread-safety: functions without state; the caller divides the work among threads. */
#ifndef RUNTIME_CPU_CPU_KERNEL_H
#define RUNTIME_CPU_CPU_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_BLOCK 16
#define CPU_CELL (CPU_BLOCK * CPU_BLOCK) /* number of weights of one tap between two blocks */

/* A view. */
struct cpu_operand {
    float *data;  /* of the first image; NULL: absent */
    size_t image; /* floats from one image to the next; 0: one for all */
    size_t plane; /* floats from one block to the next */
    int n, h, w, blocks;
    const size_t *places; /* floats to each block, where they do not follow each other; NULL: they do */
};

static inline size_t cpu_kernel_block(const struct cpu_operand *x, int block)
{
    return x->places ? x->places[block] : (size_t)block * x->plane;
}

/* Activations that are not made of two lines. */
enum cpu_curve { CPU_CURVE_NONE, CPU_CURVE_SILU, CPU_CURVE_MISH, CPU_CURVE_TANH, CPU_CURVE_GELU, CPU_CURVE_SIGMOID };

/* What follows the sum of a convolution: y = act(sum*gain*gains + noise*noise_weight + bias)*scale + r1*r1_scale +
 * r2*r2_scale, or with the activation last. The lane arrays are y.blocks*16 long. */
struct cpu_finish {
    struct cpu_operand y, r1, r2;
    float gain;
    const float *gains; /* lanes, times gain; NULL: 1 */
    size_t gains_image;
    const float *noise; /* one value a pixel, every noise_step floats; NULL: none */
    size_t noise_image, noise_step;
    const float *noise_weight; /* lanes; 0 in padding */
    const float *bias;         /* lanes or NULL */
    const float *slope;        /* lanes: of the activation; NULL: none, or one of these: */
    enum cpu_curve curve;
    float scale, r1_scale, r2_scale;
    bool activation_last;
};

/* One term of a sum: `channels` values (16 at most, but in the last term) at `offset` floats from each row's pointer,
 * against the weights of the next cell. */
struct cpu_term {
    size_t offset;
    size_t channels;
};

#define CPU_GEMM_ROWS 6 /* the most rows that a call takes */
#define CPU_GEMM_COLS 4 /* the most blocks of output channels that a call takes */

struct cpu_conv {
    struct cpu_operand x;
    int kernel, stride, pad, upsample;
    bool reflect;
    const float *in_scale; /* lanes of x; NULL: 1 */
    size_t in_scale_image;
    const float *weight;
    struct cpu_finish finish;
};

/* Winograd's F(4×4, 3×3): tiles of 4×4 outputs, each from 6×6 inputs through 36 products a pair of channels.
 * Tile t of the convolution: image, row and column of tiles in raster order. */
#define CPU_TILE_POINTS 36

struct cpu_tiles {
    int across, down; /* tiles in a row, rows of tiles in an image */
    int count;        /* of all images */
};

struct cpu_tile {
    int image, y, x;
};

static inline struct cpu_tile cpu_kernel_tile(const struct cpu_tiles *tiles, int number)
{
    return (struct cpu_tile){number / (tiles->across * tiles->down), number / tiles->across % tiles->down,
                             number % tiles->across};
}

static inline void cpu_kernel_next_tile(const struct cpu_tiles *tiles, struct cpu_tile *tile)
{
    if (++tile->x < tiles->across)
        return;
    tile->x = 0;
    if (++tile->y < tiles->down)
        return;
    tile->y = 0;
    tile->image++;
}

/* DEPTHWISE and MAX_POOL. */
struct cpu_window {
    struct cpu_operand x, y;
    int kernel, stride, pad;
    const float *weight;       /* [block][kernel*kernel][16] */
    const float *bias, *slope; /* lanes or NULL */
    bool reflect;              /* depthwise; else there are zeros beyond the edge */
};

/* y = act(x*x_scale + a*a_scale), or with b: x*a + b; or with a gate: (x + a, if there is one) * (sigmoid(gate) +
 * offset). */
struct cpu_combine {
    struct cpu_operand x, y, a, b, gate;
    float x_scale, a_scale, offset;
    const float *slope; /* lanes or NULL */
};

struct cpu_isa {
    const char *name;
    const struct cpu_isa *exact; /* the same with sums in double and without Winograd's kernels; NULL in itself */
    int gemm_cols;               /* the most blocks of output channels that a call of gemm takes */

    /* out[row][col][16] = sum over the terms and their channels c of row[offset + c] * weight[col * weight_col +
     * term*256 + c*16 ..+15]; row_count <= CPU_GEMM_ROWS. */
    void (*gemm)(const float *const *rows, int row_count, const float *weight, size_t weight_col, int cols,
                 const struct cpu_term *terms, int term_count, float *out);

    /* What follows the sums of gemm: row r is pixel + r*pixel_step of image + r*image_step. */
    void (*finish)(const struct cpu_finish *finish, int image, int image_step, size_t pixel, size_t pixel_step,
                   int rows, int first_out, int cols, const float *sums);

    /* Rows row.. of a convolution's input as its kernel sees it (scaled, upsampled, padded), from padded column 0, to
     * strip[in block][rows][width][16]. */
    void (*strip)(const struct cpu_conv *conv, int image, int row, int rows, int width, float *strip, size_t block);

    /* Winograd: `outs` blocks of output channels from first_out, `ins` blocks of input channels from first_in, tiles
     * first .. first+count-1. u[point][out][in block][16][16], v[point][in block][room][16], m[point][tile][out][16];
     * point_*: floats from one point to the next. */
    void (*winograd_weight)(const float *weight, int in_blocks, int first_out, int outs, int first_in, int ins,
                            float *u, size_t point_u);
    void (*winograd_input)(const struct cpu_conv *conv, const struct cpu_tiles *tiles, int first, int count,
                           int first_in, int ins, float *v, int room, size_t point_v);
    void (*winograd_output)(const struct cpu_conv *conv, const struct cpu_tiles *tiles, int first, int count,
                            int first_out, int outs, const float *m, size_t point_m);

    /* Rows row .. row+rows-1 of one block of one image. */
    void (*depthwise)(const struct cpu_window *window, int image, int block, int row, int rows);
    void (*max_pool)(const struct cpu_window *window, int image, int block, int row, int rows);
    void (*resize)(const struct cpu_operand *x, const struct cpu_operand *y, bool bilinear, int image, int block,
                   int row, int rows);
    void (*combine)(const struct cpu_combine *combine, int image, int block, int row, int rows);

    /* Adds to sums the sums of each lane of pixels first .. first+count-1, and behind them those of the squares. */
    void (*moments)(const struct cpu_operand *x, int image, int block, size_t first, size_t count,
                    double sums[2 * CPU_BLOCK]);
    /* y = curve(x*scale + shift), of a block's lanes, for the same pixels. */
    void (*affine)(const struct cpu_operand *x, const struct cpu_operand *y, const float *scale, const float *shift,
                   enum cpu_curve curve, int image, int block, size_t first, size_t count);
};

/* torch's ReflectionPad2d index; a side too short to reflect repeats its edge. */
static inline int cpu_kernel_reflect(int i, int n, int pad)
{
    if (n <= pad)
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (i < 0)
        i = -i;
    return i >= n ? 2 * n - 2 - i : i;
}

extern const struct cpu_isa cpu_isa_base, cpu_isa_base_exact;
#ifdef __x86_64__
extern const struct cpu_isa cpu_isa_avx2, cpu_isa_avx2_exact, cpu_isa_avx512;
#endif

#endif
