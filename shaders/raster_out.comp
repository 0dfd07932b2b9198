// A rectangle of a tensor or canvas into a picture, RASTER_ROW pixels an invocation.
#version 450
#include "raster.glsl"

layout(constant_id = 0) const uint FORM = RASTER_U8;
layout(constant_id = 1) const bool FROM_CANVAS = false;

layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer host_buffer { uint host[]; };
READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_CANVAS) restrict readonly buffer canvas_buffer { float canvas[]; };

vec3 value(uint px, uint py)
{
    if (!FROM_CANVAS)
        return vec4(x[quad_at(0, px, py)]).xyz;
    const uint at = canvas_at(px, py);
    return vec3(canvas[at], canvas[at + 1], canvas[at + 2]);
}

void main()
{
    const uvec2 at = gl_GlobalInvocationID.xy;
    if (at.x * RASTER_ROW >= p.width)
        return;
    float samples[3 * RASTER_ROW];
    [[unroll]] for (uint i = 0; i < RASTER_ROW; i++) {
        const uint column = min(at.x * RASTER_ROW + i, p.width - 1); // what is over is for nobody
        const vec3 v = clamp(value(p.x + column, p.y + at.y), vec3(p.low), vec3(p.high));
        vec3 rgb = (v * p.deviation + mean()) * p.unit;
        rgb = p.bgr != 0 ? rgb.bgr : rgb;
        samples[3 * i] = rgb.x;
        samples[3 * i + 1] = rgb.y;
        samples[3 * i + 2] = rgb.z;
    }
    uint to = p.data + at.y * p.stride;
    if (FORM == RASTER_F32) {
        to += at.x * 3 * RASTER_ROW;
        [[unroll]] for (uint i = 0; i < 3 * RASTER_ROW; i++)
            host[to + i] = floatBitsToUint(samples[i]);
        return;
    }
    to += at.x * 3 * RASTER_ROW / 4;
    [[unroll]] for (uint i = 0; i < 3 * RASTER_ROW / 4; i++) {
        const vec4 four = vec4(samples[4 * i], samples[4 * i + 1], samples[4 * i + 2], samples[4 * i + 3]);
        const uvec4 bytes = uvec4(clamp(roundEven(four), vec4(0.0), vec4(255.0)));
        host[to + i] = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
    }
}
