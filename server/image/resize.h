/* Resizing whole pictures: OpenCV's 8-bit Lanczos4 and bilinear bit for bit (compat), and float resampling that
 * antialiases when it shrinks (default), as a stream of rows, so that only a few rows are in memory. Thread-safety:
 * functions without state; a stream belongs to one thread at a time. */
#ifndef SERVER_IMAGE_RESIZE_H
#define SERVER_IMAGE_RESIZE_H

#include <stdbool.h>

#include "runtime/base/error.h"
#include "server/image/view.h"

/* OpenCV 4.6's INTER_LANCZOS4 and INTER_LINEAR for 8 bit, 1..4 channels; an exact half by INTER_LINEAR is its 2×2 mean.
 * No antialiasing, as the reference. */
enum error_code resize_lanczos4_exact(const struct view_u8 *dst, const struct view_u8 *src,
                                      struct error *err) MUST_CHECK;
enum error_code resize_linear_exact(const struct view_u8 *dst, const struct view_u8 *src, struct error *err) MUST_CHECK;

enum resize_kernel {
    RESIZE_AREA,    /* mean of the area a pixel covers; for reductions */
    RESIZE_LINEAR,  /* tent */
    RESIZE_LANCZOS4 /* windowed sinc, 4 lobes */
};

/* Float resampling: kernels are widened by the factor when it shrinks, weights sum to 1, edges repeat. Lanczos may
 * overshoot; 8-bit results are rounded and clamped. */
enum error_code resize_smooth_u8(const struct view_u8 *dst, const struct view_u8 *src, enum resize_kernel kernel,
                                 struct error *err) MUST_CHECK;
enum error_code resize_smooth_f32(const struct view_f32 *dst, const struct view_f32 *src, enum resize_kernel kernel,
                                  struct error *err) MUST_CHECK;

/* The same, a few rows at a time, for a source that never exists as a whole (tiles of a network): push source rows in
 * order; after each push, pull destination rows until there are none. Memory: the rows that one destination row needs,
 * and those of one push. The cores share the rows of a call. */
#define RESIZE_ROWS 128 /* at most, of one push */

struct resize_stream;

enum error_code resize_stream_create(struct resize_stream **out, int src_width, int src_height, int dst_width,
                                     int dst_height, int channels, enum resize_kernel kernel,
                                     struct error *err) MUST_CHECK;
void resize_stream_destroy(struct resize_stream **stream);

/* The next `count` source rows, src_width*channels floats each. Rows that wait must be pulled first. */
void resize_stream_push(struct resize_stream *stream, const float *rows, int count);

/* Up to `most` of the next destination rows into rows (dst_width*channels floats each): those whose source rows have
 * all come. Returns how many. */
int resize_stream_pull(struct resize_stream *stream, float *rows, int most);

#endif
