#include "server/pipeline/model_trial.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/mem.h"

enum { TRIAL_MAX = sizeof((struct graph *)0)->outputs / sizeof(int) };

struct trial {
    struct device *device;
    struct graph *graph;
    struct plan *plan;
    float *inputs[TRIAL_MAX], *outputs[TRIAL_MAX];
};

static size_t trial_count(const struct graph *graph, int tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    return (size_t)t->n * (size_t)t->channels * (size_t)t->h * (size_t)t->w;
}

/* Pictures are small where tiles may be; faces and parsers have one size. */
static struct session_shape trial_shape(const struct model_info *info)
{
    struct session_shape shape;
    const struct session_shape *usual = model_usual_shape(info, 0, &shape);
    struct session_shape found = *usual;
    const bool one_size = info->kind == MODEL_FACE || info->kind == MODEL_PARSER;
    for (int i = 1; !one_size && (usual = model_usual_shape(info, i, &shape)); i++)
        found = *usual;
    return found;
}

static enum error_code trial_fill(struct trial *t, const struct raster_range *range, struct error *err)
{
    bool room = true;
    for (int i = 0; i < t->graph->input_count && room; i++) {
        const size_t count = trial_count(t->graph, t->graph->inputs[i]);
        room = (t->inputs[i] = mem_alloc(count, sizeof(float))) != NULL;
        for (size_t k = 0; k < count && room; k++)
            t->inputs[i][k] = range->low + (range->high - range->low) * (0.5f + 0.4f * sinf((float)k * 0.37f));
    }
    for (int i = 0; i < t->graph->output_count && room; i++)
        room = (t->outputs[i] = mem_calloc(trial_count(t->graph, t->graph->outputs[i]), sizeof(float))) != NULL;
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for a trial of the network");
}

static enum error_code trial_check(const struct trial *t, struct error *err)
{
    for (int i = 0; i < t->graph->output_count; i++)
        for (size_t k = 0, count = trial_count(t->graph, t->graph->outputs[i]); k < count; k++)
            if (!isfinite(t->outputs[i][k]))
                return error_set(err, ERROR_CORRUPT, "what the network makes of a small picture is not finite");
    return OK;
}

enum error_code model_trial(const struct model *model, int *side, struct error *err)
{
    struct trial t = {0};
    const struct session_shape shape = trial_shape(model_info(model));
    *side = shape.w;
    enum error_code code = device_open(&t.device, "cpu", NULL, err);
    if (!code)
        code = model_graph(model, &shape, &t.graph, err);
    if (!code)
        code = trial_fill(&t, model_range(model_info(model)->kind), err);
    if (!code)
        code = plan_create(&t.plan, t.device, t.graph, PRECISION_FP32, "trial", err);
    if (!code)
        code = plan_run(t.plan, (const float *const *)t.inputs, t.outputs, NULL, err);
    if (!code)
        code = trial_check(&t, err);
    plan_destroy(&t.plan);
    if (t.device)
        model_forget(model, t.device);
    device_close(&t.device);
    graph_destroy(&t.graph);
    for (int i = 0; i < TRIAL_MAX; i++) {
        free(t.inputs[i]);
        free(t.outputs[i]);
    }
    return code;
}

const char *model_not_finite(const struct model *model)
{
    const struct weights *weights = model_weights(model);
    const char *found = NULL;
    for (size_t i = 0; i < weights_count(weights) && !found; i++) {
        const struct weights_tensor *t = weights_at(weights, i);
        float *values = mem_alloc(t->count + 1, sizeof *values);
        if (!values)
            break;
        weights_read_f32(t, values);
        for (size_t k = 0; k < t->count && !found; k++)
            if (!isfinite(values[k]))
                found = t->name;
        free(values);
    }
    return found;
}
