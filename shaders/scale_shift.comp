// SCALE_SHIFT of op.h.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint MORE = 0;   // pixels of x beyond each side of the output
layout(constant_id = 1) const uint SINGLE = 0; // 1: residual1 is of one pixel

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS(BIND_RESIDUAL2, residual2);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const vec4 v = vec4(x[inner_quad(p.x, block(), MORE, at)]) *
                       vec4(residual1[SINGLE != 0 ? quad(p.residual1, block(), 1, 0)
                                                  : quad(p.residual1, block(), out_size(), at)]) +
                   vec4(residual2[quad(p.residual2, block(), out_size(), at)]);
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v);
}
