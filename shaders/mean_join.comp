// MEAN of op.h, from the means of parts: a workgroup makes a quad of one image.
#version 450
#include "moments.glsl"

layout(constant_id = 0) const uint BLOCKS = 1;

WRITES(BIND_Y, y);
READS_FLOAT(BIND_X, x);

void main()
{
    const uint quad = gl_WorkGroupID.x + p.first_group, n = gl_WorkGroupID.z;
    vec4 sum = vec4(0.0);
    for (uint i = gl_LocalInvocationID.x; i < parts(); i += PIXEL_GROUP)
        sum += x[(n * BLOCKS + quad) * parts() + i] * float(part_size(i));
    add_up(sum, 1);
    if (gl_LocalInvocationID.x == 0)
        y[quad_index(p.y, n, quad, 1, 0)] = TO_QUAD(partial[0] / float(p.size));
}
