#include "runtime/nn/arena_plan.h"

#include <stdlib.h>

#include "runtime/base/mem.h"

struct arena_item {
    struct arena_piece *piece;
    int first, last; /* steps between which it is alive, both ends included */
    uint64_t bytes, offset;
};

static void arena_touch(struct arena_item *item, int step)
{
    if (item->first > step)
        item->first = step;
    if (item->last < step)
        item->last = step;
}

/* Largest first: the classic greedy order, which leaves small tensors to fill the gaps. */
static int arena_larger(const void *a, const void *b)
{
    const struct arena_item *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->piece < y->piece ? -1 : 1;
}

/* The lowest offset at which item overlaps none of the placed items that are alive with it. placed[] is sorted by
 * offset. */
static uint64_t arena_fit(const struct arena_item *item, const struct arena_item *const *placed, int count)
{
    uint64_t offset = 0;
    for (int i = 0; i < count; i++) {
        const struct arena_item *p = placed[i];
        if (p->last < item->first || p->first > item->last || p->offset + p->bytes <= offset)
            continue;
        if (p->offset >= offset && p->offset - offset >= item->bytes)
            break;
        offset = p->offset + p->bytes;
    }
    return offset;
}

/* Touches the items of a view. at: the first item of each tensor, and the number of all behind the last. */
static void arena_touch_view(struct arena_item *items, const int *at, struct view view, int step)
{
    for (int i = view.tensor < 0 ? 0 : at[view.tensor]; view.tensor >= 0 && i < at[view.tensor + 1]; i++) {
        const struct arena_piece *piece = items[i].piece;
        if (piece->first < view.first + view.count && view.first < piece->first + piece->count)
            arena_touch(&items[i], step);
    }
}

/* From where to where each item is alive. */
static void arena_live(const struct graph *graph, const int *step, struct arena_item *items, const int *at)
{
    for (int t = 0; t < graph->tensor_count; t++) {
        const enum tensor_role role = graph->tensors[t].role;
        const struct view whole = {t, 0, graph->tensors[t].segment_count};
        if (role == TENSOR_INPUT || role == TENSOR_OUTPUT)
            arena_touch_view(items, at, whole, role == TENSOR_INPUT ? 0 : graph->node_count);
    }
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        const int now = step ? step[n] : n;
        if (now < 0)
            continue;
        arena_touch_view(items, at, node->out, now);
        for (int i = 0; i < OP_MAX_INPUTS; i++)
            arena_touch_view(items, at, node->in[i], now);
    }
}

enum error_code arena_plan_pieces(const struct graph *graph, const int *step, struct arena_piece *pieces, int count,
                                  uint64_t alignment, uint64_t *total, struct error *err)
{
    enum error_code code = OK;
    struct arena_item *items = mem_calloc((size_t)count, sizeof *items);
    const struct arena_item **placed = mem_calloc((size_t)count, sizeof *placed);
    int *at = mem_calloc((size_t)graph->tensor_count + 1, sizeof *at), placed_count = 0;
    *total = 0;
    if (!items || !placed || !at) {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        goto out;
    }
    for (int i = 0; i < count; i++) {
        if (pieces[i].bytes > UINT64_MAX / 4 / (uint64_t)(count + 1)) {
            code = error_set(err, ERROR_TOO_LARGE, "the network's tensors are too large");
            goto out;
        }
        const uint64_t bytes = (pieces[i].bytes + alignment - 1) / alignment * alignment;
        items[i] = (struct arena_item){.piece = &pieces[i], .first = graph->node_count, .last = -1, .bytes = bytes};
        pieces[i].offset = 0;
        at[pieces[i].tensor + 1] = i + 1;
    }
    for (int t = 0; t < graph->tensor_count; t++) /* some tensors may have no pieces */
        at[t + 1] = at[t + 1] > at[t] ? at[t + 1] : at[t];
    arena_live(graph, step, items, at);
    qsort(items, (size_t)count, sizeof *items, arena_larger);
    for (int i = 0; i < count; i++) {
        struct arena_item *item = &items[i];
        if (item->bytes == 0 || item->last < 0)
            continue;
        item->offset = item->piece->offset = arena_fit(item, placed, placed_count);
        if (item->offset + item->bytes > *total)
            *total = item->offset + item->bytes;
        int place = placed_count++;
        for (; place > 0 && placed[place - 1]->offset > item->offset; place--)
            placed[place] = placed[place - 1];
        placed[place] = item;
    }
out:
    free(items);
    free(placed);
    free(at);
    return code;
}

enum error_code arena_plan(const struct graph *graph, const int *step, const uint64_t *bytes, uint64_t alignment,
                           uint64_t *offsets, uint64_t *total, struct error *err)
{
    const int count = graph->tensor_count;
    struct arena_piece *pieces = mem_calloc((size_t)count, sizeof *pieces);
    *total = 0;
    if (!pieces)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (int t = 0; t < count; t++)
        pieces[t] = (struct arena_piece){t, 0, graph->tensors[t].segment_count, bytes[t], 0};
    enum error_code code = arena_plan_pieces(graph, step, pieces, count, alignment, total, err);
    for (int t = 0; t < count && code == OK; t++)
        offsets[t] = pieces[t].offset;
    free(pieces);
    return code;
}
