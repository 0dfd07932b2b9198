#include "runtime/models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/foreign.h"
#include "runtime/models/model_private.h"

static const struct architecture *const architectures[] = {
    &architecture_rrdbnet,  &architecture_srvgg,         &architecture_gfpgan,     &architecture_retinaface,
    &architecture_parsenet, &architecture_damage,        &architecture_filler,     &architecture_bopbtl,
    &architecture_migan,    &architecture_restoreformer, &architecture_codeformer, &architecture_span,
    &architecture_plksr,    &architecture_cugan,         &architecture_fbcnn,      &architecture_drunet,
    &architecture_dncnn,
};

static const float model_min_sizes[3][2] = {{16, 32}, {64, 128}, {256, 512}};

bool model_settings_activation(struct model_settings *out, const char *text)
{
    const size_t name = strcspn(text, ":");
    char *end = NULL;
    out->activation = ACTIVATION_RELU;
    out->activation_slope = 0;
    if (strcmp(text, "relu") == 0)
        return true;
    out->activation = ACTIVATION_LEAKY;
    if (name != strlen("leakyrelu") || strncmp(text, "leakyrelu", name) != 0)
        return false;
    if (!text[name])
        return true;
    const char *slope = text + name + 1;
    out->activation_slope = strtof(slope, &end);
    return strspn(slope, "0123456789.") == strlen(slope) && !*end && out->activation_slope > 0 &&
           out->activation_slope <= 1;
}

const char *model_settings_unused(const struct model_settings *settings, const struct model_info *info)
{
    const bool level = !strcmp(info->architecture, "DRUNet") || !strcmp(info->architecture, "FDnCNN");
    if (settings->activation != ACTIVATION_NONE && !info->asks_activation)
        return "activation";
    if (settings->has_slope && !info->asks_activation)
        return "slope";
    if (settings->min_sizes[0][0] > 0 && info->kind != MODEL_DETECTOR)
        return "min_sizes";
    if (settings->has_noise_level && !level)
        return "noise_level";
    return settings->has_jpeg_quality && strcmp(info->architecture, "FBCNN") ? "jpeg_quality" : NULL;
}

const struct raster_range *model_range(enum model_kind kind)
{
    static const struct raster_range ranges[] = {
        [MODEL_DETECTOR] = {.unit = 1, .mean = {104, 117, 123}, .deviation = 1, .low = 0, .high = 255, .bgr = true},
        [MODEL_FACE] = {.unit = 255, .mean = {0.5f, 0.5f, 0.5f}, .deviation = 0.5f, .low = -1, .high = 1},
        [MODEL_PARSER] = {.unit = 255, .mean = {0.5f, 0.5f, 0.5f}, .deviation = 0.5f, .low = -1, .high = 1},
        [MODEL_UPSCALER] = {.unit = 255, .deviation = 1, .low = 0, .high = 1},
        [MODEL_DAMAGE] = {.unit = 255, .mean = {0.5f, 0.5f, 0.5f}, .deviation = 1, .low = -0.5f, .high = 0.5f},
        [MODEL_FILLER] = {.unit = 255, .mean = {0.5f, 0.5f, 0.5f}, .deviation = 0.5f, .low = -1, .high = 1},
    };
    return &ranges[kind];
}

