#include "server/pipeline/tint.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/similarity.h"

#define TINT_GRID 64  /* cells of a face each way: 8 px of 512 */
#define TINT_PIXELS 2 /* a cell has at least so many px of the picture each way: one px may be noise */
#define TINT_SAMPLE 4 /* every so manyth px each way says whether the picture has colours */
/* How far, in levels, chroma is from following brightness: below the first it follows, above the second it does not. */
#define TINT_TONED 1.5
#define TINT_COLOURED 4.0

/* Red and blue without brightness, of the crop and of the restoration, and the restoration's brightness. */
enum { TINT_CROP, TINT_OWN = 2, TINT_LUMA = 4, TINT_FIELDS };

struct tint {
    const struct restoration *r;
    struct face *face;
    int grid;          /* cells each way: TINT_GRID, fewer in a tiny face */
    double inverse[6]; /* crop -> picture */
    float low[TINT_GRID][TINT_GRID][TINT_FIELDS];
    float slope[2]; /* chroma for brightness */
    float toned;    /* 0..1 */
    atomic_bool failed;
};

static float tint_luma(const float *rgb)
{
    return 0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2];
}

/* Beyond the picture's edge the crop is filled. */
static bool tint_inside(const struct tint *t, int x, int y)
{
    const double u = t->inverse[0] * x + t->inverse[1] * y + t->inverse[2];
    const double v = t->inverse[3] * x + t->inverse[4] * y + t->inverse[5];
    return u >= 0 && v >= 0 && u <= t->r->picture->width - 1 && v <= t->r->picture->height - 1;
}

/* The means of a row of cells. */
static void tint_gather(void *context, int row)
{
    struct tint *t = context;
    const int size = t->face->size;
    for (int column = 0; column < t->grid; column++) {
        const int y0 = row * size / t->grid, y1 = (row + 1) * size / t->grid, x0 = column * size / t->grid,
                  x1 = (column + 1) * size / t->grid;
        /* A straight map: what holds for the corners holds for all of the cell. */
        const bool whole = tint_inside(t, x0, y0) && tint_inside(t, x1 - 1, y0) && tint_inside(t, x0, y1 - 1) &&
                           tint_inside(t, x1 - 1, y1 - 1);
        float sum[TINT_FIELDS] = {0};
        for (int y = y0; y < y1; y++)
            for (int x = x0; x < x1; x++) {
                const size_t at = 3 * ((size_t)y * (size_t)size + (size_t)x);
                const float *own = t->face->restoration_float + at;
                const float *crop = whole || tint_inside(t, x, y) ? t->face->crop_float + at : own;
                const float luma = tint_luma(own), crop_luma = tint_luma(crop);
                for (int c = 0; c < 2; c++) {
                    sum[TINT_CROP + c] += crop[2 * c] - crop_luma;
                    sum[TINT_OWN + c] += own[2 * c] - luma;
                }
                sum[TINT_LUMA] += luma;
            }
        const int count = (y1 - y0) * (x1 - x0);
        for (int f = 0; f < TINT_FIELDS; f++)
            t->low[row][column][f] = sum[f] / (float)count;
    }
}

/* One pass of 1 2 1 over a line of cells. */
static void tint_blur_line(float *first, size_t step, int count)
{
    float before = *first;
    for (int i = 0; i < count; i++) {
        float *at = first + (size_t)i * step;
        const float here = *at, after = i + 1 < count ? at[step] : here;
        *at = (before + 2 * here + after) / 4;
        before = here;
    }
}

static void tint_blur(struct tint *t)
{
    for (int i = 0; i < t->grid; i++)
        for (int f = 0; f < TINT_FIELDS; f++)
            tint_blur_line(&t->low[i][0][f], TINT_FIELDS, t->grid);
    for (int i = 0; i < t->grid; i++)
        for (int f = 0; f < TINT_FIELDS; f++)
            tint_blur_line(&t->low[0][i][f], (size_t)TINT_GRID * TINT_FIELDS, t->grid);
}

