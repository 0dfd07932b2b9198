#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "runtime/base/mem.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"
#include "server/image/png_data.h"

#define PNG_SIDE 0x7fffffff
#define PNG_XMP "XML:com.adobe.xmp"
#define PNG_CHUNK_BYTES (8u << 20) /* what a profile or text may unpack to; a bomb's is refused by libpng */
#define PNG_CHUNK_COUNT 64         /* kept text chunks */

static const uint8_t codec_png_magic[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

/* libpng reports by calling back and longjmp. The struct lies in a caller of the function that calls setjmp, so that
 * its fields are well defined after the jump. */
struct png_task {
    png_structp png;
    png_infop info;
    jmp_buf jump;
    struct error *err;
    enum error_code code;
    /* reading */
    uint8_t *line; /* one row with alpha interleaved */
    const uint8_t *bytes;
    size_t size, at;
    struct image *image;
    /* writing */
    struct codec_buffer file;
    char *xmp;
    unsigned notes;
};

static void codec_png_error(png_structp png, png_const_charp text)
{
    struct png_task *t = png_get_error_ptr(png);
    bool memory = strstr(text, "memory") != NULL;
    t->code = error_set(t->err, memory ? ERROR_NO_MEMORY : ERROR_CORRUPT, "%s: %s",
                        memory ? "PNG" : "the PNG is damaged or cut short", text);
    longjmp(t->jump, 1);
}

static void codec_png_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static bool codec_png_matches(const uint8_t *bytes, size_t size)
{
    return size >= sizeof codec_png_magic && memcmp(bytes, codec_png_magic, sizeof codec_png_magic) == 0;
}

static uint32_t codec_png_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The data of the first chunk of that name; NULL when there is none whole. */
static const uint8_t *codec_png_chunk(const uint8_t *bytes, size_t size, const char name[4], size_t *length)
{
    for (size_t at = sizeof codec_png_magic; size - at >= 12;) {
        size_t n = codec_png_u32(bytes + at);
        if (n > size - at - 12)
            break;
        if (memcmp(bytes + at + 4, name, 4) == 0) {
            *length = n;
            return bytes + at + 8;
        }
        at += n + 12;
    }
    *length = 0;
    return NULL;
}

static enum error_code codec_png_probe(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err)
{
    static const uint8_t channels[7] = {1, 0, 3, 3, 2, 0, 4}; /* by colour type: gray, RGB, palette, with alpha */
    const uint8_t *header = bytes + sizeof codec_png_magic;   /* length, name, 13 bytes, CRC */
    if (size < sizeof codec_png_magic + 25 || codec_png_u32(header) != 13 || memcmp(header + 4, "IHDR", 4) != 0)
        return error_set(err, ERROR_CORRUPT, "the PNG is damaged or cut short: no header");
    if (crc32(0, header + 4, 17) != codec_png_u32(header + 21))
        return error_set(err, ERROR_CORRUPT, "the PNG is damaged or cut short: the header's CRC is wrong");
    uint32_t width = codec_png_u32(header + 8), height = codec_png_u32(header + 12);
    unsigned depth = header[16], type = header[17];
    if (width == 0 || height == 0 || width > PNG_SIDE || height > PNG_SIDE || type > 6 || !channels[type])
        return error_set(err, ERROR_CORRUPT, "the PNG is damaged: its header makes no sense");
    size_t length;
    bool extra = (type & PNG_COLOR_MASK_ALPHA) == 0 && codec_png_chunk(bytes, size, "tRNS", &length);
    const uint8_t *tiff = codec_png_chunk(bytes, size, "eXIf", &length);
    *out = (struct codec_info){.format = IMAGE_PNG,
                               .bits = depth == 16 ? 16 : 8,
                               .channels = channels[type] + extra,
                               .alpha = extra || (type & PNG_COLOR_MASK_ALPHA)};
    codec_set_size(out, width, height, exif_orientation(tiff, length));
    return OK;
}

static void codec_png_read(png_structp png, png_bytep to, size_t size)
{
    struct png_task *t = png_get_io_ptr(png);
    if (size > t->size - t->at)
        png_error(png, "unexpected end of file");
    memcpy(to, t->bytes + t->at, size);
    t->at += size;
}

/* Copies row y between the picture's planes and one line of interleaved samples with alpha last. */
static void codec_png_row(const struct image *image, size_t y, uint8_t *line, bool to_line)
{
    size_t sample = (size_t)image->bits / 8, colour = (size_t)image->channels * sample;
    size_t at = y * (size_t)image->width;
    uint8_t *pixels = (uint8_t *)image->pixels + at * colour, *alpha = (uint8_t *)image->alpha + at * sample;
    for (int x = 0; x < image->width; x++, pixels += colour, alpha += sample, line += colour + sample) {
        memcpy(to_line ? line : pixels, to_line ? pixels : line, colour);
        memcpy(to_line ? line + colour : alpha, to_line ? alpha : line + colour, sample);
    }
}

/* Chunks that we do not use are skipped, so that they cannot cost anything. A wrong CRC anywhere means damage. */
static void codec_png_guard(png_structp png)
{
    static const png_byte skipped[] = "cHRM\0bKGD\0hIST\0pHYs\0sPLT\0tIME\0oFFs\0pCAL\0sCAL\0tEXt\0zTXt";
    png_set_user_limits(png, PNG_SIDE, PNG_SIDE); /* the caller's pixel limit is stricter, and was checked */
    png_set_chunk_malloc_max(png, PNG_CHUNK_BYTES);
    png_set_chunk_cache_max(png, PNG_CHUNK_COUNT);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, skipped, (int)(sizeof skipped / 5));
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
}

