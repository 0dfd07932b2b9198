// ATTENTION of op.h. A workgroup makes one token of one head: its invocations divide the keys, then the channels, and the
// values where there are fewer channels than invocations.
#version 450
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint TOKENS = 1;
layout(constant_id = 1) const uint QUADS = 1;  // of a head
layout(constant_id = 2) const uint BLOCKS = 1; // quads of y: those behind the last head are padding
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, keys);
READS(BIND_RESIDUAL2, values);

const uint PARTS = QUADS > PIXEL_GROUP ? 1 : PIXEL_GROUP / QUADS; // invocations of a quad of y

shared vec4 query[QUADS];
shared vec4 sums[PIXEL_GROUP];
shared float share[TOKENS];
shared float partial[PIXEL_GROUP];

float most_of(float v)
{
    const uint me = gl_LocalInvocationID.x;
    barrier();
    partial[me] = v;
    barrier();
    [[unroll]] for (uint half_count = PIXEL_GROUP / 2; half_count > 0; half_count /= 2) {
        if (me < half_count)
            partial[me] = max(partial[me], partial[me + half_count]);
        barrier();
    }
    return partial[0];
}

float total(float v)
{
    const uint me = gl_LocalInvocationID.x;
    barrier();
    partial[me] = v;
    barrier();
    [[unroll]] for (uint half_count = PIXEL_GROUP / 2; half_count > 0; half_count /= 2) {
        if (me < half_count)
            partial[me] += partial[me + half_count];
        barrier();
    }
    return partial[0];
}

void main()
{
    const uint token = gl_WorkGroupID.x + p.first_group, first = gl_WorkGroupID.y * QUADS, image = gl_WorkGroupID.z;
    const uint me = gl_LocalInvocationID.x;
    for (uint i = me; i < QUADS; i += PIXEL_GROUP)
        query[i] = vec4(x[quad_index(p.x, image, first + i, TOKENS, token)]) * p.scale;
    barrier();
    float most = -3.4e38, sum = 0.0;
    for (uint j = me; j < TOKENS; j += PIXEL_GROUP) {
        vec4 products = vec4(0.0);
        for (uint i = 0; i < QUADS; i++)
            products += query[i] * vec4(keys[quad_index(p.like, image, first + i, TOKENS, j)]);
        share[j] = products.x + products.y + products.z + products.w;
        most = max(most, share[j]);
    }
    most = most_of(most);
    for (uint j = me; j < TOKENS; j += PIXEL_GROUP) {
        share[j] = exp(share[j] - most);
        sum += share[j];
    }
    const float factor = 1.0 / total(sum);
    for (uint begin = 0; begin < QUADS; begin += PIXEL_GROUP) {
        const uint i = begin + me % QUADS, part = me / QUADS;
        vec4 v = vec4(0.0);
        if (i < QUADS && part < PARTS)
            for (uint j = part; j < TOKENS; j += PARTS)
                v += share[j] * vec4(values[quad_index(p.values, image, first + i, TOKENS, j)]);
        if (PARTS > 1) {
            sums[me] = v;
            barrier();
            for (uint of = me + QUADS; of < PARTS * QUADS && me < QUADS; of += QUADS)
                v += sums[of];
        }
        if (i < QUADS && part == 0)
            y[quad_index(p.y, image, first + i, TOKENS, token)] = TO_QUAD(v * factor);
    }
    if (gl_WorkGroupID.y == gl_NumWorkGroups.y - 1)
        for (uint i = first + QUADS + me; i < BLOCKS; i += PIXEL_GROUP)
            y[quad_index(p.y, image, i, TOKENS, token)] = TO_QUAD(vec4(0.0));
}
