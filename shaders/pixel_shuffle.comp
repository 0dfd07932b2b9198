// PIXEL_SHUFFLE of op.h.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint FACTOR = 2;
layout(constant_id = 1) const uint OUT_CHANNELS = 4;
layout(constant_id = 2) const uint FLAGS = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);

void main()
{
    const uint to = pixel();
    if (to >= out_size())
        return;
    const uint row = to / p.out_w, column = to % p.out_w;
    const uint from = row / FACTOR * p.in_w + column / FACTOR;
    vec4 v = vec4(0.0);
    for (uint lane = 0; lane < 4; lane++) {
        uint channel = block() * 4 + lane;
        if (channel >= OUT_CHANNELS)
            break;
        channel = channel * FACTOR * FACTOR + row % FACTOR * FACTOR + column % FACTOR;
        v[lane] = vec4(x[quad(p.x, channel / 4, in_size(), from)])[channel % 4];
    }
    if ((FLAGS & FLAG_RESIDUAL1) != 0)
        v += vec4(residual1[quad(p.residual1, block(), in_size(), from)]);
    y[quad(p.y, block(), out_size(), to)] = TO_QUAD(v);
}
