// A picture of 8 bit into a tensor that is smaller: each pixel is the mean of those that it touches.
#version 450
#include "raster.glsl"

WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer host_buffer { uint host[]; };

uint read_byte(uint row, uint index) { return host[row + index / 4] >> 8 * (index % 4) & 255u; }

// Of `length` pixels that become `count`: the first that pixel i of these touches, and the first behind it.
uvec2 touched(uint i, uint length, uint count) { return uvec2(i * length / count, ((i + 1) * length + count - 1) / count); }

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x >= p.w)
        return;
    const uvec2 across = touched(at.x, p.width, p.w), down = touched(at.y, p.height, p.h);
    uvec3 sum = uvec3(0);
    for (uint py = down.x; py < down.y; py++) {
        const uint row = p.data + py * p.stride;
        for (uint i = 3 * across.x; i < 3 * across.y; i += 3)
            sum += uvec3(read_byte(row, i), read_byte(row, i + 1), read_byte(row, i + 2));
    }
    const vec3 rgb = vec3(sum) / float((across.y - across.x) * (down.y - down.x));
    const vec3 v = ((p.bgr != 0 ? rgb.bgr : rgb) / p.unit - mean()) / p.deviation;
    y[quad_at(0, at.x, at.y)] = TO_QUAD(vec4(v, 0.0));
}
