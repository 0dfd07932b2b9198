#include "runtime/selftest.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "runtime/base/log.h"

/* The network's answer. It was computed with PyTorch 1.13 in float64 from the same integers (functional.conv2d, prelu,
 * interpolate, max_pool2d, pixel_shuffle ...; the noise with a separate Philox in NumPy), not with this program;
 * tests/unit/test_selftest.c compares the oracle, plain C in double precision, with it. */
#define ANSWER_C 8
#define ANSWER_H 3
#define ANSWER_W 4
#define ANSWER_COUNT (ANSWER_C * ANSWER_H * ANSWER_W)
static const float answer[ANSWER_COUNT] = {
    0.8240868f,  0.5734860f,  -0.1103019f, 0.7125594f,  0.4795662f,  1.0130015f,  0.9476844f,  -0.0928156f, 0.8888117f,
    -0.0445623f, 1.3360119f,  1.6394069f,  2.6167959f,  3.3722639f,  1.8258729f,  2.3850848f,  3.9771710f,  3.2033842f,
    4.3928508f,  3.7890944f,  3.0513279f,  1.6366558f,  3.5398114f,  3.9008445f,  2.7827710f,  3.2841018f,  3.4784182f,
    1.8517663f,  2.8892790f,  0.7911683f,  2.5585370f,  3.3575356f,  1.8945191f,  2.1213100f,  1.5517449f,  1.8460056f,
    1.9307224f,  1.7249901f,  1.6460872f,  1.9313480f,  1.7696140f,  0.7498531f,  2.4104882f,  2.8668932f,  2.0362636f,
    2.1479113f,  1.5032263f,  1.7482451f,  -0.2388729f, -0.1576860f, -0.1307907f, -2.0430368f, -0.8273220f, -1.5255813f,
    -1.1216310f, -1.1933888f, -0.9956159f, -0.8682146f, -0.9424713f, -0.5257559f, -0.6628644f, 0.2223163f,  0.4028012f,
    -0.9847309f, -2.9600195f, -3.0603767f, -2.1935034f, -2.2056507f, -1.8103768f, -2.0289861f, -1.0411386f, -2.2796802f,
    3.6168477f,  4.1100697f,  4.3181392f,  3.4588796f,  3.4419309f,  3.6998165f,  3.6357593f,  4.2241008f,  3.1778782f,
    3.5978609f,  4.6990031f,  4.9667166f,  1.1208456f,  2.2628010f,  0.8503906f,  1.2658939f,  0.4574468f,  1.7065694f,
    3.2993523f,  0.5821794f,  1.8517032f,  1.5724759f,  1.9095576f,  0.4738985f,
};

/* The second network's, of models/training/selftest_answers.py. */
static const float second_answer[ANSWER_COUNT] = {
    -0.1990385f, -0.5142724f, -0.4420990f, 0.0811043f,  -0.1153384f, -0.4693193f, -0.2714613f, -0.1366944f, -0.1166939f,
    -0.2379547f, -0.4516686f, 0.5918620f,  -1.0508870f, -1.3475155f, -1.4729201f, -1.1843890f, -1.2869168f, -1.0060393f,
    -1.2495541f, -1.2943153f, -1.3132326f, -1.0058664f, -1.2835566f, -1.3461009f, 0.5391829f,  0.3483232f,  0.5310235f,
    0.8002084f,  0.5080293f,  0.4706478f,  0.5487232f,  1.1152005f,  0.4096361f,  0.7963329f,  0.6053373f,  0.2394363f,
    -0.3576820f, -0.4093845f, 0.1220756f,  0.3302140f,  -0.3699220f, -0.1554062f, 0.2920808f,  -0.2247479f, -0.1778706f,
    -0.6348196f, 0.0791064f,  -0.3472571f, 0.8271728f,  0.8732141f,  0.6568895f,  0.2523488f,  0.5595209f,  1.0917364f,
    0.5949975f,  0.0389711f,  0.4136626f,  0.6856186f,  0.2889910f,  0.1482804f,  1.0001417f,  1.0724573f,  0.8076501f,
    1.1766459f,  0.8053472f,  1.1374036f,  0.9233210f,  1.0445475f,  0.9300192f,  1.0241834f,  0.7393547f,  1.1357500f,
    -1.0660389f, -0.5681812f, -0.7460732f, -1.3029576f, -0.7329839f, -0.4272477f, -0.6676703f, -0.5202875f, -0.7406622f,
    -1.1117864f, -0.8469491f, -0.8350864f, -1.6710603f, -1.5341213f, -1.5543173f, -1.5936232f, -1.9583260f, -1.3078766f,
    -1.5369813f, -1.2061419f, -1.5981760f, -1.5910202f, -1.3226972f, -0.9913485f,
};

