/* The operators, one row each: what it computes, its inputs, parameters and arguments. An operator stands in four
 * places: here and in op.c (its row and its shape check), its kernel in cpu/cpu_ref.c, its shader, its cases in
 * tests/ops. Thread-safety: constant data and functions without state.
 *
 * Notation: x is in[OP_X] with shape {n, c, h, w}, y the output {n, c', h', w'}; act() is the activation of args. */
#ifndef RUNTIME_NN_OP_H
#define RUNTIME_NN_OP_H

#include <stdbool.h>

#include "runtime/base/error.h"

enum op_kind {
    OP_CONV2D,
    OP_DEPTHWISE,
    OP_LINEAR,
    OP_DEMODULATE,
    OP_RESIZE,
    OP_PIXEL_SHUFFLE,
    OP_PIXEL_UNSHUFFLE,
    OP_ADD,
    OP_SCALE_SHIFT,
    OP_MAX_POOL,
    OP_NOISE,
    OP_GROUP_NORM,
    OP_LAYER_NORM,
    OP_ATTENTION,
    OP_LOOKUP,
    OP_GATE,
    OP_MEAN,
    OP_SAMPLE,
    OP_KIND_COUNT
};

enum activation {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_LEAKY, /* x < 0 ? slope*x : x, slope in the args */
    ACTIVATION_PRELU, /* slope per output channel, in param[OP_SLOPE] */
    ACTIVATION_SILU,  /* x / (1 + e^-x); this and the following: CONV2D and LINEAR alone have them */
    ACTIVATION_MISH,  /* x * tanh(ln(1 + e^x)) */
    ACTIVATION_TANH,
    ACTIVATION_GELU,   /* x/2 * (1 + erf(x/sqrt(2))) */
    ACTIVATION_SIGMOID /* 1 / (1 + e^-x), for factors: where channels are padding, devices may leave a half */
};

enum pad_mode { PAD_ZERO, PAD_REFLECT /* as torch.nn.ReflectionPad2d: the edge is not repeated */ };

enum resize_mode {
    RESIZE_NEAREST, /* source index floor(i*in/out), as torch's "nearest" */
    RESIZE_BILINEAR /* align_corners=False, no antialiasing: source (i+0.5)*in/out-0.5, clamped below at 0 */
};

/* Input and parameter slots. */
enum {
    OP_X = 0,
    OP_RESIDUAL1 = 1,
    OP_RESIDUAL2 = 2,
    OP_IN_SCALE = 3,
    OP_OUT_SCALE = 4,
    OP_NOISE_MAP = 5,
    OP_MAX_INPUTS = 6
};
enum { OP_WEIGHT = 0, OP_BIAS = 1, OP_SLOPE = 2, OP_MAX_PARAMS = 3 };

/* CONV2D: u = x, nearest-upsampled by `upsample`; v[o] = sum over i,ky,kx of weight[o][i][ky][kx] *
 *   in_scale[n][i] * u[i][y*stride+ky-pad][x*stride+kx-pad];  v *= gain * out_scale[n][o];
 *   v += noise_weight * noise[n or 0][0][y][x];  v += bias[o];
 *   y = act(v)*scale + residual1*residual1_scale + residual2*residual2_scale, or, where activation_last is set,
 *   y = act(v*scale + residuals).
 *   weight: [c'][c][kernel][kernel], c and c' in the views' channel order. in_scale {n, c, 1, 1}, out_scale
 *   {n, c', 1, 1}, noise {n or constant, 1, h', w'}, residuals: the shape of y (never y itself, but they may be
 *   other segments of the tensor that y is in).
 *   h' = (h*upsample + 2*pad - kernel)/stride + 1. Reflection wants h*upsample > pad; a shorter side repeats its edge.
 */
struct op_conv2d {
    int kernel, stride, pad;
    enum pad_mode pad_mode;
    int upsample; /* 1 or 2 */
    enum activation activation;
    float slope;
    bool activation_last;
    float gain, scale, residual1_scale, residual2_scale, noise_weight;
};

/* DEPTHWISE: as CONV2D with one filter a channel, and only bias and activation. weight: [c][k][k]. A pad below 0 leaves
 * out the input's outermost pixels. */
struct op_depthwise {
    int kernel, stride, pad;
    enum activation activation;
    float slope;
    enum pad_mode pad_mode;
};

/* LINEAR: y[n][o] = act(sum over i of weight[o][i] * flat(x)[i] + bias[o]), flat in c, h, w order. y: {n, o, 1, 1}.
 *   weight: [o][c*h*w]. */
struct op_linear {
    enum activation activation;
    float slope;
};

/* DEMODULATE: y[n][o] = 1/sqrt(sum over i of weight[o][i] * x[n][i]^2 + epsilon). x {n, c, 1, 1}, y {n, c', 1, 1}.
 *   weight[o][i]: the sum over the kernel of the squared convolution weights (StyleGAN2's demodulation, Karras et al.
 *   2020, eq. 3, with the style factored out). */
struct op_demodulate {
    float epsilon;
};

/* RESIZE: x to h' × w'. */
struct op_resize {
    enum resize_mode mode;
};

