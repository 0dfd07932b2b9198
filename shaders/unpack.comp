// A tensor's blocks out to the host as float32 NCHW. map: as in pack.comp.
#version 450
#include "pixel.glsl"

layout(std430, set = 0, binding = BIND_Y) writeonly buffer host_buffer { float host[]; };
READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_WEIGHT) readonly buffer map_buffer { uvec4 map[]; };

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const uvec4 channel = map[block()];
    const vec4 v = vec4(x[quad(p.x, block(), out_size(), at)]);
    for (uint lane = 0; lane < 4; lane++)
        if (channel[lane] < p.channels)
            host[(image() * p.channels + channel[lane]) * out_size() + at] = v[lane];
}
