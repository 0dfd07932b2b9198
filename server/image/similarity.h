/* The similarity transform (rotation, uniform scale, translation) between point sets, such as five landmarks and the
 * template. Matrices are 2×3 row-major, {a, -b, tx, b, a, ty}. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_SIMILARITY_H
#define SERVER_IMAGE_SIMILARITY_H

#include <stdbool.h>

/* Where the eyes, the nose and the corners of the mouth are in a 512×512 crop (facexlib's template). */
extern const double similarity_template[5][2];

/* How far a point of that crop is from the middle of the face; 1 on its oval, from brow to chin and from ear to ear. */
double similarity_oval(double x, double y);

/* Least squares over all n >= 2 points (Umeyama 1991; in two dimensions a linear problem). false when the points
 * coincide, or are not finite. */
bool similarity_fit(const double from[][2], const double to[][2], int n, double matrix[6]);

/* What cv::estimateAffinePartial2D(LMEDS) finds, for compat: least median of squares over two-point samples from its
 * fixed generator, then least squares on the inliers. Points are rounded to float, as in OpenCV. 3 <= n <= 64. false
 * when it finds none. */
bool similarity_fit_lmeds(const double from[][2], const double to[][2], int n, double matrix[6]);

/* The inverse, in the order of operations of cv::invertAffineTransform; a singular matrix gives zeros, as in OpenCV. */
void similarity_invert(const double matrix[6], double inverse[6]);

#endif
