/* Fills what the mask shows, window by window of one size. Their cores lie on a grid of the picture; where two meet,
 * they are blended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair.h"

#define FILL_WINDOW 256  /* px, of a network that takes any */
#define FILL_COARSE 16   /* px: a pixel of the reduced picture, for windows that show little else than a hole */
#define FILL_KNOWN 0.125 /* of a window: with less it is such a one */
#define FILL_BATCH 8
#define FILL_GRAIN_FROM 2.0f /* px from what is known: farther in a hole the fill gets grain, */
#define FILL_GRAIN_FULL 8.0f /* from here on all of it */
#define FILL_SWEEPS 24
#define FILL_RELAX 1.6f /* over-relaxation; below 2 */

/* How a picture is cut: windows of `side` px, each around a core with an eighth of it on all sides. Two cores are
 * blended `blend` px to both sides of their border. */
struct fill_cut {
    int side, core, blend, pixels;
    int strip; /* rows that a row of cores changes */
};

static struct fill_cut fill_cut(int side)
{
    struct fill_cut cut = {.side = side ? side : FILL_WINDOW};
    cut.core = cut.side / 4 * 3;
    cut.blend = cut.core / 12;
    cut.strip = cut.core + 2 * cut.blend;
    cut.pixels = cut.side * cut.side;
    return cut;
}

/* A window at work: planes of side². */
struct fill_window {
    struct fill *fill;
    int x, y, column;  /* of the picture; of the grid */
    bool used, plain;  /* plain: little else than a hole; the network does not get it */
    float *rgb, *mask; /* 3 planes; 1 in holes */
    float *scratch;    /* of pull_push */
    uint32_t *holes;   /* their places */
    int hole_count;
    float grain; /* standard deviation, on the 8-bit scale */
};

struct fill {
    struct step *step;
    const struct image *picture;
    const uint8_t *mask;
    struct fill_cut cut;
    bool blank;                  /* the network is given nothing in the holes */
    int columns, rows;           /* cores */
    int row;                     /* of cores, at work */
    struct fill_window *windows; /* of a row of cores */
    float *coarse;               /* the reduced picture, filled, 3 planes; or NULL until it is needed */
    int coarse_width, coarse_height;
    float *strip; /* cut.strip rows of RGB from cut.blend above the row of cores on: sums by weight */
    double strength;
    bool network; /* it corrects the windows, so many at a time */
    int batch;
    float *in, *out;
    struct fill_change *changes; /* row by row */
    size_t change_count, change_room, *row_ends;
};

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

/* Mixes RGB on the 8-bit scale into a pixel. */
static void fill_mix(struct image *image, int y, int x, const float *rgb, float share)
{
    const size_t at = ((size_t)y * (size_t)image->width + (size_t)x) * (size_t)image->channels;
    for (int c = 0; c < image->channels; c++) {
        const float value = image->channels == 3 ? rgb[c] : (rgb[0] + rgb[1] + rgb[2]) / 3;
        const size_t k = at + (size_t)c;
        if (image->bits == 16) {
            uint16_t *sample = (uint16_t *)image->pixels + k;
            *sample = (uint16_t)lrintf(fminf(fmaxf(*sample + share * (value * 257 - *sample), 0), 65535));
        } else {
            uint8_t *sample = (uint8_t *)image->pixels + k;
            *sample = (uint8_t)lrintf(fminf(fmaxf(*sample + share * (value - *sample), 0), 255));
        }
    }
}

/* ---- a window without a network ---------------------------------------------------------------------------------- */

/* A bell curve of variance 1, the same for a place whenever it is asked for: four bytes of a hash (splitmix64). */
static float fill_noise(int x, int y)
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

