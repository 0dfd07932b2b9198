/* WebP by libwebp: lossy and lossless, alpha, and single frames of animations. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"
#include "server/image/icc.h"

#ifdef RESTORED_WEBP
#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>
#include <webp/mux.h>
#endif

#define WEBP_CHUNKS 65536
#define WEBP_SIDE 16383

/* What the chunks say, in the words of the container's specification. */
struct webp_found {
    uint32_t width, height;
    bool alpha, animated, whole;
    int frames;
    struct {
        const uint8_t *data; /* in the file; NULL: none */
        size_t size;
    } icc, exif, xmp;
};

static bool codec_webp_matches(const uint8_t *bytes, size_t size)
{
    return size >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0;
}

static uint32_t codec_webp_number(const uint8_t *p, int count)
{
    uint32_t value = 0;
    for (int i = count; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

/* One chunk; its data are in the file, size bytes of them. */
static void codec_webp_chunk(struct webp_found *found, const uint8_t *name, const uint8_t *data, size_t size)
{
    if (memcmp(name, "VP8X", 4) == 0 && size >= 10 && !found->width) {
        found->alpha = data[0] & 0x10;
        found->animated = data[0] & 0x02;
        found->width = codec_webp_number(data + 4, 3) + 1;
        found->height = codec_webp_number(data + 7, 3) + 1;
    } else if (memcmp(name, "VP8 ", 4) == 0 && size >= 10 && !found->width &&
               memcmp(data + 3, "\x9d\x01\x2a", 3) == 0) {
        found->width = codec_webp_number(data + 6, 2) & 0x3fff;
        found->height = codec_webp_number(data + 8, 2) & 0x3fff;
    } else if (memcmp(name, "VP8L", 4) == 0 && size >= 5 && !found->width && data[0] == 0x2f) {
        const uint32_t bits = codec_webp_number(data + 1, 4);
        found->width = (bits & 0x3fff) + 1;
        found->height = (bits >> 14 & 0x3fff) + 1;
        found->alpha = bits >> 28 & 1;
    } else if (memcmp(name, "ICCP", 4) == 0 && !found->icc.data) {
        found->icc.data = data;
        found->icc.size = size;
    } else if (memcmp(name, "EXIF", 4) == 0 && !found->exif.data) {
        const size_t skip = size >= 6 && memcmp(data, "Exif\0", 6) == 0 ? 6 : 0; /* as some writers have it */
        found->exif.data = data + skip;
        found->exif.size = size - skip;
    } else if (memcmp(name, "XMP ", 4) == 0 && !found->xmp.data) {
        found->xmp.data = data;
        found->xmp.size = size;
    } else if (memcmp(name, "ANMF", 4) == 0) {
        found->frames++;
    }
}

static enum error_code codec_webp_walk(const uint8_t *bytes, size_t size, struct webp_found *out, struct error *err)
{
    const size_t promised = (size_t)codec_webp_number(bytes + 4, 4) + 8, end = promised < size ? promised : size;
    *out = (struct webp_found){.whole = promised <= size};
    size_t at = 12;
    for (int count = 0; at < end && end - at >= 8; count++) {
        const size_t length = codec_webp_number(bytes + at + 4, 4), there = end - at - 8;
        if (count == WEBP_CHUNKS)
            return codec_damaged(err, codec_webp.title, "too many chunks");
        codec_webp_chunk(out, bytes + at, bytes + at + 8, length < there ? length : there);
        if (length >= there)
            break;
        at += 8 + length + (length & 1);
    }
    return OK;
}

static enum error_code codec_webp_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                        struct error *err)
{
    struct webp_found found;
    (void)page;
    enum error_code code = codec_webp_walk(bytes, size, &found, err);
    if (code)
        return code;
    if (!found.width || !found.height)
        return codec_damaged(err, codec_webp.title, "no size");
    if (found.width > WEBP_SIDE + 1 || found.height > WEBP_SIDE + 1)
        return error_set(err, ERROR_TOO_LARGE, "a WebP can have at most %d pixels a side, this one has %u×%u",
                         WEBP_SIDE, found.width, found.height);
    *out = (struct codec_info){.format = IMAGE_WEBP,
                               .bits = 8,
                               .channels = found.alpha ? 4 : 3,
                               .alpha = found.alpha,
                               .pages = found.animated ? found.frames : 1};
    codec_set_size(out, found.width, found.height, exif_orientation(found.exif.data, found.exif.size));
    return OK;
}

#ifdef RESTORED_WEBP

/* All of the picture, from rows of RGBA. */
static void codec_webp_fill(struct image *image, const uint8_t *rgba)
{
    const size_t width = (size_t)image->width, height = (size_t)image->height;
    for (size_t y = 0; y < height; y++, rgba += 4 * width)
        if (image->alpha)
            codec_interleave(image, y, (uint8_t *)(uintptr_t)rgba, false);
        else
            for (size_t x = 0; x < width; x++)
                memcpy((uint8_t *)image->pixels + (y * width + x) * 3, rgba + 4 * x, 3);
}

static enum error_code codec_webp_still(const uint8_t *bytes, size_t size, struct image *image, struct error *err)
{
    WebPDecoderConfig config;
    uint8_t *rgba = NULL;
    const size_t pixel = image->alpha ? 4 : 3, stride = (size_t)image->width * pixel;
    if (image->alpha && !(rgba = mem_alloc(stride, (size_t)image->height)))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a WebP of %d×%d pixels", image->width, image->height);
    if (!WebPInitDecoderConfig(&config)) {
        free(rgba);
        return error_set(err, ERROR_INTERNAL, "libwebp is another one than at compile time");
    }
    config.options.use_threads = 1;
    config.output.colorspace = image->alpha ? MODE_RGBA : MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = rgba ? rgba : image->pixels;
    config.output.u.RGBA.stride = (int)stride;
    config.output.u.RGBA.size = stride * (size_t)image->height;
    const VP8StatusCode status = WebPDecode(bytes, size, &config);
    if (status == VP8_STATUS_OK && rgba)
        codec_webp_fill(image, rgba);
    free(rgba);
    if (status == VP8_STATUS_OUT_OF_MEMORY)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the WebP");
    return status == VP8_STATUS_OK ? OK : codec_damaged(err, codec_webp.title, NULL);
}

/* A frame shows what those before it have left. */
static enum error_code codec_webp_frame(const uint8_t *bytes, size_t size, int page, struct image *image,
                                        struct error *err)
{
    const WebPData data = {bytes, size};
    WebPAnimDecoderOptions options;
    WebPAnimDecoder *decoder = NULL;
    uint8_t *rgba = NULL;
    int time;
    if (WebPAnimDecoderOptionsInit(&options)) {
        options.color_mode = MODE_RGBA;
        options.use_threads = 1;
        decoder = WebPAnimDecoderNew(&data, &options);
    }
    for (int i = 0; decoder && i < page; i++)
        if (!WebPAnimDecoderGetNext(decoder, &rgba, &time)) {
            rgba = NULL;
            break;
        }
    if (rgba)
        codec_webp_fill(image, rgba);
    WebPAnimDecoderDelete(decoder);
    return rgba ? OK : codec_damaged(err, codec_webp.title, NULL);
}

static enum error_code codec_webp_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                         struct image **out, struct error *err)
{
    struct webp_found found;
    enum error_code code = codec_webp_walk(bytes, size, &found, err);
    if (code)
        return code;
    if (!found.whole)
        return codec_damaged(err, codec_webp.title, "the file ends early");
    code = image_create(out, (int)found.width, (int)found.height, 3, 8, info->alpha, err);
    if (!code)
        code = found.animated ? codec_webp_frame(bytes, size, info->page, *out, err)
                              : codec_webp_still(bytes, size, *out, err);
    if (!code)
        code = image_blob_set(&(*out)->icc, found.icc.data, found.icc.size, err);
    if (!code)
        code = image_blob_set(&(*out)->exif, found.exif.data, found.exif.size, err);
    if (!code)
        code = image_blob_set(&(*out)->xmp, found.xmp.data, found.xmp.size, err);
    if (code)
        image_destroy(out);
    return code;
}

