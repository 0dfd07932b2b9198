#include "runtime/cpu/cpu_band.h"

#include <string.h>

#include "runtime/cpu/cpu_pack.h"

#define BAND_BYTES (4 << 20)   /* of a band's largest tensor: beyond this it leaves the caches */
#define BAND_LEAST 16          /* rows: each band also keeps some of the last one, and transforms the weights again */
#define BAND_PIXELS (12 << 10) /* for each thread, so that all have enough to do */
#define BAND_SAVES (8 << 20)   /* bytes; less is not worth the bands */
#define BAND_TILE 4            /* rows of Winograd's tiles, which are computed at once */

static int band_up(int rows, int h)
{
    rows = (rows + BAND_TILE - 1) / BAND_TILE * BAND_TILE;
    return rows < h ? rows : h;
}

/* Whether nothing but x, the weights and the bias go into it. */
static bool band_is_plain(const struct node *node)
{
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        if (i != OP_X && node->in[i].tensor >= 0)
            return false;
    return true;
}

static bool band_is_one(const struct graph *graph, struct view view)
{
    return view.tensor >= 0 && graph->tensors[view.tensor].segment_count == 1 && graph->tensors[view.tensor].n == 1;
}

/* How often a tensor is read. */
static int band_readers(const struct graph *graph, int tensor)
{
    int count = 0;
    for (int i = 0; i < graph->node_count; i++)
        for (int k = 0; k < OP_MAX_INPUTS; k++)
            count += graph->nodes[i].in[k].tensor == tensor;
    return count;
}

/* A convolution that has a strip of its input copied or transformed, so that rows may lie anywhere. */
static bool band_is_convolution(const struct graph *graph, const struct node *node)
{
    const struct op_conv2d *a = &node->args.conv2d;
    return node->kind == OP_CONV2D && a->stride == 1 && a->pad > 0 && a->pad_mode == PAD_ZERO && band_is_plain(node) &&
           band_is_one(graph, node->in[OP_X]);
}

/* A pixel shuffle of a whole tensor. */
static bool band_is_shuffle(const struct graph *graph, const struct node *node)
{
    struct cpu_layout residual, y;
    if (node->kind != OP_PIXEL_SHUFFLE)
        return false;
    if (node->in[OP_RESIDUAL1].tensor < 0)
        return true;
    cpu_pack_layout(graph, node->in[OP_RESIDUAL1], &residual);
    cpu_pack_layout(graph, node->out, &y);
    return cpu_pack_same(&residual, &y); /* else it would be copied first */
}

static size_t band_row_bytes(const struct graph *graph, const struct cpu_band_layer *layer)
{
    const struct tensor *t = &graph->tensors[layer->tensor];
    return (size_t)t->w * (size_t)((t->channels + CPU_BLOCK - 1) / CPU_BLOCK) * CPU_BLOCK * sizeof(float);
}

/* The rows of a band, and how many rows of each tensor there are at most. */
static void band_measure(struct cpu_band *band, const struct graph *graph, int threads)
{
    const struct cpu_band_layer *last = &band->layer[band->count - 1];
    struct cpu_band_rows rows = {0};
    size_t largest = 1;
    int need[CPU_BAND_MOST];
    for (int i = 0; i < band->count; i++) {
        const size_t bytes = band_row_bytes(graph, &band->layer[i]);
        largest = bytes > largest ? bytes : largest;
    }
    const int fit = (int)(BAND_BYTES / largest), busy = BAND_PIXELS * threads / graph->tensors[last->tensor].w;
    band->step = fit > BAND_LEAST ? fit : BAND_LEAST;
    band->step = band_up(band->step > busy ? band->step : busy, last->h);
    while (cpu_band_next(band, &rows, need))
        for (int i = 0; i < band->count; i++) {
            struct cpu_band_layer *layer = &band->layer[i];
            const int low = cpu_band_lowest(band, i, i + 1 < band->count ? rows.done[i + 1] : rows.done[i]);
            layer->room = need[i] - low > layer->room ? need[i] - low : layer->room;
            rows.done[i] = need[i]; /* the layer after it was asked for what it had done before this band */
        }
}

