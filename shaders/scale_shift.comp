// SCALE_SHIFT of op.h.
#version 450
#include "pixel.glsl"

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const vec4 v = vec4(x[quad(p.x, block(), out_size(), at)]) *
                       vec4(residual1[quad(p.residual1, block(), out_size(), at)]) +
                   vec4(residual2[quad(p.residual2, block(), out_size(), at)]);
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v);
}
