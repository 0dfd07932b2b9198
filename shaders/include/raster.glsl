// The frame of the shaders between tensors and pictures, which have 3 channels in one quad: x and y count pixels.
#include "common.glsl"

layout(local_size_x = RASTER_GROUP) in;
layout(push_constant) uniform push { params_raster p; };

vec3 mean() { return vec3(p.mean0, p.mean1, p.mean2); }

// The index of a quad of the tensor's pixel (x, y).
uint quad_at(uint quad, uint x, uint y) { return quad_index(p.tensor, p.image, quad, p.h * p.w, y * p.w + x); }

// The index of the first sum of a canvas's pixel.
uint canvas_at(uint x, uint y) { return 3 * (y % p.canvas_rows * p.canvas_width + x); }
