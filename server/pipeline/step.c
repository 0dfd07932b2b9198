#include "server/pipeline/step.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/pipeline/background.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/model_store_private.h"
#include "server/pipeline/model_trial.h"

static int64_t step_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void step_attach(struct step *step, struct worker_context *context)
{
    step->context = context;
    step->busy_ms = context ? device_busy_ms(context->device) : 0;
}

void step_enter(struct step *step, enum stage stage)
{
    const int64_t now = step_now();
    const double busy_ms = step->context ? device_busy_ms(step->context->device) : step->busy_ms;
    if (step->stage_start) {
        const double ms = (double)(now - step->stage_start) / 1e6, network = busy_ms - step->busy_ms + step->making_ms;
        step->r->stage_ms[step->stage] += ms;
        step->r->making_ms[step->stage] += step->making_ms < ms ? step->making_ms : ms;
        step->r->network_ms[step->stage] += network < ms ? network : ms;
    }
    step->stage = stage;
    step->stage_start = now;
    step->busy_ms = busy_ms;
    step->making_ms = 0;
    atomic_store(&step->r->stage, (int)stage);
    atomic_fetch_or(&step->r->entered, 1u << stage);
    atomic_fetch_add(&step->r->progress, 1);
    restoration_moved(step->r);
}

enum error_code step_check(const struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    atomic_fetch_add(&r->progress, 1);
    if (r->deadline_ns && step_now() > r->deadline_ns)
        return error_set(err, ERROR_TIMEOUT, "the deadline passed while the picture was being worked on (stage %s)",
                         stage_name(step->stage));
    if (atomic_load(&r->cancel))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    return OK;
}

bool step_too_large(enum error_code code)
{
    return code == ERROR_TOO_LARGE || code == ERROR_NO_MEMORY;
}

bool step_on_gpu(const struct step *step)
{
    struct device_info info = {.type = DEVICE_CPU};
    if (step->context)
        device_info(step->context->device, &info);
    return info.type != DEVICE_CPU && info.type != DEVICE_SOFTWARE;
}

int step_batch(const struct step *step)
{
    if (step->r->limits.batch)
        return step->r->limits.batch;
    return step_on_gpu(step) ? 8 : 1; /* one fills the others */
}

const char *step_fault(const struct run_result *result, const struct raster_source *sources,
                       const struct session_shape *shape)
{
    if (!result->finite)
        return "not finite";
    for (int n = 0; sources && n < shape->n && n < 32; n++)
        if ((result->flat >> n & 1) && !raster_flat(&sources[n], shape->h, shape->w))
            return "entirely flat";
    return NULL;
}

/* The stage that a role's network works for: its runs may be sent and collected in another stage. */
static const char *step_role(enum model_role role)
{
    static const enum stage stages[ROLE_COUNT] = {
        [ROLE_DETECTOR] = STAGE_DETECT,     [ROLE_FACE] = STAGE_RESTORE,  [ROLE_PARSER] = STAGE_PARSE,
        [ROLE_UPSCALER] = STAGE_BACKGROUND, [ROLE_DAMAGE] = STAGE_REPAIR, [ROLE_FILLER] = STAGE_REPAIR};
    return stage_name(stages[role]);
}

enum error_code step_session(struct step *step, enum model_role role, struct session **session,
                             const struct model_info **info, struct error *err)
{
    return model_set_session(step->context->models, step->model[role], step_precision(step, role), session, info, err);
}

enum error_code step_no_room(const struct step *step, enum model_role role, struct error *err, const char *what, ...)
{
    static const char *const instead[ROLE_COUNT] = {
        [ROLE_DETECTOR] = "detector=mobilenet0.25", [ROLE_FACE] = "version=none",   [ROLE_PARSER] = "parse=false",
        [ROLE_UPSCALER] = "bg_upsampler=none",      [ROLE_DAMAGE] = "repair=false", [ROLE_FILLER] = "fill=none"};
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
                     step_role(role), shape, step->model[role]->name, step->r->device, cause.text, instead[role]);
}

/* What is done once begins; returns when. */
static int64_t step_making(struct step *step)
{
    atomic_store(&step->r->making, true);
    return step_now();
}

static void step_made(struct step *step, int64_t begun)
{
    step->making_ms += (double)(step_now() - begun) / 1e6;
    atomic_fetch_add(&step->r->progress, 1);
    atomic_store(&step->r->making, false);
}

/* The role's session with a plan for the shape. If there is no room, tries again without the other networks, whose
 * plans and weights may be in the way. */
static enum error_code step_plan(struct step *step, enum model_role role, enum precision precision,
                                 const struct session_shape *shape, const struct run_io *run, struct plan **plan,
                                 struct error *err)
{
    struct model_set *models = step->context->models;
    struct session *session;
    const struct model_info *info;
    int64_t begun = step_making(step);
    enum error_code code = model_set_session(models, step->model[role], precision, &session, &info, err);
    step_made(step, begun);
    if (code != OK)
        return code;
    for (int attempt = 0;; attempt++) {
        begun = step_making(step);
        code = session_prepare(session, shape, err);
        step_made(step, begun);
        if (code == OK && run)
            code = session_submit(session, shape, run, plan, err);
        if (!step_too_large(code) || attempt > 0)
            return code;
        log_event(LOG_INFO, "no-room", "stage=%s model=%s size=%dx%d n=%d reason=\"%s\"", step_role(role),
                  step->model[role]->name, shape->w, shape->h, shape->n, err->text);
        error_clear(err);
        if (role != ROLE_UPSCALER)
            background_end(step);
        model_set_trim(models, session);
    }
}

