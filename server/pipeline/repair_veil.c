/* What can be seen through damage: under a stain or tape the picture is still there, with less contrast and another
 * colour. Such a veil is taken away rather than filled. Beside its border the picture is the same inside and outside
 * but for the veil: how much less rough it is inside says which share of the contrast is left, and the rest of what the
 * means of both sides differ by is the veil's colour, which is spread over the inside. The border itself, where the
 * veil begins and may be darker, is left to be filled. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair_private.h"

/* Distances from a veil's border, in px to the side or diagonally. */
#define VEIL_RIM 3  /* so wide a border is filled */
#define VEIL_IN 3   /* what is compared lies deeper than this inside, */
#define VEIL_OUT 2  /* farther than this outside, */
#define VEIL_BAND 6 /* and so far beyond that at most */
#define VEIL_FAR (VEIL_OUT + VEIL_BAND)
#define VEIL_DEEP (VEIL_IN + VEIL_BAND)

#define VEIL_CELL 16    /* px a side, in which both sides are summed */
#define VEIL_LEAST 32   /* pixels of a side, counted by their weights, of which each cell has 4; fewer say nothing */
#define VEIL_ROUGH 3.5f /* levels: what is smoother outside says nothing */
/* The share of the contrast that is left: of less, too little is seen; more has no veil. */
#define VEIL_DARKEST 0.4f
#define VEIL_LEAST_SEEN 0.25f /* of a channel */
#define VEIL_CLEAREST 1.05f
/* There is no veil, and no damage, if more than this is left and the colour is as far as that the same; or if it is so
 * at a good part of the border of a spot, which must end somewhere. */
#define VEIL_CLEAR 0.93f
#define VEIL_SAME 4.0f /* levels */
#define VEIL_OPEN 0.25f
#define VEIL_OPEN_SAME 3.0f
#define VEIL_OPEN_CELLS 6 /* at least */
/* How unlike the cells' quarters may be; how much more of the contrast may be left than by a veil of any colour that
 * makes so much lighter or darker, or the damage has a roughness of its own; and how much less than one that changes
 * the colour so, or the damage hides. Stains that take away light, such as tea, leave less of some channels. */
#define VEIL_UNEVEN 1.9f
#define VEIL_MORE 0.13f
#define VEIL_LESS 0.2f
/* The latter does not count where the outside has so many levels of roughness and the cells' quarters are so alike:
 * what hides, all over alike, would be smooth. */
#define VEIL_EVEN 1.5f
#define VEIL_ROUGH_EVEN 8.0f
/* The cells' means outside must differ by so many levels, and those inside be as like them as this correlation says, to
 * tell the contrast. */
#define VEIL_SPREAD 15.0
#define VEIL_SURE 0.35f /* of each channel: of less, too little is seen */
#define VEIL_LIKE 0.78
#define VEIL_ROUGHER 1.2f /* so many times as rough inside it is dirt */
#define VEIL_MANY 24      /* cells: of fewer, some are like each other by chance */
/* Levels: a picture's colours differ less if it has one tone; a veil's tint from that by more, or it says nothing. */
#define VEIL_TONE 4.0f
#define VEIL_TINT 6.0f
#define VEIL_TONE_FAR 12.0f /* of such a share of the picture, that has stains elsewhere, too */
#define VEIL_TONE_MOST 0.7f
#define VEIL_THICKEST 1.6f /* a veil inside beside what it is at its border */

/* What a cell has of one side of the border. */
struct veil_side {
    float count, rgb[3]; /* sums, as is the other */
    float rough[4];      /* squares of how far R, G, B and luminance are from the mean of four pixels 2 px away */
};

struct veil_cell {
    struct veil_side in, out, all; /* all: all that lies deep enough */
};

/* A piece of damage in its box of the picture. */
struct veil {
    const struct image *picture;
    const uint8_t *unknown;
    uint8_t *marked;      /* of the picture: the mask, in which pieces that were looked at have values of their own */
    struct image *lifted; /* the picture without veils; NULL: it has none yet */
    struct fill_piece piece;
    int columns, rows;    /* of the cells */
    uint8_t *deep, *away; /* of the box: how far inside, or outside, up to VEIL_DEEP + 1 or VEIL_FAR + 1 */
    struct veil_cell *cells;
    float contrast[3]; /* the share that is left */
    float tone[3][2];  /* how the picture differs from gray around it, and by how much more where it is lighter */
    bool toned;        /* there is no other there */
    bool clear;        /* there is nothing: the piece was taken for damage wrongly */
};

