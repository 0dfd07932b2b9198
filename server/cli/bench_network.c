#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/models/model_random.h"
#include "server/cli/bench.h"
#include "server/pipeline/model_store_private.h"

#define WARM_MS 100 /* of runs right before the timed ones; after an idle period GPUs are slow for about this long */
#define LEAST 5
#define MOST 200
#define BUDGET_MS 3000
#define PATIENCE_MS 120000 /* for measuring tiles: a server does that, too, while it is idle */

struct network {
    struct model *model;
    bool random;
    uint8_t *weights; /* of a random one */
    size_t weights_size;
    struct session_shape shape;
    struct graph *graph;
    struct device *device;
    struct device_info info;
    enum precision precision;
    struct plan *plan;
    float *inputs[2], *outputs[sizeof((struct graph *)0)->outputs / sizeof(int)];
    struct bench_clock clock;
    double *device_ms;
};

static size_t network_element_count(const struct tensor *t)
{
    return (size_t)t->n * (size_t)t->channels * (size_t)t->h * (size_t)t->w;
}

/* ---- which network, at which size ---- */

static enum error_code network_open_installed(const struct bench_settings *settings, const char *name,
                                              struct model **model, struct error *err)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct model_entry *entry = NULL;
        struct error local = ERROR_INIT;
        if (!model_store_resolve(settings->store, (enum model_role)role, name, &entry, &local) && entry)
            return model_store_open(model, entry, err);
    }
    char names[300] = "";
    for (int i = 0; i < model_random_count; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", model_randoms[i].name);
    return error_set(err, ERROR_NOT_FOUND,
                     "there is no model \"%.100s\": give a file, the name of an installed model (restored models lists "
                     "them), or one of the built-in networks with random weights: %s",
                     name, names);
}

static enum error_code network_open_model(struct network *net, const struct bench_settings *settings, const char *name,
                                          struct error *err)
{
    int width = 0, height = 0;
    enum error_code code;
    for (int i = 0; i < model_random_count; i++)
        if (!strcmp(model_randoms[i].name, name)) {
            net->random = true;
            width = model_randoms[i].width;
            height = model_randoms[i].height;
        }
    if (net->random) {
        code = model_random_file(name, &net->weights, &net->weights_size, err);
        if (!code)
            code = model_open_memory(&net->model, name, net->weights, net->weights_size, NULL, err);
    } else if (access(name, F_OK) == 0) {
        code = model_open(&net->model, name, NULL, err);
    } else {
        code = network_open_installed(settings, name, &net->model, err);
    }
    if (code)
        return code;
    const struct model_info *info = model_info(net->model);
    int square = info->kind == MODEL_FACE ? info->face_size : info->kind == MODEL_PARSER ? 512 : 0;
    int usual = square ? square : info->kind == MODEL_DETECTOR ? 640 : 128;
    net->shape = (struct session_shape){.n = settings->batch ? settings->batch : 1,
                                        .h = settings->height ? settings->height
                                             : height         ? height
                                                              : usual,
                                        .w = settings->width ? settings->width
                                             : width         ? width
                                                             : usual,
                                        .variant = info->fidelity ? MODEL_FIDELITY / 2 : 0};
    if (info->kind == MODEL_FACE && (net->shape.h != square || net->shape.w != square))
        return error_set(err, ERROR_INVALID, "size: %s takes %dx%d px only", info->architecture, square, square);
    return OK;
}

/* ---- data ---- */

/* Something like a picture in the network's range: slopes, waves and a little noise. */
static void network_fill_input(const struct network *net, const struct tensor *t, float *out)
{
    static const float mean[3] = {104, 117, 123};
    const enum model_kind kind = model_info(net->model)->kind;
    uint32_t random = 1;
    for (int n = 0; n < t->n; n++)
        for (int c = 0; c < t->channels; c++)
            for (int y = 0; y < t->h; y++)
                for (int x = 0; x < t->w; x++) {
                    random = random * 1664525 + 1013904223;
                    float noise = (float)(random >> 8) * 0x1p-24f - 0.5f;
                    float wave = sinf((float)(x + 7 * n) * 0.11f + (float)c) * cosf((float)y * 0.07f);
                    float v = 0.2f + 0.5f * (float)(x + y) / (float)(t->w + t->h) + 0.15f * wave + 0.1f * noise;
                    *out++ = kind == MODEL_UPSCALER ? v : kind == MODEL_DETECTOR ? 255 * v - mean[c % 3] : 2 * v - 1;
                }
}

