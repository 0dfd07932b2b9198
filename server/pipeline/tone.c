#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/pixel.h"
#include "server/pipeline/deep.h"

/* Levels are of 0..255, in quarters. */
#define TONE_BINS 1024
#define TONE_CELLS 96 /* at most so many a side */
#define TONE_TAIL 0.002
#define TONE_BLACK 8.0
#define TONE_WHITE 248.0
/* Fading lightens the darkest parts: dyes lose density, paper and scanner add light. Where these are below the first
 * level nothing is done, from the second on everything. Whites alone say nothing: a dusk has none, and blacks. */
#define TONE_FRESH 28.0
#define TONE_FADED 56.0
#define TONE_GAIN 4.0     /* steps become at most so many times larger: what is nearly flat is noise */
#define TONE_CAST 70.0    /* a channel's white is believed to be at most so far from that of all */
#define TONE_MIDDLE 118.0 /* a median above it may be darkened */
#define TONE_DENSITY 0.5  /* by how much of what dyes that lost density explain */
/* How much of a print's colour its brightness does not explain, in shares of the spread of that: of photos 0.24 in the
 * middle, faded or not, of sepia with grain and stains 0.06, and 0.11 of one in twenty. */
#define TONE_PRINT 0.11
/* With tone=strong: how much steeper the curve is at the median than a straight line. It is kept away from both ends.
 */
#define TONE_CONTRAST 1.3
#define TONE_PIVOT_LEAST 64.0
#define TONE_PIVOT_MOST 176.0

enum { TONE_RED, TONE_GREEN, TONE_BLUE, TONE_LUMA, TONE_COUNTS };

struct tone_counts {
    uint32_t bins[TONE_COUNTS][TONE_BINS];
};

/* A part of the picture, so large that grain does not show in its mean. */
struct tone_cell {
    float rgb[3], pixels;
};

struct tone_loop {
    const struct image *from;
    int cell_width, cell_height, columns, rows;
    struct tone_cell *cells;    /* rows × columns */
    struct tone_counts *counts; /* of each band of cells */
    struct image *to, *also;    /* changed; the same in 8 bits, or NULL */
    bool monochrome;
    float table[3][TONE_BINS]; /* the new level of each; of a monochrome picture the first, of its luma */
    bool strong;               /* then luma gets more contrast */
    float contrast[TONE_BINS];
    atomic_bool failed;
};

/* What is known of one channel, and what is to become of it. */
struct tone_curve {
    double low, high, to_low, to_high;
};

static void tone_read(const struct image *image, int y, float *row)
{
    const size_t n = 3 * (size_t)image->width, first = (size_t)y * n;
    for (size_t i = 0; i < n; i++)
        row[i] = image->bits == 16 ? (float)((const uint16_t *)image->pixels)[first + i] / 257
                                   : (float)((const uint8_t *)image->pixels)[first + i];
}

static void tone_write(struct image *image, int y, const float *row)
{
    const size_t n = 3 * (size_t)image->width, first = (size_t)y * n;
    if (image->bits == 8)
        pixel_round((uint8_t *)image->pixels + first, row, n);
    else
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)image->pixels)[first + i] = (uint16_t)(row[i] * 257 + 0.5f);
}

static bool tone_opaque(const struct image *image, int x, int y)
{
    const size_t at = (size_t)y * (size_t)image->width + (size_t)x;
    if (!image->alpha)
        return true;
    return image->bits == 16 ? ((const uint16_t *)image->alpha)[at] >= 32768
                             : ((const uint8_t *)image->alpha)[at] >= 128;
}

/* Of three equal channels exactly their value. */
static float tone_luma(const float *p)
{
    return p[1] + 0.2126f * (p[0] - p[1]) + 0.0722f * (p[2] - p[1]);
}

/* Whether a pixel belongs to the print: neither what is seen through it nor the white or black around it in a scan. */
static bool tone_counted(const struct image *image, const float *p, int x, int y)
{
    const bool white = p[0] >= 253.5f && p[1] >= 253.5f && p[2] >= 253.5f;
    const bool black = p[0] <= 1.5f && p[1] <= 1.5f && p[2] <= 1.5f;
    return !white && !black && tone_opaque(image, x, y);
}