/* How far each pixel of a row is from the mean of its 3 × 3, in eighths, and the sum of the mask there. */
static void fill_row_grain(const float *restrict light, const float *restrict mask, int side, float *restrict step,
                           float *restrict holes)
{
    const float *a = light - side, *b = light, *c = light + side;
    const float *above = mask - side, *below = mask + side;
    for (int x = 1; x < side - 1; x++) {
        const float sum = a[x - 1] + a[x] + a[x + 1] + b[x - 1] + b[x] + b[x + 1] + c[x - 1] + c[x] + c[x + 1];
        step[x] = 8 * fabsf(b[x] - sum / 9);
        holes[x] = above[x - 1] + above[x] + above[x + 1] + mask[x - 1] + mask[x] + mask[x + 1] + below[x - 1] +
                   below[x] + below[x + 1];
    }
}

/* The grain of the window's known pixels, or of its holes: the median of how far a pixel is from the mean of its 3 × 3,
 * by luminance. The scratch is used up. */
static float fill_grain(const struct fill_window *w, bool of_holes)
{
    const int side = w->fill->cut.side, pixels = w->fill->cut.pixels;
    const float *restrict red = w->rgb, *restrict green = red + pixels, *restrict blue = green + pixels;
    float *restrict light = w->scratch, *step = light + pixels, *holes = step + side;
    int counts[256] = {0}, all = 0, below = 0;
    for (int i = 0; i < pixels; i++)
        light[i] = 0.299f * red[i] + 0.587f * green[i] + 0.114f * blue[i];
    for (int y = 1; y < side - 1; y++) {
        const float *mask = w->mask + y * side;
        fill_row_grain(light + y * side, mask, side, step, holes);
        for (int x = 1; x < side - 1; x++)
            if (of_holes ? mask[x] > 0 : holes[x] <= 0) {
                counts[step[x] < 255 ? (int)step[x] : 255]++;
                all++;
            }
    }
    for (int i = 0; i < 256; i++) {
        below += counts[i];
        if (all && 2 * below >= all)
            return (float)i / 8 * 1.4826f; /* the median of a bell curve's size is 0.6745 of its deviation */
    }
    return 0;
}

/* Makes the fill as smooth as its border allows: each hole's pixel tends to the mean of its neighbours (Laplace's
 * equation by successive over-relaxation). */
