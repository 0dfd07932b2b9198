// A part of a param, as the checkpoint has it, into its packing: the layouts of enum vk_pack_kind (vk_pack.h). The bits
// come out as on the host: to fp16 to the nearest, ties to even, and what is beyond its range as its largest number.
#version 450
#include "params.h"

layout(local_size_x = PIXEL_GROUP) in;
layout(constant_id = 0) const uint KIND = 0;   // UPLOAD_…
layout(constant_id = 1) const uint SOURCE = 0; // UPLOAD_F32 …
layout(push_constant) uniform push { params_upload p; };

#if FP16
#define QUAD uvec2
#else
#define QUAD uvec4
#endif
layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer y_buffer { QUAD y[]; };
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer words_buffer { uint words[]; };

// The bits of an fp16 number as fp32.
uint from_half(uint bits)
{
    const uint sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ffu;
    if (exponent == 0) // zero and subnormal
        return sign | floatBitsToUint(float(fraction) * 5.9604644775390625e-8);
    return sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
}

// The bits of an element as fp32.
uint element(uint i)
{
    if (SOURCE == UPLOAD_F32)
        return words[p.values + i];
    const uint bits = words[p.values + i / 2] >> (16 * (i & 1)) & 0xffffu;
    return SOURCE == UPLOAD_BF16 ? bits << 16 : from_half(bits);
}

uint to_half(uint bits)
{
    const uint sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size >= 0x477fe000u) // 65504, infinity, NaN
        return sign | 0x7bffu;
    if (size < 0x38800000u) // subnormal: in steps of 2^-24
        return sign | uint(roundEven(uintBitsToFloat(size) * 16777216.0));
    return sign | (size - (112u << 23) + 0xfffu + (size >> 13 & 1)) >> 13;
}

// The value in a lane, both counted in the part; 0 in padding.
uint value(uint in_lane, uint tap, uint out_lane)
{
    const bool matrix = KIND != UPLOAD_PLAIN;
    const uint channel = matrix ? words[p.in_lanes + in_lane] : 0, row = words[p.out_lanes + out_lane];
    if (channel == UPLOAD_NO_CHANNEL || row == UPLOAD_NO_CHANNEL)
        return 0;
    const uint bits = element(row * p.row + channel * p.taps + tap);
    return p.scales == 0 ? bits : floatBitsToUint(uintBitsToFloat(bits) * uintBitsToFloat(words[p.scales + row]));
}

// How F(4x4, 3x3) transforms a kernel's rows and columns: see winograd.comp.
const vec3 winograd[6] = {vec3(1, 0, 0) / 4,  vec3(-1, -1, -1) / 6, vec3(-1, 1, -1) / 6,
                          vec3(1, 2, 4) / 24, vec3(1, -2, 4) / 24,  vec3(0, 0, 1)};

// The same for F(2x2, 3x3): see winograd_packed.comp.
const vec3 winograd_packed[4] = {vec3(1, 0, 0), vec3(1, 1, 1) / 2, vec3(1, -1, 1) / 2, vec3(0, 0, 1)};

// A 3x3 kernel's number at a position.
uint transformed(vec3 down, vec3 across, uint in_lane, uint out_lane)
{
    float sum = 0.0;
    for (uint tap = 0; tap < 9; tap++)
        sum += down[tap / 3] * across[tap % 3] * uintBitsToFloat(value(in_lane, tap, out_lane));
    return floatBitsToUint(sum);
}

// Number `number`, in the device's order, of matrix `of`: [out group][in matrix][kx][ky][out matrix of the group]
uint matrix_value(uint of, uint number)
{
    const uint at = words[p.order + number], taps = of >> p.group_log;
    const uint out_matrix = (taps / p.taps / p.in_blocks << p.group_log) + (of & ((1u << p.group_log) - 1));
    return value(taps / p.taps % p.in_blocks * 16 + at / 16, taps % p.kernel * p.kernel + taps / p.kernel % p.kernel,
                 out_matrix * 16 + at % 16);
}

