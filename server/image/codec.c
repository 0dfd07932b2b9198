#include "server/image/codec.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/spill.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"
#include "server/image/icc.h"
#include "server/image/profile.h"

static const struct codec_row *const codec_rows[] = {&codec_jpeg, &codec_png,  &codec_webp, &codec_tiff,
                                                     &codec_avif, &codec_heic, &codec_jxl,  &codec_jp2};
#define CODEC_COUNT (sizeof codec_rows / sizeof codec_rows[0])
#define CODEC_PASSED ((size_t)4 << 20) /* bytes of a file */
#define CODEC_NAMES "a JPEG or PNG"

/* Of an unknown format a row that can do nothing. */
static const struct codec_row *codec_of(enum image_format format)
{
    static const struct codec_row none = {.extension = "", .media_type = "application/octet-stream"};
    for (size_t i = 0; i < CODEC_COUNT; i++)
        if (codec_rows[i]->format == format)
            return codec_rows[i];
    return &none;
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

enum error_code codec_probe_page(const uint8_t *bytes, size_t size, int page, struct codec_info *out, struct error *err)
{
    const struct codec_row *row = NULL;
    *out = (struct codec_info){.orientation = 1};
    enum error_code code = codec_recognise(bytes, size, &row, err);
    if (code == OK && !row->decode)
        return error_set(err, ERROR_UNSUPPORTED,
                         "this is %s, and this build cannot read it, because it was made without %s; use " CODEC_NAMES,
                         row->title, row->library);
    if (code == OK)
        code = row->probe(bytes, size, page, out, err);
    out->page = page;
    out->pages = out->pages == CODEC_MANY ? 0 : out->pages < 1 ? 1 : out->pages;
    if (code == OK && out->pages && page > out->pages)
        code = error_set(err, ERROR_INVALID, "page: the file has %d page%s; allowed: 1%s%.0d", out->pages,
                         out->pages > 1 ? "s" : "", out->pages > 1 ? " to " : "", out->pages > 1 ? out->pages : 0);
    return code;
}

enum error_code codec_probe(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err)
{
    return codec_probe_page(bytes, size, 1, out, err);
}

#define CODEC_MAX_DENSITY 1e6 /* px an inch: more is a damaged number */

/* The resolution upright; where the format says nothing, EXIF may. */
static void codec_density(struct image *image, int orientation)
{
    const double across = image->density[0];
    if (across > 0 && orientation >= 5) {
        image->density[0] = image->density[1];
        image->density[1] = across;
    }
    if (!(across > 0))
        image->density[0] = image->density[1] = exif_density(image->exif.data, image->exif.size);
    for (int i = 0; i < 2; i++)
        image->density[i] = image->density[i] < CODEC_MAX_DENSITY ? image->density[i] : 0;
}

static int codec_by = 1;

void codec_read_reduced(int by)
{
    codec_by = by;
}

int codec_reduced(void)
{
    return codec_by;
}

int codec_reduction(const struct codec_info *info, int least)
{
    const int longest = info->width > info->height ? info->width : info->height;
    int by = 1;
    while (info->format == IMAGE_JPEG && by < 8 && longest / (2 * by) >= least)
        by *= 2;
    return by;
}

enum error_code codec_decode_page(const uint8_t *bytes, size_t size, int page, uint64_t max_pixels, struct image **out,
                                  struct codec_info *info, struct codec_damage *damage, struct error *err)
{
    struct codec_info own;
    struct error local = ERROR_INIT;
    *out = NULL;
    if (damage)
        *damage = (struct codec_damage){0};
    if (!info)
        info = &own;
    enum error_code code = codec_probe_page(bytes, size, page, info, err);
    if (code != OK)
        return code;
    uint64_t pixels = (uint64_t)info->width * (uint64_t)info->height;
    if (max_pixels && pixels > max_pixels)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %d×%d = %.1f megapixels; the limit is %.1f",
                         info->width, info->height, (double)pixels / 1e6, (double)max_pixels / 1e6);
    const struct codec_row *row = codec_of(info->format);
    struct image *image = NULL;
    if (info->format == IMAGE_JPEG) {
        info->width = (info->width + codec_by - 1) / codec_by;
        info->height = (info->height + codec_by - 1) / codec_by;
    }
    image_share_later(info->orientation > 1); /* first it is to be turned */
    code = row->decode(bytes, size, info, &image, &local);
    if (code == ERROR_CORRUPT && damage && row->salvage) {
        error_clear(&local);
        code = row->salvage(bytes, size, &image, damage, &local);
    }
    image_share_later(false);
    if (code == OK)
        code = image_orient(image, info->orientation, &local);
    if (code == OK)
        code = profile_apply(image, &local);
    if (code == OK)
        codec_density(image, info->orientation);
    if (code == OK && (image->width != info->width || image->height != info->height))
        code = codec_damaged(&local, row->title, "its header promised another size");
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
    return codec_decode_page(bytes, size, 1, max_pixels, out, info, NULL, err);
}

