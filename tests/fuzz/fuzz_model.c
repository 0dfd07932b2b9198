/* Fuzzes what comes after a checkpoint was read: recognising the network, opening it, making a plan of a small shape
 * on the CPU and running it once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/models/model.h"
#include "tests/fuzz/exercise.h"

#define MOST_MACS ((uint64_t)1 << 26)     /* of a run, so that it stays short */
#define MOST_ELEMENTS ((uint64_t)1 << 22) /* of all its tensors */

static void expect(int condition, const char *what, const struct error *err)
{
    if (!condition) {
        fprintf(stderr, "broken promise: %s: %s\n", what, err->text);
        abort();
    }
}

/* What is wrong with a file is the file's fault, and the message names it. */
static void expect_refusal(const struct error *err, enum error_code code)
{
    expect(code == err->code, "the code returned is the code set", err);
    expect(code == ERROR_UNSUPPORTED || code == ERROR_CORRUPT || code == ERROR_TOO_LARGE, "the code is one of three",
           err);
    expect(strncmp(err->text, "fuzz: ", 6) == 0, "the error names the file", err);
}

static struct session_shape small_shape(const struct model_info *info)
{
    int side = info->kind == MODEL_FACE       ? info->face_size
               : info->kind == MODEL_PARSER   ? 16
               : info->kind == MODEL_DETECTOR ? 40
               : info->side                   ? info->side
                                              : 3 * info->unshuffle;
    return (struct session_shape){.n = 1, .h = side, .w = info->kind == MODEL_UPSCALER ? 2 * side : side};
}

static uint64_t elements(const struct tensor *t)
{
    return (uint64_t)t->n * (uint64_t)t->channels * (uint64_t)t->h * (uint64_t)t->w;
}

static bool is_short(const struct graph *graph)
{
    uint64_t sum = 0;
    for (int i = 0; i < graph->tensor_count; i++)
        sum += elements(&graph->tensors[i]);
    return sum <= MOST_ELEMENTS && graph_macs(graph) <= MOST_MACS;
}

static float *values_of(const struct graph *graph, int tensor)
{
    uint64_t count = elements(&graph->tensors[tensor]);
    float *values = malloc(count * sizeof *values);
    if (!values)
        abort();
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(i % 7) / 7;
    return values;
}

/* Buffers of exactly the size that the model announces, so that a sanitizer sees what is written beyond it. */
static void run(struct device *device, const struct model *model, const struct graph *graph,
                const struct session_shape *shape)
{
    struct error err = ERROR_INIT;
    struct plan *plan;
    enum error_code code = plan_create(&plan, device, graph, PRECISION_FP32, "fuzz", &err);
    if (!code) {
        float *inputs[2], *outputs[16];
        expect(graph->input_count == 1 + (model_info(model)->context > 0), "there is one input, or two", &err);
        expect(graph->output_count == model_info(model)->output_count, "there are as many outputs as announced", &err);
        for (int i = 0; i < graph->output_count; i++) {
            int nchw[4];
            const struct tensor *t = &graph->tensors[graph->outputs[i]];
            model_output_shape(model, shape, i, nchw);
            expect(nchw[0] == t->n && nchw[1] == t->channels && nchw[2] == t->h && nchw[3] == t->w,
                   "an output has the shape announced", &err);
            outputs[i] = values_of(graph, graph->outputs[i]);
        }
        for (int i = 0; i < graph->input_count; i++)
            inputs[i] = values_of(graph, graph->inputs[i]);
        code = plan_run(plan, (const float *const *)inputs, outputs, NULL, &err);
        for (int i = 0; i < graph->output_count; i++)
            free(outputs[i]);
        for (int i = 0; i < graph->input_count; i++)
            free(inputs[i]);
    }
    expect(!code, "what opens runs", &err);
    plan_destroy(&plan);
    exercise_opened++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct device *device;
    struct error err = ERROR_INIT;
    struct weights *weights;
    struct model *model;
    struct model_info info;
    device_set_cpu_threads(1);
    if (!device && device_open(&device, "cpu", NULL, &err))
        abort();
    if (weights_open_memory(&weights, "fuzz", data, size, &err)) /* fuzz_safetensors and the others look after that */
        return 0;
    enum error_code probed = model_probe(&info, weights, "fuzz", &err);
    weights_close(&weights);
    if (probed) {
        expect_refusal(&err, probed);
        return 0;
    }
    enum error_code code = model_open_memory(&model, "fuzz", data, size, NULL, &err);
    if (code) {
        expect_refusal(&err, code);
        return 0;
    }
    expect(info.kind == model_info(model)->kind && info.scale == model_info(model)->scale &&
               info.unshuffle == model_info(model)->unshuffle && info.face_size == model_info(model)->face_size &&
               info.classes == model_info(model)->classes,
           "what opens is what was probed", &err);
    const struct session_shape shape = small_shape(&info);
    struct graph *graph;
    code = model_graph(model, &shape, &graph, &err);
    /* a parser may halve its input more often than 16 px allow */
    expect(!code || (code == ERROR_INVALID && info.kind == MODEL_PARSER), "what opens has a graph", &err);
    if (!code && is_short(graph))
        run(device, model, graph, &shape);
    graph_destroy(&graph);
    model_forget(model, device);
    model_close(&model);
    return 0;
}
