#include "runtime/cpu/cpu_attention.h"

#include <math.h>
#include <string.h>

/* One image's heads are packed for the matrix product: queries as rows [head][token][channel], keys and values as
 * weights, [head][16 tokens][channel][16 tokens] and [head][16 channels][token][16 channels]; channels and tokens are
 * filled up with zeros to multiples of 16. */
struct attention_run {
    const struct cpu_attention *a;
    const struct cpu_run *run;
    int image, tokens, each; /* each: channels of a head */
    size_t wide, long_;      /* channels of a head and tokens, filled up */
    float *q, *k, *v;
};

static size_t attention_up(size_t n)
{
    return (n + CPU_BLOCK - 1) / CPU_BLOCK * CPU_BLOCK;
}

/* Packs a head. */
static void attention_pack(void *context, int head, int thread)
{
    const struct attention_run *r = context;
    const struct cpu_attention *a = r->a;
    const size_t size = r->wide * r->long_;
    float *q = r->q + (size_t)head * size, *k = r->k + (size_t)head * size, *v = r->v + (size_t)head * size;
    (void)thread;
    memset(q, 0, size * sizeof *q);
    memset(k, 0, size * sizeof *k);
    memset(v, 0, size * sizeof *v);
    for (int i = 0; i < r->each; i++) {
        const size_t c = (size_t)i, channel = (size_t)(head * r->each + i);
        const float *from[3] = {cpu_attention_lane(&a->q, r->image, a->lanes[0][channel]),
                                cpu_attention_lane(&a->k, r->image, a->lanes[1][channel]),
                                cpu_attention_lane(&a->v, r->image, a->lanes[2][channel])};
        for (size_t t = 0; t < (size_t)r->tokens; t++) {
            q[t * r->wide + c] = from[0][t * CPU_BLOCK] * a->args.scale;
            k[(t / CPU_BLOCK * r->wide + c) * CPU_BLOCK + t % CPU_BLOCK] = from[1][t * CPU_BLOCK];
            v[(c / CPU_BLOCK * r->long_ + t) * CPU_BLOCK + c % CPU_BLOCK] = from[2][t * CPU_BLOCK];
        }
    }
}

/* A product of rows with weights of `blocks` blocks of outputs: out[row][blocks*16]. */
static void attention_product(const struct attention_run *r, const float *const *rows, int row_count,
                              const float *weight, size_t length, size_t blocks, float *out, float *part)
{
    const struct cpu_term all = {0, length};
    const size_t most = (size_t)r->run->isa->gemm_cols;
    for (size_t b = 0; b < blocks; b += most) {
        const size_t cols = blocks - b < most ? blocks - b : most;
        r->run->isa->gemm(rows, row_count, weight + b * length * CPU_BLOCK, length * CPU_BLOCK, (int)cols, &all, 1,
                          part);
        for (int i = 0; i < row_count; i++)
            memcpy(out + ((size_t)i * blocks + b) * CPU_BLOCK, part + (size_t)i * cols * CPU_BLOCK,
                   cols * CPU_BLOCK * sizeof *out);
    }
}

static void attention_softmax(float *scores, int tokens)
{
    float most = -INFINITY;
    double sum = 0;
    for (int j = 0; j < tokens; j++)
        most = scores[j] > most ? scores[j] : most;
    for (int j = 0; j < tokens; j++) {
        scores[j] = expf(scores[j] - most);
        sum += scores[j];
    }
    const float factor = (float)(1 / sum);
    for (int j = 0; j < tokens; j++)
        scores[j] *= factor;
}

