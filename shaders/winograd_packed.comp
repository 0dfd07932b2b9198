// CONV2D of op.h, 3x3 with stride 1, for GPUs that have packed fp16 arithmetic: F(2x2, 3x3) of Lavin and Gray, "Fast
// algorithms for convolutional neural networks", 2015, which takes 16 products for 4 pixels instead of 36, two at once.
// A workgroup makes ACROSS x DOWN tiles of 2x2 pixels by SHARES * QUADS quads of out channels. For each chunk of input
// channels it transforms the 4x4 pixels of each tile into shared memory; then each invocation has one of the 16
// positions and multiplies there PER tiles by QUADS quads. At last the sums go back through shared memory.
// All this is fp16, since these transforms hardly magnify rounding, but sums of more than 16 products are fp32.
// weight: [16 out channels][in quad][position][out quad][in lane] quads of out lanes, transformed; padding is zeros.
#version 450
layout(local_size_x_id = 0) in; // POSITIONS * STRIPS * SHARES
layout(constant_id = 1) const uint ACROSS = 4;
layout(constant_id = 2) const uint DOWN = 2;
layout(constant_id = 3) const uint SHARES = 16;
layout(constant_id = 4) const uint PER = 8;
layout(constant_id = 5) const uint QUADS = 1;
layout(constant_id = 6) const uint STEPS = 16; // in quads of a chunk
layout(constant_id = 7) const uint AHEAD = 1;  // 1: weights, which come from afar, are loaded a step ahead
layout(constant_id = 10) const uint PAD = 1;   // 8 and 9: the kernel and the stride
layout(constant_id = 11) const uint UPSAMPLE = 1;
layout(constant_id = 12) const uint ACTIVATION = 0;
layout(constant_id = 13) const uint FLAGS = 0;
#include "convolution.glsl"
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_WINOGRAD) restrict readonly buffer weight_buffer { uvec4 weight[]; };

const uint POSITIONS = WINOGRAD_PACKED_POSITIONS, TILES = ACROSS * DOWN, STRIPS = TILES / PER;
const uint THREADS = POSITIONS * STRIPS * SHARES;
const uint APART = STEPS * TILES + 8;             // from position to position: 64 bytes more, against bank conflicts
const uint OUT = SHARES * QUADS, OUT_ROW = OUT + 1; // quads of the workgroup's out channels, and of a tile's sums
const uint IN_VALUES = POSITIONS * APART, OUT_VALUES = POSITIONS * TILES * OUT_ROW;
const uint PAIRS = QUADS * 2; // of out channels of an invocation
const uint CHAIN = 4;         // steps, whose 16 products are added up in fp16
const int OUTSIDE = -0x40000000;

shared uvec2 values[IN_VALUES > OUT_VALUES ? IN_VALUES : OUT_VALUES]; // quads

f16vec4 quad_of(uvec2 v) { return f16vec4(unpackFloat2x16(v.x), unpackFloat2x16(v.y)); }
uvec2 bits_of(f16vec4 v) { return uvec2(packFloat2x16(v.xy), packFloat2x16(v.zw)); }

// How far a row or column of the input is from the first one; OUTSIDE plus any other is less than 0.
int distance_of(int at, uint size, uint each)
{
    const int from = source(at - int(PAD), size);
    return from < 0 ? OUTSIDE : int(uint(from) * each << group_log(p.x));
}

void transform(uint n, uvec2 origin, uint chunk)
{
    const uint tile = gl_LocalInvocationIndex % TILES;
    int rows[4], columns[4];
    [[unroll]] for (uint i = 0; i < 4; i++) {
        rows[i] = distance_of(int(origin.y + tile / ACROSS * 2 + i), p.in_h, p.in_w);
        columns[i] = distance_of(int(origin.x + tile % ACROSS * 2 + i), p.in_w, 1);
    }
    [[dont_unroll]] for (uint step = gl_LocalInvocationIndex / TILES; step < STEPS; step += THREADS / TILES) {
        const uint quad = min(chunk + step, p.in_blocks - 1), plane = quad_index(p.x, n, quad, p.in_h * p.in_w, 0);
        f16vec4 d[16], t[16];
        [[unroll]] for (uint i = 0; i < 16; i++) {
            const int at = rows[i / 4] + columns[i % 4];
            d[i] = f16vec4(0.0);
            if (at >= 0 && chunk + step < p.in_blocks)
                d[i] = x[plane + at];
            if (has(FLAG_IN_SCALE))
                d[i] = TO_QUAD(vec4(d[i]) * in_factor(n, quad));
        }
        [[unroll]] for (uint i = 0; i < 4; i++) {
            t[i] = d[i] - d[8 + i];
            t[4 + i] = d[4 + i] + d[8 + i];
            t[8 + i] = d[8 + i] - d[4 + i];
            t[12 + i] = d[4 + i] - d[12 + i];
        }
        [[unroll]] for (uint i = 0; i < 16; i += 4) {
            const uint to = i * APART + step * TILES + tile;
            values[to] = bits_of(t[i] - t[i + 2]);
            values[to + APART] = bits_of(t[i + 1] + t[i + 2]);
            values[to + APART * 2] = bits_of(t[i + 2] - t[i + 1]);
            values[to + APART * 3] = bits_of(t[i + 1] - t[i + 3]);
        }
    }
}

