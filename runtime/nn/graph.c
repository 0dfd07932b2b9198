#include "runtime/nn/graph.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

enum error_code graph_create(struct graph **out, struct error *err)
{
    *out = mem_calloc(1, sizeof **out);
    return *out ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a graph");
}

void graph_destroy(struct graph **graph)
{
    if (!*graph)
        return;
    free((*graph)->tensors);
    free((*graph)->nodes);
    free(*graph);
    *graph = NULL;
}

enum error_code graph_finish(struct graph *graph, struct error *err)
{
    for (int i = 0; i < graph->node_count && graph->error.code == OK; i++)
        if (op_check(graph, &graph->nodes[i], &graph->error))
            break;
    if (graph->error.code)
        return error_set(err, graph->error.code, "%s", graph->error.text);
    return OK;
}

enum error_code graph_check_weights(const struct graph *graph, struct error *err)
{
    return graph->weights ? weights_check(graph->weights, err) : OK;
}

/* Makes room for one more element of an array. */
static bool graph_grow(struct graph *graph, void **items, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return true;
    int wanted = *capacity ? *capacity * 2 : 64;
    void *bigger = realloc(*items, (size_t)wanted * size);
    if (!bigger) {
        error_set(&graph->error, ERROR_NO_MEMORY, "out of memory for a graph");
        return false;
    }
    *items = bigger;
    *capacity = wanted;
    return true;
}

struct view graph_tensor(struct graph *graph, enum tensor_role role, int n, int h, int w, int segment_count,
                         const int *segments)
{
    if (graph->error.code)
        return VIEW_NONE;
    struct tensor t = {.role = role, .n = n, .h = h, .w = w, .segment_count = segment_count, .fp32 = graph->fp32};
    if (n < 1 || h < 1 || w < 1 || segment_count < 1 || segment_count > GRAPH_MAX_SEGMENTS) {
        error_set(&graph->error, ERROR_INTERNAL, "a tensor of shape %d×?×%d×%d in %d segments", n, h, w, segment_count);
        return VIEW_NONE;
    }
    uint64_t channels = 0;
    for (int i = 0; i < segment_count; i++) {
        if (segments[i] < 1 || (channels += (uint64_t)segments[i]) > INT32_MAX) {
            error_set(&graph->error, ERROR_INTERNAL, "a tensor with a segment of %d channels", segments[i]);
            return VIEW_NONE;
        }
        t.segment[i] = segments[i];
    }
    t.channels = (int)channels;
    if (t.channels > GRAPH_MAX_CHANNELS) {
        error_set(&graph->error, ERROR_TOO_LARGE, "a layer of %d channels, at most %d are supported", t.channels,
                  GRAPH_MAX_CHANNELS);
        return VIEW_NONE;
    }
    size_t count;
    if (!mem_mul((size_t)n * (size_t)h, (size_t)w, &count) || !mem_mul(count, channels, &count) ||
        count > SIZE_MAX / 64) {
        error_set(&graph->error, ERROR_TOO_LARGE, "a tensor of %d×%d×%d×%d values is too large", n, t.channels, h, w);
        return VIEW_NONE;
    }
    if (!graph_grow(graph, (void **)&graph->tensors, graph->tensor_count, &graph->tensor_capacity, sizeof t))
        return VIEW_NONE;
    int id = graph->tensor_count;
    if (role == TENSOR_INPUT) {
        if (graph->input_count == (int)(sizeof graph->inputs / sizeof graph->inputs[0])) {
            error_set(&graph->error, ERROR_INTERNAL, "too many inputs");
            return VIEW_NONE;
        }
        graph->inputs[graph->input_count++] = id;
    } else if (role == TENSOR_OUTPUT) {
        if (graph->output_count == (int)(sizeof graph->outputs / sizeof graph->outputs[0])) {
            error_set(&graph->error, ERROR_INTERNAL, "too many outputs");
            return VIEW_NONE;
        }
        graph->outputs[graph->output_count++] = id;
    }
    graph->tensors[graph->tensor_count++] = t;
    return (struct view){id, 0, segment_count};
}

