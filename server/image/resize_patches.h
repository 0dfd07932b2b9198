/* Reducing a picture that comes in patches, as a network's tiles do, and never exists as a whole: not even a row of
 * patches does, only what its pixels add to the result. The sums are a resize_stream's to the bit.
 * Thread-safety: a resize belongs to one thread at a time; its calls divide their rows among the cores. */
#ifndef SERVER_IMAGE_RESIZE_PATCHES_H
#define SERVER_IMAGE_RESIZE_PATCHES_H

#include "server/image/resize.h"
#include "server/image/view.h"

struct resize_patches;

/* RGB, by RESIZE_LANCZOS4, to a size that is not larger in any direction. columns, rows: of the largest patch. */
enum error_code resize_patches_create(struct resize_patches **out, int src_width, int src_height, int dst_width,
                                      int dst_height, int columns, int rows, struct error *err) MUST_CHECK;
void resize_patches_destroy(struct resize_patches **patches);

/* The next `rect->height` rows, RESIZE_ROWS at most, of the patch in the columns of rect; dense, 3 floats a pixel.
 * Patches cover the picture: rows of patches from top to bottom, in each from left to right, each by its rows. What is
 * ready must be pulled first. */
void resize_patches_push(struct resize_patches *patches, const struct rect *rect, const float *rows);

/* As resize_stream_pull. */
int resize_patches_pull(struct resize_patches *patches, float *rows, int most);

#endif
