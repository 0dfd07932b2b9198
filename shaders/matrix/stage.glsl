// The way of a chunk of input channels to shared memory, for conv2d.comp: the pixels of the tile with its border, read
// where the padded, upsampled input has them, multiplied by in_scale.

#include "source.glsl"

// Each invocation copies the same unit of 8 channels of every PIXELS-th pixel: where those pixels lie from the first one
// of the channels' group, in units, or in quads where groups are of one.
uint offsets[COPIES];

void find_pixels(uvec2 origin)
{
    const uint log = has(FLAG_PLANAR) ? 0 : group_log(p.x) - 1;
    [[unroll]] for (uint i = 0; i < COPIES; i++) {
        const uint at = gl_LocalInvocationIndex / UNITS + i * PIXELS;
        const int row = source(int(origin.y * STRIDE + at / TILE_W * JUMP) - int(PAD), p.in_h);
        const int column = source(int(origin.x * STRIDE + at % TILE_W * JUMP) - int(PAD), p.in_w);
        offsets[i] = row < 0 || column < 0 ? OUTSIDE : uint(row) * p.in_w + uint(column) << log;
    }
}

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
