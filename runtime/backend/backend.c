#include "runtime/backend/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/host_run.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

atomic_int backend_cpu_threads, backend_cpu_handles = 1, backend_patience = 1000;

void device_set_cpu_threads(int threads)
{
    atomic_store(&backend_cpu_threads, threads);
    thread_set_count(threads);
}

void device_set_patience(int ms)
{
    atomic_store(&backend_patience, ms);
}

void device_set_cpu_handles(int handles)
{
    atomic_store(&backend_cpu_handles, handles);
}

/* --- what tests found ----------------------------------------------------------------------------------------------
 */

static struct verdict {
    char id[32], unusable[512], no_fp16[96]; /* "": no objection */
} verdicts[64];
static int verdict_count;
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. */
static struct verdict *verdict_find(const char *id)
{
    for (int i = 0; i < verdict_count; i++)
        if (strcmp(verdicts[i].id, id) == 0)
            return &verdicts[i];
    return NULL;
}

void device_judge(const char *id, const char *unusable, const char *no_fp16)
{
    pthread_mutex_lock(&verdict_lock);
    struct verdict *verdict = verdict_find(id);
    if (!verdict && verdict_count < (int)(sizeof verdicts / sizeof *verdicts))
        verdict = &verdicts[verdict_count++];
    if (verdict) {
        snprintf(verdict->id, sizeof verdict->id, "%s", id);
        snprintf(verdict->unusable, sizeof verdict->unusable, "%s", unusable ? unusable : "");
        snprintf(verdict->no_fp16, sizeof verdict->no_fp16, "%s", no_fp16 ? no_fp16 : "");
    }
    pthread_mutex_unlock(&verdict_lock);
}

void backend_judged(struct device_info *info)
{
    pthread_mutex_lock(&verdict_lock);
    const struct verdict *verdict = verdict_find(info->id);
    if (verdict && *verdict->unusable && info->usable) {
        info->usable = false;
        snprintf(info->reason, sizeof info->reason, "%s", verdict->unusable);
    }
    if (verdict && *verdict->no_fp16) {
        info->fp16 = false;
        info->preferred = PRECISION_FP32;
        snprintf(info->precision_reason, sizeof info->precision_reason, "%s", verdict->no_fp16);
    }
    pthread_mutex_unlock(&verdict_lock);
}

/* --- what is allocated ---------------------------------------------------------------------------------------------
 */

#define MAX_ACCOUNTS 64
static pthread_mutex_t accounts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct backend_account accounts[MAX_ACCOUNTS];

struct backend_account *backend_account_open(const char *id)
{
    pthread_mutex_lock(&accounts_lock);
    int i = 0; /* the last one is shared by those beyond the table, which no machine has */
    while (i < MAX_ACCOUNTS - 1 && *accounts[i].id && strcmp(accounts[i].id, id) != 0)
        i++;
    struct backend_account *account = &accounts[i];
    snprintf(account->id, sizeof account->id, "%s", id);
    if (account->handles++ == 0)
        atomic_store(&account->peak, atomic_load(&account->used));
    pthread_mutex_unlock(&accounts_lock);
    return account;
}

void backend_account_close(struct backend_account *account)
{
    pthread_mutex_lock(&accounts_lock);
    account->handles--;
    pthread_mutex_unlock(&accounts_lock);
}

void backend_account_add(struct backend_account *account, uint64_t bytes)
{
    const uint64_t used = atomic_fetch_add(&account->used, bytes) + bytes;
    uint64_t peak = atomic_load(&account->peak);
    while (used > peak && !atomic_compare_exchange_weak(&account->peak, &peak, used))
        ;
}

void backend_account_remove(struct backend_account *account, uint64_t bytes)
{
    atomic_fetch_sub(&account->used, bytes);
}

/* --- devices -------------------------------------------------------------------------------------------------------
 */

static void device_free_rooms(struct device *device)
{
    for (int i = 0; i < DEVICE_ROOMS; i++) {
        free(device->rooms[i].memory);
        device->rooms[i] = (struct device_room){0};
    }
}

static uint64_t device_rooms(const struct device *device)
{
    uint64_t bytes = 0;
    for (int i = 0; i < DEVICE_ROOMS; i++)
        bytes += device->rooms[i].bytes;
    return bytes;
}