/* Which network the tensors belong to; *out is NULL, with err set, when there is none. */
static enum error_code model_detect(const struct architecture **out, const struct weights *weights, const char *path,
                                    struct model_info *info, struct error *err)
{
    struct error why = ERROR_INIT;
    const char *foreign = foreign_disguise(weights);
    for (size_t i = 0; !foreign && i < sizeof architectures / sizeof architectures[0]; i++) {
        memset(info, 0, sizeof *info);
        info->scale = info->unshuffle = info->output_count = 1;
        memcpy(info->min_sizes, model_min_sizes, sizeof model_min_sizes);
        if (architectures[i]->detect(weights, info, &why)) {
            *out = architectures[i];
            return OK;
        }
        if (why.code)
            return error_set(err, why.code, "%s: %s", path, why.text);
    }
    if (!foreign)
        foreign = foreign_name(weights);
    if (foreign)
        return error_set(err, ERROR_UNSUPPORTED, "%s: a network that is not read yet: %s", path, foreign);
    char names[220] = "";
    for (size_t i = 0, used = 0; i < 3 && i < weights_count(weights) && used < sizeof names; i++) {
        const char *name = weights_at(weights, i)->name;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%.60s\"%s", i ? ", " : "", name,
                                 strlen(name) > 60 ? "…" : "");
    }
    return error_set(err, ERROR_UNSUPPORTED, "%s: not a network that we know; it has %zu tensors, the first are %s",
                     path, weights_count(weights), *names ? names : "none");
}

static enum error_code model_build_graph(const void *model, const struct session_shape *shape, struct graph *graph,
                                         struct error *err)
{
    const struct model *m = model;
    struct model_build b = {.graph = graph, .model = m};
    graph->weights = m->weights;
    m->architecture->build(&b, shape);
    return graph_finish(graph, err);
}

enum error_code model_graph(const struct model *model, const struct session_shape *shape, struct graph **out,
                            struct error *err)
{
    enum error_code code = graph_create(out, err);
    if (code)
        return code;
    code = model_build_graph(model, shape, *out, err);
    if (code)
        graph_destroy(out);
    return code;
}

/* The first build: makes the params and proves that every tensor is there and fits. */
static enum error_code model_load(struct model *m, struct error *err)
{
    struct graph *graph;
    enum error_code code = graph_create(&graph, err);
    if (code)
        return code;
    struct session_shape shape = {.n = 1};
    m->architecture->smallest(&m->info, &shape);
    struct model_build b = {.graph = graph, .model = m, .loading = m};
    m->architecture->build(&b, &shape);
    struct error why = ERROR_INIT;
    code = graph_finish(graph, &why);
    if (code) /* inconsistencies in a checkpoint are the file's fault */
        code = error_set(err, code == ERROR_INTERNAL || code == ERROR_INVALID ? ERROR_CORRUPT : code, "%s: %s: %s",
                         m->path, m->info.architecture, why.text);
    graph_destroy(&graph);
    return code ? code : weights_check(m->weights, err);
}

