/* One window of the fill, without a network: what is known of it, a smooth fill, grain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair_private.h"

#define FILL_COARSE 16       /* px: a pixel of the reduced picture, for windows that show little else than a hole */
#define FILL_GRAIN_FROM 2.0f /* px from what is known: farther in a hole the fill gets grain, */
#define FILL_GRAIN_FULL 8.0f /* from here on all of it */
#define FILL_SWEEPS 24
#define FILL_RELAX 1.6f /* over-relaxation; below 2 */

size_t fill_window_bytes(const struct fill_cut *cut)
{
    return (size_t)cut->pixels * (4 * sizeof(float) + 2 * sizeof(uint32_t)) + (size_t)cut->side * 2 * sizeof(int);
}

void fill_window_place(struct fill_window *w, const struct fill_cut *cut, void *memory)
{
    const size_t pixels = (size_t)cut->pixels;
    *w = (struct fill_window){.cut = cut, .rgb = memory};
    w->mask = w->rgb + 3 * pixels;
    w->holes = (uint32_t *)(w->mask + pixels);
    w->near = w->holes + pixels;
    w->lefts = (int *)(w->near + pixels);
    w->rights = w->lefts + cut->side;
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

void repair_row(const struct image *image, int y, int x, int count, float *rgb)
{
    const size_t at = ((size_t)y * (size_t)image->width + (size_t)x) * (size_t)image->channels;
    const size_t n = (size_t)count * (size_t)image->channels;
    const uint8_t *bytes = (const uint8_t *)image->pixels + at;
    const uint16_t *words = (const uint16_t *)image->pixels + at;
    if (image->bits == 16)
        for (size_t i = 0; i < n; i++)
            rgb[i] = (float)words[i] / 257;
    else
        for (size_t i = 0; i < n; i++)
            rgb[i] = (float)bytes[i];
    for (size_t i = n; image->channels == 1 && i-- > 0;) /* from the end on: in place */
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = rgb[i];
}

/* A row of RGB into planes, and which of its pixels are holes. */
static void window_split(const float *restrict row, const uint8_t *restrict mask, int count, size_t plane,
                         float *restrict rgb, float *restrict holes)
{
    float *restrict red = rgb, *restrict green = red + plane, *restrict blue = green + plane;
    for (int x = 0; x < count; x++) {
        const bool hole = mask[x] != 0;
        holes[x] = hole ? 1 : 0;
        red[x] = hole ? 0 : row[3 * x];
        green[x] = hole ? 0 : row[3 * x + 1];
        blue[x] = hole ? 0 : row[3 * x + 2];
    }
}

static void window_note(struct fill_window *w, int y, int x)
{
    w->holes[w->hole_count++] = (uint32_t)(y * w->cut->side + x);
    w->lefts[y] = x < w->lefts[y] ? x : w->lefts[y];
    w->rights[y] = x;
}

/* Beyond a picture that is smaller there is nothing but hole. */
void fill_read(struct fill_window *w)
{
    const int side = w->cut->side, width = w->picture->width;
    const size_t plane = (size_t)w->cut->pixels;
    const int there = width - w->x < side ? width - w->x : side;
    w->hole_count = 0;
    for (int y = 0; y < side; y++) {
        const int inside = w->y + y < w->picture->height ? there : 0;
        const uint8_t *mask = inside ? w->mask_of + (size_t)(w->y + y) * (size_t)width + (size_t)w->x : NULL;
        float *rgb = w->rgb + y * side, *holes = w->mask + y * side;
        w->lefts[y] = side;
        w->rights[y] = -1;
        if (inside) {
            repair_row(w->picture, w->y + y, w->x, inside, w->scratch);
            window_split(w->scratch, mask, inside, plane, rgb, holes);
            for (size_t x = 0; (x = defect_clear(mask, x, (size_t)inside)) < (size_t)inside; x++)
                if (mask[x])
                    window_note(w, y, (int)x);
        }
        for (int x = inside; x < side; x++) {
            holes[x] = 1;
            for (size_t c = 0; c < 3; c++)
                rgb[c * plane + (size_t)x] = 0;
            window_note(w, y, x);
        }
    }
}

void fill_measure(struct fill_window *w)
{
    const int side = w->cut->side, width = w->picture->width, height = w->picture->height;
    const int columns = width - w->x < side ? width - w->x : side, rows = height - w->y < side ? height - w->y : side;
    int known = 0;
    for (int y = 0; y < rows; y++) {
        const uint8_t *mask = w->mask_of + (size_t)(w->y + y) * (size_t)width + (size_t)w->x;
        for (int x = 0; x < columns; x++)
            known += mask[x] == 0;
    }
    w->empty = known < FILL_KNOWN * w->cut->pixels;
}

/* A row's columns that are at most `reach` px from a hole, and perhaps others between. Without one, *from > *to. */
static void window_span(const struct fill_window *w, int y, int reach, int *from, int *to)
{
    const int side = w->cut->side, first = y > reach ? y - reach : 0, last = y + reach < side ? y + reach : side - 1;
    int left = side, right = -1;
    for (int i = first; i <= last; i++) {
        left = w->lefts[i] < left ? w->lefts[i] : left;
        right = w->rights[i] > right ? w->rights[i] : right;
    }
    *from = left > reach ? left - reach : 0;
    *to = right < 0 ? -1 : right + reach < side ? right + reach : side - 1;
}

/* How many holes there are in each column of some rows. */
static void window_columns(const float *restrict mask, int side, int rows, int from, int to, float *restrict column)
{
    for (int x = from; x <= to; x++)
        column[x] = mask[x];
    for (int y = 1; y < rows; y++)
        for (int x = from; x <= to; x++)
            column[x] += mask[y * side + x];
}

/* The sum of each column's count and its neighbours' up to two columns away. */
static void window_across(const float *restrict column, int from, int to, float *restrict sum)
{
    for (int x = from; x <= to; x++)
        sum[x] = column[x - 2] + column[x - 1] + column[x] + column[x + 1] + column[x + 2];
}

_Static_assert(REPAIR_FEATHER == 2 && (int)FILL_GRAIN_FROM == 2,
               "window_across and window_near have five rows and columns");

/* Lists what is near holes, and sets `deep`: there is a hole with nothing but holes up to two px around. Beyond the
 * window nothing is known. The scratch is used up. */
static void window_near(struct fill_window *w)
{
    const int side = w->cut->side;
    float *column = w->scratch + 2, *sum = column + side + 2;
    w->near_count = 0;
    w->deep = false;
    for (int y = 0, from, to; y < side; y++) {
        const int first = y > 2 ? y - 2 : 0, last = y + 2 < side ? y + 2 : side - 1, rows = last - first + 1;
        window_span(w, y, 2, &from, &to);
        if (from > to)
            continue;
        window_columns(w->mask + first * side, side, rows, from, to, column);
        column[from - 2] = column[from - 1] = column[to + 1] = column[to + 2] = 0;
        window_across(column, from, to, sum);
        for (int x = from; x <= to; x++) {
            const int before = x < 2 ? x : 2, after = side - 1 - x < 2 ? side - 1 - x : 2;
            if (sum[x] > 0)
                w->near[w->near_count++] = (uint32_t)(y * side + x);
            w->deep = w->deep || sum[x] >= (float)(rows * (before + 1 + after));
        }
    }
}

void fill_scale(struct fill_window *w)
{
    for (int i = 0; i < w->hole_count; i++)
        for (int c = 0; c < 3; c++) {
            float *v = w->rgb + c * w->cut->pixels + w->holes[i];
            *v = *v / 127.5f - 1;
        }
}

void fill_take(struct fill_window *w)
{
    const float *from = w->result;
    for (int i = 0; i < w->near_count; i++)
        for (int c = 0; c < 3; c++) {
            const float v = *from++, above = v > -1 ? v : -1;
            w->rgb[c * w->cut->pixels + w->near[i]] = ((above < 1 ? above : 1) + 1) * 127.5f;
        }
}

/* ---- grain ------------------------------------------------------------------------------------------------------- */

/* A bell curve of variance 1, the same for a place whenever it is asked for: four bytes of a hash (splitmix64). */
static float window_noise(int x, int y)
{
    uint64_t z = ((uint64_t)(uint32_t)y << 32 | (uint32_t)x) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    int sum = 0;
    for (int i = 0; i < 8; i++)
        sum += (int)(z >> (8 * i) & 255);
    return ((float)sum - 1020) / 209; /* eight of variance (256² - 1) / 12 */
}

static void window_light(const float *restrict red, const float *restrict green, const float *restrict blue,
                         float *restrict light, int count)
{
    for (int i = 0; i < count; i++)
        light[i] = 0.299f * red[i] + 0.587f * green[i] + 0.114f * blue[i];
}

#define WINDOW_NO_STEP 256 /* of a pixel that does not count */

/* How far some pixels of a row are from the mean of their 3 × 3, in eighths: in whole ones, 255 at most. */
static void window_steps(const float *restrict light, int side, int from, int to, int *restrict step)
{
    const float *a = light - side, *b = light, *c = light + side;
    for (int x = from; x <= to; x++) {
        const float sum = a[x - 1] + a[x] + a[x + 1] + b[x - 1] + b[x] + b[x + 1] + c[x - 1] + c[x] + c[x + 1];
        const float far = 8 * fabsf(b[x] - sum / 9);
        step[x] = far < 255 ? (int)far : 255;
    }
}

/* Sets the step of a row's pixels that have a hole in their 3 × 3 to WINDOW_NO_STEP. */
static void window_leave_near(const float *restrict mask, int side, float *restrict column, int *restrict step)
{
    const float *above = mask - side, *below = mask + side;
    for (int x = 0; x < side; x++)
        column[x] = above[x] + mask[x] + below[x];
    for (int x = 1; x < side - 1; x++)
        step[x] = column[x - 1] + column[x] + column[x + 1] > 0 ? WINDOW_NO_STEP : step[x];
}

static void window_leave_known(const float *restrict mask, int from, int to, int *restrict step)
{
    for (int x = from; x <= to; x++)
        step[x] = mask[x] > 0 ? step[x] : WINDOW_NO_STEP;
}

#define WINDOW_ROWS 4 /* of the known pixels the median is that of every fourth row: there are enough of them */

/* The grain of the window's known pixels, or of its holes: the median of how far a pixel is from the mean of its 3 × 3,
 * by luminance. The scratch is used up. */
static float window_grain(const struct fill_window *w, bool of_holes)
{
    const int side = w->cut->side, pixels = w->cut->pixels;
    const float *red = w->rgb, *green = red + pixels, *blue = green + pixels;
    float *light = w->scratch, *column = light + pixels;
    int *step = (int *)(column + side);
    int counts[2][WINDOW_NO_STEP + 1] = {0}, all = 0, below = 0; /* in turns: neighbours are often alike */
    for (int y = 0, from = 0, to = side - 1; y < side; y++) {
        if (of_holes)
            window_span(w, y, 1, &from, &to);
        else if (y % WINDOW_ROWS == 3) /* next to none of those rows */
            continue;
        const int at = y * side + from;
        window_light(red + at, green + at, blue + at, light + at, to - from + 1);
    }
    for (int y = 1, from = 1, to = side - 2; y < side - 1; y += of_holes ? 1 : WINDOW_ROWS) {
        const float *mask = w->mask + y * side;
        if (of_holes)
            window_span(w, y, 0, &from, &to);
        from = from > 1 ? from : 1;
        to = to < side - 2 ? to : side - 2;
        window_steps(light + y * side, side, from, to, step);
        if (of_holes)
            window_leave_known(mask, from, to, step);
        else
            window_leave_near(mask, side, column, step);
        for (int x = from; x <= to; x++)
            counts[x % 2][step[x]]++;
    }
    for (int i = 0; i < WINDOW_NO_STEP; i++)
        all += counts[0][i] + counts[1][i];
    for (int i = 0; i < WINDOW_NO_STEP; i++) {
        below += counts[0][i] + counts[1][i];
        if (all && 2 * below >= all)
            return (float)i / 8 * 1.4826f; /* the median of a bell curve's size is 0.6745 of its deviation */
    }
    return 0;
}

/* Sets a hole's pixel in the mask to how far it is from what is known, in steps to any of eight neighbours, as far as
 * the neighbours of one half have it: those before it, then, with sign -1, those after it. Beyond the window nothing is
 * known. */
static void window_distance(const struct fill_window *w, int at, int sign)
{
    const int side = w->cut->side, x = at % side, y = at / side;
    float least = w->mask[at];
    for (int k = 0; k < 4; k++) {
        const int u = x + sign * (k < 3 ? k - 1 : -1), v = y - sign * (k < 3);
        if (u >= 0 && v >= 0 && u < side && v < side)
            least = w->mask[v * side + u] + 1 < least ? w->mask[v * side + u] + 1 : least;
    }
    w->mask[at] = least;
}

/* Sets all holes in the mask to how far they are from what is known. */
static void window_distances(const struct fill_window *w)
{
    for (int i = 0; i < w->hole_count; i++)
        w->mask[w->holes[i]] = (float)w->cut->side;
    for (int i = 0; i < w->hole_count; i++)
        window_distance(w, (int)w->holes[i], 1);
    for (int i = w->hole_count - 1; i >= 0; i--)
        window_distance(w, (int)w->holes[i], -1);
}

void fill_roughen(struct fill_window *w)
{
    if (!w->deep)
        return;
    const int side = w->cut->side, pixels = w->cut->pixels;
    const float own = w->plain ? 0 : window_grain(w, true), lack = w->grain * w->grain - own * own;
    const float grain = lack > 0 ? sqrtf(lack) : 0;
    if (grain <= 0)
        return;
    window_distances(w);
    for (int i = 0; i < w->hole_count; i++) {
        const int at = (int)w->holes[i];
        const float inside = (w->mask[at] - FILL_GRAIN_FROM) / (FILL_GRAIN_FULL - FILL_GRAIN_FROM);
        if (inside <= 0)
            continue;
        const float noise = grain * fminf(inside, 1) * window_noise(w->x + at % side, w->y + at / side);
        for (int c = 0; c < 3; c++)
            w->rgb[c * pixels + at] += noise;
    }
}

/* ---- the fill ---------------------------------------------------------------------------------------------------- */

/* Makes the fill as smooth as its border allows: each hole's pixel tends to the mean of its neighbours (Laplace's
 * equation by successive over-relaxation). */
static void window_smooth(const struct fill_window *w)
{
    const int side = w->cut->side, pixels = w->cut->pixels;
    for (int sweep = 0; sweep < FILL_SWEEPS; sweep++)
        for (int i = 0; i < w->hole_count; i++) {
            const int at = (int)w->holes[i], x = at % side, y = at / side;
            if (x == 0 || y == 0 || x == side - 1 || y == side - 1)
                continue;
            for (int c = 0; c < 3; c++) {
                float *v = w->rgb + c * pixels + at;
                *v += FILL_RELAX * ((v[-1] + v[1] + v[-side] + v[side]) / 4 - *v);
            }
        }
}

struct coarse_loop {
    const struct fill_coarse *coarse;
    const struct image *picture;
    const uint8_t *mask;
    float *known, *rows; /* of each cell, the pixels that are known; a row of the picture for each row of cells */
};

/* A row of cells. */
static void window_coarse_row(void *context, int item)
{
    const struct coarse_loop *loop = context;
    const struct fill_coarse *coarse = loop->coarse;
    const int width = loop->picture->width, height = loop->picture->height;
    const size_t plane = (size_t)coarse->width * (size_t)coarse->height, first = (size_t)item * (size_t)coarse->width;
    float *row = loop->rows + (size_t)item * 3 * (size_t)width, *known = loop->known + first;
    for (int y = item * FILL_COARSE; y < (item + 1) * FILL_COARSE && y < height; y++) {
        const uint8_t *mask = loop->mask + (size_t)y * (size_t)width;
        repair_row(loop->picture, y, 0, width, row);
        for (int x = 0; x < width; x++) {
            float *sum = coarse->rgb + first + (size_t)(x / FILL_COARSE);
            if (mask[x])
                continue;
            for (size_t c = 0; c < 3; c++)
                sum[c * plane] += row[3 * x + (int)c];
            known[x / FILL_COARSE]++;
        }
    }
    for (size_t i = 0; i < (size_t)coarse->width; i++) {
        for (size_t c = 0; c < 3; c++)
            coarse->rgb[c * plane + first + i] /= known[i] > 0 ? known[i] : 1;
        known[i] = 1 - known[i] / (FILL_COARSE * FILL_COARSE);
    }
}

enum error_code fill_make_coarse(struct fill_coarse *coarse, const struct image *picture, const uint8_t *mask,
                                 struct error *err)
{
    const int w = (picture->width + FILL_COARSE - 1) / FILL_COARSE,
              h = (picture->height + FILL_COARSE - 1) / FILL_COARSE;
    const size_t plane = (size_t)w * (size_t)h;
    *coarse = (struct fill_coarse){mem_calloc(3 * plane, sizeof *coarse->rgb), w, h};
    struct coarse_loop loop = {coarse, picture, mask, mem_calloc(plane, sizeof(float)),
                               mem_alloc((size_t)picture->width * (size_t)h, 3 * sizeof(float))};
    float *scratch = mem_alloc(pull_push_scratch(h, w), sizeof *scratch);
    const bool room = coarse->rgb && loop.known && loop.rows && scratch;
    if (room) {
        thread_for(h, window_coarse_row, &loop);
        pull_push(coarse->rgb, loop.known, h, w, scratch);
    }
    free(loop.known);
    free(loop.rows);
    free(scratch);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

/* Sets the window's holes from the reduced picture. */
static void window_from_coarse(const struct fill_window *w, const struct fill_coarse *coarse)
{
    const size_t plane = (size_t)coarse->width * (size_t)coarse->height;
    for (int i = 0; i < w->hole_count; i++) {
        const int at = (int)w->holes[i];
        const float y = fmaxf(((float)(w->y + at / w->cut->side) + 0.5f) / FILL_COARSE - 0.5f, 0),
                    x = fmaxf(((float)(w->x + at % w->cut->side) + 0.5f) / FILL_COARSE - 0.5f, 0);
        const int top = y < (float)(coarse->height - 1) ? (int)y : coarse->height - 1,
                  left = x < (float)(coarse->width - 1) ? (int)x : coarse->width - 1;
        const int below = top + (top + 1 < coarse->height), right = left + (left + 1 < coarse->width);
        const float down = fminf(y - (float)top, 1), across = fminf(x - (float)left, 1);
        for (size_t c = 0; c < 3; c++) {
            const float *upper = coarse->rgb + c * plane + (size_t)top * (size_t)coarse->width,
                        *lower = coarse->rgb + c * plane + (size_t)below * (size_t)coarse->width;
            const float above = upper[left] + across * (upper[right] - upper[left]),
                        under = lower[left] + across * (lower[right] - lower[left]);
            w->rgb[c * (size_t)w->cut->pixels + (size_t)at] = above + down * (under - above);
        }
    }
}

void fill_prepare(struct fill_window *w, const struct fill_coarse *coarse, bool blank)
{
    window_near(w);
    w->grain = w->deep ? window_grain(w, false) : 0;
    if (coarse)
        window_from_coarse(w, coarse);
    else if (blank && !w->plain)
        for (int i = 0; i < w->hole_count; i++)
            for (int c = 0; c < 3; c++)
                w->rgb[c * w->cut->pixels + (int)w->holes[i]] = 127.5f; /* the network's 0 */
    else
        pull_push(w->rgb, w->mask, w->cut->side, w->cut->side, w->scratch);
    if (w->plain)
        window_smooth(w);
}
