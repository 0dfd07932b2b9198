/* What op_check refuses: one wrong thing at a time in a node that is right. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/nn/graph.h"

/* A node and its tensors, before the graph is made of them. */
struct sample {
    enum op_kind kind;
    int shape[OP_MAX_INPUTS][4], out[4]; /* n, c, h, w; n 0: no such input */
    size_t count[OP_MAX_PARAMS];         /* 0: no such param */
    union op_args args;
};

static struct sample sample_of(enum op_kind kind)
{
    static const struct sample samples[OP_KIND_COUNT] = {
        [OP_CONV2D] =
            {.shape = {{2, 3, 5, 7}, {2, 4, 5, 7}, {2, 4, 5, 7}, {2, 3, 1, 1}, {2, 4, 1, 1}, {2, 1, 5, 7}},
             .out = {2, 4, 5, 7},
             .count = {3 * 4 * 9, 4, 4},
             .args.conv2d = {.kernel = 3, .stride = 1, .pad = 1, .upsample = 1, .activation = ACTIVATION_PRELU}},
        [OP_DEPTHWISE] = {.shape = {{2, 3, 5, 7}},
                          .out = {2, 3, 3, 4},
                          .count = {27, 3, 3},
                          .args.depthwise = {.kernel = 3, .stride = 2, .pad = 1, .activation = ACTIVATION_PRELU}},
        [OP_LINEAR] = {.shape = {{2, 3, 5, 7}},
                       .out = {2, 4, 1, 1},
                       .count = {3 * 5 * 7 * 4, 4, 4},
                       .args.linear = {.activation = ACTIVATION_PRELU}},
        [OP_DEMODULATE] = {.shape = {{2, 3, 1, 1}}, .out = {2, 4, 1, 1}, .count = {12}},
        [OP_RESIZE] = {.shape = {{2, 3, 5, 7}}, .out = {2, 3, 8, 9}},
        [OP_PIXEL_SHUFFLE] = {.shape = {{2, 12, 5, 7}, {2, 3, 5, 7}}, .out = {2, 3, 10, 14}, .args.shuffle = {2}},
        [OP_PIXEL_UNSHUFFLE] = {.shape = {{2, 3, 10, 14}}, .out = {2, 12, 5, 7}, .args.shuffle = {2}},
        [OP_ADD] = {.shape = {{2, 3, 5, 7}, {2, 3, 5, 7}},
                    .out = {2, 3, 5, 7},
                    .count = {0, 0, 3},
                    .args.add = {.activation = ACTIVATION_PRELU}},
        [OP_SCALE_SHIFT] = {.shape = {{2, 3, 5, 7}, {2, 3, 5, 7}, {2, 3, 5, 7}}, .out = {2, 3, 5, 7}},
        [OP_MAX_POOL] = {.shape = {{2, 3, 5, 7}}, .out = {2, 3, 3, 4}, .args.max_pool = {3, 2, 1}},
        [OP_NOISE] = {.out = {2, 1, 5, 7}},
        [OP_GROUP_NORM] = {.shape = {{2, 6, 5, 7}, {2, 6, 5, 7}},
                           .out = {2, 6, 5, 7},
                           .count = {6, 6},
                           .args.norm = {3, 1e-5f, false, ACTIVATION_SILU}},
        [OP_LAYER_NORM] = {.shape = {{2, 3, 5, 7}}, .out = {2, 3, 5, 7}, .count = {3, 3}, .args.norm = {.groups = 1}},
        [OP_ATTENTION] = {.shape = {{2, 8, 5, 7}, {2, 8, 5, 7}, {2, 8, 5, 7}},
                          .out = {2, 8, 5, 7},
                          .args.attention = {2, 1}},
        [OP_LOOKUP] = {.shape = {{2, 9, 5, 7}}, .out = {2, 3, 5, 7}, .count = {27}},
        [OP_GATE] = {.shape = {{2, 3, 5, 7}, {2, 3, 5, 7}, {2, 3, 5, 7}}, .out = {2, 3, 5, 7}},
        [OP_MEAN] = {.shape = {{2, 3, 5, 7}, [OP_NOISE_MAP] = {2, 1, 5, 7}}, .out = {2, 3, 1, 1}},
        [OP_SAMPLE] = {.shape = {{2, 3, 5, 7}, {2, 8, 5, 7}},
                       .out = {2, 3, 10, 14},
                       .count = {8},
                       .args.sample = {1, 2}},
    };
    struct sample s = samples[kind];
    s.kind = kind;
    return s;
}

