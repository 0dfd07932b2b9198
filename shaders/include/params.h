/* What C and GLSL share: binding numbers, operator flags and the push constants of every shader.
 * Every push constant block begins with first_group, which is added to gl_WorkGroupID.x: a dispatch that is too wide or
 * too long for one submit is recorded as several. All shaders use one descriptor set layout of storage buffers.
 * Activations are quads of 4 channels, in groups of 1, 2 or 4 quads that lie beside each other in each pixel:
 * [n][group][h][w][quad of the group]; "index" counts quads. */
#ifndef SHADERS_INCLUDE_PARAMS_H
#define SHADERS_INCLUDE_PARAMS_H

#ifdef VULKAN /* predefined by the GLSL compiler */
#define PARAMS_UINT uint
#define PARAMS_OPERAND params_operand
#else
#include <stdint.h>
#define PARAMS_UINT uint32_t
#define PARAMS_OPERAND struct params_operand
#endif

#define BIND_Y 0
#define BIND_X 1
#define BIND_RESIDUAL1 2
#define BIND_RESIDUAL2 3
#define BIND_IN_SCALE 4
#define BIND_OUT_SCALE 5
#define BIND_NOISE 6
#define BIND_WEIGHT 7
#define BIND_BIAS 8      /* float */
#define BIND_SLOPE 9     /* float */
#define BIND_WINOGRAD 10 /* transformed weights, float or packed */
#define BIND_COUNT 11
#define BIND_COUNTERS BIND_WINOGRAD /* of shaders/matrix */

/* The same for shaders that move pictures. */
#define BIND_CANVAS BIND_RESIDUAL1
#define BIND_LAYERS BIND_RESIDUAL2
#define BIND_LIST BIND_BIAS

/* Bits of the FLAGS specialisation constant. */
#define FLAG_BIAS 1
#define FLAG_RESIDUAL1 2
#define FLAG_RESIDUAL2 4
#define FLAG_IN_SCALE 8
#define FLAG_OUT_SCALE 16
#define FLAG_NOISE 32
#define FLAG_ACTIVATION_LAST 64
#define FLAG_REFLECT 128
#define FLAG_BILINEAR 512
#define FLAG_DOUBLES 1024 /* both sides, bilinear: an invocation for each input pixel */
#define FLAG_HALVES 2048
#define FLAG_SCALED 4096     /* gain or scale is not 1 */
#define FLAG_PLANAR 8192     /* the input's groups are of one quad */
#define FLAG_LEAN 16384      /* the sum begins with bias and residual 1, and only ReLU may come after it */
#define FLAG_TRANSFORM 32768 /* residuals 1 and 2 are a scale and a shift of the second half of the channels */
#define FLAG_SHIFT 65536     /* one value a channel, in place of noise, is added with the residuals */
#define FLAG_WARM 131072     /* weights are many: ask for them at once */
#define FLAG_EARLY 262144    /* the sum may begin with the residuals */

/* Invocations a workgroup of the shaders that work pixel by pixel, and of the vector ones. */
#define PIXEL_GROUP 128
#define VECTOR_GROUP 64
#define MOMENTS_RUN 8 /* pixels that each invocation of moments.comp loads at once */

/* Convolutions in fp32 on matrices multiply numbers by these before they split them into two in fp16: the lesser one
 * of usual numbers is then not too small for fp16, and the greater one not too large below 65504 / SPLIT_INPUT. */
#define SPLIT_INPUT 4
#define SPLIT_WEIGHT 256

#define WINOGRAD_POSITIONS 36        /* of a 6x6 tile of the input */
#define WINOGRAD_PACKED_POSITIONS 16 /* of a 4x4 tile */

/* A view of a tensor: the index of its first quad in image 0; in the low bits of `stride` the quads from image to image
 * (0: one for all), above them the logarithm of the quads of a group. */
#define OPERAND_STRIDE_BITS 29
struct params_operand {
    PARAMS_UINT base, stride;
};

struct params_conv2d {
    PARAMS_UINT first_group, tiles_x, in_h, in_w, out_h, out_w;
    PARAMS_UINT in_blocks, out_blocks, out_channels; /* not specialised: one compilation serves every layer of a form */
    PARAMS_OPERAND y, x, residual1, residual2, in_scale, out_scale, noise;
    float slope, gain, scale, residual1_scale, residual2_scale, noise_weight;
    PARAMS_UINT chain_own, chain_wait; /* the first of the counters: its own, those that it waits for; 0: none */
    PARAMS_UINT chain_row; /* workgroups that write a row of tiles there; above CHAIN_ROWS_BIT: log2 of a tile's rows */
};
#define CHAIN_ROWS_BIT 24
#define CHAIN_BAND 16 /* rows that a counter counts for */
#define CHAIN_LATE 0  /* the counter that says that somebody waited in vain */
#define CHAIN_WILD 1  /* and the one that says that a sum of fp32 on matrices was not finite */
#define CHAIN_FIRST 2 /* of those that are waited for */

