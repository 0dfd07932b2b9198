#include "runtime/nn/arena_plan.h"

#include <stdlib.h>

#include "runtime/base/mem.h"

struct arena_item {
    int tensor, first, last; /* steps between which it is alive, both ends included */
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
    return x->tensor - y->tensor;
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

enum error_code arena_plan(const struct graph *graph, const int *step, const uint64_t *bytes, uint64_t alignment,
                           uint64_t *offsets, uint64_t *total, struct error *err)
{
    int count = graph->tensor_count;
    enum error_code code = OK;
    struct arena_item *items = mem_calloc((size_t)count, sizeof *items);
    const struct arena_item **placed = mem_calloc((size_t)count, sizeof *placed);
    *total = 0;
    if (!items || !placed) {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
        goto out;
    }
    for (int t = 0; t < count; t++) {
        enum tensor_role role = graph->tensors[t].role;
        items[t] = (struct arena_item){.tensor = t, .first = graph->node_count, .last = -1};
        if (bytes[t] > UINT64_MAX / 4 / (uint64_t)(count + 1)) {
            code = error_set(err, ERROR_TOO_LARGE, "the network's tensors are too large");
            goto out;
        }
        items[t].bytes = (bytes[t] + alignment - 1) / alignment * alignment;
        if (role == TENSOR_INPUT)
            arena_touch(&items[t], 0);
        if (role == TENSOR_OUTPUT)
            arena_touch(&items[t], graph->node_count);
    }
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        const int at = step ? step[n] : n;
        if (at < 0)
            continue;
        arena_touch(&items[node->out.tensor], at);
        for (int i = 0; i < OP_MAX_INPUTS; i++)
            if (node->in[i].tensor >= 0)
                arena_touch(&items[node->in[i].tensor], at);
    }
    qsort(items, (size_t)count, sizeof *items, arena_larger);
    int placed_count = 0;
    for (int i = 0; i < count; i++) {
        struct arena_item *item = &items[i];
        offsets[item->tensor] = 0;
        if (item->bytes == 0 || item->last < 0)
            continue;
        item->offset = arena_fit(item, placed, placed_count);
        offsets[item->tensor] = item->offset;
        if (item->offset + item->bytes > *total)
            *total = item->offset + item->bytes;
        int at = placed_count++;
        for (; at > 0 && placed[at - 1]->offset > item->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = item;
    }
out:
    free(items);
    free(placed);
    return code;
}
