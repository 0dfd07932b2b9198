/* What the files of the fill share: its windows (repair_window.c), and the pixels that change (repair_change.c).
 * Thread-safety: as step.h; different windows may be worked on by different threads. */
#ifndef SERVER_PIPELINE_REPAIR_PRIVATE_H
#define SERVER_PIPELINE_REPAIR_PRIVATE_H

#include "server/image/colour.h"
#include "server/pipeline/repair.h"

#define FILL_KNOWN 0.125 /* of a window: with less it is empty, shows little else than a hole */

/* How a picture is cut: windows of `side` px, each around a core with an eighth of it on all sides. Two cores are
 * blended `blend` px to both sides of their border. */
struct fill_cut {
    int side, core, blend, pixels;
    int columns, rows; /* of cores */
};

/* The picture reduced and filled: 3 planes. */
struct fill_coarse {
    float *rgb;
    int width, height;
};

/* A window at work: planes of side², on the 8-bit scale; holes that the network gets, from -1 to 1. */
struct fill_window {
    const struct fill_cut *cut;
    const struct image *picture;
    const uint8_t *mask_of; /* the picture's */
    int x, y, column, row;  /* of the picture; of the grid */
    bool empty, plain;      /* plain: the network does not get it */
    bool deep;              /* one of its holes is wide enough for grain */
    float *rgb, *mask;      /* 3 planes; 1 in holes */
    const float *result;    /* of the network: three values, from -1 to 1, for each of `near` */
    float *scratch;         /* of pull_push */
    uint32_t *holes, *near; /* places in order: of holes; of them and what is up to REPAIR_FEATHER px from them */
    int hole_count, near_count;
    int *lefts,
        *rights; /* of each row, the columns of its first hole and of its last; beyond each other: it has none */
    float grain; /* standard deviation, on the 8-bit scale */
};

/* ---- windows ----------------------------------------------------------------------------------------------------- */

/* Bytes of what a window has for itself, and the window that has it at `memory`; scratch is to be set. */
size_t fill_window_bytes(const struct fill_cut *cut);
void fill_window_place(struct fill_window *w, const struct fill_cut *cut, void *memory);

/* Sets `empty`. */
void fill_measure(struct fill_window *w);
/* Reads the window's pixels, with its holes 0. */
void fill_read(struct fill_window *w);
/* Fills it smoothly, and sets `near` and `deep`; coarse: for an empty window, else NULL. blank: the network is given
 * nothing in the holes. */
void fill_prepare(struct fill_window *w, const struct fill_coarse *coarse, bool blank);
/* The holes from the 8-bit scale to the network's, in place; then back, from the network's result, clamped. */
void fill_scale(struct fill_window *w);
void fill_take(struct fill_window *w);
/* Adds the grain that the fill lacks, in a deep window: in thin holes nobody misses it, and it is an error. The mask is
 * used up. */
void fill_roughen(struct fill_window *w);

/* To be freed in any case. */
enum error_code fill_make_coarse(struct fill_coarse *coarse, const struct image *picture, const uint8_t *mask,
                                 struct error *err) MUST_CHECK;

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
    size_t holes;     /* pixels in the mask */
};

/* All that will change, with no colours yet. To be freed in any case. */
enum error_code fill_changes_create(struct fill_changes *changes, const uint8_t *mask, int width, int height,
                                    struct error *err) MUST_CHECK;
void fill_changes_free(struct fill_changes *changes);

/* Sets used[row * columns + column] where a core, or what it is blended over, has a change. */
void fill_changes_used(const struct fill_changes *changes, const struct fill_cut *cut, bool *used);

/* Adds some windows' pixels by their shares. Windows are to be added in the order of the grid. */
void fill_changes_add(struct fill_changes *changes, const struct fill_window *windows, int count);

/* Mixes the changes into a picture. colour: of its samples; NULL: sRGB. */
void fill_changes_apply(const struct fill_changes *changes, struct image *to, const struct colour *colour,
                        double strength);

#endif
