#include "runtime/cpu/cpu_band.h"

#include <string.h>

#include "runtime/cpu/cpu_pack.h"

#define BAND_BYTES (4 << 20)   /* of a band's largest tensor: beyond this it leaves the caches */
#define BAND_LEAST 16          /* rows: each band also keeps some of the last one */
#define BAND_PIXELS (12 << 10) /* for each thread, so that all have enough to do */
#define BAND_KEPT 5            /* rows of a 3×3 convolution's input, about, from one band to the next */
#define BAND_MOVED 0.4         /* of what is computed */
#define BAND_SAVES (8 << 20)   /* bytes; less is not worth the bands */
#define BAND_MANY 8 /* layers; where there are more, moving costs some percent of their time, which must be … */
#define BAND_MANY_SAVE (96 << 20) /* … worth it */
#define BAND_TILE 4               /* rows of Winograd's tiles, which are computed at once */

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

static size_t band_row_bytes(const struct graph *graph, int tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    return (size_t)t->w * (size_t)((t->channels + CPU_BLOCK - 1) / CPU_BLOCK) * CPU_BLOCK * sizeof(float);
}

static size_t band_whole_bytes(const struct graph *graph, int tensor)
{
    return band_row_bytes(graph, tensor) * (size_t)graph->tensors[tensor].h;
}

/* The rows of the first layer with which a layer's rows that are kept, and moved, are few beside those computed. */
static int band_worth_moving(const struct cpu_band *band, const struct graph *graph)
{
    double kept = 0, computed = 0;
    for (int i = 0; i < band->count; i++) {
        const double row = (double)band_row_bytes(graph, band->layer[i].tensor);
        kept += i + 1 < band->count ? BAND_KEPT * row : 0;
        computed += row * band->layer[i].h / band->layer[0].h;
    }
    return (int)(kept / computed / BAND_MOVED) + 1;
}

/* The rows of a band, and how many rows of each tensor there are at most. */
static void band_measure(struct cpu_band *band, const struct graph *graph, int threads)
{
    const struct cpu_band_layer *last = &band->layer[band->count - 1];
    struct cpu_band_rows rows = {0};
    size_t largest = 1;
    int need[CPU_BAND_MOST];
    for (int i = 0; i < band->count; i++) {
        const size_t bytes = band_row_bytes(graph, band->layer[i].tensor);
        largest = bytes > largest ? bytes : largest;
        band->layer[i].room = 0;
    }
    const int fit = (int)(BAND_BYTES / largest), busy = BAND_PIXELS * threads / graph->tensors[last->tensor].w;
    const int least = fit > BAND_LEAST ? fit : BAND_LEAST, of_last = least > busy ? least : busy;
    const int step = (int)((int64_t)of_last * band->layer[0].h / last->h), worth = band_worth_moving(band, graph);
    band->step = band_up(step > worth ? step : worth, band->layer[0].h);
    while (cpu_band_next(band, &rows, need))
        for (int i = 0; i < band->count; i++) {
            struct cpu_band_layer *layer = &band->layer[i];
            const int low = cpu_band_lowest(band, i, i + 1 < band->count ? rows.done[i + 1] : rows.done[i]);
            layer->room = need[i] - low > layer->room ? need[i] - low : layer->room;
            rows.done[i] = need[i]; /* the layer after it was asked for what it had done before this band */
        }
}

/* The bytes of the tensors of a chain of layers that are alive at once, at the most, if those from `first` on take
 * turns. input: of the chain. */
static size_t band_peak(const struct cpu_band *band, const struct graph *graph, const struct cpu_band_layer *chain,
                        int first, int input)
{
    size_t before = band_whole_bytes(graph, input), peak = before;
    for (int i = 0; i < first; i++) {
        const size_t bytes = band_whole_bytes(graph, chain[i].tensor);
        peak = before + bytes > peak ? before + bytes : peak;
        before = bytes;
    }
    for (int i = 0; i < band->count; i++)
        before += band_row_bytes(graph, band->layer[i].tensor) * (size_t)band->layer[i].room;
    return before > peak ? before : peak;
}