enum { H = 18, W = 24, MAX_PARAMS = 48 };

/* --- the network ---------------------------------------------------------------------------------------------------
 */

/* The graph while it is built, with the parameters it owns. */
struct network {
    struct graph *graph;
    struct param *params[MAX_PARAMS];
    int param_count;
    uint32_t random;
    struct node spare; /* what is filled in after an error */
};

/* Marsaglia's xorshift32: u in [0, 1) with 24 bits, exact in a float. */
static float selftest_random(uint32_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    return (float)(*random >> 8) * 0x1p-24f;
}

/* count parameters, each low + span*u. */
static const struct param *selftest_values(struct network *net, int count, float low, float span)
{
    struct error *err = &net->graph->error;
    struct param **made = &net->params[net->param_count];
    assert(net->param_count < MAX_PARAMS);
    if (err->code || param_from_values(made, NULL, (size_t)count, err))
        return NULL;
    net->param_count++;
    for (int i = 0; i < count; i++)
        (*made)->values[i] = low + span * selftest_random(&net->random);
    return *made;
}

static struct node *selftest_node(struct network *net, enum op_kind kind, struct view y, struct view x)
{
    struct node *made = graph_node(net->graph, kind, y);
    if (!made)
        made = &net->spare;
    made->in[OP_X] = x;
    return made;
}

/* Weights of variance 2 over the inputs of a sum (He et al. 2015), so that values neither grow nor fade; then biases;
 * then slopes where the activation has them. */
static void selftest_weights(struct network *net, struct node *made, int inputs, int outputs,
                             enum activation activation)
{
    const float span = sqrtf(24.0f / (float)inputs);
    made->param[OP_WEIGHT] = selftest_values(net, inputs * outputs, -0.5f * span, span);
    made->param[OP_BIAS] = selftest_values(net, outputs, -0.1f, 0.2f);
    if (activation == ACTIVATION_PRELU)
        made->param[OP_SLOPE] = selftest_values(net, outputs, 0, 0.5f);
}

static struct node *selftest_conv(struct network *net, struct view y, struct view x, int kernel, int stride,
                                  enum activation activation)
{
    struct node *made = selftest_node(net, OP_CONV2D, y, x);
    made->args.conv2d = (struct op_conv2d){.kernel = kernel,
                                           .stride = stride,
                                           .pad = kernel / 2,
                                           .upsample = 1,
                                           .activation = activation,
                                           .slope = 0.2f,
                                           .gain = 1,
                                           .scale = 1};
    if (!net->graph->error.code)
        selftest_weights(net, made, graph_channels(net->graph, x) * kernel * kernel, graph_channels(net->graph, y),
                         activation);
    return made;
}

/* As RRDBNet: convolutions that read all before them as one tensor, and a scaled residual. */
static struct view selftest_dense_block(struct network *net, struct view x)
{
    const struct view wide = graph_tensor(net->graph, TENSOR_TEMP, 1, H, W, 3, (const int[]){32, 16, 16});
    const struct view y = graph_temp(net->graph, 1, 32, H, W);
    selftest_conv(net, graph_segments(wide, 0, 1), x, 3, 1, ACTIVATION_PRELU);
    selftest_conv(net, graph_segments(wide, 1, 1), graph_segments(wide, 0, 1), 3, 1, ACTIVATION_LEAKY);
    selftest_conv(net, graph_segments(wide, 2, 1), graph_segments(wide, 0, 2), 3, 1, ACTIVATION_LEAKY);
    struct node *last = selftest_conv(net, y, wide, 3, 1, ACTIVATION_NONE);
    last->in[OP_RESIDUAL1] = graph_segments(wide, 0, 1);
    last->args.conv2d.scale = 0.2f;
    last->args.conv2d.residual1_scale = 1;
    return y;
}

