// ATTENTION of op.h. A workgroup makes EACH tokens of one head, so that keys and values are loaded once for all of them: its
// invocations divide the keys, four for each, whose quads they take in turn; then the channels, and the values where there
// are fewer channels than invocations.
#version 450
#include "common.glsl"

layout(local_size_x_id = 3) in;
layout(constant_id = 0) const uint TOKENS = 1;
layout(constant_id = 1) const uint QUADS = 1;  // of a head
layout(constant_id = 2) const uint BLOCKS = 1; // quads of y: those behind the last head are padding
layout(constant_id = 3) const uint GROUP = 128; // invocations, a power of 2
layout(constant_id = 4) const uint EACH = 1;   // tokens of the workgroup, a power of 2
layout(constant_id = 5) const uint WIDTH = 128; // invocations that differ in quads of y, a power of 2 and of 4 at least
layout(push_constant) uniform push { params_tokens p; };

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, keys);
READS(BIND_RESIDUAL2, values);

const uint KEYS = GROUP / 4;      // that are multiplied at once
const uint AHEAD = 8;             // quads that are on their way from memory at once
const uint LANES = GROUP / EACH;  // invocations of a token in the softmax
const uint PARTS = GROUP / WIDTH; // and of a quad of y; of 4 quads they lie side by side, as tokens do

shared vec4 query[EACH * QUADS];
shared vec4 sums[GROUP];
shared float share[EACH * TOKENS];
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

// Four tokens' products with KEYS keys, of which each invocation has a part.
void leave_products(uint begin, uint first_token, vec4 parts)
{
    const uint me = gl_LocalInvocationID.x, j = begin + me % KEYS, t = first_token + me / KEYS;
    barrier();
    sums[me] = parts;
    barrier();
    const uint from = me % KEYS * 4, of = me / KEYS;
    if (j < TOKENS && t < EACH)
        share[t * TOKENS + j] = sums[from][of] + sums[from + 1][of] + sums[from + 2][of] + sums[from + 3][of];
}

void take_keys(uint image, uint first)
{
    const uint part = gl_LocalInvocationID.x % 4;
    for (uint begin = 0; begin < TOKENS; begin += KEYS) {
        const uint j = min(begin + gl_LocalInvocationID.x / 4, TOKENS - 1);
        vec4 products[(EACH + 3) / 4 * 4];
        [[unroll]] for (uint t = 0; t < (EACH + 3) / 4 * 4; t++)
            products[t] = vec4(0.0);
        for (uint i = part; i < QUADS; i += 4 * AHEAD) {
            vec4 key[AHEAD];
            [[unroll]] for (uint a = 0; a < AHEAD; a++)
                key[a] = i + 4 * a < QUADS ? vec4(keys[quad_index(p.like, image, first + i + 4 * a, TOKENS, j)]) : vec4(0.0);
            [[unroll]] for (uint a = 0; a < AHEAD; a++)
                [[unroll]] for (uint t = 0; t < EACH; t++)
                    products[t] += query[t * QUADS + min(i + 4 * a, QUADS - 1)] * key[a];
        }
        [[unroll]] for (uint t = 0; t < EACH; t += 4) {
            const vec4 low = products[t], second = products[t + 1], third = products[t + 2], last = products[t + 3];
            leave_products(begin, t, vec4(dot(low, vec4(1.0)), dot(second, vec4(1.0)), dot(third, vec4(1.0)), dot(last, vec4(1.0))));
        }
    }
}

void take_shares()
{
    const uint me = gl_LocalInvocationID.x, from = me / LANES * TOKENS;
    float most = -3.4e38, sum = 0.0;
    for (uint j = me % LANES; j < TOKENS; j += LANES)
        most = max(most, share[from + j]);
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
            for (uint j = part; j < TOKENS; j += PARTS * AHEAD) {
                vec4 value[AHEAD];
                [[unroll]] for (uint a = 0; a < AHEAD; a++)
                    value[a] = j + PARTS * a < TOKENS
                                   ? vec4(values[quad_index(p.values, image, first + i, TOKENS, j + PARTS * a)])
                                   : vec4(0.0);
                [[unroll]] for (uint a = 0; a < AHEAD; a++)
                    [[unroll]] for (uint t = 0; t < EACH; t++)
                        v[t] += share[t * TOKENS + min(j + PARTS * a, TOKENS - 1)] * value[a];
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
