// ATTENTION of op.h. A workgroup makes EACH tokens of one head, so that keys and values are loaded once for all of them: its
// invocations divide the keys, then the channels, and the values where there are fewer channels than invocations.
#version 450
#include "common.glsl"

layout(local_size_x_id = 3) in;
layout(constant_id = 0) const uint TOKENS = 1;
layout(constant_id = 1) const uint QUADS = 1;  // of a head
layout(constant_id = 2) const uint BLOCKS = 1; // quads of y: those behind the last head are padding
layout(constant_id = 3) const uint GROUP = 128; // invocations, a power of 2
layout(constant_id = 4) const uint EACH = 1;   // tokens of the workgroup, a power of 2
layout(constant_id = 5) const uint KEY_PARTS = 1; // invocations of a key, a power of 2, side by side as its quads are
layout(constant_id = 6) const uint WIDTH = 128; // those that differ in quads of y, a power of 2 and of 4 at least
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, keys);
READS(BIND_RESIDUAL2, values);

const uint LANES = GROUP / EACH;  // invocations of a token in the softmax
const uint PARTS = GROUP / WIDTH; // and of a quad of y; of 4 quads they lie side by side, as tokens do

shared vec4 query[EACH * QUADS];
shared vec4 sums[GROUP];
shared float share[KEY_PARTS * EACH * TOKENS];
shared float partial[GROUP];
shared float factors[EACH];

// The greatest value, or the total, of the LANES invocations of a token; in a fixed order.
float joined(float v, bool greatest)
{
    const uint me = gl_LocalInvocationID.x, lane = me % LANES;
    barrier();
    partial[me] = v;
    barrier();
    for (uint half_count = LANES / 2; half_count > 0; half_count /= 2) {
        if (lane < half_count)
            partial[me] = greatest ? max(partial[me], partial[me + half_count]) : partial[me] + partial[me + half_count];
        barrier();
    }
    return partial[me - lane];
}

void take_keys(uint image, uint first)
{
    const uint part = gl_LocalInvocationID.x % KEY_PARTS;
    for (uint j = gl_LocalInvocationID.x / KEY_PARTS; j < TOKENS; j += GROUP / KEY_PARTS) {
        vec4 products[EACH];
        [[unroll]] for (uint t = 0; t < EACH; t++)
            products[t] = vec4(0.0);
        for (uint i = part; i < QUADS; i += KEY_PARTS) {
            const vec4 key = vec4(keys[quad_index(p.like, image, first + i, TOKENS, j)]);
            [[unroll]] for (uint t = 0; t < EACH; t++)
                products[t] += query[t * QUADS + i] * key;
        }
        [[unroll]] for (uint t = 0; t < EACH; t++)
            share[(part * EACH + t) * TOKENS + j] = products[t].x + products[t].y + products[t].z + products[t].w;
    }
}

void take_shares()
{
    const uint me = gl_LocalInvocationID.x, from = me / LANES * TOKENS;
    float most = -3.4e38, sum = 0.0;
    for (uint j = me % LANES; j < TOKENS; j += LANES) {
        float v = share[from + j];
        for (uint part = 1; part < KEY_PARTS; part++)
            v += share[part * EACH * TOKENS + from + j];
        share[from + j] = v;
        most = max(most, v);
    }
    most = joined(most, true);
    for (uint j = me % LANES; j < TOKENS; j += LANES) {
        share[from + j] = exp(share[from + j] - most);
        sum += share[from + j];
    }
    sum = joined(sum, false);
    if (me % LANES == 0)
        factors[me / LANES] = 1.0 / sum;
    barrier();
}

void main()
{
    const uint token = (gl_WorkGroupID.x + p.first_group) * EACH, first = gl_WorkGroupID.y * QUADS, image = gl_WorkGroupID.z;
    const uint me = gl_LocalInvocationID.x, part = me / 4 % PARTS, own = me / (4 * PARTS) * 4 + me % 4;
    for (uint i = me; i < EACH * QUADS; i += GROUP)
        query[i] = vec4(x[quad_index(p.x, image, first + i % QUADS, TOKENS, min(token + i / QUADS, TOKENS - 1))]) * p.scale;
    barrier();
    take_keys(image, first);
    barrier();
    take_shares();
    for (uint i = own; i - own < QUADS; i += WIDTH) {
        vec4 v[EACH];
        [[unroll]] for (uint t = 0; t < EACH; t++)
            v[t] = vec4(0.0);
        if (i < QUADS)
            for (uint j = part; j < TOKENS; j += PARTS) {
                const vec4 value = vec4(values[quad_index(p.values, image, first + i, TOKENS, j)]);
                [[unroll]] for (uint t = 0; t < EACH; t++)
                    v[t] += share[t * TOKENS + j] * value;
            }
        [[unroll]] for (uint t = 0; t < EACH; t++) {
            if (PARTS > 1) {
                barrier();
                sums[me] = v[t];
                barrier();
                for (uint half_count = PARTS / 2; half_count > 0; half_count /= 2) {
                    if (part < half_count)
                        sums[me] += sums[me + half_count * 4];
                    barrier();
                }
                v[t] = sums[me];
            }
            if (i < QUADS && part == 0 && token + t < TOKENS)
                y[quad_index(p.y, image, first + i, TOKENS, token + t)] = TO_QUAD(v[t] * factors[t]);
        }
    }
    if (gl_WorkGroupID.y == gl_NumWorkGroups.y - 1)
        for (uint i = first + QUADS + me; i < BLOCKS; i += GROUP)
            for (uint t = token; t < min(token + EACH, TOKENS); t++)
                y[quad_index(p.y, image, i, TOKENS, t)] = TO_QUAD(vec4(0.0));
}
