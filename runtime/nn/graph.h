/* What a network computes, with no device in sight: a list of operator nodes over tensors of fixed shape.
 *
 * A tensor is {n, c, h, w} and its channels are divided into segments. A view is a run of whole segments of one
 * tensor. Nodes read and write views, so a concatenation costs nothing: each producer writes its own segment of the
 * wide tensor and the consumer reads several. How a segment lies in memory (blocks, padding) is the backend's choice.
 * The order of the nodes is the order of execution; a node may write a view it reads only where its row in op.h says
 * so. Thread-safety: a graph is built by one thread and then immutable. */
#ifndef RUNTIME_NN_GRAPH_H
#define RUNTIME_NN_GRAPH_H

#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/nn/op.h"
#include "runtime/nn/param.h"

#define GRAPH_MAX_SEGMENTS 32
#define GRAPH_MAX_NODES 8192     /* networks have hundreds; devices order and place them in more than linear time */
#define GRAPH_MAX_CHANNELS 65536 /* of a tensor */

enum tensor_role {
    TENSOR_TEMP,
    TENSOR_INPUT,   /* filled by whoever runs the plan */
    TENSOR_OUTPUT,  /* handed to whoever runs the plan */
    TENSOR_CONSTANT /* a param; n is 1 and every image of a batch sees the same values */
};

struct tensor {
    enum tensor_role role;
    int n, h, w;
    int channels; /* sum of segment[] */
    int segment_count;
    int segment[GRAPH_MAX_SEGMENTS]; /* channels of each segment, all > 0 */
    const struct param *param;       /* TENSOR_CONSTANT: channels*h*w values */
    bool fp32;                       /* graph.fp32 when it was made; of a constant, its readers decide */
};

/* Segments first .. first+count-1 of a tensor. tensor < 0: no view. */
struct view {
    int tensor, first, count;
};

#define VIEW_NONE ((struct view){-1, 0, 0})

struct node {
    enum op_kind kind;
    struct view out;
    struct view in[OP_MAX_INPUTS];            /* indexed by the slots of op.h; VIEW_NONE where absent */
    const struct param *param[OP_MAX_PARAMS]; /* indexed by the slots of op.h; NULL where absent */
    union op_args args;
};

struct graph {
    int tensor_count, tensor_capacity;
    struct tensor *tensors;
    int node_count, node_capacity;
    struct node *nodes;
    int input_count, output_count;
    int inputs[64], outputs[16];   /* tensor numbers, in the order of a run's arrays */
    const struct weights *weights; /* the file that holds params that a plan reads, or NULL */
    bool exact;                    /* sum in double where the device can: a hint, for small networks */
    bool fp32;                     /* tensors made while it is true stay in fp32, and so does what writes them, in a
                                    * plan of any precision */
    struct error error;            /* of the first graph_* call that failed; later calls do nothing */
};

enum error_code graph_create(struct graph **out, struct error *err) MUST_CHECK;
void graph_destroy(struct graph **graph);

/* OK if every call before it succeeded, else the first error. Call once when the graph is built. */
enum error_code graph_finish(struct graph *graph, struct error *err) MUST_CHECK;

/* weights_check of the graph's weights: call it before and after reading their values. */
enum error_code graph_check_weights(const struct graph *graph, struct error *err) MUST_CHECK;

/* New tensors, as a view of the whole. segments[segment_count] are channel counts. */
struct view graph_tensor(struct graph *graph, enum tensor_role role, int n, int h, int w, int segment_count,
                         const int *segments);
struct view graph_temp(struct graph *graph, int n, int c, int h, int w); /* one segment */
struct view graph_constant(struct graph *graph, const struct param *param, int c, int h, int w);
struct view graph_segments(struct view whole, int first, int count);

/* Shape of a view. */
const struct tensor *graph_tensor_of(const struct graph *graph, struct view view);
int graph_channels(const struct graph *graph, struct view view);

/* Appends a node of that kind that writes out; the caller fills the inputs, params and args that it needs. NULL after
 * an error. Shapes are checked by graph_finish through op_check. */
struct node *graph_node(struct graph *graph, enum op_kind kind, struct view out);

/* Multiply-accumulates of one node, and of all. */
uint64_t graph_node_macs(const struct graph *graph, const struct node *node);
uint64_t graph_macs(const struct graph *graph);

#endif
