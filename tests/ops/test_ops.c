/* Every operator on every device against the plain C oracle: fp32 to 1e-5 of the output's range, fp16 to a mean of 1e-3
 * and a maximum of 1e-2. Each case is run twice, and must give the same bytes. Convolutions without
 * matrices run with each kernel and some of its tiles, whichever the device would choose (each case by every second of
 * them; by all if RESTORED_FULL is 1), and the CPU device with each instruction set. Vulkan's validation layer must
 * have nothing to say. Long because of its table of cases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/vulkan/vk_device.h"

enum {
    BIAS = 1,
    RESIDUAL1 = 2,
    RESIDUAL2 = 4,
    IN_SCALE = 8,
    OUT_SCALE = 16,
    NOISE_MAP = 32,
    CONSTANT = 64,         /* x and the noise map are constants */
    INSIDE = 128,          /* x and y are segments in the middle of wider tensors */
    IN_PLACE = 256,        /* y is x */
    OTHER_SEGMENTS = 512,  /* residuals are one segment, however y is divided */
    RESIDUAL_INSIDE = 1024 /* residuals alone are segments in the middle of wider tensors */
};

struct op_case {
    const char *name;
    enum op_kind kind;
    int n, h, w;       /* of x; of y for noise */
    int in[4], out[4]; /* segments of x and y; out may be absent where it follows from x */
    int out_h, out_w;  /* resize */
    unsigned parts;
    union op_args args;
};

#define CONV(k, s, p, ...) .conv2d = {.kernel = (k), .stride = (s), .pad = (p), __VA_ARGS__}

