// CONV2D of op.h as a product of matrices. A workgroup makes a tile of 16 pixels across, in rows, by out channels; its
// subgroups divide rows and channels among them. For each chunk of input channels the tile's input, with its border, is
// copied to shared memory, and for each tap the 16 pixels of a row times 16 channels are one A matrix, which serves every
// row above it that has a tap there. Weights are B matrices in the order in which invocations hold them (probe.comp).
// weight: [16 out channels][16 in channels][ky][kx][invocation][8]; padding is zeros.
#version 450
#define FP16 1
#include "matrix.glsl"

layout(local_size_x_id = 0) in; // SUBGROUP * SUBGROUPS
layout(constant_id = 1) const uint SUBGROUPS = 4;
layout(constant_id = 2) const uint DOWN = 1;   // subgroups one above the other; the rest lie side by side in channels
layout(constant_id = 3) const uint ROWS = 8;   // of a subgroup
layout(constant_id = 4) const uint BLOCKS = 1; // of 16 out channels, of a subgroup
layout(constant_id = 5) const uint STEPS = 2;  // of 16 in channels, of a chunk
layout(constant_id = 6) const uint PREFETCH = 0; // 1: the next chunk is loaded while this one is multiplied
layout(constant_id = 7) const uint SPLIT = 1;    // subgroups that divide a chunk's input channels among them
layout(constant_id = 8) const uint PHASE = 4;    // rows of a subgroup that leave through shared memory at once
layout(constant_id = 9) const uint KERNEL = 3;
layout(constant_id = 10) const uint STRIDE = 1;
layout(constant_id = 11) const uint PAD = 1;
layout(constant_id = 12) const uint UPSAMPLE = 1;
layout(constant_id = 13) const uint ACTIVATION = 0;
layout(constant_id = 14) const uint FLAGS = 0;

layout(push_constant) uniform push { params_conv2d p; };
WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer units_buffer { uvec4 y_units[]; };
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer x_buffer { uvec4 x[]; };
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);
READS(BIND_IN_SCALE, in_scale);
READS(BIND_OUT_SCALE, out_scale);
READS(BIND_NOISE, noise);
layout(std430, set = 0, binding = BIND_WEIGHT) restrict readonly buffer weight_buffer { uvec4 weight[]; };
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

const uint TILE_W = (SIZE - 1) * STRIDE + KERNEL, TILE_H = (ROWS * DOWN - 1) * STRIDE + KERNEL;
const uint UNITS = STEPS * 2;     // of 8 channels, of a pixel in the tile
const uint PITCH = STEPS * 4 + 2; // quads from pixel to pixel in the tile: 16 bytes more, against bank conflicts
const uint PIXELS = SUBGROUPS * SUBGROUP / UNITS;                // of the tile that are copied at once
const uint COPIES = (TILE_W * TILE_H + PIXELS - 1) / PIXELS;   // of each invocation, for a chunk
const uint OUTSIDE = 0xffffffffu;
const uint SPAN = (ROWS - 1) * STRIDE + KERNEL;
const uint ACROSS = SUBGROUPS / SPLIT / DOWN * BLOCKS; // out matrices of the workgroup
const uint OUT_UNITS = ACROSS * 2;                    // of 8 channels
const uint OUT_PITCH = ACROSS * SIZE + 4;
const uint OUT_LINES = DOWN * PHASE * SIZE;

shared f16vec4 tile[TILE_W * TILE_H * PITCH];
shared float sums[SPLIT * OUT_LINES * OUT_PITCH];

bool has(uint flag) { return (FLAGS & flag) != 0; }

#include "stage.glsl"

// What comes after the sum.
f16vec4 finish(vec4 v, uint n, uint block, uint at)
{
    const uint size = p.out_h * p.out_w;
    v *= p.gain;
    if (has(FLAG_OUT_SCALE))
        v *= vec4(out_scale[quad_index(p.out_scale, n, block, 1, 0)]);
    if (has(FLAG_NOISE))
        v += p.noise_weight * vec4(noise[quad_index(p.noise, n, 0, size, at)]).x * lane_mask(block, p.out_channels);
    if (has(FLAG_BIAS))
        v += bias[block];
    const vec4 slopes = ACTIVATION == ACTIVATION_PRELU ? slope[block] : vec4(p.slope);
    if (!has(FLAG_ACTIVATION_LAST))
        v = activate(ACTIVATION, v, slopes);
    v *= p.scale;
    if (has(FLAG_RESIDUAL1))
        v += p.residual1_scale * vec4(residual1[quad_index(p.residual1, n, block, size, at)]);
    if (has(FLAG_RESIDUAL2))
        v += p.residual2_scale * vec4(residual2[quad_index(p.residual2, n, block, size, at)]);
    if (has(FLAG_ACTIVATION_LAST))
        v = activate(ACTIVATION, v, slopes);
    return TO_QUAD(v);
}

