// A byte for each pixel, RASTER_ROW pixels an invocation: which of the channels from the first that counts on is the
// largest, the first of equals; or a channel's level (raster_level of raster.h).
#version 450
#include "raster.glsl"

layout(constant_id = 0) const uint FORM = RASTER_LABEL;

layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer host_buffer { uint host[]; };
READS(BIND_X, x);

uint label(uint px, uint py)
{
    float best = vec4(x[quad_at(p.first / 4, px, py)])[p.first % 4];
    uint at = p.first;
    for (uint quad = p.first / 4; 4 * quad < p.channels; quad++) {
        const vec4 v = vec4(x[quad_at(quad, px, py)]);
        [[unroll]] for (uint lane = 0; lane < 4; lane++) {
            if (4 * quad + lane > p.first && 4 * quad + lane < p.channels && v[lane] > best) {
                best = v[lane];
                at = 4 * quad + lane;
            }
        }
    }
    return at - p.first;
}

// What is added before the fraction is cut off is the largest float below a half: a half would take itself to 1.
uint level(uint px, uint py)
{
    const float wide = vec4(x[quad_at(p.first / 4, px, py)])[p.first % 4] * 16.0, at = clamp(wide, -128.0, 127.0);
    return uint(128 + int(at + (at < 0.0 ? -1.0 : 1.0) * uintBitsToFloat(0x3effffffu)));
}

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x * RASTER_ROW >= p.width)
        return;
    uint word = 0;
    [[unroll]] for (uint i = 0; i < RASTER_ROW; i++) {
        const uint px = p.x + min(at.x * RASTER_ROW + i, p.width - 1), py = p.y + at.y;
        word |= (FORM == RASTER_LEVEL ? level(px, py) : label(px, py)) << 8 * i;
    }
    host[p.data + at.y * p.stride + at.x] = word;
}
