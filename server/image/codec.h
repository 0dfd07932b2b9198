/* Picture files: recognising the format (by magic bytes, never by name), decoding under a pixel limit that is checked
 * in the header, and encoding. One table row for each format; codec_NAME.c do the work. Headers are read by our own
 * bounded walks, pixels by libraries, some of which a build may lack. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CODEC_H
#define SERVER_IMAGE_CODEC_H

#include "server/image/image.h"

struct codec_info {
    enum image_format format;
    int width, height; /* as displayed, after EXIF orientation */
    int bits;          /* of a sample: 8 or 16 (fewer than 8 count as 8, between them as 16) */
    int channels;      /* in the file: 1 gray, 2 gray+alpha, 3 RGB or palette, 4 RGB+alpha or CMYK */
    bool alpha;
    int orientation; /* EXIF 1..8; 1 when there is none */
    int page, pages; /* which of how many pages or frames this is, from 1; pages 0: several, which were not counted */
};

#define CODEC_PAGES 9999 /* the last that can be asked for */

/* Reads only the header and allocates nothing that depends on the picture's size. ERROR_UNSUPPORTED for bytes that are
 * not in a format that this build reads (the text names the format if it is one that people send); ERROR_CORRUPT for a
 * broken header; ERROR_TOO_LARGE for sides beyond what the library reads; ERROR_INVALID: there is no such page. */
enum error_code codec_probe_page(const uint8_t *bytes, size_t size, int page, struct codec_info *out,
                                 struct error *err) MUST_CHECK;
/* The same of the first page. */
enum error_code codec_probe(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err) MUST_CHECK;

/* Decodes in the file's own depth (gray stays gray, 16 bit stays; CMYK becomes RGB), turned upright, metadata kept.
 * max_pixels 0: no limit; above it ERROR_TOO_LARGE before anything is allocated. ERROR_CORRUPT for damage of any kind,
 * a truncated file included. info may be NULL. */
enum error_code codec_decode(const uint8_t *bytes, size_t size, uint64_t max_pixels, struct image **out,
                             struct codec_info *info, struct error *err) MUST_CHECK;

/* How much is left of a damaged file. */
struct codec_damage {
    int rows, good; /* of the picture as stored: all, and those above the first damaged one */
    bool cut;       /* the file ends there and the rows below are gray; else they may hold anything */
};

/* As codec_decode, but of any page. damage not NULL: a damaged file is read as far as possible, if any of its rows can
 * be read and codec_salvages its format. damage->rows is 0 for an undamaged file. */
enum error_code codec_decode_page(const uint8_t *bytes, size_t size, int page, uint64_t max_pixels, struct image **out,
                                  struct codec_info *info, struct codec_damage *damage, struct error *err) MUST_CHECK;

/* From now on this process reads JPEGs at a 1st, 2nd, 4th or 8th of their sides, rounded up, which takes less time than
 * to make all pixels; info has that size, too. For a process that reads one picture. Others are read as they are. */
void codec_read_reduced(int by);
/* By how much a picture can be read reduced, so that its longest side still has so many px. */
int codec_reduction(const struct codec_info *info, int least);

/* Whether the rows above the damage of such a file can be read. */
bool codec_salvages(enum image_format format);

/* For photos, run lengths of filtered rows come within some 10 % of zlib's level 6, in a fifth of the time. */
#define CODEC_PNG_LEVEL 1

/* All coefficients of a progressive JPEG are in memory at once: 6 bytes a pixel, 8 of CMYK. */
#define CODEC_PROGRESSIVE_MOST 64000000 /* px */

struct codec_options {
    int quality;      /* of a lossy format, 1..100; 0: 95. JPEG and AVIF keep all chroma from 90 on */
    int png_level;    /* 0: stored, 1: filtered and run lengths, 2..9: zlib's levels; -1: CODEC_PNG_LEVEL;
                       * TIFF: 1..9 */
    bool lossless;    /* WebP and JPEG XL without loss; PNG and TIFF always are, JPEG and AVIF never */
    bool progressive; /* JPEG: in scans, each of the whole picture; one above CODEC_PROGRESSIVE_MOST stays baseline */
    bool halved;      /* JPEG: chroma is halved both ways at any quality, as by the reference's writer (OpenCV) */
};
#define CODEC_OPTIONS_INIT                                                                                             \
    {                                                                                                                  \
        .quality = 95, .png_level = -1                                                                                 \
    }

struct codec_output {
    uint8_t *bytes; /* spill_free() */
    size_t size;
    unsigned notes; /* enum image_note: what this format could not hold */
};

/* Encodes with the picture's ICC, EXIF and XMP. What a format cannot hold is noted: for JPEG, WebP and AVIF 16 bit is
 * rounded to 8, and for JPEG alpha flattened on white. ERROR_TOO_LARGE for a side above codec_max_side,
 * ERROR_UNSUPPORTED for a format that we do not write. */
enum error_code codec_encode(const struct image *image, enum image_format format, struct codec_options options,
                             struct codec_output *out, struct error *err) MUST_CHECK;

/* The longest side that a format can hold, px (JPEG 65500, libjpeg's limit; PNG 2^31-1); 0 when we cannot write it. */
int codec_max_side(enum image_format format);

/* The most pixels that we write in a format; 0: as many as its sides allow. */
uint64_t codec_max_pixels(enum image_format format);

/* Whether this build reads the format; and the library that it lacks for that, NULL: none. */
bool codec_reads(enum image_format format);
const char *codec_missing(enum image_format format);

/* Whether such a file can hold a result without loss. */
bool codec_is_lossless(enum image_format format);

/* Whether such a file can hold 16 bits a sample; one channel; the resolution without EXIF; CMYK. */
bool codec_is_deep(enum image_format format);
bool codec_is_gray(enum image_format format);
bool codec_is_dense(enum image_format format);
bool codec_is_cmyk(enum image_format format);

/* The format of the result of such a picture if nobody chose one: its own if we write that, else PNG or JPEG. */
enum image_format codec_result_format(enum image_format format, bool alpha);

/* The format whose files have this extension, in any case and spelling ("jpeg", "TIF"); IMAGE_NONE: none that we know.
 */
enum image_format codec_of_extension(const char *extension);

/* "jpg", "png" · "image/jpeg", "image/png". */
const char *codec_extension(enum image_format format);
const char *codec_media_type(enum image_format format);

#endif