/* As GFPGAN: a modulated convolution that enlarges, with noise, one more, and features that scale and shift. */
static struct view selftest_modulated(struct network *net, struct view x)
{
    const struct view code = graph_constant(net->graph, selftest_values(net, 24, -1, 2), 24, 1, 1);
    const struct view style = graph_temp(net->graph, 1, 32, 1, 1), demodulation = graph_temp(net->graph, 1, 32, 1, 1);
    const struct view noise = graph_temp(net->graph, 1, 1, 2 * H, 2 * W),
                      up = graph_temp(net->graph, 1, 32, 2 * H, 2 * W);
    const struct view a = graph_temp(net->graph, 1, 32, 2 * H, 2 * W), b = graph_temp(net->graph, 1, 32, 2 * H, 2 * W);
    struct node *linear = selftest_node(net, OP_LINEAR, style, code);
    linear->args.linear = (struct op_linear){ACTIVATION_LEAKY, 0.2f};
    selftest_weights(net, linear, 24, 32, ACTIVATION_LEAKY);
    struct node *demodulate = selftest_node(net, OP_DEMODULATE, demodulation, style);
    demodulate->args.demodulate.epsilon = 1e-8f;
    demodulate->param[OP_WEIGHT] = selftest_values(net, 32 * 32, 0, 0.1f);
    selftest_node(net, OP_NOISE, noise, VIEW_NONE)->args.noise.layer = 3;

    struct node *first = selftest_conv(net, a, x, 3, 1, ACTIVATION_LEAKY);
    first->in[OP_IN_SCALE] = style;
    first->in[OP_OUT_SCALE] = demodulation;
    first->in[OP_NOISE_MAP] = noise;
    first->args.conv2d.upsample = 2;
    first->args.conv2d.noise_weight = 0.1f;
    first->args.conv2d.scale = 1.41421356f;
    selftest_conv(net, b, a, 3, 1, ACTIVATION_PRELU);
    selftest_node(net, OP_RESIZE, up, x)->args.resize.mode = RESIZE_BILINEAR;
    struct node *shift = selftest_node(net, OP_SCALE_SHIFT, a, b);
    shift->in[OP_RESIDUAL1] = up;
    shift->in[OP_RESIDUAL2] = b;
    return a;
}

/* As RetinaFace: depthwise and 1×1 convolutions, pooling, levels that are added. */
static struct view selftest_pyramid(struct network *net, struct view x)
{
    const struct view half = graph_temp(net->graph, 1, 32, H, W), a = graph_temp(net->graph, 1, 32, H, W);
    const struct view pooled = graph_temp(net->graph, 1, 32, H / 2, W / 2), up = graph_temp(net->graph, 1, 32, H, W);
    struct node *depthwise = selftest_node(net, OP_DEPTHWISE, half, x);
    depthwise->args.depthwise = (struct op_depthwise){3, 2, 1, ACTIVATION_LEAKY, 0.1f, PAD_ZERO};
    selftest_weights(net, depthwise, 9, 32, ACTIVATION_LEAKY);
    selftest_conv(net, a, half, 1, 1, ACTIVATION_RELU);
    selftest_node(net, OP_MAX_POOL, pooled, a)->args.max_pool = (struct op_max_pool){3, 2, 1};
    selftest_node(net, OP_RESIZE, up, pooled)->args.resize.mode = RESIZE_NEAREST;
    struct node *add = selftest_node(net, OP_ADD, a, a);
    add->in[OP_RESIDUAL1] = up;
    add->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 0.5f};
    return a;
}

/* As ParseNet and SRVGGNetCompact: reflected edges, a residual before the activation, a picture made of channels and
 * one laid under it; finally each 6×6 pixels are mixed into one, which keeps the answer short. */