/* What op_check says of it; an empty text where it is right. */
static const char *verdict(const struct sample *s)
{
    static char text[sizeof((struct error *)0)->text];
    struct error err = ERROR_INIT;
    struct graph *g;
    struct param *params[OP_MAX_PARAMS] = {NULL};
    assert_int_equal(graph_create(&g, &err), OK);
    struct view in[OP_MAX_INPUTS];
    for (int i = 0; i < OP_MAX_INPUTS; i++) {
        const int *d = s->shape[i];
        in[i] = d[0] ? graph_tensor(g, TENSOR_INPUT, d[0], d[2], d[3], 1, &d[1]) : VIEW_NONE;
    }
    struct node *node =
        graph_node(g, s->kind, graph_tensor(g, TENSOR_OUTPUT, s->out[0], s->out[2], s->out[3], 1, &s->out[1]));
    assert_non_null(node);
    memcpy(node->in, in, sizeof in);
    node->args = s->args;
    for (int i = 0; i < OP_MAX_PARAMS; i++)
        if (s->count[i]) {
            assert_int_equal(param_from_values(&params[i], NULL, s->count[i], &err), OK);
            node->param[i] = params[i];
        }
    const enum error_code code = graph_finish(g, &err);
    assert_int_equal(code, err.text[0] ? ERROR_INTERNAL : OK);
    strcpy(text, err.text);
    graph_destroy(&g);
    for (int i = 0; i < OP_MAX_PARAMS; i++)
        param_destroy(&params[i]);
    return text;
}

static void refused(const struct sample *s, const char *why, const char *what, int at)
{
    const char *text = verdict(s);
    if (!strstr(text, why) || strncmp(text, "operator ", 9) != 0 || !strstr(text, op_name(s->kind)))
        fail_msg("%s with a wrong %s (%d): \"%s\" does not say \"%s\"", op_name(s->kind), what, at, text, why);
}

static void every_sample_is_right(void **state)
{
    (void)state;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const struct sample s = sample_of((enum op_kind)kind);
        assert_string_equal(verdict(&s), "");
    }
    struct sample up = sample_of(OP_CONV2D); /* optional inputs may be absent, and sides grow with upsample */
    memset(up.shape[1], 0, sizeof up.shape - sizeof up.shape[0]);
    up.args.conv2d.upsample = 2;
    up.out[2] = 10;
    up.out[3] = 14;
    assert_string_equal(verdict(&up), "");
    struct sample shuffle = sample_of(OP_PIXEL_SHUFFLE);
    memset(shuffle.shape[1], 0, sizeof shuffle.shape[1]);
    assert_string_equal(verdict(&shuffle), "");
    for (int i = 0; i < 2; i++) { /* which moves nothing */
        struct sample one = sample_of(i ? OP_PIXEL_SHUFFLE : OP_PIXEL_UNSHUFFLE);
        memset(one.shape[1], 0, sizeof one.shape[1]);
        memcpy(one.out, one.shape[0], sizeof one.out);
        one.args.shuffle.factor = 1;
        assert_string_equal(verdict(&one), "");
    }
}

