/* JPEG XL by libjxl: of an animation one frame. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "runtime/base/thread.h"
#include "server/image/codec_row.h"
#include "server/image/jxl_header.h"

#ifdef RESTORED_JXL
#include <jxl/decode.h>
#include <jxl/encode.h>
#include <jxl/resizable_parallel_runner.h>
#endif

#define JXL_SIDE (1 << 30)
#define JXL_PIXELS 100000000 /* that are written: libjxl takes some 50 bytes for each */
#define JXL_BLOB_FIRST ((size_t)1 << 16)
#define JXL_BLOB_MOST ((size_t)64 << 20) /* bytes of EXIF or XMP, unpacked */

static bool codec_jxl_matches(const uint8_t *bytes, size_t size)
{
    return (size >= 2 && bytes[0] == 0xff && bytes[1] == 0x0a) ||
           (size >= 12 && memcmp(bytes, "\0\0\0\x0cJXL \r\n\x87\n", 12) == 0);
}

static enum error_code codec_jxl_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                       struct error *err)
{
    struct jxl_header header;
    (void)page;
    if (!jxl_header_read(bytes, size, &header))
        return codec_damaged(err, codec_jxl.title, "no header");
    if (header.width > INT32_MAX || header.height > INT32_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %u×%u pixels", header.width, header.height);
    *out = (struct codec_info){.format = IMAGE_JXL,
                               .bits = header.bits > 8 ? 16 : 8,
                               .channels = (header.gray ? 1 : 3) + header.alpha,
                               .alpha = header.alpha,
                               .pages = header.animated ? CODEC_MANY : 1};
    codec_set_size(out, header.width, header.height, header.orientation);
    out->orientation = 1; /* the library turns it */
    return OK;
}

#ifdef RESTORED_JXL

struct jxl_task {
    JxlDecoder *decoder;
    void *runner;
    struct image *image;
    uint8_t *rows; /* interleaved with alpha; NULL: none */
    uint8_t *box;  /* what is being read of EXIF or XMP */
    size_t box_room;
    struct image_blob *blob; /* where it goes; NULL: there is none */
    int frame;
    struct error *err;
};

static enum error_code codec_jxl_no_memory(struct jxl_task *t)
{
    return error_set(t->err, ERROR_NO_MEMORY, "out of memory for the JPEG XL picture");
}

/* The box that was being read is complete. */
static enum error_code codec_jxl_end_box(struct jxl_task *t)
{
    if (!t->blob)
        return OK;
    const size_t left = JxlDecoderReleaseBoxBuffer(t->decoder), size = t->box_room - left;
    struct image_blob *blob = t->blob;
    size_t skip = 0;
    t->blob = NULL;
    if (blob == &t->image->exif) /* before the TIFF block stands how far away it is */
        skip = size >= 4 ? 4 + (size_t)codec_big(t->box, 4) : size;
    return skip < size && !blob->data ? image_blob_set(blob, t->box + skip, size - skip, t->err) : OK;
}

static enum error_code codec_jxl_grow_box(struct jxl_task *t)
{
    const size_t left = t->blob ? JxlDecoderReleaseBoxBuffer(t->decoder) : 0, used = t->blob ? t->box_room - left : 0;
    const size_t room = t->blob ? 2 * t->box_room : JXL_BLOB_FIRST;
    uint8_t *grown = room > JXL_BLOB_MOST ? NULL : realloc(t->box, room > t->box_room ? room : t->box_room);
    if (!grown)
        return codec_jxl_no_memory(t);
    t->box = grown;
    t->box_room = room > t->box_room ? room : t->box_room;
    return JxlDecoderSetBoxBuffer(t->decoder, t->box + used, t->box_room - used) == JXL_DEC_SUCCESS
               ? OK
               : codec_damaged(t->err, codec_jxl.title, "a box");
}

static enum error_code codec_jxl_begin_box(struct jxl_task *t)
{
    JxlBoxType type;
    enum error_code code = codec_jxl_end_box(t);
    if (code || JxlDecoderGetBoxType(t->decoder, type, JXL_TRUE) != JXL_DEC_SUCCESS)
        return code;
    struct image_blob *blob = memcmp(type, "Exif", 4) == 0   ? &t->image->exif
                              : memcmp(type, "xml ", 4) == 0 ? &t->image->xmp
                                                             : NULL;
    if (!blob || blob->data)
        return OK;
    code = codec_jxl_grow_box(t);
    t->blob = code ? NULL : blob;
    return code;
}

static JxlPixelFormat codec_jxl_format(const struct image *image)
{
    return (JxlPixelFormat){.num_channels = (uint32_t)image->channels + (image->alpha ? 1 : 0),
                            .data_type = image->bits == 16 ? JXL_TYPE_UINT16 : JXL_TYPE_UINT8,
                            .endianness = JXL_NATIVE_ENDIAN};
}

/* Colours in sRGB need no profile. Those that were stored as the eye sees them (XYB) come out in the picture's own
 * space if that has a name, else, where the library would give linear light, in sRGB. */
static enum error_code codec_jxl_colour(struct jxl_task *t)
{
    const JxlPixelFormat format = codec_jxl_format(t->image);
    JxlColorEncoding colour;
    JxlBasicInfo info;
    size_t size = 0;
    const bool named = JxlDecoderGetColorAsEncodedProfile(t->decoder, &format, JXL_COLOR_PROFILE_TARGET_ORIGINAL,
                                                          &colour) == JXL_DEC_SUCCESS;
    if (named && colour.transfer_function == JXL_TRANSFER_FUNCTION_SRGB && colour.white_point == JXL_WHITE_POINT_D65 &&
        (colour.color_space == JXL_COLOR_SPACE_GRAY || colour.primaries == JXL_PRIMARIES_SRGB))
        return OK;
    if (!named && JxlDecoderGetBasicInfo(t->decoder, &info) == JXL_DEC_SUCCESS && !info.uses_original_profile) {
        colour = (JxlColorEncoding){.color_space = t->image->channels == 1 ? JXL_COLOR_SPACE_GRAY : JXL_COLOR_SPACE_RGB,
                                    .white_point = JXL_WHITE_POINT_D65,
                                    .primaries = JXL_PRIMARIES_SRGB,
                                    .transfer_function = JXL_TRANSFER_FUNCTION_SRGB,
                                    .rendering_intent = JXL_RENDERING_INTENT_RELATIVE};
        return JxlDecoderSetPreferredColorProfile(t->decoder, &colour) == JXL_DEC_SUCCESS
                   ? OK
                   : codec_damaged(t->err, codec_jxl.title, "its colours");
    }
    if (JxlDecoderGetICCProfileSize(t->decoder, &format, JXL_COLOR_PROFILE_TARGET_DATA, &size) != JXL_DEC_SUCCESS ||
        !size)
        return OK;
    if (!(t->image->icc.data = mem_alloc(size, 1)))
        return codec_jxl_no_memory(t);
    t->image->icc.size = size;
    return JxlDecoderGetColorAsICCProfile(t->decoder, &format, JXL_COLOR_PROFILE_TARGET_DATA, t->image->icc.data,
                                          size) == JXL_DEC_SUCCESS
               ? OK
               : codec_damaged(t->err, codec_jxl.title, "its profile");
}

/* The header has been read: what must agree with the one that we have read. */
static enum error_code codec_jxl_check(struct jxl_task *t)
{
    JxlBasicInfo info;
    const struct image *image = t->image;
    if (JxlDecoderGetBasicInfo(t->decoder, &info) != JXL_DEC_SUCCESS)
        return codec_damaged(t->err, codec_jxl.title, "no header");
    const uint32_t width = info.orientation > 4 ? info.ysize : info.xsize,
                   height = info.orientation > 4 ? info.xsize : info.ysize;
    if (width != (uint32_t)image->width || height != (uint32_t)image->height ||
        info.num_color_channels != (uint32_t)image->channels || (info.alpha_bits != 0) != (image->alpha != NULL))
        return codec_damaged(t->err, codec_jxl.title, "its header promised something else");
    JxlResizableParallelRunnerSetThreads(t->runner, (size_t)thread_count());
    return OK;
}

static enum error_code codec_jxl_output(struct jxl_task *t)
{
    const struct image *image = t->image;
    const JxlPixelFormat format = codec_jxl_format(image);
    size_t size = 0;
    if (JxlDecoderImageOutBufferSize(t->decoder, &format, &size) != JXL_DEC_SUCCESS ||
        size != (size_t)image->width * (size_t)image->height * format.num_channels * (size_t)image->bits / 8)
        return codec_damaged(t->err, codec_jxl.title, "its size");
    if (image->alpha && !t->rows && !(t->rows = mem_alloc(size, 1)))
        return codec_jxl_no_memory(t);
    return JxlDecoderSetImageOutBuffer(t->decoder, &format, t->rows ? t->rows : image->pixels, size) == JXL_DEC_SUCCESS
               ? OK
               : codec_damaged(t->err, codec_jxl.title, "its size");
}

/* Until the frame has been read and the file is at its end, behind which EXIF may stand. */
static enum error_code codec_jxl_run(struct jxl_task *t, int page)
{
    bool closed = false;
    for (enum error_code code = OK;;) {
        const JxlDecoderStatus status = JxlDecoderProcessInput(t->decoder);
        switch ((int)status) {
        case JXL_DEC_BASIC_INFO:
            code = codec_jxl_check(t);
            break;
        case JXL_DEC_COLOR_ENCODING:
            code = codec_jxl_colour(t);
            break;
        case JXL_DEC_BOX:
            code = codec_jxl_begin_box(t);
            break;
        case JXL_DEC_BOX_NEED_MORE_OUTPUT:
            code = codec_jxl_grow_box(t);
            break;
        case JXL_DEC_NEED_IMAGE_OUT_BUFFER:
            code = codec_jxl_output(t);
            break;
        case JXL_DEC_FULL_IMAGE:
            if (++t->frame == page)
                JxlDecoderSkipFrames(t->decoder, SIZE_MAX / 2); /* the rest is not looked at */
            break;
        case JXL_DEC_SUCCESS:
            code = codec_jxl_end_box(t);
            if (!code && t->frame < page)
                code = error_set(t->err, ERROR_INVALID, "page: the file has fewer than %d pages", page);
            return code;
        case JXL_DEC_NEED_MORE_INPUT: /* there is none: a box goes on to the file's end, or the picture is cut short */
            if (t->frame < page || closed)
                return codec_damaged(t->err, codec_jxl.title, "the file ends early");
            JxlDecoderCloseInput(t->decoder); /* which would complain on stderr if the picture were not complete */
            closed = true;
            break;
        default:
            return codec_damaged(t->err, codec_jxl.title, NULL);
        }
        if (code)
            return code;
    }
}

static enum error_code codec_jxl_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                        struct image **out, struct error *err)
{
    struct jxl_task t = {.err = err};
    enum error_code code =
        image_create(&t.image, info->width, info->height, info->channels - info->alpha, info->bits, info->alpha, err);
    if (code)
        return code;
    t.decoder = JxlDecoderCreate(NULL);
    t.runner = JxlResizableParallelRunnerCreate(NULL);
    const int events = JXL_DEC_BASIC_INFO | JXL_DEC_COLOR_ENCODING | JXL_DEC_FULL_IMAGE | JXL_DEC_BOX;
    if (!t.decoder || !t.runner ||
        JxlDecoderSetParallelRunner(t.decoder, JxlResizableParallelRunner, t.runner) != JXL_DEC_SUCCESS ||
        JxlDecoderSubscribeEvents(t.decoder, events) != JXL_DEC_SUCCESS ||
        JxlDecoderSetUnpremultiplyAlpha(t.decoder, JXL_TRUE) != JXL_DEC_SUCCESS ||
        JxlDecoderSetInput(t.decoder, bytes, size) != JXL_DEC_SUCCESS) {
        code = codec_jxl_no_memory(&t);
    } else {
        JxlDecoderSetDecompressBoxes(t.decoder, JXL_TRUE);
        if (info->page > 1)
            JxlDecoderSkipFrames(t.decoder, (size_t)info->page - 1);
        t.frame = info->page - 1;
        code = codec_jxl_run(&t, info->page);
    }
    for (int y = 0; !code && t.rows && y < t.image->height; y++)
        codec_interleave(t.image, (size_t)y,
                         t.rows + (size_t)y * (size_t)t.image->width * (size_t)(t.image->channels + 1) *
                                      (size_t)t.image->bits / 8,
                         false);
    if (t.decoder)
        JxlDecoderDestroy(t.decoder);
    if (t.runner)
        JxlResizableParallelRunnerDestroy(t.runner);
    free(t.rows);
    free(t.box);
    if (code)
        image_destroy(&t.image);
    *out = t.image;
    return code;
}

