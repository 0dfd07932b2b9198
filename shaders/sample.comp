// SAMPLE of op.h. A quad of x is a group's channels; offsets and weights (their beginnings) lie in quads of channels.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint GROUPS = 1;
layout(constant_id = 1) const uint FACTOR = 2;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_RESIDUAL1, residual1);
READS_FLOAT(BIND_WEIGHT, weight);

float place(uint channel, uint at)
{
    return weight[channel / 4][channel % 4] +
           vec4(residual1[quad(p.residual1, channel / 4, in_size(), at)])[channel % 4];
}

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const uvec2 target = uvec2(at % p.out_w, at / p.out_w), from = target / FACTOR, phase = target % FACTOR;
    const uint source = from.y * p.in_w + from.x, squares = FACTOR * FACTOR;
    const vec2 last = vec2(p.in_w - 1, p.in_h - 1);
    vec4 sum = vec4(0.0);
    for (uint g = 0; g < GROUPS; g++) {
        const uint channel = g * squares + phase.y * FACTOR + phase.x;
        const vec2 place_of = clamp(vec2(from) + vec2(place(channel, source), place(GROUPS * squares + channel, source)),
                                    vec2(0.0), last);
        const uvec2 low = min(uvec2(place_of), uvec2(last)), high = min(low + 1, uvec2(last));
        const vec2 t = place_of - vec2(low);
        const vec4 top = mix(vec4(x[quad(p.x, g, in_size(), low.y * p.in_w + low.x)]),
                             vec4(x[quad(p.x, g, in_size(), low.y * p.in_w + high.x)]), t.x);
        const vec4 bottom = mix(vec4(x[quad(p.x, g, in_size(), high.y * p.in_w + low.x)]),
                                vec4(x[quad(p.x, g, in_size(), high.y * p.in_w + high.x)]), t.x);
        sum += mix(top, bottom, t.y);
    }
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(sum);
}