/* The output's shape follows from the input's: each number of it counts. */
static void shapes_follow(void **state)
{
    (void)state;
    static const struct {
        enum op_kind kind;
        const char *why[4]; /* for n, c, h, w; NULL: any will do */
    } rows[] = {
        {OP_CONV2D, {"output's shape", "weight's count", "output's shape", "output's shape"}},
        {OP_DEPTHWISE, {"output's shape", "output's shape", "output's shape", "output's shape"}},
        {OP_LINEAR, {"{n, c, 1, 1}", "weight's count", "{n, c, 1, 1}", "{n, c, 1, 1}"}},
        {OP_DEMODULATE, {"not {n, c, 1, 1}", "weight's count", "not {n, c, 1, 1}", "not {n, c, 1, 1}"}},
        {OP_RESIZE, {"batch or channels", "batch or channels", NULL, NULL}},
        {OP_PIXEL_SHUFFLE, {"output's shape", "output's shape", "output's shape", "output's shape"}},
        {OP_PIXEL_UNSHUFFLE, {"output's shape", "output's shape", "output's shape", "output's shape"}},
        {OP_ADD, {"shapes differ", "shapes differ", "shapes differ", "shapes differ"}},
        {OP_SCALE_SHIFT, {"shapes differ", "shapes differ", "shapes differ", "shapes differ"}},
        {OP_MAX_POOL, {"output's shape", "output's shape", "output's shape", "output's shape"}},
        {OP_NOISE, {NULL, "one channel", NULL, NULL}},
        {OP_GROUP_NORM, {"shapes differ", "shapes differ", "shapes differ", "shapes differ"}},
        {OP_LAYER_NORM, {"shapes differ", "shapes differ", "shapes differ", "shapes differ"}},
        {OP_ATTENTION, {"shapes differ", "shapes differ", "shapes differ", "shapes differ"}},
        {OP_LOOKUP, {"output's shape", "weight's count", "output's shape", "output's shape"}},
        {OP_GATE, {"shapes differ", "shapes differ", "shapes differ", "shapes differ"}},
        {OP_MEAN, {"{n, c, 1, 1}", "{n, c, 1, 1}", "{n, c, 1, 1}", "{n, c, 1, 1}"}},
        {OP_SAMPLE, {"output's shape", "output's shape", "output's shape", "output's shape"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int d = 0; d < 4; d++)
            for (int step = -1; step <= 1; step += 2) {
                struct sample s = sample_of(rows[i].kind);
                s.out[d] += step;
                if (s.out[d] < 1)
                    continue;
                if (rows[i].why[d])
                    refused(&s, rows[i].why[d], "side of the output", d);
                else
                    assert_string_equal(verdict(&s), "");
            }
    for (int d = 2; d < 4; d++) {
        struct sample s = sample_of(OP_DEMODULATE);
        s.shape[0][d] = 2;
        refused(&s, "not {n, c, 1, 1}", "side of the input", d);
    }
}

static void other_inputs_fit(void **state)
{
    (void)state;
    static const struct {
        enum op_kind kind;
        int slot;
        const char *why;
        bool wanted; /* may not be absent */
    } rows[] = {
        {OP_CONV2D, OP_RESIDUAL1, "a residual's shape", false},
        {OP_CONV2D, OP_RESIDUAL2, "a residual's shape", false},
        {OP_CONV2D, OP_IN_SCALE, "a scale's or the noise's shape", false},
        {OP_CONV2D, OP_OUT_SCALE, "a scale's or the noise's shape", false},
        {OP_CONV2D, OP_NOISE_MAP, "a scale's or the noise's shape", false},
        {OP_PIXEL_SHUFFLE, OP_RESIDUAL1, "the residual's shape", false},
        {OP_ADD, OP_X, "the shapes differ", false},
        {OP_ADD, OP_RESIDUAL1, "the shapes differ", true},
        {OP_SCALE_SHIFT, OP_X, "the shapes differ", false},
        {OP_SCALE_SHIFT, OP_RESIDUAL1, "the shapes differ", true},
        {OP_SCALE_SHIFT, OP_RESIDUAL2, "the shapes differ", true},
        {OP_GROUP_NORM, OP_RESIDUAL1, "the shapes differ", false},
        {OP_ATTENTION, OP_RESIDUAL1, "the shapes differ", true},
        {OP_ATTENTION, OP_RESIDUAL2, "the shapes differ", true},
        {OP_GATE, OP_RESIDUAL1, "the shapes differ", false},
        {OP_GATE, OP_RESIDUAL2, "the shapes differ", true},
        {OP_MEAN, OP_NOISE_MAP, "the map's shape", false},
        {OP_SAMPLE, OP_RESIDUAL1, "the places' shape", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int d = 0; d < 4; d++) {
            struct sample s = sample_of(rows[i].kind);
            s.shape[rows[i].slot][d]++;
            refused(&s, rows[i].why, "input", rows[i].slot);
        }
        struct sample s = sample_of(rows[i].kind);
        if (rows[i].wanted) {
            s.shape[rows[i].slot][0] = 0;
            refused(&s, rows[i].why, "absence of input", rows[i].slot);
        }
    }
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        struct sample s = sample_of((enum op_kind)kind);
        s.shape[OP_X][0] = 0;
        if (kind != OP_NOISE)
            refused(&s, "there is no input", "absence of the input", 0);
    }
}

static void params_have_their_counts(void **state)
{
    (void)state;
    static const enum op_kind weighted[] = {OP_CONV2D, OP_DEPTHWISE, OP_LINEAR, OP_DEMODULATE, OP_SAMPLE};
    static const enum op_kind biased[] = {OP_CONV2D, OP_DEPTHWISE, OP_LINEAR};
    static const enum op_kind active[] = {OP_CONV2D, OP_DEPTHWISE, OP_LINEAR, OP_ADD};
    for (size_t i = 0; i < sizeof weighted / sizeof weighted[0]; i++) {
        struct sample s = sample_of(weighted[i]);
        s.count[OP_WEIGHT]--;
        refused(&s, "the weight's count", "weight", 0);
        s.count[OP_WEIGHT] += 2;
        refused(&s, "the weight's count", "weight", 0);
        s.count[OP_WEIGHT] = 0;
        refused(&s, "the weight's count", "weight", 0);
    }
    for (size_t i = 0; i < sizeof biased / sizeof biased[0]; i++) {
        struct sample s = sample_of(biased[i]);
        s.count[OP_BIAS]++;
        refused(&s, "the bias' count", "bias", 0);
        s.count[OP_BIAS] = 0;
        assert_string_equal(verdict(&s), "");
    }
    for (size_t i = 0; i < sizeof active / sizeof active[0]; i++) {
        struct sample s = sample_of(active[i]);
        s.count[OP_SLOPE]--;
        refused(&s, "the slopes' count", "slope", 0);
        s.count[OP_SLOPE] = 0;
        refused(&s, "the slopes' count", "slope", 0);
    }
}

static void arguments_have_bounds(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct sample s = sample_of(OP_CONV2D);
        struct op_conv2d *a = &s.args.conv2d;
        *(i == 0 ? &a->kernel : i == 1 ? &a->stride : i == 2 ? &a->pad : &a->upsample) = i == 2 ? -1 : i == 4 ? 3 : 0;
        refused(&s, "kernel, stride, pad or upsample out of range", "argument", i);
    }
    for (int i = 0; i < 3; i++) {
        struct sample s = sample_of(OP_DEPTHWISE), pool = sample_of(OP_MAX_POOL);
        struct op_depthwise *a = &s.args.depthwise;
        struct op_max_pool *b = &pool.args.max_pool;
        *(i == 0 ? &a->kernel : i == 1 ? &a->stride : &a->pad) = i == 2 ? -1 : 0;
        *(i == 0 ? &b->kernel : i == 1 ? &b->stride : &b->pad) = i == 2 ? -1 : 0;
        refused(&s, "the output's shape", "argument", i);
        refused(&pool, "the output's shape", "argument", i);
    }
    for (int groups = 0; groups <= 9; groups++) { /* of 1, 2, 3 and 6 channels: 3 are no whole quads and share none */
        struct sample s = sample_of(OP_GROUP_NORM);
        s.args.norm.groups = groups;
        if (groups == 3 || groups == 6)
            assert_string_equal(verdict(&s), "");
        else
            refused(&s, "the groups do not divide", "number of groups", groups);
        struct sample attention = sample_of(OP_ATTENTION);
        attention.args.attention.heads = groups;
        if (groups == 1 || groups == 2)
            assert_string_equal(verdict(&attention), "");
        else
            refused(&attention, "the channels of a head", "number of heads", groups);
    }
    for (int more = 0; more <= 4; more += 4) {
        struct sample s = sample_of(OP_ATTENTION);
        s.args.attention.heads = 1;
        s.shape[0][1] = s.shape[1][1] = s.shape[2][1] = s.out[1] = OP_ATTENTION_HEAD + more;
        if (more)
            refused(&s, "a head has too many channels", "number of channels", more);
        else
            assert_string_equal(verdict(&s), "");
    }
    for (int kind = ACTIVATION_NONE; kind <= ACTIVATION_GELU; kind++) {
        struct sample s = sample_of(OP_GROUP_NORM);
        s.args.norm.activation = (enum activation)kind;
        s.count[OP_SLOPE] = 6;
        if (kind == ACTIVATION_NONE || kind == ACTIVATION_SILU)
            assert_string_equal(verdict(&s), "");
        else
            refused(&s, "does not have that activation", "activation", kind);
    }
    struct sample many = sample_of(OP_ATTENTION);
    for (int i = 0; i < 4; i++) {
        int *shape = i < 3 ? many.shape[i] : many.out;
        shape[2] = OP_ATTENTION_TOKENS / 2 + 1;
        shape[3] = 2;
    }
    refused(&many, "too many tokens", "size", 2);
    struct sample layer = sample_of(OP_LAYER_NORM);
    layer.args.norm.groups = 3;
    refused(&layer, "the groups do not divide", "number of groups", 3);
    for (int i = 0; i < 4; i++) {
        struct sample s = sample_of(OP_SAMPLE);
        *(i % 2 ? &s.args.sample.groups : &s.args.sample.factor) = i < 2 ? 0 : 99;
        refused(&s, "groups or factor out of range", "argument", i);
    }
    for (int i = 0; i < 2; i++) { /* some activations are of sums alone */
        struct sample s = sample_of(i ? OP_ADD : OP_DEPTHWISE);
        *(i ? &s.args.add.activation : &s.args.depthwise.activation) = ACTIVATION_SILU;
        refused(&s, "it does not have that activation", "activation", i);
    }
    struct sample pool = sample_of(OP_MAX_POOL); /* a window that lies in the padding alone */
    pool.args.max_pool = (struct op_max_pool){1, 1, 1};
    pool.out[2] = 7;
    pool.out[3] = 9;
    refused(&pool, "the output's shape", "pad", 1);
    struct sample small = sample_of(OP_CONV2D); /* a kernel larger than the padded picture */
    memset(small.shape[1], 0, sizeof small.shape - sizeof small.shape[0]);
    small.args.conv2d.kernel = 8;
    small.count[OP_WEIGHT] = 3 * 4 * 64;
    small.out[2] = 1;
    small.out[3] = 2;
    refused(&small, "the output's shape", "kernel", 8);
    for (int i = 0; i < 2; i++) {
        struct sample s = sample_of(i ? OP_PIXEL_SHUFFLE : OP_PIXEL_UNSHUFFLE);
        s.args.shuffle.factor = 0;
        refused(&s, "the output's shape", "factor", 0);
    }
    struct sample unknown = sample_of(OP_RESIZE);
    unknown.kind = OP_KIND_COUNT;
    refused(&unknown, "unknown operator", "kind", OP_KIND_COUNT);
    assert_string_equal(op_name((enum op_kind) - 1), "unknown");
}

