/* DnCNN (Zhang et al. 2017; names as in KAIR): a chain of 3×3 convolutions that finds a picture's noise, with batch
 * norm in some files. FDnCNN is told the noise level in one more channel, and gives the picture itself. */
#include "runtime/models/restorer.h"

#define DNCNN_LEAST 8 /* convolutions: IRCNN's seven have the same names and shapes, but read pixels that lie apart */

/* Convolutions are model.0, 2, 4, …; with batch norm model.0, 2, 5, 8, …, each but the first and the last followed by
 * its norm. */
struct dncnn {
    int convolutions;
    bool norm;
};

static int dncnn_at(const struct dncnn *d, int i)
{
    return d->norm ? (i ? 3 * i - 1 : 0) : 2 * i;
}

static struct dncnn dncnn_look(const struct weights *weights)
{
    struct dncnn d = {.norm = weights_find(weights, "model.3.running_mean")};
    while (build_dim(weights, build_name("model.%d.weight", dncnn_at(&d, d.convolutions)), 3) == 3)
        d.convolutions++;
    return d;
}

static bool dncnn_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    const struct dncnn d = dncnn_look(weights);
    if (d.convolutions < (d.norm ? 4 : DNCNN_LEAST))
        return false;
    const int last = dncnn_at(&d, d.convolutions - 1);
    bool level;
    if (build_last(weights, "model.") > last) /* something else follows: not this network */
        return false;
    if (weights_find(weights, "model.1.weight")) {
        error_set(err, ERROR_UNSUPPORTED, "a chain of convolutions with slopes (PReLU) between them; DnCNN has ReLU");
        return false;
    }
    if (!restorer_channels(build_dim(weights, "model.0.weight", 1),
                           build_dim(weights, build_name("model.%d.weight", last), 0), &level, "DnCNN", err))
        return false;
    info->kind = MODEL_UPSCALER;
    info->architecture = level ? "FDnCNN" : "DnCNN";
    info->radius = d.convolutions;
    info->exact_tiles = true;
    return true;
}

static void dncnn_smallest(const struct model_info *info, struct session_shape *shape)
{
    (void)info;
    shape->h = shape->w = 4;
}

static void dncnn_build(struct model_build *b, const struct session_shape *shape)
{
    const struct weights *weights = model_weights(b->model);
    const struct dncnn d = dncnn_look(weights);
    const int last = dncnn_at(&d, d.convolutions - 1);
    bool level;
    struct restorer r;
    const int channels = restorer_channels(build_size(b, "model.0.weight", 1),
                                           build_size(b, build_name("model.%d.weight", last), 0), &level, NULL, NULL);
    restorer_begin(b, shape, channels, level, &r);
    struct view x = r.x;
    b->norm_epsilon = 1e-4; /* as KAIR's blocks have it */
    for (int i = 0; i < d.convolutions - 1; i++) {
        const struct build_text name = build_text("model.%d", dncnn_at(&d, i));
        const struct view out = build_like(b, x, build_size(b, build_name("%s.weight", name.text), 0));
        struct node *conv = d.norm && i
                                ? build_conv_bn(b, name.text, build_name("model.%d", dncnn_at(&d, i) + 1), x, out, 3)
                                : restorer_conv(b, name.text, x, out, 3);
        conv->args.conv2d.activation = ACTIVATION_RELU;
        x = out;
    }
    struct node *conv = restorer_conv(b, build_name("model.%d", last), x, restorer_result(b, &r), 3);
    if (!level) { /* it found the noise */
        conv->args.conv2d.scale = -1;
        conv->in[OP_RESIDUAL1] = channels == 1 ? graph_segments(r.pair, 1, 1) : r.picture;
        conv->args.conv2d.residual1_scale = 1;
    }
    restorer_end(b, &r);
}

const struct architecture architecture_dncnn = {dncnn_detect, dncnn_build, dncnn_smallest};
