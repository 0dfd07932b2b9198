#include "server/image/plane_file.h"

#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/image/resize.h"

void plane_file_clear(struct plane_file *file)
{
    free(file->icc.data);
    *file = (struct plane_file){.fd = -1};
}

static enum error_code plane_file_read(const struct plane_file *file, uint64_t at, void *to, size_t size,
                                       struct error *err)
{
    uint8_t *next = to;
    while (size) {
        const ssize_t got = pread(file->fd, next, size, (off_t)at);
        if (got <= 0)
            return error_set(err, ERROR_IO, "the pixels of a picture could not be read again");
        next += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return OK;
}

/* A part of one plane. */
static enum error_code plane_file_part(const struct plane_file *file, uint64_t plane, int channels, const int part[4],
                                       uint8_t *to, struct error *err)
{
    const uint64_t pixel = (uint64_t)channels * (uint64_t)(file->bits / 8), row = pixel * (uint64_t)file->width;
    const size_t kept = (size_t)part[2] * pixel;
    enum error_code code = OK;
    for (int y = 0; !code && y < part[3]; y++, to += kept)
        code = plane_file_read(file, plane + (uint64_t)(part[1] + y) * row + (uint64_t)part[0] * pixel, to, kept, err);
    return code;
}

enum error_code plane_file_cut(const struct plane_file *file, int x, int y, int width, int height, struct image **out,
                               struct error *err)
{
    const int part[4] = {x, y, width, height};
    const bool alpha = file->alpha != PLANE_FILE_NONE;
    *out = NULL;
    if (x < 0 || y < 0 || width < 1 || height < 1 || width > file->width - x || height > file->height - y)
        return error_set(err, ERROR_INVALID, "the picture has %d × %d pixels, and the part %d,%d,%d,%d is not in it",
                         file->width, file->height, x, y, width, height);
    struct image *image;
    enum error_code code = image_create(&image, width, height, file->channels, file->bits, alpha, err);
    if (code)
        return code;
    code = plane_file_part(file, file->pixels, file->channels, part, image->pixels, err);
    if (!code && alpha)
        code = plane_file_part(file, file->alpha, 1, part, image->alpha, err);
    if (!code)
        code = image_blob_set(&image->icc, file->icc.data, file->icc.size, err);
    if (code)
        image_destroy(&image);
    *out = image;
    return code;
}

/* Samples of rows, 0 to 255; of a picture with alpha, colours times alpha, and alpha. */
static void plane_file_floats(const struct image *band, float *to)
{
    const size_t pixels = (size_t)band->width * (size_t)band->height;
    const int colours = band->channels;
    const float scale = band->bits == 8 ? 1.0f : 255.0f / 65535.0f;
    const uint8_t *bytes = band->pixels, *opaque = band->alpha;
    const uint16_t *words = band->pixels, *opaque_words = band->alpha;
    for (size_t i = 0; i < pixels; i++) {
        float alpha = 1;
        if (band->alpha)
            alpha = (band->bits == 8 ? (float)opaque[i] : (float)opaque_words[i] * scale) / 255;
        for (int c = 0; c < colours; c++, to++)
            *to = (band->bits == 8 ? (float)*bytes++ : (float)*words++ * scale) * alpha;
        if (band->alpha)
            *to++ = alpha * 255;
    }
}

static uint8_t plane_file_byte(float value)
{
    value += 0.5f;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Rows of the result, from the one at `first`. */
static void plane_file_store(struct image *image, size_t first, const float *from, size_t rows)
{
    const size_t width = (size_t)image->width, colours = (size_t)image->channels;
    uint8_t *to = (uint8_t *)image->pixels + first * width * colours;
    uint8_t *alpha = image->alpha ? (uint8_t *)image->alpha + first * width : NULL;
    for (size_t i = 0; i < rows * width; i++) {
        const float opaque = alpha ? from[colours] / 255 : 1;
        for (size_t c = 0; c < colours; c++)
            *to++ = opaque > 0 ? plane_file_byte(*from++ / opaque) : (from++, (uint8_t)255);
        if (alpha)
            *alpha++ = plane_file_byte(*from++);
    }
}

struct plane_file_reduction {
    const struct plane_file *file;
    struct image *image;
    struct resize_stream *stream;
    float *rows, *results; /* RESIZE_ROWS of each */
};

static enum error_code plane_file_run(const struct plane_file_reduction *r, struct error *err)
{
    enum error_code code = OK;
    size_t done = 0;
    for (int y = 0, count; !code && y < r->file->height; y += count) {
        struct image *band;
        count = r->file->height - y < RESIZE_ROWS ? r->file->height - y : RESIZE_ROWS;
        if ((code = plane_file_cut(r->file, 0, y, r->file->width, count, &band, err)))
            return code;
        plane_file_floats(band, r->rows);
        image_destroy(&band);
        resize_stream_push(r->stream, r->rows, count);
        for (int got; (got = resize_stream_pull(r->stream, r->results, RESIZE_ROWS)); done += (size_t)got)
            plane_file_store(r->image, done, r->results, (size_t)got);
    }
    return code;
}

static int plane_file_side(int side, int longest, int most)
{
    const int64_t reduced = ((int64_t)side * most + longest / 2) / longest;
    return longest <= most ? side : reduced < 1 ? 1 : (int)reduced;
}

enum error_code plane_file_reduce(const struct plane_file *file, int longest, struct image **out, struct error *err)
{
    const int side = file->width > file->height ? file->width : file->height;
    const int width = plane_file_side(file->width, side, longest),
              height = plane_file_side(file->height, side, longest);
    const bool alpha = file->alpha != PLANE_FILE_NONE;
    const int channels = file->channels + alpha;
    struct plane_file_reduction r = {.file = file};
    *out = NULL;
    enum error_code code = image_create(&r.image, width, height, file->channels, 8, alpha, err);
    if (!code)
        code = resize_stream_create(&r.stream, file->width, file->height, width, height, channels, RESIZE_AREA, err);
    if (!code) {
        r.rows = mem_alloc((size_t)file->width * RESIZE_ROWS, (size_t)channels * sizeof *r.rows);
        r.results = mem_alloc((size_t)width * RESIZE_ROWS, (size_t)channels * sizeof *r.results);
        if (!r.rows || !r.results)
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for rows of a preview");
    }
    if (!code)
        code = plane_file_run(&r, err);
    if (!code)
        code = image_blob_set(&r.image->icc, file->icc.data, file->icc.size, err);
    resize_stream_destroy(&r.stream);
    free(r.rows);
    free(r.results);
    if (code)
        image_destroy(&r.image);
    *out = r.image;
    return code;
}
