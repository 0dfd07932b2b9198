/* TIFF by libtiff, what is written: strips, deflated, with the picture's own depth, alpha, inks and metadata. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/image/cmyk.h"
#include "server/image/codec_tiff_private.h"
#include "server/image/exif.h"
#include "server/image/iptc.h"
#include "server/image/tiff_header.h"

#ifdef RESTORED_TIFF

struct tiff_file_out {
    struct codec_buffer file;
    uint64_t at;
};

static tmsize_t codec_tiff_write(thandle_t context, void *from, tmsize_t size)
{
    static const uint8_t zeros[4096];
    struct tiff_file_out *out = context;
    while (out->file.size < out->at) /* a hole */
        if (!codec_buffer_add(&out->file, zeros,
                              out->at - out->file.size < sizeof zeros ? out->at - out->file.size : sizeof zeros))
            return -1;
    const size_t inside = out->file.size - out->at < (size_t)size ? out->file.size - (size_t)out->at : (size_t)size;
    if (inside)
        memcpy(out->file.bytes + out->at, from, inside);
    if ((size_t)size > inside && !codec_buffer_add(&out->file, (const uint8_t *)from + inside, (size_t)size - inside))
        return -1;
    out->at += (uint64_t)size;
    return size;
}

static tmsize_t codec_tiff_read_back(thandle_t context, void *to, tmsize_t size)
{
    struct tiff_file_out *out = context;
    const uint64_t left = out->at < out->file.size ? out->file.size - out->at : 0,
                   count = (uint64_t)size < left ? (uint64_t)size : left;
    if (count)
        memcpy(to, out->file.bytes + out->at, (size_t)count);
    out->at += count;
    return (tmsize_t)count;
}

static toff_t codec_tiff_seek_out(thandle_t context, toff_t offset, int from)
{
    struct tiff_file_out *out = context;
    out->at = from == SEEK_SET ? offset : from == SEEK_CUR ? out->at + offset : out->file.size + offset;
    return out->at;
}

static toff_t codec_tiff_size_out(thandle_t context)
{
    const struct tiff_file_out *out = context;
    return out->file.size;
}

/* The texts of the first directory of an EXIF block; behind: the file begins with the block, so that its other
 * directories can be used where they are. */
static void codec_tiff_put_exif(TIFF *tiff, const struct image_blob *exif, bool behind)
{
    const uint32_t inner = exif_number(exif->data, exif->size, EXIF_TAG_DIRECTORY),
                   place = exif_number(exif->data, exif->size, EXIF_TAG_GPS);
    if (behind && inner)
        TIFFSetField(tiff, TIFFTAG_EXIFIFD, (toff_t)inner);
    if (behind && place)
        TIFFSetField(tiff, TIFFTAG_GPSIFD, (toff_t)place);
    static const uint32_t tags[] = {TIFFTAG_IMAGEDESCRIPTION, TIFFTAG_MAKE,   TIFFTAG_MODEL,    TIFFTAG_SOFTWARE,
                                    TIFFTAG_DATETIME,         TIFFTAG_ARTIST, TIFFTAG_COPYRIGHT};
    char text[1024];
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (tiff_header_text(exif->data, exif->size, (int)tags[i], text, sizeof text))
            TIFFSetField(tiff, tags[i], text);
}

/* By libtiff's version, the tag has bytes or numbers of 4 bytes. The latter are swapped on their way into a file of the
 * other byte order, so they are swapped before, too: the records' bytes stand in the file as they are. */
static bool codec_tiff_put_iptc(TIFF *tiff, const struct image_blob *iptc)
{
    const bool numbers = TIFFFieldDataType(TIFFFieldWithTag(tiff, TIFFTAG_RICHTIFFIPTC)) == TIFF_LONG;
    const size_t count = numbers ? (iptc->size + 3) / 4 : iptc->size;
    uint32_t *copy = calloc(iptc->size / 4 + 1, sizeof *copy); /* zeros behind the records */
    if (!copy)
        return false;
    memcpy(copy, iptc->data, iptc->size);
    if (numbers && TIFFIsByteSwapped(tiff))
        TIFFSwabArrayOfLong(copy, (tmsize_t)count);
    const bool done = TIFFSetField(tiff, TIFFTAG_RICHTIFFIPTC, (uint32_t)count, copy) == 1;
    free(copy);
    return done;
}

