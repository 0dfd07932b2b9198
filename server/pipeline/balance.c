#include "server/pipeline/balance.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/pixel.h"
#include "server/pipeline/deep.h"

#define BALANCE_ENOUGH 0.4f /* levels of 255 */
#define BALANCE_TURNS 2
/* All rows of a small result are measured, of larger ones every third, fifth, ...: an odd number, so that all phases of
 * a pixel that became 2 or 4 come in turn. */
#define BALANCE_PIXELS (1 << 22)

struct balance {
    struct step *step;
    int row; /* every so manyth is measured */
    float shift[3];
    pthread_mutex_t lock;
    double sum[3]; /* of the picture minus the result, by how much of each pixel is seen through its alpha */
    double count;  /* of pixels, so weighed */
    bool failed;
};

/* How much of the background is seen at each pixel of a row of the result: 1, or less where faces are. */
static void balance_seen(const struct step *step, int y, float *seen)
{
    for (int x = 0; x < step->width; x++)
        seen[x] = 1;
    for (int i = 0; i < step->layer_count; i++) {
        const struct raster_layer *layer = &step->layers[i];
        if (y < layer->y || y >= layer->y + layer->height)
            continue;
        const float *over = layer->rgba + 4 * (size_t)(y - layer->y) * (size_t)layer->width;
        for (int x = 0; x < layer->width; x++)
            seen[layer->x + x] *= 1 - layer->weight * over[4 * x + 3];
    }
}

/* Rows of floats: of the result, of the picture, its alpha, and what is seen. */
struct balance_rows {
    float *result, *picture, *alpha, *seen;
};

static bool balance_rows(const struct step *step, struct balance_rows *rows)
{
    const size_t wide = (size_t)step->width, in = (size_t)step->r->picture->width;
    rows->result = mem_alloc(4 * wide + 4 * in, sizeof(float));
    rows->seen = rows->result + 3 * wide;
    rows->picture = rows->seen + wide;
    rows->alpha = rows->picture + 3 * in;
    return rows->result != NULL;
}

static void balance_measure_rows(void *context, int item)
{
    struct balance *b = context;
    const struct restoration *r = b->step->r;
    const int width = b->step->width, height = b->step->height;
    const size_t channels = (size_t)r->result->channels;
    struct balance_rows rows;
    int begin, end;
    double sum[3] = {0}, count = 0;
    const bool room = balance_rows(b->step, &rows);
    thread_band(height, item, &begin, &end);
    for (int y = (begin + b->row - 1) / b->row * b->row; room && y < end; y += b->row) {
        const int from = (int)((int64_t)y * r->picture->height / height);
        deep_get(r, y, rows.result);
        deep_read_own(r, from, rows.picture);
        if (r->picture->alpha)
            deep_read_alpha(r, from, rows.alpha);
        balance_seen(b->step, y, rows.seen);
        for (int x = 0; x < width; x++) {
            const size_t at = (size_t)((int64_t)x * r->picture->width / width);
            const double weight = r->picture->alpha ? (double)rows.alpha[at] : 1;
            if (rows.seen[x] < 1 || weight <= 0)
                continue;
            count += weight;
            for (size_t c = 0; c < channels; c++)
                sum[c] += weight * (double)(rows.picture[channels * at + c] - rows.result[channels * (size_t)x + c]);
        }
        image_passed(r->result, y, y + 1);
    }
    free(rows.result);
    pthread_mutex_lock(&b->lock);
    for (int c = 0; c < 3; c++)
        b->sum[c] += sum[c];
    b->count += count;
    b->failed = b->failed || !room;
    pthread_mutex_unlock(&b->lock);
}

static void balance_shift_rows(void *context, int item)
{
    static const float dither[2][2] = {{0.125f - 0.5f, 0.625f - 0.5f}, {0.875f - 0.5f, 0.375f - 0.5f}};
    struct balance *b = context;
    struct restoration *r = b->step->r;
    const int channels = r->result->channels;
    struct balance_rows rows;
    int begin, end;
    const bool room = balance_rows(b->step, &rows);
    thread_band(b->step->height, item, &begin, &end);
    for (int y = begin; room && y < end; y++) {
        deep_get(r, y, rows.result);
        balance_seen(b->step, y, rows.seen);
        for (int x = 0; x < b->step->width; x++)
            for (int c = 0; c < channels; c++) { /* in 8 bits a part of a level is a part of the pixels */
                const float shift = b->shift[c] * rows.seen[x];
                rows.result[channels * x + c] += r->result->bits == 8 ? rintf(shift + dither[y & 1][x & 1]) : shift;
            }
        pixel_clamp(rows.result, (size_t)channels * (size_t)b->step->width);
        deep_put(r, y, rows.result);
    }
    image_passed(r->result, begin, end); /* once a band: each call interrupts every core */
    free(rows.result);
    if (!room) {
        pthread_mutex_lock(&b->lock);
        b->failed = true;
        pthread_mutex_unlock(&b->lock);
    }
}

/* Measures how far the means are apart. */
static bool balance_is_off(struct balance *b)
{
    bool off = false;
    memset(b->sum, 0, sizeof b->sum);
    b->count = 0;
    thread_for(thread_bands(b->step->height), balance_measure_rows, b);
    for (int c = 0; c < 3 && b->count > 0; c++) {
        b->shift[c] = (float)(b->sum[c] / b->count);
        off = off || fabsf(b->shift[c]) > BALANCE_ENOUGH;
    }
    return off && !b->failed;
}

enum error_code balance_result(struct step *step, struct error *err)
{
    struct balance b = {.step = step, .lock = PTHREAD_MUTEX_INITIALIZER};
    b.row = 1 + 2 * (int)((int64_t)step->width * step->height / BALANCE_PIXELS);
    /* what is black or white already does not move: then the rest moves once more */
    for (int turn = 0; turn < BALANCE_TURNS && balance_is_off(&b); turn++)
        thread_for(thread_bands(step->height), balance_shift_rows, &b);
    return b.failed ? error_set(err, ERROR_NO_MEMORY, "out of memory") : OK;
}
