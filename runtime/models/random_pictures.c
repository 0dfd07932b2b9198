/* Networks of whole pictures. */
#include <math.h>
#include <string.h>

#include "runtime/models/random_networks.h"

void random_rrdbnet(struct random_file *f, int scale, int blocks)
{
    int factor = 4 / scale;
    /* In an untrained network each block makes its input 1.2 times larger: 66 times in 23 blocks. */
    random_conv(f, 64, 3 * factor * factor, 3, 6 * powf(1.2f, (float)-blocks), true, "conv_first");
    for (int b = 0; b < blocks; b++)
        for (int r = 1; r <= 3; r++)
            for (int k = 1; k <= 5; k++)
                random_conv(f, k < 5 ? 32 : 64, 64 + (k - 1) * 32, 3, 0.5f, true,
                            NAME("body.%d.rdb%d.conv%d", b, r, k));
    random_conv(f, 64, 64, 3, 0.5f, true, "conv_body");
    random_conv(f, 64, 64, 3, 1, true, "conv_up1");
    random_conv(f, 64, 64, 3, 1, true, "conv_up2");
    random_conv(f, 64, 64, 3, 1, true, "conv_hr");
    random_conv(f, 3, 64, 3, 0.3f, true, "conv_last");
}

void random_srvgg(struct random_file *f, int scale, int convolutions)
{
    for (int k = 0; k <= convolutions + 1; k++) {
        bool last = k == convolutions + 1;
        random_conv(f, last ? 3 * scale * scale : 64, k ? 64 : 3, 3, last ? 0.1f : 0.98f, true, NAME("body.%d", 2 * k));
        if (!last)
            random_tensor(f, 0.2f, 0.05f, SHAPE(64), "body.%d.weight", 2 * k + 1);
    }
}

void random_dncnn(struct random_file *f)
{
    for (int k = 0; k < 20; k++)
        random_conv(f, k == 19 ? 3 : 64, k ? 64 : 3, 3, k == 19 ? 0.1f : 1, true, NAME("model.%d", 2 * k));
}

/* ResBlock; also QFAttention. */
static void random_restorer_blocks(struct random_file *f, const char *name, int first, int width, bool bias)
{
    for (int k = first; k < first + 4; k++) {
        random_conv(f, width, width, 3, 1, bias, NAME("%s.%d.res.0", name, k));
        random_conv(f, width, width, 3, 0.3f, bias, NAME("%s.%d.res.2", name, k));
    }
}

/* DRUNet, or FBCNN, whose second half is told of the quality. */
void random_restorer(struct random_file *f, bool fbcnn)
{
    random_conv(f, 64, fbcnn ? 3 : 4, 3, 1, fbcnn, "m_head");
    for (int i = 1; i <= 3; i++) {
        const int wide = 32 << i, deep = 2 * wide;
        random_restorer_blocks(f, NAME("m_down%d", i), 0, wide, fbcnn);
        random_conv(f, deep, wide, 2, 0.7f, fbcnn, NAME("m_down%d.4", i));
        random_tensor(f, 0, 0.7f / sqrtf((float)deep), SHAPE(deep, wide, 2, 2), "m_up%d.0.weight", i);
        if (fbcnn)
            random_tensor(f, 0, 0.02f, SHAPE(wide), "m_up%d.0.bias", i);
        random_restorer_blocks(f, NAME("m_up%d", i), 1, wide, fbcnn);
        for (int k = 0; k < 2 && fbcnn; k++) {
            random_tensor(f, 0, 0.04f, SHAPE(wide, 512), "to_%s_%d.0.weight", k ? "beta" : "gamma", i);
            random_tensor(f, 0, 0.02f, SHAPE(wide), "to_%s_%d.0.bias", k ? "beta" : "gamma", i);
        }
    }
    for (int k = 0; k < (fbcnn ? 3 : 1); k++)
        random_restorer_blocks(f, fbcnn ? (k ? k == 1 ? "m_body_decoder" : "qf_pred" : "m_body_encoder") : "m_body", 0,
                               512, fbcnn);
    for (int k = 0; k < 6 && fbcnn; k++) {
        const int out = k == 2 ? 1 : 512, in = k == 3 ? 1 : 512;
        const char *name = k < 3 ? NAME("qf_pred.%d", 6 + 2 * k) : NAME("qf_embed.%d", 2 * (k - 3));
        random_tensor(f, 0, sqrtf(2.0f / (float)in), SHAPE(out, in), "%s.weight", name);
        random_tensor(f, 0, 0.02f, SHAPE(out), "%s.bias", name);
    }
    random_conv(f, 3, 64, 3, 0.1f, fbcnn, "m_tail");
}

