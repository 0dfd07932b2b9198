/* What each format contributes to codec.c's table, and what the formats share. Only for the formats.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CODEC_ROW_H
#define SERVER_IMAGE_CODEC_ROW_H

#include "server/image/codec.h"

struct codec_row {
    enum image_format format;
    const char *extension, *media_type;
    int max_side; /* the longest side that can be written, px */
    bool (*matches)(const uint8_t *bytes, size_t size);
    enum error_code (*probe)(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err);
    /* Pixels as stored, not turned yet; info comes from probe, and its size is within the caller's limit. */
    enum error_code (*decode)(const uint8_t *bytes, size_t size, const struct codec_info *info, struct image **out,
                              struct error *err);
    /* The same for a damaged file, as far as possible; ERROR_CORRUPT when no row can be read. */
    enum error_code (*salvage)(const uint8_t *bytes, size_t size, struct image **out, struct codec_damage *damage,
                               struct error *err);
    enum error_code (*encode)(const struct image *image, struct codec_options options, struct codec_output *out,
                              struct error *err);
};

extern const struct codec_row codec_jpeg, codec_png;

/* For bytes of a format that is not in the table: what they are and what to do, as a sentence; NULL: unknown. */
const char *codec_other(const uint8_t *bytes, size_t size);

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

/* Whether the picture's profile is for as many channels as the picture has. */
bool codec_icc_fits(const struct image *image);

#endif
