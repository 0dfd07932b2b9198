/* From what a detector says of each pixel to a mask of defects: pixels that hang together are one defect, which counts
 * if enough of it is sure. Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_DEFECT_H
#define SERVER_IMAGE_DEFECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* Thin lines, cracks and tears, dust and spots, stains and folds; a mask has them counted from 1 on. */
enum { DEFECT_THIN, DEFECT_CRACK, DEFECT_DUST, DEFECT_STAIN, DEFECT_KINDS };
#define DEFECT_GIVEN (DEFECT_KINDS + 1) /* in a mask: the user's */
#define DEFECT_ALL ((1u << DEFECT_KINDS) - 1)
#define DEFECT_TEXT_MAX 32 /* bytes of a list of kinds, with its final 0 */

/* The kinds, as reports and options call them. */
extern const char *const defect_names[DEFECT_KINDS];

/* What a mask that others get shows of each value: a gray from 128 on, which they fill all the same. */
extern const uint8_t defect_grays[DEFECT_GIVEN + 1];

/* A set of kinds, a bit each, from "all", "none" or a list like "thin,dust", also in capitals; false: it is none of
 * these. */
bool defect_kinds_read(const char *text, unsigned *kinds);
void defect_kinds_text(unsigned kinds, char out[DEFECT_TEXT_MAX]);

struct defect_map {
    int width, height;
    const uint8_t *level; /* of being damaged at all: a detector's logit (raster_level); no gaps between rows */
    const uint8_t *kind;  /* the likeliest, 0 .. DEFECT_KINDS-1 */
};

/* By kind: a pixel belongs to a defect from `low` on; of the defect's pixels at least the share `sure` must have
 * `high`: of a large one the share `sure_large` and of a huge one `sure_huge`, since what is wrongly taken for damage
 * is seldom surer for being large. */
struct defect_rule {
    struct {
        uint8_t low, high;
        float sure_large, sure_huge;
    } kinds[DEFECT_KINDS];
    float sure;
    float large; /* share of the picture from which a defect is large */
    float huge;  /* the same; 0: none is. A line across a small picture, of five times its shorter side, is not huge */
    int least;   /* px: what is smaller is none */
    bool more;   /* adds to a mask: what that has already is part of no other defect */
    bool line;   /* only lines count, long, narrow and straight; with `more`, also those that go on from the mask */
};

struct defect_counts {
    uint64_t pixels[DEFECT_KINDS];
    int defects[DEFECT_KINDS];
    uint8_t highest; /* level of what is part of a defect that counts or of one that does not */
};

/* Sets the mask, a byte a pixel: 0, or 1 + the kind that most of the defect's pixels have; or adds to it, and to the
 * counts. */
enum error_code defect_find(const struct defect_map *map, const struct defect_rule *rule, uint8_t *mask,
                            struct defect_counts *counts, struct error *err) MUST_CHECK;

/* A mask that has grown, for who wants more than itself: a copy, and defect_count's counts. */
struct defect_grown {
    uint8_t *copy;
    uint64_t counts[DEFECT_GIVEN + 1];
};

/* out: the mask grown by 1 px in the four directions and diagonally, where the level is at least `from` (level NULL:
 * everywhere); of two neighbours that grow there the larger value wins. grown: or NULL. */
enum error_code defect_grow(const uint8_t *mask, uint8_t *out, const uint8_t *level, uint8_t from, int width,
                            int height, struct defect_grown *grown, struct error *err) MUST_CHECK;

/* What may go on from a mask's defects of that value: pixels that are at most `reach` steps from them over others whose
 * level is at least `from`, and those beside them, since their edges are soft. beyond: the mask or a copy of it; it
 * becomes 1 there. */
enum error_code defect_follow(const uint8_t *mask, uint8_t value, const uint8_t *level, uint8_t from, int reach,
                              int width, int height, uint8_t *beyond, struct error *err) MUST_CHECK;

/* How many of a mask's pixels have each value but 0, for which it says 0. Returns their sum. */
uint64_t defect_count(const uint8_t *mask, int width, int height, uint64_t counts[DEFECT_GIVEN + 1]);

/* From x on, the first of a row's pixels whose level may be `from` or more, to within eight; or `width`, or a few
 * before it. */
int defect_next(const uint8_t *level, int x, int width, uint8_t from);

/* From `at` on, the first of a mask's pixels that may not be 0, to within eight; or `count`, or a few before it. */
size_t defect_clear(const uint8_t *mask, size_t at, size_t count);

#endif
