#include "server/pipeline/pull_push.h"

#include <stdint.h>
#include <string.h>

static int pull_half(int side)
{
    return side / 2 + side % 2;
}

size_t pull_room(int h, int w)
{
    size_t sum = 0;
    while (h > 1 || w > 1) {
        h = pull_half(h);
        w = pull_half(w);
        sum += 4 * (size_t)h * (size_t)w;
    }
    return sum;
}

/* One pixel's mean of 2 × 2, by their weights; beyond the edge there is none. */
static void pull_pixel(const struct pull_level *from, int above, const struct pull_level *to, int x, int y)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, small = (size_t)to->h * (size_t)to->w;
    const size_t at = (size_t)y * (size_t)to->w + (size_t)x;
    float sum[4] = {0};
    for (int i = above; i < above + 2 && i < from->h; i++)
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
        out[x] = sum / (4 * sums[x] + (sums[x] > 0 ? 0.0f : 1.0f)); /* of nothing it is 0 */
    }
}

static void pull_weights(const float *restrict weight, size_t below, int count, float *restrict out)
{
    const float *restrict under = weight + below;
    for (int x = 0; x < count; x++)
        out[x] = (weight[2 * x] + weight[2 * x + 1] + under[2 * x] + under[2 * x + 1]) / 4;
}

/* Sets one row of a picture, from column `begin` to before `end`, from two of the larger one, from `above` on, or from
 * its last. */
