#include "server/pipeline/pull_push.h"

#include <stdint.h>
#include <string.h>

#define PULL_LEVELS 32 /* halvings of any side */

/* A smaller picture: three planes of colour and one of weights. */
struct pull_level {
    int h, w;
    float *rgb, *weight;
};

static int pull_half(int side)
{
    return side / 2 + side % 2;
}

size_t pull_push_scratch(int h, int w)
{
    size_t sum = (size_t)h * (size_t)w; /* the weights of the picture itself */
    while (h > 1 || w > 1) {
        h = pull_half(h);
        w = pull_half(w);
        sum += 4 * (size_t)h * (size_t)w;
    }
    return sum;
}

/* One pixel's mean of 2 × 2, by their weights; beyond the edge there is none. */
static void pull_pixel(const struct pull_level *from, const struct pull_level *to, int x, int y)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, small = (size_t)to->h * (size_t)to->w;
    const size_t at = (size_t)y * (size_t)to->w + (size_t)x;
    float sum[4] = {0};
    for (int i = 2 * y; i < 2 * y + 2 && i < from->h; i++)
        for (int j = 2 * x; j < 2 * x + 2 && j < from->w; j++) {
            const size_t k = (size_t)i * (size_t)from->w + (size_t)j;
            for (int c = 0; c < 3; c++)
                sum[c] += from->weight[k] * from->rgb[(size_t)c * plane + k];
            sum[3] += from->weight[k];
        }
    for (int c = 0; c < 3; c++)
        to->rgb[(size_t)c * small + at] = sum[3] > 0 ? sum[c] / sum[3] : 0;
    to->weight[at] = sum[3] / 4;
}

/* The same for the first `count` pixels of a row that has all four of each, plane by plane: this vectorises. */
static void pull_row(const float *restrict weight, size_t below, const float *restrict value, int count,
                     const float *restrict sums, float *restrict out)
{
    const float *restrict under = weight + below, *restrict lower = value + below;
    for (int x = 0; x < count; x++) {
        const float sum = weight[2 * x] * value[2 * x] + weight[2 * x + 1] * value[2 * x + 1] +
                          under[2 * x] * lower[2 * x] + under[2 * x + 1] * lower[2 * x + 1];
        out[x] = sums[x] > 0 ? sum / (4 * sums[x]) : 0;
    }
}

static void pull_weights(const float *restrict weight, size_t below, int count, float *restrict out)
{
    const float *restrict under = weight + below;
    for (int x = 0; x < count; x++)
        out[x] = (weight[2 * x] + weight[2 * x + 1] + under[2 * x] + under[2 * x + 1]) / 4;
}

static void pull_down(const struct pull_level *from, const struct pull_level *to)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, small = (size_t)to->h * (size_t)to->w;
    for (int y = 0; y < to->h; y++) {
        const int whole = 2 * y + 1 < from->h ? from->w / 2 : 0;
        const size_t above = 2 * (size_t)y * (size_t)from->w, at = (size_t)y * (size_t)to->w;
        pull_weights(from->weight + above, (size_t)from->w, whole, to->weight + at);
        for (size_t c = 0; c < 3; c++)
            pull_row(from->weight + above, (size_t)from->w, from->rgb + c * plane + above, whole, to->weight + at,
                     to->rgb + c * small + at);
        for (int x = whole; x < to->w; x++)
            pull_pixel(from, to, x, y);
    }
}

/* From x on, the first of a row's pixels that may have no full weight, to within four. */
static int pull_clear(const float *weight, int x, int width)
{
    const float one[2] = {1, 1};
    uint64_t full, two[2];
    memcpy(&full, one, sizeof full);
    for (; x + 4 <= width; x += 4) {
        memcpy(two, weight + x, sizeof two);
        if (two[0] != full || two[1] != full)
            break;
    }
    return x;
}

/* Enlarges twofold, bilinearly, with the edge repeated, into what has no full weight. */
static void pull_up(const struct pull_level *from, const struct pull_level *to)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, large = (size_t)to->h * (size_t)to->w;
    for (int y = 0; y < to->h; y++) {
        int other = y / 2 + (y % 2 ? 1 : -1);
        other = other < 0 ? 0 : other >= from->h ? from->h - 1 : other;
        const float *weights = to->weight + (size_t)y * (size_t)to->w;
        for (int x = 0; x < to->w; x++) {
            if (x % 4 == 0 && (x = pull_clear(weights, x, to->w)) == to->w)
                break;
            const size_t at = (size_t)y * (size_t)to->w + (size_t)x;
            const float weight = weights[x];
            if (weight >= 1)
                continue;
            int beside = x / 2 + (x % 2 ? 1 : -1);
            beside = beside < 0 ? 0 : beside >= from->w ? from->w - 1 : beside;
            for (int c = 0; c < 3; c++) {
                const float *near = from->rgb + (size_t)c * plane + (size_t)(y / 2) * (size_t)from->w;
                const float *far = from->rgb + (size_t)c * plane + (size_t)other * (size_t)from->w;
                const float up = 0.75f * (0.75f * near[x / 2] + 0.25f * near[beside]) +
                                 0.25f * (0.75f * far[x / 2] + 0.25f * far[beside]);
                float *value = &to->rgb[(size_t)c * large + at];
                *value = weight * *value + (1 - weight) * up;
            }
        }
    }
}

void pull_push(float *rgb, const float *mask, int h, int w, float *scratch)
{
    struct pull_level levels[PULL_LEVELS + 1];
    int last = 0;
    const size_t plane = (size_t)h * (size_t)w;
    levels[0] = (struct pull_level){h, w, rgb, scratch};
    for (size_t i = 0; i < plane; i++)
        scratch[i] = 1 - mask[i];
    scratch += plane;
    while (h > 1 || w > 1) {
        h = pull_half(h);
        w = pull_half(w);
        const size_t small = (size_t)h * (size_t)w;
        levels[++last] = (struct pull_level){h, w, scratch, scratch + 3 * small};
        scratch += 4 * small;
        pull_down(&levels[last - 1], &levels[last]);
    }
    for (size_t i = 0; last == 0 && i < plane; i++) /* a single pixel */
        for (int c = 0; c < 3; c++)
            rgb[(size_t)c * plane + i] *= levels[0].weight[i];
    for (int k = last - 1; k >= 0; k--)
        pull_up(&levels[k + 1], &levels[k]);
}
