#include "runtime/models/model_build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/model_private.h"

struct build_text build_text(const char *format, ...)
{
    struct build_text name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}

const struct model_settings *build_settings(const struct model_build *b)
{
    return &b->model->settings;
}

float build_slope(struct model_build *b, float usual)
{
    struct model_settings settings = *build_settings(b);
    if (settings.has_slope)
        return settings.slope;
    const char *text = weights_metadata(model_weights(b->model), "activation");
    if (settings.activation == ACTIVATION_NONE && text && !model_settings_activation(&settings, text))
        build_fail(b, ERROR_UNSUPPORTED,
                   "its metadata has the activation \"%.40s\"; relu and leakyrelu:SLOPE are known", text);
    if (settings.activation == ACTIVATION_NONE)
        return usual;
    if (settings.activation == ACTIVATION_RELU)
        return 0;
    return settings.activation_slope > 0 ? settings.activation_slope : 0.1f;
}

void build_fail(struct model_build *b, enum error_code code, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_set(&b->graph->error, code, "%s", text);
}

int build_count(const struct weights *weights, const char *format)
{
    int count = 0;
    char name[160];
    for (;; count++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(name, sizeof name, format, count);
#pragma GCC diagnostic pop
        if (!weights_find(weights, name))
            return count;
    }
}

int build_last(const struct weights *weights, const char *prefix)
{
    const size_t length = strlen(prefix);
    int last = -1;
    for (size_t i = 0; i < weights_count(weights); i++) {
        const char *name = weights_at(weights, i)->name;
        if (strncmp(name, prefix, length) != 0)
            continue;
        const size_t digits = strspn(name + length, "0123456789");
        const int number = digits && digits < 9 && name[length + digits] == '.' ? atoi(name + length) : -1;
        last = number > last ? number : last;
    }
    return last;
}

int build_blocks(struct model_build *b, const char *prefix, int first, const char *rest)
{
    int end = first;
    while (weights_find(b->model->weights, build_name("%s%d%s", prefix, end, rest)))
        end++;
    if (build_last(b->model->weights, prefix) >= end)
        build_fail(b, ERROR_CORRUPT, "tensor %s%d%s is missing", prefix, end, rest);
    return end - first;
}

int build_size(struct model_build *b, const char *name, int dim)
{
    const int size = build_dim(b->model->weights, name, dim);
    if (!size && !weights_find(b->model->weights, name))
        build_fail(b, ERROR_CORRUPT, "tensor %s is missing", name);
    else if (!size)
        build_fail(b, ERROR_CORRUPT, "tensor %s is empty or has too few dimensions", name);
    return size;
}

int build_dim(const struct weights *weights, const char *name, int dim)
{
    const struct weights_tensor *t = weights_find(weights, name);
    if (!t || t->count == 0 || dim >= t->rank || t->shape[dim] > INT32_MAX) /* an empty one may claim any size */
        return 0;
    return (int)t->shape[dim];
}

/* FNV-1a. */
static size_t build_hash(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return (size_t)(hash ^ hash >> 32);
}

static void build_insert(struct model *m, size_t entry)
{
    size_t at = build_hash(m->entries[entry].name);
    while (m->table[at & (m->table_size - 1)])
        at++;
    m->table[at & (m->table_size - 1)] = (uint32_t)entry + 1;
}

static const struct param *build_cached(const struct model_build *b, const char *name)
{
    const struct model *m = b->model;
    for (size_t at = m->table_size ? build_hash(name) : 0; m->table_size; at++) {
        const uint32_t entry = m->table[at & (m->table_size - 1)];
        if (!entry)
            break;
        if (strcmp(m->entries[entry - 1].name, name) == 0)
            return m->entries[entry - 1].param;
    }
    return NULL;
}

/* Room for one more in the table, which stays at most half full. */
static bool build_grow_table(struct model *m)
{
    if (2 * (m->entry_count + 1) <= m->table_size)
        return true;
    const size_t size = m->table_size ? 2 * m->table_size : 256;
    uint32_t *table = mem_calloc(size, sizeof *table);
    if (!table)
        return false;
    free(m->table);
    m->table = table;
    m->table_size = size;
    for (size_t i = 0; i < m->entry_count; i++)
        build_insert(m, i);
    return true;
}

