// ADD of op.h.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint ACTIVATION = 0;
layout(constant_id = 1) const uint MORE = 0;   // pixels of residual1 beyond each side of the output
layout(constant_id = 2) const uint SINGLE = 0; // 1: residual1 is of one pixel
layout(constant_id = 3) const uint HALF = 0;   // 1: x has half the sides of the output; each of its pixels serves four

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS_FLOAT(BIND_SLOPE, slope);

uint x_quad(uint at)
{
    if (HALF == 0)
        return quad(p.x, block(), out_size(), at);
    const uint row = at / p.out_w, column = at - row * p.out_w;
    return quad(p.x, block(), in_size(), row / 2 * p.in_w + column / 2);
}

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    vec4 v = p.x_scale * vec4(x[x_quad(at)]) +
             p.residual1_scale * vec4(residual1[SINGLE != 0 ? quad(p.residual1, block(), 1, 0)
                                                     : inner_quad(p.residual1, block(), MORE, at)]);
    v = activate(ACTIVATION, v, ACTIVATION == ACTIVATION_PRELU ? slope[block()] : vec4(p.slope));
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v);
}
