#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>
#include <zlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"
#include "server/image/iptc.h"
#include "server/image/png_data.h"
#include "server/image/profile.h"

#define PNG_SIDE 0x7fffffff
#define PNG_XMP "XML:com.adobe.xmp"
#define PNG_CHUNK_BYTES (8u << 20) /* what a profile or text may unpack to; a bomb's is refused by libpng */
#define PNG_INCH 0.0254            /* metres */
#define PNG_CHUNKS 65536           /* in a file; most have a few dozen */

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
    int rows; /* that were read; of an interlaced picture none until all passes are done */
    /* writing */
    struct codec_buffer file;
    char *xmp, *iptc;
    unsigned notes;
};

static void codec_png_error(png_structp png, png_const_charp text)
{
    struct png_task *t = png_get_error_ptr(png);
    bool memory = strstr(text, "memory") != NULL;
    t->code = error_set(t->err, memory ? ERROR_NO_MEMORY : ERROR_CORRUPT,
                        memory ? "out of memory for the PNG" : "the PNG is damaged or cut short");
    error_detail(t->err, "%s", text);
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

/* What we look for in the chunks ourselves. */
struct png_found {
    const uint8_t *exif, *xmp, *iptc; /* NULL: none */
    size_t exif_size, xmp_size, iptc_size;
    bool iptc_packed;     /* in a zTXt chunk, else in a tEXt chunk */
    bool transparent;     /* a tRNS chunk before the pixels */
    bool profile;         /* an iCCP chunk, of which libpng may think nothing */
    const uint8_t *codes; /* of a cICP chunk: primaries and transfer; NULL: none */
};

/* One pass over the chunks up to the last whole one; bounded in their number. */
static enum error_code codec_png_walk(const uint8_t *bytes, size_t size, struct png_found *out, struct error *err)
{
    *out = (struct png_found){0};
    bool pixels = false;
    int count = 0;
    for (size_t at = sizeof codec_png_magic; size - at >= 12;) {
        const size_t n = codec_png_u32(bytes + at);
        const uint8_t *name = bytes + at + 4, *data = name + 4;
        if (n > size - at - 12)
            break;
        if (++count > PNG_CHUNKS)
            return error_set(err, ERROR_CORRUPT, "the PNG has more than %d chunks", PNG_CHUNKS);
        pixels = pixels || memcmp(name, "IDAT", 4) == 0;
        if (!pixels && memcmp(name, "tRNS", 4) == 0) {
            out->transparent = true;
        } else if (!pixels && memcmp(name, "iCCP", 4) == 0) {
            out->profile = true;
        } else if (!pixels && n == 4 && memcmp(name, "cICP", 4) == 0) {
            out->codes = data;
        } else if (!out->exif && memcmp(name, "eXIf", 4) == 0) {
            out->exif = data;
            out->exif_size = n;
        } else if (!out->xmp && memcmp(name, "iTXt", 4) == 0 && n > sizeof PNG_XMP &&
                   memcmp(data, PNG_XMP, sizeof PNG_XMP) == 0) {
            out->xmp = data + sizeof PNG_XMP;
            out->xmp_size = n - sizeof PNG_XMP;
        } else if (!out->iptc && (memcmp(name, "zTXt", 4) == 0 || memcmp(name, "tEXt", 4) == 0) &&
                   n > sizeof IPTC_TEXT && memcmp(data, IPTC_TEXT, sizeof IPTC_TEXT) == 0) {
            out->iptc = data + sizeof IPTC_TEXT;
            out->iptc_size = n - sizeof IPTC_TEXT;
            out->iptc_packed = *name == 'z';
        }
        at += n + 12;
    }
    return OK;
}

static enum error_code codec_png_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                       struct error *err)
{
    (void)page;
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
    struct png_found found;
    enum error_code code = codec_png_walk(bytes, size, &found, err);
    if (code)
        return code;
    const bool extra = (type & PNG_COLOR_MASK_ALPHA) == 0 && found.transparent;
    *out = (struct codec_info){.format = IMAGE_PNG,
                               .bits = depth == 16 ? 16 : 8,
                               .channels = channels[type] + extra,
                               .alpha = extra || (type & PNG_COLOR_MASK_ALPHA)};
    codec_set_size(out, width, height, exif_orientation(found.exif, found.exif_size));
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

/* Unused chunks are skipped, so that they cost nothing. A wrong CRC anywhere means damage. */
static void codec_png_guard(png_structp png)
{
    static const png_byte skipped[] = "bKGD\0hIST\0sPLT\0tIME\0oFFs\0pCAL\0sCAL\0tEXt\0zTXt\0iTXt";
    png_set_user_limits(png, PNG_SIDE, PNG_SIDE); /* the caller's pixel limit is stricter, and was checked */
    png_set_chunk_malloc_max(png, PNG_CHUNK_BYTES);
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

/* Samples with a gamma other than sRGB's (linear light, as renderers write it) are converted; a profile or sRGB chunk
 * overrides gAMA (PNG 1.2, 4.2.2), and impossible values are ignored. The reference ignores all of these. */
static bool codec_png_gamma(png_structp png, png_infop info)
{
    double gamma;
    if (png_get_valid(png, info, PNG_INFO_sRGB) || png_get_valid(png, info, PNG_INFO_iCCP) ||
        !png_get_gAMA(png, info, &gamma) || gamma < 0.2 || gamma > 5 || fabs(gamma * 2.2 - 1) < 0.05)
        return false;
    png_set_gamma(png, PNG_DEFAULT_sRGB, gamma);
    return true;
}

/* Unpacks text up to PNG_CHUNK_BYTES; NULL for more, for damage, and when memory is out. */
static uint8_t *codec_png_inflate(const uint8_t *packed, size_t size, size_t *out_size)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)packed, .avail_in = (uInt)size};
    uint8_t *text = NULL;
    size_t room = 0;
    int got = inflateInit(&z);
    while (got == Z_OK && room < PNG_CHUNK_BYTES) {
        room = room ? 2 * room : 1 << 14;
        uint8_t *grown = realloc(text, room);
        if (!grown)
            break;
        text = grown;
        z.next_out = text + z.total_out;
        z.avail_out = (uInt)(room - z.total_out);
        got = inflate(&z, Z_NO_FLUSH);
    }
    *out_size = z.total_out;
    inflateEnd(&z);
    if (got == Z_STREAM_END)
        return text;
    free(text);
    return NULL;
}