enum error_code codec_encode(const struct image *image, enum image_format format, struct codec_options options,
                             struct codec_output *out, struct error *err)
{
    const struct codec_row *row = codec_of(format);
    *out = (struct codec_output){0};
    if (!row->encode)
        return error_set(err, ERROR_UNSUPPORTED, "%s cannot be written; use jpg or png", image_format_name(format));
    if (image->width > row->max_side || image->height > row->max_side)
        return error_set(err, ERROR_TOO_LARGE, "a %s can have at most %d pixels a side, the result has %d×%d",
                         image_format_name(format), row->max_side, image->width, image->height);
    if (options.quality < 0 || options.quality > 100 || options.png_level < -1 || options.png_level > 9)
        return error_set(err, ERROR_INVALID, "quality must be 1 to 100 and png_level 0 to 9");
    if (options.quality == 0)
        options.quality = 95;
    enum error_code code = row->encode(image, options, out, err);
    out->notes |= image->iptc.size && !row->iptc ? (unsigned)IMAGE_NOTE_IPTC_DROPPED : 0u;
    return code;
}

int codec_max_side(enum image_format format)
{
    const struct codec_row *row = codec_of(format);
    return row->encode ? row->max_side : 0;
}

uint64_t codec_max_pixels(enum image_format format)
{
    return codec_of(format)->max_pixels;
}

bool codec_reads(enum image_format format)
{
    return codec_of(format)->decode;
}

const char *codec_missing(enum image_format format)
{
    const struct codec_row *row = codec_of(format);
    return row->decode ? NULL : row->library;
}

bool codec_salvages(enum image_format format)
{
    return codec_of(format)->salvage;
}

bool codec_is_lossless(enum image_format format)
{
    return codec_of(format)->lossless;
}

bool codec_is_deep(enum image_format format)
{
    return codec_of(format)->deep;
}

bool codec_is_gray(enum image_format format)
{
    return codec_of(format)->gray;
}

bool codec_is_dense(enum image_format format)
{
    return codec_of(format)->dense;
}

bool codec_is_cmyk(enum image_format format)
{
    return codec_of(format)->cmyk;
}

enum image_format codec_result_format(enum image_format format, bool alpha)
{
    return codec_max_side(format) ? format : codec_of(format)->lossy && !alpha ? IMAGE_JPEG : IMAGE_PNG;
}

enum image_format codec_of_extension(const char *extension)
{
    static const struct {
        const char *spelling;
        enum image_format format;
    } others[] = {{"jpeg", IMAGE_JPEG}, {"jpe", IMAGE_JPEG}, {"jfif", IMAGE_JPEG}, {"tif", IMAGE_TIFF},
                  {"heif", IMAGE_HEIC}, {"j2k", IMAGE_JP2},  {"j2c", IMAGE_JP2},   {"jpx", IMAGE_JP2}};
    for (size_t i = 0; i < CODEC_COUNT; i++)
        if (!strcasecmp(extension, codec_rows[i]->extension))
            return codec_rows[i]->format;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcasecmp(extension, others[i].spelling))
            return others[i].format;
    return IMAGE_NONE;
}

const char *codec_extension(enum image_format format)
{
    return codec_of(format)->extension;
}

const char *codec_media_type(enum image_format format)
{
    return codec_of(format)->media_type;
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
        if (buffer->capacity < SPILL_LEAST && need < buffer->capacity * 2)
            need = buffer->capacity * 2;
        else if (need <= SIZE_MAX - SPILL_LEAST && need >= SPILL_LEAST)
            need += SPILL_LEAST;
        uint8_t *grown = spill_grow(buffer->bytes, buffer->size, need);
        if (!grown)
            return false;
        buffer->bytes = grown;
        buffer->capacity = need;
    }
    memcpy(buffer->bytes + buffer->size, bytes, size);
    if (buffer->size / CODEC_PASSED != (buffer->size + size) / CODEC_PASSED)
        spill_passed(buffer->bytes, buffer->size);
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

