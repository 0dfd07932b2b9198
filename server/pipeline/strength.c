#include "server/pipeline/strength.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/filter.h"
#include "server/image/similarity.h"
#include "server/image/warp.h"
#include "server/pipeline/strength_change.h"

/* A restoration is used where it is better than the picture. What tells is the fine detail of both, that is what a blur
 * of 2 px takes away (px of the picture or of the crop, whichever are larger), in cells of the crop, of energies I of
 * the picture, R of the restoration, D of their difference. (I - R) / D is -1 where the restoration only adds detail,
 * 1 where it loses something that it has nothing in common with, more where it only weakens. The picture stays where
 * it has more, there and in the whole face, unless that more is damage:
 *
 * - noise and grain are everywhere alike, detail is not: D of the quiet quarter of the cells is nearly the mean; of a
 *   noisy picture only a little stays, where it has more than noise;
 * - JPEG's blocks: second differences are larger at every eighth column and row;
 * - scratches and dust: single px that differ by many times the restoration's detail around them. In a face that its
 *   crop reduces, such px go alone, and only if they are many: fine lines of a sharp one look the same.
 *
 * It also stays where the restoration hardly differs and there is no such damage: the network's own error on a good
 * face is as large.
 *
 * The limits were set with faces of known truth (tests/quality/faces.py), between what helps and what harms. */
enum { STRENGTH_FACES = 1024 };
#define STRENGTH_ROUNDING 0.5                           /* a difference of less is that of rounding to 8 bit */
static const double strength_detail[2] = {0.0, 0.3};    /* (I - R) / D */
static const double strength_noise[2] = {0.58, 0.70};   /* strength_doubt */
static const double strength_blocks[2] = {1.5, 1.8};    /* second differences at blocks' borders beside the others */
static const double strength_outlier[2] = {0.10, 0.16}; /* the share of D that is in such px */
#define STRENGTH_TINY_OUTLIER 0.09                      /* in a tiny face the upper limit of it is so much higher */
static const double strength_many[2] = {0.045, 0.1};    /* the same, of a face that its crop reduces */
#define STRENGTH_BOTH 0.08                              /* where blocks are sure, so much less of it is enough */
/* In a face that its crop reduces, both limits of noise are so much higher; but in a reduced map noise is less. */
#define STRENGTH_LARGE_NOISE 0.13
/* Between these steps the map loses the noise; the picture's own px tell it then, by so many levels of white noise. */
static const double strength_lost[2] = {1.0, 1.4}, strength_hiss[2] = {5, 8};
/* The root of D, levels: up to the first a restoration is no surer than a good picture, from the second on it is. In a
 * smaller face the network's error is smaller, in a larger one larger. */
static const double strength_faint[2] = {1.0, 1.5};
/* Where it adds detail in less than these shares of the cells, a picture may differ by so many levels more. */
static const double strength_adds[2] = {0.1, 0.3};
#define STRENGTH_FEW 0.6
/* A picture that is only a little soft is as far from the truth as its restoration, but on another side: so much of it
 * stays, up to this root of D; of a face nearly as large as its crop: smaller ones gain by the whole restoration. So do
 * those that are noisy or compressed, too; in a picture that is nothing but soft it adds in at least these shares of
 * the cells. */
static const double strength_softer[2] = {2.2, 3.0};
static const double strength_near[2] = {0.5, 0.9};
static const double strength_everywhere[2] = {0.75, 0.85};
#define STRENGTH_SOFT 0.5
/* The share of its detail that a restoration adds: from the second on the picture is blurred, so it is no good one. */
static const double strength_blurred[2] = {0.4, 0.5};
/* As strength_detail: a picture larger than its crop that has so much more is hardly spoilt by blocks. */
static const double strength_much[2] = {0.7, 1.0};
/* But not where the quiet quarter of its cells has so much of the middle cell's difference: that is noise. A reduced
 * map has lost the noise, and its detail may be as even. */
