#include "runtime/backend/fault.h"

#ifdef RESTORED_FAULTS

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define MAX_FAULTS 16
#define FAULT_POLL_MS 5

enum kind { NONE, NO_MEMORY, LOST, NOT_A_NUMBER, FLAT, SLOW, HANG, CRASH, BOMB, FP16 };
enum point { OPEN, PLAN, ALLOC, RUN, SUBMIT, DECODE };

static const char *const kind_names[] = {
    [NO_MEMORY] = "no_memory", [LOST] = "lost",   [NOT_A_NUMBER] = "nan", [FLAT] = "flat", [SLOW] = "slow",
    [HANG] = "hang",           [CRASH] = "crash", [BOMB] = "bomb",        [FP16] = "fp16"};
static const char *const point_names[] = {"open", "plan", "alloc", "run", "submit", "decode"};
#define BIT(point) (1u << (point))
static const unsigned kind_points[] = {[NO_MEMORY] = BIT(OPEN) | BIT(PLAN) | BIT(ALLOC) | BIT(RUN),
                                       [LOST] = BIT(OPEN) | BIT(PLAN) | BIT(RUN) | BIT(SUBMIT),
                                       [NOT_A_NUMBER] = BIT(RUN),
                                       [FLAT] = BIT(RUN),
                                       [SLOW] = BIT(PLAN) | BIT(RUN),
                                       [HANG] = BIT(RUN) | BIT(DECODE),
                                       [CRASH] = BIT(DECODE),
                                       [BOMB] = BIT(DECODE)};

struct fault {
    enum kind kind;
    enum point point;
    unsigned long first, last; /* of the events that fit, from 1 */
    char device[32], plan[64]; /* "": any */
    enum precision precision;  /* AUTO: any */
    int64_t over;              /* px; -1: any */
    unsigned long ms;          /* that a slow run takes longer */
    unsigned long seen;
};

/* An event, described by what a fault's options may ask for. */
struct event {
    enum point point;
    const char *device, *plan;
    enum precision precision;
    int64_t pixels;
};

static struct {
    pthread_mutex_t lock;
    bool loaded; /* a spec was set, or the environment's was read */
    struct fault faults[MAX_FAULTS];
    int count;
    unsigned long injected;
} fault_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- the spec ------------------------------------------------------------------------------------------------------
 */

