#include "server/pipeline/pull_push.h"

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

/* The mean of each 2 × 2 pixels, by their weights; beyond the edge there is none. */
static void pull_down(const struct pull_level *from, const struct pull_level *to)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, small = (size_t)to->h * (size_t)to->w;
    for (int y = 0; y < to->h; y++)
        for (int x = 0; x < to->w; x++) {
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
}

/* Enlarges twofold, bilinearly, with the edge repeated, into what has no full weight. */
static void pull_up(const struct pull_level *from, const struct pull_level *to)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, large = (size_t)to->h * (size_t)to->w;
    for (int y = 0; y < to->h; y++) {
        int other = y / 2 + (y % 2 ? 1 : -1);
        other = other < 0 ? 0 : other >= from->h ? from->h - 1 : other;
        for (int x = 0; x < to->w; x++) {
            const size_t at = (size_t)y * (size_t)to->w + (size_t)x;
            const float weight = to->weight[at];
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
