// ADD of op.h.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint ACTIVATION = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS_FLOAT(BIND_SLOPE, slope);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    vec4 v = p.x_scale * vec4(x[quad(p.x, block(), out_size(), at)]) +
             p.residual1_scale * vec4(residual1[quad(p.residual1, block(), out_size(), at)]);
    v = activate(ACTIVATION, v, ACTIVATION == ACTIVATION_PRELU ? slope[block()] : vec4(p.slope));
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v);
}
