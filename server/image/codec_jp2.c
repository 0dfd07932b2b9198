/* JPEG 2000 by openjpeg: the file format (JP2) and the bare codestream. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/codec_row.h"

#ifdef RESTORED_JP2
#include <openjpeg.h>
#endif

#define JP2_BOXES 4096
#define JP2_SIZ 0xff51
#define JP2_COMPONENTS 5 /* CMYK with alpha has the most that we read */

static const uint8_t codec_jp2_exif[16] = "JpgTiffExif->JP2";
static const uint8_t codec_jp2_xmp[16] = {0xbe, 0x7a, 0xcf, 0xcb, 0x97, 0xa9, 0x42, 0xe8,
                                          0x9c, 0x71, 0x99, 0x94, 0x91, 0xe3, 0xaf, 0xac};

struct jp2_found {
    const uint8_t *stream; /* the codestream */
    size_t stream_size;
    int columns; /* of a palette; 0: none */
    bool alpha;
    struct {
        const uint8_t *data;
        size_t size;
    } exif, xmp;
};

static bool codec_jp2_is_bare(const uint8_t *bytes, size_t size)
{
    return size >= 4 && memcmp(bytes, "\xff\x4f\xff\x51", 4) == 0;
}

static bool codec_jp2_matches(const uint8_t *bytes, size_t size)
{
    return codec_jp2_is_bare(bytes, size) || (size >= 12 && memcmp(bytes, "\0\0\0\x0cjP  \r\n\x87\n", 12) == 0);
}

/* In the boxes of the header: palettes, and which channels are opacity. */
static void codec_jp2_channels(struct jp2_found *out, const uint8_t *data, size_t size)
{
    struct codec_box box;
    const uint8_t *at = data, *end = data + size;
    for (int i = 0; i < JP2_BOXES && codec_next_box(&at, end, &box); i++) {
        if (memcmp(box.type, "pclr", 4) == 0 && box.size >= 3)
            out->columns = box.data[2];
        for (size_t k = 2; memcmp(box.type, "cdef", 4) == 0 && k + 6 <= box.size; k += 6)
            out->alpha |= codec_big(box.data + k + 2, 2) == 1;
    }
}

static bool codec_jp2_walk(const uint8_t *bytes, size_t size, struct jp2_found *out)
{
    struct codec_box box;
    const uint8_t *at = bytes, *end = bytes + size;
    *out = (struct jp2_found){0};
    if (codec_jp2_is_bare(bytes, size)) {
        out->stream = bytes;
        out->stream_size = size;
        return true;
    }
    for (int i = 0; i < JP2_BOXES && codec_next_box(&at, end, &box); i++)
        if (memcmp(box.type, "jp2h", 4) == 0) {
            codec_jp2_channels(out, box.data, box.size);
        } else if (memcmp(box.type, "jp2c", 4) == 0 && !out->stream) {
            out->stream = box.data;
            out->stream_size = box.size;
        } else if (memcmp(box.type, "uuid", 4) == 0 && box.size > 16) {
            if (memcmp(box.data, codec_jp2_exif, 16) == 0 && !out->exif.data) {
                out->exif.data = box.data + 16;
                out->exif.size = box.size - 16;
            } else if (memcmp(box.data, codec_jp2_xmp, 16) == 0 && !out->xmp.data) {
                out->xmp.data = box.data + 16;
                out->xmp.size = box.size - 16;
            }
        }
    return out->stream != NULL;
}

/* The SIZ segment, ISO/IEC 15444-1, A.5.1. */
static enum error_code codec_jp2_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                       struct error *err)
{
    struct jp2_found found;
    (void)page;
    if (!codec_jp2_walk(bytes, size, &found) || found.stream_size < 45 || codec_big(found.stream + 2, 2) != JP2_SIZ)
        return codec_damaged(err, codec_jp2.title, "no header");
    const uint8_t *siz = found.stream + 8;
    const uint64_t right = codec_big(siz, 4), bottom = codec_big(siz + 4, 4), left = codec_big(siz + 8, 4),
                   top = codec_big(siz + 12, 4), components = codec_big(siz + 32, 2);
    if (right <= left || bottom <= top || !components || found.stream_size < 42 + 3 * components)
        return codec_damaged(err, codec_jp2.title, "its header makes no sense");
    if (right - left > INT32_MAX || bottom - top > INT32_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %llu×%llu pixels", (unsigned long long)(right - left),
                         (unsigned long long)(bottom - top));
    const int channels = found.columns ? found.columns : components > 4 ? 4 : (int)components;
    *out = (struct codec_info){.format = IMAGE_JP2,
                               .bits = (siz[34] & 0x7f) + 1 > 8 && !found.columns ? 16 : 8,
                               .channels = channels,
                               .alpha = found.alpha && channels % 2 == 0};
    codec_set_size(out, (uint32_t)(right - left), (uint32_t)(bottom - top), 1);
    return OK;
}

