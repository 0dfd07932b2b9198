/* Grain: what a smooth fill lacks of it. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "server/pipeline/repair_private.h"

/* px from what is known: from here on a hole gets all of the grain, from FILL_GRAIN_FROM on some. */
#define FILL_GRAIN_FULL 8.0f

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

/* Distances, and rows of luminance. */
size_t fill_block_bytes(const struct fill_cut *cut)
{
    const struct fill_cut *of = cut->grain ? cut->grain : cut;
    return fill_window_align((size_t)of->pixels + 8 * (size_t)of->width * sizeof(float));
}

static void *grain_block_room(const struct fill_window *w, int block)
{
    return (char *)w->scratch + (size_t)block * fill_block_bytes(w->cut);
}

/* The luminance of some known pixels; of others it is not used. */
static void grain_light(const float *restrict row, float *restrict light, int count)
{
    for (int i = 0; i < count; i++)
        light[i] = 0.299f * row[3 * i] + 0.587f * row[3 * i + 1] + 0.114f * row[3 * i + 2];
}

#define GRAIN_STEPS 256 /* eighths */

/* How far a pixel is from the mean of its 3 × 3, in eighths: in whole ones, 255 at most. */
static inline int grain_step(const float *a, const float *b, const float *c)
{
    const float sum = a[-1] + a[0] + a[1] + b[-1] + b[0] + b[1] + c[-1] + c[0] + c[1];
    const float far = 8 * fabsf(b[0] - sum / 9);
    return far < 255 ? (int)far : 255;
}

static void grain_row_steps(const float *light, int stride, int count, uint8_t *restrict step)
{
    for (int x = 1; x < count - 1; x++)
        step[x] = (uint8_t)grain_step(light + x, light + stride + x, light + 2 * stride + x);
}

/* The median of steps, as the deviation of a bell curve. */
static float grain_median(const int counts[2][GRAIN_STEPS])
{
    int all = 0, below = 0;
    for (int i = 0; i < GRAIN_STEPS; i++)
        all += counts[0][i] + counts[1][i];
    for (int i = 0; i < GRAIN_STEPS; i++) {
        below += counts[0][i] + counts[1][i];
        if (all && 2 * below >= all)
            return (float)i / 8 * 1.4826f; /* the median of a bell curve's size is 0.6745 of its deviation */
    }
    return 0;
}

#define GRAIN_ROWS 4 /* of the known pixels the median is that of every fourth row: there are enough of them */

/* The grain of a part's known pixels: how far they are from the mean of their 3 × 3, which has no hole. */
static float grain_known(const struct fill_window *w, const struct grain_part *part, float *room)
{
    const int width = w->cut->width, many = part->width;
    float *light = room, *row = room + 3 * (size_t)many;
    uint8_t *step = (uint8_t *)(row + 3 * (size_t)many);
    int counts[2][GRAIN_STEPS] = {0}; /* in turns: neighbours are often alike */
    for (int y = 1; y < part->height - 1; y += GRAIN_ROWS) {
        const uint8_t *mask = w->mask + (size_t)(part->top + y) * (size_t)width + (size_t)part->left;
        for (int i = 0; i < 3; i++) {
            const int at = part->top + y + i - 1, there = fill_inside(w, at) - part->left,
                      inside = there < 0      ? 0
                               : there < many ? there
                                              : many;
            if (inside)
                repair_row(w->picture, w->y + at, w->x + part->left, inside, row);
            memset(row + 3 * inside, 0, 3 * sizeof *row * (size_t)(many - inside));
            grain_light(row, light + (size_t)i * (size_t)many, many);
        }
        grain_row_steps(light, many, many, step);
        for (int x = 1; x < many - 1; x++) {
            const uint8_t *a = mask - width + x, *b = mask + x, *c = mask + width + x;
            const int holes = a[-1] + a[0] + a[1] + b[-1] + b[0] + b[1] + c[-1] + c[0] + c[1];
            counts[x % 2][step[x]] += holes == 0;
        }
    }
    return grain_median(counts);
}

/* A part's holes of a row: from *first to *last of the list. */
static void grain_part_holes(const struct fill_window *w, const struct grain_part *part, int y, int *first, int *last)
{
    const uint32_t from = (uint32_t)((part->top + y) * w->cut->width + part->left), to = from + (uint32_t)part->width;
    *first = fill_window_first(w->hole_ends, part->top + y);
    *last = w->hole_ends[part->top + y];
    while (*first < *last && w->holes[*first] < from)
        ++*first;
    while (*last > *first && w->holes[*last - 1] >= to)
        --*last;
}

