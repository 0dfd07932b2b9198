#include "server/image/warp.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/thread.h"
#include "server/image/similarity.h"

/* OpenCV's fixed point: coordinates are summed in 1/1024 px, then rounded to 1/32 px. */
#define WARP_STEPS 32

/* The farthest that a tent reaches, px each way: a degenerate matrix must not cause hours of work. */
#define WARP_MAX_RADIUS 64

/* Source px that one destination px covers, at least 1. */
static double warp_radius(const double matrix[6])
{
    double det = fabs(matrix[0] * matrix[4] - matrix[1] * matrix[3]);
    double s = det > 0 ? 1 / sqrt(det) : WARP_MAX_RADIUS;
    return s < 1 ? 1 : s > WARP_MAX_RADIUS ? WARP_MAX_RADIUS : s;
}

struct rect warp_bounds(const double matrix[6], int src_width, int src_height, int dst_width, int dst_height,
                        int margin)
{
    double x0 = INFINITY, y0 = INFINITY, x1 = -INFINITY, y1 = -INFINITY;
    double reach = warp_radius(matrix); /* a tap may lie so far beyond the source's edge */
    for (int corner = 0; corner < 4; corner++) {
        double x = corner & 1 ? src_width - 1 + reach : -reach, y = corner & 2 ? src_height - 1 + reach : -reach;
        double u = matrix[0] * x + matrix[1] * y + matrix[2], v = matrix[3] * x + matrix[4] * y + matrix[5];
        x0 = fmin(x0, u);
        y0 = fmin(y0, v);
        x1 = fmax(x1, u);
        y1 = fmax(y1, v);
    }
    x0 = fmax(floor(x0) - margin, 0);
    y0 = fmax(floor(y0) - margin, 0);
    x1 = fmin(ceil(x1) + margin, dst_width - 1);
    y1 = fmin(ceil(y1) + margin, dst_height - 1);
    if (!(x0 <= x1 && y0 <= y1))
        return (struct rect){0};
    return (struct rect){(int)x0, (int)y0, (int)(x1 - x0) + 1, (int)(y1 - y0) + 1};
}

/* Rounded to an integer; a place beyond any picture (or none at all) stays beyond, within what sums can hold. */
static inline long warp_fixed(double v)
{
    const double far = 1e15;
    return lrint(v > -far ? (v < far ? v : far) : -far);
}

/* The place of a destination pixel in the source, in 1/32 px. */
static inline long warp_place(const double row[3], int x, int y)
{
    long base = warp_fixed((row[1] * y + row[2]) * 1024) + 1024 / WARP_STEPS / 2;
    return (base + warp_fixed(row[0] * x * 1024)) >> 5;
}

void warp_exact_u8(const struct view_u8 *dst, int x0, int y0, const struct view_u8 *src, const double matrix[6],
                   const uint8_t border[])
{
    double inverse[6];
    int channels = src->channels;
    assert(dst->channels == channels && channels <= 4);
    similarity_invert(matrix, inverse);
    for (int y = 0; y < dst->height; y++) {
        uint8_t *to = dst->data + (size_t)y * dst->stride;
        for (int x = 0; x < dst->width; x++, to += channels) {
            long px = warp_place(inverse, x0 + x, y0 + y), py = warp_place(inverse + 3, x0 + x, y0 + y);
            long sx = px >> 5, sy = py >> 5;
            int fx = (int)(px & 31), fy = (int)(py & 31);
            const uint8_t *tap[4];
            if (sx < -1 || sy < -1 || sx >= src->width || sy >= src->height) {
                for (int c = 0; c < channels; c++)
                    to[c] = border[c];
                continue;
            }
            for (int k = 0; k < 4; k++) {
                long tx = sx + (k & 1), ty = sy + (k >> 1);
                bool inside = tx >= 0 && ty >= 0 && tx < src->width && ty < src->height;
                tap[k] = inside ? src->data + (size_t)ty * src->stride + (size_t)tx * (size_t)channels : border;
            }
            for (int c = 0; c < channels; c++)
                to[c] = (uint8_t)((tap[0][c] * (32 - fy) * (32 - fx) + tap[1][c] * (32 - fy) * fx +
                                   tap[2][c] * fy * (32 - fx) + tap[3][c] * fy * fx + 512) >>
                                  10);
        }
    }
}

