// CONV2D of op.h as a product of matrices. A workgroup makes a tile of 16 pixels across, in rows, by out channels; its
// subgroups divide rows and channels among them. For each chunk of input channels the tile's input, with its border, is
// copied to shared memory, and for each tap the 16 pixels of a row times 16 channels are one A matrix, which serves every
// row above it that has a tap there; the columns of a large kernel take several turns. Weights are B matrices in the order
// in which invocations hold them (probe.comp).
// weight: [1 or 2 times 16 out channels][16 in channels][kx][ky][16 out channels][invocation][8]; padding is zeros.
// In fp32 (FP16 0) inputs and weights are sums of two numbers in fp16, a + a' and b + b'; a product is ab + ab' + a'b, off
// by less than 2^-20 of it. Weight then: [...][b, b'][invocation][8]. Matrix units cut sums off, so a chunk's are made alone
// (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022).
#version 450
#include "matrix.glsl"

layout(local_size_x_id = 0) in; // SUBGROUP * SUBGROUPS
layout(constant_id = 1) const uint SUBGROUPS = 4;
layout(constant_id = 2) const uint DOWN = 1;   // subgroups one above the other; the rest lie side by side in channels
layout(constant_id = 3) const uint ROWS = 8;   // of a subgroup
layout(constant_id = 4) const uint BLOCKS = 1; // of 16 out channels, of a subgroup
layout(constant_id = 5) const uint STEPS = 2;  // of 16 in channels, of a chunk
layout(constant_id = 6) const uint PREFETCH = 0; // 1: the next chunk is loaded while this one is multiplied; 2: the next weights
layout(constant_id = 7) const uint SPLIT = 1;    // subgroups that divide a chunk's input channels among them
layout(constant_id = 8) const uint PHASE = 4;    // rows whose parts, with SPLIT, are added up at once
layout(constant_id = 9) const uint PADDING = 1;  // units after a pixel in shared memory, against bank conflicts
layout(constant_id = 10) const uint SLOT_BIT = 1; // of an element's number among those that an invocation holds: its row
layout(constant_id = 11) const uint PAIRED = 0;  // 1: channels are packed for pairs of out matrices
layout(constant_id = 12) const uint KERNEL = 3;
layout(constant_id = 13) const uint STRIDE = 1;
layout(constant_id = 14) const uint PAD = 1;
layout(constant_id = 15) const uint UPSAMPLE = 1;
layout(constant_id = 16) const uint ACTIVATION = 0;
layout(constant_id = 17) const uint FLAGS = 0;
layout(constant_id = 18) const uint SHUFFLE = 1; // factor of a pixel shuffle: each quad is a pixel of the output then

layout(push_constant) uniform push { params_conv2d p; };
#define CHAINED(slot, type, name) layout(std430, set = 0, binding = slot) restrict queuefamilycoherent buffer name##_buffer { type name[]; }
CHAINED(BIND_Y, QUAD, y);
CHAINED(BIND_RESIDUAL1, QUAD, residual1);
CHAINED(BIND_RESIDUAL2, QUAD, residual2);
#if FP16
CHAINED(BIND_Y, uvec4, y_units);
CHAINED(BIND_X, uvec4, x);
CHAINED(BIND_X, uvec2, x_quads);
CHAINED(BIND_RESIDUAL1, uvec4, residual1_units);
CHAINED(BIND_RESIDUAL2, uvec4, residual2_units);
#else
CHAINED(BIND_X, vec4, x);
#endif
READS(BIND_IN_SCALE, in_scale);
READS(BIND_OUT_SCALE, out_scale);
READS(BIND_NOISE, noise);
layout(std430, set = 0, binding = BIND_WEIGHT) restrict readonly buffer weight_buffer { uvec4 weight[]; };
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

