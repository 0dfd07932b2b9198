/* What the Vulkan backend does together (vk_join.h), mostly where convolutions run on matrices, without a device: which
 * nodes are joined and what becomes of them, and each reason for which they are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_join.h"

#define SIDE 6

static struct vk_device device;
static struct vk_build build;

static struct graph *begin(void)
{
    struct graph *graph;
    struct error err = ERROR_INIT;
    assert_int_equal(graph_create(&graph, &err), OK);
    device = (struct vk_device){.matrix = true, .traits.limits.maxComputeSharedMemorySize = 16384}; /* Vulkan's least */
    build = (struct vk_build){.device = &device, .graph = graph, .half = true, .grouped = true};
    return graph;
}

static struct view tensor(struct graph *graph, enum tensor_role role, int count, const int *segments)
{
    return graph_tensor(graph, role, 1, SIDE, SIDE, count, segments);
}

/* Kernel, activation and whatever else vk_join looks at; weights are none of its business. */
static struct node *conv(struct graph *graph, struct view x, struct view y)
{
    struct node *node = graph_node(graph, OP_CONV2D, y);
    node->in[OP_X] = x;
    node->args.conv2d = (struct op_conv2d){.kernel = 3, .stride = 1, .pad = 1, .upsample = 1, .gain = 1, .scale = 1};
    return node;
}

/* Joins, and checks that nodes `with` and `gone` were joined, and nothing else; with < 0: none. The nodes; NULL where
 * none were. */
static struct node *join(int with, int gone)
{
    const struct graph *graph = build.graph;
    struct error err = ERROR_INIT;
    struct node *nodes;
    assert_int_equal(vk_join(&build, &nodes, &err), OK);
    assert_int_equal(nodes != NULL, with >= 0);
    for (int n = 0; nodes && n < graph->node_count; n++) {
        if (n == gone) {
            assert_true(nodes[n].out.tensor < 0);
            for (int i = 0; i < OP_MAX_INPUTS; i++)
                assert_true(nodes[n].in[i].tensor < 0);
            assert_int_equal(vk_join_shuffles(&nodes[n]), nodes[n].kind == OP_PIXEL_SHUFFLE);
        } else if (n != with) {
            assert_memory_equal(&nodes[n], &graph->nodes[n], sizeof nodes[n]);
            assert_false(vk_join_shuffles(&nodes[n]));
        }
    }
    return nodes;
}

/* --- scale and shift -----------------------------------------------------------------------------------------------
 */

/* What GFPGAN does, and what may be otherwise. */
struct transform {
    const char *what;
    bool joined;
    int segments[4]; /* of the convolution's output; the last one is transformed; none: 32, 32 */
    int parts[2];    /* segments of the scale; none: one of all channels */
    enum tensor_role role, scale_role;
    int kernel, stride, upsample;
    bool activation_last, residual, fp32, no_matrix;
    bool into, from;      /* another tensor */
    bool moved;           /* from the first half */
    bool sum;             /* another operator */
    bool whole, first;    /* other segments are transformed */
    bool read, rewritten; /* between, the output */
    bool late, again;     /* the shift is written only behind the convolution; again behind the transform */
    bool own;             /* the scale is part of the convolution's output */
};

static const struct transform transforms[] = {
    {"as GFPGAN does", .joined = true},
    {"the first half has parts", .joined = true, .segments = {16, 16, 32}},
    {"groups of 8 channels", .joined = true, .segments = {8, 24, 32}},
    {"a constant scale", .joined = true, .scale_role = TENSOR_CONSTANT},
    {"an input", .joined = true, .scale_role = TENSOR_INPUT},
    {"halves of 24 channels", .segments = {24, 24}},
    {"halves of 24 channels, in groups of 8", .segments = {8, 16, 24}},
    {"padding in the first half", .segments = {20, 12, 32}},
    {"padding in the scale", .parts = {20, 12}},
    {"less than half", .segments = {48, 16}},
    {"more than half", .segments = {16, 48}},
    {"all", .whole = true},
    {"the first half", .first = true},
    {"an output", .role = TENSOR_OUTPUT},
    {"1×1", .kernel = 1},
    {"5×5", .kernel = 5},
    {"with stride 2", .stride = 2},
    {"of a doubled input", .upsample = 2},
    {"activated last", .activation_last = true},
    {"with a residual", .residual = true},
    {"in fp32", .fp32 = true},
    {"without matrices", .no_matrix = true},
    {"into another tensor", .into = true},
    {"of another tensor", .from = true},
    {"of the first half into the second", .moved = true},
    {"no scale and shift", .sum = true},
    {"read before it", .read = true},
    {"written again before it", .rewritten = true},
    {"the shift comes later", .late = true},
    {"the shift's memory is used again", .again = true},
    {"scaled by its own channels", .own = true},
};