static void selftest_finish(struct network *net, struct view x, struct view picture)
{
    const struct view y = graph_temp(net->graph, 1, 12, H / 2, W / 2),
                      base = graph_temp(net->graph, 1, 3, H / 2, W / 2);
    const struct view skip = graph_temp(net->graph, 1, 12, H / 2, W / 2), out = graph_temp(net->graph, 1, 3, H, W);
    const struct view folded = graph_temp(net->graph, 1, 108, ANSWER_H, ANSWER_W);
    selftest_node(net, OP_PIXEL_UNSHUFFLE, skip, picture)->args.shuffle.factor = 2;
    struct node *last = selftest_conv(net, y, x, 3, 2, ACTIVATION_RELU);
    last->in[OP_RESIDUAL1] = skip;
    last->args.conv2d.pad_mode = PAD_REFLECT;
    last->args.conv2d.residual1_scale = 1;
    last->args.conv2d.activation_last = true;
    selftest_node(net, OP_RESIZE, base, picture)->args.resize.mode = RESIZE_BILINEAR;
    struct node *shuffle = selftest_node(net, OP_PIXEL_SHUFFLE, out, y);
    shuffle->in[OP_RESIDUAL1] = base;
    shuffle->args.shuffle.factor = 2;
    selftest_node(net, OP_PIXEL_UNSHUFFLE, folded, out)->args.shuffle.factor = 6;
    selftest_conv(net, graph_tensor(net->graph, TENSOR_OUTPUT, 1, ANSWER_H, ANSWER_W, 1, (const int[]){ANSWER_C}),
                  folded, 1, 1, ACTIVATION_NONE);
}

/* --- the second network: what few networks have ---------------------------------------------------------------------
 */

/* A norm with weights around 1. */
static struct node *selftest_norm(struct network *net, enum op_kind kind, struct view y, struct view x, int groups)
{
    struct node *made = selftest_node(net, kind, y, x);
    made->args.norm = (struct op_norm){.groups = groups, .epsilon = 1e-5f};
    made->param[OP_WEIGHT] = selftest_values(net, 16, 0.5f, 1);
    made->param[OP_BIAS] = selftest_values(net, 16, -0.5f, 1);
    return made;
}

/* As RetinaFace with resnet50, RealPLKSR and Real-CUGAN ×3: convolutions with large kernels, which devices compute in
 * other ways than those of 3×3. */
static struct view selftest_large(struct network *net, struct view picture)
{
    static const int kernels[] = {7, 17, 5};
    struct view x = picture;
    for (int i = 0; i < 3; i++) {
        const struct view y = graph_temp(net->graph, 1, 16, H, W);
        selftest_conv(net, y, x, kernels[i], 1, i ? ACTIVATION_NONE : ACTIVATION_LEAKY);
        x = y;
    }
    return x;
}

/* As a VQGAN with a transformer: norms, also one that is made like another picture, and attention; and the filter of
 * 4×4 that GFPGAN 1 reduces by. */
static struct view selftest_tokens(struct network *net, struct view x)
{
    struct view at[8];
    for (int i = 0; i < 8; i++)
        at[i] = graph_temp(net->graph, 1, 16, i < 2 ? H : H / 2, i < 2 ? W : W / 2);
    selftest_conv(net, at[0], x, 3, 1, ACTIVATION_SILU);
    selftest_norm(net, OP_GROUP_NORM, at[1], at[0], 4)->args.norm.activation = ACTIVATION_SILU;
    selftest_conv(net, at[2], at[1], 3, 2, ACTIVATION_MISH);
    struct node *filter = selftest_node(net, OP_DEPTHWISE, at[3], at[1]);
    filter->args.depthwise = (struct op_depthwise){4, 2, 1, ACTIVATION_NONE, 0, PAD_ZERO};
    selftest_weights(net, filter, 16, 16, ACTIVATION_NONE);
    struct node *like = selftest_node(net, OP_GROUP_NORM, at[4], at[2]);
    like->args.norm = (struct op_norm){.groups = 16, .epsilon = 1e-5f, .unbiased = true};
    like->in[OP_RESIDUAL1] = at[3];
    selftest_norm(net, OP_LAYER_NORM, at[5], at[4], 1);
    selftest_conv(net, at[6], at[5], 1, 1, ACTIVATION_GELU);
    struct node *attention = selftest_node(net, OP_ATTENTION, at[7], at[6]);
    attention->args.attention = (struct op_attention){2, 0.5f};
    attention->in[OP_RESIDUAL1] = at[5];
    attention->in[OP_RESIDUAL2] = at[4];
    return at[7];
}