void device_close(struct device **device)
{
    if (!*device)
        return;
    device_free_rooms(*device);
    host_run_give_back(*device, 0);
    (*device)->backend->close(*device);
    *device = NULL;
}

void device_info(const struct device *device, struct device_info *out)
{
    device->backend->info(device, out);
    backend_judged(out);
}

static struct plan_shape plan_shape_of(const struct graph *graph, int tensor)
{
    const struct tensor *t = &graph->tensors[tensor];
    return (struct plan_shape){t->n, t->channels, t->h, t->w};
}

enum error_code backend_plan(struct plan **out, struct device *device, const struct graph *graph,
                             enum precision precision, const char *name, struct error *err)
{
    const int count = graph->input_count + graph->output_count;
    struct plan_shape *shapes = mem_alloc((size_t)count, sizeof *shapes);
    *out = NULL;
    if (!shapes)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    for (int i = 0; i < count; i++)
        shapes[i] =
            plan_shape_of(graph, i < graph->input_count ? graph->inputs[i] : graph->outputs[i - graph->input_count]);
    enum error_code code = device->backend->plan_create(out, device, graph, precision, name, err);
    if (code) {
        free(shapes);
        return code;
    }
    (*out)->shapes = shapes;
    (*out)->input_count = graph->input_count;
    (*out)->output_count = graph->output_count;
    return OK;
}

/* Checks that the graph and the precision suit the device; AUTO becomes what it prefers. */
static enum error_code plan_check(const struct device *device, const struct graph *graph, enum precision *precision,
                                  const char *name, struct error *err)
{
    if (graph->error.code || graph->node_count == 0 || graph->output_count == 0)
        return error_set(err, ERROR_INTERNAL, "%s: the graph is not finished", name);
    struct device_info info;
    device_info(device, &info);
    if (*precision == PRECISION_AUTO)
        *precision = info.preferred;
    if (*precision == PRECISION_FP16 && !info.fp16)
        return error_set(err, ERROR_INVALID, "device %s (%s) does not compute in fp16: %s; use precision fp32 or auto",
                         info.id, info.name, info.precision_reason);
    return graph_check_weights(graph, err);
}

enum error_code plan_create(struct plan **out, struct device *device, const struct graph *graph,
                            enum precision precision, const char *name, struct error *err)
{
    *out = NULL;
    enum error_code code = plan_check(device, graph, &precision, name, err);
    if (!code)
        code = backend_plan(out, device, graph, precision, name, err);
    /* What was packed while the file changed stays on the device, but no more plans are made from this graph's
     * weights. */
    if (!code && (code = graph_check_weights(graph, err)))
        plan_destroy(out);
    return code;
}

enum error_code plan_prepare(struct device *device, const struct graph *graph, enum precision precision,
                             const char *name, bool measure, bool *whole, struct error *err)
{
    *whole = true;
    if (!device->backend->plan_prepare)
        return OK;
    enum error_code code = plan_check(device, graph, &precision, name, err);
    return code ? code : device->backend->plan_prepare(device, graph, precision, name, measure, whole, err);
}

void plan_destroy(struct plan **plan)
{
    if (!*plan)
        return;
    struct plan_shape *shapes = (*plan)->shapes;
    plan_discard(*plan);
    (*plan)->backend->plan_destroy(*plan);
    free(shapes);
    *plan = NULL;
}

/* --- runs ----------------------------------------------------------------------------------------------------------
 */

/* Whether the target of an output can be written. */
static bool plan_check_target(const struct plan_shape *shape, const struct run_io *run,
                              const struct raster_target *target)
{
    const bool bytes = target->form == RASTER_LABEL || target->form == RASTER_LEVEL;
    const bool fits = bytes ? target->first >= 0 && target->first < shape->c : shape->c == 3 && run->range;
    return fits && (!target->take || target->most > 0);
}

/* Whether the means can be made. */
static bool plan_check_reduced(const struct raster_source *source, const struct plan_shape *shape)
{
    const bool fits = source->form == RASTER_U8 && !source->columns && !source->rows && source->width > 0 &&
                      source->width <= RASTER_REDUCED && source->height > 0 && source->height <= RASTER_REDUCED;
    const int64_t down = source->height / shape->h + 2, across = source->width / shape->w + 2;
    return fits && down * across < 1 << 24; /* sums of bytes in 32 bits */
}