/* Values of the mask, besides the kinds': */
#define VEIL_PIECE 252 /* that is looked at */
#define VEIL_OVER 253  /* that was */

/* Of spots and stains: there is nothing under scratches and cracks, and what somebody has painted is to go. */
static bool veil_kind(uint8_t value)
{
    return value == 1 + DEFECT_DUST || value == 1 + DEFECT_STAIN;
}

static const uint8_t *veil_row(const struct veil *v, const uint8_t *plane, int y)
{
    return plane + (size_t)(v->piece.top + y) * (size_t)v->picture->width + (size_t)v->piece.left;
}

/* ---- what is inside and outside ---------------------------------------------------------------------------------- */

static void veil_add(struct veil_side *to, const struct veil_side *side, float weight)
{
    to->count += weight * side->count;
    for (int c = 0; c < 3; c++)
        to->rgb[c] += weight * side->rgb[c];
    for (int c = 0; c < 4; c++)
        to->rough[c] += weight * side->rough[c];
}

/* A pixel to the side that it lies on. rows: five of the box's pixels, this one's in the middle. */
static void veil_pixel(struct veil_side *side, const float *const rows[5], int x)
{
    const float *rgb = rows[2] + 3 * x;
    struct veil_side one = {.count = 1};
    float rough[4];
    for (int c = 0; c < 3; c++) {
        one.rgb[c] = rgb[c];
        rough[c] = rgb[c] - (rgb[c - 6] + rgb[c + 6] + rows[0][3 * x + c] + rows[4][3 * x + c]) / 4;
    }
    rough[3] = repair_luminance(rough, 1);
    for (int c = 0; c < 4; c++)
        one.rough[c] = rough[c] * rough[c];
    veil_add(side, &one, 1);
}

/* Sums both sides in the cells. ring: room for five rows of the box. */
static void veil_sum(struct veil *v, float *ring)
{
    const int width = v->piece.right - v->piece.left, height = v->piece.bottom - v->piece.top;
    for (int y = 0; y < height; y++) {
        repair_row(v->picture, v->piece.top + y, v->piece.left, width, ring + y % 5 * 3 * width);
        const int at = y - 2; /* the row whose neighbours are all there now */
        if (at < 2)
            continue;
        const float *rows[5];
        for (int i = 0; i < 5; i++)
            rows[i] = ring + (at + i - 2) % 5 * 3 * width;
        const uint8_t *deep = v->deep + (size_t)at * (size_t)width, *away = v->away + (size_t)at * (size_t)width,
                      *unknown = veil_row(v, v->unknown, at);
        for (int x = 2; x < width - 2; x++) {
            struct veil_cell *cell = &v->cells[at / VEIL_CELL * v->columns + x / VEIL_CELL];
            if (deep[x] > VEIL_DEEP)
                veil_pixel(&cell->all, rows, x);
            else if (deep[x] > VEIL_IN)
                veil_pixel(&cell->in, rows, x);
            else if (away[x] > VEIL_OUT && away[x] <= VEIL_FAR && !unknown[x])
                veil_pixel(&cell->out, rows, x);
        }
    }
}

/* Adds to each cell its neighbours, by half as much, and diagonal ones by a quarter. from: room for as many. */
static void veil_blur(struct veil *v, struct veil_cell *from)
{
    memcpy(from, v->cells, sizeof *from * (size_t)v->columns * (size_t)v->rows);
    for (int y = 0; y < v->rows; y++)
        for (int x = 0; x < v->columns; x++) {
            struct veil_cell *to = &v->cells[y * v->columns + x];
            *to = (struct veil_cell){0};
            for (int i = y > 0 ? y - 1 : 0; i <= y + 1 && i < v->rows; i++)
                for (int k = x > 0 ? x - 1 : 0; k <= x + 1 && k < v->columns; k++) {
                    const float weight = (i == y ? 2.0f : 1.0f) * (k == x ? 2.0f : 1.0f);
                    veil_add(&to->in, &from[i * v->columns + k].in, weight);
                    veil_add(&to->out, &from[i * v->columns + k].out, weight);
                    veil_add(&to->all, &from[i * v->columns + k].all, weight);
                }
            veil_add(&to->all, &to->in, 1);
        }
}

static bool veil_compares(const struct veil_cell *cell)
{
    return cell->in.count >= VEIL_LEAST && cell->out.count >= VEIL_LEAST;
}

