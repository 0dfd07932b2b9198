// The frame of linear and demodulate: a workgroup makes one block of 4 outputs of one image; its invocations divide the
// inputs among them and add their sums up in shared memory, always in the same order.
// weight: [out block][quad of inputs][in lane] quads of 4 outputs.
#include "common.glsl"

layout(local_size_x = VECTOR_GROUP) in;
layout(constant_id = 0) const uint IN_BLOCKS = 1; // quads of channels
layout(constant_id = 1) const uint TAPS = 1;      // pixels of the input
const uint IN_QUADS = IN_BLOCKS * TAPS;
layout(push_constant) uniform push { params_vector p; };

shared vec4 partial[VECTOR_GROUP];

uint block() { return gl_WorkGroupID.x + p.first_group; }
uint image() { return gl_WorkGroupID.z; }

// The index of input quad i, in the order of the weights.
uint in_quad(uint i) { return quad_index(p.x, image(), i / TAPS, TAPS, i % TAPS); }
uint out_quad() { return quad_index(p.y, image(), block(), 1, 0); }

// The total of every invocation's sum, in invocation 0.
vec4 reduce(vec4 sum)
{
    const uint me = gl_LocalInvocationID.x;
    partial[me] = sum;
    barrier();
    [[unroll]] for (uint half_count = VECTOR_GROUP / 2; half_count > 0; half_count /= 2) {
        if (me < half_count)
            partial[me] += partial[me + half_count];
        barrier();
    }
    return partial[0];
}
