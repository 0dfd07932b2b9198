// NOISE of op.h. An invocation makes one quad of pixels. Logarithm, sine and cosine are computed here, because the
// built-in ones may be too coarse (Vulkan allows an error of 2^-11), and so that every device makes the same picture.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint LAYER = 0;

WRITES(BIND_Y, y);
layout(std430, set = 0, binding = BIND_X) readonly buffer run_buffer { params_run run; };

// Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
uvec4 philox(uvec4 counter, uvec2 key)
{
    for (int i = 0; i < 10; i++) {
        uint high0, low0, high1, low1;
        umulExtended(0xD2511F53u, counter.x, high0, low0);
        umulExtended(0xCD9E8D57u, counter.z, high1, low1);
        counter = uvec4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key += uvec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return counter;
}

// -ln((u + 1) / 2^32): ln(2^k (1 + f)) = k ln 2 + 2 artanh(f / (2 + f)), f within [sqrt(1/2) - 1, sqrt(2) - 1]. Close to
// 1, f comes from the integer, as u + 1 itself has more digits than a float.
float minus_log(uint u)
{
    float f, k = 0.0;
    if (u >= 0xB504F333u) { // sqrt(1/2) * 2^32
        f = -float(~u) / 4294967296.0;
    } else {
        int exponent = findMSB(u + 1);
        f = ldexp(float(u + 1), -exponent); // 1 to 2
        if (f > 1.41421356) {
            f *= 0.5;
            exponent++;
        }
        f -= 1.0;
        k = float(exponent - 32);
    }
    const float s = f / (2.0 + f), z = s * s;
    const float series = 1.0 + z * (1.0 / 3.0 + z * (1.0 / 5.0 + z * (1.0 / 7.0 + z * (1.0 / 9.0))));
    return -(k * 0.693147181 + 2.0 * s * series);
}

// (cos, sin) of 2 pi u / 2^32: the nearest quarter turn, and Taylor's series within an eighth of it.
vec2 turn(uint u)
{
    const uint quarter = (u + 0x20000000u) >> 30;
    const float a = float(int(u - (quarter << 30))) * (6.28318531 / 4294967296.0), z = a * a;
    const float s = a * (1.0 - z * (1.0 / 6.0 - z * (1.0 / 120.0 - z * (1.0 / 5040.0 - z / 362880.0))));
    const float c = 1.0 - z * (0.5 - z * (1.0 / 24.0 - z * (1.0 / 720.0 - z * (1.0 / 40320.0 - z / 3628800.0))));
    const vec2 v = (quarter & 1) == 0 ? vec2(c, s) : vec2(-s, c);
    return (quarter & 2) == 0 ? v : -v;
}

void main()
{
    const uint at = pixel() * 4;
    if (at >= out_size())
        return;
    const uvec4 u = philox(uvec4(pixel(), LAYER, run.first_image + image(), 0), uvec2(run.seed_low, run.seed_high));
    const vec4 values = vec4(sqrt(2.0 * minus_log(u.x)) * turn(u.y), sqrt(2.0 * minus_log(u.z)) * turn(u.w));
    for (uint i = 0; i < 4 && at + i < out_size(); i++)
        y[quad(p.y, 0, out_size(), at + i)] = TO_QUAD(vec4(values[i], 0.0, 0.0, 0.0));
}
