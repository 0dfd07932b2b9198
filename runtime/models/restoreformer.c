/* RestoreFormer (Wang et al. 2022, "RestoreFormer: High-Quality Blind Face Restoration from Undegraded Key-Value
 * Pairs") and RestoreFormer++ (2023): a VQGAN whose decoder asks the encoder's features by cross attention. The latter
 * does so at 32×32, too, with 4 heads instead of 8; its file is a training checkpoint, where all names begin with
 * "vqvae.". What the file does not tell is that the deepest level has 16×16 pixels. */
#include "runtime/models/vqgan.h"

#define RESTOREFORMER_LEVELS 8 /* at most; there are 6 */
#define RESTOREFORMER_DEEPEST 16

/* What all names begin with. */
static const char *restoreformer_prefix(const struct weights *weights)
{
    return weights_find(weights, "vqvae.quantize.embedding.weight") ? "vqvae." : "";
}

static int restoreformer_levels(const struct weights *weights)
{
    const char *prefix = restoreformer_prefix(weights);
    int levels = 0;
    while (weights_find(weights, build_name("%sencoder.down.%d.block.0.norm1.weight", prefix, levels)))
        levels++;
    return levels;
}

/* Whether the decoder attends above its deepest level. */
static bool restoreformer_is_plus(const struct weights *weights, int levels)
{
    return weights_find(weights, build_name("%sdecoder.up.%d.attn.0.q.weight", restoreformer_prefix(weights),
                                            levels - 2)) != NULL;
}

static bool restoreformer_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    static const char *const names[] = {"quantize.embedding", "encoder.conv_in", "quant_conv", "decoder.conv_out",
                                        "decoder.mid.attn_1.norm2"}; /* other VQGANs have but one norm there */
    const int levels = restoreformer_levels(weights);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!weights_find(weights, build_name("%s%s.weight", restoreformer_prefix(weights), names[i])))
            return false;
    if (levels < 1)
        return false;
    if (levels > RESTOREFORMER_LEVELS)
        error_set(err, ERROR_UNSUPPORTED, "a RestoreFormer of %d levels; at most %d are supported", levels,
                  RESTOREFORMER_LEVELS);
    info->kind = MODEL_FACE;
    info->architecture = restoreformer_is_plus(weights, levels) ? "RestoreFormer++" : "RestoreFormer";
    info->face_size = RESTOREFORMER_DEEPEST << (levels < RESTOREFORMER_LEVELS ? levels - 1 : 0);
    return !err->code;
}

static void restoreformer_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = info->face_size;
}

/* The blocks of encoder.down.I or decoder.up.I, each with its attention if there is one. */
static struct view restoreformer_level(struct model_build *b, const char *name, struct view x, struct view from,
                                       int heads)
{
    const struct weights *weights = model_weights(b->model);
    const int blocks = build_blocks(b, build_name("%s.block.", name), 0, ".norm1.weight");
    const bool attends = weights_find(weights, build_name("%s.attn.0.q.weight", name)) != NULL;
    for (int i = 0; i < blocks; i++) {
        x = vqgan_residual(b, build_name("%s.block.%d", name, i), "nin_shortcut", x);
        if (attends)
            x = vqgan_attention(b, build_name("%s.attn.%d", name, i), "norm1", "norm2", x, from, heads);
    }
    return x;
}

static void restoreformer_build(struct model_build *b, const struct session_shape *shape)
{
    const struct weights *weights = model_weights(b->model);
    const char *prefix = restoreformer_prefix(weights);
    const int levels = restoreformer_levels(weights), size = model_info(b->model)->face_size, rgb = 3;
    const int heads = restoreformer_is_plus(weights, levels) ? 4 : 8;
    const struct build_text encoder = build_text("%sencoder", prefix), decoder = build_text("%sdecoder", prefix);
    struct view kept[RESTOREFORMER_LEVELS];
    if (shape->h != size || shape->w != size) {
        build_fail(b, ERROR_INVALID, "the face network takes %d×%d px, not %d×%d", size, size, shape->w, shape->h);
        return;
    }
    build_blocks(b, build_name("%s.down.", encoder.text), 0, ".block.0.norm1.weight");
    b->graph->fp32 = true; /* or other entries would be the nearest */
    struct view x = graph_tensor(b->graph, TENSOR_INPUT, shape->n, size, size, 1, &rgb);
    x = vqgan_conv(b, build_name("%s.conv_in", encoder.text), x, 3);
    for (int i = 0; i < levels; i++) {
        kept[i] = x = restoreformer_level(b, build_name("%s.down.%d", encoder.text, i), x, VIEW_NONE, heads);
        if (i < levels - 1)
            x = vqgan_halve(b, build_name("%s.down.%d.downsample.conv", encoder.text, i), x);
    }
    kept[levels - 1] = x = vqgan_residual(b, build_name("%s.mid.block_1", encoder.text), "nin_shortcut", x);
    x = vqgan_attention(b, build_name("%s.mid.attn_1", encoder.text), "norm1", "norm2", x, VIEW_NONE, heads);
    const struct view deepest = x = vqgan_residual(b, build_name("%s.mid.block_2", encoder.text), "nin_shortcut", x);
    x = vqgan_norm(b, build_name("%s.norm_out", encoder.text), x, true);
    x = vqgan_conv(b, build_name("%s.conv_out", encoder.text), x, 3);
    x = vqgan_conv(b, build_name("%squant_conv", prefix), x, 1);
    x = vqgan_nearest(b, build_name("%squantize.embedding", prefix), x);
    b->graph->fp32 = false;
    x = vqgan_conv(b, build_name("%spost_quant_conv", prefix), x, 1);
    x = vqgan_conv(b, build_name("%s.conv_in", decoder.text), x, 3);
    x = vqgan_residual(b, build_name("%s.mid.block_1", decoder.text), "nin_shortcut", x);
    x = vqgan_attention(b, build_name("%s.mid.attn_1", decoder.text), "norm1", "norm2", x, deepest, heads);
    x = vqgan_residual(b, build_name("%s.mid.block_2", decoder.text), "nin_shortcut", x);
    for (int i = levels - 1; i >= 0; i--) {
        x = restoreformer_level(b, build_name("%s.up.%d", decoder.text, i), x, kept[i], heads);
        if (i)
            x = vqgan_double(b, build_name("%s.up.%d.upsample.conv", decoder.text, i), x);
    }
    x = vqgan_norm(b, build_name("%s.norm_out", decoder.text), x, true);
    build_conv(b, build_name("%s.conv_out", decoder.text), x,
               graph_tensor(b->graph, TENSOR_OUTPUT, shape->n, size, size, 1, &rgb), 3);
}

const struct architecture architecture_restoreformer = {restoreformer_detect, restoreformer_build,
                                                        restoreformer_smallest};
