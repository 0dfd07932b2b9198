/* Runs a plan: its tasks one after the other, the last layers in bands of rows if cpu_band says so. */
#include <string.h>
#include <time.h>

#include "runtime/cpu/cpu_plan_private.h"

static double plan_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* Where a run is. */
struct plan_progress {
    const struct run_options *options;
    double before; /* when the last task ended */
    double away;   /* how long others had the result's rows */
};

/* Where the rows of a result go. */
struct plan_sink {
    float *planes; /* all of it; NULL: */
    run_rows_fn *take;
    void *user;
};

static void plan_hand_out(struct cpu_plan *plan, const struct plan_sink *sink, int first, int end,
                          struct cpu_pool *pool, struct plan_progress *at)
{
    const struct cpu_output *out = &plan->outputs[0];
    if (sink->planes) {
        const struct cpu_operand whole = cpu_band_shift(&out->operand, first);
        cpu_task_output(&whole, out->channels, out->lanes, first, end, pool, sink->planes);
        return;
    }
    struct cpu_operand part = out->operand;
    part.h = end - first;
    cpu_task_output(&part, out->channels, out->lanes, 0, part.h, pool, plan->rows);
    const double start = plan_now_ms();
    sink->take(sink->user, plan->rows, first, part.h);
    at->away += plan_now_ms() - start;
}

static enum error_code plan_run_task(struct cpu_plan *plan, const struct cpu_task *task, const struct cpu_run *run,
                                     struct plan_progress *at, struct error *err)
{
    if (at->options->cancel && atomic_load(at->options->cancel))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    task->run(task, run);
    if (at->options->progress)
        atomic_fetch_add(at->options->progress, 1);
    if (plan->node_ms) {
        const double now = plan_now_ms();
        plan->node_ms[task->node] += now - at->before;
        at->before = now;
    }
    return OK;
}

/* The tensor that a task of a band writes. */
static struct cpu_operand *plan_band_written(struct cpu_task *task)
{
    return cpu_task_is_gather(task) ? &task->gather.y : &task->conv.conv.finish.y;
}

/* What it reads begins with row `low`. */
static void plan_band_read(struct cpu_task *task, int low)
{
    struct cpu_gather *gather = &task->gather;
    if (cpu_task_is_gather(task))
        gather->x = cpu_band_before(gather->x, low, gather->x_width);
    else
        task->conv.conv.x = cpu_band_shift(&task->conv.conv.x, low);
}

/* The layers at the end, and their result. */
static enum error_code plan_run_bands(struct cpu_plan *plan, struct cpu_run run, struct cpu_pool *pool,
                                      struct plan_progress *at, const struct plan_sink *sink, struct error *err)
{
    const struct cpu_band *band = &plan->band;
    const int last = band->count - 1;
    struct cpu_band_rows rows = {0};
    int need[CPU_BAND_MOST];
    enum error_code code = OK;
    while (code == OK && cpu_band_next(band, &rows, need)) {
        const int had = rows.done[last];
        for (int i = 0; i <= last && code == OK; i++) {
            struct cpu_task task = plan->tasks[plan->band_task + (size_t)i];
            struct cpu_operand *y = plan_band_written(&task);
            const int low = cpu_band_lowest(band, i, i < last ? rows.done[i + 1] : rows.done[i]);
            cpu_band_keep(pool, y, rows.low[i], low, rows.done[i]);
            rows.low[i] = low;
            *y = cpu_band_shift(y, low);
            if (i > 0)
                plan_band_read(&task, rows.low[i - 1]);
            run.shared = plan->band_shared[i] ? plan->band_shared[i] : plan->scratch;
            run.ready = plan->band_shared[i] && rows.done[i] > 0;
            run.first_row = rows.done[i];
            run.end_row = need[i];
            if (need[i] > rows.done[i])
                code = plan_run_task(plan, &task, &run, at, err);
            rows.done[i] = need[i];
        }
        if (code == OK && rows.done[last] > had) /* the last layer's rows begin with the first that is new */
            plan_hand_out(plan, sink, had, rows.done[last], pool, at);
    }
    return code;
}

/* All but outputs that are not handed out in bands. */
static enum error_code plan_compute(struct plan *base, const float *const *inputs, const struct plan_sink *sink,
                                    const struct run_options *options, struct error *err)
{
    struct cpu_plan *plan = (struct cpu_plan *)base;
    struct cpu_device *device = (struct cpu_device *)base->device;
    const struct cpu_run run = {.isa = plan->isa,
                                .pool = device->pool,
                                .shared = plan->scratch,
                                .own = plan->scratch + plan->shared_floats,
                                .own_floats = plan->thread_floats,
                                .seed = options->seed,
                                .first_image = options->first_image};
    enum error_code code = cpu_arena_grow(device, plan->bytes, err); /* it may have been given back */
    if (code)
        return code;
    for (int i = 0; i < plan->input_count; i++) {
        plan->inputs[i].gather.x = inputs[i];
        plan->inputs[i].run(&plan->inputs[i], &run);
    }
    const double start = plan_now_ms();
    struct plan_progress at = {options, start, 0};
    if (plan->node_ms)
        memset(plan->node_ms, 0, (size_t)plan->node_count * sizeof *plan->node_ms);
    const size_t whole = plan->band.count ? plan->band_task : plan->task_count;
    for (size_t i = 0; i < whole && code == OK; i++)
        code = plan_run_task(plan, &plan->tasks[i], &run, &at, err);
    if (code == OK && plan->band.count)
        code = plan_run_bands(plan, run, device->pool, &at, sink, err);
    plan->run_ms = plan_now_ms() - start - at.away;
    return code;
}

enum error_code cpu_plan_run(struct plan *base, const float *const *inputs, float *const *outputs,
                             const struct run_options *options, struct error *err)
{
    struct cpu_plan *plan = (struct cpu_plan *)base;
    struct cpu_pool *pool = ((struct cpu_device *)base->device)->pool;
    const struct plan_sink sink = {.planes = outputs[0]};
    enum error_code code = plan_compute(base, inputs, &sink, options, err);
    for (int i = 0; i < plan->output_count && code == OK && !plan->band.count; i++) {
        const struct cpu_output *o = &plan->outputs[i];
        const size_t image = (size_t)o->operand.h * (size_t)o->operand.w;
        if (o->lanes)
            cpu_task_output(&o->operand, o->channels, o->lanes, 0, o->operand.h, pool, outputs[i]);
        else
            memcpy(outputs[i], o->operand.data, (size_t)o->operand.n * image * sizeof(float));
    }
    return code;
}

bool cpu_plan_in_rows(const struct plan *base)
{
    return ((const struct cpu_plan *)base)->band.count > 0;
}

enum error_code cpu_plan_run_rows(struct plan *base, const float *const *inputs, run_rows_fn *take, void *user,
                                  const struct run_options *options, struct error *err)
{
    const struct plan_sink sink = {.take = take, .user = user};
    return plan_compute(base, inputs, &sink, options, err);
}
