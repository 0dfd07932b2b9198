// Looks at all values of an image: whether each is finite, and whether any is another than the first. map: for each lane
// of the tensor its channel, or none (padding).
#version 450
#include "raster.glsl"

READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_SLOPE) buffer found_buffer { uint found[]; };
layout(std430, set = 0, binding = BIND_WEIGHT) restrict readonly buffer map_buffer { uvec4 map[]; };

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x >= p.w)
        return;
    const float first = vec4(x[quad_at(0, 0, 0)]).x;
    uint bits = 0;
    for (uint quad = 0; quad < p.width; quad++) { // quads of a pixel
        const vec4 v = vec4(x[quad_at(quad, at.x, at.y)]);
        const bvec4 real = lessThan(map[quad], uvec4(p.channels));
        const bvec4 wild = equal(floatBitsToUint(v) & 0x7f800000u, uvec4(0x7f800000u));
        [[unroll]] for (uint lane = 0; lane < 4; lane++)
            if (real[lane])
                bits |= (wild[lane] ? CHECK_NOT_FINITE : 0) | (v[lane] != first ? CHECK_VARIES : 0);
    }
    if ((bits & ~found[p.data]) != 0) // what all say needs saying once
        atomicOr(found[p.data], bits);
}
