/* TIFF by libtiff, what is read: strips and tiles. Gray, RGB and CMYK of 1 to 16 bits are read as they are, L*a*b* as
 * sRGB; palettes, YCbCr and other kinds through libtiff's conversion to 8 bit RGBA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/codec_tiff_private.h"
#include "server/image/colour.h"
#include "server/image/iptc.h"
#include "server/image/pixel.h"
#include "server/image/profile.h"
#include "server/image/tiff_header.h"

enum {
    TIFF_WHITE_IS_0,
    TIFF_BLACK_IS_0,
    TIFF_RGB,
    TIFF_PALETTE,
    TIFF_MASK,
    TIFF_CMYK,
    TIFF_LAB = 8,
    TIFF_ICC_LAB
}; /* photometric */

static bool codec_tiff_matches(const uint8_t *bytes, size_t size)
{
    return tiff_header_matches(bytes, size) && !codec_is_raw(bytes, size);
}

static int codec_tiff_colours(const struct tiff_header *header)
{
    return header->photometric == TIFF_WHITE_IS_0 || header->photometric == TIFF_BLACK_IS_0 ? 1
           : header->photometric == TIFF_CMYK                                               ? 4
                                                                                            : 3;
}

/* 1: colours are multiplied by alpha, 2: they are not; others are no alpha. */
static bool codec_tiff_has_alpha(const struct tiff_header *header)
{
    return (header->extra == 1 || header->extra == 2) && header->samples > codec_tiff_colours(header);
}

/* L*a*b*, not left to libtiff, whose own conversion makes the white of D50 yellow. */
static bool codec_tiff_is_lab(const struct tiff_header *header)
{
    return (header->photometric == TIFF_LAB || header->photometric == TIFF_ICC_LAB) &&
           (header->bits == 8 || header->bits == 16);
}

/* Whether the samples are read as they are. */
static bool codec_tiff_is_plain(const struct tiff_header *header)
{
    return header->samples >= codec_tiff_colours(header) &&
           (header->photometric <= TIFF_RGB || header->photometric == TIFF_CMYK || codec_tiff_is_lab(header));
}

/* Bits of the samples that come out. */
static int codec_tiff_bits(const struct tiff_header *header)
{
    return codec_tiff_is_plain(header) && header->bits > 8 ? 16 : 8;
}

static enum error_code codec_tiff_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                        struct error *err)
{
    struct tiff_header header;
    if (!tiff_header_read(bytes, size, page, &header))
        return codec_damaged(err, codec_tiff.title, "no directory");
    out->pages = header.pages;
    if (page > header.pages)
        return OK;
    if (!header.width || !header.height)
        return codec_damaged(err, codec_tiff.title, "no size");
    if (header.width > INT32_MAX || header.height > INT32_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %u×%u pixels", header.width, header.height);
    if (header.bits > 16 || header.bits < 1)
        return error_set(err, ERROR_UNSUPPORTED, "this is a TIFF with samples of %d bits; 1 to 16 can be read",
                         header.bits);
    const bool alpha = codec_tiff_has_alpha(&header);
    *out = (struct codec_info){.format = IMAGE_TIFF,
                               .bits = codec_tiff_bits(&header),
                               .channels = codec_tiff_colours(&header) == 1  ? 1 + alpha
                                           : header.photometric == TIFF_CMYK ? 4
                                                                             : 3 + alpha,
                               .alpha = alpha,
                               .pages = header.pages};
    codec_set_size(out, header.width, header.height, header.orientation);
    return OK;
}

#ifdef RESTORED_TIFF

struct tiff_task {
    const uint8_t *bytes;
    size_t size;
    uint64_t at;
    TIFF *tiff;
    struct tiff_header header;
    struct image *image;
    uint8_t *band, *tile, *plane; /* rows; what libtiff reads at once; a row of one plane */
    struct profile_cmyk inks;
    float *lab;      /* a row */
    double white[9]; /* see colour_of_white() */
    uint16_t planar, format;
    struct error *err;
    char detail[TIFF_DETAIL]; /* what the library said first */
};

static int codec_tiff_said(TIFF *tiff, void *context, const char *module, const char *format, va_list args)
{
    char *detail = context;
    (void)tiff;
    (void)module;
    if (!*detail)
        vsnprintf(detail, TIFF_DETAIL, format, args);
    return 1;
}

static int codec_tiff_warned(TIFF *tiff, void *context, const char *module, const char *format, va_list args)
{
    (void)tiff;
    (void)context;
    (void)module;
    (void)format;
    (void)args;
    return 1;
}

TIFFOpenOptions *codec_tiff_options(char *detail)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (options) {
        TIFFOpenOptionsSetErrorHandlerExtR(options, codec_tiff_said, detail);
        TIFFOpenOptionsSetWarningHandlerExtR(options, codec_tiff_warned, NULL);
    }
    return options;
}

