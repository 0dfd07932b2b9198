// The frame of the shaders that make one quad an invocation: x counts pixels, y blocks of channels, z images.
#include "common.glsl"

layout(local_size_x = PIXEL_GROUP) in;
layout(push_constant) uniform push { params_pixel p; };

uint pixel() { return (gl_WorkGroupID.x + p.first_group) * PIXEL_GROUP + gl_LocalInvocationID.x; }
uint block() { return gl_WorkGroupID.y; }
uint image() { return gl_WorkGroupID.z; }

// The index of a quad of the operand; size = height * width of its tensor, at = y * width + x.
uint quad(params_operand o, uint of_block, uint size, uint at) { return o.base + image() * o.stride + of_block * size + at; }
uint out_size() { return p.out_h * p.out_w; }
uint in_size() { return p.in_h * p.in_w; }
