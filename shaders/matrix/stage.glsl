// The way of a chunk of input channels to shared memory, for conv2d.comp: the pixels of the tile with its border, read
// where the padded, upsampled input has them, multiplied by in_scale; in fp32 as two numbers in fp16 each, of which the
// second is what the first leaves.

#include "source.glsl"

// Each invocation copies the same unit of 8 channels of every PIXELS-th pixel: where those pixels lie from the first one
// of the channels' group, in units, or in quads where groups are of one.
uint offsets[COPIES];

void find_pixels(uvec2 origin)
{
    const uint log = has(FLAG_PLANAR) ? 0 : group_log(p.x) - FP16;
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex / UNITS + i * PIXELS;
        const int row = source(int(origin.y * STRIDE + at / TILE_W * JUMP) - int(PAD), p.in_h);
        const int column = source(int(origin.x * STRIDE + at % TILE_W * JUMP) - int(PAD), p.in_w);
        offsets[i] = row < 0 || column < 0 ? OUTSIDE : uint(row) * p.in_w + uint(column) << log;
    }
}

#if FP16
uvec4 units[COPIES]; // on their way from global to shared memory

void load_chunk(uint n, uint step)
{
    const uint quad = step * 4 + gl_LocalInvocationIndex % UNITS * 2, size = p.in_h * p.in_w;
    const uint from = quad_index(p.x, n, quad, size, 0);
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        units[i] = uvec4(0);
        if (!has(FLAG_PLANAR)) {
            if (offsets[i] != OUTSIDE && quad < p.in_blocks)
                units[i] = x[from / 2 + offsets[i]];
        } else if (offsets[i] != OUTSIDE && quad < p.in_blocks) {
            units[i].xy = x_quads[from + offsets[i]];
            if (quad + 1 < p.in_blocks)
                units[i].zw = x_quads[from + size + offsets[i]];
        }
    }
}

f16vec4 halves(uvec2 v) { return f16vec4(unpackFloat2x16(v.x), unpackFloat2x16(v.y)); }

void store_chunk(uint n, uint step)
{
    const uint unit = gl_LocalInvocationIndex % UNITS, quad = step * 4 + unit * 2;
    vec4 low_scale = vec4(1.0), high_scale = vec4(1.0);
    if (has(FLAG_IN_SCALE) && quad < p.in_blocks) {
        low_scale = vec4(in_scale[quad_index(p.in_scale, n, quad, 1, 0)]);
        if (quad + 1 < p.in_blocks)
            high_scale = vec4(in_scale[quad_index(p.in_scale, n, quad + 1, 1, 0)]);
    }
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex / UNITS + i * PIXELS;
        uvec4 v = units[i];
        if (has(FLAG_IN_SCALE)) {
            const f16vec4 low = TO_QUAD(vec4(halves(v.xy)) * low_scale), high = TO_QUAD(vec4(halves(v.zw)) * high_scale);
            v = uvec4(packFloat2x16(low.xy), packFloat2x16(low.zw), packFloat2x16(high.xy), packFloat2x16(high.zw));
        }
        if (at < TILE_W * TILE_H)
            tile[at * PITCH + unit] = v;
    }
}
#else
vec4 low_quads[COPIES], high_quads[COPIES]; // the quads of each unit, on their way from global to shared memory

void load_chunk(uint n, uint step)
{
    const uint quad = step * 4 + gl_LocalInvocationIndex % UNITS * 2, size = p.in_h * p.in_w;
    const uint from = quad_index(p.x, n, quad, size, 0), next = has(FLAG_PLANAR) ? size : 1;
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const bool inside = offsets[i] != OUTSIDE;
        low_quads[i] = inside && quad < p.in_blocks ? x[from + offsets[i]] : vec4(0.0);
        high_quads[i] = inside && quad + 1 < p.in_blocks ? x[from + next + offsets[i]] : vec4(0.0);
    }
}

// The first numbers in xy, what they leave in zw. Bits are cut off for the first ones, since a compiler may hold a number
// to be the same after a way to fp16 and back. Beyond fp16's range there is no second one, so that no sum is finite.
uvec4 split(vec4 v)
{
    v *= SPLIT_INPUT;
    const vec4 first = uintBitsToFloat(floatBitsToUint(v) & uvec4(0xffffe000u));
    const vec4 rest = mix(v - first, vec4(uintBitsToFloat(0x7fc00000u)), greaterThan(abs(v), vec4(65504.0)));
    return uvec4(packHalf2x16(first.xy), packHalf2x16(first.zw), packHalf2x16(rest.xy), packHalf2x16(rest.zw));
}

void store_chunk(uint n, uint step)
{
    const uint unit = gl_LocalInvocationIndex % UNITS, quad = step * 4 + unit * 2;
    vec4 low_scale = vec4(1.0), high_scale = vec4(1.0);
    if (has(FLAG_IN_SCALE) && quad < p.in_blocks) {
        low_scale = in_scale[quad_index(p.in_scale, n, quad, 1, 0)];
        if (quad + 1 < p.in_blocks)
            high_scale = in_scale[quad_index(p.in_scale, n, quad + 1, 1, 0)];
    }
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex / UNITS + i * PIXELS;
        const uvec4 a = split(low_quads[i] * low_scale), b = split(high_quads[i] * high_scale);
        if (at < TILE_W * TILE_H) {
            tile[at * PITCH + unit] = uvec4(a.xy, b.xy);
            tile[at * PITCH + UNITS + unit] = uvec4(a.zw, b.zw);
        }
    }
}
#endif
