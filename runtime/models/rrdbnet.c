/* RRDBNet, ESRGAN's and Real-ESRGAN's generator (Wang et al. 2018 and 2021): residual-in-residual dense blocks, then a
 * number of nearest ×2 upsamplings. In some files it begins with a pixel-unshuffle, so that the body works at a part of
 * the size. Files have the same tensors under four sets of names: those of ESRGAN's first release, of its second
 * (BSRGAN's and RealSR's too), of Real-ESRGAN (BasicSR), and of ESRGAN+ (Rakotonirina and Rasoanaivo 2020), which has
 * one more convolution in each dense block. Names and rules as spandrel lists them. */
#include <string.h>

#include "runtime/models/model_build.h"

#define RRDB_MAX_UPS 4

enum rrdb_names {
    RRDB_BODY,  /* body.0.rdb1.conv1 */
    RRDB_TRUNK, /* RRDB_trunk.0.RDB1.conv1 */
    RRDB_OLD    /* model.1.sub.0.RDB1.conv1.0 */
};

/* What names and shapes tell. */
struct rrdb {
    enum rrdb_names names;
    int blocks, ups, unshuffle;
    int in, out; /* channels of the picture: 1, 3 or 4 */
    bool plus;   /* ESRGAN+ */
};

static struct build_text rrdb_dense_name(enum rrdb_names names, int block, int dense, int conv)
{
    if (names == RRDB_OLD)
        return build_text("model.1.sub.%d.RDB%d.conv%d.0", block, dense, conv);
    return names == RRDB_TRUNK ? build_text("RRDB_trunk.%d.RDB%d.conv%d", block, dense, conv)
                               : build_text("body.%d.rdb%d.conv%d", block, dense, conv);
}

enum rrdb_part { RRDB_FIRST, RRDB_AFTER_BLOCKS, RRDB_UP, RRDB_HIGH, RRDB_LAST };

/* The convolutions outside the blocks; k counts upsamplings from 1. */
static struct build_text rrdb_name(const struct rrdb *r, enum rrdb_part part, int k)
{
    static const char *const fixed[2][5] = {{"conv_first", "conv_body", "conv_up", "conv_hr", "conv_last"},
                                            {"conv_first", "trunk_conv", "upconv", "HRconv", "conv_last"}};
    const int at[] = {0, 0, 3 * k, 3 * r->ups + 2, 3 * r->ups + 4};
    if (r->names == RRDB_OLD && part == RRDB_AFTER_BLOCKS)
        return build_text("model.1.sub.%d", r->blocks);
    if (r->names == RRDB_OLD)
        return build_text("model.%d", at[part]);
    return part == RRDB_UP ? build_text("%s%d", fixed[r->names][part], k) : build_text("%s", fixed[r->names][part]);
}

static int rrdb_size(const struct weights *weights, struct build_text name, int dim)
{
    return build_dim(weights, build_name("%s.weight", name.text), dim);
}

/* Fills *r; false if these are not the network's tensors. */
static bool rrdb_look(const struct weights *weights, struct rrdb *r)
{
    static const char *const lists[] = {"body.", "RRDB_trunk.", "model.1.sub."};
    memset(r, 0, sizeof *r);
    for (int i = 0; i < 3 && !r->blocks; i++) {
        r->names = (enum rrdb_names)i;
        while (rrdb_size(weights, rrdb_dense_name(r->names, r->blocks, 1, 1), 0))
            r->blocks++;
    }
    /* A later block is there: one between is missing, and building says which. */
    const int last = build_last(weights, lists[r->names]) + (r->names == RRDB_OLD ? 0 : 1);
    if (r->blocks && last > r->blocks)
        r->blocks = last;
    if (!r->blocks)
        return false;
    const int up = build_last(weights, r->names == RRDB_TRUNK ? "upconv" : "conv_up");
    r->ups = r->names == RRDB_OLD ? (build_last(weights, "model.") - 4) / 3 : up > 0 ? up : 0;
    const int in = rrdb_size(weights, rrdb_name(r, RRDB_FIRST, 0), 1);
    r->out = rrdb_size(weights, rrdb_name(r, RRDB_LAST, 0), 0);
    r->unshuffle = in == 4 * r->out ? 2 : in == 16 * r->out ? 4 : 1;
    r->in = in / (r->unshuffle * r->unshuffle);
    r->plus = weights_find(weights, r->names == RRDB_OLD ? "model.1.sub.0.RDB1.conv1x1.weight"
                                                         : "RRDB_trunk.0.RDB1.conv1x1.weight");
    return true;
}

static bool rrdb_channels(int count)
{
    return count == 1 || count == 3 || count == 4;
}

