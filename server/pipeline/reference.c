#include "server/pipeline/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/resize.h"
#include "server/pipeline/deep.h"

void reference_gray(const float *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = 0.299f * from[3 * i] + 0.587f * from[3 * i + 1] + 0.114f * from[3 * i + 2];
}

enum error_code reference_mask(const struct restoration *r, struct image **out, struct error *err)
{
    const struct image *from = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    const size_t pixels = (size_t)from->width * (size_t)from->height;
    enum error_code code = image_create(out, from->width, from->height, 3, from->bits, false, err);
    for (size_t i = 0; code == OK && i < 3 * pixels; i++) {
        if (from->bits == 16)
            ((uint16_t *)(*out)->pixels)[i] = ((const uint16_t *)from->alpha)[i / 3];
        else
            ((uint8_t *)(*out)->pixels)[i] = ((const uint8_t *)from->alpha)[i / 3];
    }
    return code;
}

/* RGB in floats, 0..255. */
struct reference_floats {
    float *data;
    size_t line; /* floats of a row */
    int width, height;
};

static void reference_target(void *user, const struct rect *rect, const struct rect *run, struct raster_target *target)
{
    (void)run;
    const struct reference_floats *floats = user;
    *target = (struct raster_target){.form = RASTER_F32,
                                     .data = floats->data + (size_t)rect->y * floats->line + 3 * (size_t)rect->x,
                                     .stride = floats->line * sizeof(float),
                                     .x = rect->x,
                                     .y = rect->y,
                                     .width = rect->width,
                                     .height = rect->height};
}

/* The upscaler's result at its own size; of a picture of RGB. even: as tile_sink has it. */
static enum error_code reference_run(struct step *step, const struct image *image, const struct tile_compat *cut,
                                     bool even, struct reference_floats *out, struct error *err)
{
    const int scale = step->model[ROLE_UPSCALER]->info.scale;
    const struct view_u8 view = {image->pixels, image->width, image->height, 3, 3 * (size_t)image->width};
    const struct tile_sink sink = {out, reference_target, NULL, NULL, false, even};
    struct tile_job *job = NULL;
    *out = (struct reference_floats){.line = 3 * (size_t)image->width * (size_t)scale,
                                     .width = image->width * scale,
                                     .height = image->height * scale};
    if (!(out->data = mem_alloc(out->line * (size_t)out->height, sizeof(float))))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture of %d × %d pixels", out->width,
                         out->height);
    enum error_code code = tile_begin_compat(&job, step, &view, cut, &sink, err);
    if (code == OK && image->bits == 16)
        tile_deepen(job, image->pixels);
    if (code == OK)
        code = tile_advance(job, 0, err);
    tile_end(&job);
    return code;
}

/* n samples of 0..255 from sample `at` of a plane on. */
static void reference_put(void *plane, int bits, size_t at, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bits == 16)
            ((uint16_t *)plane)[at + i] = (uint16_t)rintf(fminf(fmaxf(from[i] * 257, 0), 65535));
        else
            ((uint8_t *)plane)[at + i] = (uint8_t)rintf(fminf(fmaxf(from[i], 0), 255));
    }
}

/* Row y of colours into the picture, gray if that is. */
static void reference_put_colours(struct image *image, int y, float *row)
{
    const size_t width = (size_t)image->width, n = width * (size_t)image->channels;
    if (image->channels == 1)
        reference_gray(row, row, width);
    reference_put(image->pixels, image->bits, (size_t)y * n, row, n);
}

static enum error_code reference_alpha_linear(const struct restoration *r, struct image *image, struct error *err)
{
    const int width = r->picture->width, height = r->picture->height;
    const size_t wide = (size_t)image->width;
    struct resize_stream *stream = NULL;
    float *in = mem_alloc((size_t)width + wide, sizeof(float));
    enum error_code code = in ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code = resize_stream_create(&stream, width, height, image->width, image->height, 1, RESIZE_LINEAR, err);
    for (int y = 0, to = 0; y < height && code == OK; y++) {
        deep_read_alpha(r, y, in);
        resize_stream_push(stream, in, 1);
        for (; resize_stream_pull(stream, in + width, 1); to++)
            reference_put(image->alpha, image->bits, (size_t)to * wide, in + width, wide);
    }
    resize_stream_destroy(&stream);
    free(in);
    return code;
}

