#include "server/image/resize_axis.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

static double resize_sinc(double x)
{
    return fabs(x) < 1e-9 ? 1 : sin(M_PI * x) / (M_PI * x);
}

/* Weight of source px i for a destination px that covers [at, at + scale) of the source, edges counted from the
 * outer side of px 0; unnormalised. */
static double resize_weight(enum resize_kernel kernel, int i, double at, double scale)
{
    if (kernel == RESIZE_AREA)
        return fmax(0, fmin(at + scale, i + 1.) - fmax(at, i));
    double x = fabs(i + 0.5 - (at + scale / 2)) / (kernel == RESIZE_LANCZOS4_NARROW ? 1 : fmax(scale, 1));
    if (kernel == RESIZE_LINEAR)
        return fmax(0, 1 - x);
    return x < 4 ? resize_sinc(x) * resize_sinc(x / 4) : 0;
}

bool resize_axis_create(struct resize_axis *axis, int dst, int src, enum resize_kernel kernel)
{
    double scale = (double)src / dst, wide = kernel == RESIZE_LANCZOS4_NARROW ? 1 : fmax(scale, 1);
    double radius = wide * (kernel == RESIZE_AREA || kernel == RESIZE_LINEAR ? 1 : 4);
    double widest = 2 * radius + 2;
    axis->taps = widest < src ? (int)widest : src;
    axis->first = mem_alloc((size_t)dst, sizeof *axis->first);
    axis->count = mem_alloc((size_t)dst, sizeof *axis->count);
    axis->weight = mem_calloc((size_t)dst, (size_t)axis->taps * sizeof *axis->weight);
    if (!axis->first || !axis->count || !axis->weight)
        return false;
    for (int d = 0; d < dst; d++) {
        double at = d * scale, centre = at + scale / 2, sum = 0;
        int from = (int)floor(centre - radius), to = (int)ceil(centre + radius); /* px from .. to-1 */
        while (from < to - 1 && resize_weight(kernel, from, at, scale) == 0)
            from++;
        while (to > from + 1 && resize_weight(kernel, to - 1, at, scale) == 0)
            to--;
        int first = from < 0 ? 0 : from, last = to > src ? src - 1 : to - 1;
        float *weight = axis->weight + (size_t)d * (size_t)axis->taps;
        axis->first[d] = first;
        axis->count[d] = last - first + 1;
        for (int i = from; i < to; i++)
            sum += resize_weight(kernel, i, at, scale);
        for (int i = from; i < to; i++) {
            int k = i < first ? 0 : i > last ? last - first : i - first; /* edges repeat */
            weight[k] += (float)(resize_weight(kernel, i, at, scale) / sum);
        }
    }
    return true;
}

void resize_axis_free(struct resize_axis *axis)
{
    free(axis->first);
    free(axis->count);
    free(axis->weight);
}
