#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "runtime/base/mem.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"

#define JPEG_EXIF "Exif\0"                      /* 6 bytes with the final 0 */
#define JPEG_XMP "http://ns.adobe.com/xap/1.0/" /* 29 bytes with the final 0 */
#define JPEG_SEGMENT 65533                      /* bytes that a marker can carry */
#define JPEG_ICC (255 * (JPEG_SEGMENT - 14))    /* in at most 255 segments with 14 bytes of heading each */
#define JPEG_MAX_SCANS 500 /* a small file may hold thousands of scans over a large picture: hours of work */

/* libjpeg reports by calling back and longjmp. The struct lies in a caller of the function that calls setjmp, so that
 * its fields are well defined after the jump. */
struct jpeg_trap {
    struct jpeg_error_mgr manager; /* first: libjpeg hands back a pointer to it */
    jmp_buf jump;
    struct error *err;
    enum error_code code;
};

static enum error_code codec_jpeg_code(int message)
{
    switch (message) {
    case JERR_OUT_OF_MEMORY:
        return ERROR_NO_MEMORY;
    case JERR_IMAGE_TOO_BIG:
        return ERROR_TOO_LARGE;
    case JERR_BAD_PRECISION:   /* 12 bit */
    case JERR_SOF_UNSUPPORTED: /* lossless, hierarchical */
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
        return ERROR_UNSUPPORTED;
    default:
        return ERROR_CORRUPT;
    }
}

static _Noreturn void codec_jpeg_fail(j_common_ptr common, enum error_code code)
{
    struct jpeg_trap *trap = (struct jpeg_trap *)common->err;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    trap->code = error_set(trap->err, code, "%s: %s",
                           code == ERROR_CORRUPT       ? "the JPEG is damaged or cut short"
                           : code == ERROR_UNSUPPORTED ? "this kind of JPEG is not supported"
                                                       : "JPEG",
                           text);
    longjmp(trap->jump, 1);
}

static void codec_jpeg_error(j_common_ptr common)
{
    codec_jpeg_fail(common, codec_jpeg_code(common->err->msg_code));
}

/* libjpeg goes on after damage and paints gray; we do not. The warnings let through lose no pixel: stray bytes between
 * markers (many cameras write them), an unusual version number or profile, odd but harmless scan parameters. */
static void codec_jpeg_message(j_common_ptr common, int level)
{
    switch (common->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_BOGUS_ICC:
    case JWRN_NOT_SEQUENTIAL:
        return;
    default:
        if (level < 0)
            codec_jpeg_fail(common, ERROR_CORRUPT);
    }
}

static void codec_jpeg_silent(j_common_ptr common)
{
    (void)common;
}

static struct jpeg_error_mgr *codec_jpeg_trap(struct jpeg_trap *trap, struct error *err)
{
    trap->err = err;
    trap->code = OK;
    jpeg_std_error(&trap->manager);
    trap->manager.error_exit = codec_jpeg_error;
    trap->manager.emit_message = codec_jpeg_message;
    trap->manager.output_message = codec_jpeg_silent;
    return &trap->manager;
}

