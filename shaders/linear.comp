// LINEAR of op.h.
#version 450
#include "vector.glsl"

layout(constant_id = 2) const uint ACTIVATION = 0;
layout(constant_id = 3) const uint FLAGS = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_WEIGHT, weight);
READS_FLOAT(BIND_BIAS, bias);
READS_FLOAT(BIND_SLOPE, slope);

void main()
{
    vec4 sum = vec4(0.0);
    for (uint i = gl_LocalInvocationID.x; i < IN_QUADS; i += VECTOR_GROUP) {
        vec4 v = vec4(x[in_quad(i)]);
        uint w = (block() * IN_QUADS + i) * 4;
        sum += vec4(weight[w]) * v.x + vec4(weight[w + 1]) * v.y + vec4(weight[w + 2]) * v.z + vec4(weight[w + 3]) * v.w;
    }
    sum = reduce(sum);
    if (gl_LocalInvocationID.x != 0)
        return;
    if ((FLAGS & FLAG_BIAS) != 0)
        sum += bias[block()];
    sum = activate(ACTIVATION, sum, ACTIVATION == ACTIVATION_PRELU ? slope[block()] : vec4(p.slope));
    y[out_quad()] = TO_QUAD(sum);
}