static enum error_code reference_alpha(struct step *step, const struct tile_compat *cut, bool by_network,
                                       struct image *image, struct error *err)
{
    struct reference_floats floats = {0};
    struct image *mask = NULL;
    if (!by_network || !step->model[ROLE_UPSCALER])
        return reference_alpha_linear(step->r, image, err);
    enum error_code code = reference_mask(step->r, &mask, err);
    if (code == OK)
        code = reference_run(step, mask, cut, true, &floats, err);
    for (int y = 0; code == OK && y < floats.height; y++) {
        float *row = floats.data + (size_t)y * floats.line;
        reference_gray(row, row, (size_t)floats.width);
        reference_put(image->alpha, image->bits, (size_t)y * (size_t)floats.width, row, (size_t)floats.width);
    }
    free(floats.data);
    image_destroy(&mask);
    return code;
}

/* At the upscaler's own scale. */
static enum error_code reference_large(struct step *step, const struct tile_compat *cut, bool by_network,
                                       struct image **out, struct error *err)
{
    const struct restoration *r = step->r;
    const struct image *from = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    const int channels = r->deep ? r->deep->channels : 3, bits = r->deep ? r->deep->bits : 8;
    struct reference_floats floats = {.width = from->width, .height = from->height};
    enum error_code code = OK;
    if (step->model[ROLE_UPSCALER])
        code = reference_run(step, from, cut, false, &floats, err);
    else if (!(floats.data = mem_alloc((size_t)from->width, 3 * sizeof(float))))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code = image_create(out, floats.width, floats.height, channels, bits, from->alpha != NULL, err);
    for (int y = 0; code == OK && y < floats.height; y++) {
        if (!step->model[ROLE_UPSCALER])
            deep_read(r, y, floats.data);
        reference_put_colours(*out, y, floats.data + (size_t)y * floats.line);
    }
    free(floats.data);
    return code == OK && from->alpha ? reference_alpha(step, cut, by_network, *out, err) : code;
}

/* cv::resize of 16 bits; of 8 it has whole numbers. */
static enum error_code reference_resize_deep(const struct image *from, struct image *to, const void *source,
                                             void *plane, int channels, struct error *err)
{
    const size_t in = (size_t)from->width * (size_t)channels, out = (size_t)to->width * (size_t)channels;
    struct resize_stream *stream = NULL;
    float *row = mem_alloc(in + out, sizeof(float));
    enum error_code code = row ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code = resize_stream_create(&stream, from->width, from->height, to->width, to->height, channels,
                                    RESIZE_LANCZOS4_NARROW, err);
    for (int y = 0, done = 0; y < from->height && code == OK; y++) {
        for (size_t i = 0; i < in; i++)
            row[i] = (float)((const uint16_t *)source)[(size_t)y * in + i] / 257;
        resize_stream_push(stream, row, 1);
        for (; resize_stream_pull(stream, row + in, 1); done++)
            reference_put(plane, 16, (size_t)done * out, row + in, out);
    }
    resize_stream_destroy(&stream);
    free(row);
    return code;
}

static enum error_code reference_resize(const struct image *from, struct image *to, struct error *err)
{
    enum error_code code;
    if (from->bits == 16) {
        code = reference_resize_deep(from, to, from->pixels, to->pixels, from->channels, err);
        return code == OK && from->alpha ? reference_resize_deep(from, to, from->alpha, to->alpha, 1, err) : code;
    }
    const struct view_u8 colours[2] = {image_view(from), image_view(to)};
    code = resize_lanczos4_exact(&colours[1], &colours[0], err);
    if (code != OK || !from->alpha)
        return code;
    const struct view_u8 alpha[2] = {image_alpha_view(from), image_alpha_view(to)};
    return resize_lanczos4_exact(&alpha[1], &alpha[0], err);
}

enum error_code reference_upscale(struct step *step, const struct tile_compat *cut, double outscale, bool by_network,
                                  struct image **out, struct error *err)
{
    const struct image *picture = step->r->picture;
    const int width = (int)(picture->width * outscale), height = (int)(picture->height * outscale);
    struct image *large = NULL;
    *out = NULL;
    enum error_code code = reference_large(step, cut, by_network, &large, err);
    if (code == OK && large->width == width && large->height == height) {
        *out = large;
        return OK;
    }
    if (code == OK)
        code = image_create(out, width, height, large->channels, large->bits, large->alpha != NULL, err);
    if (code == OK)
        code = reference_resize(large, *out, err);
    image_destroy(&large);
    if (code != OK)
        image_destroy(out);
    return code;
}