/* An iTXt chunk behind its keyword: whether it is packed and how, a language, a keyword in it, the text. libpng would
 * unpack and keep every text there is. */
static enum error_code codec_png_xmp(struct image *image, const uint8_t *data, size_t size, struct error *err)
{
    if (size < 2)
        return OK;
    const bool packed = data[0] != 0;
    const uint8_t *end = data + size, *at = data + 2;
    for (int i = 0; i < 2 && at; i++) {
        at = memchr(at, 0, (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    if (!at || (packed && data[1] != 0))
        return OK;
    size_t length = (size_t)(end - at);
    uint8_t *text = packed ? codec_png_inflate(at, length, &length) : NULL;
    if (packed && !text) {
        image->notes |= IMAGE_NOTE_XMP_DROPPED;
        return OK;
    }
    enum error_code code = image_blob_set(&image->xmp, packed ? text : at, length, err);
    free(text);
    return code;
}

/* A text of IPTC behind its keyword; packed behind a byte that says how. */
static enum error_code codec_png_iptc(struct image *image, const struct png_found *found, struct error *err)
{
    size_t size = found->iptc_size;
    if (!found->iptc_packed)
        return iptc_parse(found->iptc, size, &image->iptc, err);
    uint8_t *text = found->iptc[0] == 0 ? codec_png_inflate(found->iptc + 1, size - 1, &size) : NULL;
    enum error_code code = text ? iptc_parse(text, size, &image->iptc, err) : OK;
    free(text);
    return code;
}

/* Colours that are said in numbers, where there is no profile. With a gamma far from sRGB's the samples have become
 * sRGB's (codec_png_gamma). */
static enum error_code codec_png_primaries(struct png_task *t, const uint8_t *codes)
{
    double xy[8], gamma;
    if (codes)
        return profile_of_codes(t->image, codes[0], codes[1], t->err);
    if (png_get_valid(t->png, t->info, PNG_INFO_sRGB) ||
        !png_get_cHRM(t->png, t->info, &xy[0], &xy[1], &xy[2], &xy[3], &xy[4], &xy[5], &xy[6], &xy[7]))
        return OK;
    const bool as_is = png_get_gAMA(t->png, t->info, &gamma) && gamma > 0 && !(t->image->notes & IMAGE_NOTE_GAMMA);
    double far = 0; /* of sRGB's red, green and blue; its usual chunks, gamma and all, mean sRGB */
    static const double srgb[6] = {0.64, 0.33, 0.3, 0.6, 0.15, 0.06};
    for (int i = 0; i < 6; i++)
        far = fmax(far, fabs(xy[2 + i] - srgb[i]));
    return far > 0.01 ? profile_of_primaries(t->image, xy, as_is ? 1 / gamma : 0, t->err) : OK;
}

static enum error_code codec_png_metadata(struct png_task *t)
{
    png_charp name;
    int compression;
    png_bytep data = NULL;
    png_uint_32 size = 0, across = 0, down = 0;
    int unit = 0;
    struct png_found found;
    enum error_code code = codec_png_walk(t->bytes, t->size, &found, t->err);
    if (!code && png_get_iCCP(t->png, t->info, &name, &compression, &data, &size))
        code = image_blob_set(&t->image->icc, data, size, t->err);
    if (png_get_pHYs(t->png, t->info, &across, &down, &unit) && unit == PNG_RESOLUTION_METER) {
        t->image->density[0] = across * PNG_INCH;
        t->image->density[1] = down * PNG_INCH;
    }
    if (!code && found.profile && !t->image->icc.data)
        t->image->notes |= IMAGE_NOTE_ICC_DAMAGED;
    else if (!code && !found.profile)
        code = codec_png_primaries(t, found.codes);
    if (!code && png_get_eXIf_1(t->png, t->info, &size, &data))
        code = image_blob_set(&t->image->exif, data, size, t->err);
    if (!code && found.xmp)
        code = codec_png_xmp(t->image, found.xmp, found.xmp_size, t->err);
    if (!code && found.iptc)
        code = codec_png_iptc(t->image, &found, t->err);
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
                codec_interleave(t->image, y, t->line, true);
            png_read_row(png, alpha ? t->line : (uint8_t *)t->image->pixels + y * stride, NULL);
            if (alpha)
                codec_interleave(t->image, y, t->line, false);
            if (passes == 1)
                t->rows = (int)y + 1;
            if (y % CODEC_READ_PASSED == CODEC_READ_PASSED - 1)
                image_passed(t->image, (int)y + 1 - CODEC_READ_PASSED, (int)y + 1);
        }
    t->rows = height;
    png_read_end(png, t->info);
    t->code = codec_png_metadata(t);
    return t->code == OK;
}

/* damage: NULL, or what is left of a damaged file. */
static enum error_code codec_png_open(const uint8_t *bytes, size_t size, struct image **out,
                                      struct codec_damage *damage, struct error *err)
{
    struct error local = ERROR_INIT;
    struct png_task t = {.bytes = bytes, .size = size, .err = &local};
    t.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &t, codec_png_error, codec_png_warning);
    t.info = t.png ? png_create_info_struct(t.png) : NULL;
    if (!t.info) {
        t.code = error_set(&local, ERROR_NO_MEMORY, "out of memory for the PNG reader");
    } else if (!codec_png_try_decode(&t) && damage && t.code == ERROR_CORRUPT && t.rows > 0) {
        *damage = (struct codec_damage){.rows = t.image->height, .good = t.rows, .cut = true};
        codec_gray_rows(t.image, t.rows);
        t.code = OK; /* without its metadata, which may stand after the damage */
    }
    if (t.code != OK) {
        image_destroy(&t.image);
        error_set(err, t.code, "%s%s", local.text,
                  damage && t.code == ERROR_CORRUPT
                      ? "; no row of it can be read (of an interlaced one it must be whole)"
                      : "");
        error_detail(err, "%s", local.detail);
    }
    png_destroy_read_struct(&t.png, &t.info, NULL);
    free(t.line);
    *out = t.image;
    return t.code;
}

static enum error_code codec_png_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                        struct image **out, struct error *err)
{
    (void)info;
    return codec_png_open(bytes, size, out, NULL, err);
}