#ifdef RESTORED_JP2

struct jp2_task {
    const uint8_t *bytes;
    size_t size, at;
    opj_codec_t *codec;
    opj_stream_t *stream;
    opj_image_t *pixels;
    struct image *image;
    struct error *err;
    char detail[128]; /* what the library said first */
};

static void codec_jp2_said(const char *text, void *context)
{
    struct jp2_task *t = context;
    if (!*t->detail) {
        strncpy(t->detail, text, sizeof t->detail - 1);
        t->detail[strcspn(t->detail, "\n")] = 0;
    }
}

static OPJ_SIZE_T codec_jp2_read(void *to, OPJ_SIZE_T size, void *context)
{
    struct jp2_task *t = context;
    const size_t left = t->size - t->at, count = size < left ? size : left;
    if (!count)
        return (OPJ_SIZE_T)-1;
    memcpy(to, t->bytes + t->at, count);
    t->at += count;
    return count;
}

static OPJ_BOOL codec_jp2_seek(OPJ_OFF_T at, void *context)
{
    struct jp2_task *t = context;
    if (at < 0 || (uint64_t)at > t->size)
        return OPJ_FALSE;
    t->at = (size_t)at;
    return OPJ_TRUE;
}

static OPJ_OFF_T codec_jp2_skip(OPJ_OFF_T count, void *context)
{
    struct jp2_task *t = context;
    if (count < 0 || (uint64_t)count > t->size - t->at)
        return -1;
    t->at += (size_t)count;
    return count;
}

/* One sample as bits of the picture; planes may be smaller than the picture by whole numbers. */
static unsigned codec_jp2_sample(const opj_image_comp_t *plane, int x, int y, int bits)
{
    const uint32_t px = (uint32_t)x / plane->dx, py = (uint32_t)y / plane->dy;
    const size_t at = (size_t)(py < plane->h ? py : plane->h - 1) * plane->w + (px < plane->w ? px : plane->w - 1);
    const int64_t most = (INT64_C(1) << plane->prec) - 1;
    int64_t value = (int64_t)plane->data[at] + (plane->sgnd ? INT64_C(1) << (plane->prec - 1) : 0);
    value = value < 0 ? 0 : value > most ? most : value;
    return (unsigned)((value * ((1 << bits) - 1) + most / 2) / most);
}

static unsigned codec_jp2_clamp(double value, unsigned most)
{
    return value <= 0 ? 0 : value >= most ? most : (unsigned)(value + 0.5);
}

/* Turns three samples from YCbCr (BT.601 of all the range) to RGB, or four from CMYK by the plain formula. */
static void codec_jp2_convert(unsigned sample[], OPJ_COLOR_SPACE space, unsigned most)
{
    if (space == OPJ_CLRSPC_CMYK) {
        for (int c = 0; c < 3; c++)
            sample[c] = (unsigned)(((uint64_t)(most - sample[c]) * (most - sample[3]) + most / 2) / most);
    } else if (space == OPJ_CLRSPC_SYCC) {
        const double y = sample[0], half = (most + 1) / 2, cb = sample[1] - half, cr = sample[2] - half;
        sample[0] = codec_jp2_clamp(y + 1.402 * cr, most);
        sample[1] = codec_jp2_clamp(y - 0.344136 * cb - 0.714136 * cr, most);
        sample[2] = codec_jp2_clamp(y + 1.772 * cb, most);
    }
}

static void codec_jp2_put(void *plane, size_t at, int bits, unsigned value)
{
    if (bits == 16)
        ((uint16_t *)plane)[at] = (uint16_t)value;
    else
        ((uint8_t *)plane)[at] = (uint8_t)value;
}

/* planes: how many hold colours. */
static void codec_jp2_fill(struct image *image, const opj_image_t *pixels, int planes, int alpha, OPJ_COLOR_SPACE space)
{
    const unsigned most = (1u << image->bits) - 1;
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++) {
            const size_t at = (size_t)y * (size_t)image->width + (size_t)x;
            unsigned sample[4] = {0};
            for (int c = 0; c < planes; c++)
                sample[c] = codec_jp2_sample(&pixels->comps[c], x, y, image->bits);
            codec_jp2_convert(sample, space, most);
            for (int c = 0; c < image->channels; c++)
                codec_jp2_put(image->pixels, at * (size_t)image->channels + (size_t)c, image->bits, sample[c]);
            if (image->alpha)
                codec_jp2_put(image->alpha, at, image->bits,
                              codec_jp2_sample(&pixels->comps[alpha], x, y, image->bits));
        }
}

