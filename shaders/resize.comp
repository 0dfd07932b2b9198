// RESIZE of op.h. Source coordinates are exact fractions of integers.
#version 450
#include "pixel.glsl"

layout(constant_id = 0) const uint FLAGS = 0;

WRITES(BIND_Y, y);
READS(BIND_X, x);

vec4 at(uint row, uint column) { return vec4(x[quad(p.x, block(), in_size(), row * p.in_w + column)]); }

// (i + 0.5) * from / to - 0.5, at least 0, as its floor and its fraction. Doubling and halving, the networks' own, need
// no division.
uint bilinear(uint i, uint from, uint to, out float fraction)
{
    if ((FLAGS & FLAG_HALVES) != 0) {
        fraction = 0.5;
        return 2 * i;
    }
    if ((FLAGS & FLAG_DOUBLES) != 0) {
        const uint quarters = max(2 * i, 1) - 1;
        fraction = float(quarters & 3) / 4;
        return quarters >> 2;
    }
    const uint numerator = max((2 * i + 1) * from, to) - to;
    fraction = float(numerator % (2 * to)) / float(2 * to);
    return numerator / (2 * to);
}

void main()
{
    const uint to = pixel();
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