struct view graph_temp(struct graph *graph, int n, int c, int h, int w)
{
    return graph_tensor(graph, TENSOR_TEMP, n, h, w, 1, &c);
}

struct view graph_constant(struct graph *graph, const struct param *param, int c, int h, int w)
{
    struct view v = graph_tensor(graph, TENSOR_CONSTANT, 1, h, w, 1, &c);
    if (v.tensor < 0)
        return v;
    if (param->count != (size_t)c * (size_t)h * (size_t)w) {
        error_set(&graph->error, ERROR_INTERNAL, "a constant of %zu values for %d×%d×%d", param->count, c, h, w);
        return VIEW_NONE;
    }
    graph->tensors[v.tensor].param = param;
    return v;
}

struct view graph_segments(struct view whole, int first, int count)
{
    if (whole.tensor < 0)
        return VIEW_NONE;
    return (struct view){whole.tensor, whole.first + first, count};
}

const struct tensor *graph_tensor_of(const struct graph *graph, struct view view)
{
    return &graph->tensors[view.tensor];
}

int graph_channels(const struct graph *graph, struct view view)
{
    const struct tensor *t = &graph->tensors[view.tensor];
    int channels = 0;
    for (int i = view.first; i < view.first + view.count; i++)
        channels += t->segment[i];
    return channels;
}

struct node *graph_node(struct graph *graph, enum op_kind kind, struct view out)
{
    if (graph->error.code)
        return NULL;
    if (graph->node_count == GRAPH_MAX_NODES) {
        error_set(&graph->error, ERROR_TOO_LARGE, "a network of more than %d layers", GRAPH_MAX_NODES);
        return NULL;
    }
    if (!graph_grow(graph, (void **)&graph->nodes, graph->node_count, &graph->node_capacity, sizeof(struct node)))
        return NULL;
    struct node *node = &graph->nodes[graph->node_count++];
    memset(node, 0, sizeof *node);
    node->kind = kind;
    node->out = out;
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        node->in[i] = VIEW_NONE;
    return node;
}

uint64_t graph_node_macs(const struct graph *graph, const struct node *node)
{
    const struct tensor *y = graph_tensor_of(graph, node->out);
    uint64_t out = (uint64_t)y->n * (uint64_t)y->h * (uint64_t)y->w * (uint64_t)graph_channels(graph, node->out);
    switch (node->kind) {
    case OP_CONV2D: {
        uint64_t k = (uint64_t)node->args.conv2d.kernel;
        return out * k * k * (uint64_t)graph_channels(graph, node->in[OP_X]);
    }
    case OP_SAMPLE:
        return out * 4 * (uint64_t)node->args.sample.groups;
    case OP_DEPTHWISE:
        return out * (uint64_t)node->args.depthwise.kernel * (uint64_t)node->args.depthwise.kernel;
    case OP_MEAN: {
        const struct tensor *x = graph_tensor_of(graph, node->in[OP_X]);
        return out * (uint64_t)x->h * (uint64_t)x->w;
    }
    case OP_LINEAR:
    case OP_DEMODULATE: {
        const struct tensor *x = graph_tensor_of(graph, node->in[OP_X]);
        return out * (uint64_t)graph_channels(graph, node->in[OP_X]) * (uint64_t)x->h * (uint64_t)x->w;
    }
    case OP_ATTENTION: /* two products with all tokens */
        return 2 * out * (uint64_t)y->h * (uint64_t)y->w;
    case OP_LOOKUP: /* what is compared */
        return (uint64_t)y->n * (uint64_t)y->h * (uint64_t)y->w * (uint64_t)graph_channels(graph, node->in[OP_X]);
    default:
        return out;
    }
}

uint64_t graph_macs(const struct graph *graph)
{
    uint64_t macs = 0;
    for (int i = 0; i < graph->node_count; i++)
        macs += graph_node_macs(graph, &graph->nodes[i]);
    return macs;
}
