#include "server/image/colour.h"

#include <math.h>
#include <string.h>

/* Light, 0 to 1, of an sRGB sample of 0 to 1 (IEC 61966-2-1), and back; beyond that mirrored at 0 and continued. */
static float colour_light(float sample)
{
    const float v = fabsf(sample);
    return copysignf(v <= 0.04045f ? v / 12.92f : powf((v + 0.055f) / 1.055f, 2.4f), sample);
}

static float colour_sample(float light)
{
    const float v = fabsf(light);
    return copysignf(v <= 0.0031308f ? v * 12.92f : 1.055f * powf(v, 1 / 2.4f) - 0.055f, light);
}

const double colour_of_xyz[9] = {3.1338561, -1.6168667, -0.4906146, -0.9787684, 1.9161415,
                                 0.0334540, 0.0719453,  -0.2289914, 1.4052427};

/* A part of white's X, Y or Z (CIE 15). */
static float colour_part(float f)
{
    return f > 6.0f / 29 ? f * f * f : (f - 4.0f / 29) * 3 * (6.0f / 29) * (6.0f / 29);
}

static void colour_apply(const double m[9], const double from[3], double to[3])
{
    for (int i = 0; i < 3; i++)
        to[i] = m[3 * i] * from[0] + m[3 * i + 1] * from[1] + m[3 * i + 2] * from[2];
}

void colour_of_white(const float *white, double out[9])
{
    static const double d50[3] = {0.9642, 1, 0.8249},
                        cones[9] = {0.8951, 0.2664, -0.1614, -0.7502, 1.7135, 0.0367, 0.0389, -0.0685, 1.0296},
                        back[9] = {0.9869929, -0.1470543, 0.1599627, 0.4323053, 0.5183603,
                                   0.0492912, -0.0085287, 0.0400428, 0.9684867};
    double own[3] = {d50[0], d50[1], d50[2]}, seen[3], wanted[3];
    if (white && white[0] > 0.2f && white[0] < 0.5f && white[1] > 0.2f && white[1] < 0.5f) {
        own[0] = (double)white[0] / (double)white[1];
        own[2] = (1 - (double)white[0] - (double)white[1]) / (double)white[1];
    }
    colour_apply(cones, own, seen);
    colour_apply(cones, d50, wanted);
    if (fmin(seen[0], fmin(seen[1], seen[2])) < 0.1) { /* a colour that one kind of cones hardly sees is no white */
        memcpy(own, d50, sizeof own);
        memcpy(seen, wanted, sizeof seen);
    }
    for (int c = 0; c < 3; c++) { /* X, Y or Z of white alone */
        double part[3] = {0}, light[3];
        part[c] = own[c];
        colour_apply(cones, part, light);
        for (int i = 0; i < 3; i++)
            light[i] *= wanted[i] / seen[i];
        colour_apply(back, light, part);
        colour_apply(colour_of_xyz, part, light);
        for (int i = 0; i < 3; i++)
            out[3 * i + c] = light[i];
    }
}

void colour_of_lab(const double of_white[9], const float *lab, float *rgb, size_t n)
{
    for (size_t i = 0; i < n; i++, lab += 3, rgb += 3) {
        const float f = (lab[0] + 16) / 116;
        const double parts[3] = {colour_part(f + lab[1] / 500), colour_part(f), colour_part(f - lab[2] / 200)};
        double light[3];
        colour_apply(of_white, parts, light);
        for (int c = 0; c < 3; c++)
            rgb[c] = 255 * colour_sample((float)light[c]);
    }
}

static bool colour_invert(const float m[9], float out[9])
{
    const double a = m[0], b = m[1], c = m[2], d = m[3], e = m[4], f = m[5], g = m[6], h = m[7], i = m[8];
    const double det = a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g);
    const double inverse[9] = {e * i - f * h, c * h - b * i, b * f - c * e, f * g - d * i, a * i - c * g,
                               c * d - a * f, d * h - e * g, b * g - a * h, a * e - b * d};
    if (!(fabs(det) > 1e-6))
        return false;
    for (int k = 0; k < 9; k++)
        out[k] = (float)(inverse[k] / det);
    return true;
}