void codec_interleave(const struct image *image, size_t y, uint8_t *line, bool to_line)
{
    size_t sample = (size_t)image->bits / 8, colour = (size_t)image->channels * sample;
    size_t at = y * (size_t)image->width;
    uint8_t *pixels = (uint8_t *)image->pixels + at * colour, *alpha = (uint8_t *)image->alpha + at * sample;
    for (int x = 0; x < image->width; x++, pixels += colour, alpha += sample, line += colour + sample) {
        memcpy(to_line ? line : pixels, to_line ? pixels : line, colour);
        memcpy(to_line ? line + colour : alpha, to_line ? alpha : line + colour, sample);
    }
}

void codec_row_8(const struct image *image, int y, uint8_t *to)
{
    const size_t channels = (size_t)image->channels, first = (size_t)y * (size_t)image->width;
    const uint8_t *bytes[2] = {image->pixels, image->alpha};
    const uint16_t *deep[2] = {image->pixels, image->alpha};
    for (size_t i = first; i < first + (size_t)image->width; i++)
        for (size_t c = 0; c < (image->alpha ? 4 : 3); c++) {
            const size_t plane = c == 3, at = plane ? i : i * channels + c % channels;
            *to++ = image->bits == 8 ? bytes[plane][at] : (uint8_t)((deep[plane][at] * 255u + 32767u) / 65535u);
        }
}

void codec_unpremultiply(struct image *image)
{
    const size_t pixels = (size_t)image->width * (size_t)image->height, channels = (size_t)image->channels;
    const unsigned most = image->bits == 16 ? 65535 : 255;
    for (size_t i = 0; i < pixels; i++) {
        const unsigned alpha = image->bits == 16 ? ((uint16_t *)image->alpha)[i] : ((uint8_t *)image->alpha)[i];
        for (size_t c = i * channels; alpha && alpha < most && c < (i + 1) * channels; c++) {
            const uint64_t v = image->bits == 16 ? ((uint16_t *)image->pixels)[c] : ((uint8_t *)image->pixels)[c];
            const uint64_t straight = (v * most + alpha / 2) / alpha, value = straight < most ? straight : most;
            if (image->bits == 16)
                ((uint16_t *)image->pixels)[c] = (uint16_t)value;
            else
                ((uint8_t *)image->pixels)[c] = (uint8_t)value;
        }
    }
}

static void codec_widen_plane(uint16_t *samples, size_t count, unsigned most)
{
    for (size_t i = 0; i < count; i++)
        samples[i] = (uint16_t)(((samples[i] < most ? samples[i] : most) * 65535u + most / 2) / most);
}

void codec_widen(struct image *image, int bits)
{
    const size_t pixels = (size_t)image->width * (size_t)image->height;
    codec_widen_plane(image->pixels, pixels * (size_t)image->channels, (1u << bits) - 1);
    if (image->alpha)
        codec_widen_plane(image->alpha, pixels, (1u << bits) - 1);
}

enum error_code codec_damaged(struct error *err, const char *title, const char *detail)
{
    error_set(err, ERROR_CORRUPT, "this is %s that is damaged or cut short", title);
    error_detail(err, "%s", detail ? detail : "");
    return ERROR_CORRUPT;
}

bool codec_next_box(const uint8_t **at, const uint8_t *end, struct codec_box *out)
{
    if (end - *at < 8)
        return false;
    uint64_t size = codec_big(*at, 4), head = 8;
    out->type = *at + 4;
    if (size == 1 && end - *at >= 16) {
        size = codec_big(*at + 8, 8);
        head = 16;
    }
    if (size == 0 || size > (uint64_t)(end - *at))
        size = (uint64_t)(end - *at);
    if (size < head)
        return false;
    out->data = *at + head;
    out->size = (size_t)(size - head);
    *at += size;
    return true;
}

bool codec_icc_fits(const struct image *image)
{
    return icc_space(image->icc.data, image->icc.size) == (image->channels == 1 ? ICC_GRAY : ICC_RGB);
}