/* A copy of a file that ends within an IDAT chunk, with that chunk shortened to what is there: libpng reads a chunk in
 * pieces, and would lose the last one. NULL: the file ends elsewhere, or memory ran out. */
static uint8_t *codec_png_close(const uint8_t *bytes, size_t size, size_t *out_size)
{
    size_t at = sizeof codec_png_magic;
    while (size - at >= 12 && codec_png_u32(bytes + at) <= size - at - 12)
        at += codec_png_u32(bytes + at) + 12u;
    if (size - at <= 8 || memcmp(bytes + at + 4, "IDAT", 4) != 0)
        return NULL;
    size_t there = size - at - 8, length = codec_png_u32(bytes + at);
    length = length < there ? length : there;
    uint8_t *copy = mem_alloc(at + 12 + length, 1);
    if (!copy)
        return NULL;
    memcpy(copy, bytes, at + 8 + length);
    const uint32_t values[2] = {(uint32_t)length, (uint32_t)crc32_z(0, bytes + at + 4, length + 4)};
    uint8_t *to[2] = {copy + at, copy + at + 8 + length};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++)
            to[i][k] = (uint8_t)(values[i] >> (24 - 8 * k));
    *out_size = at + 12 + length;
    return copy;
}

static enum error_code codec_png_salvage(const uint8_t *bytes, size_t size, struct image **out,
                                         struct codec_damage *damage, struct error *err)
{
    uint8_t *copy = codec_png_close(bytes, size, &size);
    enum error_code code = codec_png_open(copy ? copy : bytes, size, out, damage, err);
    free(copy);
    return code;
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
    png_set_benign_errors(t->png, 1); /* a profile that libpng rejects is left out */
    if (image->icc.data && codec_icc_fits(image))
        png_set_iCCP(t->png, t->info, "icc", PNG_COMPRESSION_TYPE_BASE, image->icc.data, (png_uint_32)image->icc.size);
    if (image->icc.data && !png_get_valid(t->png, t->info, PNG_INFO_iCCP))
        t->notes |= IMAGE_NOTE_ICC_DROPPED;
    if (image->density[0] > 0 && image->density[1] > 0)
        png_set_pHYs(t->png, t->info, (png_uint_32)(image->density[0] / PNG_INCH + 0.5),
                     (png_uint_32)(image->density[1] / PNG_INCH + 0.5), PNG_RESOLUTION_METER);
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
    if (t->iptc) {
        char key[] = IPTC_TEXT;
        png_text text = {.compression = PNG_TEXT_COMPRESSION_zTXt, .key = key, .text = t->iptc};
        png_set_text(t->png, t->info, &text, 1);
    }
}

