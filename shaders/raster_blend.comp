// Adds a tensor's image to a canvas, each pixel as often as the weights of its column and row say.
#version 450
#include "raster.glsl"

READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_CANVAS) restrict buffer canvas_buffer { float canvas[]; };
layout(std430, set = 0, binding = BIND_LIST) restrict readonly buffer weight_buffer { float weights[]; };

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x >= p.w || p.x + at.x >= p.canvas_width)
        return;
    const float weight = weights[p.columns + at.x] * weights[p.rows + at.y];
    if (weight == 0.0)
        return;
    const vec3 v = weight * vec4(x[quad_at(0, at.x, at.y)]).xyz;
    const uint to = canvas_at(p.x + at.x, p.y + at.y);
    canvas[to] += v.x;
    canvas[to + 1] += v.y;
    canvas[to + 2] += v.z;
}
