/* What a format gives to codec.c's table, and what the formats share. For the formats alone.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_CODEC_ROW_H
#define SERVER_IMAGE_CODEC_ROW_H

#include "server/image/codec.h"

struct codec_row {
    enum image_format format;
    const char *extension, *media_type;
    int max_side; /* px that can be written */
    bool (*matches)(const uint8_t *bytes, size_t size);
    enum error_code (*probe)(const uint8_t *bytes, size_t size, struct codec_info *out, struct error *err);
    /* Pixels as stored, not yet turned; info is probe's, its size within the caller's limit. */
    enum error_code (*decode)(const uint8_t *bytes, size_t size, const struct codec_info *info, struct image **out,
                              struct error *err);
    enum error_code (*encode)(const struct image *image, struct codec_options options, struct codec_output *out,
                              struct error *err);
};

extern const struct codec_row codec_jpeg, codec_png;

/* Bytes that grow. */
struct codec_buffer {
    uint8_t *bytes;
    size_t size, capacity;
};

/* false when memory is out; the buffer is then as it was. */
bool codec_buffer_add(struct codec_buffer *buffer, const void *bytes, size_t size);

/* Stored size for a shown one: rows and columns swap back for orientations 5..8. */
void codec_set_size(struct codec_info *info, uint32_t stored_width, uint32_t stored_height, int orientation);

/* Whether the picture's profile speaks of the channels that the picture has. */
bool codec_icc_fits(const struct image *image);

#endif
