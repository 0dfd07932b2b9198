// LOOKUP of op.h, a pixel an invocation.
#version 450
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint ENTRIES = 4;
layout(constant_id = 1) const uint OUT_QUADS = 1;
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_WEIGHT, weight);

void main()
{
    const uint at = (gl_WorkGroupID.x + p.first_group) * PIXEL_GROUP + gl_LocalInvocationID.x;
    if (at >= p.size)
        return;
    float best = -3.4e38;
    uint entry = 0;
    vec4 broken = vec4(0.0);
    for (uint i = 0; i < ENTRIES; i += 4) {
        const vec4 v = vec4(x[quad_index(p.x, gl_WorkGroupID.z, i / 4, p.size, at)]);
        if (any(isnan(v)))
            broken = v;
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (v[k] > best && i + k < ENTRIES) {
                best = v[k];
                entry = i + k;
            }
    }
    const float poison = broken.x + broken.y + broken.z + broken.w;
    const uint log = group_log(p.y);
    for (uint i = 0; i < OUT_QUADS; i++) {
        const uint from = (((i >> log) * ENTRIES + entry) << log) + (i & ((1u << log) - 1));
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(weight[from]) + poison);
    }
}
