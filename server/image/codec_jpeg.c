#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"
#include "server/image/jpeg_encode.h"
#include "server/image/jpeg_trap.h"

#include <jerror.h>

#define JPEG_MAX_SCANS 500 /* a small file may hold thousands of scans over a large picture: hours of work */

/* A large picture is read several times at once, where there are twice as many cores. Its codes can only be read from
 * the beginning, but the reader of a lower part makes no pixels of those it passes over, which is some 4/7 of the work:
 * each part has 3/7 of the rows of the one above, so that all end at once. More parts would gain nothing. */
#define JPEG_PARTS 4
#define JPEG_PARTS_PIXELS (1 << 19)

struct jpeg_reader {
    struct jpeg_trap trap;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    struct image *image;
    uint8_t *line; /* one row of CMYK */
    struct error err;
};

static bool codec_jpeg_matches(const uint8_t *bytes, size_t size)
{
    return size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

/* The payload of the first marker with that heading; size 0 when there is none. */
static const uint8_t *codec_jpeg_marker(const struct jpeg_decompress_struct *jpeg, int code, const char *heading,
                                        size_t heading_size, size_t *size)
{
    for (jpeg_saved_marker_ptr m = jpeg->marker_list; m; m = m->next)
        if (m->marker == code && m->data_length > heading_size && memcmp(m->data, heading, heading_size) == 0) {
            *size = m->data_length - heading_size;
            return m->data + heading_size;
        }
    *size = 0;
    return NULL;
}

static void codec_jpeg_header(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    jpeg_create_decompress(&r->jpeg);
    jpeg_mem_src(&r->jpeg, bytes, size);
    jpeg_save_markers(&r->jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_save_markers(&r->jpeg, JPEG_APP0 + 2, 0xffff);
    jpeg_read_header(&r->jpeg, TRUE);
    switch (r->jpeg.jpeg_color_space) {
    case JCS_GRAYSCALE:
        r->jpeg.out_color_space = JCS_GRAYSCALE;
        break;
    case JCS_RGB:
    case JCS_YCbCr:
        r->jpeg.out_color_space = JCS_RGB;
        break;
    case JCS_CMYK:
    case JCS_YCCK:
        r->jpeg.out_color_space = JCS_CMYK;
        break;
    default:
        ERREXIT(&r->jpeg, JERR_CONVERSION_NOTIMPL);
    }
}

static bool codec_jpeg_try_header(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    if (setjmp(r->trap.jump))
        return false;
    codec_jpeg_header(r, bytes, size);
    return true;
}

static enum error_code codec_jpeg_probe(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err)
{
    struct jpeg_reader r = {0};
    r.jpeg.err = jpeg_trap_set(&r.trap, err);
    if (codec_jpeg_try_header(&r, bytes, size)) {
        size_t length;
        const uint8_t *tiff =
            codec_jpeg_marker(&r.jpeg, JPEG_APP0 + 1, JPEG_ENCODE_EXIF, sizeof JPEG_ENCODE_EXIF, &length);
        *out = (struct codec_info){.format = IMAGE_JPEG, .bits = 8, .channels = r.jpeg.num_components};
        codec_set_size(out, r.jpeg.image_width, r.jpeg.image_height, exif_orientation(tiff, length));
    }
    jpeg_destroy_decompress(&r.jpeg);
    return r.trap.code;
}

static void codec_jpeg_progress(j_common_ptr common)
{
    if (((j_decompress_ptr)common)->input_scan_number > JPEG_MAX_SCANS)
        ERREXIT(common, JERR_BAD_PROGRESSION);
}

/* Adobe's writers store CMYK inverted (0 is full ink) and mark the file so; others, if any, straight. */
static void codec_jpeg_cmyk(uint8_t *rgb, const uint8_t *cmyk, int width, bool inverted)
{
    unsigned flip = inverted ? 0 : 255;
    for (int x = 0; x < width; x++, cmyk += 4, rgb += 3)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)(((cmyk[c] ^ flip) * (cmyk[3] ^ flip) + 127u) / 255u);
}

static enum error_code codec_jpeg_metadata(struct jpeg_reader *r)
{
    struct image *image = r->image;
    struct error *err = r->trap.err;
    size_t size;
    JOCTET *icc = NULL;
    unsigned icc_size = 0;
    const uint8_t *data = codec_jpeg_marker(&r->jpeg, JPEG_APP0 + 1, JPEG_ENCODE_EXIF, sizeof JPEG_ENCODE_EXIF, &size);
    enum error_code code = image_blob_set(&image->exif, data, size, err);
    if (code != OK)
        return code;
    data = codec_jpeg_marker(&r->jpeg, JPEG_APP0 + 1, JPEG_ENCODE_XMP, sizeof JPEG_ENCODE_XMP, &size);
    code = image_blob_set(&image->xmp, data, size, err);
    if (code != OK)
        return code;
    if (jpeg_read_icc_profile(&r->jpeg, &icc, &icc_size)) {
        if (r->jpeg.out_color_space == JCS_CMYK) {
            free(icc);
            image->notes |= IMAGE_NOTE_ICC_DROPPED;
        } else {
            image->icc = (struct image_blob){icc, icc_size};
        }
    }
    return OK;
}

static void codec_jpeg_begin(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    codec_jpeg_header(r, bytes, size);
    r->progress.progress_monitor = codec_jpeg_progress;
    r->jpeg.progress = &r->progress;
    jpeg_start_decompress(&r->jpeg);
}

/* Up to the picture, without its pixels. */
static bool codec_jpeg_try_begin(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    if (setjmp(r->trap.jump))
        return false;
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    codec_jpeg_begin(r, bytes, size);
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    r->trap.code = image_create(&r->image, (int)jpeg->output_width, (int)jpeg->output_height,
                                cmyk ? 3 : jpeg->output_components, 8, false, r->trap.err);
    if (r->trap.code == OK)
        r->trap.code = codec_jpeg_metadata(r);
    if (r->trap.code != OK)
        return false;
    r->image->notes |= cmyk ? IMAGE_NOTE_CMYK : 0u;
    return true;
}

/* Rows [begin, end) of image, begin being the next or further on. */
static bool codec_jpeg_try_rows(struct jpeg_reader *r, const struct image *image, unsigned begin, unsigned end)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    size_t stride = (size_t)image->width * (size_t)image->channels;
    if (cmyk && !(r->line = mem_alloc((size_t)image->width, 4))) {
        r->trap.code = error_set(r->trap.err, ERROR_NO_MEMORY, "out of memory for a row of pixels");
        return false;
    }
    if (setjmp(r->trap.jump))
        return false;
    if (begin > 0)
        jpeg_skip_scanlines(jpeg, begin);
    while (jpeg->output_scanline < end) {
        uint8_t *to = (uint8_t *)image->pixels + jpeg->output_scanline * stride;
        JSAMPROW row = cmyk ? r->line : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (cmyk)
            codec_jpeg_cmyk(to, row, image->width, jpeg->saw_Adobe_marker);
    }
    if (end == jpeg->output_height)
        jpeg_finish_decompress(jpeg); /* to the end marker: a file that lacks it is cut short */
    return true;
}

