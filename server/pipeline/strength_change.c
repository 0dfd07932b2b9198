#include "server/pipeline/strength_change.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/image/filter.h"
#include "server/image/warp.h"

enum { STRENGTH_GRID = 64 };

/* The picture's and the restoration's crop, 64 × 64. */
struct strength_small {
    float rgb[2][STRENGTH_GRID * STRENGTH_GRID * 3], luma[2][STRENGTH_GRID * STRENGTH_GRID];
};

static enum error_code strength_reduce(const struct restoration *r, const struct face *f, struct strength_small *small,
                                       struct error *err)
{
    const double k = (double)STRENGTH_GRID / f->size, shift = 0.5 * k - 0.5;
    const double own[6] = {k, 0, shift, 0, k, shift};
    const float border[3] = {132, 133, 135};
    const struct view_u8 picture = image_view(r->picture);
    const struct view_f32 face = {f->restoration_float, f->size, f->size, 3, 3 * (size_t)f->size};
    double matrix[6];
    for (int i = 0; i < 6; i++)
        matrix[i] = f->affine[i] * k + (i % 3 == 2 ? shift : 0);
    struct view_f32 to = {small->rgb[0], STRENGTH_GRID, STRENGTH_GRID, 3, 3 * STRENGTH_GRID};
    warp_smooth_u8(&to, 0, 0, &picture, matrix, border);
    to.data = small->rgb[1];
    warp_smooth_f32(&to, 0, 0, &face, own, border);
    enum error_code code = OK;
    for (int which = 0; which < 2 && code == OK; which++) {
        const struct view_f32 luma = {small->luma[which], STRENGTH_GRID, STRENGTH_GRID, 1, STRENGTH_GRID};
        for (size_t i = 0; i < STRENGTH_GRID * STRENGTH_GRID; i++)
            luma.data[i] = strength_luma(small->rgb[which] + 3 * i);
        code = filter_gaussian_f32(&luma, &luma, 7, 1, err); /* of noise and blur not much is left then */
    }
    return code;
}

/* How far what is around a landmark has moved, px: the shift that explains most of the difference. */
static double strength_shift(const struct strength_small *small, double brighter, const double landmark[2])
{
    enum { REACH = 5 };
    const float *a = small->luma[0], *b = small->luma[1];
    const int cx = (int)lrint(landmark[0] * STRENGTH_GRID / 512), cy = (int)lrint(landmark[1] * STRENGTH_GRID / 512);
    double xx = 1, xy = 0, yy = 1, tx = 0, ty = 0;
    for (int y = cy - REACH; y <= cy + REACH; y++)
        for (int x = cx - REACH; x <= cx + REACH; x++) {
            const int i = y * STRENGTH_GRID + x;
            const double gx = (a[i + 1] - a[i - 1] + b[i + 1] - b[i - 1]) / 4.0;
            const double gy =
                (a[i + STRENGTH_GRID] - a[i - STRENGTH_GRID] + b[i + STRENGTH_GRID] - b[i - STRENGTH_GRID]) / 4.0;
            const double d = b[i] - a[i] - brighter;
            xx += gx * gx;
            xy += gx * gy;
            yy += gy * gy;
            tx -= gx * d;
            ty -= gy * d;
        }
    const double det = fmax(xx * yy - xy * xy, 1);
    return hypot((yy * tx - xy * ty) / det, (xx * ty - xy * tx) / det);
}

/* The largest of three parts: structure (what of the picture's contrasts is not the restoration's, whatever its gain),
 * colour (1: 64 levels in the mean), landmarks (1: a quarter of the eyes' distance). */
static double strength_compare(const struct strength_small *small)
{
    double n = 0, sum[2] = {0}, square[2] = {0}, product = 0, colour[3] = {0}, part = 0;
    for (int i = 0; i < STRENGTH_GRID * STRENGTH_GRID; i++) {
        const double a = small->luma[0][i], b = small->luma[1][i];
        if (!strength_inside((i % STRENGTH_GRID + 0.5) / STRENGTH_GRID, (i / STRENGTH_GRID + 0.5) / STRENGTH_GRID))
            continue;
        n++;
        sum[0] += a;
        sum[1] += b;
        square[0] += a * a;
        square[1] += b * b;
        product += a * b;
        for (int c = 0; c < 3; c++)
            colour[c] += small->rgb[1][3 * i + c] - small->rgb[0][3 * i + c];
    }
    const double va = square[0] / n - sum[0] / n * (sum[0] / n), vb = square[1] / n - sum[1] / n * (sum[1] / n);
    const double both = product / n - sum[0] / n * (sum[1] / n);
    if (va * vb > 1e-3) /* a flat face has no structure to compare */
        part = both > 0 ? sqrt(fmax(1 - both * both / (va * vb), 0)) : 1;
    for (int c = 0; c < 3; c++)
        part = fmax(part, fabs(colour[c]) / n / 64);
    const double eyes = (similarity_template[1][0] - similarity_template[0][0]) * STRENGTH_GRID / 512;
    for (int k = 0; k < 5; k++)
        part = fmax(part, strength_shift(small, (sum[1] - sum[0]) / n, similarity_template[k]) / eyes * 4);
    return fmin(part, 1);
}

enum error_code strength_change(const struct restoration *r, const struct face *face, double *change, struct error *err)
{
    struct strength_small *small = mem_alloc(1, sizeof *small);
    enum error_code code = small ? strength_reduce(r, face, small, err) : strength_no_memory(err);
    if (code == OK)
        *change = strength_compare(small);
    free(small);
    return code;
}
