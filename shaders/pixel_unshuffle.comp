// PIXEL_UNSHUFFLE of op.h.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint FACTOR = 2;
layout(constant_id = 1) const uint OUT_CHANNELS = 4;

WRITES(BIND_Y, y);
READS(BIND_X, x);

void main()
{
    const uint to = pixel();
    if (to >= out_size())
        return;
    const uint row = to / p.out_w * FACTOR, column = to % p.out_w * FACTOR;
    vec4 v = vec4(0.0);
    for (uint lane = 0; lane < 4; lane++) {
        const uint made = block() * 4 + lane;
        if (made >= OUT_CHANNELS)
            break;
        const uint channel = made / (FACTOR * FACTOR), sub = made % (FACTOR * FACTOR);
        const uint from = (row + sub / FACTOR) * p.in_w + column + sub % FACTOR;
        v[lane] = vec4(x[quad(p.x, channel / 4, in_size(), from)])[channel % 4];
    }
    y[quad(p.y, block(), out_size(), to)] = TO_QUAD(v);
}