/* A row as it stands in the file. */
static void codec_png_source(const void *context, int y, uint8_t *line)
{
    const struct image *image = context;
    size_t n = (size_t)image->width * (size_t)image->channels * (size_t)(image->bits / 8);
    if (image->alpha) {
        codec_interleave(image, (size_t)y, line, true);
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

static void codec_png_passed(const void *context, int first, int end)
{
    image_passed(context, first, end);
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
                                  .passed = codec_png_passed,
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
    if (image->iptc.size)
        t.code = iptc_print(&image->iptc, &t.iptc, err);
    if (t.code == OK && (!t.info || (image->xmp.data && !t.xmp)))
        t.code = error_set(err, ERROR_NO_MEMORY, "out of memory for the PNG writer");
    else if (t.code == OK && codec_png_try_encode(&t, image, options.png_level))
        *out = (struct codec_output){t.file.bytes, t.file.size, t.notes};
    else
        spill_free(t.file.bytes);
    png_destroy_write_struct(&t.png, &t.info);
    free(t.xmp);
    free(t.iptc);
    return t.code;
}

const struct codec_row codec_png = {.format = IMAGE_PNG,
                                    .extension = "png",
                                    .media_type = "image/png",
                                    .title = "a PNG",
                                    .lossless = true,
                                    .max_side = PNG_SIDE,
                                    .deep = true,
                                    .gray = true,
                                    .dense = true,
                                    .iptc = true,
                                    .matches = codec_png_matches,
                                    .probe = codec_png_probe,
                                    .decode = codec_png_decode,
                                    .salvage = codec_png_salvage,
                                    .encode = codec_png_encode};