static const struct op_case cases[] = {
    /* conv2d: shapes */
    {"3x3", OP_CONV2D, 1, 16, 16, {8}, {8}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 odd size, odd channels", OP_CONV2D, 2, 7, 13, {5}, {7}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 of 1x1", OP_CONV2D, 1, 1, 1, {3}, {6}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 of one row", OP_CONV2D, 1, 1, 37, {4}, {4}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 of one column", OP_CONV2D, 3, 41, 1, {4}, {5}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 picture of three channels", OP_CONV2D, 1, 40, 50, {3}, {64}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 to three channels", OP_CONV2D, 1, 50, 40, {64}, {3}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 64 to 64", OP_CONV2D, 1, 35, 37, {64}, {64}, 0, 0, BIAS, {CONV(3, 1, 1, .activation = ACTIVATION_PRELU)}},
    {"3x3 36 to 100, small", OP_CONV2D, 2, 4, 4, {36}, {100}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 256 to 240", OP_CONV2D, 1, 21, 26, {256}, {240}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 48 to 3", OP_CONV2D, 2, 33, 30, {48}, {3}, 0, 0, BIAS, {CONV(3, 1, 1)}},
    {"3x3 no padding", OP_CONV2D, 1, 30, 35, {40}, {50}, 0, 0, BIAS, {CONV(3, 1, 0)}},
    {"1x1", OP_CONV2D, 2, 9, 11, {10}, {18}, 0, 0, BIAS, {CONV(1, 1, 0, .activation = ACTIVATION_RELU)}},
    {"1x1 stride 2", OP_CONV2D, 1, 9, 12, {8}, {12}, 0, 0, 0, {CONV(1, 2, 0)}},
    {"1x1 larger", OP_CONV2D, 1, 40, 44, {16}, {40}, 0, 0, BIAS, {CONV(1, 1, 0)}},
    {"1x1 of a vector", OP_CONV2D, 3, 1, 1, {30}, {20}, 0, 0, BIAS, {CONV(1, 1, 0)}},
    {"1x1 of many channels", OP_CONV2D, 1, 9, 7, {200}, {96}, 0, 0, BIAS, {CONV(1, 1, 0)}},
    {"1x1 to three channels", OP_CONV2D, 2, 21, 23, {40}, {3}, 0, 0, BIAS | IN_SCALE, {CONV(1, 1, 0)}},
    {"1x1 stride 2, larger", OP_CONV2D, 1, 23, 29, {64}, {64}, 0, 0, BIAS, {CONV(1, 2, 0)}},
    {"1x1 of segments",
     OP_CONV2D,
     1,
     17,
     19,
     {48, 16},
     {32, 64},
     0,
     0,
     BIAS | RESIDUAL1 | INSIDE,
     {CONV(1, 1, 0, .residual1_scale = 1)}},
    {"1x1, residual beside few channels",
     OP_CONV2D,
     2,
     9,
     11,
     {32},
     {64},
     0,
     0,
     BIAS | RESIDUAL1 | RESIDUAL_INSIDE,
     {CONV(1, 1, 0, .residual1_scale = -1, .activation = ACTIVATION_RELU)}},
    {"3x3, residuals beside few channels",
     OP_CONV2D,
     1,
     9,
     11,
     {32},
     {64},
     0,
     0,
     BIAS | RESIDUAL1 | RESIDUAL2 | RESIDUAL_INSIDE,
     {CONV(3, 1, 1, .residual1_scale = 1, .residual2_scale = 0.5f)}},
    {"1x1 of a bottleneck",
     OP_CONV2D,
     2,
     13,
     11,
     {32},
     {128},
     0,
     0,
     BIAS | RESIDUAL1,
     {CONV(1, 1, 0, .residual1_scale = 0.5f, .activation = ACTIVATION_RELU, .activation_last = true)}},
    {"7x7 stride 2 to 64", OP_CONV2D, 2, 27, 30, {3}, {64}, 0, 0, BIAS, {CONV(7, 2, 3, .activation = ACTIVATION_RELU)}},
    {"5x5 stride 2, reflect",
     OP_CONV2D,
     1,
     14,
     15,
     {4},
     {24},
     0,
     0,
     BIAS,
     {CONV(5, 2, 2, .pad_mode = PAD_REFLECT, .activation = ACTIVATION_PRELU)}},
    {"3x3 stride 2 of many channels",
     OP_CONV2D,
     1,
     15,
     12,
     {256},
     {64},
     0,
     0,
     BIAS,
     {CONV(3, 2, 1, .pad_mode = PAD_REFLECT)}},
    {"7x7 stride 2", OP_CONV2D, 1, 45, 39, {3}, {16}, 0, 0, BIAS, {CONV(7, 2, 3, .activation = ACTIVATION_RELU)}},
    {"3x3 stride 2", OP_CONV2D, 2, 17, 18, {6}, {9}, 0, 0, BIAS, {CONV(3, 2, 1)}},
    {"3x3 stride 3 no padding", OP_CONV2D, 1, 20, 23, {4}, {4}, 0, 0, 0, {CONV(3, 3, 0)}},
    {"2x2", OP_CONV2D, 1, 9, 9, {4}, {8}, 0, 0, BIAS, {CONV(2, 1, 0)}},
    {"5x5 wide padding", OP_CONV2D, 1, 3, 4, {4}, {8}, 0, 0, BIAS, {CONV(5, 1, 4)}},
    /* conv2d: options */
    {"reflect", OP_CONV2D, 1, 12, 10, {4}, {8}, 0, 0, BIAS, {CONV(3, 1, 1, .pad_mode = PAD_REFLECT)}},
    {"reflect 5x5 of 3x4", OP_CONV2D, 1, 3, 4, {4}, {8}, 0, 0, BIAS, {CONV(5, 1, 2, .pad_mode = PAD_REFLECT)}},
    {"reflect of one row", OP_CONV2D, 1, 1, 9, {4}, {4}, 0, 0, BIAS, {CONV(3, 1, 1, .pad_mode = PAD_REFLECT)}},
    {"reflect stride 2", OP_CONV2D, 2, 11, 9, {6}, {6}, 0, 0, BIAS, {CONV(3, 2, 1, .pad_mode = PAD_REFLECT)}},
    {"reflect, upsampled",
     OP_CONV2D,
     1,
     5,
     6,
     {6},
     {6},
     0,
     0,
     0,
     {CONV(3, 1, 1, .pad_mode = PAD_REFLECT, .upsample = 2)}},
    {"upsample", OP_CONV2D, 1, 13, 22, {8}, {10}, 0, 0, BIAS, {CONV(3, 1, 1, .upsample = 2)}},
    {"upsample 1x1 picture", OP_CONV2D, 2, 1, 1, {5}, {4}, 0, 0, BIAS, {CONV(3, 1, 1, .upsample = 2)}},
    {"relu", OP_CONV2D, 1, 9, 9, {4}, {4}, 0, 0, BIAS, {CONV(3, 1, 1, .activation = ACTIVATION_RELU)}},
    {"leaky", OP_CONV2D, 1, 9, 9, {4}, {4}, 0, 0, BIAS, {CONV(3, 1, 1, .activation = ACTIVATION_LEAKY, .slope = 0.2f)}},
    {"prelu", OP_CONV2D, 1, 9, 9, {4}, {6}, 0, 0, 0, {CONV(3, 1, 1, .activation = ACTIVATION_PRELU)}},
    {"silu", OP_CONV2D, 1, 9, 9, {4}, {6}, 0, 0, BIAS, {CONV(3, 1, 1, .gain = 9, .activation = ACTIVATION_SILU)}},
    {"mish", OP_CONV2D, 2, 19, 17, {24}, {20}, 0, 0, BIAS, {CONV(3, 1, 1, .gain = 9, .activation = ACTIVATION_MISH)}},
    {"silu, modulated",
     OP_CONV2D,
     1,
     20,
     17,
     {32},
     {64},
     0,
     0,
     BIAS | RESIDUAL1 | OUT_SCALE,
     {CONV(1, 1, 0, .scale = 0.5f, .residual1_scale = 1, .activation = ACTIVATION_SILU)}},
    {"silu last",
     OP_CONV2D,
     1,
     9,
     9,
     {4},
     {6},
     0,
     0,
     BIAS | RESIDUAL1,
     {CONV(3, 1, 1, .residual1_scale = 1, .activation = ACTIVATION_SILU, .activation_last = true)}},
    {"gain and scale", OP_CONV2D, 1, 9, 9, {4}, {6}, 0, 0, BIAS, {CONV(3, 1, 1, .gain = 1.4f, .scale = 0.2f)}},
    {"residual",
     OP_CONV2D,
     1,
     9,
     9,
     {4},
     {6},
     0,
     0,
     BIAS | RESIDUAL1,
     {CONV(3, 1, 1, .scale = 0.2f, .residual1_scale = 1)}},
    {"two residuals",
     OP_CONV2D,
     2,
     33,
     34,
     {8},
     {8},
     0,
     0,
     BIAS | RESIDUAL1 | RESIDUAL2,
     {CONV(3, 1, 1, .scale = 0.04f, .residual1_scale = 0.2f, .residual2_scale = -1)}},
    {"activation last",
     OP_CONV2D,
     1,
     9,
     9,
     {4},
     {6},
     0,
     0,
     BIAS | RESIDUAL1,
     {CONV(1, 1, 0, .residual1_scale = 1, .activation = ACTIVATION_RELU, .activation_last = true)}},
    {"modulated",
     OP_CONV2D,
     3,
     16,
     16,
     {12},
     {10},
     0,
     0,
     BIAS | IN_SCALE | OUT_SCALE | NOISE_MAP,
     {CONV(3, 1, 1, .noise_weight = 0.3f, .activation = ACTIVATION_LEAKY, .slope = 0.2f, .scale = 1.41421356f)}},
    {"modulated, upsampled",
     OP_CONV2D,
     2,
     8,
     8,
     {12},
     {10},
     0,
     0,
     IN_SCALE | OUT_SCALE | NOISE_MAP,
     {CONV(3, 1, 1, .upsample = 2, .noise_weight = -0.7f)}},
    {"modulated to a picture",
     OP_CONV2D,
     2,
     33,
     33,
     {16},
     {3},
     0,
     0,
     BIAS | IN_SCALE | RESIDUAL1,
     {CONV(1, 1, 0, .residual1_scale = 1)}},
    {"modulated constant",
     OP_CONV2D,
     2,
     4,
     4,
     {12},
     {8},
     0,
     0,
     BIAS | IN_SCALE | NOISE_MAP | CONSTANT,
     {CONV(3, 1, 1, .noise_weight = 0.5f)}},
    {"everything",
     OP_CONV2D,
     2,
     11,
     9,
     {6, 3},
     {5, 2},
     0,
     0,
     BIAS | RESIDUAL1 | RESIDUAL2 | IN_SCALE | OUT_SCALE | NOISE_MAP | INSIDE,
     {CONV(3, 1, 1, .gain = 0.9f, .scale = 0.7f, .residual1_scale = 0.5f, .residual2_scale = 0.25f,
           .noise_weight = 0.1f, .activation = ACTIVATION_PRELU, .activation_last = true)}},
    {"everything, wide",
     OP_CONV2D,
     2,
     19,
     15,
     {40, 24},
     {50, 37},
     0,
     0,
     BIAS | RESIDUAL1 | RESIDUAL2 | IN_SCALE | OUT_SCALE | NOISE_MAP | INSIDE,
     {CONV(3, 1, 1, .pad_mode = PAD_REFLECT, .upsample = 2, .gain = 0.9f, .scale = 0.7f, .residual1_scale = 0.5f,
           .residual2_scale = 0.25f, .noise_weight = 0.1f, .activation = ACTIVATION_PRELU)}},
    /* conv2d: slices */
    {"slices", OP_CONV2D, 2, 10, 12, {16, 8}, {8}, 0, 0, BIAS | INSIDE, {CONV(3, 1, 1)}},
    {"odd slices", OP_CONV2D, 2, 10, 12, {6, 6, 6}, {6}, 0, 0, BIAS | INSIDE, {CONV(3, 1, 1)}},
    {"odd slices, scaled",
     OP_CONV2D,
     1,
     10,
     12,
     {2, 2},
     {5, 2},
     0,
     0,
     BIAS | IN_SCALE | OUT_SCALE | NOISE_MAP,
     {CONV(3, 1, 1, .noise_weight = 0.5f)}},
    {"odd slices, residual of one segment",
     OP_CONV2D,
     2,
     10,
     12,
     {2, 5},
     {3, 4},
     0,
     0,
     BIAS | RESIDUAL1 | RESIDUAL2 | OTHER_SEGMENTS,
     {CONV(3, 1, 1, .residual1_scale = 0.5f, .residual2_scale = 2)}},
    /* the others */
    {"3x3", OP_DEPTHWISE, 2, 11, 14, {10}, {0}, 0, 0, BIAS, {.depthwise = {3, 1, 1, ACTIVATION_LEAKY, 0.1f, PAD_ZERO}}},
    {"stride 2, slices",
     OP_DEPTHWISE,
     1,
     12,
     13,
     {5, 6},
     {6, 5},
     0,
     0,
     INSIDE,
     {.depthwise = {3, 2, 1, ACTIVATION_RELU, 0, PAD_ZERO}}},
    {"reflected, stride 2",
     OP_DEPTHWISE,
     2,
     13,
     18,
     {20},
     {0},
     0,
     0,
     BIAS,
     {.depthwise = {3, 2, 1, ACTIVATION_NONE, 0, PAD_REFLECT}}},
    {"reflected, 5x5",
     OP_DEPTHWISE,
     1,
     9,
     7,
     {6},
     {0},
     0,
     0,
     0,
     {.depthwise = {5, 1, 2, ACTIVATION_LEAKY, 0.2f, PAD_REFLECT}}},
    {"cropped", OP_DEPTHWISE, 2, 11, 9, {6}, {0}, 0, 0, 0, {.depthwise = {1, 1, -4, ACTIVATION_NONE, 0, PAD_ZERO}}},
    {"widely reflected",
     OP_DEPTHWISE,
     1,
     9,
     20,
     {3},
     {0},
     0,
     0,
     0,
     {.depthwise = {1, 1, 10, ACTIVATION_NONE, 0, PAD_REFLECT}}},
    {"1x1 picture, prelu",
     OP_DEPTHWISE,
     1,
     1,
     1,
     {9},
     {0},
     0,
     0,
     BIAS,
     {.depthwise = {5, 1, 2, ACTIVATION_PRELU, 0, PAD_ZERO}}},
    {"vector", OP_LINEAR, 3, 1, 1, {50}, {21}, 0, 0, BIAS, {.linear = {ACTIVATION_LEAKY, 0.2f}}},
    {"flattened", OP_LINEAR, 2, 4, 5, {6}, {30}, 0, 0, BIAS, {.linear = {ACTIVATION_NONE, 0}}},
    {"slices", OP_LINEAR, 2, 3, 2, {5, 6}, {7, 3}, 0, 0, INSIDE, {.linear = {ACTIVATION_PRELU, 0}}},
    {"long", OP_LINEAR, 1, 4, 4, {130}, {9}, 0, 0, BIAS, {.linear = {ACTIVATION_RELU, 0}}},
    {"tanh", OP_LINEAR, 2, 1, 1, {20}, {9}, 0, 0, BIAS, {.linear = {ACTIVATION_TANH, 0}}},
    {"1x1, gelu", OP_CONV2D, 1, 9, 11, {20}, {18}, 0, 0, BIAS, {CONV(1, 1, 0, .activation = ACTIVATION_GELU)}},
    {"sigmoid", OP_LINEAR, 1, 1, 1, {20}, {16}, 0, 0, BIAS, {.linear = {ACTIVATION_SIGMOID, 0}}},
    {"one to one", OP_LINEAR, 1, 1, 1, {1}, {1}, 0, 0, BIAS, {.linear = {ACTIVATION_NONE, 0}}},
    {"plain", OP_DEMODULATE, 3, 1, 1, {40}, {22}, 0, 0, 0, {.demodulate = {1e-8f}}},
    {"slices", OP_DEMODULATE, 2, 1, 1, {5, 9}, {3, 6}, 0, 0, INSIDE, {.demodulate = {1e-3f}}},
    {"nearest up", OP_RESIZE, 2, 5, 7, {6}, {0}, 10, 14, 0, {.resize = {RESIZE_NEAREST}}},
    {"nearest to any", OP_RESIZE, 1, 17, 19, {5}, {0}, 11, 50, INSIDE, {.resize = {RESIZE_NEAREST}}},
    {"bilinear up", OP_RESIZE, 2, 5, 7, {6}, {0}, 10, 14, 0, {.resize = {RESIZE_BILINEAR}}},
    {"bilinear down", OP_RESIZE, 1, 31, 40, {3, 3}, {6}, 16, 20, INSIDE, {.resize = {RESIZE_BILINEAR}}},
    {"bilinear halved", OP_RESIZE, 2, 32, 22, {5}, {0}, 16, 11, 0, {.resize = {RESIZE_BILINEAR}}},
    {"bilinear to any", OP_RESIZE, 1, 13, 9, {4}, {0}, 7, 32, 0, {.resize = {RESIZE_BILINEAR}}},
    {"bilinear of 1x1", OP_RESIZE, 1, 1, 1, {3}, {0}, 4, 3, 0, {.resize = {RESIZE_BILINEAR}}},
    {"2", OP_PIXEL_SHUFFLE, 2, 5, 6, {12}, {3}, 0, 0, 0, {.shuffle = {2}}},
    {"4 with residual", OP_PIXEL_SHUFFLE, 1, 5, 7, {48}, {3}, 0, 0, RESIDUAL1, {.shuffle = {4}}},
    {"3, slices", OP_PIXEL_SHUFFLE, 2, 4, 3, {10, 35}, {2, 3}, 0, 0, RESIDUAL1 | INSIDE, {.shuffle = {3}}},
    {"1", OP_PIXEL_SHUFFLE, 1, 4, 3, {5}, {5}, 0, 0, RESIDUAL1, {.shuffle = {1}}},
    {"2", OP_PIXEL_UNSHUFFLE, 2, 6, 8, {3}, {12}, 0, 0, 0, {.shuffle = {2}}},
    {"4", OP_PIXEL_UNSHUFFLE, 1, 8, 4, {3}, {48}, 0, 0, 0, {.shuffle = {4}}},
    {"3, slices", OP_PIXEL_UNSHUFFLE, 2, 9, 6, {3, 2}, {7, 38}, 0, 0, INSIDE, {.shuffle = {3}}},
    {"plain", OP_ADD, 2, 9, 8, {7}, {0}, 0, 0, RESIDUAL1, {.add = {0.5f, 2, ACTIVATION_NONE, 0}}},
    {"in place, relu", OP_ADD, 1, 9, 8, {8}, {0}, 0, 0, RESIDUAL1 | IN_PLACE, {.add = {1, -1, ACTIVATION_RELU, 0}}},
    {"slices, prelu",
     OP_ADD,
     2,
     9,
     8,
     {3, 6},
     {4, 5},
     0,
     0,
     RESIDUAL1 | INSIDE | OTHER_SEGMENTS,
     {.add = {1, 0.3f, ACTIVATION_PRELU, 0}}},
    {"plain", OP_SCALE_SHIFT, 2, 9, 8, {7}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2, {{0}}},
    {"in place", OP_SCALE_SHIFT, 1, 9, 8, {8}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2 | IN_PLACE, {{0}}},
    {"halves of two channels", OP_SCALE_SHIFT, 2, 9, 8, {2}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2 | INSIDE, {{0}}},
    {"other segments", OP_SCALE_SHIFT, 2, 9, 8, {5, 3}, {2, 6}, 0, 0, RESIDUAL1 | RESIDUAL2 | OTHER_SEGMENTS, {{0}}},
    {"2 stride 2", OP_MAX_POOL, 2, 8, 10, {6}, {0}, 0, 0, 0, {.max_pool = {2, 2, 0}}},
    {"3 stride 2 padded", OP_MAX_POOL, 1, 11, 13, {5}, {0}, 0, 0, INSIDE, {.max_pool = {3, 2, 1}}},
    {"3 of 1x1", OP_MAX_POOL, 1, 1, 1, {5}, {0}, 0, 0, 0, {.max_pool = {3, 1, 1}}},
    {"plain", OP_GATE, 2, 9, 8, {7}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2, {.gate = {-0.5f}}},
    {"one sum", OP_GATE, 1, 9, 8, {8}, {0}, 0, 0, RESIDUAL2 | IN_PLACE, {.gate = {0}}},
    {"other segments",
     OP_GATE,
     2,
     9,
     8,
     {5, 3},
     {2, 6},
     0,
     0,
     RESIDUAL1 | RESIDUAL2 | OTHER_SEGMENTS,
     {.gate = {0.25f}}},
    {"plain", OP_MEAN, 2, 9, 8, {7}, {0}, 0, 0, 0, {{0}}},
    {"of one pixel, slices", OP_MEAN, 1, 1, 1, {5, 3}, {2, 6}, 0, 0, INSIDE, {{0}}},
    {"large", OP_MEAN, 1, 130, 101, {20}, {0}, 0, 0, 0, {{0}}},
    {"weighted, slices", OP_MEAN, 2, 13, 11, {5, 18}, {2, 21}, 0, 0, INSIDE | NOISE_MAP, {{0}}},
    {"2", OP_SAMPLE, 2, 5, 6, {3, 3, 3, 3}, {3}, 0, 0, RESIDUAL1, {.sample = {4, 2}}},
    {"3, far outside", OP_SAMPLE, 1, 3, 2, {2, 2, 2}, {2}, 0, 0, RESIDUAL1, {.sample = {3, 3}}},
    {"1, one pixel", OP_SAMPLE, 1, 1, 1, {4}, {4}, 0, 0, RESIDUAL1 | INSIDE, {.sample = {1, 1}}},
    {"16x16", OP_NOISE, 3, 16, 16, {1}, {0}, 0, 0, 0, {.noise = {0}}},
    {"odd, layer 7", OP_NOISE, 1, 5, 7, {1}, {0}, 0, 0, 0, {.noise = {7}}},
    {"larger", OP_NOISE, 1, 200, 300, {1}, {0}, 0, 0, 0, {.noise = {3}}},
    {"2 groups of 4", OP_GROUP_NORM, 2, 9, 8, {8}, {0}, 0, 0, BIAS, {.norm = {2, 1e-6f, false, ACTIVATION_NONE}}},
    {"groups of 16, silu",
     OP_GROUP_NORM,
     1,
     33,
     40,
     {64},
     {0},
     0,
     0,
     BIAS,
     {.norm = {4, 1e-6f, false, ACTIVATION_SILU}}},
    {"groups of 2, odd size",
     OP_GROUP_NORM,
     2,
     7,
     5,
     {10},
     {0},
     0,
     0,
     BIAS | INSIDE,
     {.norm = {5, 1e-5f, true, ACTIVATION_SILU}}},
    {"groups across segments",
     OP_GROUP_NORM,
     1,
     6,
     7,
     {5, 7},
     {6, 6},
     0,
     0,
     BIAS | INSIDE,
     {.norm = {3, 1e-5f, false, ACTIVATION_NONE}}},
    {"like another", OP_GROUP_NORM, 2, 9, 8, {7}, {0}, 0, 0, RESIDUAL1, {.norm = {7, 1e-5f, true, ACTIVATION_NONE}}},
    {"plain", OP_LAYER_NORM, 2, 16, 9, {50}, {0}, 0, 0, BIAS, {.norm = {1, 1e-5f, false, ACTIVATION_NONE}}},
    {"segments", OP_LAYER_NORM, 1, 3, 50, {3, 18}, {7, 14}, 0, 0, INSIDE, {.norm = {1, 1e-5f, false, ACTIVATION_NONE}}},
    {"one head", OP_ATTENTION, 1, 4, 4, {16}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2, {.attention = {1, 0.5f}}},
    {"3 heads of 4, 63 tokens", OP_ATTENTION, 2, 9, 7, {12}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2, {.attention = {3, 2}}},
    {"heads across segments",
     OP_ATTENTION,
     1,
     16,
     10,
     {6, 34},
     {9, 31},
     0,
     0,
     RESIDUAL1 | RESIDUAL2 | INSIDE | OTHER_SEGMENTS,
     {.attention = {2, 0.4f}}},
    {"one token", OP_ATTENTION, 1, 1, 1, {8}, {0}, 0, 0, RESIDUAL1 | RESIDUAL2, {.attention = {2, 1}}},
    {"plain", OP_LOOKUP, 2, 5, 7, {30}, {18}, 0, 0, 0, {{0}}},
    {"segments", OP_LOOKUP, 1, 9, 15, {6, 9}, {3, 7}, 0, 0, INSIDE, {{0}}},
    {"one pixel, inside", OP_NOISE, 2, 1, 1, {1}, {0}, 0, 0, INSIDE, {.noise = {1}}},
};
#define CASE_COUNT (sizeof cases / sizeof cases[0])

/* --- data ----------------------------------------------------------------------------------------------------------
 */

static uint32_t random_state;

static float random_value(void) /* -1 to 1 */
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(int32_t)random_state / 2147483648.0f;
}

