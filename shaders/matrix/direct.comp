// CONV2D of op.h as a product of matrices whose input goes from memory straight to the invocations that hold it: without
// a copy in shared memory, and without barriers (vk_direct.h says for which). 16 pixels, one after the other in the
// picture, are the rows of an A matrix, and each invocation holds a quad of channels of two of them: the weights' rows are
// packed in that order. A step is a group of 16 channels, of one tap; of a picture with one quad it is 4 taps side by side.
// weight: [1 or 2 times 16 out channels][step: group, kx, ky or ky, 4 kx][16 out channels][invocation][8]
#version 450
#include "matrix.glsl"

layout(local_size_x_id = 0) in; // SUBGROUP * SUBGROUPS
layout(constant_id = 1) const uint SUBGROUPS = 4;
layout(constant_id = 2) const uint DOWN = 2;   // subgroups that differ in pixels; the rest lie side by side in channels
layout(constant_id = 3) const uint ROWS = 4;   // of 16 pixels, of a subgroup
layout(constant_id = 4) const uint BLOCKS = 4; // of 16 out channels, of a subgroup
layout(constant_id = 5) const uint AHEAD = 1;  // steps that are on their way from memory while one is multiplied
layout(constant_id = 6) const uint SPLIT = 1;  // subgroups that divide the steps among them
layout(constant_id = 7) const uint PHASE = 4;  // rows whose parts, with SPLIT, are added up at once
layout(constant_id = 8) const uint SLOT_BIT = 1; // of an element's number among those that an invocation holds: its row
layout(constant_id = 9) const uint HALF_BIT = 1; // the same of an A matrix
layout(constant_id = 10) const uint PAIRED = 0;  // 1: channels are packed for pairs of out matrices
layout(constant_id = 11) const uint KERNEL = 1;
layout(constant_id = 12) const uint STRIDE = 1;
layout(constant_id = 13) const uint PAD = 0;
layout(constant_id = 14) const uint ACTIVATION = 0;
layout(constant_id = 15) const uint FLAGS = 0;

layout(push_constant) uniform push { params_conv2d p; };
WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer units_buffer { uvec4 y_units[]; };
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer x_buffer { uvec2 x[]; };
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);
layout(std430, set = 0, binding = BIND_RESIDUAL1) restrict readonly buffer units1_buffer { uvec4 residual1_units[]; };
layout(std430, set = 0, binding = BIND_RESIDUAL2) restrict readonly buffer units2_buffer { uvec4 residual2_units[]; };
READS(BIND_IN_SCALE, in_scale);
READS(BIND_OUT_SCALE, out_scale);
READS(BIND_NOISE, noise);
layout(std430, set = 0, binding = BIND_WEIGHT) restrict readonly buffer weight_buffer { uvec4 weight[]; };
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

const uint SHUFFLE = 1; // for leave.glsl: none here
const uint PLACES = SUBGROUPS / SPLIT;
const uint ACROSS = PLACES / DOWN * BLOCKS;     // out matrices of the workgroup
const uint PER = 1 + PAIRED * (1 - BLOCKS % 2); // matrices that leave together
const uint PART = PHASE * BLOCKS * SIZE * SIZE; // sums of a subgroup that are added up at once
const uint SLOTS = ROWS * 2;                    // pixels of an invocation
const uint GROUPS = (KERNEL + 3) / 4;           // of taps side by side, where the input has one quad

shared float sums[(1 - 1 / SPLIT) * SUBGROUPS * PART + 1];

bool has(uint flag) { return (FLAGS & flag) != 0; }

f16vec4 halves(uvec2 v) { return f16vec4(unpackFloat2x16(v.x), unpackFloat2x16(v.y)); }

#define LATE(flag) has(flag)
#define DIVISOR(scale) scale
#include "leave.glsl"

#define HELD(m, slot) vec4(sum_get(sum_element(m, element_at(slot, 0))), sum_get(sum_element(m, element_at(slot, 1))), \
                           sum_get(sum_element(m, element_at(slot, 2))), sum_get(sum_element(m, element_at(slot, 3))))

#include "warm.glsl"
#include "direct.glsl"