static tmsize_t codec_tiff_read(thandle_t context, void *to, tmsize_t size)
{
    struct tiff_task *t = context;
    const uint64_t left = t->at < t->size ? t->size - t->at : 0, count = (uint64_t)size < left ? (uint64_t)size : left;
    memcpy(to, t->bytes + (count ? t->at : 0), (size_t)count);
    t->at += count;
    return (tmsize_t)count;
}

static tmsize_t codec_tiff_no_write(thandle_t context, void *from, tmsize_t size)
{
    (void)context;
    (void)from;
    (void)size;
    return -1;
}

static toff_t codec_tiff_seek(thandle_t context, toff_t offset, int from)
{
    struct tiff_task *t = context;
    t->at = from == SEEK_SET ? offset : from == SEEK_CUR ? t->at + offset : t->size + offset;
    return t->at;
}

int codec_tiff_close(thandle_t context)
{
    (void)context;
    return 0;
}

static toff_t codec_tiff_size(thandle_t context)
{
    const struct tiff_task *t = context;
    return t->size;
}

static enum error_code codec_tiff_bad(struct tiff_task *t)
{
    return codec_damaged(t->err, codec_tiff.title, t->detail);
}

static enum error_code codec_tiff_no_memory(struct tiff_task *t)
{
    return error_set(t->err, ERROR_NO_MEMORY, "out of memory for the TIFF");
}

static unsigned codec_tiff_sample(const uint8_t *row, size_t i, int bits)
{
    uint16_t value;
    if (bits == 8)
        return row[i];
    memcpy(&value, row + 2 * i, sizeof value);
    return value;
}

static void codec_tiff_put(void *plane, size_t i, int bits, unsigned value)
{
    if (bits == 8)
        ((uint8_t *)plane)[i] = (uint8_t)value;
    else
        ((uint16_t *)plane)[i] = (uint16_t)value;
}

/* How many bytes so many samples take as libtiff gives them: without gaps, the first bit on top. */
static size_t codec_tiff_packed(const struct tiff_task *t, size_t samples)
{
    return (samples * (size_t)t->header.bits + 7) / 8;
}

/* So many samples as 8 or 16 bits each. */
static void codec_tiff_unpack(const struct tiff_task *t, const uint8_t *from, uint8_t *to, size_t samples)
{
    const int bits = t->header.bits, whole = codec_tiff_bits(&t->header);
    const uint32_t most = (1u << bits) - 1, full = whole == 8 ? 255 : 65535;
    uint32_t read = 0;
    int left = 0; /* bits of it that were not used */
    if (bits == whole) {
        memcpy(to, from, samples * (size_t)whole / 8);
        return;
    }
    for (size_t i = 0; i < samples; i++) {
        for (; left < bits; left += 8)
            read = read << 8 | *from++;
        left -= bits;
        codec_tiff_put(to, i, whole, ((read >> left & most) * full + most / 2) / most);
    }
}

/* The colours of row y of L*a*b*: a and b are signed, or have 128 added (ICC, whose white is 65280 of 16 bits). */
static void codec_tiff_lab_row(const struct tiff_task *t, int y, const uint8_t *row)
{
    const int bits = t->header.bits;
    const bool own = t->header.photometric == TIFF_LAB;
    const size_t n = 3 * (size_t)t->image->width;
    const float scale = bits == 8 ? 1 : 1 / 256.0f, white = bits == 8 ? 255 : own ? 65535 : 65280;
    for (size_t i = 0; i < n; i++) {
        const unsigned value = codec_tiff_sample(row, i / 3 * (size_t)t->header.samples + i % 3, bits);
        const int level = own && value >> (bits - 1) ? (int)value - (1 << bits) : (int)value;
        t->lab[i] = i % 3 == 0 ? 100 * (float)value / white : (float)level * scale - (own ? 0 : 128);
    }
    colour_of_lab(t->white, t->lab, t->lab, n / 3);
    pixel_clamp(t->lab, n);
    for (size_t i = 0; i < n; i++)
        codec_tiff_put(t->image->pixels, (size_t)y * n + i, bits,
                       (unsigned)(t->lab[i] * (bits == 8 ? 1 : 257.0f) + 0.5f));
}