static float *random_values(size_t count, float scale)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = scale * random_value();
    return values;
}

#define MAX_TENSORS 8

/* A case as a graph, with what it needs and what it should give. */
struct trial {
    const struct op_case *c;
    struct graph *graph;
    struct param *params[MAX_TENSORS];
    size_t param_count;
    float *inputs[MAX_TENSORS];
    int input_count;
    struct view y;
    float *expected, *got, *again;
    size_t bytes;
};

static const struct param *random_param(struct trial *trial, size_t count, float scale)
{
    struct error err = ERROR_INIT;
    float *values = random_values(count, scale);
    struct param **param = &trial->params[trial->param_count++];
    assert_int_equal(param_from_values(param, values, count, &err), OK);
    free(values);
    return *param;
}

static size_t tensor_values(const struct graph *graph, int tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    return (size_t)t->n * (size_t)t->channels * (size_t)t->h * (size_t)t->w;
}

/* segments[4], zero after the last; inside: between other segments. */
static struct view tensor_of(struct trial *trial, enum tensor_role role, int n, int h, int w, const int segments[4],
                             bool inside, float scale)
{
    int all[6], count = 0, used = 0;
    if (inside)
        all[count++] = 3;
    for (; used < 4 && segments[used]; used++)
        all[count++] = segments[used];
    if (inside)
        all[count++] = 5;
    struct view view = graph_tensor(trial->graph, role, n, h, w, count, all);
    if (role == TENSOR_INPUT)
        trial->inputs[trial->input_count++] = random_values(tensor_values(trial->graph, view.tensor), scale);
    return graph_segments(view, inside ? 1 : 0, used);
}

