// LAYER_NORM of op.h. In small pictures several invocations share a pixel, each of which takes some of its quads.
#version 450
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint BLOCKS = 1; // quads of y: those behind the last channel are padding
layout(constant_id = 1) const uint CHANNELS = 4;
layout(constant_id = 2) const uint FLAGS = 0; // FLAG_IN_SCALE: there are weights
layout(constant_id = 3) const uint SHARES = 1; // invocations of a pixel, a power of 2
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS_HELD(BIND_X, x_held);
READS_FLOAT(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);

const uint QUADS = (CHANNELS + 3) / 4;
const uint PIXELS = PIXEL_GROUP / SHARES;
const uint OWN = (QUADS + SHARES - 1) / SHARES; // quads of each
const uint HELD = OWN <= 8 ? OWN : 0;           // those that it holds, or else reads again

HELD_QUAD held[HELD + 1];

shared float partial[PIXEL_GROUP];

// Does it with each of the invocation's quads i and its values v.
#define WITH_OWN(doing)                                                                                                \
    [[unroll]] for (uint k = 0, i = gl_LocalInvocationID.x / PIXELS; k < HELD; k++, i += SHARES)                       \
    {                                                                                                                  \
        const vec4 v = quad_of_held(held[k]);                                                                          \
        if (i < QUADS) {                                                                                               \
            doing                                                                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    for (uint i = gl_LocalInvocationID.x / PIXELS; i < QUADS && HELD == 0; i += SHARES) {                              \
        const vec4 v = vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]);                                      \
        doing                                                                                                          \
    }

// The total of the pixel's sums, always added in the same order.
float total(vec4 sum)
{
    const uint me = gl_LocalInvocationID.x;
    const float own = sum.x + sum.y + sum.z + sum.w;
    if (SHARES == 1)
        return own;
    barrier();
    partial[me] = own;
    barrier();
    for (uint half_count = SHARES / 2; half_count > 0; half_count /= 2) {
        if (me < half_count * PIXELS)
            partial[me] += partial[me + half_count * PIXELS];
        barrier();
    }
    return partial[me % PIXELS];
}

void main()
{
    const uint share = gl_LocalInvocationID.x / PIXELS;
    const uint own = (gl_WorkGroupID.x + p.first_group) * PIXELS + gl_LocalInvocationID.x % PIXELS;
    const uint at = min(own, p.size - 1);
    [[unroll]] for (uint k = 0, i = share; k < HELD; k++, i += SHARES)
        if (i < QUADS)
            held[k] = x_held[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)];
    vec4 sum = vec4(0.0);
    WITH_OWN(sum += v;)
    const float mean = total(sum) * p.mean_factor;
    sum = vec4(0.0);
    WITH_OWN(const vec4 d = (v - mean) * lane_mask(i, CHANNELS); sum += d * d;)
    const float factor = inversesqrt(total(sum) * p.variance_factor + p.epsilon);
    if (own >= p.size)
        return;
    WITH_OWN(vec4 to = (v - mean) * factor * lane_mask(i, CHANNELS);
        if ((FLAGS & FLAG_IN_SCALE) != 0)
            to *= weight[i];
        if ((FLAGS & FLAG_BIAS) != 0)
            to += bias[i];
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(to);)
    for (uint i = QUADS + share; i < BLOCKS; i += SHARES)
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(0.0));
}
