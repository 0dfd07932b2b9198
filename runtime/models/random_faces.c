/* Networks of faces: what finds, restores and parses them. */
#include <math.h>
#include <string.h>

#include "runtime/models/random_networks.h"

static void random_gfpgan_block(struct random_file *f, int out, int in, const char *name)
{
    random_conv(f, in, in, 3, 0.7f, true, NAME("%s.conv1", name));
    random_conv(f, out, in, 3, 0.7f, true, NAME("%s.conv2", name));
    random_conv(f, out, in, 1, 0.5f, false, NAME("%s.skip", name));
}

static void random_gfpgan_modulated(struct random_file *f, int out, int in, int kernel, float gain, const char *name)
{
    random_tensor(f, 0, gain / sqrtf((float)(in * kernel * kernel)), SHAPE(1, out, in, kernel, kernel), "%s.weight",
                  name);
    random_tensor(f, 0, 0.1f / sqrtf(512), SHAPE(in, 512), "%s.modulation.weight", name);
    random_tensor(f, 1, 0, SHAPE(in), "%s.modulation.bias", name);
}

static void random_gfpgan_style(struct random_file *f, int out, int in, const char *name)
{
    random_tensor(f, 0.05f, 0, SHAPE(1), "%s.weight", name);
    random_tensor(f, 0, 0.02f, SHAPE(1, out, 1, 1), "%s.bias", name);
    random_gfpgan_modulated(f, out, in, 3, 1, NAME("%s.modulated_conv", name));
}

/* GFPGANv1Clean at 512 px, channel multiplier 2. */
void random_gfpgan(struct random_file *f)
{
    static const int wide[8] = {512, 512, 512, 512, 512, 256, 128, 64}; /* the decoder's, at 4, 8, … 512 px */
    random_conv(f, wide[7] / 2, 3, 1, 1, true, "conv_body_first");
    for (int i = 0; i < 7; i++)
        random_gfpgan_block(f, wide[6 - i] / 2, wide[7 - i] / 2, NAME("conv_body_down.%d", i));
    random_conv(f, wide[0] / 2, wide[0] / 2, 3, 0.7f, true, "final_conv");
    for (int i = 0; i < 7; i++)
        random_gfpgan_block(f, wide[i + 1] / 2, wide[i] / 2, NAME("conv_body_up.%d", i));
    for (int i = 0; i < 7; i++)
        random_conv(f, 3, wide[i + 1] / 2, 1, 0.5f, true, NAME("toRGB.%d", i));
    random_tensor(f, 0, 1 / sqrtf(4096), SHAPE(16 * 512, 4096), "final_linear.weight");
    random_tensor(f, 0, 0.1f, SHAPE(16 * 512), "final_linear.bias");
    random_tensor(f, 0, 1, SHAPE(1, 512, 4, 4), "stylegan_decoder.constant_input.weight");
    random_gfpgan_style(f, 512, 512, "stylegan_decoder.style_conv1");
    random_tensor(f, 0, 0.02f, SHAPE(1, 3, 1, 1), "stylegan_decoder.to_rgb1.bias");
    random_gfpgan_modulated(f, 3, 512, 1, 0.3f, "stylegan_decoder.to_rgb1.modulated_conv");
    for (int i = 0; i < 7; i++) {
        random_gfpgan_style(f, wide[i + 1], wide[i], NAME("stylegan_decoder.style_convs.%d", 2 * i));
        random_gfpgan_style(f, wide[i + 1], wide[i + 1], NAME("stylegan_decoder.style_convs.%d", 2 * i + 1));
        random_tensor(f, 0, 0.02f, SHAPE(1, 3, 1, 1), "stylegan_decoder.to_rgbs.%d.bias", i);
        random_gfpgan_modulated(f, 3, wide[i + 1], 1, 0.3f, NAME("stylegan_decoder.to_rgbs.%d.modulated_conv", i));
    }
    for (int i = 0; i < 15; i++)
        random_tensor(f, 0, 1, SHAPE(1, 1, 4 << ((i + 1) / 2), 4 << ((i + 1) / 2)), "stylegan_decoder.noises.noise%d",
                      i);
    for (int i = 0; i < 7; i++)
        for (int shift = 0; shift < 2; shift++) {
            const struct random_text name = random_text("condition_%s.%d", shift ? "shift" : "scale", i);
            const int channels = wide[i + 1] / 2;
            random_conv(f, channels, channels, 3, 0.7f, true, NAME("%s.0", name.text));
            random_conv(f, channels, channels, 3, 0.3f, false, NAME("%s.2", name.text));
            random_tensor(f, shift ? 0 : 1, 0.02f, SHAPE(channels), "%s.2.bias", name.text); /* scales are about 1 */
        }
}