static const double strength_alike[2] = {0.76, 0.86};
#define STRENGTH_LOUD 1.5 /* noise of so many levels more than is hardly heard counts */
#define STRENGTH_SKIN 3.0 /* the quiet quarter of a clean face has at most so many levels */
/* In a tiny face (by its scale: in one of 50 px wholly, of 82 px not at all) a good picture has more than its
 * restoration nearly everywhere, and so has noise. */
static const double strength_tiny[2] = {0.15, 0.25};
/* The share of the cells where the restoration clearly has more, and of what is in outliers, together. */
static const double strength_less[2] = {0.11, 0.17};
#define STRENGTH_CLEARLY 0.6     /* by so much of the difference */
#define STRENGTH_TINY_SKIN 2.1   /* as STRENGTH_SKIN */
#define STRENGTH_TINY_NOISE 0.12 /* the upper limit of noise is so much higher */
/* In a sharp face, of as much (I - R) / D as the second, cells count as sharp in which the restoration adds a little.
 */
static const double strength_sharp[2] = {0.5, 1.0};
/* Of what a noisy picture has beyond its noise (which is so many times the quiet cells' difference) the second part
 * stays; at least the first, of a large face three times as much; at most the third. */
static const double strength_trust[3] = {0.04, 0.8, 0.5};
#define STRENGTH_HEARD 1.15
/* The change that an undamaged face may have, and one of which everything is damage. */
static const double strength_changed[2] = {0.12, 0.2};

static double strength_rise(double from, double to, double x)
{
    const double t = fmin(fmax((x - from) / (to - from), 0), 1);
    return t * t * (3 - 2 * t);
}

struct strength_cell {
    double count, picture, restoration, difference; /* energies: sums, then means */
    double usual;                                   /* the difference: sum, then mean */
    double limit;                                   /* of a px's difference, squared */
    double keep;                                    /* how much of the picture stays */
    bool face;                                      /* it is in the picture and within the face itself */
};

struct strength_work {
    const struct restoration *r;
    struct face *face;
    struct strength *map;
    double sigma;       /* of the blur, px of the map */
    float *a, *b, *out; /* lumas of picture and restoration, then their fine detail */
    struct strength_cell cell[STRENGTH_CELLS][STRENGTH_CELLS];
    double scale;  /* of the crop's 512 px in the picture */
    double quiet;  /* the least difference of three quarters of the cells */
    double middle; /* and of half of them */
    double spoilt; /* the share of the difference that is in px beyond their limit */
    double single; /* 0..1: such px go alone */
    double white;  /* levels of white noise in the picture, where the map is much reduced */
};

/* Where a pixel of the map is in the crop, in cells. */
static void strength_place(const struct strength_work *w, int x, int y, double at[2])
{
    const double px = (w->map->rect.x + x + 0.5) * w->map->step - 0.5,
                 py = (w->map->rect.y + y + 0.5) * w->map->step - 0.5;
    const double *m = w->face->affine, k = (double)STRENGTH_CELLS / w->face->size;
    at[0] = (m[0] * px + m[1] * py + m[2] + 0.5) * k;
    at[1] = (m[3] * px + m[4] * py + m[5] + 0.5) * k;
}

/* The cell in which a pixel of the map is; NULL: it is not in the crop. */
static struct strength_cell *strength_under(struct strength_work *w, int x, int y)
{
    double at[2];
    strength_place(w, x, y, at);
    return at[0] >= 0 && at[1] >= 0 && at[0] < STRENGTH_CELLS && at[1] < STRENGTH_CELLS
               ? &w->cell[(int)at[1]][(int)at[0]]
               : NULL;
}

