// A rectangle of a tensor or canvas, and what lies over it, into a picture, RASTER_ROW pixels an invocation.
#version 450
#include "raster.glsl"

layout(constant_id = 0) const uint FORM = RASTER_U8;
layout(constant_id = 1) const uint FROM = 0; // RASTER_FROM_*

layout(std430, set = 0, binding = BIND_Y) restrict writeonly buffer host_buffer { uint host[]; };
READS(BIND_X, x);
layout(std430, set = 0, binding = BIND_CANVAS) restrict readonly buffer canvas_buffer { float canvas[]; };
layout(std430, set = 0, binding = BIND_LAYERS) restrict readonly buffer layers_buffer { uvec4 layers[]; };

vec3 value(uint px, uint py)
{
    if ((FROM & RASTER_FROM_CANVAS) == 0)
        return vec4(x[quad_at(0, px, py)]).xyz;
    const uint at = canvas_at(px, py);
    return vec3(canvas[at], canvas[at + 1], canvas[at + 2]);
}

// What lies over pixel (px, py) of the target.
vec3 lay(vec3 rgb, uint px, uint py)
{
    for (uint i = 0; i < p.layer_count; i++) {
        const uvec4 box = layers[p.layers + 2 * i], at = layers[p.layers + 2 * i + 1];
        if (py < box.y || py >= box.w || px < box.x || px >= box.z)
            continue;
        const vec4 over = uintBitsToFloat(layers[at.x + (py - box.y) * at.y + px - box.x]);
        rgb += uintBitsToFloat(at.z) * (over.rgb - over.a * rgb);
    }
    return rgb;
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
        if ((FROM & RASTER_FROM_LAYERS) != 0)
            rgb = lay(rgb, column, at.y);
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
