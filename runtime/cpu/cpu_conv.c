#include "runtime/cpu/cpu_conv.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define STRIP_FLOATS (48 << 10) /* a strip and its outputs should stay in a core's second-level cache */
#define TILE_FLOATS (128 << 10) /* so should the transformed tiles */
#define MOST_TILES 48           /* more gains nothing */
#define FEWEST_TILES 48         /* so that the transformed weights are worth reading */
#define SHARED_TILES 128        /* tiles whose inputs are kept for all output channels */
#define WEIGHT_FLOATS                                                                                                  \
    (2 << 20) /* transformed weights up to this size stay in the last-level cache while tiles pass                     \
               */

static int conv_at_least(int a, int b)
{
    return a > b ? a : b;
}

static int conv_at_most(int a, int b)
{
    return a < b ? a : b;
}

static int conv_divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* --- planning ------------------------------------------------------------------------------------------------------
 */

/* The cost of each way in multiply-accumulates, as measured: a product of few blocks of output channels does not fill
 * the processor, and the transforms take as long as that many for each block. */
static bool conv_winograd_pays(const struct cpu_conv_job *job, const struct cpu_isa *isa, int channels)
{
    const struct cpu_conv *c = &job->conv;
    const double pixels = (double)c->finish.y.n * c->finish.y.h * c->finish.y.w, tiles = job->tiles.count;
    const double ins = c->x.blocks, outs = c->finish.y.blocks;
    if (c->kernel != 3 || c->stride != 1 || !isa->winograd_input)
        return false;
    const double direct = pixels * 9 * channels * outs * CPU_BLOCK;
    const double padded = conv_divide_up(job->tiles.count, CPU_GEMM_ROWS) * CPU_GEMM_ROWS;
    const double product = padded * CPU_TILE_POINTS * ins * outs * CPU_CELL;
    return product + tiles * (ins * 12e3 + outs * 10e3) + ins * outs * 120e3 < 0.9 * direct;
}

static enum error_code conv_terms_create(struct cpu_conv_job *job, int blocks, int taps, struct error *err)
{
    job->terms = mem_alloc((size_t)blocks * (size_t)taps, sizeof *job->terms);
    return job->terms ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
}

static enum error_code conv_plan_winograd(struct cpu_conv_job *job, const struct cpu_isa *isa, int threads,
                                          struct error *err)
{
    const struct cpu_conv *c = &job->conv;
    const int ins = c->x.blocks, outs = c->finish.y.blocks, tiles = job->tiles.count;
    const size_t weights = (size_t)ins * (size_t)outs * CPU_CELL * CPU_TILE_POINTS;
    job->way = weights > WEIGHT_FLOATS && tiles <= SHARED_TILES ? CPU_CONV_OUTPUTS : CPU_CONV_TILES;
    if (job->way == CPU_CONV_TILES) {
        job->cols = conv_at_most(isa->gemm_cols, outs);
        const int fit = TILE_FLOATS / (CPU_TILE_POINTS * (ins + job->cols) * CPU_BLOCK);
        job->room =
            conv_at_most(conv_at_least(fit, weights > WEIGHT_FLOATS ? FEWEST_TILES : CPU_GEMM_ROWS), MOST_TILES);
        job->room = conv_at_most(job->room, conv_divide_up(tiles, 3 * threads));
        job->room = conv_divide_up(job->room, CPU_GEMM_ROWS) * CPU_GEMM_ROWS;
    } else {
        job->cols = conv_at_least(conv_at_most(CPU_GEMM_COLS, outs / threads), 1);
        job->room = conv_divide_up(conv_at_most(tiles, SHARED_TILES), CPU_GEMM_ROWS) * CPU_GEMM_ROWS;
    }
    /* 16 floats more, so that the points do not all fall on the same lines of a cache */
    const int weight_outs = job->way == CPU_CONV_TILES ? outs : job->cols;
    job->point_u = (size_t)weight_outs * (size_t)ins * CPU_CELL + CPU_BLOCK;
    job->point_v = (size_t)ins * (size_t)job->room * CPU_BLOCK + CPU_BLOCK;
    job->point_m = (size_t)job->cols * (size_t)job->room * CPU_BLOCK + CPU_BLOCK;
    const size_t u = job->point_u * CPU_TILE_POINTS, v = job->point_v * CPU_TILE_POINTS,
                 m = job->point_m * CPU_TILE_POINTS;
    job->shared_floats = job->way == CPU_CONV_TILES ? u : v;
    job->thread_floats = (job->way == CPU_CONV_TILES ? v : u) + m;
    enum error_code code = conv_terms_create(job, ins, 1, err);
    for (int i = 0; i < ins && !code; i++)
        job->terms[job->term_count++] = (struct cpu_term){(size_t)i * (size_t)job->room * CPU_BLOCK, CPU_BLOCK};
    return code;
}