static void codec_tiff_put_header(TIFF *tiff, const struct image *image, bool behind, int level)
{
    const bool cmyk = cmyk_known(image);
    const struct image_blob icc = cmyk                                       ? cmyk_profile(image)
                                  : image->icc.data && codec_icc_fits(image) ? image->icc
                                                                             : (struct image_blob){0};
    const uint16_t extra = EXTRASAMPLE_UNASSALPHA,
                   samples = cmyk ? 4 : (uint16_t)(image->channels + (image->alpha != NULL));
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, (uint32_t)image->width);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, (uint32_t)image->height);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, (uint16_t)(cmyk ? cmyk_bits(image) : image->bits));
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, samples);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC,
                 cmyk                   ? PHOTOMETRIC_SEPARATED
                 : image->channels == 1 ? PHOTOMETRIC_MINISBLACK
                                        : PHOTOMETRIC_RGB);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, COMPRESSION_ADOBE_DEFLATE);
    TIFFSetField(tiff, TIFFTAG_PREDICTOR, PREDICTOR_HORIZONTAL);
    TIFFSetField(tiff, TIFFTAG_ZIPQUALITY, level < 1 ? CODEC_PNG_LEVEL : level);
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, TIFFDefaultStripSize(tiff, 0) * 32);
    if (image->alpha)
        TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &extra);
    if (icc.data)
        TIFFSetField(tiff, TIFFTAG_ICCPROFILE, (uint32_t)icc.size, icc.data);
    if (image->xmp.size)
        TIFFSetField(tiff, TIFFTAG_XMLPACKET, (uint32_t)image->xmp.size, image->xmp.data);
    if (image->density[0] > 0 && image->density[1] > 0) {
        TIFFSetField(tiff, TIFFTAG_XRESOLUTION, image->density[0]);
        TIFFSetField(tiff, TIFFTAG_YRESOLUTION, image->density[1]);
        TIFFSetField(tiff, TIFFTAG_RESOLUTIONUNIT, RESUNIT_INCH);
    }
    if (image->exif.size)
        codec_tiff_put_exif(tiff, &image->exif, behind);
}

static bool codec_tiff_put_rows(TIFF *tiff, const struct image *image)
{
    const bool cmyk = cmyk_known(image);
    const int bits = cmyk ? cmyk_bits(image) : image->bits;
    const size_t line =
        (size_t)image->width * (size_t)(cmyk ? 4 : image->channels + (image->alpha != NULL)) * (size_t)(bits / 8);
    uint8_t *row = mem_alloc(line, 1); /* a copy, since the predictor works in place */
    bool done = row != NULL;
    for (int y = 0; done && y < image->height; y++) {
        if (cmyk)
            cmyk_row(image, y, bits, false, row);
        else if (image->alpha)
            codec_interleave(image, (size_t)y, row, true);
        else
            memcpy(row, (const uint8_t *)image->pixels + (size_t)y * line, line);
        done = TIFFWriteScanline(tiff, row, (uint32_t)y, 0) >= 0;
        image_passed(image, y, y + 1);
    }
    free(row);
    return done;
}

/* Where the only directory of an EXIF block ends, if the block can be the beginning of a file; 0: it cannot. */
static size_t codec_tiff_beginning(const struct image_blob *exif)
{
    if (exif->size < 14 || (exif->size & 1) || (exif->data[0] != 'I' && exif->data[0] != 'M'))
        return 0;
    const bool big = exif->data[0] == 'M';
    const uint8_t *p = exif->data + 4;
    const size_t at =
        big ? (size_t)codec_big(p, 4) : (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    if (at < 8 || at > exif->size - 6)
        return 0;
    p = exif->data + at;
    const size_t count = big ? p[0] * 256u + p[1] : p[1] * 256u + p[0], end = at + 2 + 12 * count;
    return count && end + 4 <= exif->size && codec_big(exif->data + end, 4) == 0 ? end : 0;
}

enum error_code codec_tiff_encode(const struct image *image, struct codec_options options, struct codec_output *out,
                                  struct error *err)
{
    struct tiff_file_out to = {0};
    char detail[TIFF_DETAIL] = "";
    const double bytes = (double)image->width * image->height * (image->channels + 1) * image->bits / 8;
    const size_t link = bytes < 3.9e9 ? codec_tiff_beginning(&image->exif) : 0;
    TIFFOpenOptions *open = codec_tiff_options(detail);
    TIFF *tiff = NULL;
    /* With EXIF, the file begins with that block, which is a TIFF without pixels, and the picture's directory is
     * appended: it becomes the first one. */
    bool done = open && (!link || codec_buffer_add(&to.file, image->exif.data, image->exif.size));
    if (done) {
        tiff = TIFFClientOpenExt("picture",
                                 link          ? "a"
                                 : bytes > 4e9 ? "w8"
                                               : "w",
                                 &to, codec_tiff_read_back, codec_tiff_write, codec_tiff_seek_out, codec_tiff_close,
                                 codec_tiff_size_out, NULL, NULL, open);
        done = tiff != NULL;
    }
    if (open)
        TIFFOpenOptionsFree(open);
    if (tiff) {
        codec_tiff_put_header(tiff, image, link > 0, options.png_level);
        done = (!image->iptc.size || codec_tiff_put_iptc(tiff, &image->iptc)) && codec_tiff_put_rows(tiff, image) &&
               TIFFFlush(tiff);
        TIFFClose(tiff);
    }
    if (!done) {
        spill_free(to.file.bytes);
        error_set(err, ERROR_NO_MEMORY, "out of memory for a TIFF of %d×%d pixels", image->width, image->height);
        error_detail(err, "%s", detail);
        return ERROR_NO_MEMORY;
    }
    if (link)
        memcpy(to.file.bytes + 4, to.file.bytes + link, 4);
    *out = (struct codec_output){to.file.bytes, to.file.size,
                                 (image->icc.data && !codec_icc_fits(image) ? (unsigned)IMAGE_NOTE_ICC_DROPPED : 0u) |
                                     (image->exif.size && !link ? (unsigned)IMAGE_NOTE_EXIF_PARTLY : 0u)};
    return OK;
}

#endif
