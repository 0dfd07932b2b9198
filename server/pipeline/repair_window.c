/* One window of the fill, without a network and grain: what is known of it, what is near its holes, a smooth fill. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair_private.h"

#define FILL_SWEEPS 24
#define FILL_RELAX 1.6f /* over-relaxation; below 2 */

#define FILL_WINDOW 256 /* px, of a network that takes any */
/* px of which the sides of a window that is the picture are multiples: few sizes, and so few plans */
#define FILL_CELL 32

struct fill_cut fill_cut(int side, int width, int height)
{
    struct fill_cut cut = {.width = side ? side : FILL_WINDOW};
    cut.height = cut.width;
    cut.core_width = cut.core_height = cut.width / 4 * 3;
    cut.blend = cut.core_width / 12;
    cut.pixels = cut.width * cut.height;
    cut.columns = (width + cut.core_width - 1) / cut.core_width;
    cut.rows = (height + cut.core_height - 1) / cut.core_height;
    return cut;
}

struct fill_cut fill_cut_whole(int cell, int width, int height, const struct fill_cut *grain)
{
    struct fill_cut cut = {.columns = 1, .rows = 1, .grain = grain};
    cell = cell > FILL_CELL ? cell : FILL_CELL;
    cut.width = cut.core_width = (width + cell - 1) / cell * cell;
    cut.height = cut.core_height = (height + cell - 1) / cell * cell;
    cut.pixels = cut.width * cut.height;
    return cut;
}

