#include "tests/common/op_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/vulkan/vk_device.h"

/* --- data ----------------------------------------------------------------------------------------------------------
 */

static uint32_t random_state;

static float random_value(void) /* -1 to 1 */
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(int32_t)random_state / 2147483648.0f;
}

static float *random_values(size_t count, float scale)
{
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++)
        values[i] = scale * random_value();
    return values;
}

#define MAX_TENSORS 8

/* A case as a graph, with what it needs and what it should give. */
struct trial {
    const struct op_case *c;
    struct graph *graph;
    struct param *params[MAX_TENSORS];
    size_t param_count;
    float *inputs[MAX_TENSORS];
    int input_count;
    struct view y;
    float *expected, *got, *again;
    size_t bytes;
};

static const struct param *random_param(struct trial *trial, size_t count, float scale)
{
    struct error err = ERROR_INIT;
    float *values = random_values(count, scale);
    struct param **param = &trial->params[trial->param_count++];
    assert_int_equal(param_from_values(param, values, count, &err), OK);
    free(values);
    return *param;
}

static size_t tensor_values(const struct graph *graph, int tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    return (size_t)t->n * (size_t)t->channels * (size_t)t->h * (size_t)t->w;
}

/* segments[4], zero after the last; inside: between other segments. */
static struct view tensor_of(struct trial *trial, enum tensor_role role, int n, int h, int w, const int segments[4],
                             bool inside, float scale)
{
    int all[6], count = 0, used = 0;
    if (inside)
        all[count++] = 3;
    for (; used < 4 && segments[used]; used++)
        all[count++] = segments[used];
    if (inside)
        all[count++] = 5;
    struct view view = graph_tensor(trial->graph, role, n, h, w, count, all);
    if (role == TENSOR_INPUT)
        trial->inputs[trial->input_count++] = random_values(tensor_values(trial->graph, view.tensor), scale);
    return graph_segments(view, inside ? 1 : 0, used);
}

static struct view input(struct trial *trial, int n, int c, int h, int w, float scale)
{
    return tensor_of(trial, TENSOR_INPUT, n, h, w, (int[4]){c}, false, scale);
}

static int sum4(const int v[4])
{
    return v[0] + v[1] + v[2] + v[3];
}

static int side(int in, int kernel, int stride, int pad)
{
    return (in + 2 * pad - kernel) / stride + 1;
}

static void out_shape(const struct op_case *c, int *h, int *w)
{
    const union op_args *a = &c->args;
    *h = c->out_h ? c->out_h : c->h;
    *w = c->out_w ? c->out_w : c->w;
    if (c->kind == OP_CONV2D) {
        const int up = a->conv2d.upsample ? a->conv2d.upsample : 1;
        *h = side(c->h * up, a->conv2d.kernel, a->conv2d.stride, a->conv2d.pad);
        *w = side(c->w * up, a->conv2d.kernel, a->conv2d.stride, a->conv2d.pad);
    } else if (c->kind == OP_DEPTHWISE) {
        *h = side(c->h, a->depthwise.kernel, a->depthwise.stride, a->depthwise.pad);
        *w = side(c->w, a->depthwise.kernel, a->depthwise.stride, a->depthwise.pad);
    } else if (c->kind == OP_MAX_POOL) {
        *h = side(c->h, a->max_pool.kernel, a->max_pool.stride, a->max_pool.pad);
        *w = side(c->w, a->max_pool.kernel, a->max_pool.stride, a->max_pool.pad);
    } else if (c->kind == OP_LINEAR || c->kind == OP_MEAN) {
        *h = *w = 1;
    } else if (c->kind == OP_SAMPLE) {
        *h = c->h * a->sample.factor;
        *w = c->w * a->sample.factor;
    } else if (c->kind == OP_PIXEL_SHUFFLE) {
        *h = c->h * a->shuffle.factor;
        *w = c->w * a->shuffle.factor;
    } else if (c->kind == OP_PIXEL_UNSHUFFLE) {
        *h = c->h / a->shuffle.factor;
        *w = c->w / a->shuffle.factor;
    } else if (c->kind == OP_SCALE_SHIFT && c->parts & LARGER) {
        *h = c->h - 6;
        *w = c->w - 6;
    }
}

