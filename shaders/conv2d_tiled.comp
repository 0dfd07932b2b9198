// CONV2D of op.h for GPUs: include/tiled.glsl, in fp32 arithmetic.
#version 450
#define PACKED 0
#include "tiled.glsl"
