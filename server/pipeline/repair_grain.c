/* Grain: what a fill lacks of it. What is around has grain as far as its calmest cells have it: structure is elsewhere.
 * How fine it is shows in how much more of it there is between pixels that are farther apart. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/pipeline/repair_private.h"

/* A bell curve of variance 1, the same for a place whenever it is asked for: four bytes of a hash (splitmix64). */
static float grain_noise(int x, int y)
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

/* Part of a window, which has a grain of its own: what is measured for it, and the core that gets it. */
struct grain_part {
    int left, top, width, height;
    int core_left, core_top, core_right, core_bottom;
};

static struct grain_part grain_part(const struct fill_window *w, int block)
{
    const struct fill_cut *cut = w->cut, *grain = cut->grain;
    struct grain_part part = {
        .width = cut->width, .height = cut->height, .core_right = cut->width, .core_bottom = cut->height};
    if (!grain)
        return part;
    const int column = block % grain->columns, row = block / grain->columns;
    part.left = fill_begin_at(column, grain->core_width, grain->width, w->picture->width);
    part.top = fill_begin_at(row, grain->core_height, grain->height, w->picture->height);
    part.width = cut->width - part.left < grain->width ? cut->width - part.left : grain->width;
    part.height = cut->height - part.top < grain->height ? cut->height - part.top : grain->height;
    part.core_left = column * grain->core_width;
    part.core_top = row * grain->core_height;
    part.core_right = column + 1 < grain->columns ? part.core_left + grain->core_width : cut->width;
    part.core_bottom = row + 1 < grain->rows ? part.core_top + grain->core_height : cut->height;
    return part;
}

#define GRAIN_CELL 8
#define GRAIN_RING 16 /* rows of luminance: those of a cell, and two more on both sides */

/* A cell's place in its part, its luminance, and how far its pixels are from the mean of their four neighbours, one px
 * from them, and two. */
struct grain_cell {
    int x, y;
    float light, near, far;
};

/* Rows of luminance, one as it comes, and three of sums; which columns have a hole; the cells. */
size_t fill_block_bytes(const struct fill_cut *cut)
{
    const struct fill_cut *of = cut->grain ? cut->grain : cut;
    const size_t width = (size_t)of->width, height = (size_t)of->height;
    return fill_window_align(width * (GRAIN_RING + 3 + 3) * sizeof(float) +
                             (width / GRAIN_CELL) * (height / GRAIN_CELL) * sizeof(struct grain_cell) + width);
}

static float *grain_block_room(const struct fill_window *w, int block)
{
    return (float *)((char *)w->scratch + (size_t)block * fill_block_bytes(w->cut));
}

/* ---- how much there is ------------------------------------------------------------------------------------------- */

#define GRAIN_STEPS 1024 /* of 1/32 level */

/* How many cells or pixels are how rough. */
struct grain_counts {
    int of[GRAIN_STEPS], all;
};

static void grain_count(struct grain_counts *counts, float rough)
{
    const float step = rough * 32;
    counts->of[step < GRAIN_STEPS - 1 ? (int)step : GRAIN_STEPS - 1]++;
    counts->all++;
}

/* What one of so many of them does not reach. */
static float grain_calmest(const struct grain_counts *counts, int many)
{
    int below = 0, i = 0;
    while (i < GRAIN_STEPS - 1 && many * (below += counts->of[i]) < counts->all)
        i++;
    return ((float)i + 0.5f) / 32;
}

/* Adds a row to sums: the luminance, and how rough it is. */
static void grain_row_sums(const float *const restrict rows[5], int count, float *restrict light, float *restrict near,
                           float *restrict far)
{
    const float *restrict a = rows[0], *restrict b = rows[1], *restrict c = rows[2], *restrict d = rows[3],
                          *restrict e = rows[4];
    for (int x = 2; x < count - 2; x++) {
        light[x] += c[x];
        near[x] += fabsf(c[x] - (c[x - 1] + c[x + 1] + b[x] + d[x]) / 4);
        far[x] += fabsf(c[x] - (c[x - 2] + c[x + 2] + a[x] + e[x]) / 4);
    }
}