static int veil_order(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Which share of the contrast a veil of any colour leaves at most that changes a light so. */
static float veil_most(float is, float was)
{
    return 1 - fabsf(is - was) / fmaxf(is > was ? 255 - was : was, 1);
}

/* The same of both sides' luminance; and, in *channel, of the channel that has least. */
static float veil_most_of(const struct veil_side *in, const struct veil_side *out, float *channel)
{
    *channel = 1;
    for (int c = 0; c < 3; c++)
        *channel = fminf(*channel, veil_most(in->rgb[c] / in->count, out->rgb[c] / out->count));
    return veil_most(repair_luminance(in->rgb, 1) / in->count, repair_luminance(out->rgb, 1) / out->count);
}

/* How far the colours of both sides differ. */
static float veil_step(const struct veil_side *in, const struct veil_side *out)
{
    float most = 0;
    for (int c = 0; c < 3; c++)
        most = fmaxf(most, fabsf(in->rgb[c] / in->count - out->rgb[c] / out->count));
    return most;
}

/* How much smoother a channel (3: luminance) is inside: sorted, of the cells that compare. */
static void veil_ratios(const struct veil *v, int channel, float *ratios)
{
    size_t count = 0;
    for (int i = 0; i < v->columns * v->rows; i++) {
        const struct veil_side *in = &v->cells[i].in, *out = &v->cells[i].out;
        if (veil_compares(&v->cells[i]))
            ratios[count++] =
                sqrtf(in->rough[channel] / in->count) / fmaxf(sqrtf(out->rough[channel] / out->count), 0.1f);
    }
    qsort(ratios, count, sizeof *ratios, veil_order);
}

/* How a side's colour differs from gray. Returns how light it is. */
static float veil_tint(const struct veil_side *side, float tint[3])
{
    const float light = repair_luminance(side->rgb, 1);
    for (int c = 0; c < 3; c++)
        tint[c] = (side->rgb[c] - light) / side->count;
    return light / side->count;
}

/* How the picture's colour around the piece differs from gray at a luminance. */
static float veil_tone_at(const struct veil *v, int c, float light)
{
    return v->tone[c][0] + v->tone[c][1] * light;
}

/* Whether most of the picture has that tone: of a colour picture only a part may have none. */
static bool veil_all_toned(const struct veil *v)
{
    enum { STEP = 8 };
    float row[3 * STEP];
    int near = 0, count = 0;
    for (int y = 0; y < v->picture->height; y += STEP)
        for (int x = 0; x + STEP <= v->picture->width; x += 2 * STEP) {
            struct veil_side mean = {.count = STEP};
            float tint[3], off = 0;
            repair_row(v->picture, y, x, STEP, row);
            for (int i = 0; i < 3 * STEP; i++)
                mean.rgb[i % 3] += row[i];
            const float light = veil_tint(&mean, tint);
            for (int c = 0; c < 3; c++)
                off = fmaxf(off, fabsf(tint[c] - veil_tone_at(v, c, light)));
            near += off < VEIL_TONE_FAR;
            count++;
        }
    return (float)near > VEIL_TONE_MOST * (float)count;
}

/* Sets the tone that the picture has around the piece, a line through the cells by least squares, and whether they are
 * near enough to it for any other tint inside to be the veil's. */
static void veil_tone(struct veil *v)
{
    double count = 0, light = 0, lights = 0, tints[3] = {0}, products[3] = {0}, squares = 0, all = 0;
    for (int i = 0; i < v->columns * v->rows; i++) {
        const struct veil_side *out = &v->cells[i].out;
        float own[3];
        if (!veil_compares(&v->cells[i]))
            continue;
        const float at = veil_tint(out, own);
        count += out->count;
        light += out->count * at;
        lights += out->count * at * at;
        for (int c = 0; c < 3; c++) {
            tints[c] += out->count * own[c];
            products[c] += out->count * at * own[c];
            squares += out->count * own[c] * own[c];
        }
    }
    const double spread = lights - light * light / count;
    for (int c = 0; c < 3; c++) {
        const double slope = (products[c] - light * tints[c] / count) / (spread + count); /* flat if all is alike */
        v->tone[c][1] = (float)slope;
        v->tone[c][0] = (float)((tints[c] - slope * light) / count);
        all += tints[c] * tints[c] / count + slope * (products[c] - light * tints[c] / count);
    }
    v->toned = squares - all < VEIL_TONE * VEIL_TONE * count && veil_all_toned(v);
}

/* The contrast that a channel's means inside have beside those outside, as a veil leaves it of what is light and dark
 * there; or `rough`, if these say little. Compressed colours are not rough: in them this is the better measure. *sure
 * becomes false if they do, or if that is no veil: what hides all is not like what is outside. */
static float veil_contrast(const struct veil *v, int c, float rough, bool *sure)
{
    int cells = 0;
    double count = 0, in = 0, out = 0, ins = 0, outs = 0, both = 0;
    for (int i = 0; i < v->columns * v->rows; i++) {
        const struct veil_cell *cell = &v->cells[i];
        if (!veil_compares(cell))
            continue;
        const double weight = fminf(cell->in.count, cell->out.count), x = cell->out.rgb[c] / cell->out.count,
                     y = cell->in.rgb[c] / cell->in.count;
        cells++;
        count += weight;
        out += weight * x;
        in += weight * y;
        outs += weight * x * x;
        ins += weight * y * y;
        both += weight * x * y;
    }
    outs = outs / count - out / count * out / count;
    ins = ins / count - in / count * in / count;
    both = both / count - in / count * out / count;
    const bool says = cells >= VEIL_MANY && outs > VEIL_SPREAD * VEIL_SPREAD && both > VEIL_LIKE * sqrt(outs * ins);
    const float share = says ? (float)sqrt(ins / outs) : rough;
    *sure = *sure && says && share > VEIL_SURE && share < VEIL_CLEAREST;
    return fminf(fmaxf(share, VEIL_LEAST_SEEN), 1);
}

/* Sets the contrasts. ratios: room for one of each cell. Returns whether the piece is to be lifted. */
static bool veil_judge(struct veil *v, float *ratios)
{
    struct veil_cell all = {0};
    size_t count = 0, same = 0;
    for (int i = 0; i < v->columns * v->rows; i++) {
        const struct veil_cell *cell = &v->cells[i];
        if (!veil_compares(cell))
            continue;
        veil_add(&all.in, &cell->in, 1);
        veil_add(&all.out, &cell->out, 1);
        same += veil_step(&cell->in, &cell->out) < VEIL_OPEN_SAME;
        count++;
    }
    if (count < 2)
        return false;
    bool sure = true;
    for (int c = 0; c < 3; c++) {
        veil_ratios(v, c, ratios);
        v->contrast[c] = veil_contrast(v, c, ratios[count / 2], &sure);
    }
    veil_ratios(v, 3, ratios);
    veil_tone(v);
    float channel;
    const float rough = sqrtf(all.out.rough[3] / all.out.count), share = ratios[count / 2],
                most = veil_most_of(&all.in, &all.out, &channel);
    const bool open = v->piece.kind == 1 + DEFECT_DUST && count >= VEIL_OPEN_CELLS &&
                      (float)same > VEIL_OPEN * (float)count && (share > VEIL_CLEAR || rough < VEIL_ROUGH);
    v->clear = open || (share > VEIL_CLEAR && veil_step(&all.in, &all.out) < VEIL_SAME);
    if (open || rough <= VEIL_ROUGH)
        return open;
    const bool even = rough > VEIL_ROUGH_EVEN && ratios[count * 3 / 4] < VEIL_EVEN * ratios[count / 4];
    return (sure && share < VEIL_ROUGHER) ||
           (share > VEIL_DARKEST && share < VEIL_CLEAREST && ratios[count * 3 / 4] < VEIL_UNEVEN * ratios[count / 4] &&
            share < most + VEIL_MORE && (share > channel - VEIL_LESS || even));
}

/* ---- without the veil -------------------------------------------------------------------------------------------- */

/* In a picture of one tone the veil's tint shows how thick it is: as that is in a cell. colour: as in veil_spread. */
static void veil_thickness(const struct veil *v, const struct veil_side *all, float *colour, size_t step)
{
    float mean[3], was[3], would[3], product = 0, square = 0;
    for (int c = 0; c < 3; c++) {
        mean[c] = all->rgb[c] / all->count;
        was[c] = (mean[c] - colour[(size_t)c * step]) / v->contrast[c];
    }
    const float light = repair_luminance(was, 1);
    for (int c = 0; c < 3; c++)
        would[c] = colour[(size_t)c * step] + v->contrast[c] * (light + veil_tone_at(v, c, light));
    const float seen = repair_luminance(mean, 1), made = repair_luminance(would, 1);
    for (int c = 0; c < 3; c++) {
        const float own = veil_tone_at(v, c, light), is = mean[c] - seen - own, may = would[c] - made - own;
        product += is * may;
        square += may * may;
    }
    if (square < VEIL_TINT * VEIL_TINT)
        return;
    const float thick = fminf(fmaxf(product / square, 0), VEIL_THICKEST);
    for (size_t c = 0; c < 3; c++) {
        colour[(3 + c) * step] = fmaxf(1 - thick * (1 - v->contrast[c]), VEIL_LEAST_SEEN);
        colour[c * step] *= thick;
    }
}

/* Of the cells, three planes of the veil's colour, and three of the contrast that it leaves. planes: room for another,
 * and for what pull_push needs. */
static void veil_spread(const struct veil *v, float *planes)
{
    const size_t cells = (size_t)v->columns * (size_t)v->rows;
    float *unknown = planes + 6 * cells;
    for (size_t i = 0; i < cells; i++) {
        const struct veil_cell *cell = &v->cells[i];
        const bool known = veil_compares(cell);
        unknown[i] = !known;
        for (size_t c = 0; c < 3; c++) {
            planes[(3 + c) * cells + i] = v->contrast[c];
            planes[c * cells + i] =
                known ? cell->in.rgb[c] / cell->in.count - v->contrast[c] * cell->out.rgb[c] / cell->out.count : 0;
        }
    }
    pull_push(planes, unknown, v->rows, v->columns, unknown + cells);
    for (size_t i = 0; i < cells && v->toned; i++)
        if (v->cells[i].all.count >= VEIL_LEAST)
            veil_thickness(v, &v->cells[i].all, planes + i, cells);
}

/* The cells' planes between their middles. */
static float veil_at(const float *plane, int columns, int rows, float x, float y)
{
    x = fminf(fmaxf(x, 0), (float)(columns - 1));
    y = fminf(fmaxf(y, 0), (float)(rows - 1));
    const int left = (int)x, top = (int)y, right = left + 1 < columns ? left + 1 : left,
              below = top + 1 < rows ? top + 1 : top;
    const float across = x - (float)left, down = y - (float)top;
    const float *upper = plane + top * columns, *lower = plane + below * columns;
    const float above = upper[left] + across * (upper[right] - upper[left]),
                under = lower[left] + across * (lower[right] - lower[left]);
    return above + down * (under - above);
}

static void veil_set(const struct image *image, size_t at, float value)
{
    const float v = fminf(fmaxf(value, 0), 255);
    if (image->bits == 16)
        ((uint16_t *)image->pixels)[at] = (uint16_t)lrintf(v * 257);
    else
        ((uint8_t *)image->pixels)[at] = (uint8_t)lrintf(v);
}

/* Takes the veil away from what is not its border; if there is none, nothing. row: room for one of the box. */
static void veil_lift(struct veil *v, const float *planes, float *row)
{
    const int width = v->piece.right - v->piece.left, height = v->piece.bottom - v->piece.top,
              cells = v->columns * v->rows, channels = v->picture->channels;
    for (int y = 0; y < height; y++) {
        const uint8_t *deep = v->deep + (size_t)y * (size_t)width;
        const size_t begin = (size_t)(v->piece.top + y) * (size_t)v->picture->width + (size_t)v->piece.left;
        repair_row(v->picture, v->piece.top + y, v->piece.left, width, row);
        for (int x = 0; x < width; x++) {
            if (deep[x] <= (v->clear ? 0 : VEIL_RIM))
                continue;
            v->marked[begin + (size_t)x] = FILL_SEEN;
            if (v->clear)
                continue;
            const float across = ((float)x + 0.5f) / VEIL_CELL - 0.5f, down = ((float)y + 0.5f) / VEIL_CELL - 0.5f;
            float rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = (row[3 * x + c] - veil_at(planes + c * cells, v->columns, v->rows, across, down)) /
                         veil_at(planes + (3 + c) * cells, v->columns, v->rows, across, down);
            const float light = repair_luminance(rgb, 1);
            for (int c = 0; c < channels; c++)
                veil_set(v->lifted, (begin + (size_t)x) * (size_t)channels + (size_t)c,
                         v->toned ? light + veil_tone_at(v, c, light) : rgb[c]);
        }
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* The piece that has that place. */
static enum error_code veil_piece(struct veil *v, int x, int y, struct fill_places *places, struct error *err)
{
    const bool found = fill_piece_collect(v->marked, v->picture->width, v->picture->height, x, y, VEIL_PIECE,
                                          VEIL_FAR + 2, &v->piece, places);
    const size_t width = (size_t)(v->piece.right - v->piece.left), height = (size_t)(v->piece.bottom - v->piece.top),
                 box = width * height;
    v->columns = (int)((width + VEIL_CELL - 1) / VEIL_CELL);
    v->rows = (int)((height + VEIL_CELL - 1) / VEIL_CELL);
    const size_t cells = (size_t)v->columns * (size_t)v->rows, rows = 5 * 3 * width,
                 planes = 7 * cells + pull_push_scratch(v->rows, v->columns);
    uint8_t *distances = mem_alloc(box, 2);
    struct veil_cell *both = mem_calloc(2 * cells, sizeof *both);
    float *room = mem_alloc(rows + planes, sizeof *room);
    const bool enough = found && distances && both && room;
    if (enough) {
        v->deep = distances;
        v->away = distances + box;
        v->cells = both;
        for (size_t i = 0; i < box; i++) {
            const bool piece = veil_row(v, v->marked, (int)(i / width))[i % width] == VEIL_PIECE;
            v->deep[i] = piece ? VEIL_DEEP + 1 : 0;
            v->away[i] = piece ? 0 : VEIL_FAR + 1;
        }
        fill_distances(v->deep, (int)width, (int)height);
        fill_distances(v->away, (int)width, (int)height);
        veil_sum(v, room);
        veil_blur(v, both + cells);
    }
    for (size_t i = 0; i < box && enough; i++) {
        uint8_t *at = v->marked + ((size_t)v->piece.top + i / width) * (size_t)v->picture->width +
                      (size_t)v->piece.left + i % width;
        *at = *at == VEIL_PIECE ? VEIL_OVER : *at;
    }
    const bool is = enough && veil_judge(v, room);
    enum error_code code = enough ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
    if (is && !v->lifted)
        code = fill_copy(v->picture, &v->lifted, err);
    if (is && code == OK) {
        if (!v->clear)
            veil_spread(v, room + rows);
        veil_lift(v, room + rows, room);
    }
    free(distances);
    free(both);
    free(room);
    return code;
}

static bool veil_wide(const uint8_t *mask, int width, int height, int x, int y)
{
    return veil_kind(mask[(size_t)y * (size_t)width + (size_t)x]) && fill_piece_wide(mask, width, height, x, y);
}

struct veil_look {
    const uint8_t *mask;
    int width, height;
    atomic_bool found;
};

/* A row of the grid, of whose places each square that is wide enough has one. */
static void veil_look_row(void *context, int item)
{
    struct veil_look *look = context;
    for (int x = 0; x < look->width; x += FILL_PIECE_SIDE)
        if (veil_wide(look->mask, look->width, look->height, x, item * FILL_PIECE_SIDE))
            atomic_store(&look->found, true);
}

/* Whether there is anything to see through: most masks have nothing that large. */
static bool veil_any(const uint8_t *mask, int width, int height)
{
    struct veil_look look = {.mask = mask, .width = width, .height = height};
    thread_for((height + FILL_PIECE_SIDE - 1) / FILL_PIECE_SIDE, veil_look_row, &look);
    return atomic_load(&look.found);
}

enum error_code fill_veils(const struct image *picture, const uint8_t *mask, const uint8_t *unknown,
                           struct image **lifted, uint8_t **marked, struct error *err)
{
    const int width = picture->width, height = picture->height;
    const size_t pixels = (size_t)width * (size_t)height;
    struct veil veil = {.picture = picture, .unknown = unknown};
    struct fill_places places = {0};
    enum error_code code = OK;
    const bool any = veil_any(mask, width, height);
    for (int y = 0; y < height && any && code == OK; y += FILL_PIECE_SIDE)
        for (int x = 0; x < width && code == OK; x += FILL_PIECE_SIDE) {
            if (!veil_wide(veil.marked ? veil.marked : mask, width, height, x, y))
                continue;
            if (!veil.marked && (veil.marked = mem_alloc(pixels, 1)))
                memcpy(veil.marked, mask, pixels);
            code = veil.marked ? veil_piece(&veil, x, y, &places, err)
                               : error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
        }
    free(places.list);
    if (code == OK && veil.lifted) {
        for (size_t i = 0; i < pixels; i++)
            veil.marked[i] = veil.marked[i] == FILL_SEEN ? FILL_SEEN : unknown[i];
    } else {
        image_destroy(&veil.lifted);
        free(veil.marked);
        veil.marked = NULL;
    }
    *lifted = veil.lifted;
    *marked = veil.marked;
    return code;
}