/* The layers of the chain at the graph's end, the first of them last; their number. */
static int band_chain(const struct graph *graph, struct cpu_band_layer found[CPU_BAND_MOST])
{
    int count = 0, at = graph->node_count - 1;
    if (graph->output_count != 1 || at < 0 || graph->nodes[at].out.tensor != graph->outputs[0])
        return 0;
    while (at >= 0 && count < CPU_BAND_MOST) {
        const struct node *node = &graph->nodes[at];
        const bool convolution = band_is_convolution(graph, node);
        if ((!convolution && !band_is_shuffle(graph, node)) || !band_is_one(graph, node->out) ||
            band_readers(graph, node->out.tensor) != (count > 0))
            break;
        found[count++] =
            (struct cpu_band_layer){.tensor = node->out.tensor,
                                    .h = graph->tensors[node->out.tensor].h,
                                    .kernel = convolution ? node->args.conv2d.kernel : 1,
                                    .pad = convolution ? node->args.conv2d.pad : 0,
                                    .up = convolution ? node->args.conv2d.upsample : node->args.shuffle.factor};
        at--;
        if (at < 0 || graph->nodes[at].out.tensor != node->in[OP_X].tensor)
            break;
    }
    return count;
}

void cpu_band_plan(struct cpu_band *band, const struct graph *graph, int threads)
{
    struct cpu_band_layer chain[CPU_BAND_MOST], found[CPU_BAND_MOST];
    const int count = band_chain(graph, found);
    *band = (struct cpu_band){0};
    if (!count)
        return;
    for (int i = 0; i < count; i++)
        chain[i] = found[count - 1 - i];
    const int input = graph->nodes[graph->node_count - count].in[OP_X].tensor;
    size_t least = band_peak(band, graph, chain, count, input), few = least;
    for (int first = count - 1; first >= 0; first--) {
        struct cpu_band tried = {.first = graph->node_count - count + first, .count = count - first};
        memcpy(tried.layer, chain + first, (size_t)tried.count * sizeof *chain);
        tried.layer[0].kernel = 0;
        band_measure(&tried, graph, threads);
        const size_t peak = band_peak(&tried, graph, chain, first, input);
        if (peak + BAND_SAVES > least || (tried.count > BAND_MANY && peak + BAND_MANY_SAVE > few))
            continue;
        least = peak;
        few = tried.count > BAND_MANY ? few : peak;
        *band = tried;
    }
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
    for (int i = 0; i <= last; i++) {
        const struct cpu_band_layer *layer = &band->layer[i];
        const int64_t step = (int64_t)band->step * layer->h / band->layer[0].h;
        int end = band_up(rows->done[i] + (int)step, layer->h);
        if (i > 0 && need[i - 1] < band->layer[i - 1].h) { /* the last row's last tap is in a row that there is */
            const int there = need[i - 1] * layer->up + layer->pad - layer->kernel + 1;
            end = there < end ? there / BAND_TILE * BAND_TILE : end;
        }
        need[i] = end > rows->done[i] ? end : rows->done[i];
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

struct band_kept {
    const struct cpu_operand *whole;
    int had, low, done;
};

static void band_keep_block(void *context, int block, int thread)
{
    const struct band_kept *kept = context;
    const size_t row = (size_t)kept->whole->w * CPU_BLOCK;
    float *first = kept->whole->data + (size_t)block * kept->whole->plane;
    (void)thread;
    memmove(first, first + (size_t)(kept->low - kept->had) * row,
            (size_t)(kept->done - kept->low) * row * sizeof(float));
}

void cpu_band_keep(struct cpu_pool *pool, const struct cpu_operand *whole, int had, int low, int done)
{
    struct band_kept kept = {whole, had, low, done};
    if (done > low && low > had)
        cpu_pool_run(pool, whole->blocks, band_keep_block, &kept);
}

float *cpu_band_before(const float *data, int low, int w)
{
    /* as a number: the picture's first row may lie before all of the memory */
    return (float *)((uintptr_t)data - (uintptr_t)low * (uintptr_t)w * CPU_BLOCK * sizeof(float));
}

struct cpu_operand cpu_band_shift(const struct cpu_operand *whole, int low)
{
    struct cpu_operand shifted = *whole;
    shifted.data = cpu_band_before(whole->data, low, whole->w);
    return shifted;
}