/* A row of a part's luminance: 0 beyond the picture, where all are holes. */
static void grain_light(const struct fill_window *w, const struct grain_part *part, int y, float *row, float *light)
{
    const int there = fill_inside(w, part->top + y) - part->left, many = part->width,
              inside = there < 0      ? 0
                       : there < many ? there
                                      : many;
    if (inside)
        repair_row(w->picture, w->y + part->top + y, w->x + part->left, inside, row);
    for (int i = 0; i < inside; i++)
        light[i] = repair_luminance(row + 3 * i, 1);
    memset(light + inside, 0, sizeof *light * (size_t)(many - inside));
}

static void grain_or(uint8_t *restrict any, const uint8_t *restrict mask, int count)
{
    for (int x = 0; x < count; x++)
        any[x] |= mask[x];
}

/* How far from black and white a cell is that has all of its grain. */
#define GRAIN_CLIPPED 8

/* Adds the cells of eight rows that have no hole, nor one up to two px beside them. holes: room for a row. Returns how
 * many there are. */
static int grain_cells(const struct fill_window *w, const struct grain_part *part, int y, float *room, uint8_t *holes,
                       struct grain_cell *cells)
{
    const int many = part->width;
    float *sums = room + (GRAIN_RING + 3) * many;
    int count = 0;
    memset(sums, 0, 3 * (size_t)many * sizeof *sums);
    memset(holes, 0, (size_t)many);
    for (int i = y - 2; i < y + GRAIN_CELL + 2; i++)
        grain_or(holes, w->mask + (part->top + i) * w->cut->width + part->left, many);
    for (int i = y; i < y + GRAIN_CELL; i++) {
        const float *rows[5];
        for (int k = 0; k < 5; k++)
            rows[k] = room + (i + k - 2) % GRAIN_RING * many;
        grain_row_sums(rows, many, sums, sums + many, sums + 2 * many);
    }
    for (int x = 2; x + GRAIN_CELL + 2 <= many; x += GRAIN_CELL) {
        float cell[3] = {0};
        bool known = true;
        for (int i = x - 2; i < x + GRAIN_CELL + 2; i++)
            known = known && !holes[i];
        for (int k = 0; k < 3 && known; k++)
            for (int i = x; i < x + GRAIN_CELL; i++)
                cell[k] += sums[k * many + i] / (GRAIN_CELL * GRAIN_CELL);
        if (!known || cell[0] < GRAIN_CLIPPED || cell[0] > 255 - GRAIN_CLIPPED)
            continue;
        cells[count++] = (struct grain_cell){x, y, cell[0], cell[1], cell[2]};
    }
    return count;
}

/* The variance of a pixel's distance from the mean of its neighbours `apart` px away, of grain of variance 1 that is as
 * white noise blurred by `blur` px. */
static float grain_variance(float blur, float apart)
{
    const float like = expf(-apart * apart / fmaxf(4 * blur * blur, 1e-6f)), square = like * like;
    return 1.25f - 2 * like + square / 2 + square * square / 4; /* at 1, sqrt 2 and 2 times the distance */
}

#define GRAIN_BLUR 2.0f
#define GRAIN_CELLS 16     /* fewer say nothing */
#define GRAIN_BELL 1.2533f /* a bell curve's deviation by its mean size */
#define GRAIN_CALM 1.09f   /* a cell's roughness by that of the calmest tenth: 1.09 of white noise, 1.13 of blurred */
#define GRAIN_QUARTER 0.3186f /* a quarter of a bell curve is nearer than this to its middle */
/* Deviations: below the first, nobody sees grain, and what looks like it is structure or a camera's noise; all of it is
 * added from the second on. */