static void random_original_conv(struct random_file *f, int out, int in, int kernel, const char *weight,
                                 const char *bias)
{
    random_tensor(f, 0, 1, SHAPE(out, in, kernel, kernel), "%s.weight", weight);
    if (bias)
        random_tensor(f, 0, 0.02f, SHAPE(out), "%s.bias", bias);
}

static void random_original_block(struct random_file *f, int out, int in, bool up, const char *name)
{
    const struct random_text of = random_text("%s", name);
    random_original_conv(f, in, in, 3, NAME("%s.conv1.0", of.text), NAME("%s.conv1.1", of.text));
    random_original_conv(f, out, in, 3, NAME(up ? "%s.conv2" : "%s.conv2.1", of.text),
                         NAME(up ? "%s.conv2.activation" : "%s.conv2.2", of.text));
    random_original_conv(f, out, in, 1, NAME(up ? "%s.skip" : "%s.skip.1", of.text), NULL);
}

static void random_original_modulated(struct random_file *f, int out, int in, int kernel, const char *name)
{
    random_tensor(f, 0, kernel == 1 ? 0.3f : 1, SHAPE(1, out, in, kernel, kernel), "%s.modulated_conv.weight", name);
    random_tensor(f, 0, 0.1f, SHAPE(in, 512), "%s.modulated_conv.modulation.weight", name);
    random_tensor(f, 1, 0, SHAPE(in), "%s.modulated_conv.modulation.bias", name);
    if (kernel == 1) {
        random_tensor(f, 0, 0.02f, SHAPE(1, 3, 1, 1), "%s.bias", name);
        return;
    }
    random_tensor(f, 0.05f, 0, SHAPE(1), "%s.weight", name);
    random_tensor(f, 0, 0.02f, SHAPE(out), "%s.activate.bias", name);
}

/* GFPGANv1, the original, at 512 px, channel multiplier 1: weights of size 1. */
void random_gfpgan_original(struct random_file *f)
{
    static const int wide[8] = {512, 512, 512, 512, 256, 128, 64, 32}; /* the decoder's, at 4, 8, … 512 px */
    random_original_conv(f, wide[7] / 2, 3, 1, "conv_body_first.0", "conv_body_first.1");
    for (int i = 0; i < 7; i++)
        random_original_block(f, wide[6 - i] / 2, wide[7 - i] / 2, false, NAME("conv_body_down.%d", i));
    random_original_conv(f, wide[0] / 2, wide[0] / 2, 3, "final_conv.0", "final_conv.1");
    for (int i = 0; i < 7; i++)
        random_original_block(f, wide[i + 1] / 2, wide[i] / 2, true, NAME("conv_body_up.%d", i));
    random_tensor(f, 0, 1, SHAPE(16 * 512, 4096), "final_linear.weight");
    random_tensor(f, 0, 0.1f, SHAPE(16 * 512), "final_linear.bias");
    random_tensor(f, 0, 1, SHAPE(1, 512, 4, 4), "stylegan_decoder.constant_input.weight");
    random_original_modulated(f, 512, 512, 3, "stylegan_decoder.style_conv1");
    random_original_modulated(f, 3, 512, 1, "stylegan_decoder.to_rgb1");
    for (int i = 0; i < 7; i++) {
        random_original_modulated(f, wide[i + 1], wide[i], 3, NAME("stylegan_decoder.style_convs.%d", 2 * i));
        random_original_modulated(f, wide[i + 1], wide[i + 1], 3, NAME("stylegan_decoder.style_convs.%d", 2 * i + 1));
        random_original_modulated(f, 3, wide[i + 1], 1, NAME("stylegan_decoder.to_rgbs.%d", i));
    }
    for (int i = 0; i < 15; i++)
        random_tensor(f, 0, 1, SHAPE(1, 1, 4 << ((i + 1) / 2), 4 << ((i + 1) / 2)), "stylegan_decoder.noises.noise%d",
                      i);
    for (int i = 0; i < 28; i++) { /* the second layer of scales is about 0.3 */
        const struct random_text name =
            random_text("condition_%s.%d.%d", i % 2 ? "shift" : "scale", i / 4, i / 2 % 2 * 2);
        const int channels = wide[i / 4 + 1] / 2;
        random_tensor(f, 0, i / 2 % 2 ? 0.3f : 1, SHAPE(channels, channels, 3, 3), "%s.weight", name.text);
        random_tensor(f, i / 2 % 2 && i % 2 == 0 ? 1 : 0, 0.02f, SHAPE(channels), "%s.bias", name.text);
    }
}