static enum error_code network_make_data(struct network *net, struct error *err)
{
    bool room = true;
    for (int i = 0; i < net->graph->input_count && room; i++) {
        const struct tensor *x = &net->graph->tensors[net->graph->inputs[i]];
        net->inputs[i] = mem_alloc(network_element_count(x), sizeof(float));
        room = net->inputs[i] != NULL;
        if (room)
            network_fill_input(net, x, net->inputs[i]);
    }
    for (int i = 0; i < net->graph->output_count && room; i++) {
        net->outputs[i] =
            mem_calloc(network_element_count(&net->graph->tensors[net->graph->outputs[i]]), sizeof(float));
        room = net->outputs[i] != NULL;
    }
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the network's pictures");
    return OK;
}

/* Statistics of all outputs; NULL where one is not finite or all are flat. */
static json_t *network_output_statistics(const struct network *net)
{
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    size_t count = 0;
    for (int i = 0; i < net->graph->output_count; i++) {
        size_t n = network_element_count(&net->graph->tensors[net->graph->outputs[i]]);
        for (size_t k = 0; k < n; k++) {
            double v = net->outputs[i][k];
            if (!isfinite(v))
                return NULL;
            sum += v;
            squares += v * v;
            low = v < low ? v : low;
            high = v > high ? v : high;
        }
        count += n;
    }
    double mean = sum / (double)count, variance = squares / (double)count - mean * mean;
    if (!(high > low))
        return NULL;
    return json_pack("{s:f, s:f, s:f, s:f}", "min", low, "max", high, "mean", mean, "deviation",
                     sqrt(variance > 0 ? variance : 0));
}

static enum error_code network_keep_tensor(const struct network *net, const char *folder, const char *name,
                                           const char *part, int tensor, const float *values, struct error *err)
{
    const struct tensor *t = &net->graph->tensors[tensor];
    const int shape[4] = {t->n, t->channels, t->h, t->w};
    return bench_keep_array(folder, name, part, shape, values, err);
}

/* Written before the runs, for another program that computes the same meanwhile. */
static enum error_code network_keep_inputs(const struct network *net, const char *folder, const char *name,
                                           struct error *err)
{
    enum error_code code = network_keep_tensor(net, folder, name, "in", net->graph->inputs[0], net->inputs[0], err);
    if (!code && net->random)
        code = bench_keep_weights(folder, name, net->weights, net->weights_size, err);
    return code;
}

static enum error_code network_keep_outputs(const struct network *net, const char *folder, const char *name,
                                            struct error *err)
{
    enum error_code code = OK;
    for (int i = 0; i < net->graph->output_count && !code; i++) {
        char part[16];
        snprintf(part, sizeof part, "out%d", i);
        code = network_keep_tensor(net, folder, name, part, net->graph->outputs[i], net->outputs[i], err);
    }
    return code;
}

/* ---- timing ---- */

static enum error_code network_run_once(struct network *net, double *ms, struct error *err)
{
    double start = bench_now();
    enum error_code code = plan_run(net->plan, (const float *const *)net->inputs, net->outputs, NULL, err);
    *ms = bench_now() - start;
    return code;
}

static enum error_code network_warm_up(struct network *net, struct error *err)
{
    double start = bench_now(), ms;
    enum error_code code = network_run_once(net, &ms, err);
    while (!code && bench_now() - start < WARM_MS)
        code = network_run_once(net, &ms, err);
    return code;
}

static enum error_code network_time_runs(struct network *net, int wanted, struct error *err)
{
    double ms;
    enum error_code code = network_run_once(net, &ms, err); /* the first may compile, and touches all memory */
    if (!code)
        code = network_warm_up(net, err);
    if (!code)
        code = bench_clock_start(&net->clock, wanted, LEAST, MOST, BUDGET_MS, err);
    if (!code && !(net->device_ms = mem_calloc((size_t)net->clock.room, sizeof(double))))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    while (!code && bench_clock_more(&net->clock, LEAST)) {
        code = network_run_once(net, &ms, err);
        net->device_ms[net->clock.count] = code ? -1 : plan_ms(net->plan, NULL);
        bench_clock_add(&net->clock, ms);
    }
    return code;
}

/* ---- layers ---- */

struct layer {
    char name[96];
    int count;
    double ms, flops, bytes;
};

/* Layers of one class have the same limit: a convolution with few channels wastes most of a matrix tile, one with few
 * pixels leaves most of a GPU idle. */
#define FEW_INPUTS 16
#define FEW_OUTPUTS 32
#define FEW_PIXELS 4096

