// The frame of the shaders that take the moments of parts of a picture and join them: a quad's mean in each part, and the
// sum of squares around it, lie side by side, [image][quad][part][2]; of MEAN, which wants no squares, [1].
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(push_constant) uniform push { params_tokens p; };

uint parts() { return (p.size + p.chunk - 1) / p.chunk; }

// How many pixels the part has.
uint part_size(uint part) { return min(p.chunk, p.size - part * p.chunk); }

shared vec4 partial[PIXEL_GROUP];

// The total of the sums of all invocations whose numbers have the same remainder by `width`, a power of 2, in invocations
// 0 .. width-1 of partial, always added in the same order.
void add_up(vec4 sum, uint width)
{
    const uint me = gl_LocalInvocationID.x;
    barrier();
    partial[me] = sum;
    barrier();
    [[unroll]] for (uint half_count = PIXEL_GROUP / 2; half_count > 0; half_count /= 2) {
        if (me < half_count && half_count >= width)
            partial[me] += partial[me + half_count];
        barrier();
    }
}
