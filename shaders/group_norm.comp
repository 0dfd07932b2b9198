// GROUP_NORM of op.h. A workgroup makes one group, or the groups that share a quad, of one image: its invocations divide
// the pixels among them, and go through them for the mean, for the variance and for the result.
#version 450
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint QUADS = 1; // of the workgroup
layout(constant_id = 1) const uint EACH = 4;  // channels of a group
layout(constant_id = 2) const uint CHANNELS = 4;
layout(constant_id = 3) const uint ACTIVATION = 0;
layout(constant_id = 4) const uint FLAGS = 0; // FLAG_IN_SCALE: there are weights
layout(constant_id = 5) const uint BLOCKS = 1; // quads of y: those behind the last group are padding
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, like);
READS_FLOAT(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);

shared vec4 partial[PIXEL_GROUP];

// The total of every invocation's sum, in each lane that of the lane's group.
vec4 total(vec4 sum)
{
    const uint me = gl_LocalInvocationID.x;
    barrier();
    partial[me] = sum;
    barrier();
    [[unroll]] for (uint half_count = PIXEL_GROUP / 2; half_count > 0; half_count /= 2) {
        if (me < half_count)
            partial[me] += partial[me + half_count];
        barrier();
    }
    const vec4 v = partial[0];
    if (EACH >= 4)
        return vec4(v.x + v.y + v.z + v.w);
    return EACH == 2 ? vec4(vec2(v.x + v.y), vec2(v.z + v.w)) : v;
}

#define MOMENTS(values, operand, mean, variance)                                                                       \
    {                                                                                                                  \
        vec4 sum = vec4(0.0);                                                                                          \
        for (uint i = 0; i < QUADS; i++)                                                                               \
            for (uint at = gl_LocalInvocationID.x; at < p.size; at += PIXEL_GROUP)                                     \
                sum += vec4(values[quad_index(operand, gl_WorkGroupID.z, first + i, p.size, at)]);                     \
        mean = total(sum) * p.mean_factor;                                                                             \
        sum = vec4(0.0);                                                                                               \
        for (uint i = 0; i < QUADS; i++)                                                                               \
            for (uint at = gl_LocalInvocationID.x; at < p.size; at += PIXEL_GROUP) {                                   \
                const vec4 d = vec4(values[quad_index(operand, gl_WorkGroupID.z, first + i, p.size, at)]) - mean;      \
                sum += d * d;                                                                                          \
            }                                                                                                          \
        variance = total(sum) * p.variance_factor;                                                                     \
    }

void main()
{
    const uint first = (gl_WorkGroupID.x + p.first_group) * QUADS;
    vec4 mean, variance, to_mean = vec4(0.0), factor;
    MOMENTS(x, p.x, mean, variance)
    factor = inversesqrt(variance + p.epsilon);
    if ((FLAGS & FLAG_RESIDUAL1) != 0) {
        MOMENTS(like, p.like, to_mean, variance)
        factor *= sqrt(variance + p.epsilon);
    }
    for (uint i = 0; i < QUADS; i++) {
        vec4 by = factor * lane_mask(first + i, CHANNELS), shift = to_mean * lane_mask(first + i, CHANNELS);
        if ((FLAGS & FLAG_IN_SCALE) != 0)
            by *= weight[first + i];
        if ((FLAGS & FLAG_BIAS) != 0)
            shift += bias[first + i];
        for (uint at = gl_LocalInvocationID.x; at < p.size; at += PIXEL_GROUP) {
            const vec4 v = (vec4(x[quad_index(p.x, gl_WorkGroupID.z, first + i, p.size, at)]) - mean) * by + shift;
            y[quad_index(p.y, gl_WorkGroupID.z, first + i, p.size, at)] = TO_QUAD(activate(ACTIVATION, v, vec4(0.0)));
        }
    }
    if ((first + QUADS) * 4 >= CHANNELS)
        for (uint i = first + QUADS; i < BLOCKS; i++)
            for (uint at = gl_LocalInvocationID.x; at < p.size; at += PIXEL_GROUP)
                y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(0.0));
}