f16vec2 chain[PER * PAIRS]; // [tile] 2 out channels each
vec2 sum[PER * PAIRS];
uvec4 now[PAIRS], next[PAIRS];

// One in quad: the values from v on, by the weights from w on or, AHEAD, those from the w before. NVIDIA's GPUs have such
// products by one half of a pair at half their rate; by whole pairs, of in channels, it took more registers and time.
void multiply(uint v, uint w)
{
    [[unroll]] for (uint i = 0; i < PAIRS; i++) {
        now[i] = next[i];
        next[i] = weight[w + i];
        if (AHEAD == 0)
            now[i] = next[i];
    }
    [[unroll]] for (uint t = 0; t < PER; t++) {
        const f16vec4 value = quad_of(values[v + t / 2 * STRIPS * 2 + t % 2]);
        [[unroll]] for (uint i = 0; i < PAIRS * 4; i++) {
            const uint lane = i / PAIRS, o = i % PAIRS;
            const f16vec2 pair = unpackFloat2x16(now[o / 2 * 2 + lane / 2][lane % 2 * 2 + o % 2]);
            chain[t * PAIRS + o] = fma(pair, f16vec2(value[lane]), chain[t * PAIRS + o]);
        }
    }
}

// The pixels of a tile and an out quad, from the sums of all positions.
void leave(uint item, uint n, uvec2 origin, uint first_quad)
{
    const uint tile = item % TILES, quad = first_quad + item / TILES, apart = TILES * OUT_ROW;
    const uint from = tile * OUT_ROW + item / TILES;
    vec4 a[8]; // [row of pixels][column of positions]
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const vec4 m1 = vec4(quad_of(values[from + (4 + i) * apart])), m2 = vec4(quad_of(values[from + (8 + i) * apart]));
        a[i] = vec4(quad_of(values[from + i * apart])) + m1 + m2;
        a[4 + i] = m1 - m2 - vec4(quad_of(values[from + (12 + i) * apart]));
    }
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const uint row = origin.y + tile / ACROSS * 2 + i / 2, column = origin.x + tile % ACROSS * 2 + i % 2;
        const uint j = i / 2 * 4;
        if (row < p.out_h && column < p.out_w && quad < p.out_blocks)
            finish_gained(i % 2 == 0 ? a[j] + a[j + 1] + a[j + 2] : a[j + 1] - a[j + 2] - a[j + 3], n, quad, row, column);
    }
}

void main()
{
    const uint me = gl_LocalInvocationIndex, n = gl_WorkGroupID.z, number = gl_WorkGroupID.x + p.first_group;
    const uvec2 origin = uvec2(number % p.tiles_x * ACROSS, number / p.tiles_x * DOWN) * 2;
    const uint position = me / (STRIPS * SHARES), strip = me % STRIPS, share = me / STRIPS % SHARES;
    const uint first_quad = gl_WorkGroupID.y * OUT, quad = first_quad + share * QUADS; // of the workgroup, of this one
    const uint unit = min(quad / UNIT, (p.out_blocks + UNIT - 1) / UNIT - 1), step = POSITIONS * UNIT * 2;
    const uint w = unit * p.in_blocks * step + (position * UNIT + quad % UNIT) * 2, v = position * APART + strip * 2;

    [[unroll]] for (uint i = 0; i < PER * PAIRS; i++) {
        chain[i] = f16vec2(0.0);
        sum[i] = vec2(0.0);
    }
    [[unroll]] for (uint i = 0; i < PAIRS; i++)
        next[i] = AHEAD == 0 ? uvec4(0) : weight[w + i];
    for (uint chunk = 0; chunk < p.in_blocks; chunk += STEPS) {
        if (chunk > 0)
            barrier();
        transform(n, origin, chunk);
        barrier();
        const uint end = min(STEPS, p.in_blocks - chunk);
        [[dont_unroll]] for (uint first = 0; first < end; first += CHAIN) {
            [[unroll]] for (uint s = first; s < first + CHAIN; s++) // past the end values are 0
                multiply(v + s * TILES, w + min(chunk + s + AHEAD, p.in_blocks - 1) * step);
            [[unroll]] for (uint i = 0; i < PER * PAIRS; i++) {
                sum[i] += vec2(chain[i]);
                chain[i] = f16vec2(0.0);
            }
        }
    }

    barrier();
    [[unroll]] for (uint i = 0; i < PER * PAIRS; i++) { // with the gain, since sums without may be beyond fp16's range
        const uint t = i / PAIRS, tile = (t / 2 * STRIPS + strip) * 2 + t % 2;
        values[(position * TILES + tile) * OUT_ROW + share * QUADS + i % PAIRS / 2][i % 2] = packHalf2x16(clamp(sum[i] * p.gain, vec2(-65504.0), vec2(65504.0)));
    }
    barrier();
    [[dont_unroll]] for (uint item = me; item < TILES * OUT; item += THREADS)
        leave(item, n, origin, first_quad);
}