/* As SPAN, Real-CUGAN and DySample: a gate, channels scaled by their means, pixels between others. */
static struct view selftest_gated(struct network *net, struct view x)
{
    const struct view gated = graph_temp(net->graph, 1, 16, H / 2, W / 2), mean = graph_temp(net->graph, 1, 16, 1, 1),
                      factors = graph_temp(net->graph, 1, 16, 1, 1),
                      places = graph_temp(net->graph, 1, 16, H / 2, W / 2),
                      pairs = graph_tensor(net->graph, TENSOR_TEMP, 1, H / 2, W / 2, 2, (const int[]){3, 3}),
                      y = graph_temp(net->graph, 1, 3, H, W);
    struct node *gate = selftest_node(net, OP_GATE, gated, x);
    gate->args.gate.offset = -0.5f;
    gate->in[OP_RESIDUAL1] = x;
    gate->in[OP_RESIDUAL2] = x;
    selftest_node(net, OP_MEAN, mean, gated)->in[OP_NOISE_MAP] =
        graph_constant(net->graph, selftest_values(net, H / 2 * W / 2, 0, 2), 1, H / 2, W / 2);
    selftest_conv(net, factors, mean, 1, 1, ACTIVATION_SIGMOID);
    selftest_conv(net, pairs, gated, 1, 1, ACTIVATION_NONE)->in[OP_IN_SCALE] = factors;
    selftest_conv(net, places, gated, 1, 1, ACTIVATION_TANH);
    struct node *sample = selftest_node(net, OP_SAMPLE, y, pairs);
    sample->args.sample = (struct op_sample){2, 2};
    sample->in[OP_RESIDUAL1] = places;
    sample->param[OP_WEIGHT] = selftest_values(net, 16, -0.5f, 1);
    return y;
}

/* Entries of a codebook, and each 6×6 pixels mixed into one. No score comes near the highest one of its pixel. */
static void selftest_chosen(struct network *net, struct view x)
{
    const struct view scores = graph_temp(net->graph, 1, 9, ANSWER_H, ANSWER_W),
                      entries = graph_temp(net->graph, 1, ANSWER_C, ANSWER_H, ANSWER_W),
                      folded = graph_temp(net->graph, 1, 108, ANSWER_H, ANSWER_W);
    const struct view given =
        graph_constant(net->graph, selftest_values(net, 9 * ANSWER_H * ANSWER_W, 0, 1), 9, ANSWER_H, ANSWER_W);
    struct node *add = selftest_node(net, OP_ADD, scores, given);
    add->in[OP_RESIDUAL1] = given;
    add->args.add = (struct op_add){.x_scale = 0.5f, .residual1_scale = 0.5f};
    selftest_node(net, OP_LOOKUP, entries, scores)->param[OP_WEIGHT] = selftest_values(net, 9 * ANSWER_C, -0.25f, 0.5f);
    selftest_node(net, OP_PIXEL_UNSHUFFLE, folded, x)->args.shuffle.factor = 6;
    struct node *last =
        selftest_conv(net, graph_tensor(net->graph, TENSOR_OUTPUT, 1, ANSWER_H, ANSWER_W, 1, (const int[]){ANSWER_C}),
                      folded, 1, 1, ACTIVATION_NONE);
    last->in[OP_RESIDUAL1] = entries;
    last->args.conv2d.residual1_scale = 1;
}

static void selftest_network_destroy(struct network *net)
{
    graph_destroy(&net->graph);
    for (int i = 0; i < net->param_count; i++)
        param_destroy(&net->params[i]);
}

static enum error_code selftest_network_create(struct network *net, bool second, struct error *err)
{
    *net = (struct network){.random = 2463534242u};
    enum error_code code = graph_create(&net->graph, err);
    if (code)
        return code;
    const struct view picture = graph_tensor(net->graph, TENSOR_INPUT, 1, H, W, 1, (const int[]){3});
    if (second)
        selftest_chosen(net, selftest_gated(net, selftest_tokens(net, selftest_large(net, picture))));
    else
        selftest_finish(net, selftest_pyramid(net, selftest_modulated(net, selftest_dense_block(net, picture))),
                        picture);
    code = graph_finish(net->graph, err);
    if (code)
        selftest_network_destroy(net);
    return code;
}

/* --- the tests -----------------------------------------------------------------------------------------------------
 */

static void selftest_fail(struct selftest_figure *figure, const char *what, const struct error *err)
{
    figure->state = SELFTEST_FAILED;
    figure->code = err->code;
    snprintf(figure->reason, sizeof figure->reason, "%s could not be run: %.200s", what, err->text);
}