/* Some queries of a head. */
static void attention_item(void *context, int item, int thread)
{
    const struct attention_run *r = context;
    const struct cpu_attention *a = r->a;
    const int groups = (r->tokens + CPU_GEMM_ROWS - 1) / CPU_GEMM_ROWS, head = item / groups;
    const int first = item % groups * CPU_GEMM_ROWS;
    const int count = r->tokens - first < CPU_GEMM_ROWS ? r->tokens - first : CPU_GEMM_ROWS;
    const size_t size = r->wide * r->long_;
    float *scores = r->run->own + (size_t)thread * r->run->own_floats, *sums = scores + CPU_GEMM_ROWS * r->long_,
          *part = sums + CPU_GEMM_ROWS * r->wide;
    const float *rows[CPU_GEMM_ROWS] = {NULL};
    for (int i = 0; i < count; i++)
        rows[i] = r->q + (size_t)head * size + (size_t)(first + i) * r->wide;
    attention_product(r, rows, count, r->k + (size_t)head * size, r->wide, r->long_ / CPU_BLOCK, scores, part);
    for (int i = 0; i < count; i++) {
        float *row = scores + (size_t)i * r->long_;
        attention_softmax(row, r->tokens);
        memset(row + r->tokens, 0, (r->long_ - (size_t)r->tokens) * sizeof *row);
        rows[i] = row;
    }
    attention_product(r, rows, count, r->v + (size_t)head * size, r->long_, r->wide / CPU_BLOCK, sums, part);
    for (int c = 0; c < r->each; c++) {
        const int lane = a->lanes[3][head * r->each + c];
        float *to =
            a->y.data + (size_t)r->image * a->y.image + (size_t)(lane / CPU_BLOCK) * a->y.plane + lane % CPU_BLOCK;
        for (int i = 0; i < count; i++)
            to[(size_t)(first + i) * CPU_BLOCK] = sums[(size_t)i * r->wide + (size_t)c];
    }
}

static void attention_run(const struct cpu_task *task, const struct cpu_run *run)
{
    const struct cpu_attention *a = &task->attention;
    const int heads = a->args.heads;
    struct attention_run r = {.a = a, .run = run, .tokens = a->y.h * a->y.w, .each = a->channels / heads};
    r.wide = attention_up((size_t)r.each);
    r.long_ = attention_up((size_t)r.tokens);
    r.q = run->shared;
    r.k = r.q + (size_t)heads * r.wide * r.long_;
    r.v = r.k + (size_t)heads * r.wide * r.long_;
    for (; r.image < a->y.n; r.image++) {
        for (int b = 0; b < a->y.blocks; b++) /* the padding */
            memset(a->y.data + (size_t)r.image * a->y.image + (size_t)b * a->y.plane, 0,
                   (size_t)r.tokens * CPU_BLOCK * sizeof(float));
        cpu_pool_run(run->pool, heads, attention_pack, &r);
        cpu_pool_run(run->pool, heads * ((r.tokens + CPU_GEMM_ROWS - 1) / CPU_GEMM_ROWS), attention_item, &r);
    }
}

enum error_code cpu_attention_lanes(struct cpu_build *build, struct view view, const int **out, struct error *err)
{
    struct cpu_layout layout;
    void *memory = NULL;
    cpu_pack_layout(build->graph, view, &layout);
    enum error_code code = cpu_plan_memory(build, (size_t)layout.channels * sizeof(int), &memory, err);
    if (code == OK)
        cpu_pack_lanes(&layout, memory, NULL);
    *out = memory;
    return code;
}

enum error_code cpu_attention_node(struct cpu_build *build, const struct node *node, struct error *err)
{
    struct cpu_task task = {.run = attention_run};
    struct cpu_attention *a = &task.attention;
    struct cpu_operand *operands[4] = {&a->q, &a->k, &a->v, &a->y};
    const struct view views[4] = {node->in[OP_X], node->in[OP_RESIDUAL1], node->in[OP_RESIDUAL2], node->out};
    enum error_code code = OK;
    for (int i = 0; i < 4 && code == OK; i++) {
        code = cpu_plan_operand(build, views[i], NULL, operands[i], err);
        if (code == OK)
            code = cpu_attention_lanes(build, views[i], &a->lanes[i], err);
    }
    if (code != OK)
        return code;
    a->channels = graph_channels(build->graph, node->out);
    a->args = node->args.attention;
    const size_t wide = attention_up((size_t)(a->channels / a->args.heads)),
                 tokens = attention_up((size_t)a->y.h * (size_t)a->y.w);
    return cpu_plan_add(build, &task, 3 * (size_t)a->args.heads * wide * tokens,
                        CPU_GEMM_ROWS * (tokens + wide + CPU_GEMM_COLS * CPU_BLOCK), err);
}