const uint JUMP = KERNEL == 1 ? STRIDE : 1; // pixels of the input from one of the tile to the next
const uint STEP = STRIDE / JUMP;            // and of the tile from one of the output to the next
const uint TILE_W = (SIZE - 1) * STEP + KERNEL, TILE_H = (ROWS * DOWN - 1) * STEP + KERNEL;
const uint UNITS = STEPS * 2; // of 8 channels, of a pixel in the tile
const uint PARTS = 2 - FP16, PITCH = UNITS * PARTS + PADDING; // numbers in fp16 of one; units from pixel to pixel
const uint PIXELS = SUBGROUPS * SUBGROUP / UNITS;            // of the tile that are copied at once
const uint COPIES = (TILE_W * TILE_H + PIXELS - 1) / PIXELS; // of each invocation, for a chunk
const uint OUTSIDE = 0xffffffffu;
const uint TURNS = (KERNEL + 6) / 7;                  // for a column of the kernel
const uint REACH = (KERNEL + TURNS - 1) / TURNS;      // taps of a turn; of the last one, some may not exist
const uint SPAN = (ROWS - 1) * STEP + REACH;
const uint PLACES = SUBGROUPS / SPLIT;
const uint ACROSS = PLACES / DOWN * BLOCKS; // out matrices of the workgroup
const uint PER = 1 + PAIRED * (1 - BLOCKS % 2);          // matrices that leave together
const uint PART = PHASE * BLOCKS * SIZE * SIZE;          // sums of a subgroup that are added up at once

shared uvec4 tile[TILE_W * TILE_H * PITCH];
shared float sums[(1 - 1 / SPLIT) * SUBGROUPS * PART + 1];
#include "stage.glsl"
#include "factors.glsl"
#include "chain.glsl"
#include "early.glsl"
#include "leave.glsl"