/* The picture's luma in the map; step 1: of the same pixels. */
static enum error_code strength_picture(const struct strength_work *w, const double grid[6], struct error *err)
{
    const struct rect *rect = &w->map->rect;
    const struct view_u8 picture = image_view(w->r->picture);
    const float border[3] = {132, 133, 135};
    const size_t width = (size_t)rect->width, n = width * (size_t)rect->height;
    if (w->map->step <= 1) {
        for (size_t i = 0; i < n; i++) {
            const uint8_t *p =
                picture.data + ((size_t)rect->y + i / width) * picture.stride + 3 * ((size_t)rect->x + i % width);
            w->a[i] = 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2];
        }
        return OK;
    }
    float *rgb = mem_alloc(n, 3 * sizeof(float));
    if (!rgb)
        return strength_no_memory(err);
    const struct view_f32 to = {rgb, rect->width, rect->height, 3, 3 * width};
    warp_smooth_u8(&to, rect->x, rect->y, &picture, grid, border);
    for (size_t i = 0; i < n; i++)
        w->a[i] = strength_luma(rgb + 3 * i);
    free(rgb);
    return OK;
}

static enum error_code strength_lumas(const struct strength_work *w, struct error *err)
{
    const struct rect *rect = &w->map->rect;
    const struct face *f = w->face;
    const size_t crop = (size_t)f->size * (size_t)f->size;
    const double k = 1 / w->map->step, shift = 0.5 * k - 0.5, grid[6] = {k, 0, shift, 0, k, shift};
    const float border[1] = {133};
    double matrix[6];
    enum error_code code = strength_picture(w, grid, err);
    float *own = code == OK ? mem_alloc(crop, sizeof(float)) : NULL;
    if (!own)
        return code == OK ? strength_no_memory(err) : code;
    for (size_t i = 0; i < crop; i++)
        own[i] = strength_luma(f->restoration_float + 3 * i);
    similarity_invert(f->affine, matrix);
    for (int i = 0; i < 6; i++)
        matrix[i] = matrix[i] * k + (i % 3 == 2 ? shift : 0);
    const struct view_f32 face = {own, f->size, f->size, 1, (size_t)f->size},
                          view = {w->b, rect->width, rect->height, 1, (size_t)rect->width};
    warp_smooth_f32(&view, rect->x, rect->y, &face, matrix, border);
    free(own);
    return OK;
}

/* Leaves of a luma what the blur takes away. */
static enum error_code strength_fine(const struct strength_work *w, float *luma, struct error *err)
{
    const struct rect *rect = &w->map->rect;
    const struct view_f32 from = {luma, rect->width, rect->height, 1, (size_t)rect->width},
                          to = {w->out, rect->width, rect->height, 1, (size_t)rect->width};
    enum error_code code = filter_gaussian_f32(&to, &from, 2 * (int)ceil(3 * w->sigma) + 1, w->sigma, err);
    for (size_t i = 0; i < (size_t)rect->width * (size_t)rect->height; i++)
        luma[i] -= w->out[i];
    return code;
}

static void strength_gather(struct strength_work *w)
{
    const struct rect *rect = &w->map->rect;
    for (int y = 0; y < rect->height; y++)
        for (int x = 0; x < rect->width; x++) {
            struct strength_cell *cell = strength_under(w, x, y);
            if (!cell)
                continue;
            const size_t i = (size_t)y * (size_t)rect->width + (size_t)x;
            const double a = w->a[i], b = w->b[i];
            cell->count++;
            cell->picture += a * a;
            cell->restoration += b * b;
            cell->difference += (a - b) * (a - b);
            cell->usual += fabs(a - b);
        }
    for (int i = 0; i < STRENGTH_CELLS * STRENGTH_CELLS; i++) {
        struct strength_cell *cell = &w->cell[i / STRENGTH_CELLS][i % STRENGTH_CELLS];
        const double n = fmax(cell->count, 1);
        cell->picture /= n;
        cell->restoration /= n;
        cell->difference /= n;
        cell->usual /= n;
        cell->face = cell->count > 0 && strength_inside((i % STRENGTH_CELLS + 0.5) / STRENGTH_CELLS,
                                                        (i / STRENGTH_CELLS + 0.5) / STRENGTH_CELLS);
    }
}

/* How much what the picture has more looks like noise: the quiet quarter's D beside the mean, less for what it has in
 * common with the restoration, more for blocks that are just seen, and for more levels than smooth skin has. In a tiny
 * face noise, too, has much in common with the restoration. */