static enum error_code selftest_run_graph(struct device *device, const struct graph *graph, const float *const *inputs,
                                          float *const *outputs, enum precision precision, struct error *err)
{
    const struct run_options options = {.seed = 20260131};
    struct plan *plan = NULL;
    enum error_code code = plan_create(&plan, device, graph, precision, "selftest", err);
    if (!code)
        code = plan_run(plan, inputs, outputs, &options, err);
    plan_destroy(&plan);
    return code;
}

/* Runs a graph and compares its only output with the wanted values. */
static void selftest_compare(struct device *device, const struct graph *graph, const float *const *inputs,
                             const float *wanted, int count, enum precision precision, const char *what,
                             struct selftest_figure *figure)
{
    const bool halves = precision == PRECISION_FP16 && !graph->tensors[0].fp32;
    const double bound = halves ? SELFTEST_BOUND_FP16 : SELFTEST_BOUND_FP32;
    float got[ANSWER_COUNT], *outputs[] = {got};
    struct error err = ERROR_INIT;
    for (int i = 0; i < count; i++)
        got[i] = NAN; /* values that the device does not write are errors */
    enum error_code code = selftest_run_graph(device, graph, inputs, outputs, precision, &err);
    if (code == ERROR_DEVICE_LOST) { /* it may work without what failed: vk_chain.h */
        error_clear(&err);
        code = selftest_run_graph(device, graph, inputs, outputs, precision, &err);
    }
    if (code) {
        selftest_fail(figure, what, &err);
        return;
    }
    double low = 0, high = 0, error = 0; /* the range includes 0, or the sum's answers would have none */
    for (int i = 0; i < count; i++) {
        low = fmin(low, wanted[i]);
        high = fmax(high, wanted[i]);
        error = isfinite(got[i]) ? fmax(error, fabs((double)got[i] - wanted[i])) : INFINITY;
        if (isinf(error))
            break;
    }
    figure->max_error = error / (high - low);
    figure->state = figure->max_error <= bound ? SELFTEST_PASSED : SELFTEST_FAILED;
    if (isinf(error))
        snprintf(figure->reason, sizeof figure->reason, "%s gave values that are not numbers", what);
    else if (figure->state == SELFTEST_FAILED)
        snprintf(figure->reason, sizeof figure->reason, "%s is off by %.2g of its range; allowed is %g", what,
                 figure->max_error, bound);
}

static void selftest_sum(struct device *device, struct selftest_figure *figure)
{
    const float one[4] = {1, 1, 1, 1}, two[4] = {2, 2, 2, 2}, three[4] = {3, 3, 3, 3};
    const float *const inputs[] = {one, two};
    struct graph *graph;
    struct error err = ERROR_INIT;
    enum error_code code = graph_create(&graph, &err);
    if (!code) {
        const struct view a = graph_tensor(graph, TENSOR_INPUT, 1, 2, 2, 1, (const int[]){1});
        const struct view b = graph_tensor(graph, TENSOR_INPUT, 1, 2, 2, 1, (const int[]){1});
        struct node *add = graph_node(graph, OP_ADD, graph_tensor(graph, TENSOR_OUTPUT, 1, 2, 2, 1, (const int[]){1}));
        if (add) {
            add->in[OP_X] = a;
            add->in[OP_RESIDUAL1] = b;
            add->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
        }
        code = graph_finish(graph, &err);
    }
    if (code)
        selftest_fail(figure, "1+2", &err);
    else
        selftest_compare(device, graph, inputs, three, 4, PRECISION_FP32, "1+2", figure);
    graph_destroy(&graph);
}

/* A device is as good as the worse of two figures. */
static void selftest_worse(struct selftest_figure *figure, const struct selftest_figure *other)
{
    if (other->state == SELFTEST_FAILED || figure->state == SELFTEST_NOT_RUN || other->max_error > figure->max_error)
        *figure = *other;
}

