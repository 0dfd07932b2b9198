#include "server/image/text_page.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/thread.h"

/* A block is paper if nearly half of it has one level, and text if a good part of it is much darker than that, or much
 * lighter, but not both, in strokes. A page has text, and little else than paper; in a photo there is more. The numbers
 * were chosen on 737 pictures (models/training/README.md): of those that show something else, damaged or not, one in 30
 * is taken for a page, most of them maps and diagrams. */
#define TEXT_BLOCK 32
#define TEXT_PIXELS (TEXT_BLOCK * TEXT_BLOCK)
#define TEXT_LONGEST 1100 /* px of the longer side: of larger pictures only some pixels are looked at */
#define TEXT_PAPER 10     /* levels from the median: at most that for paper, more than the next for ink */
#define TEXT_INK 28
#define TEXT_SHARE 0.15 /* of the blocks of a page are text, at least, */
#define TEXT_OTHER 0.12 /* and no more than this are not even paper */

struct text {
    const struct image *picture;
    const uint8_t *level;
    uint8_t likely;
    int step, across, down; /* px from one that is looked at to the next; blocks */
    double most;            /* blocks that are not paper */
    atomic_int found, other;
};

/* In eight bits, of one row's pixels of a block, from the picture's `at` on. */
static void text_light(const struct text *t, size_t at, uint8_t light[TEXT_BLOCK])
{
    static const int weights[3] = {77, 150, 29};
    const size_t channels = (size_t)t->picture->channels, step = channels * (size_t)t->step;
    const size_t green = channels == 3, blue = 2 * green;
    if (t->picture->bits == 16) {
        const uint16_t *words = (const uint16_t *)t->picture->pixels + channels * at;
        for (size_t i = 0, k = 0; i < TEXT_BLOCK; i++, k += step)
            light[i] = (uint8_t)((weights[0] * (words[k] >> 8) + weights[1] * (words[k + green] >> 8) +
                                  weights[2] * (words[k + blue] >> 8)) >>
                                 8);
    } else {
        const uint8_t *bytes = (const uint8_t *)t->picture->pixels + channels * at;
        for (size_t i = 0, k = 0; i < TEXT_BLOCK; i++, k += step)
            light[i] =
                (uint8_t)((weights[0] * bytes[k] + weights[1] * bytes[k + green] + weights[2] * bytes[k + blue]) >> 8);
    }
}

/* The block's luminance, and how often each has it. Returns how many pixels are no text but damage. */
static int text_read(const struct text *t, int column, int row, uint8_t *light, int counts[256])
{
    int damaged = 0, others[256] = {0}; /* others: of every second pixel, since neighbours are often alike */
    for (int y = 0; y < TEXT_BLOCK; y++, light += TEXT_BLOCK) {
        const size_t at = (size_t)((row * TEXT_BLOCK + y) * t->step) * (size_t)t->picture->width +
                          (size_t)(column * TEXT_BLOCK * t->step);
        const uint8_t *level = t->level + at;
        text_light(t, at, light);
        for (int x = 0; x < TEXT_BLOCK; x += 2) {
            counts[light[x]]++;
            others[light[x + 1]]++;
        }
        for (int x = 0; x < TEXT_BLOCK; x++)
            damaged += level[x * t->step] >= t->likely;
    }
    for (int v = 0; v < 256; v++)
        counts[v] += others[v];
    return damaged;
}

static int text_sum(const int counts[256], int from, int to)
{
    int sum = 0;
    for (int v = from > 0 ? from : 0; v <= to && v < 256; v++)
        sum += counts[v];
    return sum;
}

enum text_kind { TEXT_PAPER_ALONE, TEXT_STROKES, TEXT_NO_PAPER };

static enum text_kind text_block(const struct text *t, int column, int row)
{
    uint8_t light[TEXT_PIXELS];
    int counts[256] = {0}, paper = 0, runs = 0;
    const int damaged = text_read(t, column, row, light, counts);
    for (int below = counts[0]; 2 * below < TEXT_PIXELS; below += counts[paper])
        paper++; /* the median */
    if (20 * text_sum(counts, paper - TEXT_PAPER, paper + TEXT_PAPER) < 9 * TEXT_PIXELS)
        return TEXT_NO_PAPER;
    const int dark = text_sum(counts, 0, paper - TEXT_INK - 1), pale = text_sum(counts, paper + TEXT_INK + 1, 255);
    const int ink = dark > pale ? dark : pale, other = dark > pale ? pale : dark;
    if (50 * damaged > TEXT_PIXELS || 20 * ink < TEXT_PIXELS || 5 * ink > 2 * TEXT_PIXELS || 10 * other > ink)
        return TEXT_PAPER_ALONE;
    for (int i = 0; i < TEXT_PIXELS; i++) {
        const bool here = dark > pale ? light[i] < paper - TEXT_INK : light[i] > paper + TEXT_INK;
        const bool before =
            i % TEXT_BLOCK == 0 || (dark > pale ? light[i - 1] < paper - TEXT_INK : light[i - 1] > paper + TEXT_INK);
        runs += here && !before;
    }
    return 4 * runs > ink ? TEXT_STROKES : TEXT_PAPER_ALONE; /* strokes are less than 4 px wide */
}

/* Of what is no page few blocks are looked at. */
static void text_row(void *context, int row)
{
    struct text *t = context;
    for (int column = 0; column < t->across && atomic_load_explicit(&t->other, memory_order_relaxed) < t->most;
         column++) {
        const enum text_kind kind = text_block(t, column, row);
        if (kind != TEXT_PAPER_ALONE)
            atomic_fetch_add_explicit(kind == TEXT_STROKES ? &t->found : &t->other, 1, memory_order_relaxed);
    }
}

bool text_page(const struct image *picture, const uint8_t *level, uint8_t likely)
{
    const int longest = picture->width > picture->height ? picture->width : picture->height;
    struct text t = {.picture = picture, .level = level, .likely = likely, .step = 1 + longest / TEXT_LONGEST};
    t.across = picture->width / (TEXT_BLOCK * t.step);
    t.down = picture->height / (TEXT_BLOCK * t.step);
    const double blocks = (double)t.across * t.down;
    t.most = TEXT_OTHER * blocks;
    thread_for(t.down, text_row, &t);
    return atomic_load(&t.found) > TEXT_SHARE * blocks && atomic_load(&t.other) < t.most;
}