/* Channels of SAMPLE's places; 0: it is another operator. */
static int sample_places(const struct op_case *c)
{
    const struct op_sample *a = &c->args.sample;
    return c->kind == OP_SAMPLE ? 2 * a->groups * a->factor * a->factor : 0;
}

static void fill_params(struct trial *trial, struct node *node, int in, int out)
{
    const struct op_case *c = trial->c;
    enum activation activation = ACTIVATION_NONE;
    size_t weights = 0, fan = 1;
    if (c->kind == OP_CONV2D) {
        fan = (size_t)(in * c->args.conv2d.kernel * c->args.conv2d.kernel);
        weights = fan * (size_t)out;
        activation = c->args.conv2d.activation;
    } else if (c->kind == OP_DEPTHWISE) {
        fan = (size_t)(c->args.depthwise.kernel * c->args.depthwise.kernel);
        weights = fan * (size_t)out;
        activation = c->args.depthwise.activation;
    } else if (c->kind == OP_LINEAR) {
        fan = (size_t)(in * c->h * c->w);
        weights = fan * (size_t)out;
        activation = c->args.linear.activation;
    } else if (c->kind == OP_SAMPLE) {
        weights = (size_t)sample_places(c);
    } else if (c->kind == OP_DEMODULATE) {
        weights = (size_t)(in * out);
    } else if (c->kind == OP_ADD) {
        activation = c->args.add.activation;
    } else if (c->kind == OP_LOOKUP) {
        weights = (size_t)(in * out);
    } else if ((c->kind == OP_GROUP_NORM || c->kind == OP_LAYER_NORM) && (c->parts & BIAS)) {
        weights = (size_t)out;
    }
    if (weights && c->kind == OP_DEMODULATE) { /* sums of squares */
        float *values = random_values(weights, 0.1f);
        struct error err = ERROR_INIT;
        for (size_t i = 0; i < weights; i++)
            values[i] *= values[i];
        assert_int_equal(param_from_values(&trial->params[trial->param_count], values, weights, &err), OK);
        node->param[OP_WEIGHT] = trial->params[trial->param_count++];
        free(values);
    } else if (weights) {
        node->param[OP_WEIGHT] = random_param(trial, weights, 1.7f / sqrtf((float)fan));
    }
    if (c->parts & BIAS)
        node->param[OP_BIAS] = random_param(trial, (size_t)out, 0.5f);
    if (activation == ACTIVATION_PRELU)
        node->param[OP_SLOPE] = random_param(trial, (size_t)out, 0.5f);
}

