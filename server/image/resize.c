#include "server/image/resize.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/resize_axis.h"

static enum error_code resize_no_memory(struct error *err, int width, int height)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory to resize a picture to %d×%d pixels", width, height);
}

/* ---- OpenCV's 8-bit resizing ------------------------------------------------------------------------------------ */

#define RESIZE_EXACT_BITS 11 /* of a coefficient; a sample after both passes carries 22 */
#define RESIZE_EXACT_TAPS 8

/* One axis: for each destination px its taps' source px (clamped: edges repeat) and coefficients. */
struct resize_exact_axis {
    int taps;
    int (*index)[RESIZE_EXACT_TAPS];
    int (*weight)[RESIZE_EXACT_TAPS];
};

/* cv::interpolateLanczos4. sin and cos of the tap's place follow from those of the first by turns of 45°. */
static void resize_lanczos4_weights(float x, float weight[8])
{
    const double h = 0.70710678118654752440084436210485;
    const double turn[8][2] = {{1, 0}, {-h, -h}, {0, 1}, {h, -h}, {-1, 0}, {h, h}, {0, -1}, {-h, h}};
    if (x < FLT_EPSILON) {
        memset(weight, 0, 8 * sizeof *weight);
        weight[3] = 1;
        return;
    }
    double y0 = -((double)x + 3) * M_PI * 0.25, s0 = sin(y0), c0 = cos(y0);
    float sum = 0;
    for (int i = 0; i < 8; i++) {
        double y = -((double)x + 3 - i) * M_PI * 0.25;
        weight[i] = (float)((turn[i][0] * s0 + turn[i][1] * c0) / (y * y));
        sum += weight[i];
    }
    sum = 1 / sum;
    for (int i = 0; i < 8; i++)
        weight[i] *= sum;
}

/* clamp_linear: the horizontal axis of INTER_LINEAR puts the whole weight on an edge px. */
static void resize_exact_fill(struct resize_exact_axis *axis, int dst, int src, bool clamp_linear)
{
    const float one = 1 << RESIZE_EXACT_BITS;
    double scale = (double)src / dst;
    for (int d = 0; d < dst; d++) {
        float at = (float)((d + 0.5) * scale - 0.5), weight[8];
        int first = (int)floorf(at);
        at -= (float)first;
        if (axis->taps == 8) {
            resize_lanczos4_weights(at, weight);
            first -= 3;
        } else {
            if (clamp_linear && (first < 0 || first >= src - 1)) {
                at = 0;
                first = first < 0 ? 0 : src - 1;
            }
            weight[0] = 1 - at;
            weight[1] = at;
        }
        for (int k = 0; k < axis->taps; k++) {
            int i = first + k;
            axis->index[d][k] = i < 0 ? 0 : i >= src ? src - 1 : i;
            axis->weight[d][k] = (int)lrintf(weight[k] * one);
        }
    }
}

static void resize_exact_line(int *to, const uint8_t *from, const struct resize_exact_axis *axis, int width,
                              int channels)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < channels; c++) {
            int sum = 0;
            for (int k = 0; k < axis->taps; k++)
                sum += from[axis->index[x][k] * channels + c] * axis->weight[x][k];
            *to++ = sum;
        }
}

/* The vertical passes. The 8 taps' sum fits an int: positive products of coefficients add up to at most
 * 1.971 * 2^22 over all phases, times 255. */
