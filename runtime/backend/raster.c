#include "runtime/backend/raster.h"

#include <stdatomic.h>
#include <string.h>

#include "runtime/base/thread.h"

size_t raster_pixel(enum raster_form form)
{
    return form == RASTER_U8 ? 3 : form == RASTER_U16 ? 6 : form == RASTER_F32 ? 3 * sizeof(float) : 1;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

struct read_loop {
    const struct raster_source *source;
    const struct raster_range *range;
    int h, w;
    float *planes;
};

static const void *raster_source_row(const struct raster_source *source, int y)
{
    return (const char *)source->data + (size_t)(source->rows ? source->rows[y] : y) * source->stride;
}

static inline float raster_normal(const struct raster_range *range, float sample, int channel)
{
    return (sample / range->unit - range->mean[channel]) / range->deviation;
}

/* Sample `at` of a row that is not 8 bit. */
static inline float raster_wide(enum raster_form form, const void *row, size_t at)
{
    return form == RASTER_U16 ? (float)((const uint16_t *)row)[at] / 257 : ((const float *)row)[at];
}

/* A row of a picture that is reduced. */
static void raster_read_reduced(const struct read_loop *loop, int y)
{
    enum { CHUNK = 256 };
    const struct raster_range *range = loop->range;
    const size_t plane = (size_t)loop->h * (size_t)loop->w;
    float samples[3 * CHUNK], *to = loop->planes + (size_t)y * (size_t)loop->w;
    for (int begin = 0; begin < loop->w; begin += CHUNK) {
        const int count = loop->w - begin < CHUNK ? loop->w - begin : CHUNK;
        raster_reduce_row(loop->source, loop->h, loop->w, y, begin, count, samples);
        for (int c = 0; c < 3; c++)
            for (int x = 0; x < count; x++)
                to[(size_t)c * plane + (size_t)(begin + x)] =
                    raster_normal(range, samples[3 * x + (range->bgr ? 2 - c : c)], c);
    }
}

static void raster_read_rows(void *context, int item)
{
    const struct read_loop *loop = context;
    const struct raster_range *range = loop->range;
    const int *columns = loop->source->columns;
    const size_t plane = (size_t)loop->h * (size_t)loop->w;
    float table[3][256]; /* 8 bit: what each sample becomes */
    int begin, end;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++)
            table[c][i] = raster_normal(range, (float)i, c);
    thread_band(loop->h, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        if (loop->source->width) {
            raster_read_reduced(loop, y);
            continue;
        }
        const void *row = raster_source_row(loop->source, y);
        const uint8_t *bytes = row;
        const enum raster_form form = loop->source->form;
        for (int c = 0; c < 3; c++) {
            float *to = loop->planes + (size_t)c * plane + (size_t)y * (size_t)loop->w;
            const int k = range->bgr ? 2 - c : c;
            for (int x = 0; x < loop->w; x++) {
                const size_t from = 3 * (size_t)(columns ? columns[x] : x) + (size_t)k;
                to[x] =
                    form == RASTER_U8 ? table[c][bytes[from]] : raster_normal(range, raster_wide(form, row, from), c);
            }
        }
    }
}

void raster_read(const struct raster_source *source, int h, int w, const struct raster_range *range, float *planes)
{
    struct read_loop loop = {source, range, h, w, planes};
    thread_for(thread_bands(h), raster_read_rows, &loop);
}

void raster_put_points(const struct raster_points *points, size_t pixels, float *planes)
{
    memset(planes + 3 * pixels, 0, pixels * sizeof *planes);
    for (int i = 0; i < points->count; i++) {
        for (size_t c = 0; c < 3; c++)
            planes[c * pixels + points->places[i]] = points->planes[c * pixels + points->places[i]];
        planes[3 * pixels + points->places[i]] = 1;
    }
}

void raster_take_points(const struct raster_points *points, size_t pixels, const float *planes)
{
    float *to = points->values;
    for (int i = 0; i < points->count; i++)
        for (size_t c = 0; c < 3; c++)
            *to++ = planes[c * pixels + points->places[i]];
}

