#include "server/image/warp.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/thread.h"
#include "server/image/similarity.h"

/* OpenCV's fixed point: coordinates are summed in 1/1024 px, then rounded to 1/32 px. */
#define WARP_STEPS 32

/* How far a tent reaches at most, px each way: a degenerate matrix must not turn into hours of work. */
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

/* Taps along one axis: the first index and the weights of a tent around centre. */
struct warp_taps {
    long first;
    int count;
    float weight[2 * WARP_MAX_RADIUS + 1];
};

static void warp_tent(struct warp_taps *taps, double centre, double radius)
{
    double sum = 0;
    const double low = centre - radius;
    taps->first = (long)low + (low >= (double)(long)low); /* floor + 1, which is a call where SSE4.1 is not assumed */
    taps->count = 0;
    for (long i = taps->first; (double)i < centre + radius; i++) {
        double w = 1 - fabs((double)i - centre) / radius;
        taps->weight[taps->count++] = (float)w;
        sum += w;
    }
    for (int k = 0; k < taps->count; k++)
        taps->weight[k] = (float)(taps->weight[k] / sum);
}

/* The taps of an axis of n px that lie in the picture: [*from, *to). */
static void warp_inside(const struct warp_taps *taps, long n, int *from, int *to)
{
    long a = -taps->first, b = n - taps->first;
    *from = (int)(a < 0 ? 0 : a > taps->count ? taps->count : a);
    *to = (int)(b < *from ? *from : b > taps->count ? taps->count : b);
}

#define WARP_PIXEL(NAME, VIEW, TYPE)                                                                                   \
    static void NAME(float *to, const VIEW *src, const struct warp_taps *ax, const struct warp_taps *ay,               \
                     const float border[])                                                                             \
    {                                                                                                                  \
        int channels = src->channels, from_x, to_x, from_y, to_y;                                                      \
        float sum[4] = {0}, inside = 0;                                                                                \
        warp_inside(ax, src->width, &from_x, &to_x);                                                                   \
        warp_inside(ay, src->height, &from_y, &to_y);                                                                  \
        for (int j = from_y; j < to_y; j++) {                                                                          \
            const TYPE *p =                                                                                            \
                src->data + (size_t)(ay->first + j) * src->stride + (size_t)((ax->first + from_x) * channels);         \
            for (int i = from_x; i < to_x; i++, p += channels) {                                                       \
                float w = ay->weight[j] * ax->weight[i];                                                               \
                inside += w;                                                                                           \
                for (int c = 0; c < channels; c++)                                                                     \
                    sum[c] += w * (float)p[c];                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        bool whole = to_x - from_x == ax->count && to_y - from_y == ay->count;                                         \
        for (int c = 0; c < channels; c++)                                                                             \
            to[c] = whole ? sum[c] : sum[c] + (1 - inside) * border[c];                                                \
    }

WARP_PIXEL(warp_smooth_u8_pixel, struct view_u8, uint8_t)
WARP_PIXEL(warp_any_f32_pixel, struct view_f32, float)

/* Four channels at once; each sum runs over the same taps in the same order. */
typedef float warp_quad __attribute__((vector_size(16)));

static void warp_smooth_f32_pixel(float *to, const struct view_f32 *src, const struct warp_taps *ax,
                                  const struct warp_taps *ay, const float border[])
{
    int from_x, to_x, from_y, to_y;
    if (src->channels != 4) {
        warp_any_f32_pixel(to, src, ax, ay, border);
        return;
    }
    warp_quad sum = {0}, edge;
    float inside = 0;
    warp_inside(ax, src->width, &from_x, &to_x);
    warp_inside(ay, src->height, &from_y, &to_y);
    for (int j = from_y; j < to_y; j++) {
        const float *p = src->data + (size_t)(ay->first + j) * src->stride + (size_t)(ax->first + from_x) * 4;
        for (int i = from_x; i < to_x; i++, p += 4) {
            warp_quad px;
            float w = ay->weight[j] * ax->weight[i];
            memcpy(&px, p, sizeof px);
            inside += w;
            sum += w * px;
        }
    }
    memcpy(&edge, border, sizeof edge);
    if (to_x - from_x != ax->count || to_y - from_y != ay->count)
        sum += (1 - inside) * edge;
    memcpy(to, &sum, sizeof sum);
}

#define WARP_SMOOTH(NAME, VIEW)                                                                                        \
    struct NAME##_loop {                                                                                               \
        const struct view_f32 *dst;                                                                                    \
        const VIEW *src;                                                                                               \
        int x0, y0;                                                                                                    \
        double inverse[6], radius;                                                                                     \
        const float *border;                                                                                           \
    };                                                                                                                 \
                                                                                                                       \
    static void NAME##_rows(void *context, int item)                                                                   \
    {                                                                                                                  \
        const struct NAME##_loop *loop = context;                                                                      \
        const struct view_f32 *dst = loop->dst;                                                                        \
        const VIEW *src = loop->src;                                                                                   \
        const double *inverse = loop->inverse, radius = loop->radius;                                                  \
        struct warp_taps ax, ay;                                                                                       \
        int begin, end;                                                                                                \
        thread_band(dst->height, item, &begin, &end);                                                                  \
        for (int y = begin; y < end; y++) {                                                                            \
            float *to = dst->data + (size_t)y * dst->stride;                                                           \
            for (int x = 0; x < dst->width; x++, to += dst->channels) {                                                \
                double sx = inverse[0] * (loop->x0 + x) + inverse[1] * (loop->y0 + y) + inverse[2];                    \
                double sy = inverse[3] * (loop->x0 + x) + inverse[4] * (loop->y0 + y) + inverse[5];                    \
                if (sx > -radius && sy > -radius && sx < src->width - 1 + radius && sy < src->height - 1 + radius) {   \
                    warp_tent(&ax, sx, radius);                                                                        \
                    warp_tent(&ay, sy, radius);                                                                        \
                    NAME##_pixel(to, src, &ax, &ay, loop->border);                                                     \
                } else {                                                                                               \
                    for (int c = 0; c < dst->channels; c++)                                                            \
                        to[c] = loop->border[c];                                                                       \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    void NAME(const struct view_f32 *dst, int x0, int y0, const VIEW *src, const double matrix[6],                     \
              const float border[])                                                                                    \
    {                                                                                                                  \
        struct NAME##_loop loop = {.dst = dst, .src = src, .x0 = x0, .y0 = y0, .border = border};                      \
        assert(dst->channels == src->channels && src->channels <= 4);                                                  \
        loop.radius = warp_radius(matrix);                                                                             \
        similarity_invert(matrix, loop.inverse);                                                                       \
        thread_for(thread_bands(dst->height), NAME##_rows, &loop);                                                     \
    }

WARP_SMOOTH(warp_smooth_u8, struct view_u8)
WARP_SMOOTH(warp_smooth_f32, struct view_f32)
