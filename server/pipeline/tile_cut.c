/* How a picture's sides are filled up and cut into windows. */
#include <math.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/pipeline/tile_private.h"

#define TILE_FEATHER_PAD 32  /* of a network whose radius is too large for padding */
#define TILE_FEATHER_TRIM 16 /* of that pad, discarded: the network is most wrong nearest to the cut */

int tile_up(int value, int multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* The px of n that stands at x, up to `far` px beyond them: mirrored, or the last one where it is so wanted, or n is
 * too short for a mirror. */
static int tile_beyond(int x, int n, int far, bool repeats)
{
    if (x >= 0 && x < n)
        return x;
    if (repeats || far >= n)
        return x < 0 ? 0 : n - 1;
    return x < 0 ? -x : 2 * (n - 1) - x;
}

enum error_code tile_axis_create(struct tile_axis *axis, int n, int pre, const struct model_info *info,
                                 struct error *err)
{
    const int middle = n + pre, border = info->border;
    axis->length = tile_up(middle, info->unshuffle);
    axis->from = mem_alloc((size_t)axis->length + 2 * (size_t)border, sizeof(int));
    if (!axis->from)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    for (int i = 0; i < axis->length + 2 * border; i++) {
        const int x = tile_beyond(i - border, middle, axis->length - middle + border, info->repeats);
        axis->from[i] = tile_beyond(x, n, pre, false);
    }
    return OK;
}

void tile_cut_free(struct tile_cut *cut)
{
    free(cut->start);
    free(cut->weight);
}

/* The part of window i that is used: all of it except a trim at its cuts. */
static float tile_first(const struct tile_cut *cut, int i)
{
    return (float)(cut->start[i] + (i > 0 ? TILE_FEATHER_TRIM : 0));
}

static float tile_last(const struct tile_cut *cut, int i)
{
    return (float)(cut->start[i] + cut->window - (i + 1 < cut->count ? TILE_FEATHER_TRIM : 0));
}

/* Rises over what is shared with the window before, falls over what is shared with the window after. */
static float tile_feather(const struct tile_cut *cut, int i, float x)
{
    float w = 1;
    if (i > 0)
        w *= fminf(1, (x - tile_first(cut, i)) / (tile_last(cut, i - 1) - tile_first(cut, i)));
    if (i + 1 < cut->count)
        w *= fminf(1, (tile_last(cut, i) - x) / (tile_last(cut, i) - tile_first(cut, i + 1)));
    return x > tile_first(cut, i) && x < tile_last(cut, i) ? w : 0;
}

/* What windows need around them beyond a border. */
static int tile_pad(const struct model_info *info)
{
    return info->border ? 0 : tile_up(info->exact_tiles ? info->radius : TILE_FEATHER_PAD, info->unshuffle);
}

/* Of equal size. */
static int tile_core(int length, int count, const struct model_info *info)
{
    return tile_up((length + count - 1) / count, info->unshuffle);
}

void tile_windows(int length, int core, const struct model_info *info, int *count, int *window)
{
    const int pad = tile_pad(info);
    *count = core ? (length + core - 1) / core : 1;
    core = tile_core(length, *count, info);
    *count = (length + core - 1) / core;
    *window = core + 2 * pad < length ? core + 2 * pad : length;
}

/* The first and the last window lie within the picture, so they share more with their neighbours than others do. */
int tile_shared(int length, int core, const struct model_info *info)
{
    const int pad = tile_pad(info);
    int count, window;
    tile_windows(length, core, info, &count, &window);
    return count < 2 ? 0 : count == 2 ? 2 * window - length : count * (window - 2 * pad) + 3 * pad - length;
}

enum error_code tile_cut_create(struct tile_cut *cut, int length, int core, const struct model_info *info,
                                struct error *err)
{
    const int pad = tile_pad(info);
    tile_windows(length, core, info, &cut->count, &cut->window);
    core = cut->core = tile_core(length, core ? (length + core - 1) / core : 1, info);
    int samples = cut->window * info->scale;
    cut->start = mem_alloc((size_t)cut->count, sizeof(int));
    cut->weight = mem_calloc((size_t)cut->count * (size_t)samples, sizeof(float));
    if (!cut->start || !cut->weight)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    for (int i = 0; i < cut->count; i++) {
        int start = i * core - pad;
        start = start < 0 ? 0 : start;
        cut->start[i] = start < length - cut->window ? start : length - cut->window;
    }
    for (int i = 0; i < cut->count; i++)
        for (int k = 0; k < samples; k++) {
            float x = (float)cut->start[i] + ((float)k + 0.5f) / (float)info->scale, sum = 0;
            if (info->exact_tiles) {
                cut->weight[i * samples + k] = x >= (float)(i * core) && x < (float)((i + 1) * core);
                continue;
            }
            for (int j = 0; j < cut->count; j++)
                sum += tile_feather(cut, j, x);
            cut->weight[i * samples + k] = tile_feather(cut, i, x) / sum;
        }
    return OK;
}

const float *tile_weights(const struct tile_cut *cut, int i, int scale)
{
    return cut->weight + (size_t)i * (size_t)cut->window * (size_t)scale;
}

int tile_reaches(const struct tile_cut *cut, int i, int scale, int limit)
{
    if (i == cut->count)
        return limit;
    int k = 0, samples = cut->window * scale;
    const float *weight = tile_weights(cut, i, scale);
    while (k < samples && weight[k] == 0)
        k++;
    k += cut->start[i] * scale;
    return k < limit ? k : limit;
}