/* Row y of the picture from interleaved samples. */
static void codec_tiff_row(struct tiff_task *t, int y, const uint8_t *row)
{
    struct image *image = t->image;
    const int bits = image->bits, samples = t->header.samples, colours = codec_tiff_colours(&t->header);
    const unsigned most = bits == 8 ? 255 : 65535;
    if (t->lab)
        codec_tiff_lab_row(t, y, row);
    if (t->inks.profile)
        profile_cmyk_row(&t->inks, row,
                         (uint8_t *)image->pixels + (size_t)y * (size_t)image->width * 3 * (size_t)(bits / 8),
                         image->width);
    for (int x = 0; x < image->width; x++) {
        const size_t from = (size_t)x * (size_t)samples, at = (size_t)y * (size_t)image->width + (size_t)x;
        for (int c = 0; c < image->channels && !t->inks.profile && !t->lab; c++) {
            uint64_t value = codec_tiff_sample(row, from + (size_t)c, bits);
            if (t->header.photometric == TIFF_WHITE_IS_0)
                value = most - value;
            if (colours == 4)
                value = ((most - value) * (most - codec_tiff_sample(row, from + 3, bits)) + most / 2) / most;
            codec_tiff_put(image->pixels, at * (size_t)image->channels + (size_t)c, bits, (unsigned)value);
        }
        if (image->alpha)
            codec_tiff_put(image->alpha, at, bits, codec_tiff_sample(row, from + (size_t)colours, bits));
    }
}

/* Puts a row of one plane into a row of interleaved samples. */
static void codec_tiff_weave(const struct tiff_task *t, uint8_t *row, const uint8_t *plane, size_t count, int sample)
{
    const size_t bytes = (size_t)codec_tiff_bits(&t->header) / 8, step = bytes * (size_t)t->header.samples;
    for (size_t i = 0; i < count; i++)
        memcpy(row + i * step + (size_t)sample * bytes, plane + i * bytes, bytes);
}

/* Room for `high` rows of the picture, for what libtiff reads at once, and for a row of one plane. */
static bool codec_tiff_room(struct tiff_task *t, size_t high, size_t read, size_t *line)
{
    const size_t width = (size_t)t->image->width, bytes = (size_t)codec_tiff_bits(&t->header) / 8;
    size_t band;
    *line = width * (size_t)t->header.samples * bytes;
    return mem_mul(*line, high, &band) && (t->band = mem_calloc(band, 1)) && (t->tile = mem_alloc(read, 1)) &&
           (t->plane = mem_alloc(width, bytes));
}

static enum error_code codec_tiff_strips(struct tiff_task *t)
{
    const bool apart = t->planar == PLANARCONFIG_SEPARATE;
    const size_t width = (size_t)t->image->width, height = (size_t)t->image->height,
                 count = width * (apart ? 1 : (size_t)t->header.samples), read = codec_tiff_packed(t, count);
    size_t line;
    if (TIFFScanlineSize(t->tiff) != (tmsize_t)read)
        return codec_tiff_bad(t);
    if (!codec_tiff_room(t, apart ? height : 1, read, &line))
        return codec_tiff_no_memory(t);
    /* a plane after the other, since going back costs reading from a strip's beginning: into the picture's rows */
    const int used = apart ? codec_tiff_colours(&t->header) + (t->image->alpha != NULL) : 1;
    for (int s = 0; s < used; s++)
        for (size_t y = 0; y < height; y++) {
            if (TIFFReadScanline(t->tiff, t->tile, (uint32_t)y, (uint16_t)s) < 0)
                return codec_tiff_bad(t);
            codec_tiff_unpack(t, t->tile, apart ? t->plane : t->band, count);
            if (apart)
                codec_tiff_weave(t, t->band + y * line, t->plane, width, s);
            else
                codec_tiff_row(t, (int)y, t->band);
        }
    for (size_t y = 0; apart && y < height; y++)
        codec_tiff_row(t, (int)y, t->band + y * line);
    return OK;
}