static void trial_create(struct trial *trial, const struct op_case *c)
{
    struct error err = ERROR_INIT;
    const int *out_segments = c->out[0] ? c->out : c->in;
    const int in = sum4(c->in), out = sum4(out_segments);
    const bool inside = c->parts & INSIDE;
    int h, w;
    *trial = (struct trial){.c = c};
    random_state = 12345;
    out_shape(c, &h, &w);
    assert_int_equal(graph_create(&trial->graph, &err), OK);

    struct view x = VIEW_NONE;
    if (c->kind != OP_NOISE && (c->parts & CONSTANT))
        x = graph_constant(trial->graph, random_param(trial, (size_t)(in * c->h * c->w), 1), in, c->h, c->w);
    else if (c->kind != OP_NOISE)
        x = tensor_of(trial, TENSOR_INPUT, c->n, c->h, c->w, c->in, inside, 1);
    struct view y = tensor_of(trial, TENSOR_OUTPUT, c->n, h, w, out_segments, inside, 0);
    if (x.tensor >= 0 && (c->parts & (IN_PLACE | CONSTANT))) {
        /* An operator may not write an input, and a convolution's x is not shared by a batch unless it is copied. */
        struct node *copy =
            graph_node(trial->graph, OP_ADD, c->parts & IN_PLACE ? y : graph_temp(trial->graph, c->n, in, c->h, c->w));
        copy->in[OP_X] = c->parts & CONSTANT ? input(trial, c->n, in, c->h, c->w, 1) : x;
        copy->in[OP_RESIDUAL1] = x;
        copy->args.add = (struct op_add){.x_scale = 0.5f, .residual1_scale = 0.5f};
        x = copy->out;
    }
    struct node *node = graph_node(trial->graph, c->kind, y);
    assert_non_null(node);
    node->in[OP_X] = x;
    node->args = c->args;
    if (c->kind == OP_CONV2D) {
        struct op_conv2d *conv = &node->args.conv2d;
        conv->upsample += conv->upsample == 0;
        conv->gain += conv->gain == 0 ? 1.0f : 0.0f;
        conv->scale += conv->scale == 0 ? 1.0f : 0.0f;
    }
    const bool small = c->kind == OP_PIXEL_SHUFFLE || c->kind == OP_SAMPLE;
    const int places[4] = {sample_places(c)};
    for (int slot = OP_RESIDUAL1; slot <= OP_RESIDUAL2; slot++) {
        const bool first = slot == OP_RESIDUAL1, single = first && c->parts & SINGLE;
        const int more = first && c->kind == OP_ADD && c->parts & LARGER ? 6 : 0;
        if (c->parts & (first ? RESIDUAL1 : RESIDUAL2))
            node->in[slot] = tensor_of(trial, TENSOR_INPUT, c->n,
                                       single  ? 1
                                       : small ? c->h
                                               : h + more,
                                       single  ? 1
                                       : small ? c->w
                                               : w + more,
                                       places[0]                   ? places
                                       : c->parts & OTHER_SEGMENTS ? (int[4]){out}
                                                                   : out_segments,
                                       inside || c->parts & RESIDUAL_INSIDE, 1);
    }
    if (c->parts & IN_SCALE)
        node->in[OP_IN_SCALE] = input(trial, c->n, in, 1, 1, 2);
    if (c->parts & OUT_SCALE)
        node->in[OP_OUT_SCALE] = input(trial, c->n, out, 1, 1, 2);
    if ((c->parts & NOISE_MAP) && (c->parts & CONSTANT))
        node->in[OP_NOISE_MAP] = graph_constant(trial->graph, random_param(trial, (size_t)(h * w), 1), 1, h, w);
    else if (c->parts & NOISE_MAP)
        node->in[OP_NOISE_MAP] =
            c->kind == OP_MEAN ? input(trial, c->n, 1, c->h, c->w, 1) : input(trial, c->n, 1, h, w, 1);
    fill_params(trial, node, in, out);
    trial->y = y;
    const enum error_code code = graph_finish(trial->graph, &err);
    if (code != OK)
        print_error("%s %s: %s\n", op_name(c->kind), c->name, err.text);
    assert_int_equal(code, OK);
    trial->bytes = tensor_values(trial->graph, y.tensor) * sizeof(float);
    trial->expected = calloc(1, trial->bytes);
    trial->got = calloc(1, trial->bytes);
    trial->again = calloc(1, trial->bytes);
    assert_true(trial->expected && trial->got && trial->again);
}

static void trial_destroy(struct trial *trial)
{
    graph_destroy(&trial->graph);
    for (size_t i = 0; i < trial->param_count; i++)
        param_destroy(&trial->params[i]);
    for (int i = 0; i < trial->input_count; i++)
        free(trial->inputs[i]);
    free(trial->expected);
    free(trial->got);
    free(trial->again);
}

/* --- running -------------------------------------------------------------------------------------------------------
 */

static void trial_run(const struct trial *trial, struct device *device, enum precision precision, float *out,
                      float *again)
{
    const struct run_options options = {.seed = 0x123456789abcdefu, .first_image = 5};
    struct error err = ERROR_INIT;
    struct plan *plan = NULL;
    enum error_code code = plan_create(&plan, device, trial->graph, precision, trial->c->name, &err);
    if (code == OK)
        code = plan_run(plan, (const float *const *)trial->inputs, &out, &options, &err);
    if (code == OK && again)
        code = plan_run(plan, (const float *const *)trial->inputs, &again, &options, &err);
    if (code != OK)
        print_error("%s %s: %s: %s\n", op_name(trial->c->kind), trial->c->name, error_code_name(code), err.text);
    assert_int_equal(code, OK);
    plan_destroy(&plan);
    device_forget_params(device, (const struct param *const *)trial->params, trial->param_count);
}