int fill_begin_at(int core, int core_side, int side, int length)
{
    const int most = length - side, at = core * core_side - (side - core_side) / 2;
    return at < most && at > 0 ? at : most > 0 && at > 0 ? most : 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

int fill_window_bands(const struct fill_cut *cut)
{
    return (cut->height + PULL_BAND - 1) / PULL_BAND;
}

int fill_window_blocks(const struct fill_cut *cut)
{
    return cut->grain ? cut->grain->columns * cut->grain->rows : 1;
}

static size_t window_blocks(const struct fill_cut *cut)
{
    return (size_t)fill_window_blocks(cut);
}

/* In floats, which are as large as what else a window has but its mask. */
static size_t window_floats(const struct fill_cut *cut)
{
    return (size_t)cut->pixels * 5 + (size_t)cut->height * 4;
}

size_t fill_window_bytes(const struct fill_cut *cut)
{
    return fill_window_align(window_floats(cut) * sizeof(float) + window_blocks(cut) * sizeof(struct fill_grain) +
                             (size_t)cut->pixels);
}

/* Floats of a band: the planes and weights of two rows, one row as it comes, and what window_tiles needs; or, of a row,
 * sums of its holes. */
static size_t window_band_floats(const struct fill_cut *cut)
{
    return 16 * (size_t)cut->width;
}

size_t fill_scratch_bytes(const struct fill_cut *cut)
{
    const size_t bands = (size_t)fill_window_bands(cut) * window_band_floats(cut),
                 before = (bands + pull_room(cut->height, cut->width)) * sizeof(float),
                 after = window_blocks(cut) * fill_block_bytes(cut);
    return fill_window_align(before > after ? before : after);
}

void fill_window_place(struct fill_window *w, const struct fill_cut *cut, void *memory, void *scratch)
{
    const size_t pixels = (size_t)cut->pixels, height = (size_t)cut->height;
    *w = (struct fill_window){.cut = cut, .rgb = memory, .scratch = scratch};
    w->holes = (uint32_t *)(w->rgb + 3 * pixels);
    w->near = w->holes + pixels;
    w->hole_ends = (int *)(w->near + pixels);
    w->near_ends = w->hole_ends + height;
    w->lefts = w->near_ends + height;
    w->rights = w->lefts + height;
    w->grain = (struct fill_grain *)(w->rights + height);
    w->mask = (uint8_t *)(w->grain + window_blocks(cut));
}

/* Where the band that begins at y ends. */
static int window_band_end(const struct fill_window *w, int y)
{
    return y + PULL_BAND < w->cut->height ? y + PULL_BAND : w->cut->height;
}

static float *window_band_room(const struct fill_window *w, int y)
{
    return (float *)w->scratch + pull_room(w->cut->height, w->cut->width) +
           (size_t)(y / PULL_BAND) * window_band_floats(w->cut);
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

/* A row of RGB into planes, 0 in holes, and the weights of its pixels. */
static void window_split(const float *restrict row, const uint8_t *restrict holes, int count, size_t plane,
                         float *restrict rgb, float *restrict weight)
{
    float *restrict red = rgb, *restrict green = red + plane, *restrict blue = green + plane;
    for (int x = 0; x < count; x++) {
        const float known = holes[x] != WINDOW_HOLE;
        weight[x] = known;
        red[x] = known * row[3 * x];
        green[x] = known * row[3 * x + 1];
        blue[x] = known * row[3 * x + 2];
    }
}

int fill_inside(const struct fill_window *w, int y)
{
    const int there = w->picture->width - w->x, width = w->cut->width;
    return w->y + y >= w->picture->height ? 0 : there < width ? there : width;
}

_Static_assert(WINDOW_HOLE + 1 == WINDOW_INNER && WINDOW_INNER + 1 == WINDOW_SEEN, "window_holes counts them up");

static void window_holes(uint8_t *restrict holes, const uint8_t *restrict mask, int count)
{
    for (int x = 0; x < count; x++)
        holes[x] = (uint8_t)((mask[x] != 0) + (mask[x] >= FILL_SEEN) + (mask[x] == FILL_SEEN));
}

/* Which pixels of a row are holes: beyond a picture that is smaller there is nothing else. */
static void window_mask(struct fill_window *w, int y)
{
    const int width = w->cut->width, inside = fill_inside(w, y);
    uint8_t *holes = w->mask + (size_t)y * (size_t)width;
    if (inside)
        window_holes(holes, w->mask_of + (size_t)(w->y + y) * (size_t)w->picture->width + (size_t)w->x, inside);
    memset(holes + inside, WINDOW_HOLE, (size_t)(width - inside));
    w->lefts[y] = width;
    w->rights[y] = -1;
    w->hole_ends[y] = 0;
    for (size_t x = 0; (x = defect_clear(holes, x, (size_t)width)) < (size_t)width; x++)
        if (holes[x]) {
            w->lefts[y] = w->rights[y] < 0 ? (int)x : w->lefts[y];
            w->rights[y] = (int)x;
            w->hole_ends[y] += holes[x] == WINDOW_HOLE;
        }
}

void fill_begin(struct fill_window *w)
{
    pull_begin(&w->pull, w->cut->height, w->cut->width, w->scratch);
}

/* Some rows' columns from `from` to before `to`, pixel by pixel. */
static void window_pull(struct fill_window *w, int y, int end, int from, int to)
{
    const int width = w->cut->width;
    float *rgb = window_band_room(w, y), *row = rgb + 8 * (size_t)width;
    for (int i = y; i < end; i += 2) {
        const size_t rows = end - i < 2 ? 1 : 2, plane = rows * (size_t)width;
        for (size_t k = 0; k < rows; k++) {
            const int at = i + (int)k, there = fill_inside(w, at), last = there < to ? there : to,
                      inside = last > from ? last - from : 0;
            const uint8_t *holes = w->mask + (size_t)at * (size_t)width + from;
            float *out = rgb + k * (size_t)width + from;
            if (inside)
                repair_row(w->picture, w->y + at, w->x + from, inside, row);
            memset(row + 3 * inside, 0, 3 * sizeof *row * (size_t)(to - from - inside));
            window_split(row, holes, to - from, plane, out, out + 3 * plane);
        }
        pull_two_rows(&w->pull, i, rgb, rgb + 3 * plane, from, to);
    }
    pull_tiles(&w->pull, y, from, to);
}

static void window_or(uint8_t *restrict any, const uint8_t *restrict mask, int count)
{
    for (int x = 0; x < count; x++)
        any[x] |= mask[x];
}

static void window_sum(uint16_t *restrict sums, const uint8_t *restrict samples, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sums[i] = (uint16_t)(sums[i] + samples[i]);
}

/* Sets for each of a row's tiles whether a hole is in it or up to 4 px beside it. */
static void window_near_tiles(const struct fill_window *w, int y, uint8_t *near)
{
    const int width = w->cut->width, tiles = width / PULL_TILE;
    uint8_t *any = near + tiles;
    memset(near, 0, (size_t)(tiles + width));
    for (int i = y < 4 ? 0 : y - 4; i < y + PULL_TILE + 4 && i < w->cut->height; i++) {
        const int inside = fill_inside(w, i);
        if (inside)
            window_or(any, w->mask_of + (size_t)(w->y + i) * (size_t)w->picture->width + (size_t)w->x, inside);
        memset(any + inside, 1, (size_t)(width - inside));
    }
    for (int k = 0; k < width / 4; k++) {
        uint32_t four;
        memcpy(&four, any + 4 * (size_t)k, sizeof four);
        if (four) { /* a tile's half, beside a half of another */
            near[k / 2] = 1;
            near[k % 2 ? (k + 1) / 2 < tiles ? (k + 1) / 2 : k / 2 : k ? k / 2 - 1 : 0] = 1;
        }
    }
}

/* The sums of each column of eight rows of the picture. */
static void window_sums(const struct fill_window *w, int y, uint16_t *sums)
{
    const struct image *picture = w->picture;
    const size_t channels = (size_t)picture->channels, count = channels * (size_t)fill_inside(w, y);
    memset(sums, 0, count * sizeof *sums);
    for (int i = 0; i < PULL_TILE && w->y + y + i < picture->height; i++)
        window_sum(sums,
                   (const uint8_t *)picture->pixels +
                       channels * ((size_t)(w->y + y + i) * (size_t)picture->width + (size_t)w->x),
                   count);
}

/* The means of tiles that are known. In 8 bits they are exact, so that it does not matter what is added first. */
static void window_means(struct fill_window *w, int y, int from, int to, const uint16_t *sums)
{
    const size_t channels = (size_t)w->picture->channels;
    for (int x = from; x < to; x += PULL_TILE)
        for (size_t c = 0; c < 3; c++) {
            const uint16_t *at = sums + channels * (size_t)x + c % channels;
            int sum = 0;
            for (size_t i = 0; i < PULL_TILE; i++)
                sum += at[channels * i];
            *pull_tile(&w->pull, x, y, (int)c) = (float)sum / (PULL_TILE * PULL_TILE);
        }
    pull_known(&w->pull, y, from, to);
}

/* A row of tiles. Few of them have holes, or need their pixels. */
static void window_tiles(struct fill_window *w, int y, int end)
{
    const int width = w->cut->width;
    uint16_t *sums = (uint16_t *)(window_band_room(w, y) + 11 * (size_t)width);
    uint8_t *near = (uint8_t *)(sums + 3 * (size_t)width);
    if (width % PULL_TILE || end - y < PULL_TILE || w->picture->bits == 16) {
        window_pull(w, y, end, 0, width);
        return;
    }
    window_near_tiles(w, y, near);
    window_sums(w, y, sums);
    for (int x = 0, to; x < width; x = to) {
        const uint8_t here = near[x / PULL_TILE];
        for (to = x; to < width && near[to / PULL_TILE] == here;)
            to += PULL_TILE;
        if (here)
            window_pull(w, y, end, x, to);
        else
            window_means(w, y, x, to, sums);
    }
}

void fill_read(struct fill_window *w, int y, bool smooth)
{
    const int end = window_band_end(w, y);
    for (int i = y; i < end; i++)
        window_mask(w, i);
    for (int i = y; i < end && smooth; i += PULL_TILE)
        window_tiles(w, i, end - i < PULL_TILE ? end : i + PULL_TILE);
    if (smooth)
        pull_band(&w->pull, y);
}

bool fill_is_known(const struct fill_window *w)
{
    bool known = true;
    for (int y = 0; y < w->cut->height && known; y++) {
        const int inside = fill_inside(w, y);
        const uint8_t *mask = w->mask_of + (size_t)(w->y + y) * (size_t)w->picture->width + (size_t)w->x;
        for (int x = 0; x < inside; x++)
            known = known && !repair_is_hole(mask[x]);
    }
    return known;
}

/* ---- what is near holes ------------------------------------------------------------------------------------------ */

/* A row's columns that are at most REPAIR_FEATHER px from a hole, and perhaps others between. Without one, *from > *to.
 */
static void window_span(const struct fill_window *w, int y, int *from, int *to)
{
    const int width = w->cut->width, first = y > 2 ? y - 2 : 0,
              last = y + 2 < w->cut->height ? y + 2 : w->cut->height - 1;
    int left = width, right = -1;
    for (int i = first; i <= last; i++) {
        left = w->lefts[i] < left ? w->lefts[i] : left;
        right = w->rights[i] > right ? w->rights[i] : right;
    }
    *from = left > 2 ? left - 2 : 0;
    *to = right < 0 ? -1 : right + 2 < width ? right + 2 : width - 1;
}

/* The sum of each column of the mask's, of some rows. */
static void window_columns(const uint8_t *restrict mask, int width, int rows, int from, int to,
                           uint8_t *restrict column)
{
    for (int x = from; x <= to; x++)
        column[x] = mask[x];
    for (int y = 1; y < rows; y++)
        for (int x = from; x <= to; x++)
            column[x] = (uint8_t)(column[x] + mask[(size_t)y * (size_t)width + (size_t)x]);
}

/* The sum of each column's count and its neighbours' up to two columns away. */
static void window_across(const uint8_t *restrict column, int from, int to, uint8_t *restrict sum)
{
    for (int x = from; x <= to; x++)
        sum[x] = (uint8_t)(column[x - 2] + column[x - 1] + column[x] + column[x + 1] + column[x + 2]);
}

_Static_assert(REPAIR_FEATHER == 2, "window_across and window_near have five rows and columns");

/* The sum of the mask's 5 × 5 around a row's pixels, of which it is *rows rows, from *from to *to; NULL: all are 0. */
static const uint8_t *window_near(const struct fill_window *w, int y, int *from, int *to, int *rows)
{
    const int width = w->cut->width, first = y > 2 ? y - 2 : 0,
              last = y + 2 < w->cut->height ? y + 2 : w->cut->height - 1;
    uint8_t *column = (uint8_t *)window_band_room(w, y) + 2, *sum = column + width + 2 + 8;
    *rows = last - first + 1;
    window_span(w, y, from, to);
    if (*from > *to)
        return NULL;
    window_columns(w->mask + (size_t)first * (size_t)width, width, *rows, *from, *to, column);
    column[*from - 2] = column[*from - 1] = column[*to + 1] = column[*to + 2] = 0;
    window_across(column, *from, *to, sum);
    memset(sum + *to + 1, 0, 8);
    return sum;
}

int fill_block_of(const struct fill_window *w, int x, int y)
{
    const struct fill_cut *grain = w->cut->grain;
    return grain ? y / grain->core_height * grain->columns + x / grain->core_width : 0;
}

void fill_count(struct fill_window *w, bool smooth)
{
    if (smooth)
        pull_rest(&w->pull);
    for (int y = 1; y < w->cut->height; y++)
        w->hole_ends[y] += w->hole_ends[y - 1];
    w->hole_count = w->hole_ends[w->cut->height - 1];
}

void fill_spread(const struct fill_window *w, int y)
{
    _Static_assert(PULL_PUSHED == 2, "fill_list has the other");
    pull_push_band(&w->pull, PULL_PUSHED, y);
}

void fill_count_near(struct fill_window *w)
{
    for (int y = 1; y < w->cut->height; y++)
        w->near_ends[y] += w->near_ends[y - 1];
    w->near_count = w->near_ends[w->cut->height - 1];
}

void fill_list(struct fill_window *w, int y, bool smooth)
{
    const int width = w->cut->width, end = window_band_end(w, y);
    if (smooth)
        pull_push_band(&w->pull, 1, y);
    for (; y < end; y++) {
        int from, to, rows, count = fill_window_first(w->hole_ends, y);
        const uint8_t *holes = w->mask + (size_t)y * (size_t)width, *sum = window_near(w, y, &from, &to, &rows);
        for (size_t x = 0; count < w->hole_ends[y] && (x = defect_clear(holes, x, (size_t)width)) < (size_t)width; x++)
            if (holes[x] == WINDOW_HOLE)
                w->holes[count++] = (uint32_t)(y * width + (int)x);
        w->near_ends[y] = 0;
        for (size_t x = (size_t)from; sum && (x = defect_clear(sum, x, (size_t)to + 8)) <= (size_t)to; x++)
            w->near_ends[y] += sum[x] > 0;
    }
}

/* Lists what is near holes, of a band. */
static void window_list_near(const struct fill_window *w, int y, int end)
{
    const int width = w->cut->width;
    for (; y < end; y++) {
        int from = 0, to = 0, rows, count = fill_window_first(w->near_ends, y);
        const uint8_t *sum = count < w->near_ends[y] ? window_near(w, y, &from, &to, &rows) : NULL;
        for (size_t x = (size_t)from; sum && (x = defect_clear(sum, x, (size_t)to + 8)) <= (size_t)to; x++)
            if (sum[x])
                w->near[count++] = (uint32_t)(y * width + (int)x);
    }
}

/* A place stays as it is in the picture. */
static void window_keep(const struct fill_window *w, int at)
{
    float rgb[3];
    repair_row(w->picture, w->y + at / w->cut->width, w->x + at % w->cut->width, 1, rgb);
    for (int c = 0; c < 3; c++)
        w->rgb[c * w->cut->pixels + at] = rgb[c];
}

void fill_take(struct fill_window *w, int y)
{
    const int end = window_band_end(w, y);
    const int first = fill_window_first(w->near_ends, y), last = w->near_ends[end - 1];
    const float *from = w->result + 3 * (size_t)first;
    for (int i = first; i < last; i++) {
        for (int c = 0; c < 3; c++) {
            const float v = *from++, above = v > -1 ? v : -1;
            w->rgb[c * w->cut->pixels + (int)w->near[i]] = ((above < 1 ? above : 1) + 1) * 127.5f;
        }
        if (w->mask[w->near[i]] > WINDOW_HOLE)
            window_keep(w, (int)w->near[i]);
    }
}

/* ---- the fill ---------------------------------------------------------------------------------------------------- */

/* Makes the fill as smooth as its border allows: each hole's pixel tends to the mean of its neighbours (Laplace's
 * equation by successive over-relaxation). */
void fill_smooth(struct fill_window *w)
{
    const int width = w->cut->width, height = w->cut->height, pixels = w->cut->pixels;
    for (int sweep = 0; sweep < FILL_SWEEPS; sweep++)
        for (int i = 0; i < w->hole_count; i++) {
            const int at = (int)w->holes[i], x = at % width, y = at / width;
            if (x == 0 || y == 0 || x == width - 1 || y == height - 1)
                continue;
            for (int c = 0; c < 3; c++) {
                float *v = w->rgb + c * pixels + at;
                *v += FILL_RELAX * ((v[-1] + v[1] + v[-width] + v[width]) / 4 - *v);
            }
        }
}

/* What is known near a band's holes. */
static void window_known(const struct fill_window *w, int y, int end)
{
    for (int i = fill_window_first(w->near_ends, y); i < w->near_ends[end - 1]; i++)
        if (w->mask[w->near[i]] != WINDOW_HOLE)
            window_keep(w, (int)w->near[i]);
}

void fill_holes(struct fill_window *w, int y, bool blank)
{
    const int width = w->cut->width, end = window_band_end(w, y);
    window_list_near(w, y, end);
    if (w->plain)
        window_known(w, y, end);
    for (; y < end; y++)
        for (int i = fill_window_first(w->hole_ends, y); i < w->hole_ends[y]; i++) {
            const int at = (int)w->holes[i];
            float rgb[3] = {127.5f, 127.5f, 127.5f}; /* the network's 0 */
            if (w->plain || !blank)
                pull_hole(&w->pull, at - y * width, y, rgb);
            for (int c = 0; c < 3; c++)
                w->rgb[c * w->cut->pixels + at] = w->plain ? rgb[c] : rgb[c] / 127.5f - 1;
        }
}
