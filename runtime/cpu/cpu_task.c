#include "runtime/cpu/cpu_task.h"

#include <math.h>
#include <string.h>

#include "runtime/cpu/cpu_ref.h"

#define ITEM_FLOATS 16384 /* of an operator without sums: some microseconds */

/* Rows of one block that make an item of about ITEM_FLOATS. */
static int task_item_rows(const struct cpu_operand *y)
{
    const int rows = ITEM_FLOATS / (y->w * CPU_BLOCK);
    return rows < 1 ? 1 : rows < y->h ? rows : y->h;
}

/* Divides the run's rows of y into items of some rows of one block of one image. */
struct rows {
    const struct cpu_task *task;
    const struct cpu_run *run;
    const struct cpu_operand *y;
    void (*fn)(const struct rows *rows, int image, int block, int row, int count);
    int each, groups, first, end;
};

static void task_rows_item(void *context, int item, int thread)
{
    const struct rows *r = context;
    const int row = r->first + item % r->groups * r->each, block = item / r->groups % r->y->blocks,
              image = item / r->groups / r->y->blocks;
    (void)thread;
    r->fn(r, image, block, row, r->end - row < r->each ? r->end - row : r->each);
}

static void task_run_rows(const struct cpu_task *task, const struct cpu_run *run, const struct cpu_operand *y,
                          void (*fn)(const struct rows *, int, int, int, int))
{
    struct rows rows = {task, run, y, fn, task_item_rows(y), 0, run->first_row, run->end_row ? run->end_row : y->h};
    rows.groups = (rows.end - rows.first + rows.each - 1) / rows.each;
    cpu_pool_run(run->pool, y->n * y->blocks * rows.groups, task_rows_item, &rows);
}

void cpu_task_conv(const struct cpu_task *task, const struct cpu_run *run)
{
    struct cpu_conv_job job = task->conv;
    job.thread_floats = run->own_floats; /* from one thread's scratch to the next's */
    if (run->end_row) {
        job.first_row = run->first_row;
        job.end_row = run->end_row;
        job.ready = run->ready;
    }
    cpu_conv_run(&job, run->isa, run->pool, run->shared, run->own);
}

static void task_linear_item(void *context, int item, int thread)
{
    const struct rows *r = context;
    const struct cpu_linear *l = &r->task->linear;
    const int cols_most = r->run->isa->gemm_cols, out = item * cols_most, blocks = l->finish.y.blocks;
    const int cols = blocks - out < cols_most ? blocks - out : cols_most;
    const struct cpu_term all = {0, (size_t)l->x.blocks * (size_t)(l->x.h * l->x.w) * CPU_BLOCK};
    const size_t weight_col = all.channels * CPU_BLOCK;
    float *sums = r->run->own + (size_t)thread * r->run->own_floats;
    for (int image = 0; image < l->x.n; image += CPU_GEMM_ROWS) {
        const int count = l->x.n - image < CPU_GEMM_ROWS ? l->x.n - image : CPU_GEMM_ROWS;
        const float *from[CPU_GEMM_ROWS];
        for (int i = 0; i < count; i++)
            from[i] = l->used ? r->run->shared + (size_t)(image + i) * all.channels
                              : l->x.data + (size_t)(image + i) * l->x.image;
        r->run->isa->gemm(from, count, l->weight + (size_t)out * weight_col, weight_col, cols, &all, 1, sums);
        for (int i = 0; l->used && i < count * cols * CPU_BLOCK; i++) {
            const int block = out + i / CPU_BLOCK % cols;
            sums[i] = i % CPU_BLOCK < l->used[block] ? 1 / sqrtf(sums[i] + l->epsilon) : 0;
        }
        r->run->isa->finish(&l->finish, image, 1, 0, 0, count, out, cols, sums);
    }
}

void cpu_task_linear(const struct cpu_task *task, const struct cpu_run *run)
{
    const struct cpu_linear *l = &task->linear;
    struct rows rows = {.task = task, .run = run};
    const size_t lanes = (size_t)l->x.blocks * CPU_BLOCK;
    for (int image = 0; l->used && image < l->x.n; image++)
        for (size_t i = 0; i < lanes; i++) {
            const float v = l->x.data[(size_t)image * l->x.image + i];
            run->shared[(size_t)image * lanes + i] = v * v;
        }
    const int cols = run->isa->gemm_cols;
    cpu_pool_run(run->pool, (l->finish.y.blocks + cols - 1) / cols, task_linear_item, &rows);
}

static void task_depthwise_rows(const struct rows *r, int image, int block, int row, int count)
{
    r->run->isa->depthwise(&r->task->window, image, block, row, count);
}

void cpu_task_depthwise(const struct cpu_task *task, const struct cpu_run *run)
{
    task_run_rows(task, run, &task->window.y, task_depthwise_rows);
}

static void task_max_pool_rows(const struct rows *r, int image, int block, int row, int count)
{
    r->run->isa->max_pool(&r->task->window, image, block, row, count);
}

void cpu_task_max_pool(const struct cpu_task *task, const struct cpu_run *run)
{
    task_run_rows(task, run, &task->window.y, task_max_pool_rows);
}

static void task_resize_rows(const struct rows *r, int image, int block, int row, int count)
{
    r->run->isa->resize(&r->task->resize.x, &r->task->resize.y, r->task->resize.bilinear, image, block, row, count);
}

void cpu_task_resize(const struct cpu_task *task, const struct cpu_run *run)
{
    task_run_rows(task, run, &task->resize.y, task_resize_rows);
}

static void task_combine_rows(const struct rows *r, int image, int block, int row, int count)
{
    r->run->isa->combine(&r->task->combine, image, block, row, count);
}

