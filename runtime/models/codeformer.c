/* CodeFormer (Zhou et al. 2022, "Towards Robust Blind Face Restoration with Codebook Lookup Transformer"; names as in
 * its codeformer_arch.py): a transformer guesses from the encoder's features, pixel by pixel, which entries of a
 * codebook the face is made of; the generator makes it of these, and adds w of what the encoder saw. What the file does
 * not tell is that the transformer has 8 heads and the encoder's attention one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/vqgan.h"

#define CODEFORMER_LEVELS 8 /* at most; there are 6 */
#define CODEFORMER_HEADS 8

enum codeformer_block { BLOCK_NONE, BLOCK_CONV, BLOCK_NORM, BLOCK_RESIDUAL, BLOCK_ATTENTION, BLOCK_SIZE };

/* What encoder.blocks.I or generator.blocks.I is. BLOCK_SIZE: it halves, or doubles. */
static enum codeformer_block codeformer_block(const struct weights *weights, const char *path, int i)
{
    if (weights_find(weights, build_name("%s.%d.norm1.weight", path, i)))
        return BLOCK_RESIDUAL;
    if (weights_find(weights, build_name("%s.%d.q.weight", path, i)))
        return BLOCK_ATTENTION;
    if (weights_find(weights, build_name("%s.%d.conv.weight", path, i)))
        return BLOCK_SIZE;
    const struct weights_tensor *t = weights_find(weights, build_name("%s.%d.weight", path, i));
    return !t ? BLOCK_NONE : t->rank == 1 ? BLOCK_NORM : BLOCK_CONV;
}

static bool codeformer_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    static const char *const names[] = {"idx_pred_layer.1.weight", "quantize.embedding.weight",
                                        "ft_layers.0.self_attn.in_proj_weight", "encoder.blocks.0.weight"};
    const int tokens = build_dim(weights, "position_emb", 0);
    int levels = 1, side = 1;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!weights_find(weights, names[i]))
            return false;
    if (tokens < 1)
        return false;
    for (int i = 0; codeformer_block(weights, "encoder.blocks", i) != BLOCK_NONE; i++)
        levels += codeformer_block(weights, "encoder.blocks", i) == BLOCK_SIZE;
    while (side * side < tokens && side < 256)
        side++;
    if (side * side != tokens || levels > CODEFORMER_LEVELS)
        error_set(err, ERROR_UNSUPPORTED,
                  "a CodeFormer of %d tokens and %d levels; %d levels and a square are supported", tokens, levels,
                  CODEFORMER_LEVELS);
    info->kind = MODEL_FACE;
    info->architecture = "CodeFormer";
    info->face_size = side << (levels - 1 < CODEFORMER_LEVELS ? levels - 1 : 0);
    info->fidelity = true;
    return !err->code;
}

static void codeformer_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->face_size;
    shape->variant = MODEL_FIDELITY;
}

/* ---- the transformer: tokens are pixels, and its linear layers 1×1 convolutions ---- */

static struct node *codeformer_linear(struct model_build *b, const char *name, struct view x, struct view *out)
{
    const int channels = x.tensor < 0 ? 0 : build_size(b, build_name("%s.weight", name), 0);
    *out = channels > 0 ? build_like(b, x, channels) : VIEW_NONE;
    if (out->tensor < 0)
        return build_conv_of(b, NULL, VIEW_NONE, VIEW_NONE, 1);
    const int shape[2] = {channels, graph_channels(b->graph, x)};
    struct node *conv = build_conv_of(b, build_param(b, build_name("%s.weight", name), 2, shape), x, *out, 1);
    if (weights_find(model_weights(b->model), build_name("%s.bias", name)))
        conv->param[OP_BIAS] = build_param(b, build_name("%s.bias", name), 1, shape);
    return conv;
}

static struct view codeformer_norm(struct model_build *b, const char *name, struct view x)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct view out = build_like(b, x, graph_channels(b->graph, x));
    build_norm_layer(b, name, OP_LAYER_NORM, x, out);
    return out;
}

