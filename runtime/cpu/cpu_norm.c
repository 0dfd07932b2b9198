#include "runtime/cpu/cpu_norm.h"

#include <math.h>
#include <string.h>

#include "runtime/cpu/cpu_attention.h"

#define NORM_PIXELS 1024 /* an item: some microseconds */
#define NORM_SUMS (2 * CPU_BLOCK)

static size_t norm_pixels(const struct cpu_norm *norm)
{
    return (size_t)norm->y.h * (size_t)norm->y.w;
}

static int norm_chunks(const struct cpu_norm *norm)
{
    return (int)((norm_pixels(norm) + NORM_PIXELS - 1) / NORM_PIXELS);
}

/* What the items of one run share. sums[item][NORM_SUMS]; scale, shift: lanes of all images. */
struct norm_run {
    const struct cpu_norm *norm;
    const struct cpu_isa *isa;
    const struct cpu_operand *x; /* whose moments are taken */
    double *sums;
    float *scale, *shift;
};

/* An item is a chunk of pixels of one block of one image. */
static void norm_item(const struct cpu_norm *norm, int item, int *image, int *block, size_t *first, size_t *count)
{
    const int chunks = norm_chunks(norm);
    const size_t pixels = norm_pixels(norm);
    *first = (size_t)(item % chunks) * NORM_PIXELS;
    *count = pixels - *first < NORM_PIXELS ? pixels - *first : NORM_PIXELS;
    *block = item / chunks % norm->y.blocks;
    *image = item / chunks / norm->y.blocks;
}

static void norm_moments(void *context, int item, int thread)
{
    const struct norm_run *r = context;
    int image, block;
    size_t first, count;
    (void)thread;
    norm_item(r->norm, item, &image, &block, &first, &count);
    double *sums = r->sums + (size_t)item * NORM_SUMS;
    memset(sums, 0, NORM_SUMS * sizeof *sums);
    r->isa->moments(r->x, image, block, first, count, sums);
}

static void norm_affine(void *context, int item, int thread)
{
    const struct norm_run *r = context;
    const struct cpu_norm *norm = r->norm;
    int image, block;
    size_t first, count;
    (void)thread;
    norm_item(norm, item, &image, &block, &first, &count);
    const size_t lane = ((size_t)image * (size_t)norm->y.blocks + (size_t)block) * CPU_BLOCK;
    r->isa->affine(&norm->x, &norm->y, r->scale + lane, r->shift + lane,
                   norm->args.activation == ACTIVATION_SILU ? CPU_CURVE_SILU : CPU_CURVE_NONE, image, block, first,
                   count);
}

/* Mean and deviation of channels first .. first+each-1 of an image from the items' sums, always in the same order. */
static void norm_group(const struct norm_run *r, int image, int first, int each, double *mean, double *deviation)
{
    const struct cpu_norm *norm = r->norm;
    const int chunks = norm_chunks(norm);
    const double count = (double)each * (double)norm_pixels(norm);
    double sum = 0, squares = 0;
    for (int c = first; c < first + each; c++) {
        const int lane = norm->lanes[c];
        const double *at = r->sums + (size_t)(image * norm->y.blocks + lane / CPU_BLOCK) * (size_t)chunks * NORM_SUMS +
                           lane % CPU_BLOCK;
        for (int i = 0; i < chunks; i++, at += NORM_SUMS) {
            sum += at[0];
            squares += at[CPU_BLOCK];
        }
    }
    *mean = sum / count;
    const double rest = squares - sum * *mean; /* a NaN stays one */
    *deviation = sqrt((rest < 0 ? 0 : rest) / (norm->args.unbiased ? count - 1 : count) + (double)norm->args.epsilon);
}

static void norm_run_group(const struct cpu_task *task, const struct cpu_run *run)
{
    const struct cpu_norm *norm = &task->norm;
    const int items = norm->y.n * norm->y.blocks * norm_chunks(norm), each = norm->channels / norm->args.groups;
    const size_t lanes = (size_t)norm->y.n * (size_t)norm->y.blocks * CPU_BLOCK;
    struct norm_run r = {norm, run->isa, &norm->x, (double *)(void *)run->shared, NULL, NULL};
    r.scale = run->shared + (size_t)items * NORM_SUMS * (sizeof(double) / sizeof(float));
    r.shift = r.scale + lanes;
    memset(r.scale, 0, 2 * lanes * sizeof(float));
    for (int like = 0; like < (norm->like.data ? 2 : 1); like++) {
        r.x = like ? &norm->like : &norm->x;
        cpu_pool_run(run->pool, items, norm_moments, &r);
        for (int at = 0; at < norm->y.n * norm->args.groups; at++) {
            const int image = at / norm->args.groups, first = at % norm->args.groups * each;
            double mean, deviation;
            norm_group(&r, image, first, each, &mean, &deviation);
            for (int c = first; c < first + each; c++) {
                const size_t lane = (size_t)(image * norm->y.blocks * CPU_BLOCK + norm->lanes[c]);
                const double weight = like           ? deviation * r.scale[lane]
                                      : norm->weight ? norm->weight[norm->lanes[c]] / deviation
                                                     : 1 / deviation;
                const double bias = norm->bias && !like ? norm->bias[norm->lanes[c]] : 0;
                r.shift[lane] = (float)(like ? r.shift[lane] * deviation + mean : bias - mean * weight);
                r.scale[lane] = (float)weight;
            }
        }
    }
    cpu_pool_run(run->pool, items, norm_affine, &r);
}

