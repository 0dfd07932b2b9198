#include "server/pipeline/yield.h"

#include <math.h>

#include "server/image/similarity.h"

#define YIELD_INNER 0.75 /* of a face's oval: inside of it nothing is laid over the face */

/* How much of a face is at a point of its crop: 1 at its features, 0 around it. */
static float yield_face(double x, double y)
{
    double t = fmin(fmax((1 - similarity_oval(x, y)) / (1 - YIELD_INNER), 0), 1);
    return (float)(t * t * (3 - 2 * t));
}

static void yield_to(struct patch *later, const struct patch *earlier, int size)
{
    const struct rect *a = &later->rect, *b = &earlier->rect;
    int x0 = a->x > b->x ? a->x : b->x, x1 = a->x + a->width < b->x + b->width ? a->x + a->width : b->x + b->width;
    int y0 = a->y > b->y ? a->y : b->y, y1 = a->y + a->height < b->y + b->height ? a->y + a->height : b->y + b->height;
    double m[6];
    similarity_invert(earlier->matrix, m);
    for (int i = 0; i < 6; i++)
        m[i] *= 512.0 / size;
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++) {
            float face = yield_face(m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]);
            if (face == 0)
                continue;
            float *to = later->layer + 4 * ((size_t)(y - a->y) * (size_t)a->width + (size_t)(x - a->x));
            const float *over = earlier->layer + 4 * ((size_t)(y - b->y) * (size_t)b->width + (size_t)(x - b->x));
            float rest = 1 - face * over[3];
            for (int c = 0; c < 4; c++)
                to[c] *= rest;
        }
}

void yield_layer(struct step *step, int index)
{
    for (int i = 0; i < index && step->patches[index].layer; i++)
        if (step->patches[i].layer)
            yield_to(&step->patches[index], &step->patches[i], step->r->faces[i].size);
}
