/* Rows of the background on their way into the result, through Lanczos4 if sizes differ.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_BACKGROUND_ROWS_H
#define SERVER_PIPELINE_BACKGROUND_ROWS_H

#include "server/image/resize.h"
#include "server/image/resize_patches.h"
#include "server/pipeline/step.h"

#define BACKGROUND_ROWS 128 /* rows at a time, at most */

struct background_rows {
    struct step *step;
    struct resize_stream *stream;   /* both NULL: rows have the result's width already */
    struct resize_patches *patches; /* where they are reduced by tiles */
    int channels;                   /* 3; or 4: colours times a weight, and the weight */
    bool mask;                      /* the three are the transparency */
    float *rows;                    /* BACKGROUND_ROWS of the result */
    float *alpha;                   /* as many, of 4 channels */
    struct deep_rest *rest;         /* or NULL */
    float *over;                    /* BACKGROUND_ROWS of it */
    int y, count;                   /* its first row, how many */
};

/* What comes: its size; channels as above; whether it is the transparency. patch_width not 0: it comes in patches of
 * at most this size, and is to be reduced (resize_patches.h). */
struct background_from {
    int width, height, channels;
    bool mask;
    int patch_width, patch_height;
};

/* To be freed in any case. */
enum error_code background_rows_create(struct background_rows *rows, struct step *step,
                                       const struct background_from *from, struct error *err) MUST_CHECK;
void background_rows_free(struct background_rows *rows);

/* The next rows, BACKGROUND_ROWS at most, dense, in the columns of rect: all of them unless they come in patches. */
void background_emit(struct background_rows *rows, const struct rect *rect, const float *from);

/* By which the colours of a transparent picture's px are multiplied before they are resized; alpha: 0..255. */
float background_weight(float alpha);

#endif
