// CONV2D of op.h. An invocation makes ROWS pixels, one under the other, of OUT_PER blocks of 4 channels: a column of the
// input, once loaded, serves every row and tap that needs it. With FLAG_STAGED the workgroup first copies one block of
// its input tile to shared memory; otherwise the invocations read the input themselves (1x1 kernels, and software
// devices, where a barrier costs more than it saves).
// weight: [out block][in block][ky][kx][in lane] quads of 4 out lanes; lanes that are padding hold zeros.
#version 450
#include "common.glsl"

layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in; // columns, rows / ROWS, out blocks / OUT_PER
layout(constant_id = 3) const uint ROWS = 4;
layout(constant_id = 4) const uint OUT_PER = 2;
layout(constant_id = 5) const uint KERNEL = 3;
layout(constant_id = 6) const uint STRIDE = 1;
layout(constant_id = 7) const uint PAD = 1;
layout(constant_id = 8) const uint UPSAMPLE = 1;
layout(constant_id = 9) const uint ACTIVATION = 0;
layout(constant_id = 10) const uint FLAGS = 0;
layout(constant_id = 11) const uint TILE = 1; // quads of the tile in shared memory

layout(push_constant) uniform push { params_conv2d p; };
WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);
READS(BIND_IN_SCALE, in_scale);
READS(BIND_OUT_SCALE, out_scale);
READS(BIND_NOISE, noise);
READS(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

const uint SPAN = (ROWS - 1) * STRIDE + KERNEL; // input rows that an invocation needs
const uint TAPS = KERNEL * KERNEL * 4;

shared vec4 tile[TILE];

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

vec4 fetch(uint plane, int row, int column)
{
    vec4 v = vec4(x[plane + (uint(max(row, 0)) * p.in_w + uint(max(column, 0)) << group_log(p.x))]);
    return row < 0 || column < 0 ? vec4(0.0) : v;
}

void main()
{
    const uvec3 local = gl_LocalInvocationID, size = gl_WorkGroupSize;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uvec2 origin = uvec2(group % p.tiles_x * size.x, group / p.tiles_x * size.y * ROWS);
    const uvec2 at = origin + uvec2(local.x, local.y * ROWS);
    const uint first_block = (gl_WorkGroupID.y * size.z + local.z) * OUT_PER;
    const uint tile_w = (size.x - 1) * STRIDE + KERNEL;
    const uint in_size = p.in_h * p.in_w;

    vec4 sum[ROWS * OUT_PER];
    [[unroll]] for (uint i = 0; i < ROWS * OUT_PER; i++)
        sum[i] = vec4(0.0);
    uint weights[OUT_PER]; // of the current input block; an out block past the last computes the last one again
    [[unroll]] for (uint o = 0; o < OUT_PER; o++)
        weights[o] = min(first_block + o, p.out_blocks - 1) * p.in_blocks * TAPS;
    int rows[SPAN];
    [[unroll]] for (uint r = 0; r < SPAN; r++)
        rows[r] = source(int(at.y * STRIDE + r) - int(PAD), p.in_h);

    for (uint ib = 0; ib < p.in_blocks; ib++) {
        const uint plane = quad_index(p.x, n, ib, in_size, 0);
        const vec4 factor = has(FLAG_IN_SCALE) ? vec4(in_scale[quad_index(p.in_scale, n, ib, 1, 0)]) : vec4(1.0);
        if (has(FLAG_STAGED)) {
            barrier();
            for (uint i = gl_LocalInvocationIndex; i < TILE; i += size.x * size.y * size.z) {
                ivec2 from = ivec2(origin * STRIDE + uvec2(i % tile_w, i / tile_w)) - int(PAD);
                tile[i] = fetch(plane, source(from.y, p.in_h), source(from.x, p.in_w)) * factor;
            }
            barrier();
        }
        for (uint kx = 0; kx < KERNEL; kx++) {
            vec4 column[SPAN];
            if (has(FLAG_STAGED)) {
                uint from = local.y * ROWS * STRIDE * tile_w + local.x * STRIDE + kx;
                [[unroll]] for (uint r = 0; r < SPAN; r++)
                    column[r] = tile[from + r * tile_w];
            } else {
                int from = source(int(at.x * STRIDE + kx) - int(PAD), p.in_w);
                [[unroll]] for (uint r = 0; r < SPAN; r++)
                    column[r] = fetch(plane, rows[r], from) * factor;
            }
            [[unroll]] for (uint ky = 0; ky < KERNEL; ky++) {
                [[unroll]] for (uint o = 0; o < OUT_PER; o++) {
                    uint w = weights[o] + (ky * KERNEL + kx) * 4;
                    vec4 w0 = vec4(weight[w]), w1 = vec4(weight[w + 1]);
                    vec4 w2 = vec4(weight[w + 2]), w3 = vec4(weight[w + 3]);
                    [[unroll]] for (uint r = 0; r < ROWS; r++) {
                        vec4 v = column[r * STRIDE + ky];
                        sum[r * OUT_PER + o] += w0 * v.x;
                        sum[r * OUT_PER + o] += w1 * v.y;
                        sum[r * OUT_PER + o] += w2 * v.z;
                        sum[r * OUT_PER + o] += w3 * v.w;
                    }
                }
            }
        }
        [[unroll]] for (uint o = 0; o < OUT_PER; o++)
            weights[o] += TAPS;
    }

    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        [[unroll]] for (uint o = 0; o < OUT_PER; o++) {
            const uint row = at.y + r, block = first_block + o;
            if (row >= p.out_h || at.x >= p.out_w || block >= p.out_blocks)
                continue;
            const uint pixel = row * p.out_w + at.x, out_size = p.out_h * p.out_w;
            vec4 v = sum[r * OUT_PER + o] * p.gain;
            if (has(FLAG_OUT_SCALE))
                v *= vec4(out_scale[quad_index(p.out_scale, n, block, 1, 0)]);
            if (has(FLAG_NOISE))
                v += p.noise_weight * vec4(noise[quad_index(p.noise, n, 0, out_size, pixel)]).x *
                     lane_mask(block, p.out_channels);
            if (has(FLAG_BIAS))
                v += bias[block];
            const vec4 slopes = ACTIVATION == ACTIVATION_PRELU ? slope[block] : vec4(p.slope);
            if (!has(FLAG_ACTIVATION_LAST))
                v = activate(ACTIVATION, v, slopes);
            v *= p.scale;
            if (has(FLAG_RESIDUAL1))
                v += p.residual1_scale * vec4(residual1[quad_index(p.residual1, n, block, out_size, pixel)]);
            if (has(FLAG_RESIDUAL2))
                v += p.residual2_scale * vec4(residual2[quad_index(p.residual2, n, block, out_size, pixel)]);
            if (has(FLAG_ACTIVATION_LAST))
                v = activate(ACTIVATION, v, slopes);
            y[quad_index(p.y, n, block, out_size, pixel)] = TO_QUAD(v);
        }
    }
}