/* Takes over the weights, even when it fails. */
static enum error_code model_create(struct model **out, const char *path, struct weights *weights,
                                    const struct model_settings *settings, struct error *err)
{
    struct model *m = mem_calloc(1, sizeof *m);
    if (!m) {
        weights_close(&weights);
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    snprintf(m->path, sizeof m->path, "%s", path);
    m->weights = weights;
    enum error_code code = model_detect(&m->architecture, weights, path, &m->info, err);
    if (!code) {
        if (settings)
            m->settings = *settings;
        if (m->settings.min_sizes[0][0] > 0)
            memcpy(m->info.min_sizes, m->settings.min_sizes, sizeof m->info.min_sizes);
        code = model_load(m, err);
    }
    if (code)
        model_close(&m);
    *out = m;
    return code;
}

enum error_code model_open(struct model **out, const char *path, const struct model_settings *settings,
                           struct error *err)
{
    struct weights *weights;
    *out = NULL;
    enum error_code code = weights_open(&weights, path, err);
    return code ? code : model_create(out, path, weights, settings, err);
}

enum error_code model_open_memory(struct model **out, const char *name, const void *data, size_t size,
                                  const struct model_settings *settings, struct error *err)
{
    struct weights *weights;
    *out = NULL;
    enum error_code code = weights_open_memory(&weights, name, data, size, err);
    return code ? code : model_create(out, name, weights, settings, err);
}

void model_close(struct model **model)
{
    if (!*model)
        return;
    for (size_t i = 0; i < (*model)->entry_count; i++) {
        free((*model)->entries[i].name);
        param_destroy(&(*model)->entries[i].param);
    }
    free((*model)->entries);
    free((*model)->table);
    weights_close(&(*model)->weights);
    free(*model);
    *model = NULL;
}

enum error_code model_probe(struct model_info *out, const struct weights *weights, const char *path, struct error *err)
{
    const struct architecture *architecture;
    return model_detect(&architecture, weights, path, out, err);
}

const struct model_info *model_info(const struct model *model)
{
    return &model->info;
}

const struct weights *model_weights(const struct model *model)
{
    return model->weights;
}

void model_output_shape(const struct model *model, const struct session_shape *shape, int index, int out_nchw[4])
{
    const struct model_info *info = &model->info;
    int stride = 8 << index;
    if (info->kind == MODEL_DAMAGE) {
        const bool context = shape->variant == MODEL_DAMAGE_CONTEXT;
        out_nchw[0] = shape->n;
        out_nchw[1] = context ? info->context : info->classes;
        out_nchw[2] = context ? (shape->h + 3) / 4 : shape->h;
        out_nchw[3] = context ? (shape->w + 3) / 4 : shape->w;
        return;
    }
    out_nchw[0] = shape->n;
    const int means = info->kind == MODEL_UPSCALER ? shape->variant & ~MODEL_BORDERED : MODEL_MEANS_OWN;
    if (means >= MODEL_MEANS_FIRST && means <= info->pool_count) {
        out_nchw[1] = info->pools[means - MODEL_MEANS_FIRST].channels;
        out_nchw[2] = out_nchw[3] = 1;
        return;
    }
    out_nchw[1] = info->kind == MODEL_DETECTOR ? 32 : info->kind == MODEL_PARSER && index == 0 ? info->classes : 3;
    out_nchw[2] = info->kind == MODEL_DETECTOR ? (shape->h + stride - 1) / stride : shape->h * info->scale;
    out_nchw[3] = info->kind == MODEL_DETECTOR ? (shape->w + stride - 1) / stride : shape->w * info->scale;
}

const struct session_shape *model_usual_shape(const struct model_info *info, int index, struct session_shape *out)
{
    static const struct {
        int count, side[6];
    } sides[] = {[MODEL_DETECTOR] = {6, {1024, 2048, 512, 256, 128, 64}},
                 [MODEL_UPSCALER] = {6, {512, 256, 128, 64, 32, 16}},
                 [MODEL_DAMAGE] = {3, {1024, 512, 256}},
                 [MODEL_FILLER] = {1, {256}}};
    static const struct {
        int n, variant;
    } faces[] = {{1, MODEL_NOISE_STORED}, {1, MODEL_NOISE_SEED}, {4, MODEL_NOISE_STORED}, {8, MODEL_NOISE_STORED}};
    const bool face = info->kind == MODEL_FACE;
    *out = (struct session_shape){.n = 1};
    if (face || info->kind == MODEL_PARSER) {
        if (index >= (int)(sizeof faces / sizeof faces[0]))
            return NULL;
        out->n = faces[index].n;
        out->h = out->w = face ? info->face_size : 512;
        out->variant = !face ? 0 : info->fidelity ? MODEL_FIDELITY / 2 : faces[index].variant;
        return out;
    }
    const bool whole = info->kind == MODEL_DAMAGE && !info->context;
    if (index >= (whole ? 1 : sides[info->kind].count))
        return NULL;
    out->h = out->w = info->side ? info->side
                      : whole    ? MODEL_DAMAGE_SIDE
                              : sides[info->kind].side[index] * (info->kind == MODEL_UPSCALER ? model_folded(info) : 1);
    return out;
}

enum error_code model_session(struct session **out, const struct model *model, struct device *device,
                              enum precision precision, struct error *err)
{
    const char *slash = strrchr(model->path, '/');
    return session_create(out, device, precision, slash ? slash + 1 : model->path, model_build_graph, model, err);
}

void model_forget(const struct model *model, struct device *device)
{
    for (size_t i = 0; i < model->entry_count; i++) {
        const struct param *param = model->entries[i].param;
        device_forget_params(device, &param, 1);
    }
}
