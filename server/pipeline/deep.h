/* What a picture has beyond 8-bit RGB in sRGB, and its result shall have, too: 16 bits, one channel, colours of its
 * own, or no colour at all in three channels. Everything between decoder and encoder works in sRGB. Faces are found in
 * r->picture, which has 8 bits of RGB in any case; networks that make pixels read deep->pixels, and the result's rows
 * stay in floats until they are written. Thread-safety: as step.h; several threads may write different rows. */
#ifndef SERVER_PIPELINE_DEEP_H
#define SERVER_PIPELINE_DEEP_H

#include "server/image/colour.h"
#include "server/pipeline/step.h"

struct deep {
    struct image *pixels;  /* the picture as 16-bit RGB, with its alpha plane; NULL: r->picture has all of it */
    struct colour *colour; /* of the result; NULL: sRGB */
    struct image *source;  /* the picture in these colours, if sRGB cannot hold all of them; or NULL */
    int channels, bits;    /* of the result */
    bool neutral;          /* the picture has three equal channels everywhere, and so has the result */
};

/* Makes r->picture, as it was decoded, 8-bit RGB, and r->deep of what it had beyond that, as far as the result's format
 * can hold it. On an error the picture may be lost. */
enum error_code deep_begin(struct restoration *r, struct error *err) MUST_CHECK;
void deep_destroy(struct deep **deep);

/* An empty result of this size. */
enum error_code deep_result(struct restoration *r, int width, int height, struct error *err) MUST_CHECK;
/* Puts a row of RGB in sRGB, 0..255 and beyond, into the result; the floats may change. */
void deep_row(struct restoration *r, int y, float *row);
/* Row y of the picture in the result's channels and colours; there is room for RGB. */
void deep_read_own(const struct restoration *r, int y, float *row);
/* Such a row into the result, or out of it. */
void deep_put(struct restoration *r, int y, const float *row);
void deep_get(const struct restoration *r, int y, float *row);
/* Puts a row of alpha, 0..255, into the result, which must have it. */
void deep_alpha_row(struct restoration *r, int y, const float *row);

/* Row y of the picture in floats on the 8-bit scale: its three colours, its alpha. */
void deep_read(const struct restoration *r, int y, float *to);
void deep_read_alpha(const struct restoration *r, int y, float *to);

/* What the picture's colours have beyond sRGB, resized to the result: rows of RGB to add to those of the result, which
 * come in their order. NULL: nothing. */
struct deep_rest;
enum error_code deep_rest_create(struct deep_rest **out, const struct restoration *r, int width, int height,
                                 struct error *err) MUST_CHECK;
/* The next `count` rows, `row` floats apart. */
void deep_rest_rows(struct deep_rest *rest, float *rows, size_t row, int count);
void deep_rest_destroy(struct deep_rest **rest);

#endif
