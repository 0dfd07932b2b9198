/* What the files of the fill share: its windows (repair_window.c, repair_grain.c), what is seen through damage
 * (repair_veil.c, repair_piece.c) or deep in holes (repair_inner.c), and the pixels that change (repair_change.c).
 * Thread-safety: as step.h; different windows may be worked on by different threads. */
#ifndef SERVER_PIPELINE_REPAIR_PRIVATE_H
#define SERVER_PIPELINE_REPAIR_PRIVATE_H

#include <stdatomic.h>

#include "server/image/colour.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair.h"

/* In a mask: what was seen through damage, and a hole that is filled before. Both are known to what fills the others.
 */
#define FILL_SEEN 254
#define FILL_INNER 255

static inline bool repair_is_hole(uint8_t value)
{
    return value && value < FILL_SEEN;
}

/* The same in a window's mask. */
enum { WINDOW_HOLE = 1, WINDOW_INNER, WINDOW_SEEN };

/* How a picture is cut: windows of one size, each around a core with an eighth of it on all sides. Two cores are
 * blended `blend` px to both sides of their border. */
struct fill_cut {
    int width, height, core_width, core_height, blend, pixels;
    int columns, rows;            /* of cores */
    const struct fill_cut *grain; /* of a single window: the cores that have a grain each; NULL: each window has one */
};

/* The luminance of a pixel of planes (BT.601). */
static inline float repair_luminance(const float *rgb, int plane)
{
    return 0.299f * rgb[0] + 0.587f * rgb[plane] + 0.114f * rgb[2 * plane];
}

#define GRAIN_RADIUS 5 /* px */
#define GRAIN_TONES 8

/* A block's grain, on the 8-bit scale. Prints have more of it in some tones: at each there is `tones` as much as this
 * says, which is 1 on the mean. */
struct fill_grain {
    float tones[GRAIN_TONES]; /* at the middle of each eighth of the scale */
    float deviation, blur;    /* around the holes: as white noise blurred by so many px; 0: none to be added */
    float rough;              /* deviation of a pixel from the mean of its four neighbours two px away; -1: unknown */
    float lack[REPAIR_FEATHER + 1]; /* deviation: of holes, of what is one px from them, and so on */
    float kernel[GRAIN_RADIUS + 1];
    int radius;
};

/* A window at work. Colours are three planes of its size, of which what is near holes alone is set: on the 8-bit scale;
 * of holes that the network gets, from -1 to 1. */
struct fill_window {
    const struct fill_cut *cut;
    const struct image *picture;
    const uint8_t *mask_of; /* the picture's */
    int x, y, column, row;  /* of the picture; of the grid */
    bool plain;             /* the network does not get it */
    float *rgb;
    uint8_t *mask;          /* WINDOW_HOLE and so on; else 0 */
    const float *result;    /* of the network: three values, from -1 to 1, for each of `near` */
    uint32_t *holes, *near; /* places in order: of holes; of the mask and what is up to REPAIR_FEATHER px from it */
    int hole_count, near_count;
    int *hole_ends, *near_ends; /* of each row */
    int *lefts,
        *rights; /* of each row, the columns of its first hole and of its last; beyond each other: it has none */
    struct fill_grain *grain; /* of each block */
    struct pull pull;         /* of what is known */
    void *scratch;
};

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Into windows of so many px a side (0: as suits networks that take any). */
struct fill_cut fill_cut(int side, int width, int height);
/* Into one, with multiples of `cell` px; grain: its cut into smaller ones. */
struct fill_cut fill_cut_whole(int cell, int width, int height, const struct fill_cut *grain);

/* Where a core's window begins. */
int fill_begin_at(int core, int core_side, int side, int length);

/* Bytes of what a window has for itself, and of what one that is being prepared or finished needs besides; and the
 * window that has them. */
size_t fill_window_bytes(const struct fill_cut *cut);
size_t fill_scratch_bytes(const struct fill_cut *cut);
void fill_window_place(struct fill_window *w, const struct fill_cut *cut, void *memory, void *scratch);

/* How many columns of a row of the window lie in the picture. */
int fill_inside(const struct fill_window *w, int y);

/* The first of a row's holes, or of what is near holes. */
static inline int fill_window_first(const int *ends, int y)
{
    return y ? ends[y - 1] : 0;
}