/* float and double differ in their type alone; the weights are multiples of 1/1024 and exact in both. */
#define WARP_EXACT(NAME, TYPE, VIEW)                                                                                   \
    void NAME(const VIEW *dst, int x0, int y0, const VIEW *src, const double matrix[6], TYPE border)                   \
    {                                                                                                                  \
        double inverse[6];                                                                                             \
        assert(dst->channels == 1 && src->channels == 1);                                                              \
        similarity_invert(matrix, inverse);                                                                            \
        for (int y = 0; y < dst->height; y++)                                                                          \
            for (int x = 0; x < dst->width; x++) {                                                                     \
                long px = warp_place(inverse, x0 + x, y0 + y), py = warp_place(inverse + 3, x0 + x, y0 + y);           \
                long sx = px >> 5, sy = py >> 5;                                                                       \
                TYPE fx = (TYPE)(px & 31) / WARP_STEPS, fy = (TYPE)(py & 31) / WARP_STEPS, tap[4], sum = border;       \
                if (sx >= -1 && sy >= -1 && sx < src->width && sy < src->height) {                                     \
                    for (int k = 0; k < 4; k++) {                                                                      \
                        long tx = sx + (k & 1), ty = sy + (k >> 1);                                                    \
                        bool inside = tx >= 0 && ty >= 0 && tx < src->width && ty < src->height;                       \
                        tap[k] = inside ? src->data[(size_t)ty * src->stride + (size_t)tx] : border;                   \
                    }                                                                                                  \
                    sum = tap[0] * ((1 - fy) * (1 - fx)) + tap[1] * ((1 - fy) * fx) + tap[2] * (fy * (1 - fx)) +       \
                          tap[3] * (fy * fx);                                                                          \
                }                                                                                                      \
                dst->data[(size_t)y * dst->stride + (size_t)x] = sum;                                                  \
            }                                                                                                          \
    }

WARP_EXACT(warp_exact_f32, float, struct view_f32)
WARP_EXACT(warp_exact_f64, double, struct view_f64)

/* ---- float, antialiased ------------------------------------------------------------------------------------------ */

/* Four samples; a pixel of three comes with the first of the next. */
typedef float warp_quad __attribute__((vector_size(16)));
typedef uint8_t warp_bytes __attribute__((vector_size(16)));
typedef uint16_t warp_words __attribute__((vector_size(16)));
typedef int32_t warp_ints __attribute__((vector_size(16)));

/* The taps that a tent reaches along an axis, rounded up to fours. */
struct warp_taps {
    long first;
    float weight[2 * WARP_MAX_RADIUS]; /* which sum to 1 */
};

static inline void warp_tent(struct warp_taps *taps, double centre, double radius, float steep, int quads)
{
    const double low = centre - radius;
    taps->first = (long)low + (low >= (double)(long)low); /* floor + 1, which is a call where SSE4.1 is not assumed */
    const float at = (float)(centre - (double)taps->first);
    float sum = 0;
    for (int k = 0; k < 4 * quads; k++) {
        const float w = 1 - fabsf((float)k - at) * steep;
        taps->weight[k] = w + fabsf(w); /* twice as much, or 0, without a branch */
        sum += taps->weight[k];
    }
    sum = 1 / sum;
    for (int k = 0; k < 4 * quads; k++)
        taps->weight[k] *= sum;
}

/* Of `count` taps those that lie on an axis of n px and have a weight: [*from, *to). */
static void warp_inside(const struct warp_taps *taps, int count, long n, int *from, int *to)
{
    long a = -taps->first, b = n - taps->first;
    *from = (int)(a < 0 ? 0 : a > count ? count : a);
    *to = (int)(b < *from ? *from : b > count ? count : b);
    while (*to > *from && taps->weight[*to - 1] == 0)
        --*to;
}

/* What a smooth warp reads, of either kind of samples. */
struct warp_loop {
    const struct view_f32 *dst;
    const void *data;
    int x0, y0, width, height, channels;
    size_t stride; /* samples */
    double inverse[6], radius;
    float steep; /* 1 / radius */
    int quads;   /* of taps each way */
    const float *border;
};

