// CONV2D of op.h, 3x3 with stride 1, for GPUs without matrices: F(4x4, 3x3) of Lavin and Gray, "Fast algorithms for
// convolutional neural networks", 2015, which takes 36 products for 16 pixels instead of 144, all in one dispatch.
// A workgroup makes ACROSS x DOWN tiles of 4x4 pixels by SHARES * PER quads of out channels. For each chunk of input
// channels it copies the input, with its border, to shared memory and transforms the 6x6 pixels of each tile; then each
// invocation has one of the 36 positions and multiplies there 8 tiles by PER quads. At last the products go back through
// shared memory, a chunk of out channels at a time. All arithmetic is fp32: the transforms magnify rounding.
// weight: [16 out channels][in channel][position] 4 quads of out lanes, transformed; padding is zeros.
#version 450
layout(local_size_x_id = 0) in; // POSITIONS * STRIPS * SHARES
layout(constant_id = 1) const uint ACROSS = 4;
layout(constant_id = 2) const uint DOWN = 2;
layout(constant_id = 3) const uint SHARES = 8;
layout(constant_id = 4) const uint PER = 1;
layout(constant_id = 5) const uint STEPS = 2; // in quads of a chunk
layout(constant_id = 6) const uint AHEAD = 1; // 1: weights, which come from afar, are loaded a step ahead
layout(constant_id = 9) const uint PAD = 1;   // 7 and 8: the kernel and the stride
layout(constant_id = 10) const uint UPSAMPLE = 1;
layout(constant_id = 11) const uint ACTIVATION = 0;
layout(constant_id = 12) const uint FLAGS = 0;
#include "convolution.glsl"
#if FP16
#define RAW uvec2 // a quad, as it lies in memory
#define FROM_RAW(v) vec4(unpackHalf2x16(v.x), unpackHalf2x16(v.y))
#else
#define RAW vec4
#define FROM_RAW(v) (v)
#endif
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer x_buffer { RAW x[]; };
READS_FLOAT(BIND_WINOGRAD, weight);

const uint POSITIONS = WINOGRAD_POSITIONS, TILES = ACROSS * DOWN, STRIPS = TILES / 8, CHANNELS = STEPS * 4;
const uint THREADS = POSITIONS * STRIPS * SHARES;
const uint WIDTH = ACROSS * 4 + 2, HEIGHT = DOWN * 4 + 2; // pixels of the input
const uint PITCH = ACROSS + 1;                            // of its rows, in 4 pixels
const uint PLANE = HEIGHT * PITCH;
const uint QUADS = STEPS * WIDTH * HEIGHT, COPIES = (QUADS + THREADS - 1) / THREADS;
const uint APART = CHANNELS * TILES / 4 + 2; // from position to position: 32 bytes more, against bank conflicts
const uint PIXELS = TILES * 16;              // of the output
const uint OUTSIDE = 0xffffffffu;

shared vec4 pixels[CHANNELS * PLANE];   // [channel][row] 4 pixels; at last [quad][pixel][tile]
shared vec4 values[POSITIONS * APART]; // [position][channel] 4 tiles

// Of the quads that this invocation copies: where they lie, from the first one of their channels, and where they go.
uint offsets[COPIES], places[COPIES];
RAW quads[COPIES]; // on their way from global to shared memory

void find_pixels(uvec2 origin)
{
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint number = gl_LocalInvocationIndex + i * THREADS, at = number % (WIDTH * HEIGHT);
        const int row = source(int(origin.y + at / WIDTH) - int(PAD), p.in_h);
        const int column = source(int(origin.x + at % WIDTH) - int(PAD), p.in_w);
        offsets[i] = row < 0 || column < 0 ? OUTSIDE : uint(row) * p.in_w + uint(column) << group_log(p.x);
        places[i] = (number / (WIDTH * HEIGHT) * 4 * PLANE + at / WIDTH * PITCH) * 4 + at % WIDTH;
    }
}

void load_chunk(uint n, uint chunk)
{
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint quad = chunk + (gl_LocalInvocationIndex + i * THREADS) / (WIDTH * HEIGHT);
        quads[i] = RAW(0);
        if (offsets[i] != OUTSIDE && quad < p.in_blocks)
            quads[i] = x[quad_index(p.x, n, quad, p.in_h * p.in_w, 0) + offsets[i]];
    }
}

void store_chunk(uint n, uint chunk)
{
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint number = gl_LocalInvocationIndex + i * THREADS;
        vec4 v = FROM_RAW(quads[i]);
        if (has(FLAG_IN_SCALE))
            v *= in_factor(n, min(chunk + number / (WIDTH * HEIGHT), p.in_blocks - 1));
        if (number < QUADS)
            [[unroll]] for (uint k = 0; k < 4; k++)
                pixels[places[i] / 4 + k * PLANE][places[i] % 4] = v[k];
    }
}

