#include "runtime/models/damage_cut.h"

#include <stddef.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

/* Between which two values of `length` a cell lies: the first, how far the second is, and the second's share. */
struct damage_place {
    int at, next;
    float share;
};

static struct damage_place damage_cut_place(int cell, int cells, int length)
{
    const float scale = (float)length / (float)cells, centre = ((float)cell + 0.5f) * scale - 0.5f;
    const float from = centre > 0 ? centre : 0;
    int at = (int)from;
    at = at < length ? at : length - 1;
    return (struct damage_place){at, at + 1 < length, from - (float)at};
}

struct damage_loop {
    const struct damage_cut *cut;
    const struct damage_place *columns;
    float *out, *rows; /* of each channel, two rows that are wide as the cut is */
};

static void damage_cut_across(const struct damage_place *columns, int count, const float *row, float *out)
{
    for (int x = 0; x < count; x++) {
        const int a = columns[x].at, b = a + columns[x].next;
        out[x] = row[a] + columns[x].share * (row[b] - row[a]);
    }
}

static void damage_cut_down(const float *restrict above, const float *restrict below, float share, int count,
                            float *restrict out)
{
    for (int x = 0; x < count; x++)
        out[x] = above[x] + share * (below[x] - above[x]);
}

/* Each row of the context is widened once: it lies above or below several rows of cells. */
static void damage_cut_channel(void *context, int c)
{
    const struct damage_loop *loop = context;
    const struct damage_cut *cut = loop->cut;
    float *out = loop->out + (size_t)c * (size_t)cut->h * (size_t)cut->w;
    float *wide[2] = {loop->rows + 2 * (size_t)c * (size_t)cut->w, loop->rows + (2 * (size_t)c + 1) * (size_t)cut->w};
    int has[2] = {-1, -1};
    for (int y = 0; y < cut->h; y++, out += cut->w) {
        const struct damage_place row = damage_cut_place(cut->y + y, cut->rows, cut->height);
        for (int i = row.at; i <= row.at + row.next; i++) {
            if (has[i % 2] != i)
                damage_cut_across(loop->columns, cut->w,
                                  cut->context + ((size_t)c * (size_t)cut->height + (size_t)i) * (size_t)cut->width,
                                  wide[i % 2]);
            has[i % 2] = i;
        }
        damage_cut_down(wide[row.at % 2], wide[(row.at + row.next) % 2], row.share, cut->w, out);
    }
}

bool damage_cut(const struct damage_cut *cut, float *out)
{
    struct damage_place *columns = mem_alloc((size_t)cut->w, sizeof *columns);
    for (int x = 0; x < cut->w && columns; x++)
        columns[x] = damage_cut_place(cut->x + x, cut->columns, cut->width);
    float *rows = mem_alloc((size_t)cut->channels * (size_t)cut->w, 2 * sizeof *rows);
    struct damage_loop loop = {cut, columns, out, rows};
    const bool room = columns && rows;
    if (room)
        thread_for(cut->channels, damage_cut_channel, &loop);
    free(columns);
    free(rows);
    return room;
}
