// Some pixels of a tensor get values of their own, and 1 in their fourth channel. A place counts the pixels of all images.
#version 450
#include "raster.glsl"

WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer host_buffer { uint host[]; };

void main()
{
    const uint i = gl_GlobalInvocationID.y * (POINTS_GROUPS * RASTER_GROUP) + gl_GlobalInvocationID.x;
    if (i >= p.width)
        return;
    const uint place = host[p.columns + i], size = p.h * p.w, from = p.data + 3 * i;
    const vec3 v = uintBitsToFloat(uvec3(host[from], host[from + 1], host[from + 2]));
    y[quad_index(p.tensor, place / size, 0, size, place % size)] = TO_QUAD(vec4(v, 1.0));
}