#include "winograd.glsl"

void leave(uint item, uint n, uvec2 origin, uint first_quad)
{
    const uint at = item % PIXELS, row = at / (ACROSS * 4), column = at % (ACROSS * 4), quad = item / PIXELS;
    const uint tile = row / 4 * ACROSS + column / 4, pixel = row % 4 * 4 + column % 4;
    if (origin.y + row < p.out_h && origin.x + column < p.out_w && first_quad + quad < p.out_blocks)
        finish(pixels[(quad * 16 + pixel) * (TILES + 1) + tile], n, first_quad + quad, origin.y + row,
               origin.x + column);
}

void main()
{
    const uint me = gl_LocalInvocationIndex, n = gl_WorkGroupID.z, number = gl_WorkGroupID.x + p.first_group;
    const uvec2 origin = uvec2(number % p.tiles_x * ACROSS, number / p.tiles_x * DOWN) * 4;
    const uint position = me / (STRIPS * SHARES), strip = me % STRIPS, share = me / STRIPS % SHARES;
    const uint first_quad = gl_WorkGroupID.y * SHARES * PER; // of the workgroup
    const uint v = position * APART + strip * 2, step = POSITIONS * UNIT, lanes = p.in_blocks * 4;
    const uint last = (p.out_blocks + UNIT - 1) / UNIT * lanes * step - 1;
    uint w[PER]; // out channels past the last multiply by any weights, and are not written
    [[unroll]] for (uint o = 0; o < PER; o++) {
        const uint quad = first_quad + share * PER + o;
        w[o] = quad / UNIT * lanes * step + position * UNIT + quad % UNIT;
    }

    vec4 sum[PER * 8]; // [out channel] 2 * 4 tiles
    [[unroll]] for (uint i = 0; i < PER * 8; i++)
        sum[i] = vec4(0.0);
    vec4 now[PER * 4], next[PER * 4];
    if (AHEAD != 0)
        [[unroll]] for (uint i = 0; i < PER * 4; i++)
            next[i] = weight[min(w[i / 4] + i % 4 * step, last)];
    find_pixels(origin);
    for (uint chunk = 0; chunk < p.in_blocks; chunk += STEPS) {
        load_chunk(n, chunk);
        store_chunk(n, chunk);
        barrier();
        for (uint i = me; i < TILES * CHANNELS * 3; i += THREADS)
            transform(i);
        barrier();
        if (AHEAD != 0) {
            [[unroll]] for (uint s = 0; s < STEPS; s++) {
                [[unroll]] for (uint i = 0; i < PER * 4; i++) {
                    now[i] = next[i];
                    next[i] = weight[min(w[i / 4] + ((chunk + s + 1) * 4 + i % 4) * step, last)];
                }
                [[unroll]] for (uint k = 0; k < 4; k++) {
                    const vec4 low = values[v + (s * 4 + k) * TILES / 4], high = values[v + (s * 4 + k) * TILES / 4 + 1];
                    [[unroll]] for (uint o = 0; o < PER * 4; o++) {
                        sum[o * 2] += now[o / 4 * 4 + k][o % 4] * low;
                        sum[o * 2 + 1] += now[o / 4 * 4 + k][o % 4] * high;
                    }
                }
            }
        } else {
            [[dont_unroll]] for (uint k = 0; k < CHANNELS; k++) {
                const vec4 low = values[v + k * TILES / 4], high = values[v + k * TILES / 4 + 1];
                [[unroll]] for (uint o = 0; o < PER; o++) {
                    const vec4 quad = weight[min(w[o] + (chunk * 4 + k) * step, last)];
                    [[unroll]] for (uint i = 0; i < 4; i++) {
                        sum[o * 8 + i * 2] += quad[i] * low;
                        sum[o * 8 + i * 2 + 1] += quad[i] * high;
                    }
                }
            }
        }
    }

    [[dont_unroll]] for (uint phase = 0; phase < SHARES * PER / STEPS; phase++) {
        barrier();
        [[unroll]] for (uint o = 0; o < PER * 4; o++) {
            const uint channel = share * PER * 4 + o, to = v + channel % CHANNELS * TILES / 4;
            if (channel / CHANNELS == phase) {
                values[to] = sum[o * 2];
                values[to + 1] = sum[o * 2 + 1];
            }
        }
        barrier();
        for (uint i = me; i < TILES * CHANNELS * 2; i += THREADS)
            transform_back(i);
        barrier();
        [[dont_unroll]] for (uint i = me; i < PIXELS * STEPS; i += THREADS)
            leave(i, n, origin, first_quad + phase * STEPS);
    }
}
