#include "server/image/jpeg_encode.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "runtime/base/thread.h"
#include "server/image/cmyk.h"
#include "server/image/codec_row.h"
#include "server/image/iptc.h"
#include "server/image/jpeg_header.h"
#include "server/image/jpeg_trap.h"

#include <jerror.h>

#define SEGMENT 65533                   /* bytes that a marker can carry */
#define ICC_MOST (255 * (SEGMENT - 14)) /* in at most 255 segments with 14 bytes of heading each */
#define JPEG_FINE 90                    /* from this quality on all chroma is kept, and inks are not made YCCK */
#define STRIP_PIXELS (1 << 17)          /* about: a fraction of a millisecond, some hundred times what a strip costs */
#define WAVE 256                        /* strips that are in memory at once */
#define MARKER_SOF0 0xc0
#define MARKER_SOS 0xda

struct strip {
    struct codec_buffer file;
    size_t begin, end; /* the part of its file that goes into the whole */
    unsigned notes;
    struct error err;
};

struct wave {
    const struct image *image;
    struct codec_options options;
    bool halved;      /* chroma has half the rows and columns; that of inks, too, else they go in as they are */
    bool progressive; /* which is one strip */
    struct image_blob resources;
    int rows;         /* of a strip, px */
    int first, count; /* the wave's first strip; the picture's strips */
    unsigned restart; /* MCUs of a strip; 0: there is one strip alone */
    struct strip strips[WAVE];
};

struct writer {
    struct jpeg_trap trap;
    struct jpeg_compress_struct jpeg;
    struct jpeg_destination_mgr to;
    struct strip *strip;
    const struct image_blob *resources; /* Photoshop's, with the IPTC data */
    uint8_t *line;                      /* a row as 8 bit without alpha; NULL: the picture's own rows are */
    uint8_t chunk[1 << 14];
};

/* ---- where libjpeg's bytes go ---- */

static void jpeg_encode_refill(struct writer *w)
{
    w->to.next_output_byte = w->chunk;
    w->to.free_in_buffer = sizeof w->chunk;
}

static void jpeg_encode_open(j_compress_ptr jpeg)
{
    jpeg_encode_refill(jpeg->client_data);
}

static void jpeg_encode_add(struct writer *w, size_t size)
{
    if (!codec_buffer_add(&w->strip->file, w->chunk, size))
        ERREXIT1(&w->jpeg, JERR_OUT_OF_MEMORY, 0);
}

static boolean jpeg_encode_full(j_compress_ptr jpeg)
{
    struct writer *w = jpeg->client_data;
    jpeg_encode_add(w, sizeof w->chunk); /* the whole chunk, whatever free_in_buffer says: libjpeg's rule */
    jpeg_encode_refill(w);
    return TRUE;
}

static void jpeg_encode_close(j_compress_ptr jpeg)
{
    struct writer *w = jpeg->client_data;
    jpeg_encode_add(w, sizeof w->chunk - w->to.free_in_buffer);
}

/* ---- metadata ---- */

static void jpeg_encode_blob(struct writer *w, int marker, const char *heading, size_t heading_size,
                             const struct image_blob *blob, unsigned note)
{
    if (!blob->data)
        return;
    if (blob->size > SEGMENT - heading_size) {
        w->strip->notes |= note;
        return;
    }
    jpeg_write_m_header(&w->jpeg, marker, (unsigned)(heading_size + blob->size));
    for (size_t i = 0; i < heading_size; i++)
        jpeg_write_m_byte(&w->jpeg, (unsigned char)heading[i]);
    for (size_t i = 0; i < blob->size; i++)
        jpeg_write_m_byte(&w->jpeg, blob->data[i]);
}

