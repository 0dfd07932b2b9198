/* Gaussian blur and erosion of one-channel planes, in OpenCV's order of operations (both modes use them). They treat
 * their view as the whole picture. To work on a part of one: take a rectangle that holds the mask's support and at
 * least 2 px of zeros around it on every side that is not the picture's own edge, and a blur no wider than what the
 * erosion before it removed (n >= 2*radius). Then erosion (outside is ignored, but the zeros inside decide) and blur
 * (reflected zeros equal the zeros that were there) give the whole picture's values. warp_bounds with margin 2 gives
 * such a rectangle. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_FILTER_H
#define SERVER_IMAGE_FILTER_H

#include "runtime/base/error.h"
#include "server/image/view.h"

/* The n weights (odd n) of cv::getGaussianKernel; sigma <= 0 stands for 0.3*((n-1)*0.5-1)+0.8, and for its fixed
 * tables where n <= 9. */
void filter_gaussian_kernel(double *weights, int n, double sigma);

/* cv::GaussianBlur with an n×n kernel, border reflect-101, summed in OpenCV 4.6's order with fused multiply-adds: rows
 * left to right, columns from the centre outwards. dst may be src. One channel; sizes equal. */
enum error_code filter_gaussian_f32(const struct view_f32 *dst, const struct view_f32 *src, int n, double sigma,
                                    struct error *err) MUST_CHECK;
enum error_code filter_gaussian_f64(const struct view_f64 *dst, const struct view_f64 *src, int n, double sigma,
                                    struct error *err) MUST_CHECK;

/* The minimum over [x - n/2, x - n/2 + n - 1] both ways (cv::erode with a full n×n element, anchor n/2); pixels outside
 * the view are ignored; n = 0 acts as 3. dst may be src. */
enum error_code filter_erode_f32(const struct view_f32 *dst, const struct view_f32 *src, int n,
                                 struct error *err) MUST_CHECK;

#endif