/* The tiles of one band of rows. */
static enum error_code codec_tiff_band(struct tiff_task *t, uint32_t y, uint32_t wide, uint32_t high, size_t line)
{
    const bool apart = t->planar == PLANARCONFIG_SEPARATE;
    const size_t bytes = (size_t)codec_tiff_bits(&t->header) / 8, samples = apart ? 1 : (size_t)t->header.samples,
                 width = (size_t)t->image->width, row = codec_tiff_packed(t, wide * samples);
    const uint32_t rows = (uint32_t)t->image->height - y < high ? (uint32_t)t->image->height - y : high;
    for (int s = 0; s < (apart ? t->header.samples : 1); s++)
        for (uint32_t x = 0; x < width; x += wide) {
            const size_t count = width - x < wide ? width - x : wide;
            if (TIFFReadTile(t->tiff, t->tile, x, y, 0, (uint16_t)s) < 0)
                return codec_tiff_bad(t);
            for (uint32_t k = 0; k < rows; k++) {
                uint8_t *to = t->band + k * line + x * bytes * (size_t)t->header.samples;
                codec_tiff_unpack(t, t->tile + k * row, apart ? t->plane : to, count * samples);
                if (apart)
                    codec_tiff_weave(t, to, t->plane, count, s);
            }
        }
    for (uint32_t k = 0; k < rows; k++)
        codec_tiff_row(t, (int)(y + k), t->band + k * line);
    return OK;
}

static enum error_code codec_tiff_tiles(struct tiff_task *t)
{
    uint32_t wide = 0, high = 0;
    size_t samples, tile, line;
    TIFFGetField(t->tiff, TIFFTAG_TILEWIDTH, &wide);
    TIFFGetField(t->tiff, TIFFTAG_TILELENGTH, &high);
    if (!wide || !high ||
        !mem_mul(wide, t->planar == PLANARCONFIG_SEPARATE ? 1 : (size_t)t->header.samples, &samples) ||
        samples > SIZE_MAX / 32 || !mem_mul(codec_tiff_packed(t, samples), high, &tile) ||
        TIFFTileSize(t->tiff) != (tmsize_t)tile)
        return codec_tiff_bad(t);
    if (high > (uint32_t)t->image->height + 65536 || wide > (uint32_t)t->image->width + 65536) /* mostly padding */
        return codec_tiff_bad(t);
    if (!codec_tiff_room(t, high, tile, &line))
        return codec_tiff_no_memory(t);
    enum error_code code = OK;
    for (uint32_t y = 0; !code && y < (uint32_t)t->image->height; y += high)
        code = codec_tiff_band(t, y, wide, high, line);
    return code;
}

static enum error_code codec_tiff_plain(struct tiff_task *t)
{
    enum error_code code = TIFFIsTiled(t->tiff) ? codec_tiff_tiles(t) : codec_tiff_strips(t);
    if (!code && t->image->alpha && t->header.extra == 1)
        codec_unpremultiply(t->image);
    return code;
}

/* libtiff cuts the 16 bits of a palette's colours off at 8: what it gets is rounded before. Old palettes have 8 bits.
 */
static void codec_tiff_round_palette(struct tiff_task *t)
{
    uint16_t *map[3];
    bool wide = false;
    if (t->header.photometric != TIFF_PALETTE || !TIFFGetField(t->tiff, TIFFTAG_COLORMAP, &map[0], &map[1], &map[2]))
        return;
    const int count = 1 << t->header.bits;
    for (int i = 0; i < 3 * count; i++)
        wide = wide || map[i / count][i % count] > 255;
    for (int i = 0; wide && i < 3 * count; i++) {
        uint16_t *value = &map[i / count][i % count];
        *value = (uint16_t)((*value + 128u) / 257 << 8);
    }
}

