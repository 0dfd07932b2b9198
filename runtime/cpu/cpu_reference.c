/* The device "reference": runs a graph node by node with cpu_ref's kernels, each tensor in separate memory, so that the
 * oracle shares none of the other backends' placement and packing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/backend.h"
#include "runtime/base/mem.h"
#include "runtime/cpu/cpu_ref.h"

struct cpu_plan {
    struct plan base;
    struct graph graph; /* a copy; only tensors, nodes, inputs and outputs are used */
    int *last_use;      /* by tensor: the last node that touches it; node_count for outputs */
    float **data;       /* by tensor, while it is alive in a run */
};

static enum error_code cpu_list(struct device_info **list, size_t *count, struct error *err)
{
    (void)list;
    (void)count;
    (void)err;
    return OK; /* the oracle is for tests and is not offered */
}

static enum error_code cpu_open(struct device **out, const struct device_info *info, const char *cache_dir,
                                struct error *err)
{
    (void)info;
    (void)cache_dir;
    *out = mem_calloc(1, sizeof **out);
    if (!*out)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    (*out)->backend = &cpu_ref_backend;
    return OK;
}

static void cpu_close(struct device *device)
{
    free(device);
}

static void cpu_info(const struct device *device, struct device_info *out)
{
    (void)device;
    *out = (struct device_info){
        .type = DEVICE_CPU, .usable = true, .preferred = PRECISION_FP32, .max_buffer_bytes = UINT64_MAX};
    snprintf(out->id, sizeof out->id, "reference");
    snprintf(out->name, sizeof out->name, "plain C reference");
    snprintf(out->backend, sizeof out->backend, "reference");
    snprintf(out->precision_reason, sizeof out->precision_reason, "the oracle computes in fp32");
}

static void cpu_plan_destroy(struct plan *base)
{
    struct cpu_plan *p = (struct cpu_plan *)base;
    for (int t = 0; p->data && t < p->graph.tensor_count; t++)
        free(p->data[t]);
    free(p->data);
    free(p->last_use);
    free(p->graph.tensors);
    free(p->graph.nodes);
    free(p);
}

static void cpu_plan_liveness(struct cpu_plan *p)
{
    for (int i = 0; i < p->graph.node_count; i++) {
        const struct node *node = &p->graph.nodes[i];
        p->last_use[node->out.tensor] = i;
        for (int k = 0; k < OP_MAX_INPUTS; k++)
            if (node->in[k].tensor >= 0)
                p->last_use[node->in[k].tensor] = i;
    }
    for (int t = 0; t < p->graph.tensor_count; t++)
        if (p->graph.tensors[t].role == TENSOR_OUTPUT)
            p->last_use[t] = p->graph.node_count;
}

static enum error_code cpu_plan_create(struct plan **out, struct device *device, const struct graph *graph,
                                       enum precision precision, const char *name, struct error *err)
{
    (void)precision;
    (void)name;
    struct cpu_plan *p = mem_calloc(1, sizeof *p);
    size_t tensors = (size_t)graph->tensor_count, nodes = (size_t)graph->node_count;
    if (p) {
        p->graph = *graph;
        p->graph.tensors = mem_alloc(tensors, sizeof *graph->tensors);
        p->graph.nodes = mem_alloc(nodes, sizeof *graph->nodes);
        p->last_use = mem_calloc(tensors, sizeof *p->last_use);
        p->data = mem_calloc(tensors, sizeof *p->data);
    }
    if (!p || !p->graph.tensors || !p->graph.nodes || !p->last_use || !p->data) {
        if (p)
            cpu_plan_destroy(&p->base);
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    }
    memcpy(p->graph.tensors, graph->tensors, tensors * sizeof *graph->tensors);
    memcpy(p->graph.nodes, graph->nodes, nodes * sizeof *graph->nodes);
    p->base = (struct plan){.backend = &cpu_ref_backend, .device = device};
    cpu_plan_liveness(p);
    *out = &p->base;
    return OK;
}

static size_t cpu_values(const struct tensor *t)
{
    return (size_t)t->n * (size_t)t->channels * (size_t)t->h * (size_t)t->w;
}

