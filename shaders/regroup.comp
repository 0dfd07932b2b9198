// Copies a view into one whose segments are padded at other channels, or from fp32 into fp16. map: for each lane of the result its lane in x, or
// none (padding).
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint LANES = 4; // of x
layout(constant_id = 1) const uint WIDE = 0;  // 1: x is fp32, y is fp16

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS_FLOAT(BIND_X, wide);
layout(std430, set = 0, binding = BIND_WEIGHT) readonly buffer map_buffer { uvec4 map[]; };

void main()
{
    const uint at = pixel();
    if (at >= out_size())
        return;
    const uvec4 lane_of = map[block()];
    vec4 v = vec4(0.0);
    for (uint lane = 0; lane < 4; lane++)
        if (lane_of[lane] < LANES) {
            const uint from = quad(p.x, lane_of[lane] / 4, out_size(), at);
            v[lane] = (WIDE != 0 ? wide[from] : vec4(x[from]))[lane_of[lane] % 4];
        }
    y[quad(p.y, block(), out_size(), at)] = TO_QUAD(v);
}
