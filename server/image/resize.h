/* Resizing whole pictures: OpenCV's 8-bit Lanczos4 and bilinear bit for bit (compat), and float resampling that
 * antialiases when it shrinks (default), as a stream of rows, so that only a few rows are in memory at a time.
 * Thread-safety: functions without state; a stream belongs to one thread at a time. */
#ifndef SERVER_IMAGE_RESIZE_H
#define SERVER_IMAGE_RESIZE_H

#include <stdbool.h>

#include "runtime/base/error.h"
#include "server/image/view.h"

/* OpenCV 4.6's INTER_LANCZOS4 and INTER_LINEAR for 8 bit, 1..4 channels; INTER_LINEAR to exactly half the size is the
 * 2×2 mean. No antialiasing, as in the reference. */
enum error_code resize_lanczos4_exact(const struct view_u8 *dst, const struct view_u8 *src,
                                      struct error *err) MUST_CHECK;
enum error_code resize_linear_exact(const struct view_u8 *dst, const struct view_u8 *src, struct error *err) MUST_CHECK;

enum resize_kernel {
    RESIZE_AREA,           /* mean of the area a pixel covers; for reductions */
    RESIZE_LINEAR,         /* tent */
    RESIZE_LANCZOS4,       /* windowed sinc, 4 lobes */
    RESIZE_LANCZOS4_NARROW /* not widened when shrinking, as OpenCV's */
};

/* Float resampling: kernels are widened by the factor when shrinking, weights sum to 1, edges repeat. Lanczos may
 * overshoot; 8-bit results are rounded and clamped. */
enum error_code resize_smooth_u8(const struct view_u8 *dst, const struct view_u8 *src, enum resize_kernel kernel,
                                 struct error *err) MUST_CHECK;
enum error_code resize_smooth_f32(const struct view_f32 *dst, const struct view_f32 *src, enum resize_kernel kernel,
                                  struct error *err) MUST_CHECK;

/* The same, a few rows at a time, for a source that never exists as a whole (tiles of a network): push source rows in
 * order; after each push, pull destination rows until there are none. Needs memory for the rows that one destination
 * row needs, and for those of one push. The rows of a call are divided among the cores. */
#define RESIZE_ROWS 128 /* the most rows of one push */

struct resize_stream;

enum error_code resize_stream_create(struct resize_stream **out, int src_width, int src_height, int dst_width,
                                     int dst_height, int channels, enum resize_kernel kernel,
                                     struct error *err) MUST_CHECK;
void resize_stream_destroy(struct resize_stream **stream);

/* The next `count` source rows, src_width*channels floats each. Rows that are ready must be pulled first. */
void resize_stream_push(struct resize_stream *stream, const float *rows, int count);

/* Writes up to `most` of the next destination rows to rows (dst_width*channels floats each), as far as their source
 * rows have all been pushed. Returns how many. */
int resize_stream_pull(struct resize_stream *stream, float *rows, int most);

#endif
