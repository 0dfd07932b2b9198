// GATE of op.h; x_scale is the offset.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint FLAGS = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    vec4 v = vec4(x[quad(p.x, block(), out_size(), at)]);
    if ((FLAGS & FLAG_RESIDUAL1) != 0)
        v += vec4(residual1[quad(p.residual1, block(), out_size(), at)]);
    const vec4 gate = vec4(residual2[quad(p.residual2, block(), out_size(), at)]);
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v * (sigmoid(gate) + p.x_scale));
}
