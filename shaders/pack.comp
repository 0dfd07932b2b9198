// Float32 NCHW from the host into a tensor's blocks. map: for each lane of the tensor its channel, or none (padding).
#version 450
#include "pixel.glsl"

WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_X) readonly buffer host_buffer { float host[]; };
layout(std430, set = 0, binding = BIND_WEIGHT) readonly buffer map_buffer { uvec4 map[]; };

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const uvec4 channel = map[block()];
    vec4 v = vec4(0.0);
    for (uint lane = 0; lane < 4; lane++)
        if (channel[lane] < p.channels)
            v[lane] = host[(image() * p.channels + channel[lane]) * out_size() + at];
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v);
}