vec4 sum_at(uint i)
{
    vec4 v = vec4(0.0);
    [[unroll]] for (uint part = 0; part < SPLIT; part++, i += OUT_LINES * OUT_PITCH)
        v += vec4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    return v;
}

void main()
{
    FLOAT_TYPES;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uvec2 origin = uvec2(group % p.tiles_x * SIZE, group / p.tiles_x * ROWS * DOWN);
    const uint me = gl_SubgroupInvocationID, part = gl_SubgroupID % SPLIT, place = gl_SubgroupID / SPLIT;
    const uint down = place % DOWN, first_row = down * ROWS, across = place / DOWN * BLOCKS;
    const uint first_block = gl_WorkGroupID.y * ACROSS + across; // of 16 channels
    const uint steps = (p.in_blocks + 3) / 4, last_block = (p.out_blocks + 3) / 4 - 1;

    matrix_sum sum[ROWS * BLOCKS];
    [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
        sum[i] = matrix_splat(0.0);

    find_pixels(origin);
    if (PREFETCH != 0)
        load_chunk(n, 0);
    for (uint chunk = 0; chunk < steps; chunk += STEPS) {
        if (PREFETCH == 0)
            load_chunk(n, chunk);
        barrier();
        store_chunk(n, chunk);
        barrier();
        if (PREFETCH != 0 && chunk + STEPS < steps)
            load_chunk(n, chunk + STEPS);
        [[unroll]] for (uint k = 0; k < STEPS / SPLIT; k++) {
            const uint step = part * (STEPS / SPLIT) + k;
            [[dont_unroll]] for (uint kx = 0; kx < KERNEL; kx++) {
                matrix_b b[KERNEL * BLOCKS];
                [[unroll]] for (uint i = 0; i < KERNEL * BLOCKS; i++) {
                    const uint block = min(first_block + i % BLOCKS, last_block), ky = i / BLOCKS;
                    const uint tap = ((block * steps + chunk + step) * KERNEL + ky) * KERNEL + kx;
                    const uvec4 v = weight[tap * SUBGROUP + me];
                    [[unroll]] for (uint j = 0; j < 4; j++) {
                        const f16vec2 halves = unpackFloat2x16(v[j]);
                        matrix_set(matrix_element(b[i], j * 2), halves.x);
                        matrix_set(matrix_element(b[i], j * 2 + 1), halves.y);
                    }
                }
                [[unroll]] for (uint r = 0; r < SPAN; r++) {
                    const uint from = (first_row * STRIDE + r) * TILE_W + kx;
                    matrix_a a = matrix_load_a(tile[from * PITCH + step * 4], 0, STRIDE * PITCH, 0x20);
                    [[unroll]] for (uint i = 0; i < KERNEL * BLOCKS; i++) {
                        const uint ky = i / BLOCKS;
                        if (r >= ky && (r - ky) % STRIDE == 0 && (r - ky) / STRIDE < ROWS) {
                            const uint to = (r - ky) / STRIDE * BLOCKS + i % BLOCKS;
                            sum[to] = matrix_multiply_add(a, b[i], sum[to]);
                        }
                    }
                }
            }
        }
    }

    [[unroll]] for (uint phase = 0; phase < ROWS; phase += PHASE) {
        barrier();
        [[unroll]] for (uint i = 0; i < PHASE * BLOCKS; i++) {
            const uint line = (part * DOWN + down) * PHASE + i / BLOCKS;
            matrix_store(sums[line * SIZE * OUT_PITCH + (across + i % BLOCKS) * SIZE], sum[phase * BLOCKS + i], 0,
                         OUT_PITCH, 0x20);
        }
        barrier();
        [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < OUT_LINES * OUT_UNITS; i += SUBGROUPS * SUBGROUP) {
            const uint unit = i % OUT_UNITS, at_line = i / OUT_UNITS, line = at_line / SIZE;
            const uint block = gl_WorkGroupID.y * ACROSS * 4 + unit * 2, from = at_line * OUT_PITCH + unit * 8;
            const uint row = origin.y + line / PHASE * ROWS + phase + line % PHASE, column = origin.x + at_line % SIZE;
            if (row >= p.out_h || column >= p.out_w || block >= p.out_blocks)
                continue;
            const uint at = row * p.out_w + column, to = quad_index(p.y, n, block, p.out_h * p.out_w, at);
            const f16vec4 low = finish(sum_at(from), n, block, at);
            if (group_log(p.y) > 0) {
                const f16vec4 high = finish(sum_at(from + 4), n, block + 1, at);
                y_units[to / 2] = uvec4(packFloat2x16(low.xy), packFloat2x16(low.zw), packFloat2x16(high.xy),
                                        packFloat2x16(high.zw));
            } else {
                y[to] = low;
                if (block + 1 < p.out_blocks)
                    y[quad_index(p.y, n, block + 1, p.out_h * p.out_w, at)] =
                        finish(sum_at(from + 4), n, block + 1, at);
            }
        }
    }
}
