#include "runtime/models/damage_cut.h"

#include <stddef.h>

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

void damage_cut(const struct damage_cut *cut, float *out)
{
    const size_t plane = (size_t)cut->height * (size_t)cut->width;
    for (int c = 0; c < cut->channels; c++)
        for (int y = 0; y < cut->h; y++) {
            const struct damage_place row = damage_cut_place(cut->y + y, cut->rows, cut->height);
            const float *upper = cut->context + (size_t)c * plane + (size_t)row.at * (size_t)cut->width;
            const float *lower = upper + (size_t)row.next * (size_t)cut->width;
            for (int x = 0; x < cut->w; x++) {
                const struct damage_place column = damage_cut_place(cut->x + x, cut->columns, cut->width);
                const int a = column.at, b = column.at + column.next;
                const float above = upper[a] + column.share * (upper[b] - upper[a]),
                            below = lower[a] + column.share * (lower[b] - lower[a]);
                *out++ = above + row.share * (below - above);
            }
        }
}
