#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/codec_row.h"
#include "server/image/exif.h"
#include "server/image/iptc.h"
#include "server/image/jpeg_encode.h"
#include "server/image/jpeg_header.h"
#include "server/image/jpeg_trap.h"
#include "server/image/profile.h"

#include <jerror.h>

#define JPEG_MAX_SCANS 500 /* a small file may hold thousands of scans over a large picture: hours of work */

/* A large picture is read by several readers at the same time, if there are twice as many cores. Its codes can only be
 * read from the beginning, but the reader of a lower part makes no pixels from those that it skips, which saves some
 * 4/7 of the work: each part has 3/7 of the rows of the one above, so that all end at the same time. More parts would
 * gain nothing. */
#define JPEG_PARTS 4
#define JPEG_PARTS_PIXELS (1 << 19)

struct jpeg_reader {
    struct jpeg_trap trap;
    struct jpeg_decompress_struct jpeg;
    struct jpeg_progress_mgr progress;
    struct image *image;
    uint8_t *line; /* one row of CMYK */
    struct profile_cmyk inks;
    struct error err;
};

static bool codec_jpeg_matches(const uint8_t *bytes, size_t size)
{
    return size >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

static void codec_jpeg_header(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    jpeg_create_decompress(&r->jpeg);
    jpeg_mem_src(&r->jpeg, bytes, size);
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

static enum error_code codec_jpeg_probe(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                        struct error *err)
{
    (void)page;
    struct jpeg_header header;
    enum error_code code = jpeg_header_read(bytes, size, &header, err);
    if (code)
        return code;
    *out = (struct codec_info){.format = IMAGE_JPEG, .bits = 8, .channels = header.components};
    codec_set_size(out, (uint32_t)header.width, (uint32_t)header.height,
                   exif_orientation(header.exif.data, header.exif.size));
    return OK;
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

static enum error_code codec_jpeg_metadata(struct image *image, const struct jpeg_header *header, struct error *err)
{
    enum error_code code = image_blob_set(&image->exif, header->exif.data, header->exif.size, err);
    if (!code)
        code = image_blob_set(&image->xmp, header->xmp.data, header->xmp.size, err);
    if (!code)
        code = jpeg_header_icc(header, &image->icc.data, &image->icc.size, err);
    size_t size = 0;
    const uint8_t *iptc = code ? NULL : iptc_find(header->resources.data, header->resources.size, &size);
    return iptc ? image_blob_set(&image->iptc, iptc, size, err) : code;
}

/* CMYK by its profile, if it has one that can be used. */
static enum error_code codec_jpeg_inks(struct jpeg_reader *r, const struct jpeg_header *header, unsigned *notes)
{
    struct image_blob icc = {0};
    enum error_code code = jpeg_header_icc(header, &icc.data, &icc.size, r->trap.err);
    if (code == OK)
        code = profile_cmyk_open(&r->inks, icc.data, icc.size,
                                 &(struct profile_inks){8, 0, r->jpeg.saw_Adobe_marker, true}, r->trap.err);
    *notes = icc.data && !r->inks.profile ? IMAGE_NOTE_ICC_DROPPED : 0u;
    free(icc.data);
    return code;
}

static void codec_jpeg_begin(struct jpeg_reader *r, const uint8_t *bytes, size_t size)
{
    codec_jpeg_header(r, bytes, size);
    r->progress.progress_monitor = codec_jpeg_progress;
    r->jpeg.progress = &r->progress;
    r->jpeg.scale_num = 1;
    r->jpeg.scale_denom = (unsigned)codec_reduced();
    jpeg_start_decompress(&r->jpeg);
}

/* Reads everything before the picture's pixels. */
static bool codec_jpeg_try_begin(struct jpeg_reader *r, const struct jpeg_header *header, const uint8_t *bytes,
                                 size_t size)
{
    if (setjmp(r->trap.jump))
        return false;
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    codec_jpeg_begin(r, bytes, size);
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    unsigned notes = 0;
    if (cmyk)
        r->trap.code = codec_jpeg_inks(r, header, &notes);
    if (r->trap.code == OK)
        r->trap.code = image_create(&r->image, (int)jpeg->output_width, (int)jpeg->output_height,
                                    cmyk ? 3 : jpeg->output_components, r->inks.wide ? 16 : 8, false, r->trap.err);
    if (r->trap.code == OK)
        r->trap.code = codec_jpeg_metadata(r->image, header, r->trap.err);
    if (r->trap.code != OK)
        return false;
    if (jpeg->saw_JFIF_marker && (jpeg->density_unit == 1 || jpeg->density_unit == 2)) { /* inch, cm */
        const double unit = jpeg->density_unit == 2 ? 2.54 : 1;
        r->image->density[0] = jpeg->X_density * unit;
        r->image->density[1] = jpeg->Y_density * unit;
    }
    if (cmyk)
        profile_cmyk_apply(&r->inks, r->image);
    r->image->notes |= notes;
    return true;
}

/* Reads rows [begin, end) of image; begin is the next row or a later one. */
static bool codec_jpeg_try_rows(struct jpeg_reader *r, const struct image *image, const struct profile_cmyk *inks,
                                unsigned begin, unsigned end)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    bool cmyk = jpeg->out_color_space == JCS_CMYK;
    size_t stride = (size_t)image->width * (size_t)image->channels * (size_t)(image->bits / 8);
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
        if (cmyk && inks->profile)
            profile_cmyk_row(inks, row, to, image->width);
        else if (cmyk)
            codec_jpeg_cmyk(to, row, image->width, jpeg->saw_Adobe_marker);
        if (jpeg->output_scanline % CODEC_READ_PASSED == 0 && jpeg->output_scanline >= begin + CODEC_READ_PASSED)
            image_passed(image, (int)jpeg->output_scanline - CODEC_READ_PASSED, (int)jpeg->output_scanline);
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
        codec_jpeg_try_rows(r, parts->readers[0].image, &parts->readers[0].inks, parts->begin[item],
                            parts->begin[item + 1]);
}

static void codec_jpeg_plan(struct jpeg_parts *parts)
{
    const struct jpeg_decompress_struct *jpeg = &parts->readers[0].jpeg;
    const unsigned height = jpeg->output_height;
    double share = 1, sum = 0;
    parts->count = thread_count() / 2 < JPEG_PARTS ? thread_count() / 2 : JPEG_PARTS;
    if (parts->count < 1 || (uint64_t)height * jpeg->output_width < JPEG_PARTS_PIXELS ||
        codec_reduced() > 1 ||                           /* whose pixels take little of the time */
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
    struct jpeg_header header;
    struct jpeg_parts parts = {.bytes = bytes, .size = size};
    struct jpeg_reader *first = &parts.readers[0];
    enum error_code code =
        jpeg_header_read(bytes, size, &header, err); /* libjpeg gets nothing that is over its bounds */
    if (code)
        return code;
    for (int i = 0; i < JPEG_PARTS; i++)
        parts.readers[i].jpeg.err = jpeg_trap_set(&parts.readers[i].trap, &parts.readers[i].err);
    if (codec_jpeg_try_begin(first, &header, bytes, size)) {
        codec_jpeg_plan(&parts);
        thread_for(parts.count, codec_jpeg_part, &parts);
    }
    for (int i = 0; i < JPEG_PARTS; i++) {
        struct jpeg_reader *r = &parts.readers[i];
        if (code == OK && r->trap.code != OK) {
            code = error_set(err, r->trap.code, "%s", r->err.text);
            error_detail(err, "%s", r->err.detail);
        }
        jpeg_destroy_decompress(&r->jpeg);
        profile_cmyk_close(&r->inks);
        free(r->line);
    }
    if (code != OK)
        image_destroy(&first->image);
    *out = first->image;
    return code;
}

/* Whether the damage is the file's end. */
static bool codec_jpeg_is_cut(const struct jpeg_trap *trap)
{
    return trap->damage == JWRN_JPEG_EOF || trap->code != OK;
}

/* In one piece, with libjpeg's own handling of damage. */
static enum error_code codec_jpeg_salvage(const uint8_t *bytes, size_t size, struct image **out,
                                          struct codec_damage *damage, struct error *err)
{
    struct jpeg_header header;
    struct jpeg_reader r = {0};
    enum error_code code = jpeg_header_read(bytes, size, &header, err);
    if (code)
        return code;
    r.jpeg.err = jpeg_trap_set(&r.trap, &r.err);
    r.trap.lenient = true;
    bool begun = codec_jpeg_try_begin(&r, &header, bytes, size);
    if (begun) {
        const int height = r.image->height, block = r.jpeg.max_v_samp_factor * DCTSIZE;
        codec_jpeg_try_rows(&r, r.image, &r.inks, 0, (unsigned)height);
        *damage = (struct codec_damage){.rows = height, .good = height, .cut = codec_jpeg_is_cut(&r.trap)};
        if (r.trap.code != OK)
            damage->good = (int)r.jpeg.output_scanline;
        if (r.trap.damage && r.trap.scan <= 1 && (int)r.trap.mcu_row * block < damage->good)
            damage->good = (int)r.trap.mcu_row * block;
        if (damage->cut) /* all rows are there from a progressive file's first scan on */
            codec_gray_rows(r.image, damage->good);
        code = r.trap.code == ERROR_NO_MEMORY ? r.trap.code : damage->good > 0 ? OK : ERROR_CORRUPT;
    } else {
        code = r.trap.code;
    }
    if (code == ERROR_CORRUPT)
        error_set(err, code, "the JPEG is damaged so much that no row of it can be read");
    else if (code)
        error_set(err, code, "%s", r.err.text);
    error_detail(err, "%s", r.err.detail);
    jpeg_destroy_decompress(&r.jpeg);
    profile_cmyk_close(&r.inks);
    free(r.line);
    if (code)
        image_destroy(&r.image);
    *out = r.image;
    return code;
}

static enum error_code codec_jpeg_encode(const struct image *image, struct codec_options options,
                                         struct codec_output *out, struct error *err)
{
    return jpeg_encode(image, options, out, err);
}

const struct codec_row codec_jpeg = {.format = IMAGE_JPEG,
                                     .extension = "jpg",
                                     .media_type = "image/jpeg",
                                     .title = "a JPEG",
                                     .lossy = true,
                                     .max_side = JPEG_MAX_DIMENSION,
                                     .gray = true,
                                     .dense = true,
                                     .iptc = true,
                                     .cmyk = true,
                                     .matches = codec_jpeg_matches,
                                     .probe = codec_jpeg_probe,
                                     .decode = codec_jpeg_decode,
                                     .salvage = codec_jpeg_salvage,
                                     .encode = codec_jpeg_encode};