static struct view input(struct trial *trial, int n, int c, int h, int w, float scale)
{
    return tensor_of(trial, TENSOR_INPUT, n, h, w, (int[4]){c}, false, scale);
}

static int sum4(const int v[4])
{
    return v[0] + v[1] + v[2] + v[3];
}

static int side(int in, int kernel, int stride, int pad)
{
    return (in + 2 * pad - kernel) / stride + 1;
}

static void out_shape(const struct op_case *c, int *h, int *w)
{
    const union op_args *a = &c->args;
    *h = c->out_h ? c->out_h : c->h;
    *w = c->out_w ? c->out_w : c->w;
    if (c->kind == OP_CONV2D) {
        const int up = a->conv2d.upsample ? a->conv2d.upsample : 1;
        *h = side(c->h * up, a->conv2d.kernel, a->conv2d.stride, a->conv2d.pad);
        *w = side(c->w * up, a->conv2d.kernel, a->conv2d.stride, a->conv2d.pad);
    } else if (c->kind == OP_DEPTHWISE) {
        *h = side(c->h, a->depthwise.kernel, a->depthwise.stride, a->depthwise.pad);
        *w = side(c->w, a->depthwise.kernel, a->depthwise.stride, a->depthwise.pad);
    } else if (c->kind == OP_MAX_POOL) {
        *h = side(c->h, a->max_pool.kernel, a->max_pool.stride, a->max_pool.pad);
        *w = side(c->w, a->max_pool.kernel, a->max_pool.stride, a->max_pool.pad);
    } else if (c->kind == OP_LINEAR || c->kind == OP_MEAN) {
        *h = *w = 1;
    } else if (c->kind == OP_SAMPLE) {
        *h = c->h * a->sample.factor;
        *w = c->w * a->sample.factor;
    } else if (c->kind == OP_PIXEL_SHUFFLE) {
        *h = c->h * a->shuffle.factor;
        *w = c->w * a->shuffle.factor;
    } else if (c->kind == OP_PIXEL_UNSHUFFLE) {
        *h = c->h / a->shuffle.factor;
        *w = c->w / a->shuffle.factor;
    }
}

