/* What each format contributes to codec.c's table, and what the formats share. Only for the formats.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CODEC_ROW_H
#define SERVER_IMAGE_CODEC_ROW_H

#include "server/image/codec.h"

struct codec_row {
    enum image_format format;
    const char *extension, *media_type;
    const char *title;   /* "a WebP picture", for messages */
    const char *library; /* that reads it, by its name in pkg-config; NULL: one that every build has */
    bool lossy;          /* usually: where we cannot write it, a picture without alpha becomes a JPEG, else a PNG */
    bool lossless;       /* can be written without loss; of AVIF libheif's last bit is not exact */
    bool deep, gray;     /* can be written with 16 bits; with one channel */
    bool dense;          /* has a place of its own for the resolution, without EXIF */
    bool iptc;           /* has a place for IPTC */
    bool cmyk;           /* can be written in CMYK */
    int max_side;        /* the longest side that can be written, px; 0: it cannot be written */
    uint64_t max_pixels; /* its library has all of the picture in memory several times: more is not written; 0: any */
    bool (*matches)(const uint8_t *bytes, size_t size);
    /* All of *out but page; pages may be left 0 for 1. page: from 1. When there are fewer, only pages matters. */
    enum error_code (*probe)(const uint8_t *bytes, size_t size, int page, struct codec_info *out, struct error *err);
    /* Pixels as stored, not turned yet; info comes from probe, and its size is within the caller's limit. NULL: this
     * build lacks the library. */
    enum error_code (*decode)(const uint8_t *bytes, size_t size, const struct codec_info *info, struct image **out,
                              struct error *err);
    /* The same for a damaged file, as far as possible; ERROR_CORRUPT when no row can be read. NULL: it cannot be. */
    enum error_code (*salvage)(const uint8_t *bytes, size_t size, struct image **out, struct codec_damage *damage,
                               struct error *err);
    enum error_code (*encode)(const struct image *image, struct codec_options options, struct codec_output *out,
                              struct error *err);
};

extern const struct codec_row codec_jpeg, codec_png, codec_webp, codec_tiff, codec_avif, codec_heic, codec_jxl,
    codec_jp2;

#define CODEC_MANY (-1) /* codec_info.pages of a probe: several, which were not counted */

/* For bytes of a format that is not in the table: what they are and what to do, as a sentence; NULL: unknown. */
const char *codec_other(const uint8_t *bytes, size_t size);

/* Whether a file that begins as a TIFF is a camera's raw file. */
bool codec_is_raw(const uint8_t *bytes, size_t size);

/* Of codec_read_reduced. */
int codec_reduced(void);

/* How many rows a reader makes before it says that they are passed (image_passed): few, so that they take little
 * memory, but not so few that saying it takes time. */
#define CODEC_READ_PASSED 64

/* Makes the rows from `first` on gray and opaque. */
void codec_gray_rows(struct image *image, int first);

/* A growing buffer. */
struct codec_buffer {
    uint8_t *bytes;
    size_t size, capacity;
};

/* false when memory runs out; then the buffer is unchanged. */
bool codec_buffer_add(struct codec_buffer *buffer, const void *bytes, size_t size);

/* The stored size for a displayed one: rows and columns are swapped back for orientations 5..8. */
void codec_set_size(struct codec_info *info, uint32_t stored_width, uint32_t stored_height, int orientation);

/* Copies row y between the picture's planes and one line of interleaved samples with alpha last; the picture has alpha.
 */
void codec_interleave(const struct image *image, size_t y, uint8_t *line, bool to_line);

/* Row y in 8 bits: RGB, or RGBA if the picture has alpha; gray becomes RGB, 16 bits are rounded. */
void codec_row_8(const struct image *image, int y, uint8_t *to);

/* Divides the colours by alpha, for files that keep their product. */
void codec_unpremultiply(struct image *image);

/* Scales samples of 1..15 bits in 16-bit planes to all of 16 bits. */
void codec_widen(struct image *image, int bits);

/* The one error for damage of any kind; detail: what the library said, or NULL. */
enum error_code codec_damaged(struct error *err, const char *title, const char *detail);

/* Numbers of 1 to 8 bytes from files, the most significant byte first. The caller has checked that they are there. */
static inline uint64_t codec_big(const uint8_t *p, int count)
{
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value = value << 8 | p[i];
    return value;
}

/* The next box of an ISO base media file (JPEG 2000 and JPEG XL have the same): 4 bytes of size, 4 of type; a size of 1
 * means 8 more bytes of it, 0 all the rest. false at the end; a box that is longer than the file is cut there. */
struct codec_box {
    const uint8_t *type, *data;
    size_t size; /* of data */
};
bool codec_next_box(const uint8_t **at, const uint8_t *end, struct codec_box *out);

/* Whether the picture's profile is for as many channels as the picture has. */
bool codec_icc_fits(const struct image *image);

#endif