/* Palettes, YCbCr, L*a*b* and the like. */
static enum error_code codec_tiff_converted(struct tiff_task *t)
{
    struct image *image = t->image;
    const size_t pixels = (size_t)image->width * (size_t)image->height;
    TIFFRGBAImage converter;
    char reason[1024];
    codec_tiff_round_palette(t);
    if (!TIFFRGBAImageOK(t->tiff, reason) || !TIFFRGBAImageBegin(&converter, t->tiff, 1, reason)) {
        if (*t->detail)
            return codec_tiff_bad(t);
        error_set(t->err, ERROR_UNSUPPORTED, "this is a TIFF of a kind that libtiff cannot read here");
        error_detail(t->err, "%s", reason);
        return ERROR_UNSUPPORTED;
    }
    enum error_code code = OK;
    uint32_t *raster = mem_alloc(pixels, 4);
    converter.req_orientation = converter.orientation; /* rows as they are stored; the caller turns them */
    if (!raster)
        code = codec_tiff_no_memory(t);
    else if (!TIFFRGBAImageGet(&converter, raster, (uint32_t)image->width, (uint32_t)image->height))
        code = codec_tiff_bad(t);
    for (size_t i = 0; !code && i < pixels; i++) {
        const uint8_t rgb[3] = {(uint8_t)TIFFGetR(raster[i]), (uint8_t)TIFFGetG(raster[i]),
                                (uint8_t)TIFFGetB(raster[i])};
        memcpy((uint8_t *)image->pixels + i * (size_t)image->channels, rgb, (size_t)image->channels);
        if (image->alpha)
            ((uint8_t *)image->alpha)[i] = (uint8_t)TIFFGetA(raster[i]);
    }
    TIFFRGBAImageEnd(&converter);
    free(raster);
    if (!code && image->alpha)
        codec_unpremultiply(image);
    return code;
}

static enum error_code codec_tiff_pixels(struct tiff_task *t, const struct codec_info *info)
{
    uint32_t width = 0, height = 0;
    uint16_t bits = 1, samples = 1, photometric = 0;
    t->planar = PLANARCONFIG_CONTIG;
    t->format = SAMPLEFORMAT_UINT;
    TIFFGetField(t->tiff, TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(t->tiff, TIFFTAG_IMAGELENGTH, &height);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLEFORMAT, &t->format);
    TIFFGetField(t->tiff, TIFFTAG_PHOTOMETRIC, &photometric);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_PLANARCONFIG, &t->planar);
    if (width != t->header.width || height != t->header.height || bits != t->header.bits ||
        samples != t->header.samples || photometric != t->header.photometric)
        return codec_tiff_bad(t);
    if (t->format != SAMPLEFORMAT_UINT && t->format != SAMPLEFORMAT_VOID)
        return error_set(t->err, ERROR_UNSUPPORTED, "this is a TIFF whose samples are not whole numbers from 0 on");
    const bool plain = codec_tiff_is_plain(&t->header), cmyk = plain && t->header.photometric == TIFF_CMYK;
    enum error_code code = OK;
    uint32_t size = 0;
    void *icc = NULL;
    if (cmyk && TIFFGetField(t->tiff, TIFFTAG_ICCPROFILE, &size, &icc)) {
        const struct profile_inks inks = {info->bits, t->header.samples - 4, false, !info->alpha};
        code = profile_cmyk_open(&t->inks, icc, size, &inks, t->err);
    }
    if (plain && codec_tiff_is_lab(&t->header)) {
        float *white = NULL; /* of ICC's form it is D50 */
        const bool told = t->header.photometric == TIFF_LAB && TIFFGetField(t->tiff, TIFFTAG_WHITEPOINT, &white);
        colour_of_white(told ? white : NULL, t->white);
        if (!(t->lab = mem_alloc(width, 3 * sizeof *t->lab)))
            code = codec_tiff_no_memory(t);
    }
    if (!code)
        code = image_create(&t->image, (int)width, (int)height, codec_tiff_colours(&t->header) == 1 ? 1 : 3,
                            t->inks.wide ? 16 : info->bits, info->alpha, t->err);
    if (code)
        return code;
    if (cmyk) {
        profile_cmyk_apply(&t->inks, t->image);
        t->image->notes |= icc && !t->inks.profile ? (unsigned)IMAGE_NOTE_ICC_DROPPED : 0u;
    }
    return plain ? codec_tiff_plain(t) : codec_tiff_converted(t);
}