static void network_layer_name(const struct graph *graph, const struct node *node, bool shapes, char *out, size_t size)
{
    const struct tensor *y = graph_tensor_of(graph, node->out);
    const struct op_conv2d *a = &node->args.conv2d;
    const int from = node->in[OP_X].tensor >= 0 ? graph_channels(graph, node->in[OP_X]) : 0;
    const int to = graph_channels(graph, node->out);
    int used = snprintf(out, size, "%s", op_name(node->kind));
    if (node->kind == OP_CONV2D)
        used += snprintf(out + used, size - (size_t)used, " %dx%d%s%s%s", a->kernel, a->kernel,
                         a->stride > 1 ? " stride 2" : "", a->upsample > 1 ? " of doubled" : "",
                         node->in[OP_IN_SCALE].tensor >= 0 ? " modulated" : "");
    if (shapes && from)
        snprintf(out + used, size - (size_t)used, ", %d to %d channels of %dx%d", from, to, y->w, y->h);
    else if (!shapes && node->kind == OP_CONV2D)
        snprintf(out + used, size - (size_t)used, "%s%s",
                 from < FEW_INPUTS   ? ", <16 in"
                 : to <= FEW_OUTPUTS ? ", <=32 out"
                                     : "",
                 (long)y->n * y->h * y->w < FEW_PIXELS ? ", <4096 px" : "");
}

static double network_view_values(const struct graph *graph, struct view v)
{
    const struct tensor *t = graph_tensor_of(graph, v);
    return (double)t->n * graph_channels(graph, v) * t->h * t->w;
}

/* Whether the input is a part of one before it, as a dense block's residual is of its input. */
static bool network_seen_before(const struct node *node, int input)
{
    const struct view v = node->in[input];
    for (int i = 0; i < input; i++) {
        const struct view w = node->in[i];
        if (w.tensor == v.tensor && w.first <= v.first && v.first + v.count <= w.first + w.count)
            return true;
    }
    return false;
}

/* The least that the node reads and writes. */
static double network_node_values(const struct graph *graph, const struct node *node)
{
    double values = network_view_values(graph, node->out);
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        values +=
            node->in[i].tensor >= 0 && !network_seen_before(node, i) ? network_view_values(graph, node->in[i]) : 0;
    for (int i = 0; i < OP_MAX_PARAMS; i++)
        values += node->param[i] ? (double)node->param[i]->count : 0;
    return values;
}

static int network_slower_layer(const void *a, const void *b)
{
    const struct layer *x = a, *y = b;
    return x->ms > y->ms ? -1 : x->ms < y->ms;
}

static json_t *network_layers_json(struct layer *layers, int count)
{
    double sum = 0;
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        sum += layers[i].ms;
    qsort(layers, (size_t)count, sizeof *layers, network_slower_layer);
    for (int i = 0; i < count; i++) {
        const struct layer *l = &layers[i];
        double seconds = l->ms > 0 ? l->ms / 1e3 : INFINITY;
        json_array_append_new(list, json_pack("{s:s, s:i, s:f, s:f, s:f, s:f}", "layer", l->name, "count", l->count,
                                              "ms", l->ms, "share", sum > 0 ? l->ms / sum : 0.0, "gflops",
                                              l->flops / seconds / 1e9, "gbs", l->bytes / seconds / 1e9));
    }
    return list;
}

/* The time of each class of layers, a mean of a few runs. */
static enum error_code network_time_layers(struct network *net, bool shapes, json_t **out, struct error *err)
{
    enum { RUNS = 5 };
    const struct graph *graph = net->graph;
    int nodes = graph->node_count, count = 0;
    struct layer *layers = mem_calloc((size_t)nodes, sizeof *layers);
    double *node_ms = mem_calloc((size_t)nodes, 2 * sizeof *node_ms), ms;
    enum error_code code = layers && node_ms ? plan_profile(net->plan, err) : ERROR_NO_MEMORY;
    if (!layers || !node_ms)
        error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (!code)
        code = network_warm_up(net, err);
    for (int run = 0; run < RUNS && !code; run++) {
        code = network_run_once(net, &ms, err);
        if (!code && plan_ms(net->plan, node_ms + nodes) < 0)
            code = error_set(err, ERROR_UNSUPPORTED, "%s has no clock that could time layers", net->info.id);
        for (int i = 0; i < nodes && !code; i++)
            node_ms[i] += node_ms[nodes + i] / RUNS;
    }
    for (int i = 0; i < nodes && !code; i++) {
        const struct node *node = &graph->nodes[i];
        struct layer *layer = layers;
        char name[sizeof layer->name];
        if (node_ms[i] == 0) /* done with another */
            continue;
        network_layer_name(graph, node, shapes, name, sizeof name);
        while (layer < layers + count && strcmp(layer->name, name))
            layer++;
        if (layer == layers + count)
            memcpy(layers[count++].name, name, sizeof name);
        layer->count++;
        layer->ms += node_ms[i];
        layer->flops += 2 * (double)graph_node_macs(graph, node);
        layer->bytes += network_node_values(graph, node) * (net->precision == PRECISION_FP16 ? 2 : 4);
    }
    *out = code ? NULL : network_layers_json(layers, count);
    free(layers);
    free(node_ms);
    return code;
}