void cpu_task_combine(const struct cpu_task *task, const struct cpu_run *run)
{
    task_run_rows(task, run, &task->combine.y, task_combine_rows);
}

static void task_gather_rows(const struct rows *r, int image, int block, int row, int count)
{
    const struct cpu_gather *g = &r->task->gather;
    const struct cpu_operand *y = &g->y;
    const ptrdiff_t *residual_offsets = g->residual ? g->residual_offsets + block * CPU_BLOCK : NULL;
    int lanes = 0; /* those that are not padding come first */
    while (lanes < CPU_BLOCK && g->offsets[(size_t)(block * g->over * g->over) * CPU_BLOCK + (size_t)lanes] >= 0)
        lanes++;
    for (int i = row; i < row + count; i++) {
        float *out =
            y->data + (size_t)image * y->image + (size_t)block * y->plane + (size_t)i * (size_t)y->w * CPU_BLOCK;
        for (int j = 0; j < y->w; j++, out += CPU_BLOCK) {
            const size_t pixel =
                (size_t)(i / g->over * g->times) * (size_t)g->x_width + (size_t)(j / g->over * g->times);
            const size_t phase = (size_t)((block * g->over + i % g->over) * g->over + j % g->over);
            const float *from = g->x + (size_t)image * g->x_image + pixel * g->x_step;
            const ptrdiff_t *offsets = g->offsets + phase * CPU_BLOCK;
            memset(out, 0, CPU_BLOCK * sizeof *out);
            for (int k = 0; k < lanes; k++)
                out[k] = from[offsets[k]];
            if (residual_offsets) {
                const float *more = g->residual + (size_t)image * g->residual_image + pixel * CPU_BLOCK;
                for (int k = 0; k < lanes; k++)
                    out[k] += more[residual_offsets[k]];
            }
        }
    }
}

void cpu_task_gather(const struct cpu_task *task, const struct cpu_run *run)
{
    task_run_rows(task, run, &task->gather.y, task_gather_rows);
}

size_t cpu_task_kept_floats(const struct cpu_task *task)
{
    return task->run == cpu_task_conv && task->conv.way == CPU_CONV_TILES ? task->conv.shared_floats : 0;
}

bool cpu_task_is_gather(const struct cpu_task *task)
{
    return task->run == cpu_task_gather;
}

/* A noise map keeps the caller's layout. */
void cpu_task_copy(const struct cpu_task *task, const struct cpu_run *run)
{
    const struct cpu_operand *y = &task->gather.y;
    (void)run;
    memcpy(y->data, task->gather.x, (size_t)y->n * (size_t)y->h * (size_t)y->w * sizeof(float));
}

#define NOISE_QUADS 256 /* an item */

static void task_noise_item(void *context, int item, int thread)
{
    static const double pi = 3.14159265358979323846;
    const struct rows *r = context;
    const struct cpu_operand *y = &r->task->noise.y;
    const uint32_t key[2] = {(uint32_t)r->run->seed, (uint32_t)(r->run->seed >> 32)};
    const size_t pixels = (size_t)y->h * (size_t)y->w, step = r->task->noise.step;
    const int image = item / r->groups;
    float *out = y->data + (size_t)image * y->image;
    (void)thread;
    for (size_t quad = (size_t)(item % r->groups) * NOISE_QUADS, n = 0; n < NOISE_QUADS && quad * 4 < pixels;
         n++, quad++) {
        const uint32_t counter[4] = {(uint32_t)quad, (uint32_t)r->task->noise.layer,
                                     r->run->first_image + (uint32_t)image, 0};
        uint32_t u[4];
        double value[4];
        cpu_ref_philox(counter, key, u);
        for (int i = 0; i < 4; i += 2) {
            const double radius = sqrt(-2 * log((u[i] + 1.0) / 4294967296.0)), t = 2 * pi * u[i + 1] / 4294967296.0;
            value[i] = radius * cos(t);
            value[i + 1] = radius * sin(t);
        }
        for (size_t i = 0; i < 4 && quad * 4 + i < pixels; i++) {
            float *to = out + (quad * 4 + i) * step;
            memset(to, 0, step * sizeof *to);
            *to = (float)value[i];
        }
    }
}

void cpu_task_noise(const struct cpu_task *task, const struct cpu_run *run)
{
    const struct cpu_operand *y = &task->noise.y;
    struct rows rows = {.task = task, .run = run};
    rows.groups = (int)(((size_t)y->h * (size_t)y->w + 4 * NOISE_QUADS - 1) / (4 * NOISE_QUADS));
    cpu_pool_run(run->pool, y->n * rows.groups, task_noise_item, &rows);
}

struct output {
    const struct cpu_operand *x;
    int channels;
    const int *lanes;
    int first, end;
    float *to;
};

static void task_output_item(void *context, int item, int thread)
{
    const struct output *o = context;
    const size_t width = (size_t)o->x->w;
    const int image = item / o->channels, lane = o->lanes[item % o->channels];
    const float *from = o->x->data + (size_t)image * o->x->image + (size_t)(lane / CPU_BLOCK) * o->x->plane +
                        (size_t)(lane % CPU_BLOCK);
    float *to = o->to + (size_t)item * (size_t)o->x->h * width;
    (void)thread;
    for (size_t i = (size_t)o->first * width; i < (size_t)o->end * width; i++)
        to[i] = from[i * CPU_BLOCK];
}

void cpu_task_output(const struct cpu_operand *x, int channels, const int *lanes, int first, int end,
                     struct cpu_pool *pool, float *to)
{
    struct output output = {x, channels, lanes, first, end, to};
    cpu_pool_run(pool, x->n * channels, task_output_item, &output);
}