static bool fault_number(const char *text, unsigned long *out)
{
    char *end;
    *out = strtoul(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

static bool fault_text(char *to, size_t size, const char *from)
{
    return *from && (size_t)snprintf(to, size, "%s", from) < size;
}

/* "KIND@POINT:N" or "fp16"; split in place. */
static bool fault_parse_head(struct fault *fault, char *head)
{
    if (strcmp(head, kind_names[FP16]) == 0) {
        fault->kind = FP16;
        return true;
    }
    char *at = strchr(head, '@'), *colon = at ? strchr(at, ':') : NULL;
    if (!colon || !fault_number(colon + 1, &fault->first) || fault->first == 0)
        return false;
    *at = *colon = 0;
    for (int k = NO_MEMORY; k < FP16; k++)
        for (int p = OPEN; p <= DECODE; p++)
            if (!strcmp(kind_names[k], head) && !strcmp(point_names[p], at + 1) && (kind_points[k] & BIT(p))) {
                fault->kind = (enum kind)k;
                fault->point = (enum point)p;
            }
    fault->last = fault->first;
    return fault->kind != NONE;
}

static bool fault_parse_option(struct fault *fault, const char *option)
{
    const bool plans = fault->kind != FP16 && (fault->point == PLAN || fault->point == RUN);
    unsigned long n;
    if (!strncmp(option, "device=", 7))
        return fault_text(fault->device, sizeof fault->device, option + 7);
    if (!strcmp(option, "repeat") && fault->kind != FP16) {
        fault->last = ULONG_MAX;
        return true;
    }
    if (!strncmp(option, "until=", 6) && fault->kind != FP16)
        return fault_number(option + 6, &fault->last) && fault->last >= fault->first;
    if (!strncmp(option, "plan=", 5) && plans)
        return fault_text(fault->plan, sizeof fault->plan, option + 5);
    if (!strncmp(option, "precision=", 10) && plans) {
        fault->precision = !strcmp(option + 10, "fp16")   ? PRECISION_FP16
                           : !strcmp(option + 10, "fp32") ? PRECISION_FP32
                                                          : PRECISION_AUTO;
        return fault->precision != PRECISION_AUTO;
    }
    if (!strncmp(option, "over=", 5) && plans && fault_number(option + 5, &n) && n <= INT64_MAX) {
        fault->over = (int64_t)n;
        return true;
    }
    if (!strncmp(option, "ms=", 3) && fault->kind == SLOW && fault->point == RUN)
        return fault_number(option + 3, &fault->ms);
    return false;
}

static enum error_code fault_parse_one(const char *word, struct error *err)
{
    char copy[256], *rest = NULL;
    struct fault fault = {.over = -1, .ms = FAULT_SLOW_MS};
    bool right = fault_state.count < MAX_FAULTS && fault_text(copy, sizeof copy, word);
    char *part = right ? strtok_r(copy, ",", &rest) : NULL;
    right = part && fault_parse_head(&fault, part);
    while (right && (part = strtok_r(NULL, ",", &rest)))
        right = fault_parse_option(&fault, part);
    if (!right)
        return error_set(err, ERROR_INVALID,
                         "%s is wrong: \"%.100s\" is no fault (or one too many); see runtime/backend/fault.h",
                         FAULT_ENVIRONMENT, word);
    fault_state.faults[fault_state.count++] = fault;
    return OK;
}

/* The lock is held. */
static enum error_code fault_parse(const char *spec, struct error *err)
{
    enum error_code code = OK;
    char *copy = strdup(spec ? spec : ""), *rest = NULL;
    fault_state.loaded = true;
    fault_state.count = 0;
    fault_state.injected = 0;
    if (!copy)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the faults");
    for (char *word = strtok_r(copy, "; \n", &rest); word && !code; word = strtok_r(NULL, "; \n", &rest))
        code = fault_parse_one(word, err);
    free(copy);
    if (code)
        fault_state.count = 0;
    return code;
}

enum error_code fault_set(const char *spec, struct error *err)
{
    pthread_mutex_lock(&fault_state.lock);
    enum error_code code = fault_parse(spec, err);
    pthread_mutex_unlock(&fault_state.lock);
    return code;
}

/* The first use takes the environment's; a wrong spec gives an error each time. */
static enum error_code fault_load(struct error *err)
{
    enum error_code code = OK;
    pthread_mutex_lock(&fault_state.lock);
    if (!fault_state.loaded)
        code = fault_parse(getenv(FAULT_ENVIRONMENT), err);
    if (code)
        fault_state.loaded = false;
    pthread_mutex_unlock(&fault_state.lock);
    return code;
}

/* --- events --------------------------------------------------------------------------------------------------------
 */

static bool fault_is_for(const struct fault *fault, const char *device)
{
    return !fault->device[0] || !strcmp(fault->device, device);
}

static bool fault_fits(const struct fault *fault, const struct event *event)
{
    if (fault->kind == FP16 || fault->point != event->point || !fault_is_for(fault, event->device))
        return false;
    if (event->point != PLAN && event->point != RUN)
        return true;
    return (!fault->plan[0] || strstr(event->plan, fault->plan)) &&
           (fault->precision == PRECISION_AUTO || fault->precision == event->precision) && event->pixels > fault->over;
}

/* What must happen at this event. Every matching fault counts it; the first one that is due decides. ms: how much
 * longer a slow run takes. */
static enum kind fault_due(const struct event *event, unsigned long *ms)
{
    enum kind kind = NONE;
    pthread_mutex_lock(&fault_state.lock);
    for (int i = 0; i < fault_state.count; i++) {
        struct fault *fault = &fault_state.faults[i];
        if (!fault_fits(fault, event))
            continue;
        fault->seen++;
        if (kind == NONE && fault->seen >= fault->first && fault->seen <= fault->last) {
            kind = fault->kind;
            *ms = fault->ms;
            fault_state.injected++;
            log_event(LOG_WARN, "fault", "kind=%s point=%s n=%lu device=%s plan=\"%s\"", kind_names[kind],
                      point_names[event->point], fault->seen, event->device, event->plan);
        }
    }
    pthread_mutex_unlock(&fault_state.lock);
    return kind;
}

static enum kind fault_at(const struct event *event)
{
    unsigned long ignored;
    return fault_due(event, &ignored);
}

unsigned long fault_seen(int index)
{
    pthread_mutex_lock(&fault_state.lock);
    unsigned long seen = index >= 0 && index < fault_state.count ? fault_state.faults[index].seen : 0;
    pthread_mutex_unlock(&fault_state.lock);
    return seen;
}

unsigned long fault_injected(void)
{
    pthread_mutex_lock(&fault_state.lock);
    unsigned long injected = fault_state.injected;
    pthread_mutex_unlock(&fault_state.lock);
    return injected;
}

bool fault_allocation(const char *id)
{
    return fault_at(&(struct event){.point = ALLOC, .device = id, .plan = ""}) != NONE;
}

bool fault_submit(const char *id)
{
    return fault_at(&(struct event){.point = SUBMIT, .device = id, .plan = ""}) != NONE;
}

enum fault_decoding fault_decode(void)
{
    struct error ignored = ERROR_INIT;
    if (fault_load(&ignored)) /* device_open says so */
        return FAULT_DECODE_NONE;
    switch (fault_at(&(struct event){.point = DECODE, .device = "", .plan = ""})) {
    case CRASH:
        return FAULT_DECODE_CRASH;
    case HANG:
        return FAULT_DECODE_HANG;
    case BOMB:
        return FAULT_DECODE_BOMB;
    default:
        return FAULT_DECODE_NONE;
    }
}

/* --- the layer -----------------------------------------------------------------------------------------------------
 */

static const struct backend fault_backend;

struct fault_device {
    struct device base, *inner;
    char id[32];
    bool fp16, lost;
};

struct fault_plan {
    struct plan base, *inner;
    char name[64];
    struct event run;
    size_t values;              /* of the first output */
    enum kind kinds[PLAN_RUNS]; /* what the runs under way end with */
    struct fault_values {
        float *to;
        size_t count;
    } given[PLAN_RUNS]; /* where their first outputs go, as far as they are values */
};

/* The error of an event that fails. */
static enum error_code fault_error(struct fault_device *device, enum kind kind, const struct event *event,
                                   struct error *err)
{
    device->lost = device->lost || kind == LOST;
    if (device->lost)
        return error_set(err, ERROR_DEVICE_LOST, "%s could not %s: the device was lost (injected)", device->id,
                         point_names[event->point]);
    return error_set(err, ERROR_NO_MEMORY, "%s could not %s %s: out of device memory (injected)", device->id,
                     point_names[event->point], event->plan);
}

static void fault_close(struct device *base)
{
    struct fault_device *device = (struct fault_device *)base;
    device_close(&device->inner);
    free(device);
}

static void fault_info(const struct device *base, struct device_info *out)
{
    const struct fault_device *device = (const struct fault_device *)base;
    device_info(device->inner, out);
    if (!device->fp16)
        return;
    out->fp16 = true;
    out->preferred = PRECISION_FP16;
    snprintf(out->precision_reason, sizeof out->precision_reason, "%s says fp16", FAULT_ENVIRONMENT);
}

enum error_code fault_open(struct device **device, struct error *err)
{
    struct device_info info;
    enum error_code code = fault_load(err);
    device_info(*device, &info);
    bool wanted = false, fp16 = false;
    for (int i = 0; i < fault_state.count && !code; i++) {
        wanted = wanted || fault_is_for(&fault_state.faults[i], info.id);
        fp16 = fp16 || (fault_state.faults[i].kind == FP16 && fault_is_for(&fault_state.faults[i], info.id));
    }
    if (!code && !wanted)
        return OK;
    struct fault_device *layer = code ? NULL : mem_calloc(1, sizeof *layer);
    if (!code && !layer)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a device");
    if (!code) {
        const struct event event = {.point = OPEN, .device = info.id, .plan = ""};
        *layer = (struct fault_device){.base = {.backend = &fault_backend}, .inner = *device, .fp16 = fp16};
        snprintf(layer->id, sizeof layer->id, "%s", info.id);
        enum kind kind = fault_at(&event);
        if (kind)
            code = fault_error(layer, kind, &event, err);
    }
    if (code) {
        free(layer);
        device_close(device);
        return code;
    }
    *device = &layer->base;
    return OK;
}

static void fault_plan_destroy(struct plan *base)
{
    struct fault_plan *plan = (struct fault_plan *)base;
    plan_destroy(&plan->inner);
    free(plan);
}

static enum error_code fault_plan_create(struct plan **out, struct device *base, const struct graph *graph,
                                         enum precision precision, const char *name, struct error *err)
{
    struct fault_device *device = (struct fault_device *)base;
    const struct tensor *y = &graph->tensors[graph->outputs[0]];
    const struct tensor *x = graph->input_count ? &graph->tensors[graph->inputs[0]] : y;
    struct fault_plan *plan = mem_calloc(1, sizeof *plan);
    if (!plan)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a plan");
    plan->base = (struct plan){.backend = &fault_backend, .device = base};
    plan->values = (size_t)y->n * (size_t)y->channels * (size_t)y->h * (size_t)y->w;
    snprintf(plan->name, sizeof plan->name, "%s", name);
    plan->run = (struct event){RUN, device->id, plan->name, precision, (int64_t)x->n * x->h * x->w};
    struct event event = plan->run;
    event.point = PLAN;
    enum kind kind = device->lost ? LOST : fault_at(&event);
    if (kind == SLOW)
        nanosleep(&(struct timespec){FAULT_SLOW_PLAN_S, 0}, NULL);
    enum error_code code = kind && kind != SLOW
                               ? fault_error(device, kind, &event, err)
                               : backend_plan(&plan->inner, device->inner, graph, precision, name, err);
    if (code) {
        free(plan);
        return code;
    }
    *out = &plan->base;
    return OK;
}

static enum error_code fault_plan_prepare(struct device *base, const struct graph *graph, enum precision precision,
                                          const char *name, bool measure, bool *whole, struct error *err)
{
    return plan_prepare(((struct fault_device *)base)->inner, graph, precision, name, measure, whole, err);
}

static struct fault_values fault_given(const struct fault_plan *plan, const struct run_output *output)
{
    if (output && output->points)
        return (struct fault_values){output->points->values, 3 * (size_t)output->points->count};
    return output && output->planes ? (struct fault_values){output->planes, plan->values}
                                    : (struct fault_values){NULL, 0};
}

static enum error_code fault_plan_submit(struct plan *base, const struct run_io *run, struct error *err)
{
    struct fault_plan *plan = (struct fault_plan *)base;
    struct fault_device *device = (struct fault_device *)base->device;
    unsigned long ms = 0;
    enum kind kind = device->lost ? LOST : fault_due(&plan->run, &ms);
    if (kind == LOST || kind == NO_MEMORY)
        return fault_error(device, kind, &plan->run, err);
    if (kind == SLOW)
        nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000}, NULL);
    while (kind == HANG && run->options.cancel && !atomic_load(run->options.cancel))
        nanosleep(&(struct timespec){0, FAULT_POLL_MS * 1000000}, NULL);
    plan->kinds[base->under_way] = kind;
    plan->given[base->under_way] = fault_given(plan, run->outputs);
    return plan_submit(plan->inner, run, err);
}