/* Whether the crop's chroma is a straight line over its brightness, and which. */
static void tint_judge(struct tint *t)
{
    const int size = t->face->size;
    double n = 0, y1 = 0, yy = 0, c1[2] = {0}, cc[2] = {0}, yc[2] = {0}, worst = 0;
    for (int y = 0; y < size; y += TINT_SAMPLE)
        for (int x = 0; x < size; x += TINT_SAMPLE) {
            const float *crop = t->face->crop_float + 3 * ((size_t)y * (size_t)size + (size_t)x);
            const double luma = tint_luma(crop);
            if (!tint_inside(t, x, y))
                continue;
            n++;
            y1 += luma;
            yy += luma * luma;
            for (int c = 0; c < 2; c++) {
                const double chroma = crop[2 * c] - luma;
                c1[c] += chroma;
                cc[c] += chroma * chroma;
                yc[c] += luma * chroma;
            }
        }
    for (int c = 0; c < 2 && n > 0; c++) {
        const double spread = yy - y1 * y1 / n, common = yc[c] - y1 * c1[c] / n;
        const double slope = spread > n ? common / spread : 0;
        t->slope[c] = (float)slope;
        worst = fmax(worst, sqrt(fmax(cc[c] - c1[c] * c1[c] / n - slope * common, 0) / n));
    }
    t->toned = n > 0 ? (float)fmin(fmax((TINT_COLOURED - worst) / (TINT_COLOURED - TINT_TONED), 0), 1) : 0;
}

/* Between which two cells' middles a place lies: the first's index and the second's share. */
static int tint_between(int place, float cells, int grid, float *share)
{
    const float most = (float)(grid - 1);
    float u = ((float)place + 0.5f) * cells - 0.5f;
    u = u < 0 ? 0 : u > most ? most : u;
    const int first = u < most ? (int)u : grid - 2;
    *share = u - (float)first;
    return first;
}

/* The low frequencies of a row of cells at each px of a row, in planes. */
static void tint_across(const struct tint *t, int row, float *planes)
{
    const int size = t->face->size;
    const float cells = (float)t->grid / (float)size;
    for (int x = 0; x < size; x++) {
        float a;
        const int i = tint_between(x, cells, t->grid, &a);
        for (int f = 0; f < TINT_FIELDS; f++)
            planes[f * size + x] = (1 - a) * t->low[row][i][f] + a * t->low[row][i + 1][f];
    }
}

/* Sets a row's chroma. upper, lower: of the rows of cells around it; b: the lower's share. */
static void tint_row(const struct tint *t, const float *restrict upper, const float *restrict lower, float b,
                     float *restrict rgb)
{
    const int size = t->face->size;
    const float own = 1 - t->toned, red = t->toned * t->slope[0], blue = t->toned * t->slope[1];
    for (int x = 0; x < size; x++, rgb += 3) {
        float low[TINT_FIELDS];
        for (int f = 0; f < TINT_FIELDS; f++)
            low[f] = (1 - b) * upper[f * size + x] + b * lower[f * size + x];
        const float luma = tint_luma(rgb), light = luma - low[TINT_LUMA];
        const float first = low[TINT_CROP] + own * (rgb[0] - luma - low[TINT_OWN]) + red * light;
        const float last = low[TINT_CROP + 1] + own * (rgb[2] - luma - low[TINT_OWN + 1]) + blue * light;
        rgb[0] = luma + first;
        rgb[1] = luma - (0.299f * first + 0.114f * last) / 0.587f;
        rgb[2] = luma + last;
    }
}

static void tint_rows(void *context, int item)
{
    struct tint *t = context;
    const int size = t->face->size;
    const float cells = (float)t->grid / (float)size;
    const size_t plane = (size_t)TINT_FIELDS * (size_t)size;
    float *upper = mem_alloc(plane, 2 * sizeof *upper), *lower = upper + plane;
    int begin, end, at = -1;
    if (!upper)
        atomic_store(&t->failed, true);
    thread_band(size, item, &begin, &end);
    for (int y = begin; y < end && upper; y++) {
        float b;
        const int row = tint_between(y, cells, t->grid, &b);
        if (row != at) {
            tint_across(t, row, upper);
            tint_across(t, row + 1, lower);
            at = row;
        }
        tint_row(t, upper, lower, b, t->face->restoration_float + 3 * (size_t)y * (size_t)size);
    }
    free(upper);
}

enum error_code tint_keep(const struct restoration *r, struct face *face, struct error *err)
{
    struct tint *t = mem_calloc(1, sizeof *t);
    if (!t)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
    t->r = r;
    t->face = face;
    similarity_invert(face->affine, t->inverse);
    const double side = face->size * fmin(hypot(t->inverse[0], t->inverse[3]), 1); /* px of the picture */
    t->grid = (int)fmin(fmax(side / TINT_PIXELS, 2), TINT_GRID);
    thread_for(t->grid, tint_gather, t);
    tint_blur(t);
    tint_judge(t);
    thread_for(thread_bands(face->size), tint_rows, t);
    const bool failed = atomic_load(&t->failed);
    free(t);
    return failed ? error_set(err, ERROR_NO_MEMORY, "out of memory for a face") : OK;
}