/* Memory for a tensor; filled with a value that spoils every sum, so that an unwritten element shows. */
static enum error_code cpu_touch(struct cpu_plan *p, int tensor, struct error *err)
{
    const struct tensor *t = &p->graph.tensors[tensor];
    if (p->data[tensor])
        return OK;
    size_t values = cpu_values(t);
    p->data[tensor] = mem_alloc(values, sizeof(float));
    if (!p->data[tensor])
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tensor of %zu values", values);
    if (t->role == TENSOR_CONSTANT)
        param_read(t->param, p->data[tensor]);
    else
        memset(p->data[tensor], 0xff, values * sizeof(float));
    return OK;
}

static struct cpu_view cpu_view(const struct cpu_plan *p, struct view view)
{
    if (view.tensor < 0)
        return (struct cpu_view){0};
    const struct tensor *t = &p->graph.tensors[view.tensor];
    size_t pixels = (size_t)t->h * (size_t)t->w, first = 0;
    for (int i = 0; i < view.first; i++)
        first += (size_t)t->segment[i];
    return (struct cpu_view){p->data[view.tensor] + first * pixels,
                             t->n,
                             graph_channels(&p->graph, view),
                             t->h,
                             t->w,
                             t->role == TENSOR_CONSTANT ? 0 : (size_t)t->channels * pixels};
}

static enum error_code cpu_run_node(struct cpu_plan *p, int index, const struct run_options *options, struct error *err)
{
    const struct node *node = &p->graph.nodes[index];
    struct cpu_node work = {
        .kind = node->kind, .args = node->args, .seed = options->seed, .first_image = options->first_image};
    float *params[OP_MAX_PARAMS] = {0};
    enum error_code code = cpu_touch(p, node->out.tensor, err);
    for (int i = 0; i < OP_MAX_INPUTS && !code; i++)
        if (node->in[i].tensor >= 0)
            code = cpu_touch(p, node->in[i].tensor, err);
    for (int i = 0; i < OP_MAX_PARAMS && !code; i++) {
        if (!node->param[i])
            continue;
        work.param[i] = params[i] = mem_alloc(node->param[i]->count, sizeof(float));
        if (params[i])
            param_read(node->param[i], params[i]);
        else
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for %zu parameters", node->param[i]->count);
    }
    if (!code) {
        work.out = cpu_view(p, node->out);
        for (int i = 0; i < OP_MAX_INPUTS; i++)
            work.in[i] = cpu_view(p, node->in[i]);
        code = cpu_ref_run(&work, err);
    }
    for (int i = 0; i < OP_MAX_PARAMS; i++)
        free(params[i]);
    for (int t = 0; t < p->graph.tensor_count; t++) {
        if (p->data[t] && p->last_use[t] == index) {
            free(p->data[t]);
            p->data[t] = NULL;
        }
    }
    return code;
}

static enum error_code cpu_plan_run(struct plan *base, const float *const *inputs, float *const *outputs,
                                    const struct run_options *options, struct error *err)
{
    struct cpu_plan *p = (struct cpu_plan *)base;
    enum error_code code = OK;
    for (int i = 0; i < p->graph.input_count && !code; i++) {
        int t = p->graph.inputs[i];
        code = cpu_touch(p, t, err);
        if (!code)
            memcpy(p->data[t], inputs[i], cpu_values(&p->graph.tensors[t]) * sizeof(float));
    }
    for (int i = 0; i < p->graph.node_count && !code; i++) {
        if (options->cancel && atomic_load(options->cancel))
            code = error_set(err, ERROR_CANCELLED, "cancelled");
        else
            code = cpu_run_node(p, i, options, err);
        if (options->progress)
            atomic_fetch_add(options->progress, 1);
    }
    if (!code) /* each run reads them */
        code = graph_check_weights(&p->graph, err);
    for (int i = 0; i < p->graph.output_count && !code; i++) {
        int t = p->graph.outputs[i];
        memcpy(outputs[i], p->data[t], cpu_values(&p->graph.tensors[t]) * sizeof(float));
    }
    for (int t = 0; t < p->graph.tensor_count; t++) {
        free(p->data[t]);
        p->data[t] = NULL;
    }
    return code;
}

static uint64_t cpu_plan_bytes(const struct plan *base)
{
    (void)base;
    return 0; /* nothing is held between runs */
}

static void cpu_forget(struct device *device, const struct param *const *params, size_t count)
{
    (void)device;
    (void)params;
    (void)count;
}

const struct backend cpu_ref_backend = {
    .name = "reference",
    .list = cpu_list,
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .plan_create = cpu_plan_create,
    .plan_destroy = cpu_plan_destroy,
    .plan_run = cpu_plan_run,
    .plan_bytes = cpu_plan_bytes,
    .forget_params = cpu_forget,
};