static void fill_smooth(const struct fill_window *w)
{
    const int side = w->fill->cut.side, pixels = w->fill->cut.pixels;
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

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Whether a rectangle of the picture, cut to it, has a hole. */
static bool fill_has_hole(const struct fill *f, int left, int top, int right, int bottom)
{
    left = left > 0 ? left : 0;
    right = right < f->picture->width ? right : f->picture->width;
    for (int y = top > 0 ? top : 0; y < bottom && y < f->picture->height && left < right; y++)
        for (const uint8_t *p = f->mask + (size_t)y * (size_t)f->picture->width + left, *end = p + (right - left);
             p < end; p++)
            if (*p)
                return true;
    return false;
}

static int fill_begin(const struct fill_cut *cut, int core, int length)
{
    const int most = length - cut->side, at = core * cut->core - (cut->side - cut->core) / 2;
    return at < most && at > 0 ? at : most > 0 && at > 0 ? most : 0;
}

/* The window's pixels, with its holes 0. Beyond a picture that is smaller there is nothing but hole. Returns how many
 * are known. */
static int fill_read(struct fill_window *w)
{
    const struct fill *f = w->fill;
    const int side = f->cut.side;
    float *row = w->scratch; /* free until later */
    int known = 0;
    w->hole_count = 0;
    const int there = f->picture->width - w->x < side ? f->picture->width - w->x : side;
    for (int y = 0; y < side; y++) {
        const bool inside = w->y + y < f->picture->height;
        if (inside)
            repair_row(f->picture, w->y + y, w->x, there, row);
        for (int x = 0; x < side; x++) {
            const int at = y * side + x;
            const bool hole =
                !inside || x >= there || f->mask[(size_t)(w->y + y) * (size_t)f->picture->width + (size_t)(w->x + x)];
            w->mask[at] = hole;
            for (int c = 0; c < 3; c++)
                w->rgb[c * f->cut.pixels + at] = hole ? 0 : row[3 * x + c];
            if (hole)
                w->holes[w->hole_count++] = (uint32_t)at;
            known += !hole;
        }
    }
    return known;
}

/* The picture reduced and filled. */
static enum error_code fill_make_coarse(struct fill *f, struct error *err)
{
    const int w = (f->picture->width + FILL_COARSE - 1) / FILL_COARSE,
              h = (f->picture->height + FILL_COARSE - 1) / FILL_COARSE;
    const size_t plane = (size_t)w * (size_t)h;
    float *row = mem_alloc((size_t)f->picture->width, 3 * sizeof *row), *mask = mem_calloc(plane, sizeof *mask);
    float *scratch = mem_alloc(pull_push_scratch(h, w), sizeof *scratch);
    f->coarse = mem_calloc(3 * plane, sizeof *f->coarse);
    f->coarse_width = w;
    f->coarse_height = h;
    if (row && mask && scratch && f->coarse) {
        for (int y = 0; y < f->picture->height; y++) {
            repair_row(f->picture, y, 0, f->picture->width, row);
            for (int x = 0; x < f->picture->width; x++) {
                const size_t at = (size_t)(y / FILL_COARSE) * (size_t)w + (size_t)(x / FILL_COARSE);
                if (f->mask[(size_t)y * (size_t)f->picture->width + (size_t)x])
                    continue;
                for (size_t c = 0; c < 3; c++)
                    f->coarse[c * plane + at] += row[3 * x + (int)c];
                mask[at]++;
            }
        }
        for (size_t i = 0; i < plane; i++) {
            for (size_t c = 0; c < 3; c++)
                f->coarse[c * plane + i] /= mask[i] > 0 ? mask[i] : 1;
            mask[i] = 1 - mask[i] / (FILL_COARSE * FILL_COARSE);
        }
        pull_push(f->coarse, mask, h, w, scratch);
    }
    const bool room = row && mask && scratch && f->coarse;
    free(row);
    free(mask);
    free(scratch);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

/* Sets the window's holes from it. */
static void fill_from_coarse(const struct fill_window *w)
{
    const struct fill *f = w->fill;
    const size_t plane = (size_t)f->coarse_width * (size_t)f->coarse_height;
    for (int i = 0; i < w->hole_count; i++) {
        const int at = (int)w->holes[i];
        const float y = fmaxf(((float)(w->y + at / f->cut.side) + 0.5f) / FILL_COARSE - 0.5f, 0),
                    x = fmaxf(((float)(w->x + at % f->cut.side) + 0.5f) / FILL_COARSE - 0.5f, 0);
        const int top = y < (float)(f->coarse_height - 1) ? (int)y : f->coarse_height - 1,
                  left = x < (float)(f->coarse_width - 1) ? (int)x : f->coarse_width - 1;
        const int below = top + (top + 1 < f->coarse_height), right = left + (left + 1 < f->coarse_width);
        const float down = fminf(y - (float)top, 1), across = fminf(x - (float)left, 1);
        for (size_t c = 0; c < 3; c++) {
            const float *upper = f->coarse + c * plane + (size_t)top * (size_t)f->coarse_width,
                        *lower = f->coarse + c * plane + (size_t)below * (size_t)f->coarse_width;
            const float above = upper[left] + across * (upper[right] - upper[left]),
                        under = lower[left] + across * (lower[right] - lower[left]);
            w->rgb[c * (size_t)f->cut.pixels + (size_t)at] = above + down * (under - above);
        }
    }
}

/* Fills one window smoothly. */
static void fill_prepare(void *context, int item)
{
    struct fill *f = context;
    struct fill_window *w = &f->windows[item];
    if (!w->used)
        return;
    const int known = fill_read(w);
    w->grain = fill_grain(w, false);
    const bool empty = f->coarse && known < FILL_KNOWN * f->cut.pixels;
    w->plain = empty || !f->network;
    if (empty)
        fill_from_coarse(w);
    else if (f->blank && !w->plain)
        for (int i = 0; i < w->hole_count; i++)
            for (int c = 0; c < 3; c++)
                w->rgb[c * f->cut.pixels + (int)w->holes[i]] = 127.5f; /* the network's 0 */
    else
        pull_push(w->rgb, w->mask, f->cut.side, f->cut.side, w->scratch);
    if (w->plain)
        fill_smooth(w);
}

/* Sets a hole's pixel in the mask to how far it is from what is known, in steps to any of eight neighbours, as far as
 * the neighbours of one half have it: those before it, then, with sign -1, those after it. Beyond the window nothing is
 * known. */
static void fill_distance(const struct fill_window *w, int at, int sign)
{
    const int side = w->fill->cut.side, x = at % side, y = at / side;
    float least = w->mask[at];
    for (int k = 0; k < 4; k++) {
        const int u = x + sign * (k < 3 ? k - 1 : -1), v = y - sign * (k < 3);
        if (u >= 0 && v >= 0 && u < side && v < side)
            least = fminf(least, w->mask[v * side + u] + 1);
    }
    w->mask[at] = least;
}

/* Adds the grain that the fill lacks, where a hole is wide: in a thin one nobody misses it, and it is an error. The
 * mask is used up. */
static void fill_roughen(void *context, int item)
{
    const struct fill *f = context;
    const struct fill_window *w = &f->windows[item];
    if (!w->used)
        return;
    const float own = w->plain ? 0 : fill_grain(w, true), lack = w->grain * w->grain - own * own;
    const float grain = lack > 0 ? sqrtf(lack) : 0;
    for (int i = 0; i < w->hole_count && grain > 0; i++)
        w->mask[w->holes[i]] = (float)f->cut.side;
    for (int i = 0; i < w->hole_count && grain > 0; i++)
        fill_distance(w, (int)w->holes[i], 1);
    for (int i = w->hole_count - 1; i >= 0 && grain > 0; i--)
        fill_distance(w, (int)w->holes[i], -1);
    for (int i = 0; i < w->hole_count && grain > 0; i++) {
        const int at = (int)w->holes[i];
        const float inside = (w->mask[at] - FILL_GRAIN_FROM) / (FILL_GRAIN_FULL - FILL_GRAIN_FROM);
        const float noise =
            grain * fminf(fmaxf(inside, 0), 1) * fill_noise(w->x + at % f->cut.side, w->y + at / f->cut.side);
        for (int c = 0; c < 3; c++)
            w->rgb[c * f->cut.pixels + at] += noise;
    }
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

struct fill_batch {
    struct fill_window **windows;
    const float *out;
    float *in;
};

static void fill_pack(void *context, int item)
{
    const struct fill_batch *batch = context;
    const struct fill_window *w = batch->windows[item];
    const size_t pixels = (size_t)w->fill->cut.pixels;
    float *to = batch->in + (size_t)item * 4 * pixels;
    for (size_t i = 0; i < 3 * pixels; i++)
        to[i] = w->rgb[i] / 127.5f - 1;
    memcpy(to + 3 * pixels, w->mask, pixels * sizeof *to);
}

static void fill_unpack(void *context, int item)
{
    const struct fill_batch *batch = context;
    const struct fill_window *w = batch->windows[item];
    const size_t samples = 3 * (size_t)w->fill->cut.pixels;
    const float *from = batch->out + (size_t)item * samples;
    for (size_t i = 0; i < samples; i++)
        w->rgb[i] = ((from[i] > -1 ? from[i] < 1 ? from[i] : 1 : -1) + 1) * 127.5f;
}

/* Runs the network on so many windows. */
static enum error_code fill_run(struct fill *f, struct fill_window **windows, int count, struct error *err)
{
    const struct session_shape shape = {.n = count, .h = f->cut.side, .w = f->cut.side};
    const struct run_input input = {.planes = f->in};
    struct fill_batch batch = {windows, f->out, f->in};
    f->step->r->damage.filled += (double)count * f->cut.pixels / 1e6;
    thread_for(count, fill_pack, &batch);
    enum error_code code = repair_network(f->step, ROLE_FILLER, &shape, &input, f->out, err);
    if (code == OK)
        thread_for(count, fill_unpack, &batch);
    return code;
}

/* All windows of the row, f->batch at a time, the rest by halves of that: few runs, and few shapes. */
static enum error_code fill_correct(struct fill *f, struct error *err)
{
    struct fill_window *used[FILL_BATCH];
    enum error_code code = OK;
    for (int i = 0, count = 0; i < f->columns && code == OK; i++) {
        if (f->windows[i].used && !f->windows[i].plain)
            used[count++] = &f->windows[i];
        if (count < f->batch && i + 1 < f->columns)
            continue;
        for (int done = 0, many = f->batch; done < count && code == OK; done += many) {
            while (many > count - done)
                many /= 2;
            code = fill_run(f, used + done, many, err);
        }
        count = 0;
    }
    if (step_too_large(code))
        code = step_no_room(f->step, ROLE_FILLER, err, "%d windows of %d px", f->batch, f->cut.side);
    return code;
}

/* ---- putting together -------------------------------------------------------------------------------------------- */

/* A core's share at a place: 1 but near a border that it shares with another, where the two make 1. */
static float fill_share(const struct fill_cut *cut, int place, int core, int cores)
{
    const float at = (float)place + 0.5f, begin = (float)(core * cut->core), end = begin + (float)cut->core,
                blend = (float)cut->blend;
    float share = 1;
    if (core > 0)
        share = fminf(share, (at - begin + blend) / (2 * blend));
    if (core + 1 < cores)
        share = fminf(share, (end + blend - at) / (2 * blend));
    return fmaxf(share, 0);
}

/* Adds a window to the strip. */
static void fill_add(struct fill *f, const struct fill_window *w)
{
    const struct fill_cut *cut = &f->cut;
    const int width = f->picture->width, height = f->picture->height, top = f->row * cut->core - cut->blend;
    int left = w->column * cut->core - cut->blend, right = left + cut->strip, y = top > 0 ? top : 0;
    left = left > 0 ? left : 0;
    right = right < width ? right : width;
    for (; y < top + cut->strip && y < height; y++) {
        const float down = fill_share(cut, y, f->row, f->rows);
        for (int x = left; x < right; x++) {
            const float share = down * fill_share(cut, x, w->column, f->columns);
            const float *from = w->rgb + (y - w->y) * cut->side + (x - w->x);
            float *to = f->strip + 3 * ((size_t)(y - top) * (size_t)width + (size_t)x);
            for (int c = 0; c < 3; c++)
                to[c] += share * from[c * cut->pixels];
        }
    }
}

/* How much of the fill a pixel gets: 1 in the mask, less up to REPAIR_FEATHER px from it. */
static float fill_alpha(const struct fill *f, int x, int y)
{
    const int width = f->picture->width, height = f->picture->height;
    const int top = y > REPAIR_FEATHER ? y - REPAIR_FEATHER : 0, left = x > REPAIR_FEATHER ? x - REPAIR_FEATHER : 0;
    const int bottom = y + REPAIR_FEATHER < height ? y + REPAIR_FEATHER : height - 1,
              right = x + REPAIR_FEATHER < width ? x + REPAIR_FEATHER : width - 1;
    int nearest = REPAIR_FEATHER + 1;
    for (int i = top; i <= bottom; i++)
        for (int j = left; j <= right; j++)
            if (f->mask[(size_t)i * (size_t)width + (size_t)j]) {
                const int away = abs(i - y) > abs(j - x) ? abs(i - y) : abs(j - x);
                nearest = away < nearest ? away : nearest;
            }
    return 1 - (float)nearest / (REPAIR_FEATHER + 1);
}

/* What becomes of a pixel: kept until all is computed, so that every window sees the picture as it was and an attempt
 * that fails leaves it so. */
struct fill_change {
    uint32_t x;
    float rgb[3];
};

static enum error_code fill_keep(struct fill *f, int x, const float *rgb, struct error *err)
{
    if (f->change_count == f->change_room) {
        const size_t room = f->change_room ? 2 * f->change_room : 4096;
        struct fill_change *changes =
            room > SIZE_MAX / sizeof *changes ? NULL : realloc(f->changes, room * sizeof *changes);
        if (!changes)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for the repaired pixels");
        f->changes = changes;
        f->change_room = room;
    }
    f->changes[f->change_count++] = (struct fill_change){(uint32_t)x, {rgb[0], rgb[1], rgb[2]}};
    return OK;
}

/* The strip's rows that no later window changes. */
static enum error_code fill_keep_rows(struct fill *f, struct error *err)
{
    const int width = f->picture->width, core = f->cut.core, top = f->row * core - f->cut.blend;
    const int end = f->row + 1 < f->rows ? top + core : f->picture->height;
    enum error_code code = OK;
    for (int y = top > 0 ? top : 0; y < end && code == OK; y++) {
        const float *row = f->strip + 3 * (size_t)(y - top) * (size_t)width;
        for (int column = 0; column < f->columns && code == OK; column++) {
            const int from = column * core, to = from + core < width ? from + core : width;
            if (!fill_has_hole(f, from - REPAIR_FEATHER, y - REPAIR_FEATHER, to + REPAIR_FEATHER,
                               y + REPAIR_FEATHER + 1))
                continue;
            for (int x = from; x < to && code == OK; x++)
                if (fill_alpha(f, x, y) > 0)
                    code = fill_keep(f, x, row + 3 * (size_t)x, err);
        }
        f->row_ends[y] = f->change_count;
    }
    return code;
}

/* colour: of the picture's samples; NULL: sRGB. */
static void fill_apply(const struct fill *f, struct image *to, const struct colour *colour)
{
    for (int y = 0; y < to->height; y++)
        for (size_t i = y ? f->row_ends[y - 1] : 0; i < f->row_ends[y]; i++) {
            const struct fill_change *change = &f->changes[i];
            const int x = (int)change->x;
            float own[3] = {change->rgb[0], change->rgb[1], change->rgb[2]};
            if (colour)
                colour_from_srgb(colour, own, own, 1);
            if (colour && to->channels == 1)
                own[1] = own[2] = own[0];
            fill_mix(to, y, x, own, fill_alpha(f, x, y) * (float)f->strength);
        }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* The windows of a row of cores, and whether any of them has something to do. */
static bool fill_place(struct fill *f)
{
    bool any = false;
    const int core = f->cut.core, top = f->row * core, reach = f->cut.blend + REPAIR_FEATHER;
    for (int i = 0; i < f->columns; i++) {
        struct fill_window *w = &f->windows[i];
        const int left = i * core;
        w->column = i;
        w->x = fill_begin(&f->cut, i, f->picture->width);
        w->y = fill_begin(&f->cut, f->row, f->picture->height);
        w->used = fill_has_hole(f, left - reach, top - reach, left + core + reach, top + core + reach);
        any = any || w->used;
    }
    return any;
}

static enum error_code fill_rows(struct fill *f, struct error *err)
{
    const size_t row = 3 * (size_t)f->picture->width, core = (size_t)f->cut.core, shared = 2 * (size_t)f->cut.blend;
    enum error_code code = OK;
    for (f->row = 0; f->row < f->rows && code == OK; f->row++) {
        if (fill_place(f)) {
            thread_for(f->columns, fill_prepare, f);
            code = f->network ? fill_correct(f, err) : OK;
            if (code != OK)
                break;
            thread_for(f->columns, fill_roughen, f);
        }
        for (int i = 0; i < f->columns; i++)
            if (f->windows[i].used)
                fill_add(f, &f->windows[i]);
        code = fill_keep_rows(f, err);
        memmove(f->strip, f->strip + core * row, shared * row * sizeof *f->strip);
        memset(f->strip + shared * row, 0, core * row * sizeof *f->strip);
        if (code == OK)
            code = step_check(f->step, err);
    }
    return code;
}

static enum error_code fill_create(struct fill *f, struct error *err)
{
    const size_t pixels = (size_t)f->cut.pixels, floats = 4 * pixels + pull_push_scratch(f->cut.side, f->cut.side);
    f->windows = mem_calloc((size_t)f->columns, sizeof *f->windows);
    f->strip = mem_calloc((size_t)f->picture->width, 3 * (size_t)f->cut.strip * sizeof *f->strip);
    f->row_ends = mem_calloc((size_t)f->picture->height, sizeof *f->row_ends);
    bool room = f->windows && f->strip && f->row_ends;
    if (f->network) {
        f->in = mem_alloc((size_t)f->batch * pixels, 4 * sizeof *f->in);
        f->out = mem_alloc((size_t)f->batch * pixels, 3 * sizeof *f->out);
        room = room && f->in && f->out;
    }
    for (int i = 0; i < f->columns && room; i++) {
        struct fill_window *w = &f->windows[i];
        w->fill = f;
        w->rgb = mem_alloc(floats, sizeof *w->rgb);
        w->holes = mem_alloc(pixels, sizeof *w->holes);
        w->mask = w->rgb ? w->rgb + 3 * pixels : NULL;
        w->scratch = w->rgb ? w->mask + pixels : NULL;
        room = w->rgb && w->holes;
    }
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
}

static void fill_free(struct fill *f)
{
    for (int i = 0; i < f->columns && f->windows; i++) {
        free(f->windows[i].rgb);
        free(f->windows[i].holes);
    }
    free(f->windows);
    free(f->in);
    free(f->out);
    free(f->strip);
    free(f->row_ends);
    free(f->changes);
    free(f->coarse);
}

/* Whether there may be a window that shows little else than a hole: one core's worth of them. */
static bool fill_is_large(const struct fill *f)
{
    const size_t pixels = (size_t)f->picture->width * (size_t)f->picture->height;
    size_t holes = 0;
    for (size_t i = 0; i < pixels; i++)
        holes += f->mask[i] != 0;
    return (double)holes > (1 - FILL_KNOWN) * f->cut.core * f->cut.core / 2;
}

double repair_fill_most(int width, int height, const struct model_info *info)
{
    const struct fill_cut cut = fill_cut(info->side);
    return ceil((double)width / cut.core) * ceil((double)height / cut.core) * cut.pixels / 1e6;
}

enum error_code repair_fill(struct step *step, const uint8_t *mask, double strength, struct error *err)
{
    struct restoration *r = step->r;
    struct image *picture = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    const struct model_entry *filler = step->model[ROLE_FILLER];
    const struct fill_cut cut = fill_cut(filler ? filler->info.side : 0);
    struct fill f = {.step = step,
                     .picture = picture,
                     .mask = mask,
                     .cut = cut,
                     .blank = filler && filler->info.side,
                     .columns = (picture->width + cut.core - 1) / cut.core,
                     .rows = (picture->height + cut.core - 1) / cut.core,
                     .strength = strength,
                     .network = filler != NULL};
    f.batch = f.network ? step_batch(step) : 0;
    f.batch = f.batch < FILL_BATCH ? f.batch : FILL_BATCH;
    r->damage.filled = 0;
    enum error_code code = fill_create(&f, err);
    if (code == OK && fill_is_large(&f))
        code = fill_make_coarse(&f, err);
    if (code == OK)
        code = fill_rows(&f, err);
    if (code == OK)
        fill_apply(&f, r->picture, NULL);
    if (code == OK && picture != r->picture)
        fill_apply(&f, picture, NULL);
    if (code == OK && r->deep && r->deep->source)
        fill_apply(&f, r->deep->source, r->deep->colour);
    fill_free(&f);
    return code;
}
