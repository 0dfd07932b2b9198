/* Pictures in host memory as runs read and write them: interleaved samples, their relation to a tensor's values, and
 * the conversions in plain C for backends that take only tensors.
 * Thread-safety: functions without state; the larger ones divide their rows among the cores. */
#ifndef RUNTIME_BACKEND_RASTER_H
#define RUNTIME_BACKEND_RASTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum raster_form {
    RASTER_U8,    /* RGB, 8 bit */
    RASTER_F32,   /* RGB, float32 on the 8-bit scale: 0..255, not rounded */
    RASTER_LABEL, /* only for results: a byte a pixel, the channel with the largest value, the first of equals */
    RASTER_U16,   /* only for inputs: RGB, 16 bit in host order */
    RASTER_LEVEL  /* only for results: a byte a pixel, raster_level of a channel */
};

/* Bytes of a pixel. */
size_t raster_pixel(enum raster_form form);

/* Converts between a sample p, on the 8-bit scale, and the value v of tensor channel c, of 3: v = (p / unit - mean[c])
 * / deviation, and back, p = (min(max(v, low), high) * deviation + mean[c]) * unit, rounded for 8 bit, halves to even.
 */
struct raster_range {
    float unit, mean[3], deviation, low, high;
    bool bgr; /* the tensor's channels are blue, green, red */
};

/* An image of an input. Pixel (x, y) of the tensor is pixel (columns[x], rows[y]) of the picture, so a pair of lists
 * describes a window with any padding; NULL: (x, y). */
struct raster_source {
    enum raster_form form;
    const void *data;
    size_t stride; /* bytes from a row to the next */
    const int *columns, *rows;
    /* Not 0: the picture has that size, 8 bit, and is reduced to the tensor's without lists: each pixel is the mean of
     * those that it touches, as torch's adaptive_avg_pool2d has it. A device may send it once where another input, an
     * earlier one, has all of it. */
    int width, height;
    /* Not 0: of this very picture alone, among all that the device's handle gets. If it still has what an earlier run
     * sent of it, and needs the same part from the same `data` on, that need not be sent again. */
    uint64_t number;
};
#define RASTER_REDUCED 65535 /* px of the longest side of such a picture */

/* A picture laid over a result before the result is rounded: a sample v becomes v + weight * (rgb - a * v). */
struct raster_layer {
    const float *rgba; /* height × width: RGB on the 8-bit scale times alpha, and alpha, 0..1 */
    int x, y, width, height;
    float weight;
};

/* Pixels of an image by their places, y * width + x. */
struct raster_points {
    const uint32_t *places;
    int count;
    const float *planes; /* of an input: three planes of the whole image's values, of which those count */
    float *values;       /* of a result: three a place */
};

/* Where a rectangle of a result goes: its pixel (x, y) is the first of data. */
struct raster_target {
    enum raster_form form;
    void *data;
    size_t stride;
    int x, y, width, height;
    const struct raster_layer *layers; /* laid over 8 bit in this order; not needed once the run is shown */
    int layer_count;
    int left, top; /* where its first pixel is among them */
    /* Not NULL: there is room for `most` rows alone. As often as they, or the last, are there, in their order, this is
     * called with how many they are; the next ones begin at `data` again. An asynchronous device does this while a run
     * is waited for. */
    void (*take)(void *user, int rows);
    void *user;
    int most;
    int first; /* RASTER_LABEL: the first of the channels, which counts as 0. RASTER_LEVEL: the channel. */
};

/* The source's h × w pixels as 3 planes. */
void raster_read(const struct raster_source *source, int h, int w, const struct raster_range *range, float *planes);

/* A picture that is reduced to h × w: RGB on the 8-bit scale; and `count` pixels from (x, y) on. */
void raster_reduce(const struct raster_source *source, int h, int w, float *out);
void raster_reduce_row(const struct raster_source *source, int h, int w, int y, int x, int count, float *out);

/* Sets those pixels of an image's `pixels` a plane, of four planes, of which the fourth becomes 1 there and 0
 * elsewhere; and the points' values from three planes. */
void raster_put_points(const struct raster_points *points, size_t pixels, float *planes);
void raster_take_points(const struct raster_points *points, size_t pixels, const float *planes);

/* A value in sixteenths, rounded, halves away from 0, plus 128: from -8 to +7.9. NaN: 0. */
uint8_t raster_level(float value);

/* Whether all of the source's samples are equal. */
bool raster_flat(const struct raster_source *source, int h, int w);

/* How values are stored: channel c of pixel (x, y) is data[c*channel + (y % rows)*row + x*pixel]. */
struct raster_values {
    const float *data;
    int channels, rows;
    size_t channel, row, pixel;
};

/* Writes the target's rectangle of the values. range may be NULL for labels and levels. */
void raster_write(const struct raster_values *values, const struct raster_range *range,
                  const struct raster_target *target);

/* Lays the layers' part there over the pixels (x, y) .. (x + width - 1, y), 3 samples each. */
void raster_lay(const struct raster_layer *layers, int count, int x, int y, int width, float *row);

/* Whether all of `count` values are finite, and whether all are equal. */
bool raster_finite(const float *values, size_t count);
bool raster_equal(const float *values, size_t count);

#endif
