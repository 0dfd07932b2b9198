// LOOKUP of op.h. A workgroup makes a pixel: its invocations divide the entries, then the quads of the result.
#version 450
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint ENTRIES = 4;
layout(constant_id = 1) const uint OUT_QUADS = 1;
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_WEIGHT, weight);

shared float most[PIXEL_GROUP];   // of each invocation
shared uint entries[PIXEL_GROUP]; // which that is; the first of several
shared float poison[PIXEL_GROUP]; // NaN if there was one, else 0

void main()
{
    const uint at = gl_WorkGroupID.x + p.first_group, me = gl_LocalInvocationID.x;
    float best = -3.4e38;
    uint entry = 0;
    vec4 broken = vec4(0.0);
    for (uint i = me; i * 4 < ENTRIES; i += PIXEL_GROUP) {
        const vec4 v = vec4(x[quad_index(p.x, gl_WorkGroupID.z, i, p.size, at)]);
        if (any(isnan(v)))
            broken = v;
        [[unroll]] for (uint k = 0; k < 4; k++)
            if (v[k] > best && i * 4 + k < ENTRIES) {
                best = v[k];
                entry = i * 4 + k;
            }
    }
    most[me] = best;
    entries[me] = entry;
    poison[me] = broken.x + broken.y + broken.z + broken.w;
    barrier();
    for (uint half_count = PIXEL_GROUP / 2; half_count > 0; half_count /= 2) {
        const uint with = me + half_count;
        if (me < half_count) {
            if (most[with] > most[me] || (most[with] == most[me] && entries[with] < entries[me])) {
                most[me] = most[with];
                entries[me] = entries[with];
            }
            poison[me] += poison[with];
        }
        barrier();
    }
    const uint log = group_log(p.y);
    for (uint i = me; i < OUT_QUADS; i += PIXEL_GROUP) {
        const uint from = (((i >> log) * ENTRIES + entries[0]) << log) + (i & ((1u << log) - 1));
        y[quad_index(p.y, gl_WorkGroupID.z, i, p.size, at)] = TO_QUAD(vec4(weight[from]) + poison[0]);
    }
}