/* GroupNorm or LayerNorm. */
static void random_group(struct random_file *f, int channels, const char *name)
{
    random_tensor(f, 1, 0.05f, SHAPE(channels), "%s.weight", name);
    random_tensor(f, 0, 0.02f, SHAPE(channels), "%s.bias", name);
}

/* A VQGAN's blocks; shortcut: what the convolution of a changed number of channels is called. */
static void random_residual(struct random_file *f, int out, int in, const char *shortcut, const char *name)
{
    random_group(f, in, NAME("%s.norm1", name));
    random_conv(f, out, in, 3, 1, true, NAME("%s.conv1", name));
    random_group(f, out, NAME("%s.norm2", name));
    random_conv(f, out, out, 3, 0.3f, true, NAME("%s.conv2", name));
    if (in != out)
        random_conv(f, out, in, 1, 0.7f, true, NAME("%s.%s", name, shortcut));
}

/* norms: 2 in RestoreFormer, 1 in CodeFormer */
static void random_attention(struct random_file *f, int channels, int norms, const char *name)
{
    static const char *const parts[4] = {"q", "k", "v", "proj_out"};
    for (int i = 0; i < norms; i++)
        random_group(f, channels, norms == 1 ? NAME("%s.norm", name) : NAME("%s.norm%d", name, i + 1));
    for (int i = 0; i < 4; i++)
        random_conv(f, channels, channels, 1, 0.5f, true, NAME("%s.%s", name, parts[i]));
}

static const int random_wide[6] = {64, 128, 128, 256, 256, 512}; /* a VQGAN's, at 512, 256, … 16 px */

/* more: levels above the deepest where the decoder attends, too. */
void random_restoreformer(struct random_file *f, int more)
{
    random_tensor(f, 0, 0.5f, SHAPE(1024, 256), "quantize.embedding.weight");
    random_conv(f, 256, 256, 1, 0.7f, true, "quant_conv");
    random_conv(f, 256, 256, 1, 0.7f, true, "post_quant_conv");
    for (int up = 0; up < 2; up++) {
        const char *half = up ? "decoder" : "encoder";
        random_conv(f, up ? 512 : 64, up ? 256 : 3, 3, 0.7f, true, NAME("%s.conv_in", half));
        for (int i = 0; i < 6; i++) {
            const int from = random_wide[up ? (i < 5 ? i + 1 : 5) : (i ? i - 1 : 0)], to = random_wide[i];
            for (int k = 0; k < 2 + up; k++) {
                const struct random_text level = random_text("%s.%s.%d", half, up ? "up" : "down", i);
                random_residual(f, to, k ? to : from, "nin_shortcut", NAME("%s.block.%d", level.text, k));
                if (i >= 5 - (up ? more : 0))
                    random_attention(f, to, 2, NAME("%s.attn.%d", level.text, k));
                if (k == 0 && (up ? i > 0 : i < 5))
                    random_conv(f, to, to, 3, 0.7f, true,
                                NAME("%s.%s.conv", level.text, up ? "upsample" : "downsample"));
            }
        }
        random_residual(f, 512, 512, "", NAME("%s.mid.block_1", half));
        random_attention(f, 512, 2, NAME("%s.mid.attn_1", half));
        random_residual(f, 512, 512, "", NAME("%s.mid.block_2", half));
        random_group(f, up ? 64 : 512, NAME("%s.norm_out", half));
        random_conv(f, up ? 3 : 256, up ? 64 : 512, 3, 0.3f, true, NAME("%s.conv_out", half));
    }
}

static void random_linear(struct random_file *f, int out, int in, float gain, const char *name)
{
    random_tensor(f, 0, gain / sqrtf((float)in), SHAPE(out, in), "%s.weight", name);
    random_tensor(f, 0, 0.02f, SHAPE(out), "%s.bias", name);
}

