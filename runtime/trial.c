#include "runtime/trial.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define TRIAL_CHANNELS 64
#define TRIAL_LAYERS 10     /* the first from, the last to a picture */
#define TRIAL_ENOUGH_MS 10. /* a shorter run says more about its beginning and end than about speed */

/* A picture, convolutions and a picture; params[layer] are the weights. */
static enum error_code trial_graph(struct graph **out, int side, struct param *const *params, struct error *err)
{
    enum error_code code = graph_create(out, err);
    if (code)
        return code;
    struct graph *graph = *out;
    struct view x = graph_tensor(graph, TENSOR_INPUT, 1, side, side, 1, (const int[]){3});
    for (int layer = 0; layer < TRIAL_LAYERS; layer++) {
        const struct view y = layer < TRIAL_LAYERS - 1
                                  ? graph_temp(graph, 1, TRIAL_CHANNELS, side, side)
                                  : graph_tensor(graph, TENSOR_OUTPUT, 1, side, side, 1, (const int[]){3});
        struct node *node = graph_node(graph, OP_CONV2D, y);
        if (!node)
            break;
        node->in[OP_X] = x;
        node->param[OP_WEIGHT] = params[layer];
        node->args.conv2d = (struct op_conv2d){.kernel = 3,
                                               .stride = 1,
                                               .pad = 1,
                                               .upsample = 1,
                                               .activation = ACTIVATION_LEAKY,
                                               .slope = 0.2f,
                                               .gain = 1,
                                               .scale = 1};
        x = y;
    }
    code = graph_finish(graph, err);
    if (code)
        graph_destroy(out);
    return code;
}

/* The faster of two runs: the first may have to make buffers. */
static enum error_code trial_time(struct device *device, const struct graph *graph, enum precision precision,
                                  float *picture, double *ms, struct error *err)
{
    const struct run_options options = {0};
    const float *const inputs[] = {picture};
    float *outputs[] = {picture};
    struct plan *plan = NULL;
    enum error_code code = plan_create(&plan, device, graph, precision, "trial", err);
    *ms = INFINITY;
    for (int run = 0; run < 2 && !code; run++) {
        const double begin = log_clock_ms();
        code = plan_run(plan, inputs, outputs, &options, err);
        *ms = fmin(*ms, log_clock_ms() - begin);
    }
    plan_destroy(&plan);
    return code;
}

static enum error_code trial_side(struct device *device, int side, struct param *const *params,
                                  enum precision precision, struct trial *out, struct error *err)
{
    double ms;
    struct graph *graph;
    float *picture = mem_calloc((size_t)3 * (size_t)side * (size_t)side, sizeof *picture);
    if (!picture)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a trial picture");
    enum error_code code = trial_graph(&graph, side, params, err);
    if (!code) {
        code = trial_time(device, graph, precision, picture, &ms, err);
        if (!code)
            *out = (struct trial){(double)graph_macs(graph) / 1e9, ms / 1e3};
        graph_destroy(&graph);
    }
    free(picture);
    return code;
}

enum error_code trial_run(struct device *device, enum precision precision, struct trial *out, struct error *err)
{
    static const int sides[] = {32, 128, 512}; /* sixteen times the work each */
    struct param *params[TRIAL_LAYERS] = {0};
    enum error_code code = OK;
    *out = (struct trial){0};
    for (int layer = 0; layer < TRIAL_LAYERS && !code; layer++) {
        const size_t from = layer ? TRIAL_CHANNELS : 3, to = layer < TRIAL_LAYERS - 1 ? TRIAL_CHANNELS : 3;
        code = param_from_values(&params[layer], NULL, from * to * 9, err);
    }
    for (size_t i = 0; i < sizeof sides / sizeof *sides && !code && out->seconds < TRIAL_ENOUGH_MS / 1e3; i++)
        code = trial_side(device, sides[i], params, precision, out, err);
    device_forget_params(device, (const struct param *const *)params, TRIAL_LAYERS);
    for (int layer = 0; layer < TRIAL_LAYERS; layer++)
        param_destroy(&params[layer]);
    return out->seconds > 0 && code != ERROR_DEVICE_LOST ? OK : code;
}