static enum error_code codec_jp2_bad(struct jp2_task *t)
{
    return codec_damaged(t->err, codec_jp2.title, t->detail);
}

/* What the library read becomes a picture. */
static enum error_code codec_jp2_take(struct jp2_task *t, const struct codec_info *info)
{
    const opj_image_t *pixels = t->pixels;
    int alpha = -1, planes = 0;
    for (uint32_t i = 0; i < pixels->numcomps && i < JP2_COMPONENTS; i++) {
        const opj_image_comp_t *plane = &pixels->comps[i];
        if (!plane->data || !plane->w || !plane->h || plane->prec < 1 || plane->prec > 31 || !plane->dx || !plane->dy)
            return codec_jp2_bad(t);
        if (plane->alpha == 1 && alpha < 0)
            alpha = (int)i;
        else if (planes == (int)i && planes < 4)
            planes++;
    }
    const bool cmyk = planes == 4 && pixels->color_space == OPJ_CLRSPC_CMYK, gray = planes < 3;
    const OPJ_COLOR_SPACE space =
        cmyk || (!gray && pixels->color_space == OPJ_CLRSPC_SYCC) ? pixels->color_space : OPJ_CLRSPC_SRGB;
    if (!planes || (info->alpha && alpha < 0))
        return codec_jp2_bad(t);
    enum error_code code =
        image_create(&t->image, info->width, info->height, gray ? 1 : 3, info->bits, info->alpha, t->err);
    if (code)
        return code;
    codec_jp2_fill(t->image, pixels, cmyk ? 4 : gray ? 1 : 3, alpha, space);
    t->image->notes |= cmyk ? IMAGE_NOTE_CMYK : 0u;
    return image_blob_set(&t->image->icc, pixels->icc_profile_buf,
                          pixels->icc_profile_buf ? pixels->icc_profile_len : 0, t->err);
}

static bool codec_jp2_open(struct jp2_task *t)
{
    opj_dparameters_t parameters;
    opj_set_default_decoder_parameters(&parameters);
    t->codec = opj_create_decompress(codec_jp2_is_bare(t->bytes, t->size) ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
    t->stream = opj_stream_default_create(OPJ_TRUE);
    if (!t->codec || !t->stream)
        return false;
    opj_set_error_handler(t->codec, codec_jp2_said, t);
    opj_stream_set_user_data(t->stream, t, NULL);
    opj_stream_set_user_data_length(t->stream, t->size);
    opj_stream_set_read_function(t->stream, codec_jp2_read);
    opj_stream_set_seek_function(t->stream, codec_jp2_seek);
    opj_stream_set_skip_function(t->stream, codec_jp2_skip);
    if (!opj_setup_decoder(t->codec, &parameters))
        return false;
    opj_codec_set_threads(t->codec, thread_count());
    return true;
}

static enum error_code codec_jp2_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                        struct image **out, struct error *err)
{
    struct jp2_found found;
    struct jp2_task t = {.bytes = bytes, .size = size, .err = err};
    enum error_code code = OK;
    if (!codec_jp2_walk(bytes, size, &found))
        return codec_damaged(err, codec_jp2.title, "no header");
    if (!codec_jp2_open(&t))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for the JPEG 2000 picture");
    else if (!opj_read_header(t.stream, t.codec, &t.pixels) || t.pixels->x1 - t.pixels->x0 != (uint32_t)info->width ||
             t.pixels->y1 - t.pixels->y0 != (uint32_t)info->height || !opj_decode(t.codec, t.stream, t.pixels) ||
             !opj_end_decompress(t.codec, t.stream))
        code = codec_jp2_bad(&t);
    else
        code = codec_jp2_take(&t, info);
    if (!code)
        code = image_blob_set(&t.image->exif, found.exif.data, found.exif.size, err);
    if (!code)
        code = image_blob_set(&t.image->xmp, found.xmp.data, found.xmp.size, err);
    opj_image_destroy(t.pixels);
    if (t.stream)
        opj_stream_destroy(t.stream);
    if (t.codec)
        opj_destroy_codec(t.codec);
    if (code)
        image_destroy(&t.image);
    *out = t.image;
    return code;
}

#endif

const struct codec_row codec_jp2 = {.format = IMAGE_JP2,
                                    .extension = "jp2",
                                    .media_type = "image/jp2",
                                    .title = "a JPEG 2000 picture",
                                    .library = "libopenjp2",
                                    .lossy = true,
                                    .matches = codec_jp2_matches,
#ifdef RESTORED_JP2
                                    .decode = codec_jp2_decode,
#endif
                                    .probe = codec_jp2_probe};
