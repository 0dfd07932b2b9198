// The frame of the shaders that make one quad an invocation: x counts the quads of a group of channels, pixel by pixel as
// they lie in memory, y the groups, z images.
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(push_constant) uniform push { params_pixel p; };

uint invocation() { return (gl_WorkGroupID.x + p.first_group) * PIXEL_GROUP + gl_LocalInvocationID.x; }
uint pixel() { return invocation() >> group_log(p.y); }
uint block()
{
    const uint log = group_log(p.y);
    return (gl_WorkGroupID.y << log) + (invocation() & ((1u << log) - 1));
}
uint image() { return gl_WorkGroupID.z; }

// The index of a quad of the operand; size = height * width of its tensor, at = y * width + x.
uint quad(params_operand o, uint of_block, uint size, uint at) { return quad_index(o, image(), of_block, size, at); }
uint out_size() { return p.out_h * p.out_w; }
uint in_size() { return p.in_h * p.in_w; }

// The quad for a pixel of the output in an operand that is larger by `more` pixels on each side.
uint inner_quad(params_operand o, uint of_block, uint more, uint at)
{
    if (more == 0)
        return quad(o, of_block, out_size(), at);
    const uint w = p.out_w + 2 * more, h = p.out_h + 2 * more;
    return quad(o, of_block, w * h, (at / p.out_w + more) * w + at % p.out_w + more);
}