static void pull_down(const struct pull_level *from, int above, const struct pull_level *to, int y, int begin, int end)
{
    const size_t plane = (size_t)from->h * (size_t)from->w, small = (size_t)to->h * (size_t)to->w;
    const int pairs = above + 1 < from->h ? from->w / 2 : 0, last = pairs < end ? pairs : end,
              whole = last > begin ? last : begin;
    const size_t first = (size_t)above * (size_t)from->w + 2 * (size_t)begin,
                 at = (size_t)y * (size_t)to->w + (size_t)begin;
    pull_weights(from->weight + first, (size_t)from->w, whole - begin, to->weight + at);
    for (size_t c = 0; c < 3; c++)
        pull_row(from->weight + first, (size_t)from->w, from->rgb + c * plane + first, whole - begin, to->weight + at,
                 to->rgb + c * small + at);
    for (int x = whole; x < end; x++)
        pull_pixel(from, above, to, x, y);
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

/* A pixel of the smaller picture enlarged twofold, bilinearly, with the edge repeated. */
static inline float pull_up(const struct pull_level *from, int c, int x, int y, int beside, int other)
{
    const float *plane = from->rgb + (size_t)c * (size_t)from->h * (size_t)from->w;
    const float *near = plane + (size_t)(y / 2) * (size_t)from->w, *far = plane + (size_t)other * (size_t)from->w;
    return 0.75f * (0.75f * near[x / 2] + 0.25f * near[beside]) + 0.25f * (0.75f * far[x / 2] + 0.25f * far[beside]);
}

/* Of the two pixels of the smaller picture that one lies between, that which it is not in. */
static inline int pull_beside(int at, int length)
{
    const int beside = at / 2 + (at % 2 ? 1 : -1);
    return beside < 0 ? 0 : beside >= length ? length - 1 : beside;
}

/* A row of what has no full weight. */
static void pull_up_row(const struct pull_level *from, const struct pull_level *to, int y)
{
    const size_t large = (size_t)to->h * (size_t)to->w;
    const int other = pull_beside(y, from->h);
    const float *weights = to->weight + (size_t)y * (size_t)to->w;
    for (int x = 0; x < to->w; x++) {
        if (x % 4 == 0 && (x = pull_clear(weights, x, to->w)) == to->w)
            break;
        const float weight = weights[x];
        if (weight >= 1)
            continue;
        const int beside = pull_beside(x, from->w);
        for (int c = 0; c < 3; c++) {
            float *value = &to->rgb[(size_t)c * large + (size_t)y * (size_t)to->w + (size_t)x];
            *value = weight * *value + (1 - weight) * pull_up(from, c, x, y, beside, other);
        }
    }
}

void pull_begin(struct pull *pull, int h, int w, float *room)
{
    pull->last = 0;
    pull->levels[0] = (struct pull_level){.h = h, .w = w};
    while (h > 1 || w > 1) {
        h = pull_half(h);
        w = pull_half(w);
        const size_t small = (size_t)h * (size_t)w;
        pull->levels[++pull->last] = (struct pull_level){h, w, room, room + 3 * small};
        room += 4 * small;
    }
}

static void pull_level_rows(const struct pull *pull, int level, int begin, int end)
{
    const struct pull_level *to = &pull->levels[level];
    for (int y = begin; y < end && y < to->h; y++)
        pull_down(to - 1, 2 * y, to, y, 0, to->w);
}

/* Of the picture's columns, where those of a smaller one end. */
static int pull_end(int level, int to)
{
    return (to + (1 << level) - 1) >> level;
}

void pull_two_rows(const struct pull *pull, int y, const float *rgb, const float *weight, int from, int to)
{
    const struct pull_level *whole = pull->levels;
    const struct pull_level two = {whole->h - y < 2 ? 1 : 2, whole->w, (float *)rgb, (float *)weight};
    if (pull->last)
        pull_down(&two, 0, whole + 1, y / 2, from / 2, pull_end(1, to));
}

#define PULL_TILE_LEVEL 3

_Static_assert(PULL_TILE == 1 << PULL_TILE_LEVEL && PULL_BAND % PULL_TILE == 0, "a band has whole tiles");

void pull_tiles(const struct pull *pull, int y, int from, int to)
{
    for (int k = 2; k <= PULL_TILE_LEVEL && k <= pull->last; k++) {
        const struct pull_level *level = &pull->levels[k];
        for (int i = y >> k; i < (y + PULL_TILE) >> k && i < level->h; i++)
            pull_down(level - 1, 2 * i, level, i, from >> k, pull_end(k, to));
    }
}

void pull_known(const struct pull *pull, int y, int from, int to)
{
    for (int k = 1; k <= PULL_TILE_LEVEL; k++)
        for (int i = y >> k; i < (y + PULL_TILE) >> k; i++)
            for (int x = from >> k; x < to >> k; x++)
                pull->levels[k].weight[i * pull->levels[k].w + x] = 1;
}

float *pull_tile(const struct pull *pull, int x, int y, int channel)
{
    const struct pull_level *level = &pull->levels[PULL_TILE_LEVEL];
    return level->rgb + (channel * level->h + y / PULL_TILE) * level->w + x / PULL_TILE;
}

void pull_band(const struct pull *pull, int y)
{
    const int first = PULL_TILE_LEVEL + 1;
    for (int k = first, rows = PULL_BAND >> first; rows && k <= pull->last; k++, rows /= 2)
        pull_level_rows(pull, k, y / PULL_BAND * rows, y / PULL_BAND * rows + rows);
}

void pull_rest(const struct pull *pull)
{
    int first = 2;
    for (int rows = PULL_BAND / 4; rows; rows /= 2)
        first++;
    for (int k = first; k <= pull->last; k++)
        pull_level_rows(pull, k, 0, pull->levels[k].h);
    for (int k = pull->last - 1; k > PULL_PUSHED; k--)
        for (int y = 0; y < pull->levels[k].h; y++)
            pull_up_row(&pull->levels[k + 1], &pull->levels[k], y);
}

void pull_push_band(const struct pull *pull, int level, int y)
{
    const struct pull_level *to = &pull->levels[level];
    for (int i = y >> level; i < (y + PULL_BAND) >> level && pull->last > level && i < to->h; i++)
        pull_up_row(to + 1, to, i);
}

void pull_hole(const struct pull *pull, int x, int y, float rgb[3])
{
    const struct pull_level *from = &pull->levels[1];
    const int beside = pull_beside(x, from->w), other = pull_beside(y, from->h);
    for (int c = 0; c < 3; c++)
        rgb[c] = pull_up(from, c, x, y, beside, other);
}

size_t pull_push_scratch(int h, int w)
{
    return (size_t)h * (size_t)w + pull_room(h, w); /* the weights of the picture itself */
}

void pull_push(float *rgb, const float *mask, int h, int w, float *scratch)
{
    struct pull pull;
    const size_t plane = (size_t)h * (size_t)w;
    pull_begin(&pull, h, w, scratch + plane);
    pull.levels[0].rgb = rgb;
    pull.levels[0].weight = scratch;
    for (size_t i = 0; i < plane; i++)
        scratch[i] = 1 - mask[i];
    for (int k = 1; k <= pull.last; k++)
        pull_level_rows(&pull, k, 0, pull.levels[k].h);
    for (size_t i = 0; pull.last == 0 && i < plane; i++) /* a single pixel */
        for (int c = 0; c < 3; c++)
            rgb[(size_t)c * plane + i] *= scratch[i];
    for (int k = pull.last - 1; k >= 0; k--)
        for (int y = 0; y < pull.levels[k].h; y++)
            pull_up_row(&pull.levels[k + 1], &pull.levels[k], y);
}
