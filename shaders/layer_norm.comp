// LAYER_NORM of op.h, a pixel an invocation.
#version 450
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint BLOCKS = 1; // quads of y: those behind the last channel are padding
layout(constant_id = 1) const uint CHANNELS = 4;
layout(constant_id = 2) const uint FLAGS = 0; // FLAG_IN_SCALE: there are weights
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS_FLOAT(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);

const uint QUADS = (CHANNELS + 3) / 4;

void main()
{
    const uint at = (gl_WorkGroupID.x + p.first_group) * PIXEL_GROUP + gl_LocalInvocationID.x;
    if (at >= p.size)
        return;
    vec4 sum = vec4(0.0);
    for (uint i = 0; i < QUADS; i++)
        sum += vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]);
    const float mean = (sum.x + sum.y + sum.z + sum.w) * p.mean_factor;
    sum = vec4(0.0);
    for (uint i = 0; i < QUADS; i++) {
        const vec4 d = (vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]) - mean) * lane_mask(i, CHANNELS);
        sum += d * d;
    }
    const float factor = inversesqrt((sum.x + sum.y + sum.z + sum.w) * p.variance_factor + p.epsilon);
    for (uint i = 0; i < QUADS; i++) {
        vec4 v = (vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]) - mean) * factor * lane_mask(i, CHANNELS);
        if ((FLAGS & FLAG_IN_SCALE) != 0)
            v *= weight[i];
        if ((FLAGS & FLAG_BIAS) != 0)
            v += bias[i];
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(v);
    }
    for (uint i = QUADS; i < BLOCKS; i++)
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(0.0));
}