static double strength_doubt(double quiet, double more, double blocks, double levels, double tiny)
{
    const double large = 0.05 * fmax(levels - STRENGTH_SKIN, 0) - 0.1 * fmin(fmax(more - 1, 0), 2);
    const double small = 0.07 * (levels - STRENGTH_TINY_SKIN);
    return quiet + 0.3 * fmax(blocks - 1.25, 0) + large + tiny * (small - large);
}

/* Finds what the quiet cells' difference is, and from which difference on a px is an outlier: one that is unlike both
 * the restoration's detail and the other px of its cell. The finer the picture's px are, the less of its detail can be
 * in the restoration. */
static void strength_calm(struct strength_work *w)
{
    double sorted[STRENGTH_CELLS * STRENGTH_CELLS];
    const double times = 0.5 + 2 * w->scale + 0.3 * w->scale * w->scale;
    int n = 0;
    for (int i = 0; i < STRENGTH_CELLS * STRENGTH_CELLS; i++)
        if (w->cell[i / STRENGTH_CELLS][i % STRENGTH_CELLS].face)
            sorted[n++] = w->cell[i / STRENGTH_CELLS][i % STRENGTH_CELLS].difference;
    qsort(sorted, (size_t)n, sizeof *sorted, strength_order);
    w->quiet = n ? sorted[n / 4] : 0;
    w->middle = n ? sorted[n / 2] : 0;
    for (int i = 0; i < STRENGTH_CELLS * STRENGTH_CELLS; i++) {
        struct strength_cell *cell = &w->cell[i / STRENGTH_CELLS][i % STRENGTH_CELLS];
        cell->limit = fmax(times * times * (cell->restoration + w->quiet), 6.25 * cell->usual * cell->usual);
    }
}

/* How much of a difference is believed to be the picture's detail, by its square. */
static double strength_likely(double square, double limit)
{
    return square > limit ? limit / square : 1;
}

static void strength_spoil(struct strength_work *w)
{
    const struct rect *rect = &w->map->rect;
    double all = 0, left = 0;
    for (int y = 0; y < rect->height; y++)
        for (int x = 0; x < rect->width; x++) {
            const struct strength_cell *cell = strength_under(w, x, y);
            if (!cell || !cell->face)
                continue;
            const size_t i = (size_t)y * (size_t)rect->width + (size_t)x;
            const double d = (double)w->a[i] - (double)w->b[i];
            const double likely = strength_likely(d * d, cell->limit);
            all += d * d;
            left += d * d * likely * likely;
        }
    w->spoilt = all > 0 ? 1 - left / all : 0;
}

/* How much of the picture's noise is loud enough to be worth a face's detail; a reduced map has less of it. */
static double strength_loud(const struct strength_work *w)
{
    const double left = w->map->step > 1 ? 0.6 / w->map->step : 1, heard = fmin(3.5 * w->scale, 4.8) * left;
    return strength_rise(heard, heard + STRENGTH_LOUD * left, sqrt(w->quiet));
}

/* (I - R) / D of a cell. */
static double strength_more(const struct strength_cell *cell)
{
    return (cell->picture - cell->restoration) / (cell->difference + STRENGTH_ROUNDING);
}

/* What the whole face says. */
struct strength_sums {
    double mean;   /* of the cells' differences */
    double more;   /* (I - R) / D */
    double less;   /* the share of the cells where the restoration clearly has more */
    double damage; /* the share of its detail that the restoration adds, 0..1 */
    double even;   /* of noise, the quiet quarter's share of the mean: lower in cells of few px */
    double noise;  /* 0..1: what the picture has more is noise */
    double coarse; /* and JPEG's blocks */
    double beyond; /* 0..1: the crop holds less than the picture */
    double tiny;   /* 0..1 */
};