static bool rrdbnet_detect(const struct weights *weights, struct model_info *info, struct error *err)
{
    struct rrdb r;
    if (!rrdb_look(weights, &r))
        return false;
    if (!r.out || r.ups < 0)
        error_set(err, ERROR_CORRUPT, "tensor %s.weight is missing", rrdb_name(&r, RRDB_LAST, 0).text);
    else if (r.ups > RRDB_MAX_UPS || 1 << r.ups < r.unshuffle)
        error_set(err, ERROR_UNSUPPORTED,
                  "RRDBNet with %d upsamplings after a pixel-unshuffle of %d; scales of 1 to %d "
                  "are supported",
                  r.ups, r.unshuffle, 1 << RRDB_MAX_UPS);
    else if (!rrdb_channels(r.in) || !rrdb_channels(r.out))
        error_set(err, ERROR_UNSUPPORTED, "RRDBNet that takes %d channels and gives %d; 1, 3 and 4 are supported", r.in,
                  r.out);
    if (err->code)
        return false;
    info->kind = MODEL_UPSCALER;
    info->architecture = r.plus ? "RRDBNet+" : "RRDBNet";
    info->unshuffle = r.unshuffle;
    info->scale = (1 << r.ups) / r.unshuffle;
    /* The first convolution, 15 a block, the one after them; those that follow reach less the larger the picture is by
     * then: at most 2 px together. */
    info->radius = (1 + 15 * r.blocks + 1 + 2) * r.unshuffle;
    return true;
}

static void rrdbnet_smallest(const struct model_info *info, struct session_shape *shape)
{
    shape->h = shape->w = 4 * info->unshuffle;
}

/* Networks of other than 3 channels: gray is given BT.601's luma, and comes back in three equal channels; a fourth
 * channel is given 1, opaque, and dropped from the result. Rows are outputs. */
static const struct rrdb_constant {
    const char *name;
    float values[12];
} rrdb_constants[] = {
    {"3 to 1", {0.299f, 0.587f, 0.114f}},
    {"3 to 4", {1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0}},
    {"1 to 3", {1, 1, 1}},
    {"4 to 3", {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}},
    {"opaque", {0, 0, 0, 1}},
};

static void rrdb_fill_constant(struct model_build *b, const char *name, float *values, size_t count)
{
    const struct rrdb_constant *c = rrdb_constants;
    (void)b;
    while (strcmp(c->name, name) != 0)
        c++;
    memcpy(values, c->values, count * sizeof *values);
}

static void rrdb_convert(struct model_build *b, struct view x, int from, struct view out, int to)
{
    const struct param *weight =
        build_derived(b, build_name("%d to %d", from, to), (size_t)from * (size_t)to, rrdb_fill_constant);
    struct node *node = build_conv_of(b, weight, x, out, 1);
    if (to == 4)
        node->param[OP_BIAS] = build_derived(b, "opaque", 4, rrdb_fill_constant);
}

/* Five convolutions, each reading all before it; the last goes to out as scale*conv + r1*rdb's input (+ r2). In ESRGAN+
 * the second is given a 1×1 convolution of the input, and the fourth the second. */
static void rrdb_dense(struct model_build *b, const struct rrdb *r, int block, int dense, struct view wide,
                       struct view out, float scale, float input_scale, struct view outer)
{
    for (int i = 0; i < 4; i++) {
        struct view add = VIEW_NONE;
        if (r->plus && i == 1) {
            const char *list = r->names == RRDB_OLD ? "model.1.sub" : "RRDB_trunk";
            add = build_like(b, wide, graph_channels(b->graph, graph_segments(wide, 1, 1)));
            build_conv_plain(b, build_name("%s.%d.RDB%d.conv1x1", list, block, dense), graph_segments(wide, 0, 1), add,
                             1);
        }
        struct node *conv = build_conv(b, rrdb_dense_name(r->names, block, dense, i + 1).text,
                                       graph_segments(wide, 0, i + 1), graph_segments(wide, i + 1, 1), 3);
        conv->args.conv2d.activation = ACTIVATION_LEAKY;
        conv->args.conv2d.slope = 0.2f;
        if (r->plus && i % 2) {
            conv->in[OP_RESIDUAL1] = i == 1 ? add : graph_segments(wide, 2, 1);
            conv->args.conv2d.residual1_scale = 1;
        }
    }
    struct node *last = build_conv(b, rrdb_dense_name(r->names, block, dense, 5).text, wide, out, 3);
    last->args.conv2d.scale = scale;
    last->in[OP_RESIDUAL1] = graph_segments(wide, 0, 1);
    last->args.conv2d.residual1_scale = input_scale;
    last->in[OP_RESIDUAL2] = outer;
    last->args.conv2d.residual2_scale = 1;
}

