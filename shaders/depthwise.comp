// DEPTHWISE of op.h. weight: [block][ky][kx] quads.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint KERNEL = 3;
layout(constant_id = 1) const uint STRIDE = 1;
layout(constant_id = 2) const uint PAD = 1;
layout(constant_id = 3) const uint ACTIVATION = 0;
layout(constant_id = 4) const uint FLAGS = 0;

const uint UPSAMPLE = 1;
#include "source.glsl"

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const ivec2 from = ivec2(uvec2(at % p.out_w, at / p.out_w) * STRIDE) - int(PAD);
    vec4 sum = vec4(0.0);
    for (uint ky = 0; ky < KERNEL; ky++) {
        for (uint kx = 0; kx < KERNEL; kx++) {
            const ivec2 tap = ivec2(source(from.x + int(kx), p.in_w), source(from.y + int(ky), p.in_h));
            if (tap.x >= 0 && tap.y >= 0)
                sum += vec4(weight[(block() * KERNEL + ky) * KERNEL + kx]) *
                       vec4(x[quad(p.x, block(), in_size(), tap.y * p.in_w + tap.x)]);
        }
    }
    if (has(FLAG_BIAS))
        sum += bias[block()];
    sum = activate(ACTIVATION, sum, ACTIVATION == ACTIVATION_PRELU ? slope[block()] : vec4(p.slope));
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(sum);
}