/* Keeps a param under its name; destroys it and fails when there is no room. */
static const struct param *build_keep(struct model_build *b, const char *name, struct param *param)
{
    struct model *m = b->loading;
    if (m->entry_count == m->entry_capacity) {
        size_t wanted = m->entry_capacity ? m->entry_capacity * 2 : 128;
        struct model_param *bigger = realloc(m->entries, wanted * sizeof *bigger);
        if (bigger) {
            m->entries = bigger;
            m->entry_capacity = wanted;
        }
    }
    char *copy = strdup(name);
    if (!copy || m->entry_count == m->entry_capacity || !build_grow_table(m)) {
        free(copy);
        param_destroy(&param);
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return NULL;
    }
    m->entries[m->entry_count] = (struct model_param){copy, param};
    build_insert(m, m->entry_count++);
    return param;
}

/* The tensor of that name with exactly that shape, leading ones aside. */
static const struct weights_tensor *build_tensor(struct model_build *b, const char *name, int rank, const int *shape)
{
    const struct weights_tensor *t = weights_find(b->model->weights, name);
    if (!t) {
        build_fail(b, ERROR_CORRUPT, "tensor %s is missing", name);
        return NULL;
    }
    int skip = t->rank > rank ? t->rank - rank : 0;
    bool same = t->rank >= rank;
    for (int i = 0; i < t->rank && same; i++)
        same = t->shape[i] == (i < skip ? 1 : (uint64_t)shape[i - skip]);
    if (same)
        return t;
    char have[120] = "", want[120] = "";
    for (int i = 0; i < t->rank; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%llu", i ? "×" : "",
                 (unsigned long long)t->shape[i]);
    for (int i = 0; i < rank; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%d", i ? "×" : "", shape[i]);
    build_fail(b, ERROR_CORRUPT, "tensor %s has the shape %s where %s follows from the others", name, have, want);
    return NULL;
}

static const struct param *build_from_tensor(struct model_build *b, const char *name, int rank, const int *shape,
                                             const float *row_scale)
{
    if (b->graph->error.code)
        return NULL;
    const struct param *cached = build_cached(b, name);
    if (cached)
        return cached;
    const struct weights_tensor *t = b->loading ? build_tensor(b, name, rank, shape) : NULL;
    if (!t)
        return NULL;
    struct param *param;
    if (param_from_tensor(&param, t, row_scale, row_scale ? (size_t)shape[0] : 0, &b->graph->error))
        return NULL;
    return build_keep(b, name, param);
}

const struct param *build_param(struct model_build *b, const char *name, int rank, const int *shape)
{
    return build_from_tensor(b, name, rank, shape, NULL);
}

float build_scalar(struct model_build *b, const char *name)
{
    const struct weights_tensor *t = weights_find(b->model->weights, name);
    float value = 0;
    if (t && t->count == 1)
        weights_read_f32(t, &value);
    else
        build_fail(b, ERROR_CORRUPT, "tensor %s is missing or not a single value", name);
    return value;
}

const struct param *build_derived(struct model_build *b, const char *name, size_t count, build_fill_fn *fill)
{
    if (b->graph->error.code)
        return NULL;
    const struct param *cached = build_cached(b, name);
    if (cached || !b->loading)
        return cached;
    struct param *param;
    if (param_from_values(&param, NULL, count, &b->graph->error))
        return NULL;
    fill(b, name, param->values, count);
    if (b->graph->error.code) {
        param_destroy(&param);
        return NULL;
    }
    return build_keep(b, name, param);
}

static struct node *build_node(struct model_build *b, enum op_kind kind, struct view x, struct view out)
{
    struct node *node = x.tensor >= 0 && out.tensor >= 0 ? graph_node(b->graph, kind, out) : NULL;
    if (!node) {
        build_fail(b, ERROR_INTERNAL, "a layer without input or output"); /* where nothing failed before it */
        memset(&b->scratch, 0, sizeof b->scratch);
        return &b->scratch;
    }
    node->in[OP_X] = x;
    return node;
}

static void build_conv_args(struct op_conv2d *args, int kernel)
{
    *args = (struct op_conv2d){.kernel = kernel, .stride = 1, .pad = kernel / 2, .upsample = 1, .gain = 1, .scale = 1};
}

/* Channels of a view, 0 after a failure. */
static int build_channels(const struct model_build *b, struct view v)
{
    return v.tensor >= 0 ? graph_channels(b->graph, v) : 0;
}

struct node *build_conv_of(struct model_build *b, const struct param *weight, struct view x, struct view out,
                           int kernel)
{
    struct node *node = build_node(b, OP_CONV2D, x, out);
    build_conv_args(&node->args.conv2d, kernel);
    node->param[OP_WEIGHT] = weight;
    return node;
}

struct node *build_depthwise_of(struct model_build *b, const struct param *weight, const struct param *bias,
                                struct view x, struct view out, int kernel, int stride)
{
    struct node *node = build_node(b, OP_DEPTHWISE, x, out);
    node->args.depthwise = (struct op_depthwise){.kernel = kernel, .stride = stride, .pad = (kernel - 1) / 2};
    node->param[OP_WEIGHT] = weight;
    node->param[OP_BIAS] = bias;
    return node;
}

struct node *build_conv_plain(struct model_build *b, const char *name, struct view x, struct view out, int kernel)
{
    int shape[4] = {build_channels(b, out), build_channels(b, x), kernel, kernel};
    return build_conv_of(b, build_param(b, build_name("%s.weight", name), 4, shape), x, out, kernel);
}

struct node *build_conv(struct model_build *b, const char *name, struct view x, struct view out, int kernel)
{
    const int channels = build_channels(b, out);
    struct node *node = build_conv_plain(b, name, x, out, kernel);
    node->param[OP_BIAS] = build_param(b, build_name("%s.bias", name), 1, &channels);
    return node;
}

/* BatchNorm2d in eval mode is y = x*scale + shift; scale = gamma/sqrt(var+eps), shift = beta - mean*scale. */
static void build_norm(struct model_build *b, const char *norm, int channels, float *scale, float *shift)
{
    static const char *const parts[4] = {"weight", "bias", "running_mean", "running_var"};
    float *values[4] = {scale, shift, NULL, NULL};
    float *buffer = mem_alloc(2 * (size_t)channels, sizeof(float));
    if (!buffer) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return;
    }
    values[2] = buffer;
    values[3] = buffer + channels;
    for (int i = 0; i < 4; i++) {
        const struct weights_tensor *t = build_tensor(b, build_name("%s.%s", norm, parts[i]), 1, &channels);
        if (t)
            weights_read_f32(t, values[i]);
    }
    for (int c = 0; c < channels && !b->graph->error.code; c++) {
        scale[c] = (float)(scale[c] / sqrt((double)values[3][c] + (b->norm_epsilon > 0 ? b->norm_epsilon : 1e-5)));
        shift[c] -= values[2][c] * scale[c];
    }
    free(buffer);
}