/* The picture alone, in writer's memory. */
static bool codec_webp_compress(const struct image *image, struct codec_options options, WebPMemoryWriter *writer)
{
    WebPConfig config;
    WebPPicture picture;
    const size_t pixel = image->alpha ? 4 : 3, stride = (size_t)image->width * pixel;
    if (!WebPConfigPreset(&config, WEBP_PRESET_PHOTO, (float)options.quality) || !WebPPictureInit(&picture))
        return false;
    config.thread_level = 1;
    config.lossless = options.lossless;
    config.exact = options.lossless;
    if (options.lossless)
        config.quality = 50; /* here it is effort */
    picture.use_argb = options.lossless;
    picture.width = image->width;
    picture.height = image->height;
    picture.writer = WebPMemoryWrite;
    picture.custom_ptr = writer;
    uint8_t *rows = mem_alloc(stride, (size_t)image->height);
    for (int y = 0; rows && y < image->height; y++)
        codec_row_8(image, y, rows + (size_t)y * stride);
    const bool imported = rows && (image->alpha ? WebPPictureImportRGBA(&picture, rows, (int)stride)
                                                : WebPPictureImportRGB(&picture, rows, (int)stride));
    free(rows);
    const bool done = imported && WebPEncode(&config, &picture);
    WebPPictureFree(&picture);
    return done;
}