static enum error_code conv_plan_direct(struct cpu_conv_job *job, const struct cpu_isa *isa, int threads,
                                        const int *used, struct error *err)
{
    const struct cpu_conv *c = &job->conv;
    const struct cpu_operand *y = &c->finish.y;
    job->way = CPU_CONV_DIRECT;
    job->cols = conv_at_most(isa->gemm_cols, y->blocks);
    job->copies = c->pad > 0 || c->upsample > 1 || c->in_scale;
    job->width = job->copies ? (y->w - 1) * c->stride + c->kernel : c->x.w;
    /* as many rows as stay in the cache, but at least three pieces of work for each thread if there are enough rows */
    const int row_floats = (job->width * c->x.blocks * c->stride + y->w * job->cols) * CPU_BLOCK;
    job->rows = conv_at_least(STRIP_FLOATS / row_floats, conv_divide_up(4 * CPU_GEMM_ROWS, y->w));
    job->rows = conv_at_least(conv_at_most(job->rows, conv_divide_up(y->n * y->h, 3 * threads)), 1);
    job->rows = conv_at_most(job->rows, y->h);
    const int strip_rows = (job->rows - 1) * c->stride + c->kernel;
    job->block = (size_t)(job->copies ? strip_rows : c->x.h) * (size_t)job->width * CPU_BLOCK;
    job->thread_floats = (size_t)(CPU_GEMM_ROWS * CPU_GEMM_COLS * CPU_BLOCK);
    if (job->copies)
        job->thread_floats += job->block * (size_t)c->x.blocks;
    enum error_code code = conv_terms_create(job, c->x.blocks, c->kernel * c->kernel, err);
    for (int i = 0; i < c->x.blocks && !code; i++)
        for (int ky = 0; ky < c->kernel; ky++)
            for (int kx = 0; kx < c->kernel; kx++)
                job->terms[job->term_count++] = (struct cpu_term){
                    (size_t)i * job->block + (size_t)(ky * job->width + kx) * CPU_BLOCK, (size_t)used[i]};
    return code;
}

enum error_code cpu_conv_plan(struct cpu_conv_job *job, const struct cpu_isa *isa, int threads, const int *used,
                              struct error *err)
{
    const struct cpu_operand *y = &job->conv.finish.y;
    int channels = 0;
    for (int i = 0; i < job->conv.x.blocks; i++)
        channels += used[i];
    job->tiles = (struct cpu_tiles){conv_divide_up(y->w, 4), conv_divide_up(y->h, 4), 0};
    job->tiles.count = job->tiles.across * job->tiles.down * y->n;
    job->end_row = y->h;
    return conv_winograd_pays(job, isa, channels) ? conv_plan_winograd(job, isa, threads, err)
                                                  : conv_plan_direct(job, isa, threads, used, err);
}

/* --- running -------------------------------------------------------------------------------------------------------
 */

struct run {
    const struct cpu_conv_job *job;
    const struct cpu_isa *isa;
    float *shared, *own;
    int pieces;       /* direct: of the output channels */
    int first, count; /* the tiles to compute; CPU_CONV_OUTPUTS: those in shared memory */
};