/* The picture as the first convolution takes it. */
static struct view rrdb_input(struct model_build *b, const struct rrdb *r, const struct session_shape *shape)
{
    const int u = r->unshuffle, rgb = 3;
    if (shape->h % u || shape->w % u)
        build_fail(b, ERROR_INVALID, "%d×%d is not a multiple of %d", shape->w, shape->h, u);
    struct view x = graph_tensor(b->graph, TENSOR_INPUT, shape->n, shape->h, shape->w, 1, &rgb);
    if (r->in != 3) {
        struct view as = graph_temp(b->graph, shape->n, r->in, shape->h, shape->w);
        rrdb_convert(b, x, 3, as, r->in);
        x = as;
    }
    if (u == 1)
        return x;
    struct view deep = graph_temp(b->graph, shape->n, r->in * u * u, shape->h / u, shape->w / u);
    struct node *node = graph_node(b->graph, OP_PIXEL_UNSHUFFLE, deep);
    if (node) {
        node->in[OP_X] = x;
        node->args.shuffle.factor = u;
    }
    return deep;
}

/* After the blocks: enlarges, then two convolutions. */
static void rrdb_end(struct model_build *b, const struct rrdb *r, struct view x, int n, int h, int w, int features)
{
    const int rgb = 3;
    for (int k = 1; k <= r->ups; k++) {
        struct view up = graph_temp(b->graph, n, features, h << k, w << k);
        struct node *conv = build_conv(b, rrdb_name(r, RRDB_UP, k).text, x, up, 3);
        conv->args.conv2d.upsample = 2;
        conv->args.conv2d.activation = ACTIVATION_LEAKY;
        conv->args.conv2d.slope = 0.2f;
        x = up;
    }
    h <<= r->ups;
    w <<= r->ups;
    struct view high = graph_temp(b->graph, n, features, h, w);
    struct node *conv = build_conv(b, rrdb_name(r, RRDB_HIGH, 0).text, x, high, 3);
    conv->args.conv2d.activation = ACTIVATION_LEAKY;
    conv->args.conv2d.slope = 0.2f;
    struct view out = graph_tensor(b->graph, TENSOR_OUTPUT, n, h, w, 1, &rgb);
    struct view last = r->out == 3 ? out : graph_temp(b->graph, n, r->out, h, w);
    build_conv(b, rrdb_name(r, RRDB_LAST, 0).text, high, last, 3);
    if (r->out != 3)
        rrdb_convert(b, last, r->out, out, 3);
}

static void rrdbnet_build(struct model_build *b, const struct session_shape *shape)
{
    struct rrdb r;
    rrdb_look(model_weights(b->model), &r); /* it was found to be one */
    const int features = build_size(b, build_name("%s.weight", rrdb_name(&r, RRDB_FIRST, 0).text), 0);
    const int growth = build_size(b, build_name("%s.weight", rrdb_dense_name(r.names, 0, 1, 1).text), 0);
    const int n = shape->n, h = shape->h / r.unshuffle, w = shape->w / r.unshuffle;
    int segments[5] = {features, growth, growth, growth, growth};
    struct graph *g = b->graph;
    struct view x = rrdb_input(b, &r, shape);
    struct view first = graph_temp(g, n, features, h, w), wide = graph_tensor(g, TENSOR_TEMP, n, h, w, 5, segments);
    /* Computed twice: its result is needed at the end, and keeping the first wide tensor until then would cost far
     * more. */
    build_conv(b, rrdb_name(&r, RRDB_FIRST, 0).text, x, first, 3);
    build_conv(b, rrdb_name(&r, RRDB_FIRST, 0).text, x, graph_segments(wide, 0, 1), 3);
    struct view trunk = VIEW_NONE;
    for (int i = 0; i < r.blocks; i++) {
        struct view input = graph_segments(wide, 0, 1);
        for (int d = 1; d <= 3; d++) {
            bool end = d == 3, very_last = end && i == r.blocks - 1;
            struct view next =
                very_last ? graph_temp(g, n, features, h, w) : graph_tensor(g, TENSOR_TEMP, n, h, w, 5, segments);
            struct view out = very_last ? next : graph_segments(next, 0, 1);
            rrdb_dense(b, &r, i, d, wide, out, end ? 0.04f : 0.2f, end ? 0.2f : 1.0f, end ? input : VIEW_NONE);
            wide = next;
            trunk = out;
        }
    }
    struct view feature = graph_temp(g, n, features, h, w);
    struct node *body = build_conv(b, rrdb_name(&r, RRDB_AFTER_BLOCKS, 0).text, trunk, feature, 3);
    body->in[OP_RESIDUAL1] = first;
    body->args.conv2d.residual1_scale = 1;
    rrdb_end(b, &r, feature, n, h, w, features);
}

const struct architecture architecture_rrdbnet = {rrdbnet_detect, rrdbnet_build, rrdbnet_smallest};