static bool codec_webp_add(WebPMux *mux, const char *name, const void *data, size_t size)
{
    const WebPData chunk = {data, size};
    return !size || WebPMuxSetChunk(mux, name, &chunk, 0) == WEBP_MUX_OK;
}

static enum error_code codec_webp_encode(const struct image *image, struct codec_options options,
                                         struct codec_output *out, struct error *err)
{
    WebPMemoryWriter writer;
    WebPData file = {0};
    const bool icc = image->icc.data && icc_space(image->icc.data, image->icc.size) == ICC_RGB;
    WebPMemoryWriterInit(&writer);
    WebPMux *mux = WebPMuxNew();
    bool done = mux && codec_webp_compress(image, options, &writer);
    const WebPData picture = {writer.mem, writer.size};
    done = done && WebPMuxSetImage(mux, &picture, 0) == WEBP_MUX_OK &&
           (!icc || codec_webp_add(mux, "ICCP", image->icc.data, image->icc.size)) &&
           codec_webp_add(mux, "EXIF", image->exif.data, image->exif.size) &&
           codec_webp_add(mux, "XMP ", image->xmp.data, image->xmp.size) && WebPMuxAssemble(mux, &file) == WEBP_MUX_OK;
    WebPMuxDelete(mux);
    WebPMemoryWriterClear(&writer);
    if (!done)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a WebP of %d×%d pixels", image->width, image->height);
    *out = (struct codec_output){(uint8_t *)(uintptr_t)file.bytes, file.size, /* from malloc */
                                 (image->icc.data && !icc ? (unsigned)IMAGE_NOTE_ICC_DROPPED : 0u) |
                                     (image->bits == 16 ? (unsigned)IMAGE_NOTE_BITS_REDUCED : 0u)};
    return OK;
}

#endif

const struct codec_row codec_webp = {.format = IMAGE_WEBP,
                                     .extension = "webp",
                                     .media_type = "image/webp",
                                     .title = "a WebP picture",
                                     .lossless = true,
                                     .library = "libwebp",
                                     .lossy = true,
                                     .matches = codec_webp_matches,
#ifdef RESTORED_WEBP
                                     .decode = codec_webp_decode,
                                     .max_side = WEBP_SIDE,
                                     .encode = codec_webp_encode,
#endif
                                     .probe = codec_webp_probe};
