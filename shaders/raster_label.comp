// The first of each pixel's largest channels, a byte a pixel, RASTER_ROW pixels an invocation.
#version 450
#include "raster.glsl"

layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer host_buffer { uint host[]; };
READS(BIND_X, x);

uint label(uint px, uint py)
{
    float best = vec4(x[quad_at(0, px, py)]).x;
    uint at = 0;
    for (uint quad = 0; 4 * quad < p.channels; quad++) {
        const vec4 v = vec4(x[quad_at(quad, px, py)]);
        [[unroll]] for (uint lane = 0; lane < 4; lane++) {
            if (4 * quad + lane < p.channels && v[lane] > best) {
                best = v[lane];
                at = 4 * quad + lane;
            }
        }
    }
    return at;
}

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x * RASTER_ROW >= p.width)
        return;
    uint word = 0;
    [[unroll]] for (uint i = 0; i < RASTER_ROW; i++)
        word |= label(p.x + min(at.x * RASTER_ROW + i, p.width - 1), p.y + at.y) << 8 * i;
    host[p.data + at.y * p.stride + at.x] = word;
}