static void conv_direct_item(void *context, int item, int thread)
{
    const struct run *run = context;
    const struct cpu_conv_job *job = run->job;
    const struct cpu_conv *c = &job->conv;
    const struct cpu_operand *y = &c->finish.y;
    const int groups = conv_divide_up(job->end_row - job->first_row, job->rows), piece = item % run->pieces;
    const int group = item / run->pieces % groups, image = item / run->pieces / groups;
    const int row = job->first_row + group * job->rows, rows = conv_at_most(job->rows, job->end_row - row);
    const int piece_outs = conv_divide_up(conv_divide_up(y->blocks, job->cols), run->pieces) * job->cols;
    float *sums = run->own + (size_t)thread * job->thread_floats,
          *strip = sums + CPU_GEMM_ROWS * CPU_GEMM_COLS * CPU_BLOCK;
    const float *base = strip;
    if (job->copies)
        run->isa->strip(c, image, row * c->stride, (rows - 1) * c->stride + c->kernel, job->width, strip, job->block);
    else
        base =
            c->x.data + (size_t)image * c->x.image + (size_t)row * (size_t)c->stride * (size_t)job->width * CPU_BLOCK;
    const size_t weight_col = (size_t)c->x.blocks * (size_t)(c->kernel * c->kernel) * CPU_CELL;
    const int end = conv_at_most((piece + 1) * piece_outs, y->blocks);
    for (int out = piece * piece_outs; out < end; out += job->cols) {
        const int cols = conv_at_most(job->cols, end - out);
        int py = 0, px = 0;
        for (int p = 0; p < rows * y->w; p += CPU_GEMM_ROWS) {
            const float *from[CPU_GEMM_ROWS];
            const int count = conv_at_most(CPU_GEMM_ROWS, rows * y->w - p);
            for (int i = 0; i < count; i++) {
                from[i] = base + ((size_t)py * (size_t)job->width + (size_t)px) * (size_t)c->stride * CPU_BLOCK;
                if (++px == y->w) {
                    px = 0;
                    py++;
                }
            }
            run->isa->gemm(from, count, c->weight + (size_t)out * weight_col, weight_col, cols, job->terms,
                           job->term_count, sums);
            run->isa->finish(&c->finish, image, 0, (size_t)row * (size_t)y->w + (size_t)p, 1, count, out, cols, sums);
        }
    }
}

/* Computes the products of some tiles and `outs` blocks of output channels, and from them the outputs. u begins at the
 * first of those blocks. Takes as many blocks at a time as gemm does at once; each batch has its place in m. */
static void conv_multiply(const struct run *run, const float *u, int first_out, int outs, const float *v, int first,
                          int count, float *m)
{
    const struct cpu_conv_job *job = run->job;
    const size_t out_u = (size_t)job->conv.x.blocks * CPU_CELL;
    const int most = run->isa->gemm_cols;
    for (int point = 0; point < CPU_TILE_POINTS; point++) {
        const float *from = v + (size_t)point * job->point_v, *weight = u + (size_t)point * job->point_u;
        float *to = m + (size_t)point * job->point_m;
        for (int out = 0; out < outs; out += most) {
            const int cols = conv_at_most(most, outs - out);
            for (int t = 0; t < count; t += CPU_GEMM_ROWS, to += CPU_GEMM_ROWS * cols * CPU_BLOCK) {
                const float *rows[CPU_GEMM_ROWS];
                const int some = conv_at_most(CPU_GEMM_ROWS, count - t);
                for (int i = 0; i < some; i++)
                    rows[i] = from + (size_t)(t + i) * CPU_BLOCK;
                run->isa->gemm(rows, some, weight + (size_t)out * out_u, out_u, cols, job->terms, job->term_count, to);
            }
        }
    }
    const size_t padded = (size_t)(conv_divide_up(count, CPU_GEMM_ROWS) * CPU_GEMM_ROWS) * CPU_BLOCK;
    for (int out = 0; out < outs; out += most)
        run->isa->winograd_output(&job->conv, &job->tiles, first, count, first_out + out,
                                  conv_at_most(most, outs - out), m + (size_t)out * padded, job->point_m);
}