/* What the writer needs to know before the pixels. */
static bool codec_jxl_describe(JxlEncoder *encoder, const struct image *image, struct codec_options options)
{
    JxlBasicInfo info;
    JxlEncoderInitBasicInfo(&info);
    info.xsize = (uint32_t)image->width;
    info.ysize = (uint32_t)image->height;
    info.bits_per_sample = (uint32_t)image->bits;
    info.num_color_channels = (uint32_t)image->channels;
    info.uses_original_profile = options.lossless;
    info.num_extra_channels = image->alpha != NULL;
    info.alpha_bits = image->alpha ? (uint32_t)image->bits : 0;
    if (JxlEncoderSetBasicInfo(encoder, &info) != JXL_ENC_SUCCESS)
        return false;
    if (codec_icc_fits(image) && image->icc.data &&
        JxlEncoderSetICCProfile(encoder, image->icc.data, image->icc.size) == JXL_ENC_SUCCESS)
        return true;
    JxlColorEncoding colour;
    JxlColorEncodingSetToSRGB(&colour, image->channels == 1);
    return JxlEncoderSetColorEncoding(encoder, &colour) == JXL_ENC_SUCCESS;
}

/* EXIF stands behind how far away it is. */
static bool codec_jxl_add_boxes(JxlEncoder *encoder, const struct image *image)
{
    bool done = true;
    if (image->exif.size) {
        uint8_t *box = mem_calloc(image->exif.size + 4, 1);
        if (box)
            memcpy(box + 4, image->exif.data, image->exif.size);
        done = box && JxlEncoderAddBox(encoder, "Exif", box, image->exif.size + 4, JXL_FALSE) == JXL_ENC_SUCCESS;
        free(box);
    }
    if (done && image->xmp.size)
        done = JxlEncoderAddBox(encoder, "xml ", image->xmp.data, image->xmp.size, JXL_FALSE) == JXL_ENC_SUCCESS;
    return done;
}

