// CONV2D of op.h for GPUs that have packed fp16 arithmetic: include/tiled.glsl.
#version 450
#define PACKED 1
#include "tiled.glsl"
