// RESIZE of op.h. Source coordinates are exact fractions of integers.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint FLAGS = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);

vec4 at(uint row, uint column) { return vec4(x[quad(p.x, block(), in_size(), row * p.in_w + column)]); }

// (i + 0.5) * from / to - 0.5, at least 0, as its floor and its fraction. Halving, a network's own, needs no division.
uint bilinear(uint i, uint from, uint to, out float fraction)
{
    if ((FLAGS & FLAG_HALVES) != 0) {
        fraction = 0.5;
        return 2 * i;
    }
    const uint numerator = max((2 * i + 1) * from, to) - to;
    fraction = float(numerator % (2 * to)) / float(2 * to);
    return numerator / (2 * to);
}

// Doubling: the four pixels that an input pixel is nearest to, from it and those around it.
void double_pixel(uint from)
{
    const uint row = from / p.in_w, column = from - row * p.in_w;
    const uint left = max(column, 1) - 1, right = min(column + 1, p.in_w - 1);
    vec4 near_left[3], near_right[3];
    [[unroll]] for (uint i = 0; i < 3; i++) {
        const uint y0 = min(max(row + i, 1) - 1, p.in_h - 1);
        const vec4 v = at(y0, column);
        near_left[i] = 0.25 * at(y0, left) + 0.75 * v;
        near_right[i] = 0.75 * v + 0.25 * at(y0, right);
    }
    [[unroll]] for (uint i = 0; i < 2; i++) {
        const uint to = (2 * row + i) * p.out_w + 2 * column;
        const vec2 weight = vec2(i == 0 ? 0.25 : 0.75, i == 0 ? 0.75 : 0.25);
        y[quad(p.y, block(), out_size(), to)] = TO_QUAD(weight.x * near_left[i] + weight.y * near_left[i + 1]);
        y[quad(p.y, block(), out_size(), to + 1)] = TO_QUAD(weight.x * near_right[i] + weight.y * near_right[i + 1]);
    }
}

void main()
{
    const uint to = pixel();
    if ((FLAGS & FLAG_DOUBLES) != 0) {
        if (to < in_size())
            double_pixel(to);
        return;
    }
    if (to >= out_size())
        return;
    const uint row = to / p.out_w, column = to % p.out_w;
    vec4 v;
    if ((FLAGS & FLAG_BILINEAR) != 0) {
        float fy, fx;
        const uint y0 = bilinear(row, p.in_h, p.out_h, fy), x0 = bilinear(column, p.in_w, p.out_w, fx);
        const uint y1 = min(y0 + 1, p.in_h - 1), x1 = min(x0 + 1, p.in_w - 1);
        v = (at(y0, x0) * (1 - fx) + at(y0, x1) * fx) * (1 - fy) + (at(y1, x0) * (1 - fx) + at(y1, x1) * fx) * fy;
    } else {
        v = at(row * p.in_h / p.out_h, column * p.in_w / p.out_w);
    }
    y[quad(p.y, block(), out_size(), to)] = TO_QUAD(v);
}
