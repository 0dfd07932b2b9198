#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

/* Runs of a plan before another is made that goes on with what was left to measure. Each measures for a second and
 * compiles for it: a picture in many windows would do that once a window. */
#define SESSION_RUNS 16

struct session {
    struct device *device;
    enum precision precision;
    char name[128];
    session_build_fn *build;
    const void *model;
    struct plan_cache *cache, *own; /* own: destroyed with the session; or NULL */
};

enum error_code session_create(struct session **out, struct device *device, enum precision precision, const char *name,
                               session_build_fn *build, const void *model, struct error *err)
{
    struct session *s = mem_calloc(1, sizeof *s);
    *out = s;
    if (!s)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    s->device = device;
    s->precision = precision;
    s->build = build;
    s->model = model;
    snprintf(s->name, sizeof s->name, "%s", name);
    enum error_code code = device->cache ? OK : plan_cache_create(&s->own, device, err);
    s->cache = device->cache;
    if (code)
        session_destroy(out);
    return code;
}

void session_destroy(struct session **session)
{
    if (!*session)
        return;
    if ((*session)->cache)
        plan_cache_forget((*session)->cache, *session);
    plan_cache_destroy(&(*session)->own);
    free(*session);
    *session = NULL;
}

bool session_trim(struct session *session)
{
    return plan_cache_drop_all(session->cache, session);
}

bool session_empty(const struct session *session)
{
    return !plan_cache_has(session->cache, session);
}

static enum error_code session_graph(const struct session *s, const struct session_shape *shape, struct graph **out,
                                     struct error *err)
{
    enum error_code code = graph_create(out, err);
    if (!code)
        code = s->build(s->model, shape, *out, err);
    if (code)
        graph_destroy(out);
    return code;
}

static enum error_code session_plan_create(struct session *s, const struct session_shape *shape, struct plan **plan,
                                           struct error *err)
{
    struct graph *graph;
    enum error_code code = session_graph(s, shape, &graph, err);
    if (code)
        return code;
    code = plan_create(plan, s->device, graph, s->precision, s->name, err);
    graph_destroy(&graph);
    return code;
}

enum error_code session_warm(struct session *session, const struct session_shape *shape, bool measure, bool *whole,
                             struct error *err)
{
    struct graph *graph;
    enum error_code code = session_graph(session, shape, &graph, err);
    *whole = true;
    if (code)
        return code;
    code = plan_prepare(session->device, graph, session->precision, session->name, measure, whole, err);
    graph_destroy(&graph);
    return code;
}

static bool session_no_room(enum error_code code)
{
    return code == ERROR_NO_MEMORY || code == ERROR_TOO_LARGE;
}

static enum error_code session_plan(struct session *s, const struct session_shape *shape, struct plan **plan,
                                    struct error *err)
{
    *plan = plan_cache_find(s->cache, s, shape);
    if (*plan && (plan_whole(*plan) || plan_under_way(*plan) || (*plan)->runs < SESSION_RUNS))
        return OK;
    if (*plan)
        plan_cache_drop(s->cache, *plan); /* a new one will be faster */
    struct error why = ERROR_INIT;
    enum error_code code = session_plan_create(s, shape, plan, &why);
    while (session_no_room(code) && plan_cache_drop_oldest(s->cache)) { /* other plans may take the room */
        error_clear(&why);
        code = session_plan_create(s, shape, plan, &why);
    }
    if (code)
        return error_set(err, code, "%s", why.text);
    code = plan_cache_add(s->cache, s, shape, *plan, err);
    if (code)
        plan_destroy(plan);
    return code;
}

enum error_code session_run(struct session *session, const struct session_shape *shape, const float *const *inputs,
                            float *const *outputs, const struct run_options *options, struct error *err)
{
    struct plan *plan;
    enum error_code code = session_plan(session, shape, &plan, err);
    if (code != OK)
        return code;
    plan->runs++;
    return plan_run(plan, inputs, outputs, options, err);
}

enum error_code session_submit(struct session *session, const struct session_shape *shape, const struct run_io *run,
                               struct plan **plan, struct error *err)
{
    enum error_code code = session_plan(session, shape, plan, err);
    if (code != OK)
        return code;
    (*plan)->runs++;
    return plan_submit(*plan, run, err);
}

enum error_code session_prepare(struct session *session, const struct session_shape *shape, struct error *err)
{
    struct plan *plan;
    return session_plan(session, shape, &plan, err);
}