/* The grain of what a part's holes are filled with. */
static float grain_filled(const struct fill_window *w, const struct grain_part *part)
{
    const int pixels = w->cut->pixels, width = w->cut->width;
    int counts[2][GRAIN_STEPS] = {0};
    for (int y = 1, first, last; y < part->height - 1; y++) {
        grain_part_holes(w, part, y, &first, &last);
        for (int i = first; i < last; i++) {
            const int at = (int)w->holes[i], x = at % width - part->left;
            float light[9];
            if (x < 1 || x > part->width - 2)
                continue;
            for (int k = 0; k < 9; k++) {
                const float *v = w->rgb + at + (k / 3 - 1) * width + k % 3 - 1;
                light[k] = 0.299f * v[0] + 0.587f * v[pixels] + 0.114f * v[2 * pixels];
            }
            counts[x % 2][grain_step(light + 1, light + 4, light + 7)]++;
        }
    }
    return grain_median(counts);
}

#define GRAIN_FAR 254 /* farther than any distance that counts */

/* How far a hole's pixel is from what is known, in steps to any of eight neighbours, as far as the neighbours of one
 * half have it: those before it, then, with sign -1, those after it. Beyond the part nothing is known. */
static void grain_distance(uint8_t *far, const struct grain_part *part, int at, int sign)
{
    const int x = at % part->width, y = at / part->width;
    int least = far[at];
    for (int k = 0; k < 4; k++) {
        const int u = x + sign * (k < 3 ? k - 1 : -1), v = y - sign * (k < 3);
        if (u >= 0 && v >= 0 && u < part->width && v < part->height)
            least = far[v * part->width + u] + 1 < least ? far[v * part->width + u] + 1 : least;
    }
    far[at] = (uint8_t)least;
}

/* How far all of a part's holes are from what is known. */
static void grain_distances(const struct fill_window *w, const struct grain_part *part, uint8_t *far)
{
    const int width = w->cut->width;
    memset(far, 0, (size_t)part->width * (size_t)part->height);
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0, first, last; i < part->height; i++) {
            const int y = pass < 2 ? i : part->height - 1 - i, shift = (part->top + y) * width + part->left;
            grain_part_holes(w, part, y, &first, &last);
            for (int k = first; k < last; k++) {
                const int at = y * part->width + (int)w->holes[pass < 2 ? k : last - 1 - (k - first)] - shift;
                if (pass == 0)
                    far[at] = GRAIN_FAR;
                else
                    grain_distance(far, part, at, pass == 1 ? 1 : -1);
            }
        }
}

void fill_grain(struct fill_window *w, int block, bool far)
{
    const struct grain_part part = grain_part(w, block);
    w->grain[block] = atomic_load_explicit(&w->deep[block], memory_order_relaxed)
                          ? grain_known(w, &part, grain_block_room(w, block))
                          : 0;
    if (far && w->grain[block] > 0)
        grain_distances(w, &part, grain_block_room(w, block));
}

void fill_lack(struct fill_window *w, int block, bool far_known)
{
    if (w->grain[block] <= 0)
        return;
    const struct grain_part part = grain_part(w, block);
    const float own = w->plain ? 0 : grain_filled(w, &part), lack = w->grain[block] * w->grain[block] - own * own;
    w->grain[block] = lack > 0 ? sqrtf(lack) : 0;
    if (w->grain[block] > 0 && !far_known)
        grain_distances(w, &part, grain_block_room(w, block));
}

/* A block's part of a row. */
static void grain_roughen(struct fill_window *w, int block, int y)
{
    const struct grain_part part = grain_part(w, block);
    const int width = w->cut->width, pixels = w->cut->pixels;
    const uint8_t *far = grain_block_room(w, block);
    int first, last;
    grain_part_holes(w, &part, y - part.top, &first, &last);
    for (int i = first; i < last; i++) {
        const int at = (int)w->holes[i], x = at % width;
        const int away = far[(y - part.top) * part.width + x - part.left];
        const float inside = ((float)away - FILL_GRAIN_FROM) / (FILL_GRAIN_FULL - FILL_GRAIN_FROM);
        if (inside <= 0 || x < part.core_left || x >= part.core_right)
            continue;
        const float noise = w->grain[block] * fminf(inside, 1) * grain_noise(w->x + x, w->y + y);
        for (int c = 0; c < 3; c++)
            w->rgb[c * pixels + at] += noise;
    }
}

void fill_roughen(struct fill_window *w, int y)
{
    const struct fill_cut *grain = w->cut->grain;
    const int columns = grain ? grain->columns : 1, at = grain ? y / grain->core_height : 0,
              row = grain && at >= grain->rows ? grain->rows - 1 : at;
    for (int block = row * columns; block < (row + 1) * columns; block++)
        if (w->grain[block] > 0)
            grain_roughen(w, block, y);
}