static void random_conv3xc(struct random_file *f, int out, int in, float gain, const char *name)
{
    random_conv(f, out, in, 1, 0.3f * gain, true, NAME("%s.sk", name));
    random_conv(f, 2 * in, in, 1, 0.7f * gain, true, NAME("%s.conv.0", name));
    random_conv(f, 2 * out, 2 * in, 3, 0.7f, true, NAME("%s.conv.1", name));
    random_conv(f, out, 2 * out, 1, 0.7f, true, NAME("%s.conv.2", name));
    random_conv(f, out, in, 3, 1, true, NAME("%s.eval_conv", name));
}

void random_span(struct random_file *f)
{
    random_conv3xc(f, 48, 3, 0.01f, "conv_1");
    for (int i = 1; i <= 6; i++)
        for (int k = 1; k <= 3; k++)
            random_conv3xc(f, 48, 48, 1.5f, NAME("block_%d.c%d_r", i, k));
    random_conv3xc(f, 48, 48, 1, "conv_2");
    random_conv(f, 48, 192, 1, 0.7f, true, "conv_cat");
    random_conv(f, 48, 48, 3, 0.5f, true, "upsampler.0");
}

void random_plksr(struct random_file *f)
{
    random_conv(f, 64, 3, 3, 1, true, "feats.0");
    for (int i = 1; i <= 28; i++) {
        random_conv(f, 128, 64, 3, 1, true, NAME("feats.%d.channel_mixer.0", i));
        random_conv(f, 64, 128, 3, 1, true, NAME("feats.%d.channel_mixer.2", i));
        random_conv(f, 16, 16, 17, 0.7f, true, NAME("feats.%d.lk.conv", i));
        random_conv(f, 64, 64, 3, 0.7f, true, NAME("feats.%d.attn.f.0", i));
        random_conv(f, 64, 64, 1, 0.7f, true, NAME("feats.%d.refine", i));
        random_tensor(f, 0.2f, 0.02f, SHAPE(64), "feats.%d.norm.weight", i);
        random_tensor(f, 0, 0.02f, SHAPE(64), "feats.%d.norm.bias", i);
    }
    random_conv(f, 48, 64, 3, 0.1f, true, "feats.30");
}

static void random_transposed(struct random_file *f, int out, int in, int kernel, const char *name)
{
    random_tensor(f, 0, 1 / sqrtf((float)in), SHAPE(in, out, kernel, kernel), "%s.weight", name);
    random_tensor(f, 0, 0.02f, SHAPE(out), "%s.bias", name);
}

static void random_cugan_pair(struct random_file *f, int out, int middle, int in, bool gated, const char *name)
{
    random_conv(f, middle, in, 3, 1, true, NAME("%s.conv.0", name));
    random_conv(f, out, middle, 3, 1, true, NAME("%s.conv.2", name));
    if (!gated)
        return;
    random_conv(f, out / 8, out, 1, 1, true, NAME("%s.seblock.conv1", name));
    random_conv(f, out, out / 8, 1, 1, true, NAME("%s.seblock.conv2", name));
}

void random_cugan(struct random_file *f)
{
    random_cugan_pair(f, 64, 32, 3, false, "unet1.conv1");
    random_conv(f, 64, 64, 2, 1, true, "unet1.conv1_down");
    random_cugan_pair(f, 64, 128, 64, true, "unet1.conv2");
    random_transposed(f, 64, 64, 2, "unet1.conv2_up");
    random_conv(f, 64, 64, 3, 1, true, "unet1.conv3");
    random_transposed(f, 3, 64, 4, "unet1.conv_bottom");
    random_cugan_pair(f, 64, 32, 3, false, "unet2.conv1");
    random_conv(f, 64, 64, 2, 1, true, "unet2.conv1_down");
    random_cugan_pair(f, 128, 64, 64, true, "unet2.conv2");
    random_conv(f, 128, 128, 2, 1, true, "unet2.conv2_down");
    random_cugan_pair(f, 128, 256, 128, true, "unet2.conv3");
    random_transposed(f, 128, 128, 2, "unet2.conv3_up");
    random_cugan_pair(f, 64, 64, 128, true, "unet2.conv4");
    random_transposed(f, 64, 64, 2, "unet2.conv4_up");
    random_conv(f, 64, 64, 3, 1, true, "unet2.conv5");
    random_conv(f, 3, 64, 3, 0.3f, true, "unet2.conv_bottom");
}