#define GRAIN_FAINT 1.0f
#define GRAIN_CLEAR 2.0f
#define GRAIN_LEAST 0.25f /* less of it is not worth its time */
/* How rough the calmest fiftieth of the cells is beside the calmest tenth. Grain is nearly as rough in all cells that
 * have no structure: 0.9, if it is blurred by 1.2 px 0.84 and more, less among structure and where JPEG has taken some
 * of it; structure alone has 0.2 to 0.7. By so much less it is grain for certain, or not at all. */
#define GRAIN_EVEN(blur) (0.9f - 0.05f * (blur))
#define GRAIN_SURE 0.07f
#define GRAIN_UNSURE 0.14f
/* A tone whose cells are less even, or so many times as rough as the calmest one's, has structure. */
#define GRAIN_TONE_EVEN 0.7f
#define GRAIN_TONE_MOST 3.0f

/* Which eighth a luminance lies in. */
static int grain_tone_of(float light)
{
    return light < 255 ? (int)(light * GRAIN_TONES / 256) : GRAIN_TONES - 1;
}

/* How much grain there is at a luminance. */
static float grain_tone(const struct fill_grain *grain, float light)
{
    const float at = fminf(fmaxf(light * GRAIN_TONES / 256 - 0.5f, 0), GRAIN_TONES - 1);
    const int from = (int)at, to = from + 1 < GRAIN_TONES ? from + 1 : from;
    return grain->tones[from] + (at - (float)from) * (grain->tones[to] - grain->tones[from]);
}

/* Sets `tones`: those that say nothing are as the nearest that does. */
static void grain_tones(const struct grain_cell *cells, int count, struct fill_grain *grain)
{
    struct grain_counts counts[GRAIN_TONES] = {0};
    float calmest[GRAIN_TONES] = {0}, least = 0, sum = 0;
    for (int i = 0; i < count; i++)
        grain_count(&counts[grain_tone_of(cells[i].light)], cells[i].far);
    for (int k = 0; k < GRAIN_TONES; k++) {
        const float calm = grain_calmest(&counts[k], 10);
        if (counts[k].all >= GRAIN_CELLS && grain_calmest(&counts[k], 50) >= GRAIN_TONE_EVEN * calm)
            calmest[k] = calm;
        least = calmest[k] > 0 && (least == 0 || calmest[k] < least) ? calmest[k] : least;
    }
    int all = 0;
    for (int k = 0; k < GRAIN_TONES; k++) {
        calmest[k] = calmest[k] <= GRAIN_TONE_MOST * least ? calmest[k] : 0;
        sum += calmest[k] > 0 ? calmest[k] * (float)counts[k].all : 0;
        all += calmest[k] > 0 ? counts[k].all : 0;
    }
    for (int k = 0; k < GRAIN_TONES; k++) {
        int nearest = -1;
        for (int i = 0; i < GRAIN_TONES; i++)
            if (calmest[i] > 0 && (nearest < 0 || abs(i - k) < abs(nearest - k)))
                nearest = i;
        grain->tones[k] = nearest < 0 ? 1 : calmest[nearest] * (float)all / sum;
    }
}

/* A screen of dots, as prints in newspapers and books have it, is as rough as grain, but not by chance: how far two
 * pixels differ rises and falls with their distance, where grain has it the same from two px on. */
#define SCREEN_FROM 2.0f  /* the least deviation that is looked at */
#define SCREEN_CALM 1.15f /* cells so many times as rough as the calmest tenth are looked at */
#define SCREEN_CELLS 128  /* of them, so many at most */
#define SCREEN_APART 12   /* px */
/* The least difference beside the greatest one of pixels nearer together: 0.95 and more of grain; screens have 0.1 to
 * 0.9, by how much grain there is on them. */
#define SCREEN_NONE 0.92f
#define SCREEN_SURE 0.77f

/* A cell's differences, to the right and downwards: adds their squares by distance, and their number. Pixels in holes
 * count for nothing. */
