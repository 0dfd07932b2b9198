// MEAN of op.h: a workgroup adds up a quad of channels of one image. Each invocation adds a few pixels at a time, so that
// no sum grows large beside what is added to it.
#version 450
#include "vector.glsl"

WRITES(BIND_Y, y);
READS(BIND_X, x);
READS(BIND_NOISE, noise);
layout(constant_id = 2) const uint FLAGS = 0;

const uint RUN = 64;

void main()
{
    vec4 sum = vec4(0.0);
    for (uint at = gl_LocalInvocationID.x; at < p.pixels; at += VECTOR_GROUP * RUN) {
        vec4 part = vec4(0.0);
        for (uint i = 0; i < RUN && at + i * VECTOR_GROUP < p.pixels; i++) {
            const uint pixel = at + i * VECTOR_GROUP;
            const vec4 v = vec4(x[quad_index(p.x, image(), block(), p.pixels, pixel)]);
            part += (FLAGS & FLAG_NOISE) == 0 ? v
                                              : v * vec4(noise[quad_index(p.noise, image(), 0, p.pixels, pixel)]).x;
        }
        sum += part;
    }
    sum = reduce(sum);
    if (gl_LocalInvocationID.x == 0)
        y[out_quad()] = TO_QUAD(sum / float(p.pixels));
}