/* false: there is nothing to compare. */
static bool strength_sum(const struct strength_work *w, double blocks, struct strength_sums *sums)
{
    double mean = 0, picture = 0, restoration = 0, pixels = 0, less = 0;
    int n = 0;
    for (int i = 0; i < STRENGTH_CELLS * STRENGTH_CELLS; i++) {
        const struct strength_cell *cell = &w->cell[i / STRENGTH_CELLS][i % STRENGTH_CELLS];
        if (!cell->face)
            continue;
        n++;
        mean += cell->difference;
        pixels += cell->count;
        picture += cell->picture;
        restoration += cell->restoration;
        less += strength_more(cell) < -STRENGTH_CLEARLY;
    }
    if (n < 4 || mean <= 0)
        return false;
    *sums = (struct strength_sums){.mean = mean / n,
                                   .more = (picture - restoration) / mean,
                                   .less = less / n,
                                   .damage = 1 - fmin(picture / fmax(restoration, 0.01), 1),
                                   .even = fmax(1 - 0.95 * sqrt(n / pixels), 0.5),
                                   .beyond = strength_rise(1, 1.6, w->scale),
                                   .tiny = 1 - strength_rise(strength_tiny[0], strength_tiny[1], w->scale)};
    const double doubt = strength_doubt(w->quiet / sums->mean / sums->even, sums->more, blocks * (1 - sums->beyond),
                                        sqrt(w->quiet), sums->tiny);
    const double large = STRENGTH_LARGE_NOISE * sums->beyond * fmax(1 - 2 * (w->map->step - 1), 0.3);
    sums->noise = strength_loud(w) * strength_rise(strength_noise[0] + large,
                                                   strength_noise[1] + large + STRENGTH_TINY_NOISE * sums->tiny, doubt);
    sums->noise = fmax(sums->noise, strength_rise(strength_lost[0], strength_lost[1], w->map->step) *
                                        strength_rise(strength_hiss[0], strength_hiss[1], w->white));
    const double alike =
        fmax(1 - 2 * (w->map->step - 1), 0) *
        strength_rise(strength_alike[0], strength_alike[1], w->quiet / fmax(w->middle, STRENGTH_ROUNDING));
    const double much = sums->beyond * strength_rise(strength_much[0], strength_much[1], sums->more) * (1 - alike);
    sums->coarse = strength_rise(strength_blocks[0], strength_blocks[1], blocks - 0.5 * much) * (1 - 0.7 * much);
    return true;
}

/* How much of the whole picture stays since the restoration is hardly surer: of one that is only a little soft half. */
static double strength_unsure(const struct strength_work *w, const struct strength_sums *sums)
{
    const double root = sqrt(sums->mean) / fmin(w->scale, 2);
    const double few =
        STRENGTH_FEW * (1 - sums->coarse) * (1 - strength_rise(strength_adds[0], strength_adds[1], sums->less));
    const double soft = STRENGTH_SOFT * strength_rise(strength_near[0], strength_near[1], w->scale) *
                        (1 - sums->beyond) * strength_rise(strength_everywhere[0], strength_everywhere[1], sums->less) *
                        (1 - strength_rise(strength_softer[0], strength_softer[1], root));
    return fmax(1 - strength_rise(strength_faint[0] + few, strength_faint[1] + few, root), soft) *
           (1 - strength_rise(strength_blurred[0], strength_blurred[1], sums->damage)) * (1 - sums->noise) *
           (1 - sums->coarse);
}

/* How much of a noisy picture stays in a cell: what is there beyond the noise, as Wiener's filter has it. */
static double strength_trace(const struct strength_work *w, const struct strength_sums *sums, double difference)
{
    const double beyond = 1 - STRENGTH_HEARD * w->quiet / sums->even / fmax(difference, 1e-6);
    return fmin(fmax(strength_trust[1] * beyond, strength_trust[0] * (1 + 2 * sums->beyond)), strength_trust[2]);
}