static void test_transform(const struct transform *form)
{
    static const int usual[] = {32, 32}, narrow = 16;
    const int *segments = form->segments[0] ? form->segments : usual;
    int count = 0, channels = 0;
    for (; count < 4 && (count < 2 || form->segments[count]); count++)
        channels += segments[count];
    const int part_first = form->whole || form->first ? 0 : count - 1, part_count = form->whole ? count : 1;
    int part = form->whole ? channels : segments[part_first];
    struct graph *graph = begin();
    device.matrix = !form->no_matrix;
    build.half = !form->fp32;
    const struct view x = tensor(graph, TENSOR_INPUT, 1, &narrow), y = tensor(graph, form->role, count, segments);
    const struct view target = graph_segments(y, part_first, part_count), other = tensor(graph, TENSOR_TEMP, 1, &part);
    const struct view shift = tensor(graph, TENSOR_TEMP, 1, &part), free_place = tensor(graph, TENSOR_TEMP, 1, &narrow);
    const struct view scale = form->own        ? graph_segments(y, 0, 1)
                              : form->parts[0] ? tensor(graph, form->scale_role, 2, form->parts)
                                               : tensor(graph, form->scale_role, 1, &part);
    if (form->scale_role == TENSOR_TEMP && !form->own)
        conv(graph, x, scale);
    if (!form->late)
        conv(graph, x, shift);
    const int at = graph->node_count;
    struct node *node = conv(graph, x, y);
    if (form->kernel)
        node->args.conv2d.kernel = form->kernel;
    if (form->stride)
        node->args.conv2d.stride = form->stride;
    if (form->upsample)
        node->args.conv2d.upsample = form->upsample;
    node->args.conv2d.activation_last = form->activation_last;
    node->args.conv2d.gain = 1.4f;
    if (form->residual)
        node->in[OP_RESIDUAL1] = other;
    conv(graph, form->read ? y : x, free_place); /* unrelated */
    if (form->rewritten)
        conv(graph, x, graph_segments(y, 0, 1));
    if (form->late)
        conv(graph, x, shift);
    const int transform = graph->node_count;
    node = graph_node(graph, form->sum ? OP_ADD : OP_SCALE_SHIFT, target);
    node->in[OP_X] = form->moved ? graph_segments(y, 0, 1) : target;
    if (form->into)
        node->out.tensor = tensor(graph, TENSOR_TEMP, count, segments).tensor;
    if (form->from)
        node->in[OP_X].tensor = tensor(graph, TENSOR_TEMP, count, segments).tensor;
    node->in[OP_RESIDUAL1] = scale;
    node->in[OP_RESIDUAL2] = shift;
    if (form->again)
        conv(graph, x, shift);
    conv(graph, y, free_place); /* a reader */

    struct node *nodes = join(form->joined ? at : -1, transform);
    for (int n = 0; n < graph->node_count; n++)
        assert_int_equal(vk_join_transforms(graph, nodes ? &nodes[n] : &graph->nodes[n]), nodes && n == at);
    if (nodes) {
        struct node expected = graph->nodes[at];
        expected.in[OP_RESIDUAL1] = scale;
        expected.in[OP_RESIDUAL2] = shift;
        assert_memory_equal(&nodes[at], &expected, sizeof expected);
    }
    free(nodes);
    graph_destroy(&graph);
}

static void test_transforms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof transforms / sizeof transforms[0]; i++) {
        print_message("scale and shift: %s\n", transforms[i].what);
        test_transform(&transforms[i]);
    }
}

/* --- pixel shuffle -------------------------------------------------------------------------------------------------
 */

struct shuffle {
    const char *what;
    bool joined;
    int factor, channels; /* none: 2, 3 */
    enum activation activation;
    float gain, scale; /* none: 1 */
    int beside;        /* channels of another segment of the larger picture; none: it has one */
    bool residual, conv_residual, modulated, styled, output, read, apart, fp32;
};

static const struct shuffle shuffles[] = {
    {"as SRVGG does", .joined = true, .residual = true},
    {"without a residual", .joined = true},
    {"by 4, of 4 channels", .joined = true, .factor = 4, .channels = 4},
    {"by 5", .factor = 5},
    {"of 5 channels", .channels = 5},
    {"of 32 channels", .joined = true, .channels = 32},
    {"of 32 channels, with a residual", .channels = 32, .residual = true},
    {"of 32 channels, beside 8", .joined = true, .channels = 32, .beside = 8},
    {"of 32 channels, beside 3, so that its quads lie apart", .channels = 32, .beside = 3},
    {"beside 3", .joined = true, .beside = 3},
    {"activated", .joined = true, .activation = ACTIVATION_RELU},
    {"activated, with a residual", .activation = ACTIVATION_RELU, .residual = true},
    {"with factors of its input", .joined = true, .channels = 32, .styled = true},
    {"scaled", .scale = 0.5f},
    {"scaled before the bias", .gain = 0.5f},
    {"of a sum", .conv_residual = true},
    {"modulated", .modulated = true},
    {"of an output", .output = true},
    {"with another reader", .read = true},
    {"not right behind", .apart = true},
    {"in fp32", .fp32 = true},
};

