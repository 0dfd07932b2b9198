#include "server/pipeline/background_rows.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/pixel.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/paste.h"
#include "server/pipeline/reference.h"

/* Colours of a transparent picture are resized by their opacity, so that no colour from beneath full transparency gets
 * into what is seen. A little weight is left to them, since they are kept, too. */
#define BACKGROUND_WEIGHT (1.0f / 4096)

float background_weight(float alpha)
{
    return BACKGROUND_WEIGHT + (1 - BACKGROUND_WEIGHT) * alpha / 255;
}

/* Four samples of each pixel to three in place, and its alpha into the result. */
static void background_divide(const struct background_rows *rows, int y, float *row)
{
    const size_t width = (size_t)rows->step->width;
    float *alpha = rows->alpha + (size_t)y * width;
    for (size_t x = 0; x < width; x++) {
        const float weight = row[4 * x + 3], by = weight > BACKGROUND_WEIGHT / 2 ? weight : BACKGROUND_WEIGHT / 2;
        for (size_t c = 0; c < 3; c++)
            row[3 * x + c] = row[4 * x + c] / by;
        alpha[x] = 255 * (weight - BACKGROUND_WEIGHT) / (1 - BACKGROUND_WEIGHT);
    }
    pixel_clamp(alpha, width);
    deep_alpha_row(rows->step->r, rows->y + y, alpha);
}

static void background_finish(void *context, int item)
{
    const struct background_rows *rows = context;
    int begin, end;
    thread_band(rows->count, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        float *row = rows->rows + (size_t)y * (size_t)rows->channels * (size_t)rows->step->width;
        if (rows->mask) {
            reference_gray(row, row, (size_t)rows->step->width);
            pixel_clamp(row, (size_t)rows->step->width);
            deep_alpha_row(rows->step->r, rows->y + y, row);
            continue;
        }
        if (rows->channels == 4)
            background_divide(rows, y, row);
        paste_background_row(rows->step, rows->y + y, row,
                             rows->rest ? rows->over + (size_t)y * 3 * (size_t)rows->step->width : NULL);
    }
}

static void background_finish_rows(struct background_rows *rows, int count)
{
    rows->count = count;
    if (rows->rest)
        deep_rest_rows(rows->rest, rows->over, 3 * (size_t)rows->step->width, count);
    thread_for(thread_bands(count), background_finish, rows);
    image_passed(rows->step->r->result, rows->y, rows->y + count);
    rows->y += count;
}

void background_emit(struct background_rows *rows, const struct rect *rect, const float *from)
{
    if (!rows->stream && !rows->patches) {
        memcpy(rows->rows, from, (size_t)rect->height * 3 * sizeof(float) * (size_t)rows->step->width);
        background_finish_rows(rows, rect->height);
        return;
    }
    if (rows->patches)
        resize_patches_push(rows->patches, rect, from);
    else
        resize_stream_push(rows->stream, from, rect->height);
    for (int got; (got = rows->patches ? resize_patches_pull(rows->patches, rows->rows, BACKGROUND_ROWS)
                                       : resize_stream_pull(rows->stream, rows->rows, BACKGROUND_ROWS));)
        background_finish_rows(rows, got);
}

enum error_code background_rows_create(struct background_rows *rows, struct step *step,
                                       const struct background_from *from, struct error *err)
{
    _Static_assert(BACKGROUND_ROWS <= RESIZE_ROWS, "a push takes what a tile emits");
    const size_t samples = (size_t)step->width * BACKGROUND_ROWS;
    const int channels = from->channels;
    *rows = (struct background_rows){.step = step,
                                     .channels = channels,
                                     .mask = from->mask,
                                     .rows = mem_alloc(samples, (size_t)channels * sizeof(float))};
    if (channels == 4)
        rows->alpha = mem_alloc(samples, sizeof(float));
    if (!rows->rows || (channels == 4 && !rows->alpha))
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = from->mask ? OK : deep_rest_create(&rows->rest, step->r, step->width, step->height, err);
    if (code == OK && rows->rest && !(rows->over = mem_alloc(samples, 3 * sizeof(float))))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code != OK || (from->width == step->width && from->height == step->height))
        return code;
    if (from->patch_width)
        return resize_patches_create(&rows->patches, from->width, from->height, step->width, step->height,
                                     from->patch_width, from->patch_height, err);
    return resize_stream_create(&rows->stream, from->width, from->height, step->width, step->height, channels,
                                RESIZE_LANCZOS4, err);
}

void background_rows_free(struct background_rows *rows)
{
    resize_stream_destroy(&rows->stream);
    resize_patches_destroy(&rows->patches);
    free(rows->rows);
    free(rows->alpha);
    deep_rest_destroy(&rows->rest);
    free(rows->over);
    *rows = (struct background_rows){0};
}