void cpu_band_plan(struct cpu_band *band, const struct graph *graph, int threads)
{
    struct cpu_band_layer found[CPU_BAND_MOST]; /* from the end */
    int count = 0, at = graph->node_count - 1;
    *band = (struct cpu_band){0};
    if (graph->output_count != 1 || at < 0 || graph->nodes[at].out.tensor != graph->outputs[0])
        return;
    while (at >= 0 && count < CPU_BAND_MOST) {
        const struct node *node = &graph->nodes[at];
        const bool convolution = band_is_convolution(graph, node);
        if ((!convolution && !band_is_shuffle(graph, node)) || !band_is_one(graph, node->out) ||
            band_readers(graph, node->out.tensor) != (count > 0))
            break;
        struct cpu_band_layer *layer = &found[count++];
        *layer = (struct cpu_band_layer){.tensor = node->out.tensor, .h = graph->tensors[node->out.tensor].h};
        at--;
        if (!convolution)
            break;
        layer->kernel = node->args.conv2d.kernel;
        layer->pad = node->args.conv2d.pad;
        layer->up = node->args.conv2d.upsample;
        if (at < 0 || graph->nodes[at].out.tensor != node->in[OP_X].tensor)
            break;
    }
    for (int i = 0; i < count; i++)
        band->layer[i] = found[count - 1 - i];
    if (!count)
        return;
    band->first = at + 1;
    band->count = count;
    band->layer[0].kernel = 0;
    band_measure(band, graph, threads);
    size_t saved = 0;
    for (int i = 0; i < count; i++)
        saved += band_row_bytes(graph, &band->layer[i]) * (size_t)(band->layer[i].h - band->layer[i].room);
    if (saved < BAND_SAVES)
        *band = (struct cpu_band){0};
}

const struct cpu_band_layer *cpu_band_layer_of(const struct cpu_band *band, int tensor)
{
    for (int i = 0; i < band->count; i++)
        if (band->layer[i].tensor == tensor)
            return &band->layer[i];
    return NULL;
}

bool cpu_band_next(const struct cpu_band *band, const struct cpu_band_rows *rows, int need[CPU_BAND_MOST])
{
    const int last = band->count - 1;
    if (rows->done[last] == band->layer[last].h)
        return false;
    int end = rows->done[last] + band->step;
    for (int i = last; i >= 0; i--) {
        const struct cpu_band_layer *layer = &band->layer[i];
        need[i] = band_up(end, layer->h);
        if (need[i] < rows->done[i])
            need[i] = rows->done[i];
        if (layer->kernel) /* the source of the last row's last tap, and one more: a number of rows */
            end = (need[i] - 1 - layer->pad + layer->kernel - 1) / layer->up + 1;
    }
    return true;
}

int cpu_band_lowest(const struct cpu_band *band, int layer, int done)
{
    if (layer + 1 == band->count)
        return done; /* what is done is handed out at once */
    const struct cpu_band_layer *after = &band->layer[layer + 1];
    const int row = done > after->pad ? (done - after->pad) / after->up : 0;
    return row < band->layer[layer].h ? row : band->layer[layer].h;
}

void cpu_band_keep(const struct cpu_operand *whole, int had, int low, int done)
{
    const size_t row = (size_t)whole->w * CPU_BLOCK;
    for (int b = 0; b < whole->blocks && done > low && low > had; b++) {
        float *first = whole->data + (size_t)b * whole->plane;
        memmove(first, first + (size_t)(low - had) * row, (size_t)(done - low) * row * sizeof(float));
    }
}

struct cpu_operand cpu_band_shift(const struct cpu_operand *whole, int low)
{
    struct cpu_operand shifted = *whole;
    /* as a number: the picture's first row may lie before all of the memory */
    shifted.data = (float *)((uintptr_t)whole->data - (uintptr_t)low * (uintptr_t)whole->w * CPU_BLOCK * sizeof(float));
    return shifted;
}