static void tone_measure_rows(void *context, int item)
{
    struct tone_loop *loop = context;
    const struct image *image = loop->from;
    struct tone_counts *counts = &loop->counts[item];
    int begin, end;
    float *row = mem_alloc((size_t)image->width, 3 * sizeof *row);
    if (!row)
        atomic_store(&loop->failed, true);
    thread_band(loop->rows, item, &begin, &end);
    for (int y = begin * loop->cell_height; row && y < end * loop->cell_height && y < image->height; y++) {
        struct tone_cell *cells = loop->cells + (size_t)(y / loop->cell_height) * (size_t)loop->columns;
        tone_read(image, y, row);
        for (int x = 0; x < image->width; x++) {
            const float *p = row + 3 * (size_t)x;
            struct tone_cell *cell = &cells[x / loop->cell_width];
            if (!tone_counted(image, p, x, y))
                continue;
            for (int c = 0; c < 3; c++) {
                counts->bins[c][(int)(4 * p[c])]++;
                cell->rgb[c] += p[c];
            }
            counts->bins[TONE_LUMA][(int)(4 * tone_luma(p))]++;
            cell->pixels++;
        }
    }
    free(row);
}

/* The level that this share of the pixels is below. */
static double tone_level(const struct tone_counts *counts, int channel, double share)
{
    uint64_t all = 0, below = 0;
    int bin = 0;
    for (int i = 0; i < TONE_BINS; i++)
        all += counts->bins[channel][i];
    while (bin < TONE_BINS - 1 && (double)(below += counts->bins[channel][bin]) < share * (double)all)
        bin++;
    return bin / 4.0;
}

/* Whether the colours follow from the brightness: gray, sepia and other toned prints. */
static bool tone_is_monochrome(const struct tone_loop *loop)
{
    enum { BINS = 32 };
    double sums[BINS][3] = {{0}}, rest = 0, luma = 0, squares = 0, n = 0;
    const size_t cells = (size_t)loop->rows * (size_t)loop->columns;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < cells; i++) {
            const struct tone_cell *cell = &loop->cells[i];
            if (cell->pixels < 1)
                continue;
            const float mean[3] = {cell->rgb[0] / cell->pixels, cell->rgb[1] / cell->pixels,
                                   cell->rgb[2] / cell->pixels};
            const double y = tone_luma(mean), chroma[2] = {mean[0] - mean[1], mean[2] - mean[1]};
            double *sum = sums[(int)(y / 256 * BINS)];
            if (pass == 0) {
                for (int c = 0; c < 2; c++)
                    sum[c] += chroma[c];
                sum[2]++;
                luma += y;
                squares += y * y;
                n++;
            } else {
                for (int c = 0; c < 2; c++)
                    rest += (chroma[c] - sum[c] / sum[2]) * (chroma[c] - sum[c] / sum[2]) / 2;
            }
        }
    }
    const double spread = sqrt(fmax(squares / n - luma / n * luma / n, 0));
    return sqrt(rest / n) < TONE_PRINT * fmax(spread, 4);
}

static double tone_rise(double from, double to, double x)
{
    const double t = fmin(fmax((x - from) / (to - from), 0), 1);
    return t * t * (3 - 2 * t);
}

static struct tone_curve tone_aim(double low, double high, double strength)
{
    struct tone_curve c = {.low = fmin(fmax(low, 0.5), 246)};
    c.high = fmin(fmax(high, c.low + 8), 254.5);
    c.to_low = c.low - strength * fmax(c.low - TONE_BLACK, 0);
    c.to_high = c.high + strength * fmax(TONE_WHITE - c.high, 0);
    const double gain = (c.to_high - c.to_low) / (c.high - c.low);
    if (gain > TONE_GAIN) {
        const double part = (TONE_GAIN - 1) / (gain - 1);
        c.to_low = c.low + part * (c.to_low - c.low);
        c.to_high = c.high + part * (c.to_high - c.high);
    }
    return c;
}

/* The new level: rising, and 0 and 255 for these alone. density: 0, light was added to the print; 1, its dyes became
 * thinner, all by the same share. */
static double tone_at(const struct tone_curve *c, double density, double v)
{
    if (v <= c->low)
        return fmax(v * c->to_low / c->low, fmin(v, 1));
    if (v >= c->high)
        return fmin(c->to_high + (v - c->high) * (255 - c->to_high) / (255 - c->high), fmax(v, 254));
    const double even = c->to_low + (c->to_high - c->to_low) * (v - c->low) / (c->high - c->low);
    const double power = log(c->to_low / c->to_high) / log(c->low / c->high);
    return even + density * (c->to_high * pow(v / c->high, power) - even);
}

