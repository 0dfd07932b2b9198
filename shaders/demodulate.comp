// DEMODULATE of op.h. The weights are sums of squares, small enough to leave fp16's normal range: stored as fp32.
#version 450
#include "vector.glsl"

layout(constant_id = 2) const uint OUT_CHANNELS = 4;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS_FLOAT(BIND_WEIGHT, weight);

void main()
{
    vec4 sum = vec4(0.0);
    for (uint i = gl_LocalInvocationID.x; i < IN_QUADS; i += VECTOR_GROUP) {
        vec4 v = vec4(x[in_quad(i)]);
        uint w = (block() * IN_QUADS + i) * 4;
        v *= v;
        sum += weight[w] * v.x + weight[w + 1] * v.y + weight[w + 2] * v.z + weight[w + 3] * v.w;
    }
    sum = reduce(sum);
    if (gl_LocalInvocationID.x == 0)
        y[out_quad()] = TO_QUAD(lane_mask(block(), OUT_CHANNELS) / sqrt(sum + p.epsilon));
}