/* A constant's one image serves every image of the batch; what is written is neither an input nor a constant. */
static void constants_and_views(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct param *values;
    assert_int_equal(param_from_values(&values, NULL, 3 * 5 * 7, &err), OK);
    static const struct {
        struct view in, out;
        const char *why;
    } rows[] = {
        {{0, 0, 1}, {2, 0, 2}, ""},
        {{0, 0, 1}, {0, 0, 1}, "the output is not a view that can be written"},
        {{0, 0, 1}, {1, 0, 1}, "the output is not a view that can be written"},
        {{0, 0, 1}, {3, 0, 1}, "the output is not a view that can be written"},
        {{0, 0, 1}, {-1, 0, 1}, "the output is not a view that can be written"},
        {{0, 0, 1}, {2, 1, 2}, "the output is not a view that can be written"},
        {{0, 0, 1}, {2, 0, 0}, "the output is not a view that can be written"},
        {{0, 0, 1}, {2, -1, 2}, "the output is not a view that can be written"},
        {{3, 0, 1}, {2, 0, 2}, "an input is not a view of a tensor"},
        {{0, 1, 1}, {2, 0, 2}, "an input is not a view of a tensor"},
        {{0, 0, 0}, {2, 0, 2}, "an input is not a view of a tensor"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct graph *g;
        int three = 3;
        const int parts[2] = {1, 2};
        assert_int_equal(graph_create(&g, &err), OK);
        graph_tensor(g, TENSOR_INPUT, 2, 5, 7, 1, &three);
        struct view constant = graph_constant(g, values, 3, 5, 7);
        graph_tensor(g, TENSOR_OUTPUT, 2, 5, 7, 2, parts);
        struct node *node = graph_node(g, OP_ADD, rows[i].out);
        node->in[OP_X] = rows[i].in;
        node->in[OP_RESIDUAL1] = constant;
        error_clear(&err);
        assert_int_equal(graph_finish(g, &err), rows[i].why[0] ? ERROR_INTERNAL : OK);
        if (!strstr(err.text, rows[i].why))
            fail_msg("case %zu: \"%s\"", i, err.text);
        graph_destroy(&g);
    }
    error_clear(&err);
    param_destroy(&values);
}

static void shapes_that_are_none(void **state)
{
    (void)state;
    const int good[4] = {1, 1, 1, 1}, many[GRAPH_MAX_SEGMENTS + 1] = {0};
    int ones[GRAPH_MAX_SEGMENTS];
    for (int i = 0; i < GRAPH_MAX_SEGMENTS; i++)
        ones[i] = 1;
    for (int i = 0; i < 10; i++) {
        struct error err = ERROR_INIT;
        struct graph *g;
        int s[4];
        assert_int_equal(graph_create(&g, &err), OK);
        memcpy(s, good, sizeof s);
        if (i < 4)
            s[i] = 0;
        const int wide[2] = {INT32_MAX, 1}, none[2] = {1, 0}, most = GRAPH_MAX_CHANNELS, more = most + 1;
        const struct view v = i == 4   ? graph_tensor(g, TENSOR_TEMP, 1, 1, 1, GRAPH_MAX_SEGMENTS + 1, many)
                              : i == 5 ? graph_tensor(g, TENSOR_TEMP, 1, 1, 1, 2, wide)
                              : i == 6 ? graph_tensor(g, TENSOR_TEMP, 1, 1, 1, 2, none)
                              : i == 7 ? graph_tensor(g, TENSOR_TEMP, 1, 1, 1, GRAPH_MAX_SEGMENTS, ones)
                              : i == 8 ? graph_tensor(g, TENSOR_TEMP, 1, 1, 1, 1, &most)
                              : i == 9 ? graph_tensor(g, TENSOR_TEMP, 1, 1, 1, 1, &more)
                                       : graph_tensor(g, TENSOR_TEMP, s[0], s[1], s[2], s[3], ones);
        const bool right = i == 7 || i == 8;
        assert_int_equal(v.tensor, right ? 0 : -1);
        assert_int_equal(graph_finish(g, &err), right ? OK : i == 9 ? ERROR_TOO_LARGE : ERROR_INTERNAL);
        if (i < 7)
            assert_non_null(strstr(err.text, i == 5 || i == 6 ? "a tensor with a segment of" : "a tensor of shape"));
        graph_destroy(&g);
    }
    struct error large = ERROR_INIT;
    struct graph *huge;
    const int three = 3;
    assert_int_equal(graph_create(&huge, &large), OK);
    assert_int_equal(graph_tensor(huge, TENSOR_TEMP, INT32_MAX, 1 << 30, 1 << 29, 1, &three).tensor, -1);
    assert_int_equal(graph_finish(huge, &large), ERROR_TOO_LARGE);
    assert_string_equal(large.text, "a tensor of 2147483647×3×1073741824×536870912 values is too large");
    graph_destroy(&huge);
    for (int role = TENSOR_INPUT; role <= TENSOR_OUTPUT;
         role++) { /* more inputs or outputs than a graph has room for */
        struct error err = ERROR_INIT;
        struct graph *g;
        int most = 0;
        assert_int_equal(graph_create(&g, &err), OK);
        while (graph_tensor(g, (enum tensor_role)role, 1, 1, 1, 1, ones).tensor >= 0)
            most++;
        assert_int_equal(most, role == TENSOR_INPUT ? sizeof g->inputs / sizeof g->inputs[0]
                                                    : sizeof g->outputs / sizeof g->outputs[0]);
        assert_int_equal(graph_finish(g, &err), ERROR_INTERNAL);
        graph_destroy(&g);
    }
}

/* Multiply-accumulates, from what op.h says of each kind. */
static void work_is_counted(void **state)
{
    (void)state;
    static const uint64_t macs[OP_KIND_COUNT] = {
        [OP_CONV2D] = 2 * 4 * 5 * 7 * 9 * 3,
        [OP_DEPTHWISE] = 2 * 3 * 3 * 4 * 9,
        [OP_LINEAR] = 2 * 4 * 3 * 5 * 7,
        [OP_DEMODULATE] = 2 * 4 * 3,
        [OP_RESIZE] = 2 * 3 * 8 * 9,
        [OP_NOISE] = 2 * 5 * 7,
        [OP_ATTENTION] = 2 * 2 * 8 * 35 * 35,
        [OP_LOOKUP] = 2 * 9 * 35,
        [OP_GATE] = 2 * 3 * 5 * 7,
        [OP_MEAN] = 2 * 3 * 5 * 7,
        [OP_SAMPLE] = 2 * 3 * 10 * 14 * 4,
    };
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        const struct sample s = sample_of((enum op_kind)kind);
        struct error err = ERROR_INIT;
        struct graph *g;
        assert_int_equal(graph_create(&g, &err), OK);
        struct view in = VIEW_NONE;
        if (s.shape[0][0])
            in = graph_tensor(g, TENSOR_INPUT, s.shape[0][0], s.shape[0][2], s.shape[0][3], 1, &s.shape[0][1]);
        struct node *node =
            graph_node(g, s.kind, graph_tensor(g, TENSOR_OUTPUT, s.out[0], s.out[2], s.out[3], 1, &s.out[1]));
        node->in[OP_X] = in;
        node->args = s.args;
        if (macs[kind])
            assert_int_equal(graph_macs(g), macs[kind]);
        graph_destroy(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_is_right), cmocka_unit_test(shapes_follow),
        cmocka_unit_test(other_inputs_fit),      cmocka_unit_test(params_have_their_counts),
        cmocka_unit_test(arguments_have_bounds), cmocka_unit_test(constants_and_views),
        cmocka_unit_test(shapes_that_are_none),  cmocka_unit_test(work_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