/* ---- all of it ---- */

static json_t *network_result_json(struct network *net, const char *name, json_t *statistics, json_t *layers)
{
    const struct tensor *x = &net->graph->tensors[net->graph->inputs[0]];
    double gmac = (double)graph_macs(net->graph) / 1e9;
    bool timed = net->device_ms[0] >= 0;
    json_t *ms = bench_times(net->clock.ms, net->clock.count);
    json_t *device_ms = timed ? bench_times(net->device_ms, net->clock.count) : json_null();
    double median = json_real_value(json_object_get(ms, "median"));
    double device = timed ? json_real_value(json_object_get(device_ms, "median")) : 0;
    return json_pack("{s:s, s:s, s:s, s:[i, i, i, i], s:s, s:i, s:o, s:o, s:f, s:f, s:o, s:{s:I, s:I, s:I}, s:o, s:o*}",
                     "model", name, "architecture", model_info(net->model)->architecture, "weights",
                     net->random ? "random" : "file", "input", x->n, x->channels, x->h, x->w, "precision",
                     net->precision == PRECISION_FP16 ? "fp16" : "fp32", "runs", net->clock.count, "ms", ms,
                     "device_ms", device_ms, "gmac", gmac, "gflops", 2 * gmac / (median / 1e3), "device_gflops",
                     device > 0 ? json_real(2 * gmac / (device / 1e3)) : json_null(), "memory", "plan",
                     (json_int_t)plan_bytes(net->plan), "device_peak", (json_int_t)net->info.memory_peak,
                     "process_peak", (json_int_t)bench_memory_peak(), "output", statistics, "layers", layers);
}

static enum error_code network_prepare(struct network *net, const struct bench_settings *settings, const char *name,
                                       struct error *err)
{
    enum error_code code = network_open_model(net, settings, name, err);
    if (!code)
        code = device_open(&net->device, settings->device, settings->cache_dir, err);
    if (!code)
        code = model_graph(net->model, &net->shape, &net->graph, err);
    if (code)
        return code;
    device_info(net->device, &net->info);
    net->precision = settings->options.precision ? settings->options.precision : net->info.preferred;
    code = network_make_data(net, err);
    if (!code && settings->keep)
        code = network_keep_inputs(net, settings->keep, name, err);
    device_set_patience(PATIENCE_MS);
    return code ? code : plan_create(&net->plan, net->device, net->graph, net->precision, name, err);
}

enum error_code bench_network(const struct bench_settings *settings, const char *model, json_t **out, struct error *err)
{
    struct network net = {0};
    json_t *statistics = NULL, *layers = NULL;
    *out = NULL;
    bench_memory_reset();
    enum error_code code = network_prepare(&net, settings, model, err);
    if (!code)
        code = network_time_runs(&net, settings->runs, err);
    if (!code && !(statistics = network_output_statistics(&net)))
        code = error_set(err, ERROR_DEVICE, "%s: the output on %s is not finite, or flat: its times mean nothing",
                         model, net.info.id);
    if (!code && settings->keep)
        code = network_keep_outputs(&net, settings->keep, model, err);
    if (!code)
        device_info(net.device, &net.info);
    if (!code && settings->layers)
        code = network_time_layers(&net, settings->layer_shapes, &layers, err);
    if (!code) {
        *out = network_result_json(&net, model, statistics, layers);
        json_object_set_new(*out, "device", bench_device(&net.info));
    } else {
        json_decref(statistics);
    }
    plan_destroy(&net.plan);
    if (net.device && net.model)
        model_forget(net.model, net.device);
    device_close(&net.device);
    graph_destroy(&net.graph);
    model_close(&net.model);
    free(net.weights);
    free(net.inputs[0]);
    free(net.inputs[1]);
    for (size_t i = 0; i < sizeof net.outputs / sizeof net.outputs[0]; i++)
        free(net.outputs[i]);
    free(net.clock.ms);
    free(net.device_ms);
    return code;
}
