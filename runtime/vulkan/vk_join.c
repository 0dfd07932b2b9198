#include "runtime/vulkan/vk_join.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/vulkan/vk_matrix.h"

#define LANES 16 /* of the largest group: quads of the second half count on from the first half's if it begins one */

static bool join_touches(const struct node *node, int tensor)
{
    bool found = node->out.tensor == tensor;
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        found = found || node->in[i].tensor == tensor;
    return found;
}

/* Whether it is a convolution on matrices, one input pixel for each of the output, that has no residuals and whose
 * output others may change. */
static bool join_leaves_room(const struct vk_build *build, const struct node *conv)
{
    const struct op_conv2d *args = &conv->args.conv2d;
    return conv->kind == OP_CONV2D && vk_matrix_takes(build, conv) && args->stride == 1 && args->upsample == 1 &&
           conv->in[OP_RESIDUAL1].tensor < 0 && conv->in[OP_RESIDUAL2].tensor < 0 &&
           graph_tensor_of(build->graph, conv->out)->role == TENSOR_TEMP;
}

/* Whether the view's channels lie without padding between them. */
static bool join_is_dense(const struct vk_build *build, struct view view)
{
    struct vk_layout layout, dense;
    vk_pack_layout(build->graph, view, build->grouped, &layout);
    vk_pack_layout_dense(layout.channels, build->grouped, &dense);
    return vk_pack_layout_same(&layout, &dense);
}

static bool join_same_view(struct view a, struct view b)
{
    return a.tensor == b.tensor && a.first == b.first && a.count == b.count;
}

static int join_touching(const struct graph *graph, int tensor)
{
    int touching = 0;
    for (int n = 0; n < graph->node_count; n++)
        touching += join_touches(&graph->nodes[n], tensor);
    return touching;
}

/* Whether the shader can put the shuffled pixels where they go: a quad each, or whole groups, whose quads lie side by
 * side as it writes them; to a quad it also adds. */
static bool join_shuffles_well(const struct vk_build *build, const struct node *conv, const struct node *shuffle)
{
    const int channels = graph_channels(build->graph, shuffle->out);
    struct vk_layout layout;
    vk_pack_layout(build->graph, shuffle->out, build->grouped, &layout);
    if (shuffle->in[OP_RESIDUAL1].tensor >= 0)
        return channels <= 4 && conv->args.conv2d.activation == ACTIVATION_NONE;
    return channels <= 4 || (channels % LANES == 0 && layout.group_log > 0 && join_is_dense(build, shuffle->out));
}

/* Whether the convolution's channels go only through the shuffle. */
static bool joins_shuffle(const struct vk_build *build, const struct node *conv, const struct node *shuffle)
{
    const struct graph *graph = build->graph;
    const struct op_conv2d *args = &conv->args.conv2d;
    if (shuffle->kind != OP_PIXEL_SHUFFLE || !join_leaves_room(build, conv) || args->gain != 1.0f ||
        args->scale != 1.0f || shuffle->args.shuffle.factor > 4 || !join_shuffles_well(build, conv, shuffle) ||
        graph_channels(graph, conv->out) != graph_channels(graph, shuffle->in[OP_X]))
        return false;
    for (int i = OP_RESIDUAL2 + 1; i < OP_MAX_INPUTS; i++)
        if (i != OP_IN_SCALE && conv->in[i].tensor >= 0)
            return false;
    return join_touching(graph, conv->out.tensor) == 2 && shuffle->in[OP_X].tensor == conv->out.tensor;
}

static void join_shuffle(struct node *conv, struct node *shuffle)
{
    conv->out = shuffle->out;
    conv->in[OP_RESIDUAL1] = shuffle->in[OP_RESIDUAL1];
    conv->args.conv2d.residual1_scale = 1.0f;
}

/* Whether the node doubles a picture by nearest neighbour, and the next one adds that to something of its size, where
 * nobody else sees it. */