/* Runs one of the two networks; what was found about the other one is kept where it is worse. */
static void selftest_network(struct device *device, const struct device_info *info, bool second, struct selftest *out)
{
    float picture[3 * H * W];
    const float *const inputs[] = {picture};
    struct network net;
    struct error err = ERROR_INIT;
    uint32_t random = 88172645u;
    for (int i = 0; i < 3 * H * W; i++)
        picture[i] = selftest_random(&random);
    if (selftest_network_create(&net, second, &err)) {
        selftest_fail(&out->fp32, "the small network", &err);
        return;
    }
    struct selftest_figure found = {0};
    const float *wanted = second ? second_answer : answer;
    selftest_compare(device, net.graph, inputs, wanted, ANSWER_COUNT, PRECISION_FP32,
                     second ? "the second small network" : "the small network", &found);
    selftest_worse(&out->fp32, &found);
    if (out->fp32.state == SELFTEST_PASSED && info->fp16 && out->fp16.state != SELFTEST_FAILED) {
        found = (struct selftest_figure){0};
        selftest_compare(device, net.graph, inputs, wanted, ANSWER_COUNT, PRECISION_FP16,
                         second ? "the second small network in fp16" : "the small network in fp16", &found);
        selftest_worse(&out->fp16, &found);
    }
    if (out->fp16.state == SELFTEST_PASSED) { /* what networks want in fp32 may be computed in other ways then */
        for (int i = 0; i < net.graph->tensor_count; i++)
            net.graph->tensors[i].fp32 = true;
        found = (struct selftest_figure){0};
        selftest_compare(
            device, net.graph, inputs, wanted, ANSWER_COUNT, PRECISION_FP16,
            second ? "the second small network in fp32 beside fp16" : "the small network in fp32 beside fp16", &found);
        selftest_worse(&out->fp16, &found);
    }
    device_forget_params(device, (const struct param *const *)net.params, (size_t)net.param_count);
    selftest_network_destroy(&net);
}

void selftest_device(struct device *device, struct selftest *out)
{
    const double begin = log_clock_ms();
    struct device_info info;
    *out = (struct selftest){0};
    device_info(device, &info);
    selftest_sum(device, &out->fp32);
    if (out->fp32.state == SELFTEST_PASSED)
        selftest_network(device, &info, false, out);
    if (out->fp32.state == SELFTEST_PASSED && info.type != DEVICE_SOFTWARE)
        selftest_network(device, &info, true, out);
    if (out->fp16.state == SELFTEST_NOT_RUN)
        snprintf(out->fp16.reason, sizeof out->fp16.reason, "%s",
                 out->fp32.state == SELFTEST_FAILED ? "fp32 failed" : info.precision_reason);
    out->ms = log_clock_ms() - begin;
}

enum error_code selftest_open(struct device **out, const char *id, const char *cache_dir, struct selftest *test,
                              struct error *err)
{
    const double begin = log_clock_ms();
    *test = (struct selftest){0};
    device_judge(id, NULL, NULL); /* a device may be tested again */
    enum error_code code = device_open(out, id, cache_dir, err);
    if (code) {
        test->fp32.state = SELFTEST_FAILED;
        test->fp32.code = code;
        snprintf(test->fp32.reason, sizeof test->fp32.reason, "%.255s", err->text);
    } else {
        selftest_device(*out, test);
    }
    test->ms = log_clock_ms() - begin;
    char unusable[256], no_fp16[96];
    snprintf(unusable, sizeof unusable, "it failed its self-test: %.225s", test->fp32.reason);
    if (isinf(test->fp16.max_error))
        snprintf(no_fp16, sizeof no_fp16, "its fp16 failed the self-test: it gave values that are not numbers");
    else
        snprintf(no_fp16, sizeof no_fp16, "its fp16 failed the self-test, off by %.2g", test->fp16.max_error);
    device_judge(id, test->fp32.state == SELFTEST_FAILED ? unusable : NULL,
                 test->fp16.state == SELFTEST_FAILED ? no_fp16 : NULL);
    if (!code && test->fp32.state == SELFTEST_FAILED) {
        device_close(out);
        code = error_set(err, ERROR_DEVICE, "%s", test->fp32.reason);
    } else if (!code && test->fp16.state == SELFTEST_FAILED) { /* its state is unknown after that */
        device_close(out);
        code = device_open(out, id, cache_dir, err);
    }
    return code;
}

void selftest_run(const char *id, const char *cache_dir, struct selftest *out)
{
    struct device *device;
    struct error err = ERROR_INIT;
    if (!selftest_open(&device, id, cache_dir, out, &err))
        device_close(&device);
}

const char *selftest_state_name(enum selftest_state state)
{
    static const char *const names[] = {"not run", "passed", "failed"};
    return names[state];
}
