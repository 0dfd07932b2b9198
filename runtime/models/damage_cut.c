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
    float *out;
};

static void damage_cut_channel(void *context, int c)
{
    const struct damage_loop *loop = context;
    const struct damage_cut *cut = loop->cut;
    float *out = loop->out + (size_t)c * (size_t)cut->h * (size_t)cut->w;
    for (int y = 0; y < cut->h; y++) {
        const struct damage_place row = damage_cut_place(cut->y + y, cut->rows, cut->height);
        const float *upper = cut->context + ((size_t)c * (size_t)cut->height + (size_t)row.at) * (size_t)cut->width;
        const float *lower = upper + (size_t)row.next * (size_t)cut->width;
        for (int x = 0; x < cut->w; x++) {
            const struct damage_place *column = &loop->columns[x];
            const int a = column->at, b = a + column->next;
            const float above = upper[a] + column->share * (upper[b] - upper[a]),
                        below = lower[a] + column->share * (lower[b] - lower[a]);
            *out++ = above + row.share * (below - above);
        }
    }
}

bool damage_cut(const struct damage_cut *cut, float *out)
{
    struct damage_place *columns = mem_alloc((size_t)cut->w, sizeof *columns);
    for (int x = 0; x < cut->w && columns; x++)
        columns[x] = damage_cut_place(cut->x + x, cut->columns, cut->width);
    struct damage_loop loop = {cut, columns, out};
    if (columns)
        thread_for(cut->channels, damage_cut_channel, &loop);
    free(columns);
    return columns != NULL;
}