/* x + factor*y, into a new tensor or into `out`. */
static struct view codeformer_add(struct model_build *b, struct view x, struct view y, float factor, struct view out)
{
    if (x.tensor < 0 || y.tensor < 0)
        return VIEW_NONE;
    if (out.tensor < 0)
        out = build_like(b, x, graph_channels(b->graph, x));
    struct node *node = graph_node(b->graph, OP_ADD, out);
    if (node) {
        node->in[OP_X] = x;
        node->in[OP_RESIDUAL1] = y;
        node->args.add = (struct op_add){.x_scale = 1, .residual1_scale = factor};
    }
    return out;
}

/* A part of in_proj_weight or in_proj_bias, whose rows are those of queries, keys and values. name: "TENSOR.asked": the
 * first two, or "TENSOR.values". */
static void codeformer_fill_part(struct model_build *b, const char *name, float *values, size_t count)
{
    const char *point = strrchr(name, '.');
    const struct weights_tensor *t =
        weights_find(model_weights(b->model), build_name("%.*s", (int)(point - name), name));
    const bool asked = strcmp(point, ".asked") == 0;
    if (!t || t->count != (asked ? count / 2 * 3 : count * 3)) {
        build_fail(b, ERROR_CORRUPT, "tensor %.*s is missing or of another size", (int)(point - name), name);
        return;
    }
    float *all = mem_alloc(t->count, sizeof *all);
    if (!all) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return;
    }
    weights_read_f32(t, all);
    memcpy(values, all + (asked ? 0 : t->count - count), count * sizeof *values);
    free(all);
}

/* Queries and keys, or values, of x: `parts` segments. */
static struct view codeformer_project(struct model_build *b, const char *name, const char *part, struct view x,
                                      int parts)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int channels = graph_channels(b->graph, x), segments[2] = {channels, channels};
    const size_t rows = (size_t)parts * (size_t)channels;
    const struct param *weight = build_derived(b, build_name("%s.self_attn.in_proj_weight.%s", name, part),
                                               rows * (size_t)channels, codeformer_fill_part);
    const struct param *bias =
        build_derived(b, build_name("%s.self_attn.in_proj_bias.%s", name, part), rows, codeformer_fill_part);
    const struct view out = graph_tensor(b->graph, TENSOR_TEMP, t.n, t.h, t.w, parts, segments);
    build_conv_of(b, weight, x, out, 1)->param[OP_BIAS] = bias;
    return out;
}

static struct view codeformer_layer(struct model_build *b, const char *name, struct view x, struct view position)
{
    const struct view y = codeformer_norm(b, build_name("%s.norm1", name), x);
    const struct view asked = codeformer_project(b, name, "asked", codeformer_add(b, y, position, 1, VIEW_NONE), 2);
    const struct view values = codeformer_project(b, name, "values", y, 1);
    if (asked.tensor < 0 || values.tensor < 0)
        return VIEW_NONE;
    const int channels = graph_channels(b->graph, x);
    struct view seen = build_like(b, x, channels), out, wide, last;
    struct node *node = graph_node(b->graph, OP_ATTENTION, seen);
    if (node) {
        node->in[OP_X] = graph_segments(asked, 0, 1);
        node->in[OP_RESIDUAL1] = graph_segments(asked, 1, 1);
        node->in[OP_RESIDUAL2] = values;
        node->args.attention = (struct op_attention){.heads = CODEFORMER_HEADS,
                                                     .scale = (float)(1 / sqrt((double)channels / CODEFORMER_HEADS))};
    }
    node = codeformer_linear(b, build_name("%s.self_attn.out_proj", name), seen, &out);
    node->in[OP_RESIDUAL1] = x;
    node->args.conv2d.residual1_scale = 1;
    codeformer_linear(b, build_name("%s.linear1", name), codeformer_norm(b, build_name("%s.norm2", name), out), &wide)
        ->args.conv2d.activation = ACTIVATION_GELU;
    node = codeformer_linear(b, build_name("%s.linear2", name), wide, &last);
    node->in[OP_RESIDUAL1] = out;
    node->args.conv2d.residual1_scale = 1;
    return last;
}

