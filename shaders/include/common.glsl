// Storage types, buffers and activations. FP16 (a macro of the build) chooses how activations and weights are stored;
// arithmetic is always fp32.
#extension GL_EXT_control_flow_attributes : require
#if FP16
#extension GL_EXT_shader_16bit_storage : require
#define QUAD f16vec4
// A value beyond fp16's range saturates: an infinity would become NaN against a zero weight.
#define TO_QUAD(v) f16vec4(clamp(v, vec4(-65504.0), vec4(65504.0)))
#else
#define QUAD vec4
#define TO_QUAD(v) (v)
#endif

#include "params.h"

#define READS(slot, name) layout(std430, set = 0, binding = slot) restrict readonly buffer name##_buffer { QUAD name[]; }
#define READS_FLOAT(slot, name) layout(std430, set = 0, binding = slot) restrict readonly buffer name##_buffer { vec4 name[]; }
#define WRITES_FLOAT(slot, name) layout(std430, set = 0, binding = slot) restrict writeonly buffer name##_buffer { vec4 name[]; }
// The same quads, for shaders that hold some: a device may store fp16 and not compute with it.
#define READS_HELD(slot, name) layout(std430, set = 0, binding = slot) restrict readonly buffer name##_buffer { HELD_QUAD name[]; }
#if FP16
#define HELD_QUAD uvec2
vec4 quad_of_held(uvec2 v) { return vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y)); }
#else
#define HELD_QUAD vec4
vec4 quad_of_held(vec4 v) { return v; }
#endif
#define WRITES(slot, name) layout(std430, set = 0, binding = slot) restrict writeonly buffer name##_buffer { QUAD name[]; }

uint group_log(params_operand o) { return o.stride >> OPERAND_STRIDE_BITS; }

// The index of the operand's first quad in the image.
uint image_start(params_operand o, uint image)
{
    return o.base + image * (o.stride & ((1u << OPERAND_STRIDE_BITS) - 1));
}

// The index of a quad; size = height * width of its tensor, at = y * width + x.
uint quad_index(params_operand o, uint image, uint quad, uint size, uint at)
{
    const uint log = group_log(o);
    return image_start(o, image) + (((quad >> log) * size + at) << log) + (quad & ((1u << log) - 1));
}

// enum activation of op.h
const uint ACTIVATION_NONE = 0, ACTIVATION_RELU = 1, ACTIVATION_LEAKY = 2, ACTIVATION_PRELU = 3, ACTIVATION_SILU = 4,
           ACTIVATION_MISH = 5, ACTIVATION_TANH = 6, ACTIVATION_GELU = 7,
           ACTIVATION_SIGMOID = 8;

// 1 / (1 + e^-v). Beyond the bound it is 0 or 1 in fp32, and no power overflows.
vec4 sigmoid(vec4 v) { return 1.0 / (1.0 + exp(-clamp(v, vec4(-80.0), vec4(80.0)))); }

// tanh(ln(1 + e^v)), by e^v alone
vec4 mish_factor(vec4 v)
{
    const vec4 e = exp(clamp(v, vec4(-80.0), vec4(20.0))), a = e * (e + 2.0);
    return a / (a + 2.0);
}

// with an error below 1.5e-7 (Abramowitz & Stegun 1964, 7.1.26)
vec4 erf(vec4 v)
{
    const vec4 t = 1.0 / (1.0 + 0.3275911 * abs(v));
    const vec4 p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return sign(v) * (1.0 - p * exp(-min(v * v, vec4(80.0))));
}

vec4 activate(uint kind, vec4 v, vec4 slope)
{
    if (kind == ACTIVATION_SILU)
        return v * sigmoid(v);
    if (kind == ACTIVATION_GELU)
        return 0.5 * v * (1.0 + erf(0.70710678 * v));
    if (kind == ACTIVATION_MISH)
        return v * mish_factor(v);
    if (kind == ACTIVATION_SIGMOID)
        return sigmoid(v);
    if (kind == ACTIVATION_TANH)
        return 2.0 * sigmoid(2.0 * v) - 1.0;
    if (kind == ACTIVATION_RELU)
        return max(v, vec4(0.0));
    if (kind != ACTIVATION_NONE)
        return mix(v, v * slope, lessThan(v, vec4(0.0)));
    return v;
}

// 1 in the lanes of the block that are channels, 0 in the padding after the last channel.
vec4 lane_mask(uint block, uint channels)
{
    return vec4(lessThan(uvec4(block * 4) + uvec4(0, 1, 2, 3), uvec4(channels)));
}
