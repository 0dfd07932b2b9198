/* Borrowed rectangles of pixels, interleaved, for the functions of warp, resize and filter. A part of a picture is a
 * view too: move data and keep the stride. Two planes of a planar picture are two one-channel views. Thread-safety:
 * plain data. */
#ifndef SERVER_IMAGE_VIEW_H
#define SERVER_IMAGE_VIEW_H

#include <stddef.h>
#include <stdint.h>

/* Pixel (x, y), channel c is data[y * stride + x * channels + c]. The pixels of a const view are only read. */
struct view_u8 {
    uint8_t *data;
    int width, height, channels;
    size_t stride; /* elements from one row to the next */
};

struct view_u16 {
    uint16_t *data;
    int width, height, channels;
    size_t stride;
};

struct view_f32 {
    float *data;
    int width, height, channels;
    size_t stride;
};

struct view_f64 {
    double *data;
    int width, height, channels;
    size_t stride;
};

struct rect {
    int x, y, width, height; /* empty when width or height is 0 */
};

#endif