/* linear, demodulate, mean */
struct params_vector {
    PARAMS_UINT first_group;
    PARAMS_OPERAND y, x, noise; /* noise, pixels: of mean */
    float slope, epsilon;
    PARAMS_UINT pixels;
};

/* group_norm, layer_norm, attention, lookup, moments: of `size` pixels; like: keys, what a norm is made like, or a map
 * of weights. */
struct params_tokens {
    PARAMS_UINT first_group, size;
    PARAMS_OPERAND y, x, like, values;
    float mean_factor, variance_factor, epsilon; /* sums of a group times these are its mean and its variance */
    float scale;
    PARAMS_UINT chunk; /* pixels of each part of the moments but the last */
};

/* Everything else. */
struct params_pixel {
    PARAMS_UINT first_group, in_h, in_w, out_h, out_w;
    PARAMS_OPERAND y, x, residual1, residual2;
    float slope, x_scale, residual1_scale;
    PARAMS_UINT channels; /* of pack and unpack */
};

/* A part of a param on its way into its packing. Offsets are in words of the staging buffer, y in quads of the packed
 * params; lanes and rows are counted in the part. */
#define UPLOAD_NO_CHANNEL 0xffffffffu
#define UPLOAD_PLAIN 0 /* layouts */
#define UPLOAD_CONV 1
#define UPLOAD_WINOGRAD 2
#define UPLOAD_LINEAR 3
#define UPLOAD_MATRIX 4
#define UPLOAD_F32 0 /* types of the source */
#define UPLOAD_F16 1
#define UPLOAD_BF16 2
struct params_upload {
    PARAMS_UINT first_group, quads, y, values;
    PARAMS_UINT scales;              /* a float of each row; 0: none */
    PARAMS_UINT order;               /* of a matrix's elements */
    PARAMS_UINT in_lanes, out_lanes; /* the channel, and the row, of each */
    PARAMS_UINT row;                 /* elements of a row */
    PARAMS_UINT taps, kernel;        /* taps = kernel * kernel */
    PARAMS_UINT in_blocks;
    PARAMS_UINT group_log; /* of quads, or of out matrices */
};

/* A picture beside a tensor: samples in 32-bit words, 4 of 8 bit, 2 of 16 or one float, each row beginning a word.
 * `data` and the lists count words of their buffer. */
#define RASTER_U8 0 /* forms */
#define RASTER_F32 1
#define RASTER_LABEL 2
#define RASTER_U16 3
#define RASTER_LEVEL 4
#define RASTER_ROW 4 /* pixels of an invocation that writes: whole words in any form */
#define RASTER_GROUP 64
#define POINTS_GROUPS 1024 /* workgroups side by side, of shaders that work point by point; more are in further rows */
struct params_raster {
    PARAMS_UINT image, h, w, channels; /* of the tensor */
    PARAMS_OPERAND tensor;
    PARAMS_UINT data, stride;        /* words of a row */
    PARAMS_UINT columns, rows;       /* lists: where a column's samples begin in a row, where rows begin; or weights */
    PARAMS_UINT layers, layer_count; /* a list of pairs of uvec4: left, top, right, bottom in px of the target; where in
                                        the buffer its samples begin, how many to a row, the weight as bits */
    PARAMS_UINT x, y, width, height; /* of the tensor or canvas; from where and how many, or to where */
    PARAMS_UINT canvas_width, canvas_rows;
    PARAMS_UINT bgr;
    PARAMS_UINT first; /* channel that counts */
    float unit, mean0, mean1, mean2, deviation, low, high;
};

#define RASTER_FROM_CANVAS 1 /* bits of where samples come from */
#define RASTER_FROM_LAYERS 2

/* What is found in a tensor. */
#define CHECK_NOT_FINITE 1
#define CHECK_VARIES 2 /* not all values of an image are its first */

/* What a run sets, for the noise shader. */
struct params_run {
    PARAMS_UINT seed_low, seed_high, first_image, unused;
};

#endif
