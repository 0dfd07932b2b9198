#include "runtime/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define SESSION_PLANS 16

struct session_plan {
    struct session_shape shape;
    struct plan *plan; /* NULL: free slot */
    uint64_t used;     /* when, by the session's count of runs */
};

struct session {
    struct device *device;
    enum precision precision;
    char name[128];
    session_build_fn *build;
    const void *model;
    uint64_t runs;
    struct session_plan plans[SESSION_PLANS];
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
    return OK;
}

void session_destroy(struct session **session)
{
    if (!*session)
        return;
    for (int i = 0; i < SESSION_PLANS; i++)
        plan_destroy(&(*session)->plans[i].plan);
    free(*session);
    *session = NULL;
}

static bool session_idle(const struct session_plan *slot)
{
    return slot->plan && plan_under_way(slot->plan) == 0;
}

bool session_trim(struct session *session)
{
    bool empty = true;
    for (int i = 0; i < SESSION_PLANS; i++) {
        if (session_idle(&session->plans[i]))
            plan_destroy(&session->plans[i].plan);
        empty = empty && !session->plans[i].plan;
    }
    return empty;
}

static bool session_same(const struct session_shape *a, const struct session_shape *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->variant == b->variant;
}

/* The plan that was not used for longest, of those without runs under way, or NULL. */
static struct session_plan *session_oldest(struct session *s)
{
    struct session_plan *oldest = NULL;
    for (int i = 0; i < SESSION_PLANS; i++)
        if (session_idle(&s->plans[i]) && (!oldest || s->plans[i].used < oldest->used))
            oldest = &s->plans[i];
    return oldest;
}

/* Room for one more plan: a free slot, and the plans together under a quarter of the device's memory, as far as they
 * may be dropped. NULL: all slots have runs under way. */
static struct session_plan *session_slot(struct session *s)
{
    struct device_info info;
    device_info(s->device, &info);
    for (;;) {
        uint64_t bytes = 0;
        struct session_plan *slot = NULL;
        for (int i = 0; i < SESSION_PLANS; i++) {
            if (s->plans[i].plan)
                bytes += plan_bytes(s->plans[i].plan);
            else
                slot = &s->plans[i];
        }
        struct session_plan *oldest = session_oldest(s);
        if ((slot && bytes <= info.memory_total / 4) || !oldest)
            return slot;
        plan_destroy(&oldest->plan);
    }
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

static enum error_code session_plan(struct session *s, const struct session_shape *shape, struct session_plan **out,
                                    struct error *err)
{
    for (int i = 0; i < SESSION_PLANS; i++) {
        *out = &s->plans[i];
        if (!s->plans[i].plan || !session_same(&s->plans[i].shape, shape))
            continue;
        if (plan_whole(s->plans[i].plan) || plan_under_way(s->plans[i].plan))
            return OK;
        plan_destroy(&s->plans[i].plan); /* the next one is faster */
    }
    struct session_plan *slot = session_slot(s);
    struct error why = ERROR_INIT;
    if (!slot)
        return error_set(err, ERROR_INTERNAL, "%s: too many runs are under way", s->name);
    enum error_code code = session_plan_create(s, shape, &slot->plan, &why);
    if ((code == ERROR_NO_MEMORY || code == ERROR_TOO_LARGE) && session_oldest(s)) {
        session_trim(s); /* the other plans may be what is in the way */
        error_clear(&why);
        code = session_plan_create(s, shape, &slot->plan, &why);
    }
    if (code)
        return error_set(err, code, "%s", why.text);
    slot->shape = *shape;
    *out = slot;
    return OK;
}

enum error_code session_run(struct session *session, const struct session_shape *shape, const float *const *inputs,
                            float *const *outputs, const struct run_options *options, struct error *err)
{
    struct session_plan *slot;
    enum error_code code = session_plan(session, shape, &slot, err);
    if (code)
        return code;
    slot->used = ++session->runs;
    return plan_run(slot->plan, inputs, outputs, options, err);
}

enum error_code session_submit(struct session *session, const struct session_shape *shape, const struct run_io *run,
                               struct plan **plan, struct error *err)
{
    struct session_plan *slot;
    enum error_code code = session_plan(session, shape, &slot, err);
    if (code)
        return code;
    slot->used = ++session->runs;
    *plan = slot->plan;
    return plan_submit(slot->plan, run, err);
}

enum error_code session_prepare(struct session *session, const struct session_shape *shape, struct error *err)
{
    struct session_plan *slot;
    enum error_code code = session_plan(session, shape, &slot, err);
    if (!code)
        slot->used = ++session->runs;
    return code;
}