static void test_shuffle(const struct shuffle *form)
{
    const int factor = form->factor ? form->factor : 2, channels = form->channels ? form->channels : 3;
    const int flat = channels * factor * factor, narrow = 16, rgb = channels;
    struct graph *graph = begin();
    build.half = !form->fp32;
    const struct view x = tensor(graph, TENSOR_INPUT, 1, &narrow), base = tensor(graph, TENSOR_INPUT, 1, &rgb);
    const struct view y = tensor(graph, form->output ? TENSOR_OUTPUT : TENSOR_TEMP, 1, &flat);
    const int segments[] = {channels, form->beside}, count = form->beside ? 2 : 1;
    const struct view large = graph_tensor(graph, TENSOR_OUTPUT, 1, SIDE * factor, SIDE * factor, count, segments);
    const struct view out = graph_segments(large, 0, 1);
    const struct view other = tensor(graph, TENSOR_TEMP, 1, &flat);
    struct node *node = conv(graph, x, y);
    node->args.conv2d.activation = form->activation;
    node->args.conv2d.scale = form->scale != 0 ? form->scale : 1;
    node->args.conv2d.gain = form->gain != 0 ? form->gain : 1;
    if (form->conv_residual)
        node->in[OP_RESIDUAL2] = other;
    if (form->modulated)
        node->in[OP_OUT_SCALE] = graph_tensor(graph, TENSOR_INPUT, 1, 1, 1, 1, &flat);
    if (form->styled)
        node->in[OP_IN_SCALE] = graph_tensor(graph, TENSOR_INPUT, 1, 1, 1, 1, &narrow);
    if (form->apart)
        conv(graph, x, other);
    node = graph_node(graph, OP_PIXEL_SHUFFLE, out);
    node->in[OP_X] = y;
    node->args.shuffle.factor = factor;
    if (form->residual)
        node->in[OP_RESIDUAL1] = base;
    if (form->read)
        conv(graph, y, other);

    struct node *nodes = join(form->joined ? 0 : -1, 1);
    if (nodes) {
        struct node expected = graph->nodes[0];
        expected.out = out;
        expected.in[OP_RESIDUAL1] = form->residual ? base : VIEW_NONE;
        expected.args.conv2d.residual1_scale = 1;
        assert_memory_equal(&nodes[0], &expected, sizeof expected);
        assert_int_equal(nodes[1].args.shuffle.factor, factor);
        assert_false(vk_join_transforms(graph, &nodes[0]));
    }
    free(nodes);
    graph_destroy(&graph);
}

static void test_shuffles(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shuffles / sizeof shuffles[0]; i++) {
        print_message("pixel shuffle: %s\n", shuffles[i].what);
        test_shuffle(&shuffles[i]);
    }
}

/* --- a value a channel, everywhere ---------------------------------------------------------------------------------
 */

struct shift {
    const char *what;
    bool joined;
    int side; /* of what is enlarged or added; none: 1 */
    bool adds, first, part, output, read, again, fp32, noise, apart, active, scaled;
};

static const struct shift shifts[] = {
    {"enlarged, as FBCNN does", .joined = true},
    {"added to a skip before it, as FBCNN does", .joined = true, .adds = true},
    {"of a picture", .side = 2},
    {"a picture that is added", .side = SIDE, .adds = true},
    {"as residual 1", .first = true},
    {"of which a part is added", .part = true},
    {"an output", .output = true},
    {"an output it is added to", .output = true, .adds = true},
    {"with another reader", .read = true},
    {"with another reader of the sum", .read = true, .adds = true},
    {"which changes meanwhile", .again = true},
    {"which changes after it was added", .again = true, .adds = true},
    {"beside noise", .noise = true},
    {"added elsewhere", .apart = true, .adds = true},
    {"added in front of an activation", .active = true, .adds = true},
    {"of which a half is added", .scaled = true, .adds = true},
    {"in fp32", .fp32 = true},
};