/* Compares the channels of y's view; those beside it are nobody's. True if they are within the tolerances. */
static bool trial_compare(const struct trial *trial, float max_allowed, float mean_allowed, const char *device)
{
    const struct tensor *t = graph_tensor_of(trial->graph, trial->y);
    const int channels = graph_channels(trial->graph, trial->y), first = trial->y.first ? t->segment[0] : 0;
    const size_t plane = (size_t)t->h * (size_t)t->w;
    double low = INFINITY, high = -INFINITY, most = 0, sum = 0;
    bool same = true, finite = true;
    for (int n = 0; n < t->n; n++) {
        const size_t at = ((size_t)n * (size_t)t->channels + (size_t)first) * plane;
        for (size_t i = at; i < at + (size_t)channels * plane; i++) {
            const double e = trial->expected[i], difference = fabs(e - trial->got[i]);
            low = fmin(low, e);
            high = fmax(high, e);
            most = fmax(most, difference);
            sum += difference;
            finite = finite && isfinite(e) && isfinite(trial->got[i]);
            same = same && memcmp(&trial->got[i], &trial->again[i], sizeof(float)) == 0;
        }
    }
    const double range = fmax(high - low, fmax(fabs(high), fabs(low)));
    const double mean = sum / (double)((size_t)t->n * (size_t)channels * plane);
    const bool ok = finite && same && range > 0 && most <= max_allowed * range && mean <= mean_allowed * range;
    if (!ok)
        print_error("%s \"%s\" on %s: max %.3g mean %.3g of range %.3g%s%s\n", op_name(trial->c->kind), trial->c->name,
                    device, most / range, mean / range, range, finite ? "" : ", not finite",
                    same ? "" : ", two runs differ");
    return ok;
}