/* A chunk of pixels of one image. */
static void norm_layer_item(void *context, int item, int thread)
{
    const struct cpu_norm *norm = context;
    const int chunks = norm_chunks(norm), image = item / chunks, blocks = norm->y.blocks;
    const size_t first = (size_t)(item % chunks) * NORM_PIXELS, pixels = norm_pixels(norm);
    (void)thread;
    for (size_t i = first; i < pixels && i < first + NORM_PIXELS; i++) {
        const float *x = norm->x.data + (size_t)image * norm->x.image + i * CPU_BLOCK;
        float *y = norm->y.data + (size_t)image * norm->y.image + i * CPU_BLOCK;
        double sum = 0, squares = 0;
        for (int b = 0; b < blocks; b++)
            for (int k = 0; k < CPU_BLOCK; k++) /* padding is 0 */
                sum += x[(size_t)b * norm->x.plane + (size_t)k];
        const double mean = sum / norm->channels;
        for (int b = 0; b < blocks; b++)
            for (int k = 0; k < norm->used[b]; k++) {
                const double d = x[(size_t)b * norm->x.plane + (size_t)k] - mean;
                squares += d * d;
            }
        const double rest = norm->args.unbiased ? norm->channels - 1 : norm->channels;
        const double factor = 1 / sqrt(squares / rest + (double)norm->args.epsilon);
        for (int b = 0; b < blocks; b++)
            for (int k = 0; k < CPU_BLOCK; k++) {
                double v = (x[(size_t)b * norm->x.plane + (size_t)k] - mean) * factor;
                if (norm->weight)
                    v *= norm->weight[b * CPU_BLOCK + k];
                if (norm->bias)
                    v += norm->bias[b * CPU_BLOCK + k];
                y[(size_t)b * norm->y.plane + (size_t)k] = k < norm->used[b] ? (float)v : 0;
            }
    }
}

static void norm_run_layer(const struct cpu_task *task, const struct cpu_run *run)
{
    struct cpu_norm norm = task->norm;
    cpu_pool_run(run->pool, norm.y.n * norm_chunks(&norm), norm_layer_item, &norm);
}

static enum error_code norm_lanes(struct cpu_build *build, const struct param *param, const struct cpu_layout *layout,
                                  const float **out, struct error *err)
{
    const struct cpu_pack_key key = {.param = param, .kind = CPU_PACK_TENSOR, .taps = 1, .out = *layout};
    *out = NULL;
    return param ? cpu_pack_get(build->device, &key, out, err) : OK;
}

enum error_code cpu_norm_node(struct cpu_build *build, const struct node *node, struct error *err)
{
    const bool layer = node->kind == OP_LAYER_NORM;
    struct cpu_task task = {.run = layer ? norm_run_layer : norm_run_group};
    struct cpu_norm *norm = &task.norm;
    struct cpu_layout layout;
    void *memory = NULL;
    cpu_pack_layout(build->graph, node->out, &layout);
    norm->channels = layout.channels;
    norm->args = node->args.norm;
    enum error_code code = cpu_plan_operand(build, node->out, NULL, &norm->y, err);
    if (code == OK)
        code = cpu_plan_operand(build, node->in[OP_X], &layout, &norm->x, err);
    if (code == OK)
        code = cpu_plan_operand(build, node->in[OP_RESIDUAL1], &layout, &norm->like, err);
    if (code == OK)
        code = norm_lanes(build, node->param[OP_WEIGHT], &layout, &norm->weight, err);
    if (code == OK)
        code = norm_lanes(build, node->param[OP_BIAS], &layout, &norm->bias, err);
    if (code == OK)
        code = cpu_attention_lanes(build, node->out, &norm->lanes, err);
    if (code == OK)
        code = cpu_plan_memory(build, (size_t)layout.blocks * sizeof(int), &memory, err);
    if (code != OK)
        return code;
    cpu_pack_lanes(&layout, NULL, memory);
    norm->used = memory;
    const size_t blocks = (size_t)norm->y.n * (size_t)norm->y.blocks;
    const size_t sums = blocks * (size_t)norm_chunks(norm) * NORM_SUMS * (sizeof(double) / sizeof(float));
    return cpu_plan_add(build, &task, layer ? 0 : sums + 2 * blocks * CPU_BLOCK, 0, err);
}