/* shift += scale * the convolution's own bias. */
static void build_shift(struct model_build *b, const struct weights_tensor *bias, const float *scale, float *shift)
{
    float *values = bias ? mem_alloc(bias->count, sizeof *values) : NULL;
    if (bias && !values)
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
    if (values)
        weights_read_f32(bias, values);
    for (size_t i = 0; values && i < bias->count; i++)
        shift[i] += scale[i] * values[i];
    free(values);
}

/* The params of a folded convolution: the weight with its rows scaled, and the shift as bias. */
static void build_folded(struct model_build *b, const char *conv, const char *norm, int rank, const int *shape,
                         const struct param **weight, const struct param **bias)
{
    struct build_text weight_name = build_text("%s.weight", conv), bias_name = build_text("%s.shift", norm);
    *weight = build_cached(b, weight_name.text);
    *bias = build_cached(b, bias_name.text);
    if (*weight || !b->loading || b->graph->error.code)
        return;
    float *scale = mem_alloc(2 * (size_t)shape[0], sizeof(float)), *shift = scale ? scale + shape[0] : NULL;
    if (!scale) {
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
        return;
    }
    build_norm(b, norm, shape[0], scale, shift);
    const struct weights_tensor *own = weights_find(b->model->weights, build_name("%s.bias", conv));
    if (own)
        build_shift(b, build_tensor(b, own->name, 1, shape), scale, shift);
    *weight = build_from_tensor(b, weight_name.text, rank, shape, scale);
    struct param *made;
    if (!b->graph->error.code && !param_from_values(&made, shift, (size_t)shape[0], &b->graph->error))
        *bias = build_keep(b, bias_name.text, made);
    free(scale);
}