/* The tag of IPTC, and where that is missing or cut off (ImageMagick 6 writes a quarter), Photoshop's resources. */
static enum error_code codec_tiff_iptc(struct tiff_task *t)
{
    uint32_t size = 0;
    void *data = NULL;
    const uint8_t *iptc = NULL, *other;
    size_t count = 0, others = 0;
    bool cut = true;
    if (TIFFGetField(t->tiff, TIFFTAG_RICHTIFFIPTC, &size, &data)) {
        const TIFFField *field = TIFFFieldWithTag(t->tiff, TIFFTAG_RICHTIFFIPTC);
        size_t bytes = size;
        if (TIFFFieldDataType(field) == TIFF_LONG) { /* which depends on libtiff's version, not on the file */
            if (TIFFIsByteSwapped(t->tiff))
                TIFFSwabArrayOfLong(data, size);
            bytes *= 4;
        }
        iptc = iptc_records(data, bytes, &count, &cut);
    }
    if ((!iptc || cut) && TIFFGetField(t->tiff, TIFFTAG_PHOTOSHOP, &size, &data) &&
        (other = iptc_find(data, size, &others))) {
        iptc = other;
        count = others;
    }
    return iptc ? image_blob_set(&t->image->iptc, iptc, count, t->err) : OK;
}

static enum error_code codec_tiff_metadata(struct tiff_task *t)
{
    uint32_t size = 0;
    void *data = NULL;
    enum error_code code = OK;
    if (t->header.photometric != TIFF_CMYK && TIFFGetField(t->tiff, TIFFTAG_ICCPROFILE, &size, &data))
        code = image_blob_set(&t->image->icc, data, size, t->err);
    float density[2] = {0};
    uint16_t unit = RESUNIT_INCH;
    if (TIFFGetField(t->tiff, TIFFTAG_XRESOLUTION, &density[0]) &&
        TIFFGetField(t->tiff, TIFFTAG_YRESOLUTION, &density[1])) {
        TIFFGetFieldDefaulted(t->tiff, TIFFTAG_RESOLUTIONUNIT, &unit);
        for (int i = 0; i < 2 && unit != RESUNIT_NONE; i++)
            t->image->density[i] = (double)density[i] * (unit == RESUNIT_CENTIMETER ? 2.54 : 1);
    }
    if (!code)
        code = codec_tiff_iptc(t);
    if (!code && TIFFGetField(t->tiff, TIFFTAG_XMLPACKET, &size, &data))
        code = image_blob_set(&t->image->xmp, data, size, t->err);
    return code ? code : tiff_header_exif(t->bytes, t->size, t->header.offset, &t->image->exif, t->err);
}

static enum error_code codec_tiff_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                         struct image **out, struct error *err)
{
    struct tiff_task t = {.bytes = bytes, .size = size, .err = err};
    if (!tiff_header_read(bytes, size, info->page, &t.header))
        return codec_damaged(err, codec_tiff.title, "no directory");
    TIFFOpenOptions *options = codec_tiff_options(t.detail);
    if (!options)
        return codec_tiff_no_memory(&t);
    t.tiff = TIFFClientOpenExt("picture", "rm", &t, codec_tiff_read, codec_tiff_no_write, codec_tiff_seek,
                               codec_tiff_close, codec_tiff_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    enum error_code code =
        t.tiff && TIFFSetSubDirectory(t.tiff, t.header.offset) ? codec_tiff_pixels(&t, info) : codec_tiff_bad(&t);
    if (!code)
        code = codec_tiff_metadata(&t);
    if (t.tiff)
        TIFFClose(t.tiff);
    profile_cmyk_close(&t.inks);
    free(t.band);
    free(t.tile);
    free(t.plane);
    free(t.lab);
    if (code)
        image_destroy(&t.image);
    *out = t.image;
    return code;
}

#endif

const struct codec_row codec_tiff = {.format = IMAGE_TIFF,
                                     .extension = "tiff",
                                     .media_type = "image/tiff",
                                     .title = "a TIFF",
                                     .lossless = true,
                                     .library = "libtiff-4",
                                     .deep = true,
                                     .gray = true,
                                     .dense = true,
                                     .iptc = true,
                                     .cmyk = true,
                                     .matches = codec_tiff_matches,
#ifdef RESTORED_TIFF
                                     .decode = codec_tiff_decode,
                                     .max_side = INT32_MAX,
                                     .encode = codec_tiff_encode,
#endif
                                     .probe = codec_tiff_probe};