/* PIXEL_SHUFFLE: y[c'][y*r+i][x*r+j] = x[c'*r*r + i*r + j][y][x] (+ residual1 {n, c', h, w}, nearest-upsampled by r).
 * PIXEL_UNSHUFFLE is the inverse, without the residual. */
struct op_shuffle {
    int factor;
};

/* ADD: y = act(x*x_scale + residual1*residual1_scale). May write either input. Either may be a constant, which serves
 * every image of the batch. residual1 may be larger than y, by as many pixels on each side: then it is its middle; or
 * {n, c, 1, 1}: one value a channel. */
struct op_add {
    float x_scale, residual1_scale;
    enum activation activation;
    float slope;
};

/* SCALE_SHIFT: y = x * residual1 + residual2, all of one shape; but x may be larger, and residual1 {n, c, 1, 1}, as in
 * ADD. May write x. */

/* MAX_POOL: window kernel, stride, pad (padding never wins). */
struct op_max_pool {
    int kernel, stride, pad;
};

/* NOISE: y {n, 1, h, w} standard normal values from Philox 4x32-10 (Salmon et al. 2011): key = seed (low, high word),
 *   counter = {index of the quad of pixels, layer, image number, 0}; four outputs u0..u3 make four pixels by
 * Box-Muller: r = sqrt(-2 ln((u0+1)/2^32)), t = 2 pi u1/2^32 -> r cos t, r sin t; u2, u3 likewise. The image number is
 *   run_options.first_image + n. Pixels past h*w of the last quad are dropped. */
struct op_noise {
    int layer;
};

/* GROUP_NORM: y = act((x - mean)/sqrt(variance + epsilon) * weight[c] + bias[c]); mean and variance are those of one
 *   image's group, of which there are `groups` (Wu & He 2018). Both params may be absent: 1 and 0. With residual1, of
 *   x's shape, they are the same group's in residual1: sqrt(its variance + epsilon) and its mean (AdaIN, Huang &
 *   Belongie 2017). unbiased: sums of squares are divided by their count - 1, as torch.var does. A group has 1, 2 or a
 *   multiple of 4 channels. activation: NONE or SILU. weight, bias: [c].
 * LAYER_NORM: the same for all channels of one pixel, without an activation; groups is 1. */
struct op_norm {
    int groups;
    float epsilon;
    bool unbiased;
    enum activation activation;
};

/* ATTENTION: pixels are tokens; the channels are divided among the heads (Vaswani et al. 2017). For each head and token
 *   p: y[p] = sum over tokens j of a[j] * residual2[j], a = softmax over j of scale * (x[p] . residual1[j]): x,
 * residual1 and residual2 are queries, keys and values, of y's shape. A head has a multiple of 4 channels. At most (on
 * a GPU the scores of a token and its query share the 16 KiB that each has for a workgroup): */
#define OP_ATTENTION_TOKENS 2048
#define OP_ATTENTION_HEAD 1024 /* channels */
struct op_attention {
    int heads;
    float scale;
};

/* LOOKUP: y[n][o] at a pixel is weight[o][k], k the first channel of x that has the largest value there.
 *   x {n, k, h, w}, y {n, c', h, w}, weight: [c'][k]. A NaN in x is one in y. */

/* GATE: y = (x + residual1) * (sigmoid(residual2) + offset), all of one shape; residual1 may be absent. May write x. */
struct op_gate {
    float offset;
};

/* MEAN: y {n, c, 1, 1}, each channel's mean over the picture, of x * noise where there is a map {n, 1, h, w}: of ones
 * and zeros, it leaves pixels out (which still count). */

/* SAMPLE (DySample, Liu et al. 2023): with r = factor, y[c][Y][X] = sum over the groups g of x[g][c] at row Y/r +
 * o[1][g] and column X/r + o[0][g], bilinearly between pixels, where positions beyond the picture are its edge. o[d][g]
 * = residual1[k][Y/r][X/r] + weight[k], k = (d*groups + g)*r*r + Y%r*r + X%r, divisions without remainder. x: {n,
 * groups*c, h, w} in `groups` segments of c channels, c at most 4. residual1: {n, 2*groups*r*r, h, w} in one segment.
 * y: {n, c, h*r, w*r}. weight: as many values as residual1 has channels. */
struct op_sample {
    int groups, factor;
};

union op_args {
    struct op_conv2d conv2d;
    struct op_depthwise depthwise;
    struct op_linear linear;
    struct op_demodulate demodulate;
    struct op_resize resize;
    struct op_shuffle shuffle;
    struct op_add add;
    struct op_max_pool max_pool;
    struct op_noise noise;
    struct op_norm norm;
    struct op_attention attention;
    struct op_gate gate;
    struct op_sample sample;
};

struct graph;
struct node;

/* The operator's name, such as "conv2d"; its shader's and its kernel's stem. */
const char *op_name(enum op_kind kind);

/* Checks a node's shapes and params against its row; ERROR_INTERNAL with the operator and the reason. */
enum error_code op_check(const struct graph *graph, const struct node *node, struct error *err) MUST_CHECK;

#endif
