#include "server/pipeline/pool.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

struct pool {
    const struct model_info *info;
    int width, height, window_width, window_height, batch;
    int known;                   /* means that are */
    float *means[MODEL_POOLS];   /* of each, `batch` copies: an image of a run each */
    double *sums;                /* of the next one's channels */
    float *map, *out[PLAN_RUNS]; /* of a run */
};

static int pool_side(const struct model_pool *pool, int px)
{
    return px * pool->per4 / 4 + pool->margin;
}

static size_t pool_features(const struct model_pool *pool, int width, int height)
{
    return (size_t)pool_side(pool, width) * (size_t)pool_side(pool, height);
}

enum error_code pool_create(struct pool **out, const struct model_info *info, int width, int height, int window_width,
                            int window_height, int batch, struct error *err)
{
    struct pool *pool = *out = mem_calloc(1, sizeof *pool);
    if (!pool)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    *pool = (struct pool){.info = info,
                          .width = width,
                          .height = height,
                          .window_width = window_width,
                          .window_height = window_height,
                          .batch = batch};
    size_t channels = 0, features = 0;
    bool room = true;
    for (int i = 0; i < info->pool_count; i++) {
        const size_t some = (size_t)info->pools[i].channels,
                     many = pool_features(&info->pools[i], window_width, window_height);
        channels = some > channels ? some : channels;
        features = many > features ? many : features;
        pool->means[i] = mem_calloc(some * (size_t)batch, sizeof(float));
        room = room && pool->means[i];
    }
    pool->sums = mem_calloc(channels, sizeof *pool->sums);
    pool->map = mem_calloc(features * (size_t)batch, sizeof *pool->map);
    for (int i = 0; i < PLAN_RUNS; i++) {
        pool->out[i] = mem_calloc(channels * (size_t)batch, sizeof(float));
        room = room && pool->out[i];
    }
    if (room && pool->sums && pool->map)
        return OK;
    pool_destroy(out);
    return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
}

void pool_destroy(struct pool **out)
{
    struct pool *pool = *out;
    if (!pool)
        return;
    for (int i = 0; i < MODEL_POOLS; i++)
        free(pool->means[i]);
    for (int i = 0; i < PLAN_RUNS; i++)
        free(pool->out[i]);
    free(pool->sums);
    free(pool->map);
    free(pool);
    *out = NULL;
}

static void pool_clear(struct pool *pool)
{
    if (!pool_ready(pool))
        memset(pool->sums, 0, (size_t)pool->info->pools[pool->known].channels * sizeof *pool->sums);
}

void pool_restart(struct pool *pool)
{
    pool->known = 0;
    pool_clear(pool);
}

int pool_variant(const struct pool *pool)
{
    return MODEL_MEANS_FIRST + pool->known;
}

bool pool_ready(const struct pool *pool)
{
    return pool->known == pool->info->pool_count;
}

/* Which of a window's features along an axis belong to its tile: [*from, *to). */
static void pool_own(const struct model_pool *pool, const struct pool_axis *axis, int *from, int *to)
{
    const int before = pool->margin / 2;
    *from = axis->first ? 0 : (axis->from - axis->start) * pool->per4 / 4 + before;
    *to = axis->last ? pool_side(pool, axis->window) : (axis->to - axis->start) * pool->per4 / 4 + before;
}

void pool_place(struct pool *pool, int i, const struct pool_axis *x, const struct pool_axis *y)
{
    if (pool_ready(pool))
        return;
    const struct model_pool *features = &pool->info->pools[pool->known];
    const int w = pool_side(features, x->window), h = pool_side(features, y->window);
    float *map = pool->map + (size_t)i * (size_t)w * (size_t)h;
    int left, right, top, bottom;
    pool_own(features, x, &left, &right);
    pool_own(features, y, &top, &bottom);
    for (int r = 0; r < h; r++)
        for (int c = 0; c < w; c++)
            map[(size_t)r * (size_t)w + (size_t)c] = r >= top && r < bottom && c >= left && c < right;
}

void pool_inputs(const struct pool *pool, struct run_input *inputs)
{
    for (int i = 0; i < pool->known; i++)
        inputs[i] = (struct run_input){.planes = pool->means[i]};
    if (!pool_ready(pool))
        inputs[pool->known] = (struct run_input){.planes = pool->map};
}

float *pool_output(struct pool *pool, int slot)
{
    return pool->out[slot];
}

void pool_add(struct pool *pool, int slot, int n)
{
    const struct model_pool *features = &pool->info->pools[pool->known];
    const double each = (double)pool_features(features, pool->window_width, pool->window_height);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < features->channels; c++)
            pool->sums[c] += each * (double)pool->out[slot][i * features->channels + c];
}

void pool_next(struct pool *pool)
{
    const struct model_pool *features = &pool->info->pools[pool->known];
    const double all = (double)pool_features(features, pool->width, pool->height);
    for (int i = 0; i < pool->batch; i++)
        for (int c = 0; c < features->channels; c++)
            pool->means[pool->known][i * features->channels + c] = (float)(pool->sums[c] / all);
    pool->known++;
    pool_clear(pool);
}
