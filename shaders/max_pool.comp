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
    const ivec2 from = ivec2(uvec2(at % p.out_w, at / p.out_w) * STRIDE) - int(PAD), last = ivec2(p.in_w, p.in_h) - 1;
    vec4 best = vec4(-1.0 / 0.0);
    [[unroll]] for (uint i = 0; i < KERNEL * KERNEL; i++) { // beyond the picture the nearest pixel, which counts anyway
        const ivec2 near = clamp(from + ivec2(i % KERNEL, i / KERNEL), ivec2(0), last);
        best = max(best, vec4(x[quad(p.x, block(), in_size(), near.y * p.in_w + near.x)]));
    }
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(best);
}
