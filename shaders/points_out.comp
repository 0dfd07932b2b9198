// Three channels of some pixels of a tensor. A place counts the pixels of all images.
#version 450
#include "raster.glsl"

layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer host_buffer { float host[]; };
READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_LIST) restrict readonly buffer list_buffer { uint places[]; };

void main()
{
    const uint i = gl_GlobalInvocationID.y * (POINTS_GROUPS * RASTER_GROUP) + gl_GlobalInvocationID.x;
    if (i >= p.width)
        return;
    const uint place = places[i], size = p.h * p.w;
    const vec4 v = vec4(x[quad_index(p.tensor, place / size, 0, size, place % size)]);
    for (uint c = 0; c < 3; c++)
        host[3 * i + c] = v[c];
}