/* How much of the curve is that of thinner dyes. */
static double tone_density(const struct tone_curve *luma, double median)
{
    const double even = tone_at(luma, 0, median), thin = tone_at(luma, 1, median);
    return even - thin > 0.5 ? fmin(fmax((even - TONE_MIDDLE) / (even - thin), 0), TONE_DENSITY) : 0;
}

/* More contrast about the pivot: what is darker becomes darker, what is lighter lighter, black and white stay. Powers
 * of the distance to the ends on both sides, so that the slope at the pivot is the same from both. */
static double tone_contrast(double v, double pivot)
{
    const double bent = v < pivot ? pivot * pow(v / pivot, TONE_CONTRAST)
                                  : 255 - (255 - pivot) * pow((255 - v) / (255 - pivot), TONE_CONTRAST);
    return fmin(fmax(bent, fmin(v, 1)), fmax(v, 254));
}

static void tone_table(float *table, const struct tone_curve *curve, double density)
{
    for (int i = 0; i < TONE_BINS; i++)
        table[i] = (float)fmin(tone_at(curve, density, i / 4.0), 255);
}

static float tone_look(const float *table, float v)
{
    const int i = (int)(4 * v), next = i + 1 < TONE_BINS ? i + 1 : i;
    return table[i] + (4 * v - (float)i) * (table[next] - table[i]);
}

/* Gives a pixel a new luma; its colour stays as far from gray as it was, if there is room for that. */
static void tone_lighten(const float *table, float *p)
{
    const float luma = tone_luma(p), level = tone_look(table, luma);
    float part = 1;
    for (int c = 0; c < 3; c++) {
        const float off = p[c] - luma;
        if (off > 0 && level + off > fmaxf(254, p[c]))
            part = fminf(part, (fmaxf(254, p[c]) - level) / off);
        if (off < 0 && level + off < fminf(1, p[c]))
            part = fminf(part, (level - fminf(1, p[c])) / -off);
    }
    for (int c = 0; c < 3; c++)
        p[c] = level + fmaxf(part, 0) * (p[c] - luma);
}

static void tone_change_rows(void *context, int item)
{
    struct tone_loop *loop = context;
    struct image *image = loop->to;
    int begin, end;
    float *row = mem_alloc((size_t)image->width, 3 * sizeof *row);
    if (!row)
        atomic_store(&loop->failed, true);
    thread_band(image->height, item, &begin, &end);
    for (int y = begin; row && y < end; y++) {
        tone_read(image, y, row);
        for (int x = 0; x < image->width; x++) {
            float *p = row + 3 * (size_t)x;
            if (loop->monochrome)
                tone_lighten(loop->table[0], p);
            for (int c = 0; c < 3 && !loop->monochrome; c++)
                p[c] = tone_look(loop->table[c], p[c]);
            if (loop->strong) /* colours stay as far from gray as they were: skin would become red */
                tone_lighten(loop->contrast, p);
        }
        tone_write(image, y, row);
        if (loop->also)
            tone_write(loop->also, y, row);
    }
    free(row);
}

/* Counts the print's levels, of all bands together in the first; false: too few of its pixels count. */
static bool tone_measure(struct tone_loop *loop)
{
    const int bands = thread_bands(loop->rows);
    uint64_t pixels = 0;
    thread_for(bands, tone_measure_rows, loop);
    for (int i = 0; i < TONE_COUNTS * TONE_BINS; i++) {
        uint32_t *sum = &loop->counts[0].bins[i / TONE_BINS][i % TONE_BINS];
        for (int band = 1; band < bands; band++)
            *sum += loop->counts[band].bins[i / TONE_BINS][i % TONE_BINS];
        pixels += i < TONE_BINS ? *sum : 0;
    }
    return pixels >= 64;
}