struct node *build_conv_bn(struct model_build *b, const char *conv, const char *norm, struct view x, struct view out,
                           int kernel)
{
    int shape[4] = {build_channels(b, out), build_channels(b, x), kernel, kernel};
    const struct param *weight, *bias;
    build_folded(b, conv, norm, 4, shape, &weight, &bias);
    struct node *node = build_conv_of(b, weight, x, out, kernel);
    node->param[OP_BIAS] = bias;
    return node;
}

struct node *build_depthwise_bn(struct model_build *b, const char *conv, const char *norm, struct view x,
                                struct view out, int kernel, int stride)
{
    int shape[4] = {build_channels(b, out), 1, kernel, kernel};
    const struct param *weight, *bias;
    build_folded(b, conv, norm, 4, shape, &weight, &bias);
    return build_depthwise_of(b, weight, bias, x, out, kernel, stride);
}

struct node *build_linear(struct model_build *b, const char *name, struct view x, struct view out)
{
    return build_linear_rate(b, name, 1, x, out);
}

struct node *build_linear_rate(struct model_build *b, const char *name, float rate, struct view x, struct view out)
{
    int shape[2] = {build_channels(b, out), 0};
    if (x.tensor >= 0) {
        const struct tensor *t = graph_tensor_of(b->graph, x);
        shape[1] = build_channels(b, x) * t->h * t->w;
    }
    float *rates = rate != 1 && b->loading ? mem_alloc((size_t)shape[0], sizeof *rates) : NULL;
    if (rate != 1 && b->loading && !rates)
        build_fail(b, ERROR_NO_MEMORY, "out of memory for the model's parameters");
    for (int i = 0; rates && i < shape[0]; i++)
        rates[i] = rate;
    const struct param *weight = build_from_tensor(b, build_name("%s.weight", name), 2, shape, rates);
    free(rates);
    const struct param *bias = build_param(b, build_name("%s.bias", name), 1, shape);
    struct node *node = build_node(b, OP_LINEAR, x, out);
    node->param[OP_WEIGHT] = weight;
    node->param[OP_BIAS] = bias;
    return node;
}

struct view build_like(struct model_build *b, struct view x, int c)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    struct tensor t = *graph_tensor_of(b->graph, x);
    return graph_temp(b->graph, t.n, c, t.h, t.w);
}

struct node *build_norm_layer(struct model_build *b, const char *name, enum op_kind kind, struct view x,
                              struct view out)
{
    struct node *node = x.tensor < 0 ? NULL : graph_node(b->graph, kind, out);
    if (!node)
        return &b->scratch;
    const int channels = graph_channels(b->graph, x);
    node->in[OP_X] = x;
    node->args.norm = (struct op_norm){.groups = 1, .epsilon = 1e-5f};
    node->param[OP_WEIGHT] = build_param(b, build_name("%s.weight", name), 1, &channels);
    node->param[OP_BIAS] = build_param(b, build_name("%s.bias", name), 1, &channels);
    return node;
}

struct view build_resize(struct model_build *b, enum resize_mode mode, struct view x, int h, int w)
{
    if (x.tensor < 0)
        return VIEW_NONE;
    struct view out = graph_temp(b->graph, graph_tensor_of(b->graph, x)->n, graph_channels(b->graph, x), h, w);
    build_node(b, OP_RESIZE, x, out)->args.resize.mode = mode;
    return out;
}