enum precision step_precision(const struct step *step, enum model_role role)
{
    const struct restoration *r = step->r;
    const bool finer =
        role == ROLE_UPSCALER && r->options.precision == PRECISION_AUTO && r->deep && r->deep->bits == 16;
    return finer ? PRECISION_FP32 : r->precision;
}

enum error_code step_prepare(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct error *err)
{
    return step_plan(step, role, step_precision(step, role), shape, NULL, NULL, err);
}

enum error_code step_submit(struct step *step, enum model_role role, enum precision precision,
                            const struct session_shape *shape, const struct run_io *run, struct plan **plan,
                            struct error *err)
{
    return step_plan(step, role, precision, shape, run, plan, err);
}

/* Whether the model's own file is to blame; then the error says so. */
static bool step_blames_file(const struct model_entry *entry, enum model_role role, struct error *err)
{
    struct error ignored = ERROR_INIT;
    const struct model *model;
    if (model_store_hold(&model, entry, &ignored))
        return false;
    const char *tensor = model_not_finite(model);
    if (tensor)
        error_set(err, ERROR_CORRUPT,
                  "%s: the file of %s is damaged: its tensor %s has values that are not finite; "
                  "get it again, or choose another model",
                  step_role(role), entry->name, tensor);
    model_store_release(entry);
    return tensor;
}

enum error_code step_refused(struct step *step, enum model_role role, const char *fault, bool again, struct error *err)
{
    struct restoration *r = step->r;
    const char *name = step->model[role]->name;
    log_event(LOG_WARN, "result-refused", "stage=%s model=%s again=%d fault=\"%s\"", step_role(role), name, again,
              fault);
    if (again && step_blames_file(step->model[role], role, err))
        return err->code;
    if (again)
        return error_set(err, ERROR_DEVICE,
                         "%s: the result of %s on %s is %s, in fp32 too; update the device's driver, or choose "
                         "another device",
                         step_role(role), name, r->device, fault);
    r->fallbacks++;
    restoration_note(r, "computed-again", "%s: a result of %s was %s and was computed again in fp32", step_role(role),
                     name, fault);
    return OK;
}

enum error_code step_accept(struct step *step, enum model_role role, const struct session_shape *shape,
                            const struct run_io *run, const struct raster_source *sources,
                            const struct run_result *first, struct error *err)
{
    struct run_result result = *first;
    for (bool again = false;; again = true) {
        struct plan *plan;
        const char *fault = step_fault(&result, sources, shape);
        if (!fault)
            return OK;
        enum error_code code = step_refused(step, role, fault, again, err);
        if (code == OK)
            code = step_submit(step, role, PRECISION_FP32, shape, run, &plan, err);
        if (code == OK)
            code = plan_wait(plan, &result, err);
        if (code != OK)
            return code;
    }
}

enum error_code step_run(struct step *step, enum model_role role, const struct session_shape *shape,
                         const struct run_io *run, const struct raster_source *sources, struct error *err)
{
    struct plan *plan;
    struct run_result result;
    enum error_code code = step_check(step, err);
    if (code == OK)
        code = step_submit(step, role, step->r->precision, shape, run, &plan, err);
    if (code == OK)
        code = plan_wait(plan, &result, err);
    return code == OK ? step_accept(step, role, shape, run, sources, &result, err) : code;
}

enum error_code step_network(struct step *step, enum model_role role, const struct session_shape *shape,
                             const struct raster_source *sources, const struct run_output *outputs,
                             uint32_t first_image, struct error *err)
{
    struct restoration *r = step->r;
    const struct run_input input = {.images = sources};
    const struct run_io run = {
        .inputs = &input,
        .outputs = outputs,
        .range = model_range(step->model[role]->info.kind),
        .options = {
            .cancel = &r->cancel, .progress = &r->progress, .seed = r->options.seed, .first_image = first_image}};
    return step_run(step, role, shape, &run, sources, err);
}

int step_end(const struct step *step)
{
    return step->end ? step->end : step->r->face_count;
}

enum error_code step_faces_in_work(const struct step *step, bool (*wanted)(const struct face *face),
                                   struct face ***faces, int *count, struct error *err)
{
    *count = 0;
    *faces = mem_alloc((size_t)(step_end(step) - step->first), sizeof **faces);
    if (!*faces)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (int i = step->first; i < step_end(step); i++)
        if (wanted(&step->r->faces[i]))
            (*faces)[(*count)++] = &step->r->faces[i];
    return OK;
}

/* How many of the next faces go together: a power of two, so that few plans are made. With a seed their noise is
 * numbered consecutively. */
static int step_together(const struct step *step, struct face *const *faces, int left, int most)
{
    int n = 1;
    while (2 * n <= most && 2 * n <= left && 2 * n <= STEP_BATCH &&
           (!step->r->options.has_seed || faces[2 * n - 1]->id == faces[0]->id + 2 * n - 1))
        n *= 2;
    return n;
}

enum error_code step_faces(struct step *step, enum model_role role, struct face *const *faces, int count,
                           step_faces_fn *run, struct error *err)
{
    enum error_code code = OK;
    int most = step_batch(step), n;
    for (int i = 0; i < count && code == OK; i += n) {
        n = step_together(step, faces + i, count - i, most);
        code = run(step, faces + i, n, err);
        if (step_too_large(code) && n > 1) {
            error_clear(err);
            code = OK;
            most = n / 2;
            n = 0;
        } else if (step_too_large(code)) {
            code = step_no_room(step, role, err, "a face of %d × %d px", faces[i]->size, faces[i]->size);
        }
    }
    return code;
}