static void codec_png_expand(png_structp png, png_infop info)
{
    int type = png_get_color_type(png, info);
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY)
        png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_valid(png, info, PNG_INFO_tRNS))
        png_set_tRNS_to_alpha(png);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        png_set_swap(png);
}

/* Samples of another gamma than sRGB's (linear light, as renderers write it) are converted; a profile or sRGB chunk
 * overrules gAMA (PNG 1.2, 4.2.2), and a value that no picture has is ignored. The reference ignores all of them. */
static bool codec_png_gamma(png_structp png, png_infop info)
{
    double gamma;
    if (png_get_valid(png, info, PNG_INFO_sRGB) || png_get_valid(png, info, PNG_INFO_iCCP) ||
        !png_get_gAMA(png, info, &gamma) || gamma < 0.2 || gamma > 5 || fabs(gamma * 2.2 - 1) < 0.05)
        return false;
    png_set_gamma(png, PNG_DEFAULT_sRGB, gamma);
    return true;
}

static enum error_code codec_png_metadata(struct png_task *t)
{
    png_charp name;
    int compression;
    png_bytep data = NULL;
    png_uint_32 size = 0;
    png_textp text;
    int texts = png_get_text(t->png, t->info, &text, NULL);
    enum error_code code = OK;
    if (png_get_iCCP(t->png, t->info, &name, &compression, &data, &size))
        code = image_blob_set(&t->image->icc, data, size, t->err);
    if (code == OK && png_get_eXIf_1(t->png, t->info, &size, &data))
        code = image_blob_set(&t->image->exif, data, size, t->err);
    for (int i = 0; i < texts && code == OK && !t->image->xmp.data; i++)
        if (strcmp(text[i].key, PNG_XMP) == 0 && text[i].text)
            code = image_blob_set(&t->image->xmp, text[i].text, strlen(text[i].text), t->err);
    return code;
}

static bool codec_png_try_decode(struct png_task *t)
{
    if (setjmp(t->jump))
        return false;
    png_structp png = t->png;
    codec_png_guard(png);
    png_set_read_fn(png, t, codec_png_read);
    png_read_info(png, t->info);
    codec_png_expand(png, t->info);
    bool gamma = codec_png_gamma(png, t->info);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, t->info);
    int width = (int)png_get_image_width(png, t->info), height = (int)png_get_image_height(png, t->info);
    int all = png_get_channels(png, t->info), bits = png_get_bit_depth(png, t->info);
    bool alpha = all == 2 || all == 4;
    size_t stride = png_get_rowbytes(png, t->info);
    t->code = image_create(&t->image, width, height, alpha ? all - 1 : all, bits, alpha, t->err);
    if (t->code == OK && gamma)
        t->image->notes |= IMAGE_NOTE_GAMMA;
    if (t->code == OK && alpha && !(t->line = mem_calloc(stride, 1)))
        t->code = error_set(t->err, ERROR_NO_MEMORY, "out of memory for a row of pixels");
    if (t->code != OK)
        return false;
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < (size_t)height; y++) {
            if (alpha && pass > 0) /* a pass writes only its own pixels of the row */
                codec_png_row(t->image, y, t->line, true);
            png_read_row(png, alpha ? t->line : (uint8_t *)t->image->pixels + y * stride, NULL);
            if (alpha)
                codec_png_row(t->image, y, t->line, false);
        }
    png_read_end(png, t->info);
    t->code = codec_png_metadata(t);
    return t->code == OK;
}

static enum error_code codec_png_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                        struct image **out, struct error *err)
{
    (void)info;
    struct png_task t = {.bytes = bytes, .size = size, .err = err};
    t.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &t, codec_png_error, codec_png_warning);
    t.info = t.png ? png_create_info_struct(t.png) : NULL;
    if (!t.info)
        t.code = error_set(err, ERROR_NO_MEMORY, "out of memory for the PNG reader");
    else if (!codec_png_try_decode(&t))
        image_destroy(&t.image);
    png_destroy_read_struct(&t.png, &t.info, NULL);
    free(t.line);
    *out = t.image;
    return t.code;
}

static void codec_png_write(png_structp png, png_bytep bytes, size_t size)
{
    struct png_task *t = png_get_io_ptr(png);
    if (!codec_buffer_add(&t->file, bytes, size))
        png_error(png, "out of memory");
}