/* The blocks of one half: each level's, and the three of the middle, which come last in the encoder. */
static void random_codeformer_half(struct random_file *f, const char *path, bool up)
{
    int block = 0, in = up ? 512 : 64;
    random_conv(f, in, up ? 256 : 3, 3, 0.7f, true, NAME("%s.%d", path, block++));
    for (int step = up ? -1 : 0; step < 6 + !up; step++) {
        const int level = up ? 5 - step : step;
        if (step == -1 || step == 6) {
            random_residual(f, 512, 512, "", NAME("%s.%d", path, block++));
            random_attention(f, 512, 1, NAME("%s.%d", path, block++));
            random_residual(f, 512, 512, "", NAME("%s.%d", path, block++));
            continue;
        }
        for (int k = 0; k < 2; k++) {
            random_residual(f, random_wide[level], in, "conv_out", NAME("%s.%d", path, block++));
            in = random_wide[level];
            if (level == 5)
                random_attention(f, in, 1, NAME("%s.%d", path, block++));
        }
        if (step < 5)
            random_conv(f, in, in, 3, 0.7f, true, NAME("%s.%d.conv", path, block++));
    }
    random_group(f, in, NAME("%s.%d", path, block++));
    random_conv(f, up ? 3 : 256, in, 3, 0.3f, true, NAME("%s.%d", path, block++));
}

void random_codeformer(struct random_file *f)
{
    random_tensor(f, 0, 0.1f, SHAPE(256, 512), "position_emb");
    random_tensor(f, 0, 0.5f, SHAPE(1024, 256), "quantize.embedding.weight");
    random_linear(f, 512, 256, 1, "feat_emb");
    for (int i = 0; i < 9; i++) {
        const struct random_text layer = random_text("ft_layers.%d", i);
        random_tensor(f, 0, 0.04f, SHAPE(1536, 512), "%s.self_attn.in_proj_weight", layer.text);
        random_tensor(f, 0, 0.02f, SHAPE(1536), "%s.self_attn.in_proj_bias", layer.text);
        random_linear(f, 512, 512, 0.5f, NAME("%s.self_attn.out_proj", layer.text));
        random_linear(f, 1024, 512, 1, NAME("%s.linear1", layer.text));
        random_linear(f, 512, 1024, 0.5f, NAME("%s.linear2", layer.text));
        random_group(f, 512, NAME("%s.norm1", layer.text));
        random_group(f, 512, NAME("%s.norm2", layer.text));
    }
    random_group(f, 512, "idx_pred_layer.0");
    random_tensor(f, 0, 0.04f, SHAPE(1024, 512), "idx_pred_layer.1.weight");
    random_codeformer_half(f, "encoder.blocks", false);
    random_codeformer_half(f, "generator.blocks", true);
    for (int i = 1; i < 5; i++) {
        const struct random_text fuse = random_text("fuse_convs_dict.%d", 512 >> i);
        const int channels = random_wide[i];
        random_residual(f, channels, 2 * channels, "conv_out", NAME("%s.encode_enc", fuse.text));
        for (int k = 0; k < 4; k++)
            random_conv(f, channels, channels, 3, 0.3f, true,
                        NAME("%s.%s.%d", fuse.text, k < 2 ? "scale" : "shift", k % 2 * 2));
    }
}

static void random_parsenet_block(struct random_file *f, int out, int in, bool shortcut, const char *name)
{
    if (shortcut)
        random_conv(f, out, in, 3, 0.7f, true, NAME("%s.shortcut_func.conv2d", name));
    random_conv(f, out, in, 3, 0.7f, false, NAME("%s.conv1.conv2d", name));
    random_norm(f, out, NAME("%s.conv1.norm.norm", name));
    random_conv(f, out, out, 3, 0.3f, false, NAME("%s.conv2.conv2d", name));
    random_norm(f, out, NAME("%s.conv2.norm.norm", name));
}

void random_parsenet(struct random_file *f)
{
    static const int wide[5] = {64, 128, 256, 256, 256}; /* at 512, 256, … 32 px */
    random_conv(f, 64, 3, 3, 1, true, "encoder.0.conv2d");
    for (int i = 0; i < 4; i++)
        random_parsenet_block(f, wide[i + 1], wide[i], true, NAME("encoder.%d", i + 1));
    for (int i = 0; i < 10; i++)
        random_parsenet_block(f, 256, 256, false, NAME("body.%d", i));
    for (int i = 0; i < 4; i++)
        random_parsenet_block(f, wide[3 - i], wide[4 - i], true, NAME("decoder.%d", i));
    random_conv(f, 3, 64, 3, 0.5f, true, "out_img_conv.conv2d");
    random_conv(f, 19, 64, 3, 0.5f, true, "out_mask_conv.conv2d");
}