/* How much of the picture stays in each cell; and how much detail the restoration adds, 0..1. */
static double strength_judge(struct strength_work *w, double blocks)
{
    struct strength_sums sums;
    if (!strength_sum(w, blocks, &sums))
        return 0; /* the restoration is used */
    const double detail = strength_rise(strength_detail[0], strength_detail[1], sums.more);
    const double outlier = strength_outlier[1] + STRENGTH_TINY_OUTLIER * sums.tiny;
    const double spoilt =
        (1 - sums.beyond) * strength_rise(strength_outlier[0], outlier, w->spoilt + STRENGTH_BOTH * sums.coarse);
    const double clean = detail * (1 - sums.noise) * (1 - sums.coarse) * (1 - spoilt) *
                         (1 - sums.tiny * strength_rise(strength_less[0], strength_less[1], sums.less + w->spoilt));
    const double unsure = strength_unsure(w, &sums);
    w->single = 1 - sums.beyond * (1 - strength_rise(strength_many[0], strength_many[1], w->spoilt));
    const double sharp = 0.3 * (1 - sums.beyond) * strength_rise(strength_sharp[0], strength_sharp[1], sums.more);
    for (int i = 0; i < STRENGTH_CELLS * STRENGTH_CELLS; i++) {
        struct strength_cell *cell = &w->cell[i / STRENGTH_CELLS][i % STRENGTH_CELLS];
        const double here = strength_more(cell) + 0.6 * sums.beyond + sharp;
        cell->keep = fmax(fmax(unsure, clean * strength_rise(strength_detail[0], strength_detail[1], here)),
                          detail * sums.noise * (1 - sums.coarse) * strength_trace(w, &sums, cell->difference));
    }
    return sums.damage;
}

/* Between the cells' middles: the limit and what stays. */
static void strength_between(const struct strength_work *w, const double at[2], double *limit, double *keep)
{
    const double last = STRENGTH_CELLS - 1;
    const double u = fmin(fmax(at[0] - 0.5, 0), last), v = fmin(fmax(at[1] - 0.5, 0), last);
    const int x = (int)fmin(u, last - 1), y = (int)fmin(v, last - 1);
    const double share[2][2] = {{(1 - (u - x)) * (1 - (v - y)), (u - x) * (1 - (v - y))},
                                {(1 - (u - x)) * (v - y), (u - x) * (v - y)}};
    *limit = *keep = 0;
    for (int i = 0; i < 4; i++) {
        *limit += share[i / 2][i % 2] * w->cell[y + i / 2][x + i % 2].limit;
        *keep += share[i / 2][i % 2] * w->cell[y + i / 2][x + i % 2].keep;
    }
}

static void strength_rows(void *context, int item)
{
    const struct strength_work *w = context;
    const struct rect *rect = &w->map->rect;
    double at[2], limit, keep;
    int begin, end;
    thread_band(rect->height, item, &begin, &end);
    for (int y = begin; y < end; y++)
        for (int x = 0; x < rect->width; x++) {
            const size_t i = (size_t)y * (size_t)rect->width + (size_t)x;
            const double d = (double)w->a[i] - (double)w->b[i];
            strength_place(w, x, y, at);
            strength_between(w, at, &limit, &keep);
            w->out[i] = (float)fmax(1 - keep * (1 - w->single + w->single * strength_likely(d * d, limit)), 0);
        }
}

/* How much of what the restoration changes is in the result, of the face itself. */
static double strength_used(struct strength_work *w)
{
    const struct rect *rect = &w->map->rect;
    double sum = 0, whole = 0;
    for (int y = 0; y < rect->height; y++)
        for (int x = 0; x < rect->width; x++) {
            const struct strength_cell *cell = strength_under(w, x, y);
            if (!cell || !cell->face)
                continue;
            const size_t i = (size_t)y * (size_t)rect->width + (size_t)x;
            const double d = fabs((double)w->a[i] - (double)w->b[i]);
            sum += d * w->out[i];
            whole += d;
        }
    return whole > 0 ? sum / whole : 1;
}

