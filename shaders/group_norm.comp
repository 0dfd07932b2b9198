// GROUP_NORM of op.h. A workgroup makes one group, or the groups that share a quad, of one image: its invocations divide
// the quads among them and hold them, or, where these are too many, read them for the mean, the variance and the result.
#version 450
#include "common.glsl"

layout(local_size_x_id = 6) in;
layout(constant_id = 0) const uint QUADS = 1; // of the workgroup
layout(constant_id = 1) const uint EACH = 4;  // channels of a group
layout(constant_id = 2) const uint CHANNELS = 4;
layout(constant_id = 3) const uint ACTIVATION = 0;
layout(constant_id = 4) const uint FLAGS = 0; // FLAG_IN_SCALE: there are weights
layout(constant_id = 5) const uint BLOCKS = 1; // quads of y: those behind the last group are padding
layout(constant_id = 6) const uint GROUP = 128; // invocations, a power of 2
layout(constant_id = 7) const uint HELD = 0;  // quads of x that an invocation holds; 0: too many
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS_HELD(BIND_X, x_held);
READS(BIND_RESIDUAL1, like);
READS_FLOAT(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);

shared vec4 partial[GROUP];
HELD_QUAD held[HELD + 1];
uint first; // quad of the workgroup

uint count() { return QUADS * p.size; }

// Which of the workgroup's quads is the invocation's number k, counted pixel by pixel.
uint number(uint k) { return gl_LocalInvocationID.x + k * GROUP; }

uint place(params_operand o, uint at)
{
    return quad_index(o, gl_WorkGroupID.z, first + at % QUADS, p.size, at / QUADS);
}

// The total of every invocation's sum, in each lane that of the lane's group.
vec4 total(vec4 sum)
{
    const uint me = gl_LocalInvocationID.x;
    barrier();
    partial[me] = sum;
    barrier();
    for (uint half_count = GROUP / 2; half_count > 0; half_count /= 2) {
        if (me < half_count)
            partial[me] += partial[me + half_count];
        barrier();
    }
    const vec4 v = partial[0];
    if (EACH >= 4)
        return vec4(v.x + v.y + v.z + v.w);
    return EACH == 2 ? vec4(vec2(v.x + v.y), vec2(v.z + v.w)) : v;
}

void take_held(out vec4 mean, out vec4 variance)
{
    vec4 sum = vec4(0.0);
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        held[k] = HELD_QUAD(0);
        if (number(k) < count())
            held[k] = x_held[place(p.x, number(k))];
    }
    [[unroll]] for (uint k = 0; k < HELD; k++)
        sum += quad_of_held(held[k]);
    mean = total(sum) * p.mean_factor;
    sum = vec4(0.0);
    [[unroll]] for (uint k = 0; k < HELD; k++) {
        const vec4 d = number(k) < count() ? quad_of_held(held[k]) - mean : vec4(0.0);
        sum += d * d;
    }
    variance = total(sum) * p.variance_factor;
}

#define MOMENTS(values, operand, mean, variance)                                                                       \
    {                                                                                                                  \
        vec4 sum = vec4(0.0);                                                                                          \
        for (uint at = number(0); at < count(); at += GROUP)                                                           \
            sum += vec4(values[place(operand, at)]);                                                                   \
        mean = total(sum) * p.mean_factor;                                                                             \
        sum = vec4(0.0);                                                                                               \
        for (uint at = number(0); at < count(); at += GROUP) {                                                         \
            const vec4 d = vec4(values[place(operand, at)]) - mean;                                                    \
            sum += d * d;                                                                                              \
        }                                                                                                              \
        variance = total(sum) * p.variance_factor;                                                                     \
    }

vec4 mean, factor, to_mean = vec4(0.0);

void leave(uint at, vec4 v)
{
    const uint quad = first + at % QUADS;
    const vec4 lanes = lane_mask(quad, CHANNELS);
    vec4 by = factor * lanes, shift = to_mean * lanes;
    if ((FLAGS & FLAG_IN_SCALE) != 0)
        by *= weight[quad];
    if ((FLAGS & FLAG_BIAS) != 0)
        shift += bias[quad];
    y[place(p.y, at)] = TO_QUAD(activate(ACTIVATION, (v - mean) * by + shift, vec4(0.0)));
}

void main()
{
    vec4 variance;
    first = (gl_WorkGroupID.x + p.first_group) * QUADS;
    if (HELD > 0)
        take_held(mean, variance);
    else
        MOMENTS(x, p.x, mean, variance)
    factor = inversesqrt(variance + p.epsilon);
    if ((FLAGS & FLAG_RESIDUAL1) != 0) {
        MOMENTS(like, p.like, to_mean, variance)
        factor *= sqrt(variance + p.epsilon);
    }
    [[unroll]] for (uint k = 0; k < HELD; k++)
        if (number(k) < count())
            leave(number(k), quad_of_held(held[k]));
    if (HELD == 0)
        for (uint at = number(0); at < count(); at += GROUP)
            leave(at, vec4(x[place(p.x, at)]));
    if ((first + QUADS) * 4 >= CHANNELS)
        for (uint i = first + QUADS; i < BLOCKS; i++)
            for (uint at = gl_LocalInvocationID.x; at < p.size; at += GROUP)
                y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(0.0));
}