static void jpeg_encode_metadata(struct writer *w, const struct image *image)
{
    jpeg_encode_blob(w, JPEG_APP0 + 1, JPEG_HEADER_EXIF, sizeof JPEG_HEADER_EXIF, &image->exif,
                     IMAGE_NOTE_EXIF_DROPPED);
    jpeg_encode_blob(w, JPEG_APP0 + 1, JPEG_HEADER_XMP, sizeof JPEG_HEADER_XMP, &image->xmp, IMAGE_NOTE_XMP_DROPPED);
    jpeg_encode_blob(w, JPEG_APP0 + 13, JPEG_HEADER_RESOURCES, sizeof JPEG_HEADER_RESOURCES, w->resources,
                     IMAGE_NOTE_IPTC_DROPPED);
    const struct image_blob cmyk = cmyk_known(image) ? cmyk_profile(image) : (struct image_blob){0};
    if (cmyk.data && cmyk.size <= ICC_MOST)
        jpeg_write_icc_profile(&w->jpeg, cmyk.data, (unsigned)cmyk.size);
    else if (cmyk.data)
        w->strip->notes |= IMAGE_NOTE_ICC_DROPPED;
    else if (image->icc.data && codec_icc_fits(image) && image->icc.size <= ICC_MOST)
        jpeg_write_icc_profile(&w->jpeg, image->icc.data, (unsigned)image->icc.size);
    else if (image->icc.data)
        w->strip->notes |= IMAGE_NOTE_ICC_DROPPED;
}

/* ---- pixels ---- */

/* Row y as 8 bit without alpha. */
static void jpeg_encode_row(const struct image *image, int y, uint8_t *to)
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

/* Rows [begin, end) as a JPEG file. */
static bool jpeg_encode_rows(struct writer *w, const struct wave *wave, int begin, int end)
{
    const struct image *image = wave->image;
    struct jpeg_compress_struct *jpeg = &w->jpeg;
    if (setjmp(w->trap.jump))
        return false;
    jpeg_create_compress(jpeg);
    jpeg->client_data = w;
    jpeg->dest = &w->to;
    w->to.init_destination = jpeg_encode_open;
    w->to.empty_output_buffer = jpeg_encode_full;
    w->to.term_destination = jpeg_encode_close;
    jpeg->image_width = (JDIMENSION)image->width;
    jpeg->image_height = (JDIMENSION)(end - begin);
    const bool cmyk = cmyk_known(image);
    jpeg->input_components = cmyk ? 4 : image->channels;
    jpeg->in_color_space = cmyk ? JCS_CMYK : image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(jpeg);
    if (cmyk && wave->halved)
        jpeg_set_colorspace(jpeg, JCS_YCCK);
    for (int c = 0; c < jpeg->num_components && !wave->halved; c++)
        jpeg->comp_info[c].h_samp_factor = jpeg->comp_info[c].v_samp_factor = 1;
    jpeg_set_quality(jpeg, wave->options.quality, TRUE);
    if (wave->progressive)
        jpeg_simple_progression(jpeg);
    if (image->density[0] > 0 && image->density[0] < 65535 && image->density[1] > 0 && image->density[1] < 65535) {
        jpeg->density_unit = 1; /* inch */
        jpeg->X_density = (UINT16)(image->density[0] + 0.5);
        jpeg->Y_density = (UINT16)(image->density[1] + 0.5);
    }
    jpeg->restart_interval = wave->restart; /* none is due within the strip, but the header says it */
    jpeg_start_compress(jpeg, TRUE);
    if (begin == 0)
        jpeg_encode_metadata(w, image);
    while (jpeg->next_scanline < jpeg->image_height) {
        int y = begin + (int)jpeg->next_scanline;
        JSAMPROW row = w->line;
        if (cmyk)
            cmyk_row(image, y, 8, true, row); /* as Adobe has it */
        else if (row)
            jpeg_encode_row(image, y, row);
        else
            row = (uint8_t *)image->pixels + (size_t)y * (size_t)image->width * (size_t)image->channels;
        jpeg_write_scanlines(jpeg, &row, 1);
    }
    jpeg_finish_compress(jpeg);
    return true;
}

/* ---- strips ---- */

/* Where the segment of a marker begins in a file of ours: 0xff, the marker, two bytes of length. */
static size_t jpeg_encode_segment(const uint8_t *file, uint8_t marker)
{
    size_t at = 2; /* after the start of the image */
    while (file[at + 1] != marker)
        at += 2 + ((size_t)file[at + 2] << 8 | file[at + 3]);
    return at;
}

/* The part of a strip's file that goes into the whole: everything except the end, with the whole's height, or only the
 * data. */
static void jpeg_encode_cut(struct strip *strip, bool first, bool last, int height)
{
    uint8_t *file = strip->file.bytes;
    strip->end = strip->file.size - (last ? 0 : 2);
    if (first) {
        uint8_t *size = file + jpeg_encode_segment(file, MARKER_SOF0) + 5;
        size[0] = (uint8_t)(height >> 8);
        size[1] = (uint8_t)height;
    } else {
        strip->begin = jpeg_encode_segment(file, MARKER_SOS);
        strip->begin += 2 + ((size_t)file[strip->begin + 2] << 8 | file[strip->begin + 3]);
    }
}