static bool joins_sum(const struct vk_build *build, int enlarge)
{
    const struct graph *graph = build->graph;
    const struct node *node = &graph->nodes[enlarge], *add = node + 1;
    if (node->kind != OP_RESIZE || node->args.resize.mode != RESIZE_NEAREST || enlarge + 1 == graph->node_count ||
        add->kind != OP_ADD || !join_same_view(add->in[OP_X], node->out) || add->out.tensor == node->out.tensor ||
        add->in[OP_RESIDUAL1].tensor == node->out.tensor)
        return false;
    const struct tensor *x = graph_tensor_of(graph, node->in[OP_X]), *large = graph_tensor_of(graph, node->out);
    return large->role == TENSOR_TEMP && join_touching(graph, node->out.tensor) == 2 && large->h == 2 * x->h &&
           large->w == 2 * x->w && x->role != TENSOR_CONSTANT && add->out.tensor != node->in[OP_X].tensor &&
           vk_plan_halves(build, node->in[OP_X]) == vk_plan_halves(build, node->out);
}

/* Whether the view is written only by nodes before that one. */
static bool join_there_before(const struct graph *graph, struct view view, int node)
{
    for (int n = node; n < graph->node_count; n++)
        if (graph->nodes[n].out.tensor == view.tensor)
            return false;
    return true;
}

/* Whether the node scales and shifts the second half of the convolution's channels, in place, by values that exist
 * before the convolution. */
static bool joins_transform(const struct vk_build *build, int conv, const struct node *node)
{
    const struct graph *graph = build->graph;
    const struct view whole = graph->nodes[conv].out, part = node->out, x = node->in[OP_X];
    const struct view scale = node->in[OP_RESIDUAL1], shift = node->in[OP_RESIDUAL2];
    if (node->kind != OP_SCALE_SHIFT || part.tensor != whole.tensor || x.tensor != whole.tensor ||
        x.first != part.first || x.count != part.count || part.first + part.count != whole.first + whole.count)
        return false;
    const struct tensor *y = graph_tensor_of(graph, part), *factors = graph_tensor_of(graph, scale);
    if (factors->h != y->h || factors->w != y->w) /* one a channel */
        return false;
    const int half = graph_channels(graph, part);
    return half % LANES == 0 && 2 * half == graph_channels(graph, whole) && join_is_dense(build, whole) &&
           join_is_dense(build, scale) && join_is_dense(build, shift) && join_there_before(graph, scale, conv) &&
           join_there_before(graph, shift, conv);
}

/* The node that transforms the second half of the convolution's channels before anybody else touches them, or -1. Other
 * kernels than 3×3 may be done by vk_direct, which adds residual 1 to the sum. */
static int join_transform_of(const struct vk_build *build, int conv)
{
    const struct graph *graph = build->graph;
    const struct node *from = &graph->nodes[conv];
    if (!join_leaves_room(build, from) || from->args.conv2d.kernel != 3 || from->args.conv2d.activation_last)
        return -1;
    for (int n = conv + 1; n < graph->node_count; n++)
        if (join_touches(&graph->nodes[n], from->out.tensor))
            return joins_transform(build, conv, &graph->nodes[n]) ? n : -1;
    return -1;
}

/* Whether the node makes a picture of one value a channel, or adds one to each pixel, in place. */
static bool join_is_shift(const struct graph *graph, const struct node *node)
{
    const bool enlarges = node->kind == OP_RESIZE && join_touching(graph, node->out.tensor) == 2;
    const bool adds = node->kind == OP_ADD && join_same_view(node->in[OP_X], node->out) &&
                      node->args.add.x_scale == 1.0f && node->args.add.residual1_scale == 1.0f &&
                      node->args.add.activation == ACTIVATION_NONE;
    const struct tensor *y = graph_tensor_of(graph, node->out);
    if ((!enlarges && !adds) || y->role != TENSOR_TEMP || (y->h == 1 && y->w == 1))
        return false;
    const struct tensor *x = graph_tensor_of(graph, node->in[enlarges ? OP_X : OP_RESIDUAL1]);
    return x->h == 1 && x->w == 1;
}