static void codec_png_flush(png_structp png)
{
    (void)png;
}

static void codec_png_set_metadata(struct png_task *t, const struct image *image)
{
    png_set_benign_errors(t->png, 1); /* a profile that libpng dislikes is left out, the picture is written */
    if (image->icc.data && codec_icc_fits(image))
        png_set_iCCP(t->png, t->info, "icc", PNG_COMPRESSION_TYPE_BASE, image->icc.data, (png_uint_32)image->icc.size);
    if (image->icc.data && !png_get_valid(t->png, t->info, PNG_INFO_iCCP))
        t->notes |= IMAGE_NOTE_ICC_DROPPED;
    if (image->exif.data)
        png_set_eXIf_1(t->png, t->info, (png_uint_32)image->exif.size, image->exif.data);
    if (t->xmp) {
        char key[] = PNG_XMP, none[] = "";
        png_text text = {.compression = PNG_ITXT_COMPRESSION_NONE,
                         .key = key,
                         .text = t->xmp,
                         .itxt_length = strlen(t->xmp),
                         .lang = none,
                         .lang_key = none};
        png_set_text(t->png, t->info, &text, 1);
    }
}

/* A row as it stands in the file. */
static void codec_png_source(const void *context, int y, uint8_t *line)
{
    const struct image *image = context;
    size_t n = (size_t)image->width * (size_t)image->channels * (size_t)(image->bits / 8);
    if (image->alpha) {
        codec_png_row(image, (size_t)y, line, true);
        n += (size_t)image->width * (size_t)(image->bits / 8);
    } else {
        memcpy(line, (const uint8_t *)image->pixels + (size_t)y * n, n);
    }
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && image->bits == 16)
        for (size_t i = 0; i < n; i += 2) {
            uint8_t low = line[i];
            line[i] = line[i + 1];
            line[i + 1] = low;
        }
}

/* One IDAT chunk. */
static bool codec_png_chunk_out(void *user, const uint8_t *bytes, size_t size)
{
    struct codec_buffer *file = user;
    const uint8_t head[8] = {
        (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size, 'I', 'D', 'A', 'T'};
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, head + 4, 4), bytes, size);
    const uint8_t tail[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8), (uint8_t)crc};
    return codec_buffer_add(file, head, sizeof head) && codec_buffer_add(file, bytes, size) &&
           codec_buffer_add(file, tail, sizeof tail);
}

/* libpng writes everything but the pixels. */
static bool codec_png_try_encode(struct png_task *t, const struct image *image, int level)
{
    if (setjmp(t->jump))
        return false;
    int alpha = image->alpha != NULL, colour = image->channels == 1 ? 0 : PNG_COLOR_MASK_COLOR;
    size_t pixel = (size_t)(image->channels + alpha) * (size_t)(image->bits / 8);
    png_set_user_limits(t->png, PNG_SIDE, PNG_SIDE);
    png_set_write_fn(t->png, t, codec_png_write, codec_png_flush);
    png_set_IHDR(t->png, t->info, (png_uint_32)image->width, (png_uint_32)image->height, image->bits,
                 colour | (alpha ? PNG_COLOR_MASK_ALPHA : 0), PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    codec_png_set_metadata(t, image);
    png_write_info(t->png, t->info);
    const struct png_data data = {.stride = (size_t)image->width * pixel,
                                  .pixel = pixel,
                                  .height = image->height,
                                  .level = level < 0 ? CODEC_PNG_LEVEL : level,
                                  .context = image,
                                  .row = codec_png_source};
    t->code = png_data_encode(&data, codec_png_chunk_out, &t->file, t->err);
    if (t->code == OK)
        png_write_chunk(t->png, (png_const_bytep) "IEND", NULL, 0);
    return t->code == OK;
}

static enum error_code codec_png_encode(const struct image *image, struct codec_options options,
                                        struct codec_output *out, struct error *err)
{
    struct png_task t = {.err = err};
    if (image->xmp.data)
        t.xmp = strndup((const char *)image->xmp.data, image->xmp.size);
    t.png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &t, codec_png_error, codec_png_warning);
    t.info = t.png ? png_create_info_struct(t.png) : NULL;
    if (!t.info || (image->xmp.data && !t.xmp))
        t.code = error_set(err, ERROR_NO_MEMORY, "out of memory for the PNG writer");
    else if (codec_png_try_encode(&t, image, options.png_level))
        *out = (struct codec_output){t.file.bytes, t.file.size, t.notes};
    else
        free(t.file.bytes);
    png_destroy_write_struct(&t.png, &t.info);
    free(t.xmp);
    return t.code;
}

const struct codec_row codec_png = {.format = IMAGE_PNG,
                                    .extension = "png",
                                    .media_type = "image/png",
                                    .max_side = PNG_SIDE,
                                    .matches = codec_png_matches,
                                    .probe = codec_png_probe,
                                    .decode = codec_png_decode,
                                    .encode = codec_png_encode};
