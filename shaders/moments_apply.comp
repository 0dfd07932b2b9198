// GROUP_NORM of op.h, with what moments_join.comp made of the moments.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint BLOCKS = 1;
layout(constant_id = 1) const uint ACTIVATION = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS_FLOAT(BIND_WEIGHT, factors);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const uint from = (image() * BLOCKS + block()) * 3;
    const vec4 v = (vec4(x[quad(p.x, block(), out_size(), at)]) - factors[from]) * factors[from + 1] + factors[from + 2];
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(activate(ACTIVATION, v, vec4(0.0)));
}
