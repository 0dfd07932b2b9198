#include "server/image/codec.h"

#include <stdlib.h>
#include <string.h>

#include "server/image/codec_row.h"
#include "server/image/icc.h"

static const struct codec_row *const codec_rows[] = {&codec_jpeg, &codec_png};
#define CODEC_COUNT (sizeof codec_rows / sizeof codec_rows[0])
#define CODEC_NAMES "JPEG, PNG"

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
    if (size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return error_set(err, ERROR_UNSUPPORTED, "WebP is not supported yet; send " CODEC_NAMES);
    return error_set(err, ERROR_UNSUPPORTED, "%snot a picture we read (" CODEC_NAMES ")", size ? "" : "empty: ");
}

enum error_code codec_probe(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err)
{
    const struct codec_row *row = NULL;
    *out = (struct codec_info){.orientation = 1};
    enum error_code code = codec_recognise(bytes, size, &row, err);
    return code == OK ? row->probe(bytes, size, out, err) : code;
}

enum error_code codec_decode(const uint8_t *bytes, size_t size, uint64_t max_pixels, struct image **out,
                             struct codec_info *info, struct error *err)
{
    struct codec_info own;
    *out = NULL;
    if (!info)
        info = &own;
    enum error_code code = codec_probe(bytes, size, info, err);
    if (code != OK)
        return code;
    uint64_t pixels = (uint64_t)info->width * (uint64_t)info->height;
    if (max_pixels && pixels > max_pixels)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %d×%d = %.1f megapixels; the limit is %.1f",
                         info->width, info->height, (double)pixels / 1e6, (double)max_pixels / 1e6);
    struct image *image = NULL;
    code = codec_of(info->format)->decode(bytes, size, info, &image, err);
    if (code == OK)
        code = image_orient(image, info->orientation, err);
    if (code != OK) {
        image_destroy(&image);
        return code;
    }
    image->format = info->format;
    *out = image;
    return OK;
}

enum error_code codec_encode(const struct image *image, enum image_format format, struct codec_options options,
                             struct codec_output *out, struct error *err)
{
    const struct codec_row *row = codec_of(format);
    *out = (struct codec_output){0};
    if (!row)
        return error_set(err, ERROR_UNSUPPORTED, "%s cannot be written yet; use " CODEC_NAMES,
                         image_format_name(format));
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