static inline warp_quad warp_quad_u8(const void *data, size_t at)
{
    int32_t four;
    memcpy(&four, (const uint8_t *)data + at, sizeof four);
    const warp_bytes none = {0}, v = (warp_bytes)(warp_ints){four};
    /* Widened with zeros in two steps, which SSE2 and NEON have; compilers turn a simpler cast into four
     * conversions. */
    const warp_words w =
        (warp_words)__builtin_shufflevector(v, none, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return __builtin_convertvector((warp_ints)__builtin_shufflevector(w, (warp_words)none, 0, 8, 1, 9, 2, 10, 3, 11),
                                   warp_quad);
}

static inline warp_quad warp_quad_u16(const void *data, size_t at)
{
    uint16_t v[4];
    memcpy(v, (const uint16_t *)data + at, sizeof v);
    return (warp_quad){v[0], v[1], v[2], v[3]} / 257;
}

static inline warp_quad warp_quad_f32(const void *data, size_t at)
{
    warp_quad v;
    memcpy(&v, (const float *)data + at, sizeof v);
    return v;
}

static inline float warp_one_u8(const void *data, size_t at)
{
    return ((const uint8_t *)data)[at];
}

static inline float warp_one_u16(const void *data, size_t at)
{
    return (float)((const uint16_t *)data)[at] / 257;
}

static inline float warp_one_f32(const void *data, size_t at)
{
    return ((const float *)data)[at];
}

typedef warp_quad warp_quad_fn(const void *data, size_t at);
typedef float warp_one_fn(const void *data, size_t at);

static inline double warp_at(const double row[3], int x, int y)
{
    return row[0] * x + row[1] * y + row[2];
}

/* One destination px anywhere, for what the fast paths leave out: the picture's edge, one or two channels. */
static inline __attribute__((always_inline)) void warp_any(const struct warp_loop *loop, float *to, double sx,
                                                           double sy, size_t channels, warp_one_fn *one)
{
    const double radius = loop->radius;
    float sum[4] = {0}, inside = 0;
    if (sx > -radius && sy > -radius && sx < loop->width - 1 + radius && sy < loop->height - 1 + radius) {
        struct warp_taps ax, ay;
        int from_x, to_x, from_y, to_y;
        warp_tent(&ax, sx, radius, loop->steep, loop->quads);
        warp_tent(&ay, sy, radius, loop->steep, loop->quads);
        warp_inside(&ax, 4 * loop->quads, loop->width, &from_x, &to_x);
        warp_inside(&ay, 4 * loop->quads, loop->height, &from_y, &to_y);
        for (int j = from_y; j < to_y; j++)
            for (int i = from_x; i < to_x; i++) {
                float w = ay.weight[j] * ax.weight[i];
                size_t at = (size_t)(ay.first + j) * loop->stride + (size_t)(ax.first + i) * channels;
                inside += w;
                for (size_t c = 0; c < channels; c++)
                    sum[c] += w * one(loop->data, at + c);
            }
    }
    for (size_t c = 0; c < channels; c++)
        to[c] = sum[c] + (1 - inside) * loop->border[c];
}

/* One px whose taps all lie in the picture. */
static inline __attribute__((always_inline)) warp_quad warp_tents(const struct warp_loop *loop, double sx, double sy,
                                                                  size_t channels, int quads, warp_quad_fn *quad)
{
    struct warp_taps ax, ay;
    warp_quad sum = {0};
    warp_tent(&ax, sx, loop->radius, loop->steep, quads);
    warp_tent(&ay, sy, loop->radius, loop->steep, quads);
    for (int j = 0; j < 4 * quads; j++) {
        size_t at = (size_t)(ay.first + j) * loop->stride + (size_t)ax.first * channels;
        warp_quad line = {0};
        for (int q = 0; q < quads; q++, at += 4 * channels) {
            const float *w = ax.weight + 4 * q;
            line += w[0] * quad(loop->data, at) + w[1] * quad(loop->data, at + channels) +
                    (w[2] * quad(loop->data, at + 2 * channels) + w[3] * quad(loop->data, at + 3 * channels));
        }
        sum += ay.weight[j] * line;
    }
    return sum;
}

static inline __attribute__((always_inline)) warp_quad warp_bilinear(const struct warp_loop *loop, double sx, double sy,
                                                                     size_t channels, warp_quad_fn *quad)
{
    const int ix = (int)sx, iy = (int)sy;
    const float fx = (float)(sx - ix), fy = (float)(sy - iy);
    const size_t above = (size_t)iy * loop->stride + (size_t)ix * channels, below = above + loop->stride;
    const warp_quad a = quad(loop->data, above), b = quad(loop->data, above + channels);
    const warp_quad c = quad(loop->data, below), d = quad(loop->data, below + channels);
    return (1 - fy) * ((1 - fx) * a + fx * b) + fy * ((1 - fx) * c + fx * d);
}

/* Whether all taps of a px lie in the picture, and a fourth sample after each. */
static inline bool warp_clear(const struct warp_loop *loop, int x, int y)
{
    const double sx = warp_at(loop->inverse, x, y), sy = warp_at(loop->inverse + 3, x, y), low = loop->radius - 1;
    const int reach = 4 * loop->quads; /* from the px before the first tap on */
    return sx >= low && sy >= low && sx - low < loop->width - 1 - reach && sy - low < loop->height - reach;
}

static inline __attribute__((always_inline)) void warp_row(const struct warp_loop *loop, float *to, int y,
                                                           size_t channels, warp_quad_fn *quad, warp_one_fn *one)
{
    const int begin = loop->x0, end = loop->x0 + loop->dst->width;
    int first = begin, last = end; /* then so is everything in between: each coordinate only rises or only falls */
    while (first < last && (channels < 3 || !warp_clear(loop, first, y)))
        first++;
    while (first < last && !warp_clear(loop, last - 1, y))
        last--;
    for (int x = begin; x < end; x++, to += channels) {
        const double sx = warp_at(loop->inverse, x, y), sy = warp_at(loop->inverse + 3, x, y);
        warp_quad px;
        if (x < first || x >= last) {
            warp_any(loop, to, sx, sy, channels, one);
            continue;
        }
        if (loop->radius == 1)
            px = warp_bilinear(loop, sx, sy, channels, quad);
        else if (loop->quads == 1)
            px = warp_tents(loop, sx, sy, channels, 1, quad);
        else
            px = warp_tents(loop, sx, sy, channels, loop->quads, quad);
        memcpy(to, &px, channels * sizeof *to);
    }
}

static inline __attribute__((always_inline)) void warp_rows(const struct warp_loop *loop, int item, warp_quad_fn *quad,
                                                            warp_one_fn *one)
{
    int begin, end;
    thread_band(loop->dst->height, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        float *to = loop->dst->data + (size_t)y * loop->dst->stride;
        if (loop->channels == 3)
            warp_row(loop, to, loop->y0 + y, 3, quad, one);
        else if (loop->channels == 4)
            warp_row(loop, to, loop->y0 + y, 4, quad, one);
        else if (loop->channels == 1)
            warp_row(loop, to, loop->y0 + y, 1, quad, one);
        else
            warp_row(loop, to, loop->y0 + y, (size_t)loop->channels, quad, one);
    }
}

static void warp_rows_u8(void *context, int item)
{
    warp_rows(context, item, warp_quad_u8, warp_one_u8);
}

static void warp_rows_u16(void *context, int item)
{
    warp_rows(context, item, warp_quad_u16, warp_one_u16);
}

static void warp_rows_f32(void *context, int item)
{
    warp_rows(context, item, warp_quad_f32, warp_one_f32);
}

/* What the source of a loop is, of any samples. */
#define WARP_FROM(src)                                                                                                 \
    .data = (src)->data, .width = (src)->width, .height = (src)->height, .channels = (src)->channels,                  \
    .stride = (src)->stride

static void warp_smooth(struct warp_loop loop, const double matrix[6], thread_item_fn *rows)
{
    assert(loop.dst->channels == loop.channels && loop.channels <= 4);
    loop.radius = warp_radius(matrix);
    loop.steep = (float)(1 / loop.radius);
    loop.quads = (int)ceil(loop.radius / 2); /* an open interval of 2 radii has at most so many fours of places */
    similarity_invert(matrix, loop.inverse);
    thread_for(thread_bands(loop.dst->height), rows, &loop);
}

void warp_smooth_u8(const struct view_f32 *dst, int x0, int y0, const struct view_u8 *src, const double matrix[6],
                    const float border[])
{
    warp_smooth((struct warp_loop){.dst = dst, .x0 = x0, .y0 = y0, WARP_FROM(src), .border = border}, matrix,
                warp_rows_u8);
}

void warp_smooth_u16(const struct view_f32 *dst, int x0, int y0, const struct view_u16 *src, const double matrix[6],
                     const float border[])
{
    warp_smooth((struct warp_loop){.dst = dst, .x0 = x0, .y0 = y0, WARP_FROM(src), .border = border}, matrix,
                warp_rows_u16);
}

void warp_smooth_f32(const struct view_f32 *dst, int x0, int y0, const struct view_f32 *src, const double matrix[6],
                     const float border[])
{
    warp_smooth((struct warp_loop){.dst = dst, .x0 = x0, .y0 = y0, WARP_FROM(src), .border = border}, matrix,
                warp_rows_f32);
}