static void jpeg_encode_strip(void *context, int item)
{
    struct wave *wave = context;
    const struct image *image = wave->image;
    struct writer w = {.strip = &wave->strips[item], .resources = &wave->resources};
    int number = wave->first + item, begin = number * wave->rows, end = begin + wave->rows;
    end = number + 1 < wave->count ? end : image->height;
    w.jpeg.err = jpeg_trap_set(&w.trap, &w.strip->err);
    if ((image->bits > 8 || image->alpha || cmyk_known(image)) && !(w.line = mem_alloc((size_t)image->width, 4)))
        error_set(&w.strip->err, ERROR_NO_MEMORY, "out of memory for a row of pixels");
    else if (jpeg_encode_rows(&w, wave, begin, end)) {
        if (wave->count > 1)
            jpeg_encode_cut(w.strip, number == 0, number + 1 == wave->count, image->height);
        else
            w.strip->end = w.strip->file.size;
    }
    image_passed(image, begin, end);
    jpeg_destroy_compress(&w.jpeg);
    free(w.line);
}

static void jpeg_encode_plan(struct wave *wave)
{
    const struct image *image = wave->image;
    wave->progressive = wave->options.progressive && (int64_t)image->width * image->height <= CODEC_PROGRESSIVE_MOST;
    wave->halved = image->channels > 1 && (wave->options.halved || wave->options.quality < JPEG_FINE);
    int block = wave->halved ? 16 : 8; /* side of an MCU: with halved chroma there are two blocks each way */
    int across = (image->width + block - 1) / block, down = (image->height + block - 1) / block;
    int strip = wave->progressive ? down : STRIP_PIXELS / (block * block) / across;
    strip = strip ? strip : 1; /* a restart interval is at most 65535 MCUs; no row has more than 8192 */
    wave->rows = strip * block;
    wave->count = (down + strip - 1) / strip;
    wave->restart = wave->count > 1 ? (unsigned)(strip * across) : 0;
}

enum error_code jpeg_encode(const struct image *image, struct codec_options options, struct codec_output *out,
                            struct error *err)
{
    struct wave *wave = mem_calloc(1, sizeof *wave);
    struct codec_buffer file = {0};
    const int bits = cmyk_known(image) ? cmyk_bits(image) : image->bits; /* inks of 8 bits are RGB of 16 in between */
    unsigned notes = (image->alpha ? IMAGE_NOTE_FLATTENED : 0u) | (bits == 16 ? IMAGE_NOTE_BITS_REDUCED : 0u);
    enum error_code code = OK;
    if (!wave)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the JPEG writer");
    wave->image = image;
    wave->options = options;
    jpeg_encode_plan(wave);
    notes |= options.progressive && !wave->progressive ? IMAGE_NOTE_BASELINE : 0u;
    if (image->iptc.size)
        code = iptc_wrap(&image->iptc, &wave->resources, err);
    for (; code == OK && wave->first < wave->count; wave->first += WAVE) {
        int left = wave->count - wave->first, count = left < WAVE ? left : WAVE;
        memset(wave->strips, 0, (size_t)count * sizeof *wave->strips);
        thread_for(count, jpeg_encode_strip, wave);
        for (int i = 0; i < count; i++) {
            struct strip *strip = &wave->strips[i];
            const uint8_t restart[2] = {0xff, (uint8_t)(0xd0 + (wave->first + i - 1) % 8)};
            if (code == OK)
                code = strip->err.code ? error_set(err, strip->err.code, "%s", strip->err.text) : OK;
            if (code == OK && ((wave->first + i > 0 && !codec_buffer_add(&file, restart, sizeof restart)) ||
                               !codec_buffer_add(&file, strip->file.bytes + strip->begin, strip->end - strip->begin)))
                code = error_set(err, ERROR_NO_MEMORY, "out of memory for the JPEG writer");
            notes |= strip->notes;
            free(strip->file.bytes);
        }
    }
    free(wave->resources.data);
    free(wave);
    if (code == OK)
        *out = (struct codec_output){file.bytes, file.size, notes};
    else
        spill_free(file.bytes);
    return code;
}
