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
READS_FLOAT(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);

const uint QUADS = (CHANNELS + 3) / 4;
const uint PIXELS = PIXEL_GROUP / SHARES;

shared float partial[PIXEL_GROUP];

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
    vec4 sum = vec4(0.0);
    for (uint i = share; i < QUADS; i += SHARES)
        sum += vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]);
    const float mean = total(sum) * p.mean_factor;
    sum = vec4(0.0);
    for (uint i = share; i < QUADS; i += SHARES) {
        const vec4 d = (vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]) - mean) * lane_mask(i, CHANNELS);
        sum += d * d;
    }
    const float factor = inversesqrt(total(sum) * p.variance_factor + p.epsilon);
    if (own >= p.size)
        return;
    for (uint i = share; i < QUADS; i += SHARES) {
        vec4 v = (vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]) - mean) * factor * lane_mask(i, CHANNELS);
        if ((FLAGS & FLAG_IN_SCALE) != 0)
            v *= weight[i];
        if ((FLAGS & FLAG_BIAS) != 0)
            v += bias[i];
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(v);
    }
    for (uint i = QUADS + share; i < BLOCKS; i += SHARES)
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(0.0));
}
