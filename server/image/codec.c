#include "server/image/codec.h"

#include <stdlib.h>
#include <string.h>

#include "server/image/codec_row.h"
#include "server/image/icc.h"

static const struct codec_row *const codec_rows[] = {&codec_jpeg, &codec_png};
#define CODEC_COUNT (sizeof codec_rows / sizeof codec_rows[0])
#define CODEC_NAMES "a JPEG or PNG"

static const struct codec_row *codec_of(enum image_format format)
{
    for (size_t i = 0; i < CODEC_COUNT; i++)
        if (codec_rows[i]->format == format)
            return codec_rows[i];
    return NULL;
}

static enum error_code codec_recognise(const uint8_t *bytes, size_t size, const struct codec_row **out,
                                       struct error *err)
{
    for (size_t i = 0; i < CODEC_COUNT; i++)
        if (codec_rows[i]->matches(bytes, size)) {
            *out = codec_rows[i];
            return OK;
        }
    const char *other = codec_other(bytes, size);
    if (other)
        return error_set(err, ERROR_UNSUPPORTED, "%s", other);
    return error_set(err, ERROR_UNSUPPORTED,
                     size ? "this is not a picture that can be read; use " CODEC_NAMES
                          : "this is empty; use " CODEC_NAMES);
}

enum error_code codec_probe(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err)
{
    const struct codec_row *row = NULL;
    *out = (struct codec_info){.orientation = 1};
    enum error_code code = codec_recognise(bytes, size, &row, err);
    return code == OK ? row->probe(bytes, size, out, err) : code;
}

enum error_code codec_decode_damaged(const uint8_t *bytes, size_t size, uint64_t max_pixels, struct image **out,
                                     struct codec_info *info, struct codec_damage *damage, struct error *err)
{
    struct codec_info own;
    struct error local = ERROR_INIT;
    *out = NULL;
    if (damage)
        *damage = (struct codec_damage){0};
    if (!info)
        info = &own;
    enum error_code code = codec_probe(bytes, size, info, err);
    if (code != OK)
        return code;
    uint64_t pixels = (uint64_t)info->width * (uint64_t)info->height;
    if (max_pixels && pixels > max_pixels)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %d×%d = %.1f megapixels; the limit is %.1f",
                         info->width, info->height, (double)pixels / 1e6, (double)max_pixels / 1e6);
    const struct codec_row *row = codec_of(info->format);
    struct image *image = NULL;
    code = row->decode(bytes, size, info, &image, &local);
    if (code == ERROR_CORRUPT && damage) {
        error_clear(&local);
        code = row->salvage(bytes, size, &image, damage, &local);
    }
    if (code == OK)
        code = image_orient(image, info->orientation, &local);
    if (code != OK) {
        image_destroy(&image);
        error_set(err, code, "%s", local.text);
        error_detail(err, "%s", local.detail);
        return code;
    }
    image->format = info->format;
    *out = image;
    return OK;
}

enum error_code codec_decode(const uint8_t *bytes, size_t size, uint64_t max_pixels, struct image **out,
                             struct codec_info *info, struct error *err)
{
    return codec_decode_damaged(bytes, size, max_pixels, out, info, NULL, err);
}

enum error_code codec_encode(const struct image *image, enum image_format format, struct codec_options options,
                             struct codec_output *out, struct error *err)
{
    const struct codec_row *row = codec_of(format);
    *out = (struct codec_output){0};
    if (!row)
        return error_set(err, ERROR_UNSUPPORTED, "%s cannot be written yet; use jpg or png", image_format_name(format));
    if (image->width > row->max_side || image->height > row->max_side)
        return error_set(err, ERROR_TOO_LARGE, "a %s can have at most %d pixels a side, the result has %d×%d",
                         image_format_name(format), row->max_side, image->width, image->height);
    if (options.quality < 0 || options.quality > 100 || options.png_level < -1 || options.png_level > 9)
        return error_set(err, ERROR_INVALID, "quality must be 1 to 100 and png_level 0 to 9");
    if (options.quality == 0)
        options.quality = 95;
    return row->encode(image, options, out, err);
}

int codec_max_side(enum image_format format)
{
    const struct codec_row *row = codec_of(format);
    return row ? row->max_side : 0;
}

const char *codec_extension(enum image_format format)
{
    const struct codec_row *row = codec_of(format);
    return row ? row->extension : format == IMAGE_WEBP ? "webp" : "";
}

const char *codec_media_type(enum image_format format)
{
    const struct codec_row *row = codec_of(format);
    return row ? row->media_type : format == IMAGE_WEBP ? "image/webp" : "application/octet-stream";
}

void codec_gray_rows(struct image *image, int first)
{
    const size_t sample = (size_t)image->bits / 8, at = (size_t)first * (size_t)image->width,
                 count = (size_t)(image->height - first) * (size_t)image->width;
    memset((uint8_t *)image->pixels + at * (size_t)image->channels * sample, 128,
           count * (size_t)image->channels * sample);
    if (image->alpha)
        memset((uint8_t *)image->alpha + at * sample, 255, count * sample);
}

bool codec_buffer_add(struct codec_buffer *buffer, const void *bytes, size_t size)
{
    if (size > buffer->capacity - buffer->size) {
        size_t need;
        if (__builtin_add_overflow(buffer->size, size, &need))
            return false;
        need = need < 4096 ? 4096 : need;
        if (buffer->capacity <= SIZE_MAX / 2 && need < buffer->capacity * 2)
            need = buffer->capacity * 2;
        uint8_t *grown = realloc(buffer->bytes, need);
        if (!grown)
            return false;
        buffer->bytes = grown;
        buffer->capacity = need;
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    return true;
}

void codec_set_size(struct codec_info *info, uint32_t stored_width, uint32_t stored_height, int orientation)
{
    bool swap = orientation >= 5;
    info->orientation = orientation;
    info->width = (int)(swap ? stored_height : stored_width);
    info->height = (int)(swap ? stored_width : stored_height);
}

bool codec_icc_fits(const struct image *image)
{
    return icc_space(image->icc.data, image->icc.size) == (image->channels == 1 ? ICC_GRAY : ICC_RGB);
}