/* A value a channel, which the first node enlarges or adds to a picture, and a convolution that adds the result. */
static void test_shift(const struct shift *form)
{
    const int channels = 16, one = 1, side = form->side ? form->side : 1, halves[] = {channels, channels};
    struct graph *graph = begin();
    build.half = !form->fp32;
    const struct view x = tensor(graph, TENSOR_INPUT, 1, &channels), y = tensor(graph, TENSOR_OUTPUT, 1, &channels);
    const int parts = form->part ? 2 : 1;
    const struct view few = graph_tensor(graph, TENSOR_TEMP, 1, side, side, parts, halves);
    const struct view all = tensor(graph, form->output ? TENSOR_OUTPUT : TENSOR_TEMP, parts, halves);
    struct node *node = graph_node(graph, form->adds ? OP_ADD : OP_RESIZE, all);
    node->in[OP_X] = few;
    if (form->adds) {
        node->in[OP_X] = form->apart ? x : all;
        node->in[OP_RESIDUAL1] = few;
        node->args.add = (struct op_add){.x_scale = 1,
                                         .residual1_scale = form->scaled ? 0.5f : 1,
                                         .activation = form->active ? ACTIVATION_RELU : ACTIVATION_NONE};
    }
    if (form->again)
        graph_node(graph, OP_ADD, few)->in[OP_X] = few;
    node = conv(graph, x, y);
    node->in[form->first ? OP_RESIDUAL1 : OP_RESIDUAL2] = graph_segments(all, 0, 1);
    if (form->noise)
        node->in[OP_NOISE_MAP] = tensor(graph, TENSOR_INPUT, 1, &one);
    if (form->read)
        conv(graph, all, tensor(graph, TENSOR_TEMP, 1, &channels));

    const int at = form->again ? 2 : 1;
    struct node *nodes = join(form->joined ? at : -1, 0);
    if (nodes) {
        struct node expected = graph->nodes[at];
        expected.in[OP_NOISE_MAP] = few;
        if (!form->adds)
            expected.in[OP_RESIDUAL2] = VIEW_NONE;
        assert_memory_equal(&nodes[at], &expected, sizeof expected);
    }
    free(nodes);
    graph_destroy(&graph);
}

static void test_shifts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
        print_message("a value a channel: %s\n", shifts[i].what);
        test_shift(&shifts[i]);
    }
}

/* --- a sum with what is enlarged -----------------------------------------------------------------------------------
 */

struct sum {
    const char *what;
    bool joined;
    bool bilinear, odd, output, read, second, apart, in_place, no_matrix, fp32;
};

static const struct sum sums[] = {
    {"as starter_damage does", .joined = true},
    {"without matrices", .joined = true, .no_matrix = true},
    {"bilinear", .bilinear = true},
    {"not twice the size", .odd = true},
    {"an output", .output = true},
    {"with another reader", .read = true},
    {"as residual 1", .second = true},
    {"not right behind", .apart = true},
    {"into what was enlarged", .in_place = true},
    {"enlarged in fp32", .fp32 = true},
};

static void test_sum(const struct sum *form)
{
    const int channels = 16;
    struct graph *graph = begin();
    build.half = device.matrix = !form->no_matrix;
    const struct view x = tensor(graph, TENSOR_INPUT, 1, &channels);
    const int side = form->odd ? 2 * SIDE - 1 : 2 * SIDE;
    const struct view large =
        graph_tensor(graph, form->output ? TENSOR_OUTPUT : TENSOR_TEMP, 1, side, side, 1, &channels);
    const struct view skip = graph_tensor(graph, TENSOR_INPUT, 1, side, side, 1, &channels);
    const struct view out = graph_tensor(graph, TENSOR_OUTPUT, 1, side, side, 1, &channels);
    struct node *node = graph_node(graph, OP_RESIZE, large);
    node->in[OP_X] = x;
    node->args.resize.mode = form->bilinear ? RESIZE_BILINEAR : RESIZE_NEAREST;
    graph->tensors[large.tensor].fp32 = form->fp32;
    if (form->apart)
        conv(graph, x, tensor(graph, TENSOR_OUTPUT, 1, &channels));
    node = graph_node(graph, OP_ADD, form->in_place ? large : out);
    node->in[OP_X] = form->second ? skip : large;
    node->in[OP_RESIDUAL1] = form->second ? large : skip;
    node->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1, .activation = ACTIVATION_RELU};
    if (form->read || form->in_place)
        conv(graph, large, graph_tensor(graph, TENSOR_OUTPUT, 1, side, side, 1, &channels));

    struct node *nodes = join(form->joined ? 1 : -1, 0);
    if (nodes) {
        struct node expected = graph->nodes[1];
        expected.in[OP_X] = x;
        assert_memory_equal(&nodes[1], &expected, sizeof expected);
    }
    free(nodes);
    graph_destroy(&graph);
}

static void test_sums(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) {
        print_message("a sum: %s\n", sums[i].what);
        test_sum(&sums[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_transforms), cmocka_unit_test(test_shuffles),
                                       cmocka_unit_test(test_shifts), cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