static inline size_t fill_window_align(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

/* Whether there is nothing for a network to fill. */
bool fill_is_known(const struct fill_window *w);

/* Bands of PULL_BAND rows and blocks of one window may be worked on by different threads; y: where a band begins. In
 * this order, each for all bands: */
int fill_window_bands(const struct fill_cut *cut);
int fill_window_blocks(const struct fill_cut *cut);
void fill_begin(struct fill_window *w); /* the window */
/* Reads which pixels are holes; smooth: and all others, to fill holes smoothly. */
void fill_read(struct fill_window *w, int y, bool smooth);
void fill_count(struct fill_window *w, bool smooth);  /* the window */
void fill_spread(const struct fill_window *w, int y); /* where the fill is smooth */
/* Lists holes, counts what is near them. */
void fill_list(struct fill_window *w, int y, bool smooth);
void fill_count_near(struct fill_window *w); /* the window */
/* Lists what is near holes, and fills them: smoothly, or, if they are to be blank and the network gets them, with
 * nothing. */
void fill_holes(struct fill_window *w, int y, bool blank);
void fill_smooth(struct fill_window *w); /* a plain window */
/* The network's result on the 8-bit scale, clamped. */
void fill_take(struct fill_window *w, int y);

/* A copy of a picture's pixels. */
enum error_code fill_copy(const struct image *picture, struct image **out, struct error *err) MUST_CHECK;

/* ---- pieces of a mask ---------------------------------------------------------------------------------------------
 */

struct fill_piece {
    uint8_t kind;                 /* its value */
    int left, top, right, bottom; /* the box that it lies in */
};

/* Places that are still to be looked at; none at first. The list is to be freed. */
struct fill_places {
    uint32_t *list;
    size_t count, room;
};

/* Whether a square of that side around a place has its value. Any such square has a place whose coordinates are
 * multiples of the side. Lines are told at the first look: they are narrow. */
#define FILL_PIECE_SIDE 13
bool fill_piece_wide(const uint8_t *mask, int width, int height, int x, int y);
/* Gives another value to the piece that has a place, and tells its box, with `more` px around it. false: out of memory.
 */
bool fill_piece_collect(uint8_t *mask, int width, int height, int x, int y, uint8_t value, int more,
                        struct fill_piece *piece, struct fill_places *places);
/* Of a plane that is 0 in places, and elsewhere as far as counts: how far those are, to the side or diagonally. */
void fill_distances(uint8_t *plane, int width, int height);

/* ---- what is seen through damage ---------------------------------------------------------------------------------
 */

/* Stains, tape and the like that the picture is seen through: a copy of the picture in which their insides are as what
 * is around them, and one of `unknown` in which these are FILL_SEEN. NULL: there are none. mask: kinds of defects;
 * unknown: covers that. Both to be freed. */
enum error_code fill_veils(const struct image *picture, const uint8_t *mask, const uint8_t *unknown,
                           struct image **lifted, uint8_t **marked, struct error *err) MUST_CHECK;

/* ---- what is deep in holes ----------------------------------------------------------------------------------------
 */

/* A copy of a mask in which what is deeper than `depth` px in holes is FILL_INNER; NULL: nothing is, or nothing is
 * known. */
enum error_code fill_inner_find(const uint8_t *mask, int width, int height, int depth, uint8_t **marked,
                                struct error *err) MUST_CHECK;
/* The picture at half its size, and which of its pixels are holes; mask NULL: none are, nor is there a half of it. Both
 * to be freed in any case. */
enum error_code fill_inner_halve(const struct image *picture, const uint8_t *mask, struct image **half,
                                 uint8_t **half_mask, struct error *err) MUST_CHECK;
/* A copy of the picture in which what is marked is that of the half. */
enum error_code fill_inner_take(const struct image *picture, const uint8_t *marked, const struct image *half,
                                struct image **out, struct error *err) MUST_CHECK;

/* ---- grain ------------------------------------------------------------------------------------------------------- */

size_t fill_block_bytes(const struct fill_cut *cut);          /* of the scratch */
int fill_block_of(const struct fill_window *w, int x, int y); /* that a place of the window lies in */
/* Measures a block's around its holes; where it cannot be, `last` is taken, which becomes the block's. */
void fill_grain(struct fill_window *w, int block);
void fill_grain_known(struct fill_window *windows, int count, struct fill_grain *last);
/* And then what its fill lacks of it. */
void fill_lack(struct fill_window *w, int block);

/* A row of the picture that gets grain. */
struct fill_grain_row {
    const struct fill_window *w;
    int y, x;                       /* x: of the last place */
    const struct fill_grain *grain; /* its block's; NULL at first */
    float columns[2 * GRAIN_RADIUS + 1];
};

/* What a place of that luminance lacks that is so many px from the mask, 2 at most. Fast for one after the other. */
float fill_grain_at(struct fill_grain_row *row, int x, int away, float light);

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* The pixels in the mask and up to REPAIR_FEATHER px from it, row by row, and what becomes of them: kept until all is
 * computed, so that every window sees the picture as it was and an attempt that fails leaves it so. */
struct fill_change {
    uint32_t x : 30, away : 2; /* px from the mask */
    float rgb[3];              /* the sum of the windows by their shares */
};

struct fill_changes {
    int width, height;
    struct fill_change *list;
    size_t *row_ends; /* of each of the picture's rows */
};

/* All that will change, with no colours yet. To be freed in any case. */
enum error_code fill_changes_create(struct fill_changes *changes, const uint8_t *mask, int width, int height,
                                    struct error *err) MUST_CHECK;
void fill_changes_free(struct fill_changes *changes);

/* Marks the cores that have a pixel of the mask, or what changes beside it, or are blended over that. */
void fill_look(const uint8_t *mask, int width, int height, const struct fill_cut *cut, atomic_bool *used);

/* Adds some windows' pixels by their shares, with the grain that they lack. Windows are to be added in the order of the
 * grid. to: a picture that the changes are then mixed into, as below: these are all windows; NULL: there are others. */
void fill_changes_add(struct fill_changes *changes, struct fill_window *windows, int count, struct image *to,
                      double strength);

/* Mixes the changes into a picture. colour: of its samples; NULL: sRGB. */
void fill_changes_apply(const struct fill_changes *changes, struct image *to, const struct colour *colour,
                        double strength);

#endif