static enum error_code fault_plan_show(struct plan *base, const struct run_io *run, struct error *err)
{
    return plan_show(((struct fault_plan *)base)->inner, run, err);
}

static bool fault_plan_ready(struct plan *base)
{
    return plan_ready(((struct fault_plan *)base)->inner);
}

/* What the host was given, and what the device reports about it. */
static enum error_code fault_plan_wait(struct plan *base, bool discard, struct run_result *result, struct error *err)
{
    struct fault_plan *plan = (struct fault_plan *)base;
    const enum kind kind = plan->kinds[0];
    const struct fault_values given = plan->given[0];
    for (int i = 1; i < PLAN_RUNS; i++) {
        plan->kinds[i - 1] = plan->kinds[i];
        plan->given[i - 1] = plan->given[i];
    }
    if (discard) {
        plan_discard(plan->inner);
        return OK;
    }
    enum error_code code = plan_wait(plan->inner, result, err);
    if (code != OK)
        return code;
    result->finite = result->finite && kind != NOT_A_NUMBER;
    result->flat |= kind == FLAT ? UINT32_MAX : 0;
    for (size_t i = 0; i < given.count && (kind == NOT_A_NUMBER || kind == FLAT); i++)
        given.to[i] = kind == FLAT ? 0.5f : NAN;
    return OK;
}

