// A window of a picture into a tensor: pixel (x, y) is where the lists of columns and rows say.
#version 450
#include "raster.glsl"

layout(constant_id = 0) const uint FORM = RASTER_U8;

WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_X) restrict readonly buffer host_buffer { uint host[]; };

float read_sample(uint row, uint index)
{
    if (FORM == RASTER_F32)
        return uintBitsToFloat(host[row + index]);
    if (FORM == RASTER_U16)
        return float(host[row + index / 2] >> 16 * (index % 2) & 65535u) / 257.0;
    return float(host[row + index / 4] >> 8 * (index % 4) & 255u);
}

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x >= p.w)
        return;
    const uint row = p.data + host[p.rows + at.y], index = host[p.columns + at.x];
    const vec3 rgb = vec3(read_sample(row, index), read_sample(row, index + 1), read_sample(row, index + 2));
    const vec3 v = ((p.bgr != 0 ? rgb.bgr : rgb) / p.unit - mean()) / p.deviation;
    y[quad_at(0, at.x, at.y)] = TO_QUAD(vec4(v, 0.0));
}