/* Channels of SAMPLE's places; 0: it is another operator. */
static int sample_places(const struct op_case *c)
{
    const struct op_sample *a = &c->args.sample;
    return c->kind == OP_SAMPLE ? 2 * a->groups * a->factor * a->factor : 0;
}

static void fill_params(struct trial *trial, struct node *node, int in, int out)
{
    const struct op_case *c = trial->c;
    enum activation activation = ACTIVATION_NONE;
    size_t weights = 0, fan = 1;
    if (c->kind == OP_CONV2D) {
        fan = (size_t)(in * c->args.conv2d.kernel * c->args.conv2d.kernel);
        weights = fan * (size_t)out;
        activation = c->args.conv2d.activation;
    } else if (c->kind == OP_DEPTHWISE) {
        fan = (size_t)(c->args.depthwise.kernel * c->args.depthwise.kernel);
        weights = fan * (size_t)out;
        activation = c->args.depthwise.activation;
    } else if (c->kind == OP_LINEAR) {
        fan = (size_t)(in * c->h * c->w);
        weights = fan * (size_t)out;
        activation = c->args.linear.activation;
    } else if (c->kind == OP_SAMPLE) {
        weights = (size_t)sample_places(c);
    } else if (c->kind == OP_DEMODULATE) {
        weights = (size_t)(in * out);
    } else if (c->kind == OP_ADD) {
        activation = c->args.add.activation;
    } else if (c->kind == OP_LOOKUP) {
        weights = (size_t)(in * out);
    } else if ((c->kind == OP_GROUP_NORM || c->kind == OP_LAYER_NORM) && (c->parts & BIAS)) {
        weights = (size_t)out;
    }
    if (weights && c->kind == OP_DEMODULATE) { /* sums of squares */
        float *values = random_values(weights, 0.1f);
        struct error err = ERROR_INIT;
        for (size_t i = 0; i < weights; i++)
            values[i] *= values[i];
        assert_int_equal(param_from_values(&trial->params[trial->param_count], values, weights, &err), OK);
        node->param[OP_WEIGHT] = trial->params[trial->param_count++];
        free(values);
    } else if (weights) {
        node->param[OP_WEIGHT] = random_param(trial, weights, 1.7f / sqrtf((float)fan));
    }
    if (c->parts & BIAS)
        node->param[OP_BIAS] = random_param(trial, (size_t)out, 0.5f);
    if (activation == ACTIVATION_PRELU)
        node->param[OP_SLOPE] = random_param(trial, (size_t)out, 0.5f);
}