static enum error_code plan_check_sources(const struct plan *plan, const struct run_io *run, struct error *err)
{
    for (int i = 0; i < plan->input_count; i++)
        for (int n = 0; n < plan->shapes[i].n && !run->inputs[i].planes; n++) {
            const struct raster_source *source = &run->inputs[i].images[n];
            if ((source->width || source->height) && !plan_check_reduced(source, &plan->shapes[i]))
                return error_set(err, ERROR_INTERNAL, "input %d cannot be reduced", i);
        }
    return OK;
}

static enum error_code plan_check_pictures(const struct plan *plan, const struct run_io *run, struct error *err)
{
    for (int i = 0; i < plan->input_count; i++)
        if (!run->inputs[i].planes &&
            (!run->inputs[i].images || plan->shapes[i].c != (run->inputs[i].points ? 4 : 3) || !run->range))
            return error_set(err, ERROR_INTERNAL, "input %d is no picture", i);
    const enum error_code code = plan_check_sources(plan, run, err);
    for (int i = 0; i < plan->output_count && run->outputs && code == OK; i++) {
        const struct plan_shape *shape = &plan->shapes[plan->input_count + i];
        for (int n = 0; n < shape->n && run->outputs[i].images; n++)
            for (int t = 0; t < run->outputs[i].images[n].target_count; t++)
                if (!plan_check_target(shape, run, &run->outputs[i].images[n].targets[t]))
                    return error_set(err, ERROR_INTERNAL, "output %d is no picture", i);
        if ((run->outputs[i].canvas || run->outputs[i].points) && shape->c != 3)
            return error_set(err, ERROR_INTERNAL, "output %d is no picture", i);
    }
    return code;
}

enum error_code plan_submit(struct plan *plan, const struct run_io *run, struct error *err)
{
    if (run->options.cancel && atomic_load(run->options.cancel))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    enum error_code code = plan_check_pictures(plan, run, err);
    if (code == OK && plan->under_way == PLAN_RUNS)
        code = error_set(err, ERROR_INTERNAL, "%d runs are under way", PLAN_RUNS);
    if (code == OK && (plan->blind || !(run->outputs || plan->backend->plan_show)))
        code = error_set(err, ERROR_INTERNAL, "nobody has said where the outputs of a run go");
    if (code == OK)
        code = plan->backend->plan_submit ? plan->backend->plan_submit(plan, run, err)
                                          : host_run(plan, run, &plan->results[plan->under_way], err);
    plan->under_way += code == OK;
    plan->blind = code == OK ? !run->outputs : plan->blind;
    return code;
}

enum error_code plan_show(struct plan *plan, const struct run_io *run, struct error *err)
{
    enum error_code code = plan_check_pictures(plan, run, err);
    if (code == OK && (!plan->blind || !run->outputs))
        code = error_set(err, ERROR_INTERNAL, "no run waits for its outputs");
    if (code == OK)
        code = plan->backend->plan_show(plan, run, err);
    plan->blind = plan->blind && code != OK;
    return code;
}

int plan_under_way(const struct plan *plan)
{
    return plan->under_way;
}

bool plan_ready(struct plan *plan)
{
    if (plan->blind && plan->under_way == 1)
        return false;
    return !plan->backend->plan_ready || plan->backend->plan_ready(plan);
}

static enum error_code plan_end_oldest(struct plan *plan, bool discard, struct run_result *result, struct error *err)
{
    const bool blind = plan->blind && plan->under_way == 1;
    plan->under_way--;
    plan->blind = plan->blind && !blind;
    if (blind && !discard) {
        struct error ignored = ERROR_INIT;
        const enum error_code code = plan->backend->plan_wait(plan, true, result, &ignored);
        return error_set(err, code == OK ? ERROR_INTERNAL : code, "nobody has said where the outputs of a run go");
    }
    if (plan->backend->plan_wait)
        return plan->backend->plan_wait(plan, discard, result, err);
    *result = plan->results[0];
    memmove(plan->results, plan->results + 1, sizeof plan->results - sizeof plan->results[0]);
    return OK;
}

enum error_code plan_wait(struct plan *plan, struct run_result *result, struct error *err)
{
    struct run_result ignored;
    return plan_end_oldest(plan, false, result ? result : &ignored, err);
}

