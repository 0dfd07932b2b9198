#include "server/pipeline/step.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/thread.h"

static int64_t step_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void step_enter(struct step *step, enum stage stage)
{
    int64_t now = step_now();
    if (step->stage_start)
        step->r->stage_ms[step->stage] += (double)(now - step->stage_start) / 1e6;
    step->stage = stage;
    step->stage_start = now;
    atomic_store(&step->r->stage, (int)stage);
}

enum error_code step_check(const struct step *step, struct error *err)
{
    const struct restoration *r = step->r;
    if (r->deadline_ns && step_now() > r->deadline_ns)
        return error_set(err, ERROR_TIMEOUT, "the deadline passed while the picture was in work (stage %s)",
                         stage_name(step->stage));
    if (atomic_load(&r->cancel))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    return OK;
}

bool step_too_large(enum error_code code)
{
    return code == ERROR_TOO_LARGE || code == ERROR_NO_MEMORY;
}

static bool step_flat(struct step_tensor tensor)
{
    for (size_t i = 1; i < tensor.count; i++)
        if (tensor.data[i] != tensor.data[0])
            return false;
    return true;
}

#define STEP_CHUNK ((size_t)1 << 18) /* values of a thread's item */

struct step_scan {
    struct step_tensor tensor;
    atomic_bool bad;
};

static void step_scan(void *context, int item)
{
    struct step_scan *scan = context;
    size_t begin = (size_t)item * STEP_CHUNK, end = begin + STEP_CHUNK;
    uint32_t bad = 0;
    end = end < scan->tensor.count ? end : scan->tensor.count;
    /* By the bits of the exponent, which vectorises where a sum of floats may not. */
    for (size_t i = begin; i < end; i++) {
        uint32_t bits;
        memcpy(&bits, &scan->tensor.data[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    if (bad)
        atomic_store(&scan->bad, true);
}

static bool step_finite(struct step_tensor tensor)
{
    struct step_scan scan = {.tensor = tensor};
    thread_for((int)((tensor.count + STEP_CHUNK - 1) / STEP_CHUNK), step_scan, &scan);
    return !atomic_load(&scan.bad);
}

static const char *step_fault(struct step_tensor input, const struct step_tensor *outputs, int count)
{
    for (int i = 0; i < count; i++) {
        if (!step_finite(outputs[i]))
            return "not finite";
        if (outputs[i].count > 1 && step_flat(outputs[i]) && !step_flat(input))
            return "entirely flat";
    }
    return NULL;
}

enum error_code step_session(struct step *step, enum model_role role, struct session **session,
                             const struct model_info **info, struct error *err)
{
    return model_set_session(step->context->models, step->model[role], step->r->precision, session, info, err);
}

enum error_code step_no_room(const struct step *step, enum model_role role, struct error *err, const char *what, ...)
{
    static const char *const instead[ROLE_COUNT] = {[ROLE_DETECTOR] = "detector=mobilenet0.25",
                                                    [ROLE_FACE] = "version=none",
                                                    [ROLE_PARSER] = "parse=false",
                                                    [ROLE_UPSCALER] = "bg_upsampler=none"};
    struct error cause = *err;
    char shape[96];
    va_list args;
    va_start(args, what);
    vsnprintf(shape, sizeof shape, what, args);
    va_end(args);
    error_clear(err);
    return error_set(err, ERROR_NO_MEMORY,
                     "%s: %s with %s does not fit the memory of %s (%s); free memory there, or choose another device "
                     "or %s",
                     stage_name(step->stage), shape, step->model[role]->name, step->r->device, cause.text,
                     instead[role]);
}

/* What step_network runs. */
struct step_run {
    const struct session_shape *shape;
    const float *const *in; /* NULL: only make the plan */
    float *const *out;
    const struct run_options *options;
};

/* Once more without the other networks where there is no room: their plans and weights may be what is in the way. */
static enum error_code step_run(struct step *step, enum model_role role, enum precision precision,
                                const struct step_run *run, struct error *err)
{
    struct model_set *models = step->context->models;
    struct session *session;
    const struct model_info *info;
    enum error_code code = model_set_session(models, step->model[role], precision, &session, &info, err);
    if (code != OK)
        return code;
    for (int attempt = 0;; attempt++) {
        code = run->in ? session_run(session, run->shape, run->in, run->out, run->options, err)
                       : session_prepare(session, run->shape, err);
        if (!step_too_large(code) || attempt > 0)
            return code;
        log_event(LOG_INFO, "no-room", "stage=%s model=%s size=%dx%d reason=\"%s\"", stage_name(step->stage),
                  step->model[role]->name, run->shape->w, run->shape->h, err->text);
        model_set_trim(models, session);
        error_clear(err);
    }
}

enum error_code step_prepare(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct error *err)
{
    return step_run(step, role, step->r->precision, &(struct step_run){.shape = shape}, err);
}

enum error_code step_network(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct step_tensor input, const struct step_tensor *outputs, int output_count,
                             uint32_t first_image, struct error *err)
{
    struct restoration *r = step->r;
    const struct model_entry *entry = step->model[role];
    const struct run_options options = {.cancel = &r->cancel, .seed = r->options.seed, .first_image = first_image};
    const float *in[1] = {input.data};
    float *out[4] = {NULL};
    for (int i = 0; i < output_count; i++)
        out[i] = outputs[i].data;
    enum error_code code = step_check(step, err);
    enum precision precision = r->precision;
    for (int attempt = 0; code == OK; attempt++, precision = PRECISION_FP32) {
        int64_t started = step_now();
        code = step_run(step, role, precision, &(struct step_run){shape, in, out, &options}, err);
        r->network_ms[step->stage] += (double)(step_now() - started) / 1e6;
        const char *fault = code == OK ? step_fault(input, outputs, output_count) : NULL;
        if (!fault)
            break;
        log_event(LOG_WARN, "result-refused", "stage=%s model=%s attempt=%d fault=\"%s\"", stage_name(step->stage),
                  entry->name, attempt, fault);
        if (attempt > 0)
            code = error_set(err, ERROR_DEVICE,
                             "%s: the result of %s on %s is %s, in fp32 too; update the device's driver, or choose "
                             "another device",
                             stage_name(step->stage), entry->name, r->device, fault);
        else
            r->fallbacks++;
        if (code == OK)
            restoration_note(r, "%s: a result of %s was %s and was computed again in fp32", stage_name(step->stage),
                             entry->name, fault);
    }
    return code;
}