static enum error_code fault_canvas_create(struct canvas **out, struct device *base, const struct canvas_shape *shape,
                                           struct error *err)
{
    return canvas_create(out, ((struct fault_device *)base)->inner, shape, err);
}

static double fault_busy_ms(const struct device *base)
{
    return device_busy_ms(((const struct fault_device *)base)->inner);
}

static uint64_t fault_held(const struct device *base)
{
    return device_held(((const struct fault_device *)base)->inner);
}

static uint64_t fault_staged(const struct device *base)
{
    return device_staged(((const struct fault_device *)base)->inner);
}

static void fault_give_back(struct device *base, uint64_t keep)
{
    device_give_back(((struct fault_device *)base)->inner, keep);
}

static bool fault_plan_whole(const struct plan *plan)
{
    return plan_whole(((const struct fault_plan *)plan)->inner);
}

static uint64_t fault_plan_bytes(const struct plan *plan)
{
    return plan_bytes(((const struct fault_plan *)plan)->inner);
}

static enum error_code fault_plan_profile(struct plan *plan, struct error *err)
{
    return plan_profile(((struct fault_plan *)plan)->inner, err);
}

static double fault_plan_ms(const struct plan *plan, double *node_ms)
{
    return plan_ms(((const struct fault_plan *)plan)->inner, node_ms);
}

static void fault_forget_params(struct device *device, const struct param *const *params, size_t count)
{
    device_forget_params(((struct fault_device *)device)->inner, params, count);
}

static const struct backend fault_backend = {
    .name = "fault",
    .close = fault_close,
    .info = fault_info,
    .plan_create = fault_plan_create,
    .plan_prepare = fault_plan_prepare,
    .plan_destroy = fault_plan_destroy,
    .plan_submit = fault_plan_submit,
    .plan_show = fault_plan_show,
    .plan_ready = fault_plan_ready,
    .plan_wait = fault_plan_wait,
    .canvas_create = fault_canvas_create,
    .busy_ms = fault_busy_ms,
    .held = fault_held,
    .staged = fault_staged,
    .give_back = fault_give_back,
    .plan_whole = fault_plan_whole,
    .plan_bytes = fault_plan_bytes,
    .plan_profile = fault_plan_profile,
    .plan_ms = fault_plan_ms,
    .forget_params = fault_forget_params,
};

#endif