static void grain_screen_cell(const struct fill_window *w, const struct grain_part *part, const struct grain_cell *cell,
                              float squares[2][SCREEN_APART + 1], int counts[2][SCREEN_APART + 1])
{
    enum { SIDE = GRAIN_CELL + SCREEN_APART };
    float light[SIDE][SIDE], row[3 * SIDE];
    const int width = part->width - cell->x < SIDE ? part->width - cell->x : SIDE,
              height = part->height - cell->y < SIDE ? part->height - cell->y : SIDE;
    for (int y = 0; y < height; y++) {
        const int top = part->top + cell->y + y, left = part->left + cell->x;
        const uint8_t *hole = w->mask + top * w->cut->width + left;
        const int there = fill_inside(w, top) - left, inside = there < 0 ? 0 : there < width ? there : width;
        if (inside)
            repair_row(w->picture, w->y + top, w->x + left, inside, row);
        for (int x = 0; x < SIDE; x++)
            light[y][x] = x < inside && !hole[x] ? repair_luminance(row + 3 * x, 1) : -1;
    }
    for (int y = 0; y < GRAIN_CELL; y++)
        for (int x = 0; x < GRAIN_CELL; x++)
            for (int apart = 2; apart <= SCREEN_APART; apart++) {
                const float other[2] = {light[y][x + apart], y + apart < height ? light[y + apart][x] : -1};
                for (int k = 0; k < 2; k++)
                    if (other[k] >= 0) {
                        squares[k][apart] += (light[y][x] - other[k]) * (light[y][x] - other[k]);
                        counts[k][apart]++;
                    }
            }
}

/* How sure it is that cells have no screen, from 0 to 1. */
static float grain_no_screen(const struct fill_window *w, const struct grain_part *part, const struct fill_grain *grain,
                             const struct grain_cell *cells, int count, float calmest)
{
    float squares[2][SCREEN_APART + 1] = {0}, least = 1;
    int counts[2][SCREEN_APART + 1] = {0}, calm = 0, seen = 0;
    for (int pass = 0; pass < 2; pass++) {
        const int every = calm / SCREEN_CELLS + 1; /* spread over all of the part */
        for (int i = 0; i < count; i++) {
            if (cells[i].far > SCREEN_CALM * calmest * grain_tone(grain, cells[i].light))
                continue;
            if (!pass)
                calm++;
            else if (seen++ % every == 0)
                grain_screen_cell(w, part, &cells[i], squares, counts);
        }
    }
    for (int k = 0; k < 2; k++) {
        float most = 0;
        for (int apart = 2; apart <= SCREEN_APART; apart++) {
            const float mean = squares[k][apart] / fmaxf((float)counts[k][apart], 1);
            if (!counts[k][apart])
                continue;
            least = most > 0 ? fminf(least, mean / most) : least;
            most = fmaxf(most, mean);
        }
    }
    return fminf(fmaxf((least - SCREEN_SURE) / (SCREEN_NONE - SCREEN_SURE), 0), 1);
}