static bool codec_jxl_add_pixels(JxlEncoder *encoder, const struct image *image, struct codec_options options)
{
    const JxlPixelFormat format = codec_jxl_format(image);
    const size_t line = (size_t)image->width * format.num_channels * (size_t)image->bits / 8;
    JxlEncoderFrameSettings *settings = JxlEncoderFrameSettingsCreate(encoder, NULL);
    /* a photo takes a tenth of the time of the library's own effort, and some 5 % more bytes */
    if (!settings || JxlEncoderFrameSettingsSetOption(settings, JXL_ENC_FRAME_SETTING_EFFORT,
                                                      options.lossless ? 3 : 4) != JXL_ENC_SUCCESS)
        return false;
    /* the scale of the library's own tools: 90 is a distance of 1, at which a change begins to be seen */
    const float distance = options.quality >= 100 ? 0.05f : 0.1f + (100 - (float)options.quality) * 0.09f;
    if ((options.lossless ? JxlEncoderSetFrameLossless(settings, JXL_TRUE)
                          : JxlEncoderSetFrameDistance(settings, distance)) != JXL_ENC_SUCCESS)
        return false;
    uint8_t *rows = image->alpha ? mem_alloc(line, (size_t)image->height) : NULL;
    if (image->alpha && !rows)
        return false;
    for (int y = 0; rows && y < image->height; y++)
        codec_interleave(image, (size_t)y, rows + (size_t)y * line, true);
    const bool done = JxlEncoderAddImageFrame(settings, &format, rows ? rows : image->pixels,
                                              line * (size_t)image->height) == JXL_ENC_SUCCESS;
    free(rows);
    return done;
}