/* The convolution that adds that node's result as residual 2, where nobody else sees it, or -1. It can add the values
 * themselves, and so has them in place of a map of noise. */
static int join_shift_to(const struct vk_build *build, int shift)
{
    const struct graph *graph = build->graph;
    const struct node *from = &graph->nodes[shift];
    if (from->out.tensor < 0 || !join_is_shift(graph, from) ||
        !join_there_before(graph, from->in[from->kind == OP_ADD ? OP_RESIDUAL1 : OP_X], shift))
        return -1;
    int found = -1;
    for (int n = shift + 1; n < graph->node_count; n++) {
        const struct node *conv = &graph->nodes[n];
        if (!join_touches(conv, from->out.tensor))
            continue;
        if (found >= 0 || conv->kind != OP_CONV2D || !vk_matrix_takes(build, conv) ||
            !join_same_view(conv->in[OP_RESIDUAL2], from->out) || conv->out.tensor == from->out.tensor ||
            conv->in[OP_X].tensor == from->out.tensor || conv->in[OP_RESIDUAL1].tensor == from->out.tensor ||
            conv->in[OP_NOISE_MAP].tensor >= 0)
            return -1;
        found = n;
    }
    return found;
}

static void join_shift(struct node *conv, const struct node *shift)
{
    const bool adds = shift->kind == OP_ADD;
    conv->in[OP_NOISE_MAP] = shift->in[adds ? OP_RESIDUAL1 : OP_X];
    if (!adds)
        conv->in[OP_RESIDUAL2] = VIEW_NONE;
}

static void join_leave_nothing(struct node *node)
{
    node->out.tensor = -1;
    for (int slot = 0; slot < OP_MAX_INPUTS; slot++)
        node->in[slot].tensor = -1;
}

enum error_code vk_join(const struct vk_build *build, struct node **out, struct error *err)
{
    const struct graph *graph = build->graph;
    *out = NULL;
    for (int i = 0; i + 1 < graph->node_count; i++) {
        const bool shuffles = joins_shuffle(build, &graph->nodes[i], &graph->nodes[i + 1]);
        const int shifted = join_shift_to(build, i), with = shuffles ? i + 1 : join_transform_of(build, i);
        const bool sums = shifted < 0 && joins_sum(build, i);
        if (with < 0 && shifted < 0 && !sums)
            continue;
        if (!*out) {
            *out = mem_alloc((size_t)graph->node_count, sizeof **out);
            if (!*out)
                return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
            memcpy(*out, graph->nodes, (size_t)graph->node_count * sizeof **out);
        }
        if (sums) {
            (*out)[i + 1].in[OP_X] = (*out)[i].in[OP_X];
            join_leave_nothing(*out + i);
            continue;
        }
        struct node *conv = *out + (shifted < 0 ? i : shifted), *joined = *out + (shifted < 0 ? with : i);
        if (shifted >= 0) {
            join_shift(conv, joined);
        } else if (shuffles) {
            join_shuffle(conv, joined);
        } else {
            conv->in[OP_RESIDUAL1] = joined->in[OP_RESIDUAL1];
            conv->in[OP_RESIDUAL2] = joined->in[OP_RESIDUAL2];
        }
        join_leave_nothing(joined);
    }
    return OK;
}

bool vk_join_shuffles(const struct node *node)
{
    return node->kind == OP_PIXEL_SHUFFLE && node->out.tensor < 0;
}

bool vk_join_transforms(const struct graph *graph, const struct node *conv)
{
    const struct view scale = conv->in[OP_RESIDUAL1];
    return scale.tensor >= 0 && conv->in[OP_RESIDUAL2].tensor >= 0 &&
           2 * graph_channels(graph, scale) == graph_channels(graph, conv->out);
}