static void trial_create(struct trial *trial, const struct op_case *c)
{
    struct error err = ERROR_INIT;
    const int *out_segments = c->out[0] ? c->out : c->in;
    const int in = sum4(c->in), out = sum4(out_segments);
    const bool inside = c->parts & INSIDE;
    int h, w;
    *trial = (struct trial){.c = c};
    random_state = 12345;
    out_shape(c, &h, &w);
    assert_int_equal(graph_create(&trial->graph, &err), OK);

    struct view x = VIEW_NONE;
    if (c->kind != OP_NOISE && (c->parts & CONSTANT))
        x = graph_constant(trial->graph, random_param(trial, (size_t)(in * c->h * c->w), 1), in, c->h, c->w);
    else if (c->kind != OP_NOISE)
        x = tensor_of(trial, TENSOR_INPUT, c->n, c->h, c->w, c->in, inside, 1);
    struct view y = tensor_of(trial, TENSOR_OUTPUT, c->n, h, w, out_segments, inside, 0);
    if (x.tensor >= 0 && (c->parts & (IN_PLACE | CONSTANT))) {
        /* An operator may not write an input, and a convolution's x is not shared by a batch unless it is copied. */
        struct node *copy =
            graph_node(trial->graph, OP_ADD, c->parts & IN_PLACE ? y : graph_temp(trial->graph, c->n, in, c->h, c->w));
        copy->in[OP_X] = c->parts & CONSTANT ? input(trial, c->n, in, c->h, c->w, 1) : x;
        copy->in[OP_RESIDUAL1] = x;
        copy->args.add = (struct op_add){.x_scale = 0.5f, .residual1_scale = 0.5f};
        x = copy->out;
    }
    struct node *node = graph_node(trial->graph, c->kind, y);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->args = c->args;
    if (c->kind == OP_CONV2D) {
        struct op_conv2d *conv = &node->args.conv2d;
        conv->upsample += conv->upsample == 0;
        conv->gain += conv->gain == 0 ? 1.0f : 0.0f;
        conv->scale += conv->scale == 0 ? 1.0f : 0.0f;
    }
    const bool small = c->kind == OP_PIXEL_SHUFFLE || c->kind == OP_SAMPLE;
    const int places[4] = {sample_places(c)};
    for (int slot = OP_RESIDUAL1; slot <= OP_RESIDUAL2; slot++)
        if (c->parts & (slot == OP_RESIDUAL1 ? RESIDUAL1 : RESIDUAL2))
            node->in[slot] = tensor_of(trial, TENSOR_INPUT, c->n, small ? c->h : h, small ? c->w : w,
                                       places[0]                   ? places
                                       : c->parts & OTHER_SEGMENTS ? (int[4]){out}
                                                                   : out_segments,
                                       inside || c->parts & RESIDUAL_INSIDE, 1);
    if (c->parts & IN_SCALE)
        node->in[OP_IN_SCALE] = input(trial, c->n, in, 1, 1, 2);
    if (c->parts & OUT_SCALE)
        node->in[OP_OUT_SCALE] = input(trial, c->n, out, 1, 1, 2);
    if ((c->parts & NOISE_MAP) && (c->parts & CONSTANT))
        node->in[OP_NOISE_MAP] = graph_constant(trial->graph, random_param(trial, (size_t)(h * w), 1), 1, h, w);
    else if (c->parts & NOISE_MAP)
        node->in[OP_NOISE_MAP] =
            c->kind == OP_MEAN ? input(trial, c->n, 1, c->h, c->w, 1) : input(trial, c->n, 1, h, w, 1);
    fill_params(trial, node, in, out);
    trial->y = y;
    const enum error_code code = graph_finish(trial->graph, &err);
    if (code != OK)
        print_error("%s %s: %s\n", op_name(c->kind), c->name, err.text);
    assert_int_equal(code, OK);
    trial->bytes = tensor_values(trial->graph, y.tensor) * sizeof(float);
    trial->expected = calloc(1, trial->bytes);
    trial->got = calloc(1, trial->bytes);
    trial->again = calloc(1, trial->bytes);
    assert_true(trial->expected && trial->got && trial->again);
}