void main()
{
    FLOAT_TYPES;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uvec2 origin = uvec2(group % p.tiles_x * SIZE, group / p.tiles_x * ROWS * DOWN);
    const uint me = gl_SubgroupInvocationID, place = gl_SubgroupID % PLACES, part = gl_SubgroupID / PLACES;
    const uint down = place % DOWN, first_row = down * ROWS, across = place / DOWN * BLOCKS;
    const uint first_block = gl_WorkGroupID.y * ACROSS + across; // of 16 channels
    const uint steps = (p.in_blocks + 3) / 4, last_block = (p.out_blocks + 3) / 4 - 1;

    matrix_sum sum[ROWS * BLOCKS];
    [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
        sum[i] = matrix_splat(0.0);
    warm_weights(weight_units(steps * KERNEL * KERNEL * PARTS));
    find_pixels(origin);
    chain_wait(origin.y, origin.y + ROWS * DOWN);
    if (PREFETCH % 2 != 0)
        load_chunk(n, 0);
    BEGIN_EARLY(sum, origin + uvec2(0, first_row), part)
    load_weights(part * (STEPS / SPLIT) * KERNEL * TURNS, first_block, last_block, steps);
    for (uint chunk = 0; chunk < steps; chunk += STEPS) {
        if (PREFETCH % 2 == 0)
            load_chunk(n, chunk);
        if (WARMS && chunk == 0)
            warm_wait();
        barrier();
        store_chunk(n, chunk);
        barrier();
        if (PREFETCH % 2 != 0 && chunk + STEPS < steps)
            load_chunk(n, chunk + STEPS);
#if FP16
#define INTO sum
#else
#define INTO fresh
        matrix_sum fresh[ROWS * BLOCKS]; // of the chunk
        [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
            fresh[i] = matrix_splat(0.0);
#endif
        [[unroll]] for (uint k = 0; k < STEPS / SPLIT; k++) {
            const uint step = part * (STEPS / SPLIT) + k;
            [[dont_unroll]] for (uint turn = 0; turn < KERNEL * TURNS; turn++) {
                const uint kx = turn / TURNS, first_tap = turn % TURNS * REACH;
                matrix_b b[REACH * BLOCKS];
#if !FP16
                matrix_b left[REACH * BLOCKS]; // b'
#endif
                [[unroll]] for (uint i = 0; i < REACH * BLOCKS; i++) {
                    const uint at = weight_at(i, chunk + step, kx, first_tap, first_block, last_block, steps);
                    const uvec4 v = weights_of(i, 0, at, first_tap);
                    HOLD(b[i], v)
#if !FP16
                    const uvec4 w = weights_of(i, 1, at, first_tap);
                    HOLD(left[i], w)
#endif
                }
                load_weights(next_of((chunk + step) * KERNEL * TURNS + turn, steps), first_block, last_block, steps);
                [[unroll]] for (uint r = 0; r < SPAN; r++) {
                    const uint row = first_row * STEP + first_tap + r;
                    const uint from = (TURNS == 1 ? row : min(row, TILE_H - 1)) * TILE_W + kx;
                    matrix_a a = matrix_load_a(tile[from * PITCH + step * 2], 0, STEP * PITCH, 0x20);
#if !FP16 // a'
                    matrix_a rest = matrix_load_a(tile[from * PITCH + UNITS + step * 2], 0, STEP * PITCH, 0x20);
#endif
                    [[unroll]] for (uint i = 0; i < REACH * BLOCKS; i++) {
                        const uint ky = i / BLOCKS;
                        if (r >= ky && (r - ky) % STEP == 0 && (r - ky) / STEP < ROWS) {
                            const uint to = (r - ky) / STEP * BLOCKS + i % BLOCKS;
                            INTO[to] = matrix_multiply_add(a, b[i], INTO[to]);
#if !FP16
                            INTO[to] = matrix_multiply_add(a, left[i], INTO[to]);
                            INTO[to] = matrix_multiply_add(rest, b[i], INTO[to]);
#endif
                        }
                    }
                }
            }
        }
#if !FP16
        [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
            sum[i] = matrix_add(sum[i], fresh[i]);
#endif
    }

    quad_finish finishes[BLOCKS];
    [[unroll]] for (uint b = 0; b < BLOCKS; b++)
        finishes[b] = quad_finish_of(n, quad_of(first_block + b));
    [[unroll]] for (uint phase = 0; phase < ROWS; phase += PHASE) {
        if (SPLIT > 1) {
            barrier();
            [[unroll]] for (uint i = 0; i < PHASE * BLOCKS; i++)
                [[unroll]] for (uint j = 0; j < 8; j++)
                    sums[gl_SubgroupID % PLACES * PART + part * PLACES * PART + (i * 8 + j) * SUBGROUP + me] =
                        sum_get(sum_element(sum[phase * BLOCKS + i], j));
            barrier();
        }
        [[unroll]] for (uint i = 0; i < PHASE * 2; i++) {
            const uint row = origin.y + first_row + phase + i / 2, column = origin.x + me / 4 + i % 2 * 8;
            if (row >= p.out_h || column >= p.out_w || i % SPLIT != part)
                continue;
            const uint at = row * p.out_w + column;
            [[unroll]] for (uint b = 0; b < BLOCKS; b += PER) {
                vec4 v[PER];
                [[unroll]] for (uint k = 0; k < PER; k++) {
                    const uint of = i / 2 * BLOCKS + b + k;
                    if (SPLIT > 1)
                        v[k] = added(place, of, i % 2);
                    else
                        [[unroll]] for (uint j = 0; j < 4; j++)
                            v[k][j] = sum_get(sum_element(sum[phase * BLOCKS + of], element_at(i % 2, j)));
                }
                const uint quad = quad_of(first_block + b);
#if FP16
                if (PER == 2 && in_units())
                    leave_pair(quad_finish[2](finishes[b], finishes[b + PER - 1]), v[0], v[PER - 1], n, quad, at);
                else
#endif
                    [[unroll]] for (uint k = 0; k < PER; k++)
                        leave_quad(finishes[b + k], v[k], n, quad + k, at);
            }
        }
    }
    chain_tell(origin.y);
}
