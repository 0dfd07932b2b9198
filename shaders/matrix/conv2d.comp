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
layout(constant_id = 6) const uint KERNEL = 3;
layout(constant_id = 7) const uint STRIDE = 1;
layout(constant_id = 8) const uint PAD = 1;
layout(constant_id = 9) const uint UPSAMPLE = 1;
layout(constant_id = 10) const uint ACTIVATION = 0;
layout(constant_id = 11) const uint FLAGS = 0;

layout(push_constant) uniform push { params_conv2d p; };
WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_X) readonly buffer x_buffer { uvec4 x[]; };
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);
READS(BIND_IN_SCALE, in_scale);
READS(BIND_OUT_SCALE, out_scale);
READS(BIND_NOISE, noise);
layout(std430, set = 0, binding = BIND_WEIGHT) readonly buffer weight_buffer { uvec4 weight[]; };
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

const uint TILE_W = (SIZE - 1) * STRIDE + KERNEL, TILE_H = (ROWS * DOWN - 1) * STRIDE + KERNEL;
const uint UNITS = STEPS * 2;     // of 8 channels, of a pixel in the tile
const uint PITCH = STEPS * 4 + 2; // quads from pixel to pixel in the tile: 16 bytes more, against bank conflicts
const uint SPAN = (ROWS - 1) * STRIDE + KERNEL;
const uint OUT_PITCH = BLOCKS * SIZE + 4;

shared f16vec4 tile[TILE_W * TILE_H * PITCH];
shared float sums[SUBGROUPS * SIZE * OUT_PITCH];

bool has(uint flag) { return (FLAGS & flag) != 0; }

// Where a coordinate of the padded, upsampled input lies in the input; outside: -1 (zero padding).
int source(int at, uint size)
{
    int last = int(size * UPSAMPLE) - 1;
    if (has(FLAG_REFLECT)) {
        at = abs(at);
        at = clamp(at > last ? 2 * last - at : at, 0, last);
    }
    return at < 0 || at > last ? -1 : at / int(UPSAMPLE);
}

vec4 scaled(uint halves_low, uint halves_high, uint n, uint quad)
{
    return vec4(unpackFloat2x16(halves_low), unpackFloat2x16(halves_high)) *
           vec4(in_scale[quad_index(p.in_scale, n, quad, 1, 0)]);
}

// Copies the input of a chunk, which begins with that quad of channels.
void stage(uint n, uvec2 origin, uint first_quad)
{
    for (uint i = gl_LocalInvocationIndex; i < TILE_W * TILE_H * UNITS; i += SUBGROUPS * SUBGROUP) {
        const uint unit = i % UNITS, at = i / UNITS, quad = first_quad + unit * 2;
        const int row = source(int(origin.y * STRIDE + at / TILE_W) - int(PAD), p.in_h);
        const int column = source(int(origin.x * STRIDE + at % TILE_W) - int(PAD), p.in_w);
        uvec4 v = uvec4(0);
        if (row >= 0 && column >= 0 && quad < p.in_blocks)
            v = x[quad_index(p.x, n, quad, p.in_h * p.in_w, uint(row) * p.in_w + uint(column)) / 2];
        f16vec4 low = f16vec4(unpackFloat2x16(v.x), unpackFloat2x16(v.y));
        f16vec4 high = f16vec4(unpackFloat2x16(v.z), unpackFloat2x16(v.w));
        if (has(FLAG_IN_SCALE) && quad < p.in_blocks) {
            low = TO_QUAD(scaled(v.x, v.y, n, quad));
            high = TO_QUAD(scaled(v.z, v.w, n, quad + 1));
        }
        tile[at * PITCH + unit * 2] = low;
        tile[at * PITCH + unit * 2 + 1] = high;
    }
}

void finish(vec4 v, uint n, uint block, uint at)
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
    y[quad_index(p.y, n, block, size, at)] = TO_QUAD(v);
}

void main()
{
    FLOAT_TYPES;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uvec2 origin = uvec2(group % p.tiles_x * SIZE, group / p.tiles_x * ROWS * DOWN);
    const uint me = gl_SubgroupInvocationID, first_row = gl_SubgroupID % DOWN * ROWS;
    const uint first_block = (gl_WorkGroupID.y * (SUBGROUPS / DOWN) + gl_SubgroupID / DOWN) * BLOCKS; // of 16 channels
    const uint steps = (p.in_blocks + 3) / 4, last_block = (p.out_blocks + 3) / 4 - 1;

    matrix_sum sum[ROWS * BLOCKS];
    [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
        sum[i] = matrix_splat(0.0);

    for (uint chunk = 0; chunk < steps; chunk += STEPS) {
        barrier();
        stage(n, origin, chunk * 4);
        barrier();
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            [[unroll]] for (uint kx = 0; kx < KERNEL; kx++) {
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

    const uint mine = gl_SubgroupID * SIZE * OUT_PITCH;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        subgroupBarrier();
        [[unroll]] for (uint b = 0; b < BLOCKS; b++)
            matrix_store(sums[mine + b * SIZE], sum[r * BLOCKS + b], 0, OUT_PITCH, 0x20);
        subgroupBarrier();
        const uint row = origin.y + first_row + r;
        for (uint i = me; i < SIZE * BLOCKS * 4; i += SUBGROUP) {
            const uint column = origin.x + i / (BLOCKS * 4), quad = i % (BLOCKS * 4), block = first_block * 4 + quad;
            const uint from = mine + i / (BLOCKS * 4) * OUT_PITCH + quad * 4;
            if (row < p.out_h && column < p.out_w && block < p.out_blocks)
                finish(vec4(sums[from], sums[from + 1], sums[from + 2], sums[from + 3]), n, block,
                       row * p.out_w + column);
        }
    }
}