/* The grain of a part's known pixels. */
static struct fill_grain grain_known(const struct fill_window *w, const struct grain_part *part, float *room)
{
    struct grain_counts near = {0}, far = {0};
    struct fill_grain grain = {0};
    struct grain_cell *cells = (struct grain_cell *)(room + (GRAIN_RING + 3 + 3) * part->width);
    uint8_t *holes = (uint8_t *)(cells + (part->width / GRAIN_CELL) * (part->height / GRAIN_CELL));
    int read = 0, count = 0;
    for (int y = 2; y + GRAIN_CELL + 2 <= part->height; y += GRAIN_CELL) {
        for (; read < y + GRAIN_CELL + 2; read++)
            grain_light(w, part, read, room + GRAIN_RING * part->width, room + read % GRAIN_RING * part->width);
        count += grain_cells(w, part, y, room, holes, cells + count);
    }
    if (count < GRAIN_CELLS) {
        grain.rough = -1;
        return grain;
    }
    grain_tones(cells, count, &grain);
    for (int i = 0; i < count; i++) {
        const float tone = grain_tone(&grain, cells[i].light);
        grain_count(&near, cells[i].near / tone);
        grain_count(&far, cells[i].far / tone);
    }
    float variances[2], low = 0, high = GRAIN_BLUR;
    for (int i = 0; i < 2; i++) {
        const float deviation = GRAIN_BELL * GRAIN_CALM * grain_calmest(i ? &far : &near, 10);
        variances[i] = fmaxf(deviation * deviation - 1.25f / 12, 0); /* without what rounding adds */
    }
    for (int i = 0; i < 12; i++) {
        const float blur = (low + high) / 2;
        if (variances[1] * grain_variance(blur, 1) > variances[0] * grain_variance(blur, 2))
            low = blur;
        else
            high = blur;
    }
    const float all = sqrtf(variances[1] / grain_variance(low, 2)),
                seen = (all - GRAIN_FAINT) / (GRAIN_CLEAR - GRAIN_FAINT),
                even = grain_calmest(&far, 50) / grain_calmest(&far, 10),
                sure = (even - GRAIN_EVEN(low) + GRAIN_UNSURE) / (GRAIN_UNSURE - GRAIN_SURE);
    float deviation = all * fminf(fmaxf(seen, 0), 1) * fminf(fmaxf(sure, 0), 1);
    if (deviation > SCREEN_FROM)
        deviation *= grain_no_screen(w, part, &grain, cells, count, grain_calmest(&far, 10));
    grain.deviation = deviation < GRAIN_LEAST ? 0 : deviation;
    grain.blur = low;
    grain.rough = sqrtf(variances[1]);
    return grain;
}

/* A part's holes of a row, or what is near them: from *first to *last of the list. */
static void grain_part_places(const struct fill_window *w, const struct grain_part *part, const uint32_t *places,
                              const int *ends, int y, int *first, int *last)
{
    const uint32_t from = (uint32_t)((part->top + y) * w->cut->width + part->left), to = from + (uint32_t)part->width;
    *first = fill_window_first(ends, part->top + y);
    *last = ends[part->top + y];
    while (*first < *last && places[*first] < from)
        ++*first;
    while (*last > *first && places[*last - 1] >= to)
        --*last;
}

static bool grain_any_hole(const struct fill_window *w, const struct grain_part *part)
{
    bool any = false;
    for (int y = 0, first, last; y < part->height && !any; y++) {
        grain_part_places(w, part, w->near, w->near_ends, y, &first, &last);
        for (int i = first; i < last && !any; i++)
            any = w->mask[w->near[i]] != 0;
    }
    return any;
}

void fill_grain(struct fill_window *w, int block)
{
    const struct grain_part part = grain_part(w, block);
    w->grain[block] =
        grain_any_hole(w, &part) ? grain_known(w, &part, grain_block_room(w, block)) : (struct fill_grain){0};
}

void fill_grain_known(struct fill_window *windows, int count, struct fill_grain *last)
{
    for (int pass = 0; pass < 2; pass++) /* the second is for those before the first that is known */
        for (int i = 0; i < count; i++) {
            struct fill_window *w = &windows[pass ? count - 1 - i : i];
            const int blocks = fill_window_blocks(w->cut);
            for (int k = 0; k < blocks; k++) {
                struct fill_grain *grain = &w->grain[pass ? blocks - 1 - k : k];
                if (grain->rough > 0)
                    *last = *grain;
                else if (grain->rough < 0 && last->rough > 0)
                    *grain = *last;
            }
        }
}

/* ---- what a fill lacks ------------------------------------------------------------------------------------------- */