static bool codec_jpeg_try_again(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    if (setjmp(r->trap.jump))
        return false;
    codec_jpeg_begin(r, bytes, size);
    return true;
}

struct jpeg_parts {
    const uint8_t *bytes;
    size_t size;
    struct jpeg_reader readers[JPEG_PARTS];
    unsigned begin[JPEG_PARTS + 1]; /* rows of each */
    int count;
};

static void codec_jpeg_part(void *context, int item)
{
    struct jpeg_parts *parts = context;
    struct jpeg_reader *r = &parts->readers[item];
    if (item == 0 || codec_jpeg_try_again(r, parts->bytes, parts->size))
        codec_jpeg_try_rows(r, parts->readers[0].image, parts->begin[item], parts->begin[item + 1]);
}

static void codec_jpeg_plan(struct jpeg_parts *parts)
{
    const struct jpeg_decompress_struct *jpeg = &parts->readers[0].jpeg;
    const unsigned height = jpeg->output_height;
    double share = 1, sum = 0;
    parts->count = thread_count() / 2 < JPEG_PARTS ? thread_count() / 2 : JPEG_PARTS;
    if (parts->count < 1 || (uint64_t)height * jpeg->output_width < JPEG_PARTS_PIXELS ||
        jpeg_has_multiple_scans((j_decompress_ptr)jpeg)) /* all of whose codes come before the first pixel */
        parts->count = 1;
    for (int i = 0; i < parts->count; i++, share *= 3.0 / 7)
        sum += share;
    share = 1 / sum;
    for (int i = 0; i < parts->count; i++, share *= 3.0 / 7)
        parts->begin[i + 1] = i + 1 < parts->count ? parts->begin[i] + (unsigned)(height * share) : height;
}

static enum error_code codec_jpeg_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                         struct image **out, struct error *err)
{
    (void)info;
    struct jpeg_parts parts = {.bytes = bytes, .size = size};
    struct jpeg_reader *first = &parts.readers[0];
    for (int i = 0; i < JPEG_PARTS; i++)
        parts.readers[i].jpeg.err = jpeg_trap_set(&parts.readers[i].trap, &parts.readers[i].err);
    if (codec_jpeg_try_begin(first, bytes, size)) {
        codec_jpeg_plan(&parts);
        thread_for(parts.count, codec_jpeg_part, &parts);
    }
    enum error_code code = OK;
    for (int i = 0; i < JPEG_PARTS; i++) {
        struct jpeg_reader *r = &parts.readers[i];
        if (code == OK && r->trap.code != OK)
            code = error_set(err, r->trap.code, "%s", r->err.text);
        jpeg_destroy_decompress(&r->jpeg);
        free(r->line);
    }
    if (code != OK)
        image_destroy(&first->image);
    *out = first->image;
    return code;
}

static enum error_code codec_jpeg_encode(const struct image *image, struct codec_options options,
                                         struct codec_output *out, struct error *err)
{
    return jpeg_encode(image, options.quality, out, err);
}

const struct codec_row codec_jpeg = {.format = IMAGE_JPEG,
                                     .extension = "jpg",
                                     .media_type = "image/jpeg",
                                     .max_side = JPEG_MAX_DIMENSION,
                                     .matches = codec_jpeg_matches,
                                     .probe = codec_jpeg_probe,
                                     .decode = codec_jpeg_decode,
                                     .encode = codec_jpeg_encode};