static void random_unit(struct random_file *f, int out, int in, int kernel, const char *name)
{
    random_conv(f, out, in, kernel, 0.8f, false, NAME("%s.0", name));
    random_norm(f, out, NAME("%s.1", name));
}

static void random_retinaface_heads(struct random_file *f, const int in[3], int width)
{
    static const struct {
        const char *name;
        int outputs;
    } heads[3] = {{"ClassHead", 4}, {"BboxHead", 8}, {"LandmarkHead", 20}};
    for (int i = 0; i < 3; i++)
        random_unit(f, width, in[i], 1, NAME("fpn.output%d", i + 1));
    for (int i = 0; i < 2; i++)
        random_unit(f, width, width, 3, NAME("fpn.merge%d", i + 1));
    for (int i = 1; i <= 3; i++) {
        random_unit(f, width / 2, width, 3, NAME("ssh%d.conv3X3", i));
        random_unit(f, width / 4, width, 3, NAME("ssh%d.conv5X5_1", i));
        random_unit(f, width / 4, width / 4, 3, NAME("ssh%d.conv5X5_2", i));
        random_unit(f, width / 4, width / 4, 3, NAME("ssh%d.conv7X7_2", i));
        random_unit(f, width / 4, width / 4, 3, NAME("ssh%d.conv7x7_3", i));
    }
    for (int i = 0; i < 9; i++)
        random_conv(f, heads[i / 3].outputs, width, 1, 0.5f, true, NAME("%s.%d.conv1x1", heads[i / 3].name, i % 3));
}

void random_mobilenet(struct random_file *f)
{
    static const int stages[3][6] = {{8, 16, 32, 32, 64, 64}, {128, 128, 128, 128, 128, 128}, {256, 256}};
    int in = 3;
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 6 && stages[s][i]; i++) {
            int out = stages[s][i];
            if (in == 3) {
                random_conv(f, out, 3, 3, 0.02f, false, "body.stage1.0.0"); /* inputs reach ±150 */
                random_norm(f, out, "body.stage1.0.1");
            } else {
                random_tensor(f, 0, sqrtf(2.0f / 9), SHAPE(in, 1, 3, 3), "body.stage%d.%d.0.weight", s + 1, i);
                random_norm(f, in, NAME("body.stage%d.%d.1", s + 1, i));
                random_conv(f, out, in, 1, 1, false, NAME("body.stage%d.%d.3", s + 1, i));
                random_norm(f, out, NAME("body.stage%d.%d.4", s + 1, i));
            }
            in = out;
        }
    random_retinaface_heads(f, (int[]){64, 128, 256}, 64);
}

void random_resnet50(struct random_file *f)
{
    static const int depth[4] = {3, 4, 6, 3};
    int in = 64;
    random_conv(f, 64, 3, 7, 0.02f, false, "body.conv1");
    random_norm(f, 64, "body.bn1");
    for (int layer = 0; layer < 4; layer++)
        for (int i = 0; i < depth[layer]; i++) {
            int planes = 64 << layer;
            random_conv(f, planes, in, 1, 1, false, NAME("body.layer%d.%d.conv1", layer + 1, i));
            random_norm(f, planes, NAME("body.layer%d.%d.bn1", layer + 1, i));
            random_conv(f, planes, planes, 3, 1, false, NAME("body.layer%d.%d.conv2", layer + 1, i));
            random_norm(f, planes, NAME("body.layer%d.%d.bn2", layer + 1, i));
            random_conv(f, 4 * planes, planes, 1, 0.3f, false, NAME("body.layer%d.%d.conv3", layer + 1, i));
            random_norm(f, 4 * planes, NAME("body.layer%d.%d.bn3", layer + 1, i));
            if (i == 0) {
                random_conv(f, 4 * planes, in, 1, 0.7f, false, NAME("body.layer%d.%d.downsample.0", layer + 1, i));
                random_norm(f, 4 * planes, NAME("body.layer%d.%d.downsample.1", layer + 1, i));
            }
            in = 4 * planes;
        }
    random_retinaface_heads(f, (int[]){512, 1024, 2048}, 256);
}
