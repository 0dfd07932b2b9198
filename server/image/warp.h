/* Affine warps into a rectangle of the output, so that a face costs only as much as its rectangle. Matrices are 2×3
 * row-major and map source px to destination px (pixel centres at integers), as cv::warpAffine takes them.
 * warp_exact_*: bit for bit OpenCV 4.6's INTER_LINEAR with a constant border (coordinates in 1/32 px), for compat.
 * warp_smooth_*: exact coordinates in float, antialiased where it shrinks, for the default mode.
 * Thread-safety: functions without state; several may read one source. */
#ifndef SERVER_IMAGE_WARP_H
#define SERVER_IMAGE_WARP_H

#include "server/image/view.h"

/* The part of a dst_width × dst_height picture that a warped src_width × src_height one can touch (interpolation with
 * the border included), grown by margin px and clipped. Outside it the warp gives the border value. With margin 2 it is
 * enough to run the square mask's erosions and blur on this rectangle (see filter.h). */
struct rect warp_bounds(const double matrix[6], int src_width, int src_height, int dst_width, int dst_height,
                        int margin);

/* dst is the rectangle of the output whose top left pixel is (x0, y0): dst->data begins there. src and dst have the
 * same number of channels, 1..4; border has one value for each. A singular matrix gives what OpenCV gives (an inverse
 * of zeros). */
void warp_exact_u8(const struct view_u8 *dst, int x0, int y0, const struct view_u8 *src, const double matrix[6],
                   const uint8_t border[]);
/* One channel. */
void warp_exact_f32(const struct view_f32 *dst, int x0, int y0, const struct view_f32 *src, const double matrix[6],
                    float border);
void warp_exact_f64(const struct view_f64 *dst, int x0, int y0, const struct view_f64 *src, const double matrix[6],
                    double border);

/* As above, channels 1..4, dst in the source's units (0..255 from u8, unrounded). Each destination pixel is the
 * weighted mean of the source under a separable tent of radius max(1, s) source px around its exact place, where s =
 * 1/sqrt(|det|) is how many source px one destination px covers: s <= 1 is bilinear, larger s is antialiased, with no
 * step between the two. */
void warp_smooth_u8(const struct view_f32 *dst, int x0, int y0, const struct view_u8 *src, const double matrix[6],
                    const float border[]);
/* 0..255 from 0..65535. */
void warp_smooth_u16(const struct view_f32 *dst, int x0, int y0, const struct view_u16 *src, const double matrix[6],
                     const float border[]);
void warp_smooth_f32(const struct view_f32 *dst, int x0, int y0, const struct view_f32 *src, const double matrix[6],
                     const float border[]);

#endif