/* The ways in which a device can be made to work. An instruction set that the processor lacks is left out. */
static const struct way {
    const char *backend, *settings[3], *remark; /* NAME=VALUE, of the environment */
    bool only_conv;
    bool exact; /* sums in double: all that is left is the rounding of sums and results */
} ways[] = {
#define STAGED "RESTORED_VULKAN_STAGE=1"
#define UNPACKED "RESTORED_VULKAN_PACKED=0"
    {"vulkan", {"RESTORED_VULKAN_STAGE=0"}, "", false, false},
    {"vulkan", {"RESTORED_VULKAN_GROUPED=1"}, " (grouped)", false, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_LEAST=1"}, " (least limits)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=0"}, " (tile 0, packed Winograd)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=3"}, " (tile 3, packed Winograd)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=4"}, " (tile 4, packed Winograd)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=5"}, " (tile 5)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=8"}, " (tile 8)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=10"}, " (tile 10)", true, false},
    {"vulkan", {STAGED, "RESTORED_VULKAN_TILE=15"}, " (tile 15)", true, false},
    {"vulkan", {STAGED, UNPACKED, "RESTORED_VULKAN_TILE=16"}, " (tile 16, Winograd)", true, false},
    {"vulkan", {STAGED, UNPACKED, "RESTORED_VULKAN_TILE=17"}, " (tile 17, Winograd)", true, false},
    {"vulkan", {STAGED, UNPACKED, "RESTORED_VULKAN_TILE=18"}, " (tile 18, Winograd)", true, false},
    {"cpu", {"RESTORED_CPU_ISA=base"}, " (base)", false, false},
    {"cpu", {"RESTORED_CPU_ISA=base"}, " (base, exact)", false, true},
    {"cpu", {"RESTORED_CPU_ISA=avx2"}, " (avx2)", false, false},
    {"cpu", {"RESTORED_CPU_ISA=avx2"}, " (avx2, exact)", false, true},
    {"cpu", {"RESTORED_CPU_ISA=avx512"}, " (avx512)", false, false},
};

static void set(const struct way *way, bool on)
{
    for (size_t i = 0; i < sizeof way->settings / sizeof way->settings[0] && way->settings[i]; i++) {
        char name[64];
        const char *equals = strchr(way->settings[i], '=');
        snprintf(name, sizeof name, "%.*s", (int)(equals - way->settings[i]), way->settings[i]);
        if (on)
            setenv(name, equals + 1, 1);
        else
            unsetenv(name);
    }
}

/* Whether the case of that number runs this way. */
static bool wanted(const struct op_case *c, size_t number, const struct way *way)
{
    const char *full = getenv("RESTORED_FULL");
    if (!way->only_conv)
        return true;
    return c->kind == OP_CONV2D && ((full && strcmp(full, "1") == 0) || (number + (size_t)(way - ways)) % 2);
}

static bool any_wanted(const struct op_case *cases, size_t count, const struct way *way)
{
    for (size_t i = 0; i < count; i++)
        if (wanted(&cases[i], i, way))
            return true;
    return false;
}

/* All wanted cases on one device; returns the number that failed. */
static int run_device(const struct op_case *cases, size_t count, struct device *reference, struct device *device,
                      const struct way *way)
{
    const float allowed = way->exact ? 5e-7f : 1e-5f;
    struct device_info info;
    int failures = 0, done = 0;
    device_info(device, &info);
    for (size_t i = 0; i < count; i++) {
        if (!wanted(&cases[i], i, way))
            continue;
        struct trial trial;
        char where[300];
        trial_create(&trial, &cases[i]);
        trial.graph->exact = way->exact;
        trial_run(&trial, reference, PRECISION_FP32, trial.expected, NULL);
        trial_run(&trial, device, PRECISION_FP32, trial.got, trial.again);
        snprintf(where, sizeof where, "%s%s, fp32", info.name, way->remark);
        failures += !trial_compare(&trial, allowed, allowed, where);
        if (info.fp16) {
            trial_run(&trial, device, PRECISION_FP16, trial.got, trial.again);
            snprintf(where, sizeof where, "%s%s, fp16", info.name, way->remark);
            failures += !trial_compare(&trial, 1e-2f, 1e-3f, where);
        }
        if (info.fp16 && info.type != DEVICE_SOFTWARE) { /* which computes it as in a plan of fp32 */
            for (int t = 0; t < trial.graph->tensor_count; t++)
                trial.graph->tensors[t].fp32 = true;
            trial_run(&trial, device, PRECISION_FP16, trial.got, trial.again);
            snprintf(where, sizeof where, "%s%s, fp32 beside fp16", info.name, way->remark);
            failures += !trial_compare(&trial, allowed, allowed, where);
        }
        trial_destroy(&trial);
        done++;
    }
    device_info(device, &info);
    if (info.memory_used != 0) {
        print_error("%s: %llu bytes are left\n", info.name, (unsigned long long)info.memory_used);
        failures++;
    }
    print_message("%s%s: %d cases, %d failures\n", info.name, way->remark, done, failures);
    return failures;
}

void op_cases_run(const struct op_case *cases, size_t count)
{
    struct device *reference = NULL;
    struct device_info *list = NULL;
    size_t devices = 0;
    struct error err = ERROR_INIT;
    int failures = 0, opened = 0;
    const char *only = getenv("RESTORED_TEST_DEVICE");
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    assert_int_equal(device_open(&reference, "reference", NULL, &err), OK);
    assert_int_equal(device_list(&list, &devices, &err), OK);
    for (size_t i = 0; i < devices; i++) {
        if (only && strcmp(only, list[i].id) != 0)
            continue;
        if (!list[i].usable) {
            print_message("%s is left out: %s\n", list[i].name, list[i].reason);
            continue;
        }
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            struct device *device = NULL;
            if (strcmp(ways[w].backend, list[i].backend) != 0 || !any_wanted(cases, count, &ways[w]))
                continue;
            set(&ways[w], true);
            assert_int_equal(device_open(&device, list[i].id, NULL, &err), OK);
            struct device_info info;
            device_info(device, &info);
            const char *isa = getenv("RESTORED_CPU_ISA");
            if (strcmp(ways[w].backend, "cpu") != 0 || (isa && strncmp(info.driver, isa, strlen(isa)) == 0))
                failures += run_device(cases, count, reference, device, &ways[w]);
            else
                print_message("%s%s: not on this processor\n", list[i].name, ways[w].remark);
            device_close(&device);
            set(&ways[w], false);
        }
        opened++;
    }
    free(list);
    device_close(&reference);
    assert_true(opened > 0);
    assert_int_equal(failures, 0);
    assert_int_equal(vk_validation_count(), 0);
}