static void trial_destroy(struct trial *trial)
{
    graph_destroy(&trial->graph);
    for (size_t i = 0; i < trial->param_count; i++)
        param_destroy(&trial->params[i]);
    for (int i = 0; i < trial->input_count; i++)
        free(trial->inputs[i]);
    free(trial->expected);
    free(trial->got);
    free(trial->again);
}

/* --- running -------------------------------------------------------------------------------------------------------
 */

static void trial_run(const struct trial *trial, struct device *device, enum precision precision, float *out,
                      float *again)
{
    const struct run_options options = {.seed = 0x123456789abcdefu, .first_image = 5};
    struct error err = ERROR_INIT;
    struct plan *plan = NULL;
    enum error_code code = plan_create(&plan, device, trial->graph, precision, trial->c->name, &err);
    if (code == OK)
        code = plan_run(plan, (const float *const *)trial->inputs, &out, &options, &err);
    if (code == OK && again)
        code = plan_run(plan, (const float *const *)trial->inputs, &again, &options, &err);
    if (code != OK)
        print_error("%s %s: %s: %s\n", op_name(trial->c->kind), trial->c->name, error_code_name(code), err.text);
    assert_int_equal(code, OK);
    plan_destroy(&plan);
    device_forget_params(device, (const struct param *const *)trial->params, trial->param_count);
}

/* Compares the channels of y's view; those beside it are nobody's. True if they are within the tolerances. */
static bool trial_compare(const struct trial *trial, float max_allowed, float mean_allowed, const char *device)
{
    const struct tensor *t = graph_tensor_of(trial->graph, trial->y);
    const int channels = graph_channels(trial->graph, trial->y), first = trial->y.first ? t->segment[0] : 0;
    const size_t plane = (size_t)t->h * (size_t)t->w;
    double low = INFINITY, high = -INFINITY, most = 0, sum = 0;
    bool same = true, finite = true;
    for (int n = 0; n < t->n; n++) {
        const size_t at = ((size_t)n * (size_t)t->channels + (size_t)first) * plane;
        for (size_t i = at; i < at + (size_t)channels * plane; i++) {
            const double e = trial->expected[i], difference = fabs(e - trial->got[i]);
            low = fmin(low, e);
            high = fmax(high, e);
            most = fmax(most, difference);
            sum += difference;
            finite = finite && isfinite(e) && isfinite(trial->got[i]);
            same = same && memcmp(&trial->got[i], &trial->again[i], sizeof(float)) == 0;
        }
    }
    const double range = fmax(high - low, fmax(fabs(high), fabs(low)));
    const double mean = sum / (double)((size_t)t->n * (size_t)channels * plane);
    const bool ok = finite && same && range > 0 && most <= max_allowed * range && mean <= mean_allowed * range;
    if (!ok)
        print_error("%s \"%s\" on %s: max %.3g mean %.3g of range %.3g%s%s\n", op_name(trial->c->kind), trial->c->name,
                    device, most / range, mean / range, range, finite ? "" : ", not finite",
                    same ? "" : ", two runs differ");
    return ok;
}

