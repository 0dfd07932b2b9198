// MAX_POOL of op.h.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint KERNEL = 2;
layout(constant_id = 1) const uint STRIDE = 2;
layout(constant_id = 2) const uint PAD = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const ivec2 from = ivec2(uvec2(at % p.out_w, at / p.out_w) * STRIDE) - int(PAD);
    const ivec2 first = max(from, ivec2(0)), end = min(from + int(KERNEL), ivec2(p.in_w, p.in_h));
    vec4 best = vec4(x[quad(p.x, block(), in_size(), first.y * p.in_w + first.x)]);
    for (int row = first.y; row < end.y; row++)
        for (int column = first.x; column < end.x; column++)
            best = max(best, vec4(x[quad(p.x, block(), in_size(), row * p.in_w + column)]));
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(best);
}