/* Of a part's fill, how rough its holes are, and how far from what was there it is beside them: what it takes away. */
static void grain_filled(const struct fill_window *w, const struct grain_part *part, const struct fill_grain *grain,
                         float *holes, float *taken)
{
    const int pixels = w->cut->pixels, width = w->cut->width;
    struct grain_counts counts[2] = {0};
    for (int y = 2, first, last; y < part->height - 2; y++) {
        grain_part_places(w, part, w->near, w->near_ends, y, &first, &last);
        for (int i = first; i < last; i++) {
            const int at = (int)w->near[i], x = at % width - part->left;
            const bool hole = w->mask[at] == WINDOW_HOLE;
            const float *v = w->rgb + at, light = repair_luminance(v, pixels);
            float was[3], rough = light;
            if (x < 2 || x > part->width - 3 || w->mask[at] > WINDOW_HOLE)
                continue;
            if (hole) {
                rough -= (repair_luminance(v - 2, pixels) + repair_luminance(v + 2, pixels) +
                          repair_luminance(v - 2 * width, pixels) + repair_luminance(v + 2 * width, pixels)) /
                         4;
            } else {
                repair_row(w->picture, w->y + part->top + y, w->x + at % width, 1, was);
                rough -= repair_luminance(was, 1);
            }
            grain_count(&counts[hole], fabsf(rough) / grain_tone(grain, light));
        }
    }
    *holes = counts[1].all ? grain_calmest(&counts[1], 4) / GRAIN_QUARTER : 0;
    *taken = counts[0].all ? grain_calmest(&counts[0], 4) / GRAIN_QUARTER : 0;
}

/* The kernel that blurs white noise so far and leaves its variance. */
static void grain_kernel(struct fill_grain *grain)
{
    float squares = 0;
    grain->radius = 0;
    for (int i = 0; i <= GRAIN_RADIUS; i++) {
        grain->kernel[i] = expf(-(float)(i * i) / fmaxf(2 * grain->blur * grain->blur, 1e-6f));
        squares += (i ? 2 : 1) * grain->kernel[i] * grain->kernel[i];
        if (grain->kernel[i] > 0.02f)
            grain->radius = i;
    }
    for (int i = 0; i <= GRAIN_RADIUS; i++)
        grain->kernel[i] /= sqrtf(squares);
}

void fill_lack(struct fill_window *w, int block)
{
    struct fill_grain *grain = &w->grain[block];
    if (grain->deviation <= 0)
        return;
    const struct grain_part part = grain_part(w, block);
    float holes = 0, taken = 0;
    if (!w->plain)
        grain_filled(w, &part, grain, &holes, &taken);
    const float own = holes / fmaxf(grain->rough, 0.01f);
    grain->lack[0] = grain->deviation * sqrtf(fmaxf(1 - own * own, 0));
    taken = fminf(taken, grain->deviation);
    for (int away = 1; away <= REPAIR_FEATHER; away++) { /* mixed with what was there */
        const float share = 1 - (float)away / (REPAIR_FEATHER + 1);
        grain->lack[away] = taken * sqrtf(1 - (1 - share) * (1 - share)) / share;
    }
    grain_kernel(grain);
}

static float grain_column(const struct fill_grain *grain, int x, int y)
{
    float sum = grain->kernel[0] * grain_noise(x, y);
    for (int i = 1; i <= grain->radius; i++)
        sum += grain->kernel[i] * (grain_noise(x, y - i) + grain_noise(x, y + i));
    return sum;
}

float fill_grain_at(struct fill_grain_row *row, int x, int away, float light)
{
    const struct fill_window *w = row->w;
    const struct fill_grain *grain = &w->grain[fill_block_of(w, x - w->x, row->y - w->y)];
    const uint8_t mask = w->mask[(row->y - w->y) * w->cut->width + x - w->x];
    if (grain->deviation <= 0 || mask == WINDOW_SEEN) /* what was seen has its own */
        return 0;
    const int count = 2 * grain->radius + 1;
    const bool next = grain == row->grain && x == row->x + 1;
    memmove(row->columns, row->columns + 1, sizeof *row->columns * (size_t)(count - 1));
    for (int i = next ? count - 1 : 0; i < count; i++)
        row->columns[i] = grain_column(grain, x + i - grain->radius, row->y);
    row->grain = grain;
    row->x = x;
    float sum = 0;
    for (int i = 0; i < count; i++)
        sum += grain->kernel[abs(i - grain->radius)] * row->columns[i];
    return (mask == WINDOW_INNER ? grain->deviation /* it has none */ : grain->lack[away]) * grain_tone(grain, light) *
           sum;
}