void plan_discard(struct plan *plan)
{
    struct run_result ignored;
    while (plan->under_way > 0) {
        struct error err = ERROR_INIT;
        if (plan_end_oldest(plan, true, &ignored, &err))
            log_event(LOG_DEBUG, "run-discarded", "reason=\"%s\"", err.text);
    }
}

enum error_code plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                         const struct run_options *options, struct error *err)
{
    static const struct run_options none = {0};
    options = options ? options : &none;
    if (options->cancel && atomic_load(options->cancel))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    if (plan->backend->plan_run)
        return plan->backend->plan_run(plan, inputs, outputs, options, err);
    struct run_input in[sizeof((struct graph *)0)->inputs / sizeof(int)] = {{0}};
    struct run_output out[sizeof((struct graph *)0)->outputs / sizeof(int)] = {{0}};
    for (int i = 0; i < plan->input_count; i++)
        in[i].planes = inputs[i];
    for (int i = 0; i < plan->output_count; i++)
        out[i].planes = outputs[i];
    enum error_code code = plan_submit(plan, &(struct run_io){.inputs = in, .outputs = out, .options = *options}, err);
    return code == OK ? plan_wait(plan, NULL, err) : code;
}

enum error_code canvas_create(struct canvas **out, struct device *device, const struct canvas_shape *shape,
                              struct error *err)
{
    return device->backend->canvas_create ? device->backend->canvas_create(out, device, shape, err)
                                          : host_run_canvas(out, shape, err);
}

void canvas_destroy(struct canvas **canvas)
{
    if (*canvas && (*canvas)->backend)
        (*canvas)->backend->canvas_destroy(*canvas);
    else
        free(*canvas);
    *canvas = NULL;
}

double device_busy_ms(const struct device *device)
{
    return device->backend->busy_ms ? device->backend->busy_ms(device) : device->busy_ms;
}

uint64_t device_held(const struct device *device)
{
    return device->backend->held ? device->backend->held(device) : atomic_load(&device->held);
}

uint64_t device_staged(const struct device *device)
{
    return device_rooms(device) +
           (device->backend->staged ? device->backend->staged(device) : atomic_load(&device->staged));
}

void *device_take_room(struct device *device, size_t *bytes)
{
    struct device_room *least = NULL;
    for (int i = 0; i < DEVICE_ROOMS; i++) {
        struct device_room *room = &device->rooms[i];
        if (room->memory && room->bytes >= *bytes && (!least || room->bytes < least->bytes))
            least = room;
    }
    if (!least)
        return mem_alloc(*bytes, 1);
    void *memory = least->memory;
    *bytes = least->bytes;
    *least = (struct device_room){0};
    return memory;
}

void device_keep_room(struct device *device, void *room, size_t bytes)
{
    struct device_room *least = device->rooms;
    for (int i = 1; i < DEVICE_ROOMS; i++)
        least = device->rooms[i].bytes < least->bytes ? &device->rooms[i] : least;
    if (least->bytes < bytes) {
        free(least->memory);
        *least = (struct device_room){room, bytes};
    } else {
        free(room);
    }
}

void device_give_back(struct device *device, uint64_t keep)
{
    host_run_give_back(device, keep);
    if (device_rooms(device) > keep)
        device_free_rooms(device);
    if (device->backend->give_back)
        device->backend->give_back(device, keep);
}

bool plan_whole(const struct plan *plan)
{
    return !plan->backend->plan_whole || plan->backend->plan_whole(plan);
}

uint64_t plan_bytes(const struct plan *plan)
{
    return plan->backend->plan_bytes(plan);
}

enum error_code plan_profile(struct plan *plan, struct error *err)
{
    if (!plan->backend->plan_profile)
        return error_set(err, ERROR_UNSUPPORTED, "the backend %s does not time single layers", plan->backend->name);
    return plan->backend->plan_profile(plan, err);
}

double plan_ms(const struct plan *plan, double *node_ms)
{
    return plan->backend->plan_ms ? plan->backend->plan_ms(plan, node_ms) : -1;
}

void device_forget_params(struct device *device, const struct param *const *params, size_t count)
{
    device->backend->forget_params(device, params, count);
}