/* position_emb, [token][channel], as a picture. */
static void codeformer_fill_position(struct model_build *b, const char *name, float *values, size_t count)
{
    const struct weights_tensor *t = weights_find(model_weights(b->model), "position_emb");
    (void)name;
    if (!t || t->rank != 2 || t->count != count) {
        build_fail(b, ERROR_CORRUPT, "tensor position_emb is missing or of another size");
        return;
    }
    float *from = mem_alloc(count, sizeof *from);
    if (!from) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return;
    }
    weights_read_f32(t, from);
    const size_t tokens = (size_t)t->shape[0], channels = (size_t)t->shape[1];
    for (size_t i = 0; i < count; i++)
        values[i] = from[i % tokens * channels + i / tokens];
    free(from);
}

/* The entries of the codebook for the encoder's features. */
static struct view codeformer_guess(struct model_build *b, struct view feature)
{
    struct view x, scores;
    codeformer_linear(b, "feat_emb", feature, &x);
    if (x.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int channels = graph_channels(b->graph, x);
    const struct param *map =
        build_derived(b, "position_emb.map", (size_t)channels * (size_t)t.h * (size_t)t.w, codeformer_fill_position);
    const struct view position = map ? graph_constant(b->graph, map, channels, t.h, t.w) : VIEW_NONE;
    const int layers = build_blocks(b, "ft_layers.", 0, ".norm1.weight");
    for (int i = 0; i < layers; i++)
        x = codeformer_layer(b, build_name("ft_layers.%d", i), x, position);
    codeformer_linear(b, "idx_pred_layer.1", codeformer_norm(b, "idx_pred_layer.0", x), &scores);
    return vqgan_entry(b, "quantize.embedding", scores);
}

/* x with the mean and the deviation that each channel has in `like`. */
static struct view codeformer_adain(struct model_build *b, struct view x, struct view like)
{
    if (x.tensor < 0 || like.tensor < 0)
        return VIEW_NONE;
    const int channels = graph_channels(b->graph, x);
    const struct view out = build_like(b, x, channels);
    struct node *node = graph_node(b->graph, OP_GROUP_NORM, out);
    if (node) {
        node->in[OP_X] = x;
        node->in[OP_RESIDUAL1] = like;
        node->args.norm = (struct op_norm){.groups = channels, .epsilon = 1e-5f, .unbiased = true};
    }
    return out;
}

/* ---- fusion ---- */

static struct view codeformer_factor(struct model_build *b, const char *name, struct view x)
{
    const struct view middle = build_like(b, x, build_size(b, build_name("%s.0.weight", name), 0));
    struct op_conv2d *args = &build_conv(b, build_name("%s.0", name), x, middle, 3)->args.conv2d;
    args->activation = ACTIVATION_LEAKY;
    args->slope = 0.2f;
    return vqgan_conv(b, build_name("%s.2", name), middle, 3);
}

/* x + w*(x*scale + shift); both are made of x and of what the encoder had at this size. */
static struct view codeformer_fuse(struct model_build *b, const char *name, struct view seen, struct view x, float w)
{
    if (x.tensor < 0 || seen.tensor < 0)
        return VIEW_NONE;
    const struct tensor t = *graph_tensor_of(b->graph, x);
    const int segments[2] = {graph_channels(b->graph, seen), graph_channels(b->graph, x)};
    const struct view both = graph_tensor(b->graph, TENSOR_TEMP, t.n, t.h, t.w, 2, segments);
    codeformer_add(b, seen, seen, 0, graph_segments(both, 0, 1));
    codeformer_add(b, x, x, 0, graph_segments(both, 1, 1));
    const struct view y = vqgan_residual(b, build_name("%s.encode_enc", name), "conv_out", both);
    const struct view scale = codeformer_factor(b, build_name("%s.scale", name), y),
                      shift = codeformer_factor(b, build_name("%s.shift", name), y),
                      change = build_like(b, x, segments[1]);
    struct node *node = graph_node(b->graph, OP_SCALE_SHIFT, change);
    if (node) {
        node->in[OP_X] = x;
        node->in[OP_RESIDUAL1] = scale;
        node->in[OP_RESIDUAL2] = shift;
    }
    return codeformer_add(b, x, change, w, VIEW_NONE);
}

/* ---- the two halves ---- */

/* One block of those that keep the size. */
static struct view codeformer_step(struct model_build *b, const char *path, int i, enum codeformer_block kind,
                                   struct view x)
{
    const struct build_text name = build_text("%s.%d", path, i);
    switch (kind) {
    case BLOCK_CONV:
        return vqgan_conv(b, name.text, x, 3);
    case BLOCK_NORM:
        return vqgan_norm(b, name.text, x, false);
    case BLOCK_RESIDUAL:
        return vqgan_residual(b, name.text, "conv_out", x);
    default:
        return vqgan_attention(b, name.text, "norm", "norm", x, VIEW_NONE, 1);
    }
}

static struct view codeformer_encode(struct model_build *b, struct view x, struct view kept[CODEFORMER_LEVELS],
                                     int *levels)
{
    const char *path = "encoder.blocks";
    enum codeformer_block kind;
    *levels = 1;
    for (int i = 0; (kind = codeformer_block(model_weights(b->model), path, i)) != BLOCK_NONE; i++) {
        if (kind != BLOCK_SIZE) {
            x = codeformer_step(b, path, i, kind, x);
        } else if (*levels < CODEFORMER_LEVELS) {
            kept[*levels - 1] = x;
            x = vqgan_halve(b, build_name("%s.%d.conv", path, i), x);
            ++*levels;
        }
    }
    return x;
}

/* Features are fused behind the first block of each size but the smallest. */
static struct view codeformer_generate(struct model_build *b, struct view x, const struct view *kept, int levels,
                                       float w, struct view out)
{
    const struct weights *weights = model_weights(b->model);
    const char *path = "generator.blocks";
    enum codeformer_block kind;
    bool doubled = false;
    for (int i = 0, level = levels - 1; (kind = codeformer_block(weights, path, i)) != BLOCK_NONE; i++) {
        if (kind == BLOCK_SIZE && level > 0) {
            x = vqgan_double(b, build_name("%s.%d.conv", path, i), x);
            level--;
            doubled = true;
            continue;
        }
        if (codeformer_block(weights, path, i + 1) == BLOCK_NONE) {
            build_conv(b, build_name("%s.%d", path, i), x, out, 3);
            return out;
        }
        x = codeformer_step(b, path, i, kind, x);
        if (!doubled || x.tensor < 0)
            continue;
        doubled = false;
        const struct build_text fuse = build_text("fuse_convs_dict.%d", graph_tensor_of(b->graph, x)->h);
        if (w > 0 && weights_find(weights, build_name("%s.scale.0.weight", fuse.text)))
            x = codeformer_fuse(b, fuse.text, kept[level], x, w);
    }
    return VIEW_NONE;
}

static void codeformer_build(struct model_build *b, const struct session_shape *shape)
{
    const int size = model_info(b->model)->face_size, rgb = 3;
    struct view kept[CODEFORMER_LEVELS];
    int levels;
    if (shape->h != size || shape->w != size) {
        build_fail(b, ERROR_INVALID, "the face network takes %d×%d px, not %d×%d", size, size, shape->w, shape->h);
        return;
    }
    b->graph->fp32 = true; /* or other entries would be guessed */
    const struct view x = graph_tensor(b->graph, TENSOR_INPUT, shape->n, size, size, 1, &rgb),
                      feature = codeformer_encode(b, x, kept, &levels),
                      made = codeformer_adain(b, codeformer_guess(b, feature), feature);
    b->graph->fp32 = false;
    const struct view out = graph_tensor(b->graph, TENSOR_OUTPUT, shape->n, size, size, 1, &rgb);
    const struct view last = codeformer_generate(b, made, kept, levels, (float)shape->variant / MODEL_FIDELITY, out);
    if (last.tensor < 0)
        build_fail(b, ERROR_CORRUPT, "the generator has no blocks");
}

const struct architecture architecture_codeformer = {codeformer_detect, codeformer_build, codeformer_smallest};