static uint8_t resize_exact_cell(const int *const rows[], const int weight[], int taps, size_t i)
{
    int v;
    if (taps == 8) {
        int sum = 0;
        for (int k = 0; k < 8; k++)
            sum += rows[k][i] * weight[k];
        v = (sum + (1 << (2 * RESIZE_EXACT_BITS - 1))) >> (2 * RESIZE_EXACT_BITS);
    } else { /* OpenCV's vector code drops low bits in between */
        v = (((weight[0] * (rows[0][i] >> 4)) >> 16) + ((weight[1] * (rows[1][i] >> 4)) >> 16) + 2) >> 2;
    }
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static enum error_code resize_exact(const struct view_u8 *dst, const struct view_u8 *src, int taps, struct error *err)
{
    int channels = src->channels;
    assert(dst->channels == channels && src->width > 0 && src->height > 0);
    struct resize_exact_axis ax = {.taps = taps}, ay = {.taps = taps};
    size_t line = (size_t)dst->width * (size_t)channels;
    int *ring = mem_alloc(line * sizeof *ring, RESIZE_EXACT_TAPS), held[RESIZE_EXACT_TAPS];
    ax.index = mem_alloc((size_t)dst->width, sizeof *ax.index);
    ax.weight = mem_alloc((size_t)dst->width, sizeof *ax.weight);
    ay.index = mem_alloc((size_t)dst->height, sizeof *ay.index);
    ay.weight = mem_alloc((size_t)dst->height, sizeof *ay.weight);
    enum error_code code = OK;
    if (!ring || !ax.index || !ax.weight || !ay.index || !ay.weight) {
        code = resize_no_memory(err, dst->width, dst->height);
        goto out;
    }
    resize_exact_fill(&ax, dst->width, src->width, true);
    resize_exact_fill(&ay, dst->height, src->height, false);
    for (int i = 0; i < RESIZE_EXACT_TAPS; i++)
        held[i] = -1;
    for (int y = 0; y < dst->height; y++) {
        const int *rows[RESIZE_EXACT_TAPS];
        for (int k = 0; k < taps; k++) { /* a window of 8 rows at most: each has its own place in the ring */
            int from = ay.index[y][k], slot = from % RESIZE_EXACT_TAPS;
            rows[k] = ring + (size_t)slot * line;
            if (held[slot] != from)
                resize_exact_line(ring + (size_t)slot * line, src->data + (size_t)from * src->stride, &ax, dst->width,
                                  channels);
            held[slot] = from;
        }
        for (size_t i = 0; i < line; i++)
            dst->data[(size_t)y * dst->stride + i] = resize_exact_cell(rows, ay.weight[y], taps, i);
    }
out:
    free(ring);
    free(ax.index);
    free(ax.weight);
    free(ay.index);
    free(ay.weight);
    return code;
}

enum error_code resize_lanczos4_exact(const struct view_u8 *dst, const struct view_u8 *src, struct error *err)
{
    return resize_exact(dst, src, 8, err);
}

static void resize_half(const struct view_u8 *dst, const struct view_u8 *src)
{
    size_t channels = (size_t)src->channels;
    for (int y = 0; y < dst->height; y++) {
        const uint8_t *top = src->data + 2 * (size_t)y * src->stride, *bottom = top + src->stride;
        uint8_t *to = dst->data + (size_t)y * dst->stride;
        for (int x = 0; x < dst->width; x++, top += 2 * channels, bottom += 2 * channels)
            for (size_t c = 0; c < channels; c++)
                *to++ = (uint8_t)((top[c] + top[channels + c] + bottom[c] + bottom[channels + c] + 2) >> 2);
    }
}

enum error_code resize_linear_exact(const struct view_u8 *dst, const struct view_u8 *src, struct error *err)
{
    if (src->width == 2 * dst->width && src->height == 2 * dst->height) {
        resize_half(dst, src);
        return OK;
    }
    return resize_exact(dst, src, 2, err);
}

/* ---- float, row by row ------------------------------------------------------------------------------------------ */

struct resize_stream {
    int src_width, src_height, dst_width, dst_height, channels;
    struct resize_axis x, y;
    float *ring; /* y.taps + RESIZE_ROWS rows of dst_width*channels */
    int pushed, pulled;
};

enum error_code resize_stream_create(struct resize_stream **out, int src_width, int src_height, int dst_width,
                                     int dst_height, int channels, enum resize_kernel kernel, struct error *err)
{
    assert(src_width > 0 && src_height > 0 && dst_width > 0 && dst_height > 0 && channels >= 1 && channels <= 4);
    struct resize_stream *s = mem_calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return resize_no_memory(err, dst_width, dst_height);
    *s = (struct resize_stream){.src_width = src_width,
                                .src_height = src_height,
                                .dst_width = dst_width,
                                .dst_height = dst_height,
                                .channels = channels};
    if (resize_axis_create(&s->x, dst_width, src_width, kernel) &&
        resize_axis_create(&s->y, dst_height, src_height, kernel))
        s->ring = mem_alloc((size_t)dst_width * (size_t)channels * sizeof *s->ring, (size_t)s->y.taps + RESIZE_ROWS);
    if (!s->ring) {
        resize_stream_destroy(&s);
        return resize_no_memory(err, dst_width, dst_height);
    }
    *out = s;
    return OK;
}

void resize_stream_destroy(struct resize_stream **stream)
{
    struct resize_stream *s = *stream;
    if (!s)
        return;
    resize_axis_free(&s->x);
    resize_axis_free(&s->y);
    free(s->ring);
    free(s);
    *stream = NULL;
}

/* Compiled twice, the second time for processors with AVX2. The sums are the same. */
#if defined(__x86_64__)
#define RESIZE_FAST __attribute__((target("avx2")))
#define RESIZE_HAS_FAST() __builtin_cpu_supports("avx2")
#else
#define RESIZE_FAST
#define RESIZE_HAS_FAST() false
#endif
#define RESIZE_INLINE static inline __attribute__((always_inline))

/* Four channels at once; with three the fourth lane is the next px's first and is dropped, so the picture's last px has
 * a way of its own. Sums run over the taps in order whichever way is taken. */
typedef float resize_quad __attribute__((vector_size(16)));

RESIZE_INLINE void resize_tap(resize_quad *sum, float weight, const float *px)
{
    resize_quad v;
    memcpy(&v, px, sizeof v);
    *sum += weight * v;
}

RESIZE_INLINE void resize_line(float *to, const float *from, const struct resize_axis *axis, int dst, int src,
                               int channels)
{
    for (int x = 0; x < dst; x++, to += channels) {
        const float *weight = axis->weight + (size_t)x * (size_t)axis->taps;
        const float *p = from + (size_t)axis->first[x] * (size_t)channels;
        int count = axis->count[x], inside = src - 1 - axis->first[x], quads = count < inside ? count : inside, k = 0;
        resize_quad sum = {0};
        if (channels >= 3) {
            for (; k + 4 <= quads; k += 4, p += 4 * channels)
                for (int i = 0; i < 4; i++)
                    resize_tap(&sum, weight[k + i], p + i * channels);
            for (; k < quads; k++, p += channels)
                resize_tap(&sum, weight[k], p);
        }
        for (; k < count; k++, p += channels)
            for (int c = 0; c < channels; c++)
                sum[c] += weight[k] * p[c];
        for (int c = 0; c < channels; c++)
            to[c] = sum[c];
    }
}

RESIZE_INLINE void resize_across(float *to, const float *from, const struct resize_stream *s)
{
    if (s->channels == 3)
        resize_line(to, from, &s->x, s->dst_width, s->src_width, 3);
    else if (s->channels == 1)
        resize_line(to, from, &s->x, s->dst_width, s->src_width, 1);
    else
        resize_line(to, from, &s->x, s->dst_width, s->src_width, s->channels);
}

static void resize_across_plain(float *to, const float *from, const struct resize_stream *s)
{
    resize_across(to, from, s);
}

RESIZE_FAST static void resize_across_fast(float *to, const float *from, const struct resize_stream *s)
{
    resize_across(to, from, s);
}

/* sum[i] += weight[0]*rows[0][i] + …, in this order; count 1..4. */
RESIZE_INLINE void resize_down(float *restrict sum, const float *const rows[4], const float *weight, int count,
                               size_t n)
{
    if (count < 4) {
        for (int k = 0; k < count; k++)
            for (size_t i = 0; i < n; i++)
                sum[i] += weight[k] * rows[k][i];
        return;
    }
    const float *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    const float wa = weight[0], wb = weight[1], wc = weight[2], wd = weight[3];
    for (size_t i = 0; i < n; i++)
        sum[i] = (((sum[i] + wa * a[i]) + wb * b[i]) + wc * c[i]) + wd * d[i];
}

static void resize_down_plain(float *restrict sum, const float *const rows[4], const float *weight, int count, size_t n)
{
    resize_down(sum, rows, weight, count, n);
}

RESIZE_FAST static void resize_down_fast(float *restrict sum, const float *const rows[4], const float *weight,
                                         int count, size_t n)
{
    resize_down(sum, rows, weight, count, n);
}

static float *resize_ring_row(const struct resize_stream *s, int row)
{
    return s->ring + (size_t)(row % (s->y.taps + RESIZE_ROWS)) * (size_t)s->dst_width * (size_t)s->channels;
}

struct resize_rows {
    const struct resize_stream *stream;
    const float *from; /* push */
    float *to;         /* pull */
    int first, count;
};

static void resize_push_rows(void *context, int item)
{
    const struct resize_rows *rows = context;
    const struct resize_stream *s = rows->stream;
    int begin, end;
    thread_band(rows->count, item, &begin, &end);
    void (*across)(float *, const float *, const struct resize_stream *) =
        RESIZE_HAS_FAST() ? resize_across_fast : resize_across_plain;
    for (int y = begin; y < end; y++)
        across(resize_ring_row(s, rows->first + y), rows->from + (size_t)y * (size_t)s->src_width * (size_t)s->channels,
               s);
}

void resize_stream_push(struct resize_stream *s, const float *rows, int count)
{
    assert(count <= RESIZE_ROWS && s->pushed + count <= s->src_height);
    struct resize_rows loop = {.stream = s, .from = rows, .first = s->pushed, .count = count};
    thread_for(thread_bands(count), resize_push_rows, &loop);
    s->pushed += count;
}

static void resize_pull_rows(void *context, int item)
{
    enum { CHUNK = 1024 }; /* sums that stay in the nearest cache */
    const struct resize_rows *rows = context;
    const struct resize_stream *s = rows->stream;
    size_t n = (size_t)s->dst_width * (size_t)s->channels;
    void (*down)(float *restrict, const float *const[4], const float *, int, size_t) =
        RESIZE_HAS_FAST() ? resize_down_fast : resize_down_plain;
    int begin, end;
    thread_band(rows->count, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        int row = rows->first + y, first = s->y.first[row], count = s->y.count[row];
        const float *weight = s->y.weight + (size_t)row * (size_t)s->y.taps;
        for (size_t at = 0; at < n; at += CHUNK) {
            size_t width = n - at < CHUNK ? n - at : CHUNK;
            float *to = rows->to + (size_t)y * n + at;
            memset(to, 0, width * sizeof *to);
            for (int k = 0, taps; k < count; k += taps) {
                const float *from[4] = {NULL};
                taps = count - k < 4 ? count - k : 4;
                for (int i = 0; i < taps; i++)
                    from[i] = resize_ring_row(s, first + k + i) + at;
                down(to, from, weight + k, taps, width);
            }
        }
    }
}

int resize_stream_pull(struct resize_stream *s, float *rows, int most)
{
    int count = 0;
    while (count < most && s->pulled + count < s->dst_height &&
           s->y.first[s->pulled + count] + s->y.count[s->pulled + count] <= s->pushed)
        count++;
    struct resize_rows loop = {.stream = s, .to = rows, .first = s->pulled, .count = count};
    thread_for(thread_bands(count), resize_pull_rows, &loop);
    s->pulled += count;
    return count;
}

/* A picture's rows of any samples. */
struct resize_plane {
    void *data;
    size_t stride; /* bytes */
    int width, height, channels;
};

/* `count` samples of a row to float, and from it. */
typedef void resize_read_fn(float *to, const void *from, size_t count);
typedef void resize_write_fn(void *to, const float *from, size_t count);

static enum error_code resize_smooth(const struct resize_plane *dst, const struct resize_plane *src,
                                     enum resize_kernel kernel, resize_read_fn *read, resize_write_fn *write,
                                     struct error *err)
{
    struct resize_stream *s = NULL;
    assert(dst->channels == src->channels);
    size_t in = (size_t)src->width * (size_t)src->channels, out = (size_t)dst->width * (size_t)dst->channels;
    float *rows = mem_alloc((in + out) * RESIZE_ROWS, sizeof *rows), *results = rows + in * RESIZE_ROWS;
    if (!rows)
        return resize_no_memory(err, dst->width, dst->height);
    enum error_code code =
        resize_stream_create(&s, src->width, src->height, dst->width, dst->height, src->channels, kernel, err);
    const uint8_t *from = src->data;
    uint8_t *to = dst->data;
    for (int y = 0, count; code == OK && y < src->height; y += count) {
        count = src->height - y < RESIZE_ROWS ? src->height - y : RESIZE_ROWS;
        for (int i = 0; i < count; i++, from += src->stride)
            read(rows + (size_t)i * in, from, in);
        resize_stream_push(s, rows, count);
        for (int got; (got = resize_stream_pull(s, results, RESIZE_ROWS));)
            for (int i = 0; i < got; i++, to += dst->stride)
                write(to, results + (size_t)i * out, out);
    }
    resize_stream_destroy(&s);
    free(rows);
    return code;
}

static void resize_read_f32(float *to, const void *from, size_t count)
{
    memcpy(to, from, count * sizeof *to);
}

static void resize_write_f32(void *to, const float *from, size_t count)
{
    memcpy(to, from, count * sizeof *from);
}

static void resize_read_u8(float *restrict to, const void *restrict from, size_t count)
{
    const uint8_t *samples = from;
    for (size_t i = 0; i < count; i++)
        to[i] = samples[i];
}

static void resize_write_u8(void *restrict to, const float *restrict from, size_t count)
{
    uint8_t *samples = to;
    for (size_t i = 0; i < count; i++) {
        float v = from[i] + 0.5f;
        samples[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
}

#define RESIZE_PLANE(view)                                                                                             \
    &(const struct resize_plane)                                                                                       \
    {                                                                                                                  \
        (view)->data, (view)->stride * sizeof *(view)->data, (view)->width, (view)->height, (view)->channels           \
    }

enum error_code resize_smooth_f32(const struct view_f32 *dst, const struct view_f32 *src, enum resize_kernel kernel,
                                  struct error *err)
{
    return resize_smooth(RESIZE_PLANE(dst), RESIZE_PLANE(src), kernel, resize_read_f32, resize_write_f32, err);
}

enum error_code resize_smooth_u8(const struct view_u8 *dst, const struct view_u8 *src, enum resize_kernel kernel,
                                 struct error *err)
{
    return resize_smooth(RESIZE_PLANE(dst), RESIZE_PLANE(src), kernel, resize_read_u8, resize_write_u8, err);
}
