// MEAN of op.h: a workgroup adds up a quad of channels of one image. Each invocation adds a few pixels at a time, so that
// no sum grows large beside what is added to it.
#version 450
#include "vector.glsl"

WRITES(BIND_Y, y);
READS(BIND_X, x);

const uint RUN = 64;

void main()
{
    vec4 sum = vec4(0.0);
    for (uint at = gl_LocalInvocationID.x; at < p.pixels; at += VECTOR_GROUP * RUN) {
        vec4 part = vec4(0.0);
        for (uint i = 0; i < RUN && at + i * VECTOR_GROUP < p.pixels; i++)
            part += vec4(x[quad_index(p.x, image(), block(), p.pixels, at + i * VECTOR_GROUP)]);
        sum += part;
    }
    sum = reduce(sum);
    if (gl_LocalInvocationID.x == 0)
        y[out_quad()] = TO_QUAD(sum / float(p.pixels));
}
