// CONV2D of op.h, as software devices want it, where a barrier costs more than reading the input again. An invocation
// makes ROWS pixels, one under the other, of OUT_PER quads of channels: a column of the input, once loaded, serves every
// row and tap that needs it.
// weight: [16 out channels][in quad][ky][kx][in lane] quads of out lanes; lanes that are padding hold zeros.
#version 450
layout(local_size_x_id = 0, local_size_y_id = 1) in; // columns, out quads / OUT_PER
layout(constant_id = 2) const uint ROWS = 4;
layout(constant_id = 3) const uint OUT_PER = 2;
layout(constant_id = 4) const uint KERNEL = 3;
layout(constant_id = 5) const uint STRIDE = 1;
layout(constant_id = 6) const uint PAD = 1;
layout(constant_id = 7) const uint UPSAMPLE = 1;
layout(constant_id = 8) const uint ACTIVATION = 0;
layout(constant_id = 9) const uint FLAGS = 0;
#include "convolution.glsl"
READS(BIND_X, x);
READS(BIND_WEIGHT, weight);

const uint SPAN = (ROWS - 1) * STRIDE + KERNEL; // input rows that an invocation needs
const uint TAPS = KERNEL * KERNEL * 4;

vec4 fetch(uint plane, int row, int column)
{
    vec4 v = vec4(x[plane + (uint(max(row, 0)) * p.in_w + uint(max(column, 0)) << group_log(p.x))]);
    return row < 0 || column < 0 ? vec4(0.0) : v;
}

void main()
{
    const uvec3 local = gl_LocalInvocationID, size = gl_WorkGroupSize;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    const uvec2 at = uvec2(group % p.tiles_x * size.x + local.x, group / p.tiles_x * ROWS);
    const uint first_block = (gl_WorkGroupID.y * size.y + local.y) * OUT_PER;

    vec4 sum[ROWS * OUT_PER];
    [[unroll]] for (uint i = 0; i < ROWS * OUT_PER; i++)
        sum[i] = vec4(0.0);
    uint weights[OUT_PER]; // of the current input quad; an out quad past the last computes the last one again
    [[unroll]] for (uint o = 0; o < OUT_PER; o++) {
        const uint block = min(first_block + o, p.out_blocks - 1);
        weights[o] = block / UNIT * p.in_blocks * TAPS * UNIT + block % UNIT;
    }
    int rows[SPAN];
    [[unroll]] for (uint r = 0; r < SPAN; r++)
        rows[r] = source(int(at.y * STRIDE + r) - int(PAD), p.in_h);

    for (uint ib = 0; ib < p.in_blocks; ib++) {
        const uint plane = quad_index(p.x, n, ib, p.in_h * p.in_w, 0);
        const vec4 factor = in_factor(n, ib);
        for (uint kx = 0; kx < KERNEL; kx++) {
            const int from = source(int(at.x * STRIDE + kx) - int(PAD), p.in_w);
            vec4 column[SPAN];
            [[unroll]] for (uint r = 0; r < SPAN; r++)
                column[r] = fetch(plane, rows[r], from) * factor;
            [[unroll]] for (uint ky = 0; ky < KERNEL; ky++) {
                [[unroll]] for (uint o = 0; o < OUT_PER; o++) {
                    const uint w = weights[o] + (ky * KERNEL + kx) * 4 * UNIT;
                    const vec4 w0 = vec4(weight[w]), w1 = vec4(weight[w + UNIT]);
                    const vec4 w2 = vec4(weight[w + 2 * UNIT]), w3 = vec4(weight[w + 3 * UNIT]);
                    [[unroll]] for (uint r = 0; r < ROWS; r++) {
                        const vec4 v = column[r * STRIDE + ky];
                        sum[r * OUT_PER + o] += w0 * v.x;
                        sum[r * OUT_PER + o] += w1 * v.y;
                        sum[r * OUT_PER + o] += w2 * v.z;
                        sum[r * OUT_PER + o] += w3 * v.w;
                    }
                }
            }
        }
        [[unroll]] for (uint o = 0; o < OUT_PER; o++)
            weights[o] += TAPS * UNIT;
    }

    [[unroll]] for (uint r = 0; r < ROWS; r++)
        [[unroll]] for (uint o = 0; o < OUT_PER; o++)
            if (at.y + r < p.out_h && at.x < p.out_w && first_block + o < p.out_blocks)
                finish(sum[r * OUT_PER + o], n, first_block + o, at.y + r, at.x);
}