/* The ways in which a device can be made to work. An instruction set that the processor lacks is left out. */
static const struct way {
    const char *backend, *settings[3], *remark; /* NAME=VALUE, of the environment */
    bool only_conv;
    bool exact; /* sums in double: all that is left is the rounding of sums and results */
} ways[] = {
#define STAGED "RESTORED_VULKAN_STAGE=1"
#define UNPACKED "RESTORED_VULKAN_PACKED=0"
    {"vulkan", {"RESTORED_VULKAN_STAGE=0"}, "", false, false},
    {"vulkan", {"RESTORED_VULKAN_GROUPED=1"}, " (grouped)", false, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_LEAST=1"}, " (least limits)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=0"}, " (tile 0, packed Winograd)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=3"}, " (tile 3, packed Winograd)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=4"}, " (tile 4, packed Winograd)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=5"}, " (tile 5)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=8"}, " (tile 8)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=10"}, " (tile 10)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=15"}, " (tile 15)", true, false},
    {"vulkan", {STAGED, UNPACKED, "RESTORED_VULKAN_TILE=16"}, " (tile 16, Winograd)", true, false},
    {"vulkan", {STAGED, UNPACKED, "RESTORED_VULKAN_TILE=17"}, " (tile 17, Winograd)", true, false},
    {"vulkan", {STAGED, UNPACKED, "RESTORED_VULKAN_TILE=18"}, " (tile 18, Winograd)", true, false},
    {"cpu", {"RESTORED_CPU_ISA=base"}, " (base)", false, false},
    {"cpu", {"RESTORED_CPU_ISA=base"}, " (base, exact)", false, true},
    {"cpu", {"RESTORED_CPU_ISA=avx2"}, " (avx2)", false, false},
    {"cpu", {"RESTORED_CPU_ISA=avx2"}, " (avx2, exact)", false, true},
    {"cpu", {"RESTORED_CPU_ISA=avx512"}, " (avx512)", false, false},
};

static void set(const struct way *way, bool on)
{
    for (size_t i = 0; i < sizeof way->settings / sizeof way->settings[0] && way->settings[i]; i++) {
        char name[64];
        const char *equals = strchr(way->settings[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - way->settings[i]), way->settings[i]);
        if (on)
            setenv(name, equals + 1, 1);
        else
            unsetenv(name);
    }
}

/* Whether the case runs this way. */
static bool wanted(size_t number, const struct way *way)
{
    const char *full = getenv("RESTORED_FULL");
    if (!way->only_conv)
        return true;
    return cases[number].kind == OP_CONV2D && ((full && strcmp(full, "1") == 0) || (number + (size_t)(way - ways)) % 2);
}

/* All wanted cases on one device; returns the number that failed. */
static int run_device(struct device *reference, struct device *device, const struct way *way)
{
    const float allowed = way->exact ? 5e-7f : 1e-5f;
    struct device_info info;
    int failures = 0, done = 0;
    device_info(device, &info);
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (!wanted(i, way))
            continue;
        struct trial trial;
        char where[300];
        trial_create(&trial, &cases[i]);
        trial.graph->exact = way->exact;
        trial_run(&trial, reference, PRECISION_FP32, trial.expected, NULL);
        trial_run(&trial, device, PRECISION_FP32, trial.got, trial.again);
        snprintf(where, sizeof where, "%s%s, fp32", info.name, way->remark);
        failures += !trial_compare(&trial, allowed, allowed, where);
        if (info.fp16) {
            trial_run(&trial, device, PRECISION_FP16, trial.got, trial.again);
            snprintf(where, sizeof where, "%s%s, fp16", info.name, way->remark);
            failures += !trial_compare(&trial, 1e-2f, 1e-3f, where);
        }
        trial_destroy(&trial);
        done++;
    }
    device_info(device, &info);
    if (info.memory_used != 0) {
        print_error("%s: %llu bytes are left\n", info.name, (unsigned long long)info.memory_used);
        failures++;
    }
    print_message("%s%s: %d cases, %d failures\n", info.name, way->remark, done, failures);
    return failures;
}

static void test_every_operator_has_cases(void **state)
{
    (void)state;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        bool found = false;
        for (size_t i = 0; i < CASE_COUNT; i++)
            found |= (int)cases[i].kind == kind;
        assert_true(found);
    }
}

static void test_devices(void **state)
{
    struct device *reference = NULL;
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    int failures = 0, opened = 0;
    (void)state;
    assert_int_equal(device_open(&reference, "reference", NULL, &err), OK);
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++) {
        if (!list[i].usable) {
            print_message("%s is left out: %s\n", list[i].name, list[i].reason);
            continue;
        }
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            struct device *device = NULL;
            if (strcmp(ways[w].backend, list[i].backend) != 0)
                continue;
            set(&ways[w], true);
            assert_int_equal(device_open(&device, list[i].id, NULL, &err), OK);
            struct device_info info;
            device_info(device, &info);
            const char *isa = getenv("RESTORED_CPU_ISA");
            if (strcmp(ways[w].backend, "cpu") != 0 || (isa && strncmp(info.driver, isa, strlen(isa)) == 0))
                failures += run_device(reference, device, &ways[w]);
            else
                print_message("%s%s: not on this processor\n", list[i].name, ways[w].remark);
            device_close(&device);
            set(&ways[w], false);
        }
        opened++;
    }
    free(list);
    device_close(&reference);
    assert_true(opened > 0);
    assert_int_equal(failures, 0);
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operator_has_cases),
        cmocka_unit_test(test_devices),
    };
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