/* Decides what is to be done; false: nothing. */
static bool tone_decide(struct tone_loop *loop, struct restoration *r)
{
    const struct tone_counts *counts = loop->counts;
    double low[TONE_COUNTS], high[TONE_COUNTS];
    for (int c = 0; c < TONE_COUNTS; c++) {
        low[c] = tone_level(counts, c, TONE_TAIL);
        high[c] = tone_level(counts, c, 1 - TONE_TAIL);
    }
    for (int c = 0; c < 3; c++) {
        high[c] = fmax(high[c], high[TONE_LUMA] - TONE_CAST);
        r->tone.black[c] = low[c];
        r->tone.white[c] = high[c];
    }
    loop->monochrome = r->tone.monochrome = tone_is_monochrome(loop);
    const double least = fmin(fmin(low[0], low[1]), low[2]);
    const double black = loop->monochrome ? low[TONE_LUMA] : (low[TONE_LUMA] + least) / 2;
    const double strength = tone_rise(TONE_FRESH, TONE_FADED, black);
    const struct tone_curve luma = tone_aim(low[TONE_LUMA], high[TONE_LUMA], strength);
    r->tone.strength =
        high[TONE_LUMA] - low[TONE_LUMA] < TONE_BLACK ? 0 : strength; /* else there is hardly a picture */
    const double median = tone_level(counts, TONE_LUMA, 0.5), density = tone_density(&luma, median);
    const double pivot = fmin(fmax(tone_at(&luma, density, median), TONE_PIVOT_LEAST), TONE_PIVOT_MOST);
    loop->strong = r->options.tone == TONE_STRONG && high[TONE_LUMA] - low[TONE_LUMA] >= TONE_BLACK;
    double sum = 0, all = 0;
    for (int c = 0; c < 3; c++) {
        const struct tone_curve curve = loop->monochrome ? luma : tone_aim(low[c], high[c], strength);
        tone_table(loop->table[c], &curve, density);
        for (int i = 0; i < TONE_BINS; i++) {
            const double n = counts->bins[loop->monochrome ? TONE_LUMA : c][i];
            sum += n * fabs((double)loop->table[c][i] - i / 4.0);
            all += n;
        }
    }
    r->tone.change = r->tone.strength > 0 ? sum / all : 0;
    for (int i = 0; i < TONE_BINS; i++)
        loop->contrast[i] = (float)tone_contrast(i / 4.0, pivot);
    for (int i = 0; loop->strong && i < TONE_BINS; i++) {
        const double level = tone_at(&luma, density, i / 4.0);
        r->tone.change += counts->bins[TONE_LUMA][i] * fabs(tone_contrast(level, pivot) - level) / (all / 3);
    }
    return r->tone.strength > 0 || loop->strong;
}

/* What sRGB could not hold was that of the picture before. */
static void tone_change(struct tone_loop *loop, struct restoration *r)
{
    const bool deep = r->deep && r->deep->pixels;
    if (r->deep)
        image_destroy(&r->deep->source);
    loop->to = deep ? r->deep->pixels : r->picture;
    loop->also = deep ? r->picture : NULL;
    thread_for(thread_bands(loop->to->height), tone_change_rows, loop);
}

/* Gives a faded print its blacks, whites and neutral colours back, and with tone=strong any picture more contrast:
 * after the repair, since its detector knows damage better as it came, and before all else looks at the picture. */
enum error_code tone_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    const struct image *image = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    r->tone.asked = r->options.tone != TONE_OFF && !r->options.compat;
    if (!r->tone.asked || r->toned || r->damage_only)
        return OK;
    struct tone_loop *loop = mem_calloc(1, sizeof *loop);
    if (loop) {
        loop->from = image;
        loop->cell_width = (image->width + TONE_CELLS - 1) / TONE_CELLS;
        loop->cell_height = (image->height + TONE_CELLS - 1) / TONE_CELLS;
        loop->columns = (image->width + loop->cell_width - 1) / loop->cell_width;
        loop->rows = (image->height + loop->cell_height - 1) / loop->cell_height;
        loop->cells = mem_calloc((size_t)loop->rows * (size_t)loop->columns, sizeof *loop->cells);
        loop->counts = mem_calloc((size_t)thread_bands(loop->rows), sizeof *loop->counts);
    }
    const bool room = loop && loop->cells && loop->counts;
    if (room && tone_measure(loop) && tone_decide(loop, r))
        tone_change(loop, r);
    const bool failed = !room || atomic_load(&loop->failed);
    if (loop) {
        free(loop->cells);
        free(loop->counts);
    }
    free(loop);
    r->toned = !failed;
    return failed ? error_set(err, ERROR_NO_MEMORY, "out of memory") : step_check(step, err);
}