bool colour_complete(struct colour *colour)
{
    if (colour->channels != 1 && colour->channels != 3)
        return false;
    for (int c = 0; c < colour->channels; c++) {
        float *curve = colour->curve[c];
        for (int i = 0; i < COLOUR_STEPS; i++) {
            if (!(curve[i] >= -1 && curve[i] <= 2))
                return false;
            curve[i] = curve[i] < 0 ? 0 : curve[i];
            if (i && curve[i] < curve[i - 1])
                curve[i] = curve[i - 1];
        }
        if (curve[COLOUR_STEPS - 1] - curve[0] < 0.1f)
            return false;
    }
    for (int k = 0; k < 9 && colour->channels == 3; k++)
        if (!(fabsf(colour->matrix[k]) < 16))
            return false;
    return colour->channels == 1 || colour_invert(colour->matrix, colour->inverse);
}

bool colour_is_srgb(const struct colour *colour)
{
    for (int c = 0; c < colour->channels; c++)
        for (int i = 0; i < COLOUR_STEPS; i++) {
            const float v = (float)i / (COLOUR_STEPS - 1);
            if (fabsf(colour_sample(colour->curve[c][i]) - v) > 0.002f)
                return false;
        }
    for (int k = 0; k < 9 && colour->channels == 3; k++)
        if (fabsf(colour->matrix[k] - (float)(k % 4 == 0)) > 0.003f)
            return false;
    return true;
}

/* A sample of 0..255 to light. */
static float colour_curve(const float curve[COLOUR_STEPS], float sample)
{
    const float at = sample * ((COLOUR_STEPS - 1) / 255.0f);
    const int i = at <= 0 ? 0 : at >= COLOUR_STEPS - 1 ? COLOUR_STEPS - 2 : (int)at;
    const float part = at <= 0 ? 0 : at >= COLOUR_STEPS - 1 ? 1 : at - (float)i;
    return curve[i] + part * (curve[i + 1] - curve[i]);
}

/* And back. */
static float colour_uncurve(const float curve[COLOUR_STEPS], float light)
{
    int low = 0, high = COLOUR_STEPS - 1; /* curve[low] <= light < curve[high] */
    if (!(light > curve[low]))
        return 0;
    if (light >= curve[high])
        return 255;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (curve[middle] <= light)
            low = middle;
        else
            high = middle;
    }
    return ((float)low + (light - curve[low]) / (curve[high] - curve[low])) * (255.0f / (COLOUR_STEPS - 1));
}

void colour_to_srgb(const struct colour *colour, const float *from, float *to, size_t n)
{
    const float *m = colour->matrix;
    for (size_t i = 0; i < n; i++, from += colour->channels, to += 3) {
        if (colour->channels == 1) {
            to[0] = to[1] = to[2] = 255 * colour_sample(colour_curve(colour->curve[0], from[0]));
            continue;
        }
        float light[3];
        for (int c = 0; c < 3; c++)
            light[c] = colour_curve(colour->curve[c], from[c]);
        for (int c = 0; c < 3; c++)
            to[c] = 255 * colour_sample(m[3 * c] * light[0] + m[3 * c + 1] * light[1] + m[3 * c + 2] * light[2]);
    }
}

void colour_from_srgb(const struct colour *colour, const float *from, float *to, size_t n)
{
    const float *m = colour->inverse;
    for (size_t i = 0; i < n; i++, from += 3, to += colour->channels) {
        float light[3];
        for (int c = 0; c < 3; c++)
            light[c] = colour_light(from[c] / 255);
        if (colour->channels == 1) {
            to[0] = colour_uncurve(colour->curve[0], 0.2126f * light[0] + 0.7152f * light[1] + 0.0722f * light[2]);
            continue;
        }
        for (int c = 0; c < 3; c++)
            to[c] = colour_uncurve(colour->curve[c],
                                   m[3 * c] * light[0] + m[3 * c + 1] * light[1] + m[3 * c + 2] * light[2]);
    }
}