bool raster_flat(const struct raster_source *source, int h, int w)
{
    const size_t size = raster_pixel(source->form) / 3;
    const void *first = NULL;
    h = source->width ? source->height : h;
    w = source->width ? source->width : w;
    for (int y = 0; y < h; y++) {
        const char *row = raster_source_row(source, y);
        for (int x = 0; x < w; x++)
            for (size_t c = 0; c < 3; c++) {
                const char *sample = row + (3 * (size_t)(source->columns ? source->columns[x] : x) + c) * size;
                first = first ? first : sample;
                if (memcmp(first, sample, size) != 0)
                    return false;
            }
    }
    return true;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

struct write_loop {
    const struct raster_values *values;
    const struct raster_range *range;
    const struct raster_target *target;
};

static inline float raster_sample_of(const struct raster_range *range, float value, int channel)
{
    value = value < range->low ? range->low : value > range->high ? range->high : value;
    return (value * range->deviation + range->mean[channel]) * range->unit;
}

/* A float of 2^23 to 2^24 has no fraction, so adding 1.5*2^23 rounds, and leaves the integer in the low bits; unlike
 * lrintf this vectorises. */
static inline uint8_t raster_byte_of(float sample)
{
    const float shifted = sample + 0x1.8p23f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (uint8_t)bits;
}

static void raster_write_samples(const struct write_loop *loop, const float *from, void *to)
{
    const struct raster_values *v = loop->values;
    const int width = loop->target->width;
    for (int c = 0; c < 3; c++) {
        const float *plane = from + (size_t)c * v->channel;
        const int k = loop->range->bgr ? 2 - c : c;
        if (loop->target->form == RASTER_U8) {
            uint8_t *bytes = (uint8_t *)to + k;
            for (int x = 0; x < width; x++)
                bytes[3 * x] = raster_byte_of(raster_sample_of(loop->range, plane[(size_t)x * v->pixel], c));
        } else {
            float *floats = (float *)to + k;
            for (int x = 0; x < width; x++)
                floats[3 * x] = raster_sample_of(loop->range, plane[(size_t)x * v->pixel], c);
        }
    }
}

static bool raster_crosses(const struct raster_layer *layer, int y)
{
    return y >= layer->y && y < layer->y + layer->height;
}

void raster_lay(const struct raster_layer *layers, int count, int x, int y, int width, float *row)
{
    for (const struct raster_layer *layer = layers; layer < layers + count; layer++) {
        const int begin = layer->x > x ? layer->x : x;
        const int end = layer->x + layer->width < x + width ? layer->x + layer->width : x + width;
        if (!raster_crosses(layer, y) || begin >= end)
            continue;
        const float *over =
            layer->rgba + 4 * ((size_t)(y - layer->y) * (size_t)layer->width + (size_t)(begin - layer->x));
        float *to = row + 3 * (size_t)(begin - x);
        for (int i = begin; i < end; i++, over += 4, to += 3)
            for (int c = 0; c < 3; c++)
                to[c] += layer->weight * (over[c] - over[3] * to[c]);
    }
}

/* As 8 bit, with layers over them. */
static void raster_write_layered(const struct write_loop *loop, const float *from, int y, uint8_t *to)
{
    enum { CHUNK = 512 };
    const struct raster_values *v = loop->values;
    const struct raster_target *target = loop->target;
    float samples[3 * CHUNK];
    for (int begin = 0; begin < target->width; begin += CHUNK) {
        const int count = target->width - begin < CHUNK ? target->width - begin : CHUNK;
        for (int c = 0; c < 3; c++)
            for (int x = 0; x < count; x++)
                samples[3 * x + (loop->range->bgr ? 2 - c : c)] =
                    raster_sample_of(loop->range, from[(size_t)c * v->channel + (size_t)(begin + x) * v->pixel], c);
        raster_lay(target->layers, target->layer_count, target->left + begin, target->top + y, count, samples);
        for (int i = 0; i < 3 * count; i++)
            to[3 * begin + i] = raster_byte_of(samples[i] < 0 ? 0 : samples[i] > 255 ? 255 : samples[i]);
    }
}

/* As roundf has it, in a way that vectorises: what is added is the largest float below a half, since a half would take
 * the largest float below it to 1. */
static inline uint8_t raster_level_of(float value)
{
    const float wide = value * 16, above = wide > -128 ? wide : -128, level = above < 127 ? above : 127;
    return (uint8_t)(128 + (int)(level + (level < 0 ? -0x1.fffffep-2f : 0x1.fffffep-2f)));
}

uint8_t raster_level(float value)
{
    return raster_level_of(value);
}

static void raster_write_levels(const struct raster_values *v, const float *restrict from, int width,
                                uint8_t *restrict levels)
{
    for (int x = 0; x < width; x++)
        levels[x] = raster_level_of(from[(size_t)x * v->pixel]);
}

/* Channel by channel, which vectorises. */
static void raster_write_labels(const struct raster_values *v, const float *from, int channels, int width,
                                uint8_t *labels)
{
    enum { CHUNK = 512 };
    float best[CHUNK];
    for (int begin = 0; begin < width; begin += CHUNK) {
        const int count = width - begin < CHUNK ? width - begin : CHUNK;
        const float *first = from + (size_t)begin * v->pixel;
        uint8_t *to = labels + begin;
        for (int x = 0; x < count; x++)
            best[x] = first[(size_t)x * v->pixel];
        memset(to, 0, (size_t)count);
        for (int c = 1; c < channels; c++) {
            const float *values = first + (size_t)c * v->channel;
            for (int x = 0; x < count; x++) {
                const float value = values[(size_t)x * v->pixel];
                to[x] = value > best[x] ? (uint8_t)c : to[x];
                best[x] = value > best[x] ? value : best[x];
            }
        }
    }
}

static void raster_write_rows(void *context, int item)
{
    const struct write_loop *loop = context;
    const struct raster_target *target = loop->target;
    const struct raster_values *v = loop->values;
    int begin, end;
    thread_band(target->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const float *from = v->data + (size_t)((target->y + y) % v->rows) * v->row + (size_t)target->x * v->pixel;
        char *to = (char *)target->data + (size_t)y * target->stride;
        bool layered = false;
        for (int i = 0; i < target->layer_count; i++)
            layered = layered || raster_crosses(&target->layers[i], target->top + y);
        const float *first = from + (size_t)target->first * v->channel;
        if (target->form == RASTER_LABEL)
            raster_write_labels(v, first, v->channels - target->first, target->width, (uint8_t *)to);
        else if (target->form == RASTER_LEVEL)
            raster_write_levels(v, first, target->width, (uint8_t *)to);
        else if (layered)
            raster_write_layered(loop, from, y, (uint8_t *)to);
        else
            raster_write_samples(loop, from, to);
    }
}

void raster_write(const struct raster_values *values, const struct raster_range *range,
                  const struct raster_target *target)
{
    struct write_loop loop = {values, range, target};
    thread_for(thread_bands(target->height), raster_write_rows, &loop);
}

/* ---- what is wrong ----------------------------------------------------------------------------------------------- */

#define CHUNK ((size_t)1 << 18) /* values of a thread's item */

struct scan {
    const float *values;
    size_t count;
    atomic_bool bad;
};

static void raster_scan_chunk(void *context, int item)
{
    struct scan *scan = context;
    const size_t begin = (size_t)item * CHUNK, end = begin + CHUNK < scan->count ? begin + CHUNK : scan->count;
    uint32_t bad = 0;
    /* By the bits of the exponent, which vectorises where a sum of floats may not. */
    for (size_t i = begin; i < end; i++) {
        uint32_t bits;
        memcpy(&bits, &scan->values[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    if (bad)
        atomic_store(&scan->bad, true);
}

bool raster_finite(const float *values, size_t count)
{
    struct scan scan = {.values = values, .count = count};
    thread_for((int)((count + CHUNK - 1) / CHUNK), raster_scan_chunk, &scan);
    return !atomic_load(&scan.bad);
}

bool raster_equal(const float *values, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (values[i] != values[0])
            return false;
    return true;
}