#if !FP16
// One of the two numbers in fp16 that a weight is made of: `left` is what the other one leaves. Both are no number where
// the weight is beyond what they can tell.
uint split_value(uint of, uint number, bool left)
{
    const float v = uintBitsToFloat(matrix_value(of, number)) * SPLIT_WEIGHT;
    if (!(abs(v) < 65504.0))
        return 0x7e00u;
    const uint first = to_half(floatBitsToUint(v));
    return left ? to_half(floatBitsToUint(v - uintBitsToFloat(from_half(first)))) : first;
}
#endif

// Lane `lane` of quad i of the part.
uint lane_value(uint i, uint lane)
{
    if (KIND == UPLOAD_CONV) { // [16 out lanes][in block][tap][in lane][quad][out lane]
        const uint blocks = i / (16 * p.taps);
        return value(blocks % p.in_blocks * 4 + i / 4 % 4, i / 16 % p.taps, blocks / p.in_blocks * 16 + i % 4 * 4 + lane);
    }
#if FP16
    if (KIND == UPLOAD_WINOGRAD) { // [16 out lanes][in block][position][quad][in lane][out lane]
        const uint position = i / 16 % WINOGRAD_PACKED_POSITIONS, blocks = i / (16 * WINOGRAD_PACKED_POSITIONS);
        return transformed(winograd_packed[position / 4], winograd_packed[position % 4], blocks % p.in_blocks * 4 + i % 4,
                           blocks / p.in_blocks * 16 + i / 4 % 4 * 4 + lane);
    }
#else
    if (KIND == UPLOAD_WINOGRAD) { // [16 out lanes][in lane][position][quad][out lane]
        const uint position = i / 4 % WINOGRAD_POSITIONS, lanes = i / (4 * WINOGRAD_POSITIONS);
        return transformed(winograd[position / 6], winograd[position % 6], lanes % (p.in_blocks * 4),
                           lanes / (p.in_blocks * 4) * 16 + i % 4 * 4 + lane);
    }
#endif
    if (KIND == UPLOAD_LINEAR) { // [out block][in block][tap][in lane][out lane]
        const uint blocks = i / (4 * p.taps);
        return value(blocks % p.in_blocks * 4 + i % 4, i / 4 % p.taps, blocks / p.in_blocks * 4 + lane);
    }
    if (KIND == UPLOAD_MATRIX)
        return matrix_value(i / 64, i % 64 * 4 + lane);
    // [out group][tap][quad of the group][out lane]
    const uint quad = i >> p.group_log, mask = (1u << p.group_log) - 1;
    return value(0, quad % p.taps, ((quad / p.taps << p.group_log) + (i & mask)) * 4 + lane);
}

void main()
{
    const uint i = (gl_WorkGroupID.x + p.first_group) * PIXEL_GROUP + gl_LocalInvocationID.x;
    if (i >= p.quads)
        return;
    uint v[4];
#if !FP16
    if (KIND == UPLOAD_MATRIX) { // of each matrix the first numbers of all weights, then the others
        for (uint word = 0; word < 4; word++) {
            const uint number = i % 32 * 8 + word * 2;
            const bool left = i / 32 % 2 != 0;
            v[word] = split_value(i / 64, number, left) | split_value(i / 64, number + 1, left) << 16;
        }
        y[p.y + i] = uvec4(v[0], v[1], v[2], v[3]);
        return;
    }
#endif
    for (uint lane = 0; lane < 4; lane++)
        v[lane] = lane_value(i, lane);
#if FP16
    y[p.y + i] = uvec2(to_half(v[0]) | to_half(v[1]) << 16, to_half(v[2]) | to_half(v[3]) << 16);
#else
    y[p.y + i] = uvec4(v[0], v[1], v[2], v[3]);
#endif
}