void main()
{
    FLOAT_TYPES;
    const uint group = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z, me = gl_SubgroupInvocationID;
    const uint place = gl_SubgroupID % PLACES, part = gl_SubgroupID / PLACES;
    const uint first_row = (group / p.tiles_x * DOWN + place % DOWN) * ROWS;
    const uint first_block = group % p.tiles_x * ACROSS + place / DOWN * BLOCKS; // of 16 channels
    const uint steps = has(FLAG_PLANAR) ? KERNEL * GROUPS : p.in_blocks / 4 * KERNEL * KERNEL;

    warm_weights(weight_units(steps));
    find_pixels(n, first_row * SIZE);
    [[unroll]] for (uint d = 0; d < AHEAD; d++)
        fetch(n, first_block, d, part + SPLIT * d, steps);

    matrix_sum sum[ROWS * BLOCKS];
    [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
        sum[i] = matrix_splat(0.0);
    const uint out_size = p.out_h * p.out_w, begin = first_row * SIZE + me / 4; // first pixel of this invocation
    if (has(FLAG_LEAN) && part == 0) {
        [[unroll]] for (uint i = 0; i < SLOTS * BLOCKS; i += 2) {
            const uint slot = i / BLOCKS, b = i % BLOCKS, of = slot / 2 * BLOCKS + b;
            const uint quad = min(quad_of(first_block + b), p.out_blocks - 2);
            vec4 low = has(FLAG_BIAS) ? bias[quad] : vec4(0.0), high = has(FLAG_BIAS) ? bias[quad + 1] : vec4(0.0);
            if (has(FLAG_RESIDUAL1)) {
                const uint from = quad_index(p.residual1, n, quad, out_size, begin) / 2 + slot * 16;
                const uvec4 v = begin + slot * 8 < out_size ? residual1_units[from] : uvec4(0);
                low += p.residual1_scale * vec4(halves(v.xy));
                high += p.residual1_scale * vec4(halves(v.zw));
            }
            [[unroll]] for (uint j = 0; j < 4; j++) {
                sum_set(sum_element(sum[of], element_at(slot % 2, j)), low[j]);
                sum_set(sum_element(sum[of + 1], element_at(slot % 2, j)), high[j]);
            }
        }
    }

    for (uint first = part; first < steps + part; first += SPLIT * AHEAD)
        [[unroll]] for (uint d = 0; d < AHEAD; d++) {
            matrix_a a[ROWS];
            matrix_b b[BLOCKS];
            [[unroll]] for (uint i = 0; i < SLOTS; i++) {
                f16vec4 v = halves(inputs[d * SLOTS + i]);
                if (has(FLAG_IN_SCALE))
                    v = TO_QUAD(vec4(v) * scales[d]);
                [[unroll]] for (uint j = 0; j < 4; j++) {
                    const uint low = j & (1u << HALF_BIT) - 1;
                    matrix_set(matrix_a_element(a[i / 2], j - low << 1 | i % 2 << HALF_BIT | low), v[j]);
                }
            }
            [[unroll]] for (uint i = 0; i < BLOCKS; i++)
                HOLD(b[i], factors[d * BLOCKS + i])
            fetch(n, first_block, d, first + SPLIT * (d + AHEAD), steps);
            [[unroll]] for (uint i = 0; i < ROWS * BLOCKS; i++)
                sum[i] = matrix_multiply_add(a[i / BLOCKS], b[i % BLOCKS], sum[i]);
        }

    const uint nothing = WARMS ? warmed_all() & p.chain_wait : 0; // nobody waits for this kernel's rows, so that is 0
    quad_finish finishes[BLOCKS];
    [[unroll]] for (uint b = 0; b < BLOCKS && !has(FLAG_LEAN); b++)
        finishes[b] = quad_finish_of(n, quad_of(first_block + b));
    [[unroll]] for (uint phase = 0; phase < ROWS; phase += PHASE) {
        if (SPLIT > 1) {
            barrier();
            [[unroll]] for (uint i = 0; i < PHASE * BLOCKS * 8; i++)
                sums[gl_SubgroupID * PART + i * SUBGROUP + me] = sum_get(sum_element(sum[phase * BLOCKS + i / 8], i % 8));
            barrier();
        }
        [[unroll]] for (uint i = 0; i < PHASE * 2 * BLOCKS / PER; i++) { // one loop: drivers do not unroll deep nests
            const uint slot = i / (BLOCKS / PER), b = i % (BLOCKS / PER) * PER, of = slot / 2 * BLOCKS + b;
            if (slot % SPLIT != part)
                continue;
            vec4 low, high;
            if (SPLIT > 1) {
                low = added(place, of, slot % 2);
                high = added(place, of + PER - 1, slot % 2);
            } else {
                low = HELD(sum[phase * BLOCKS + of], slot % 2);
                high = HELD(sum[phase * BLOCKS + of + PER - 1], slot % 2);
            }
            const uint quad = quad_of(first_block + b), at = pixels[phase * 2 + slot] + nothing;
            if (has(FLAG_LEAN)) {
                const f16vec4 least = f16vec4(ACTIVATION == ACTIVATION_RELU ? 0.0 : -65504.0), most = f16vec4(65504.0);
                const f16vec4 x = clamp(f16vec4(low), least, most), y = clamp(f16vec4(high), least, most);
                const uvec4 unit = uvec4(packFloat2x16(x.xy), packFloat2x16(x.zw), packFloat2x16(y.xy), packFloat2x16(y.zw));
                if (begin + (phase * 2 + slot) * 8 < out_size && quad < p.out_blocks)
                    y_units[quad_index(p.y, n, quad, out_size, begin + nothing) / 2 + (phase * 2 + slot) * 16] = unit;
            } else if (PER == 2 && in_units()) {
                leave_pair(quad_finish[2](finishes[b], finishes[b + PER - 1]), low, high, n, quad, at);
            } else {
                leave_quad(finishes[b], low, n, quad, at);
                if (PER == 2)
                    leave_quad(finishes[b + 1], high, n, quad + 1, at);
            }
        }
    }
}