static bool codec_jxl_write(JxlEncoder *encoder, struct codec_buffer *file)
{
    JxlEncoderStatus status;
    JxlEncoderCloseInput(encoder);
    do {
        uint8_t chunk[65536], *next = chunk;
        size_t room = sizeof chunk;
        status = JxlEncoderProcessOutput(encoder, &next, &room);
        if (!codec_buffer_add(file, chunk, sizeof chunk - room))
            return false;
    } while (status == JXL_ENC_NEED_MORE_OUTPUT);
    return status == JXL_ENC_SUCCESS;
}

static enum error_code codec_jxl_encode(const struct image *image, struct codec_options options,
                                        struct codec_output *out, struct error *err)
{
    struct codec_buffer file = {0};
    JxlEncoder *encoder = JxlEncoderCreate(NULL);
    void *runner = JxlResizableParallelRunnerCreate(NULL);
    bool done = encoder && runner;
    if (done) {
        JxlResizableParallelRunnerSetThreads(runner, (size_t)thread_count());
        done = JxlEncoderSetParallelRunner(encoder, JxlResizableParallelRunner, runner) == JXL_ENC_SUCCESS;
    }
    if (done && (image->exif.size || image->xmp.size))
        done = JxlEncoderUseBoxes(encoder) == JXL_ENC_SUCCESS;
    done = done && codec_jxl_describe(encoder, image, options) && codec_jxl_add_boxes(encoder, image) &&
           codec_jxl_add_pixels(encoder, image, options) && codec_jxl_write(encoder, &file);
    if (encoder)
        JxlEncoderDestroy(encoder);
    if (runner)
        JxlResizableParallelRunnerDestroy(runner);
    if (!done) {
        spill_free(file.bytes);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a JPEG XL picture of %d×%d pixels", image->width,
                         image->height);
    }
    *out = (struct codec_output){file.bytes, file.size,
                                 image->icc.data && !codec_icc_fits(image) ? (unsigned)IMAGE_NOTE_ICC_DROPPED : 0u};
    return OK;
}

#endif

const struct codec_row codec_jxl = {.format = IMAGE_JXL,
                                    .extension = "jxl",
                                    .media_type = "image/jxl",
                                    .title = "a JPEG XL picture",
                                    .lossless = true,
                                    .library = "libjxl",
                                    .lossy = true,
                                    .deep = true,
                                    .gray = true,
                                    .matches = codec_jxl_matches,
#ifdef RESTORED_JXL
                                    .decode = codec_jxl_decode,
                                    .max_side = JXL_SIDE,
                                    .max_pixels = JXL_PIXELS,
                                    .encode = codec_jxl_encode,
#endif
                                    .probe = codec_jxl_probe};