struct jpeg_reader {
    struct jpeg_trap trap;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    struct image *image;
    uint8_t *line; /* one row of CMYK */
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
    r.jpeg.err = codec_jpeg_trap(&r.trap, err);
    if (codec_jpeg_try_header(&r, bytes, size)) {
        size_t length;
        const uint8_t *tiff = codec_jpeg_marker(&r.jpeg, JPEG_APP0 + 1, JPEG_EXIF, sizeof JPEG_EXIF, &length);
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
    const uint8_t *data = codec_jpeg_marker(&r->jpeg, JPEG_APP0 + 1, JPEG_EXIF, sizeof JPEG_EXIF, &size);
    enum error_code code = image_blob_set(&image->exif, data, size, err);
    if (code != OK)
        return code;
    data = codec_jpeg_marker(&r->jpeg, JPEG_APP0 + 1, JPEG_XMP, sizeof JPEG_XMP, &size);
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

static bool codec_jpeg_try_decode(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    if (setjmp(r->trap.jump))
        return false;
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    codec_jpeg_header(r, bytes, size);
    r->progress.progress_monitor = codec_jpeg_progress;
    jpeg->progress = &r->progress;
    jpeg_start_decompress(jpeg);
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    int channels = cmyk ? 3 : jpeg->output_components;
    size_t stride = (size_t)jpeg->output_width * (size_t)channels;
    r->trap.code =
        image_create(&r->image, (int)jpeg->output_width, (int)jpeg->output_height, channels, 8, false, r->trap.err);
    if (r->trap.code == OK && cmyk && !(r->line = mem_alloc(jpeg->output_width, 4)))
        r->trap.code = error_set(r->trap.err, ERROR_NO_MEMORY, "out of memory for a row of pixels");
    if (r->trap.code == OK)
        r->trap.code = codec_jpeg_metadata(r);
    if (r->trap.code != OK)
        return false;
    r->image->notes |= cmyk ? IMAGE_NOTE_CMYK : 0u;
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = (uint8_t *)r->image->pixels + jpeg->output_scanline * stride;
        JSAMPROW row = cmyk ? r->line : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (cmyk)
            codec_jpeg_cmyk(to, row, r->image->width, jpeg->saw_Adobe_marker);
    }
    jpeg_finish_decompress(jpeg); /* to the end marker: a file that lacks it is cut short */
    return true;
}

static enum error_code codec_jpeg_decode(const uint8_t *bytes, size_t size, const struct codec_info *info,
                                         struct image **out, struct error *err)
{
    (void)info;
    struct jpeg_reader r = {0};
    r.jpeg.err = codec_jpeg_trap(&r.trap, err);
    if (!codec_jpeg_try_decode(&r, bytes, size))
        image_destroy(&r.image);
    jpeg_destroy_decompress(&r.jpeg);
    free(r.line);
    *out = r.image;
    return r.trap.code;
}

struct jpeg_writer {
    struct jpeg_trap trap;
    struct jpeg_compress_struct jpeg;
    struct jpeg_destination_mgr to;
    struct codec_buffer file;
    uint8_t *line;
    unsigned notes;
    uint8_t chunk[1 << 14];
};

static void codec_jpeg_refill(struct jpeg_writer *w)
{
    w->to.next_output_byte = w->chunk;
    w->to.free_in_buffer = sizeof w->chunk;
}

static void codec_jpeg_open(j_compress_ptr jpeg)
{
    codec_jpeg_refill(jpeg->client_data);
}

static void codec_jpeg_add(struct jpeg_writer *w, size_t size)
{
    if (!codec_buffer_add(&w->file, w->chunk, size))
        ERREXIT1(&w->jpeg, JERR_OUT_OF_MEMORY, 0);
}

static boolean codec_jpeg_full(j_compress_ptr jpeg)
{
    struct jpeg_writer *w = jpeg->client_data;
    codec_jpeg_add(w, sizeof w->chunk); /* the whole chunk, whatever free_in_buffer says: libjpeg's rule */
    codec_jpeg_refill(w);
    return TRUE;
}

static void codec_jpeg_close(j_compress_ptr jpeg)
{
    struct jpeg_writer *w = jpeg->client_data;
    codec_jpeg_add(w, sizeof w->chunk - w->to.free_in_buffer);
}

/* Row y as 8 bit without alpha. */
static void codec_jpeg_row(const struct image *image, int y, uint8_t *to)
{
    size_t n = (size_t)image->channels, at = (size_t)y * (size_t)image->width;
    bool deep = image->bits == 16;
    uint64_t full = deep ? 65535 : 255;
    for (size_t x = 0; x < (size_t)image->width; x++, at++)
        for (size_t c = 0; c < n; c++) {
            uint64_t v =
                deep ? ((const uint16_t *)image->pixels)[at * n + c] : ((const uint8_t *)image->pixels)[at * n + c];
            if (image->alpha) {
                uint64_t a = deep ? ((const uint16_t *)image->alpha)[at] : ((const uint8_t *)image->alpha)[at];
                v = (v * a + full * (full - a) + full / 2) / full;
            }
            *to++ = (uint8_t)(deep ? (v * 255 + 32767) / 65535 : v);
        }
}

static void codec_jpeg_write_blob(struct jpeg_writer *w, const char *heading, size_t heading_size,
                                  const struct image_blob *blob, unsigned note)
{
    if (!blob->data)
        return;
    if (blob->size > JPEG_SEGMENT - heading_size) {
        w->notes |= note;
        return;
    }
    jpeg_write_m_header(&w->jpeg, JPEG_APP0 + 1, (unsigned)(heading_size + blob->size));
    for (size_t i = 0; i < heading_size; i++)
        jpeg_write_m_byte(&w->jpeg, (unsigned char)heading[i]);
    for (size_t i = 0; i < blob->size; i++)
        jpeg_write_m_byte(&w->jpeg, blob->data[i]);
}

static void codec_jpeg_write_metadata(struct jpeg_writer *w, const struct image *image)
{
    codec_jpeg_write_blob(w, JPEG_EXIF, sizeof JPEG_EXIF, &image->exif, IMAGE_NOTE_EXIF_DROPPED);
    codec_jpeg_write_blob(w, JPEG_XMP, sizeof JPEG_XMP, &image->xmp, IMAGE_NOTE_XMP_DROPPED);
    if (image->icc.data && codec_icc_fits(image) && image->icc.size <= JPEG_ICC)
        jpeg_write_icc_profile(&w->jpeg, image->icc.data, (unsigned)image->icc.size);
    else if (image->icc.data)
        w->notes |= IMAGE_NOTE_ICC_DROPPED;
}

static bool codec_jpeg_try_encode(struct jpeg_writer *w, const struct image *image, int quality)
{
    if (setjmp(w->trap.jump))
        return false;
    struct jpeg_compress_struct *jpeg = &w->jpeg;
    jpeg_create_compress(jpeg);
    jpeg->client_data = w;
    jpeg->dest = &w->to;
    w->to.init_destination = codec_jpeg_open;
    w->to.empty_output_buffer = codec_jpeg_full;
    w->to.term_destination = codec_jpeg_close;
    jpeg->image_width = (JDIMENSION)image->width;
    jpeg->image_height = (JDIMENSION)image->height;
    jpeg->input_components = image->channels;
    jpeg->in_color_space = image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(jpeg); /* 4:2:0, as the reference writes: at 95 halved chroma is not seen, and saves a third */
    jpeg_set_quality(jpeg, quality, TRUE);
    jpeg_start_compress(jpeg, TRUE);
    codec_jpeg_write_metadata(w, image);
    while (jpeg->next_scanline < jpeg->image_height) {
        JSAMPROW row = w->line;
        codec_jpeg_row(image, (int)jpeg->next_scanline, row);
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    return true;
}

static enum error_code codec_jpeg_encode(const struct image *image, struct codec_options options,
                                         struct codec_output *out, struct error *err)
{
    struct jpeg_writer w = {0};
    w.jpeg.err = codec_jpeg_trap(&w.trap, err);
    w.line = mem_alloc((size_t)image->width, (size_t)image->channels);
    if (!w.line)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a row of pixels");
    w.notes = (image->alpha ? IMAGE_NOTE_FLATTENED : 0u) | (image->bits == 16 ? IMAGE_NOTE_BITS_REDUCED : 0u);
    if (codec_jpeg_try_encode(&w, image, options.quality))
        *out = (struct codec_output){w.file.bytes, w.file.size, w.notes};
    else
        free(w.file.bytes);
    jpeg_destroy_compress(&w.jpeg);
    free(w.line);
    return w.trap.code;
}

const struct codec_row codec_jpeg = {.format = IMAGE_JPEG,
                                     .extension = "jpg",
                                     .media_type = "image/jpeg",
                                     .max_side = JPEG_MAX_DIMENSION,
                                     .matches = codec_jpeg_matches,
                                     .probe = codec_jpeg_probe,
                                     .decode = codec_jpeg_decode,
                                     .encode = codec_jpeg_encode};