static void conv_weight_item(void *context, int item, int thread)
{
    const struct run *run = context;
    const struct cpu_conv *c = &run->job->conv;
    const int ins = c->x.blocks, first = item % conv_divide_up(ins, 4) * 4, out = item / conv_divide_up(ins, 4);
    (void)thread;
    run->isa->winograd_weight(c->weight, ins, out, 1, first, conv_at_most(4, ins - first),
                              run->shared + (size_t)out * (size_t)ins * CPU_CELL, run->job->point_u);
}

static void conv_tiles_item(void *context, int item, int thread)
{
    const struct run *run = context;
    const struct cpu_conv_job *job = run->job;
    const struct cpu_conv *c = &job->conv;
    const int first = run->first + item * job->room, count = conv_at_most(job->room, run->first + run->count - first);
    float *v = run->own + (size_t)thread * job->thread_floats, *m = v + job->point_v * CPU_TILE_POINTS;
    run->isa->winograd_input(c, &job->tiles, first, count, 0, c->x.blocks, v, job->room, job->point_v);
    for (int out = 0; out < c->finish.y.blocks; out += job->cols) {
        const int cols = conv_at_most(job->cols, c->finish.y.blocks - out);
        conv_multiply(run, run->shared + (size_t)out * (size_t)c->x.blocks * CPU_CELL, out, cols, v, first, count, m);
    }
}

static void conv_input_item(void *context, int item, int thread)
{
    const struct run *run = context;
    const struct cpu_conv_job *job = run->job;
    (void)thread;
    run->isa->winograd_input(&job->conv, &job->tiles, run->first, run->count, item, 1, run->shared, job->room,
                             job->point_v);
}

static void conv_outputs_item(void *context, int item, int thread)
{
    const struct run *run = context;
    const struct cpu_conv_job *job = run->job;
    const struct cpu_conv *c = &job->conv;
    const int out = item * job->cols, cols = conv_at_most(job->cols, c->finish.y.blocks - out);
    float *u = run->own + (size_t)thread * job->thread_floats, *m = u + job->point_u * CPU_TILE_POINTS;
    run->isa->winograd_weight(c->weight, c->x.blocks, out, cols, 0, c->x.blocks, u, job->point_u);
    conv_multiply(run, u, out, cols, run->shared, run->first, run->count, m);
}

void cpu_conv_run(const struct cpu_conv_job *job, const struct cpu_isa *isa, struct cpu_pool *pool, float *shared,
                  float *own)
{
    struct run run = {.job = job, .isa = isa, .shared = shared, .own = own, .pieces = 1};
    const struct cpu_conv *c = &job->conv;
    const int threads = cpu_pool_threads(pool), outs = c->finish.y.blocks;
    if (job->way == CPU_CONV_DIRECT) {
        const int groups = c->finish.y.n * conv_divide_up(job->end_row - job->first_row, job->rows);
        if (groups < 2 * threads)
            run.pieces = conv_at_most(conv_divide_up(outs, job->cols), conv_divide_up(2 * threads, groups));
        cpu_pool_run(pool, groups * run.pieces, conv_direct_item, &run);
        return;
    }
    const bool all = job->end_row - job->first_row == c->finish.y.h; /* of all images */
    const int begin = job->first_row / 4 * job->tiles.across,
              count = all ? job->tiles.count : conv_divide_up(job->end_row - job->first_row, 4) * job->tiles.across;
    if (job->way == CPU_CONV_TILES) {
        run.first = begin;
        run.count = count;
        if (!job->ready)
            cpu_pool_run(pool, outs * conv_divide_up(c->x.blocks, 4), conv_weight_item, &run);
        cpu_pool_run(pool, conv_divide_up(count, job->room), conv_tiles_item, &run);
        return;
    }
    for (run.first = begin; run.first < begin + count; run.first += job->room) {
        run.count = conv_at_most(job->room, begin + count - run.first);
        cpu_pool_run(pool, c->x.blocks, conv_input_item, &run);
        cpu_pool_run(pool, conv_divide_up(outs, job->cols), conv_outputs_item, &run);
    }
}