static enum error_code strength_weigh(struct strength_work *w, const struct rect *covered, struct error *err)
{
    const struct rect *rect = &w->map->rect;
    const struct image *picture = w->r->picture;
    enum error_code code = strength_lumas(w, err);
    if (code == OK)
        code = strength_fine(w, w->a, err);
    if (code == OK)
        code = strength_fine(w, w->b, err);
    if (code != OK)
        return code;
    strength_gather(w);
    strength_calm(w);
    strength_spoil(w);
    w->white = w->map->step > strength_lost[0] ? strength_white(picture, covered) : 0;
    const double damage = strength_judge(w, strength_block(picture, covered));
    thread_for(thread_bands(rect->height), strength_rows, w);
    /* What damage does not explain is not believed. */
    const double limit = strength_changed[0] + damage * (strength_changed[1] - strength_changed[0]);
    const float believed = (float)(1 - strength_rise(limit, limit + 0.1, w->face->change));
    for (size_t i = 0; i < (size_t)rect->width * (size_t)rect->height; i++)
        w->out[i] *= believed;
    w->face->used = strength_used(w);
    return OK;
}

/* The part of a width × height picture that the crop covers. */
static struct rect strength_covered(const struct face *f, double step, int width, int height)
{
    double matrix[6];
    similarity_invert(f->affine, matrix);
    for (int i = 0; i < 6; i++)
        matrix[i] = matrix[i] / step + (i % 3 == 2 ? 0.5 / step - 0.5 : 0);
    return warp_bounds(matrix, f->size, f->size, width, height, 2);
}

enum error_code strength_of(const struct restoration *r, struct face *face, struct strength *out, struct error *err)
{
    *out = (struct strength){.step = 1};
    const double weight = options_weight(&r->options, face->id);
    enum error_code code = strength_change(r, face, &face->change, err);
    if (code == OK) {
        face->weighed = true;
        face->used = weight;
    }
    if (code != OK || weight >= 0)
        return code;
    const double scale = hypot(face->affine[0], face->affine[3]), side = face->size / fmax(scale, 1e-6);
    out->step = fmax(1, side / STRENGTH_FACES);
    const int width = r->picture->width, height = r->picture->height;
    const struct rect covered = strength_covered(face, 1, width, height);
    out->rect = strength_covered(face, out->step, (int)(width / out->step), (int)(height / out->step));
    const size_t n = (size_t)out->rect.width * (size_t)out->rect.height;
    struct strength_work *w = mem_calloc(1, sizeof *w);
    float *lumas = mem_alloc(n, 2 * sizeof(float));
    out->used = mem_alloc(n, sizeof(float));
    if (w && lumas && out->used) {
        w->r = r;
        w->face = face;
        w->map = out;
        w->scale = side / 512;
        w->sigma = 2 * fmax(1, w->scale / out->step);
        w->a = lumas;
        w->b = lumas + n;
        w->out = out->used;
        code = n ? strength_weigh(w, &covered, err) : OK;
    } else {
        code = strength_no_memory(err);
    }
    free(w);
    free(lumas);
    if (code != OK)
        strength_free(out);
    return code;
}

void strength_free(struct strength *strength)
{
    free(strength->used);
    strength->used = NULL;
    strength->rect = (struct rect){0};
}

void strength_apply(const struct strength *strength, int x, int y, int count, double sx, double sy, float *rgba)
{
    const struct rect *rect = &strength->rect;
    if (!strength->used || rect->width < 1 || rect->height < 1)
        return;
    const double v = fmin(fmax((y + 0.5) / sy / strength->step - 0.5 - rect->y, 0), rect->height - 1);
    const int y0 = (int)v, y1 = y0 + 1 < rect->height ? y0 + 1 : y0;
    const float *top = strength->used + (size_t)y0 * (size_t)rect->width;
    const float *low = strength->used + (size_t)y1 * (size_t)rect->width;
    const float fy = (float)(v - y0);
    const double each = 1 / sx / strength->step, first = (x + 0.5) * each - 0.5 - rect->x;
    for (int i = 0; i < count; i++, rgba += 4) {
        const double at = first + i * each, u = at < 0 ? 0 : at < rect->width - 1 ? at : rect->width - 1;
        const int x0 = (int)u, x1 = x0 + 1 < rect->width ? x0 + 1 : x0;
        const float fx = (float)(u - x0);
        const float a = top[x0] + fx * (top[x1] - top[x0]), b = low[x0] + fx * (low[x1] - low[x0]);
        const float used = a + fy * (b - a);
        for (int c = 0; c < 4; c++)
            rgba[c] *= used;
    }
}
