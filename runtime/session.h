/* A network on a device: builds the graph for a shape when it is first asked for, keeps the plans in the cache of its
 * device's handle, and runs them.
 * Thread-safety: a session belongs to the thread that owns its device. */
#ifndef RUNTIME_SESSION_H
#define RUNTIME_SESSION_H

#include "runtime/plan_cache.h"

/* Adds the network's nodes for this shape to an empty graph. */
typedef enum error_code session_build_fn(const void *model, const struct session_shape *shape, struct graph *graph,
                                         struct error *err);

struct session;

/* name: for the log and errors. model is borrowed and passed to build. A handle without a plan_cache gets one that
 * lives as long as the session. */
enum error_code session_create(struct session **out, struct device *device, enum precision precision, const char *name,
                               session_build_fn *build, const void *model, struct error *err) MUST_CHECK;
void session_destroy(struct session **session);

/* Runs at this shape; inputs and outputs as plan_run. A plan is made if there is none, which may drop the least
 * recently used plans of any session on the handle. Errors are those of plan_create and plan_run. */
enum error_code session_run(struct session *session, const struct session_shape *shape, const float *const *inputs,
                            float *const *outputs, const struct run_options *options, struct error *err) MUST_CHECK;

/* The same by plan_submit. *plan: call plan_wait on it to end the run; it lives at least until then. */
enum error_code session_submit(struct session *session, const struct session_shape *shape, const struct run_io *run,
                               struct plan **plan, struct error *err) MUST_CHECK;

/* Makes a plan of this shape unless there is one. OK if that worked: used to find the largest tile that fits. */
enum error_code session_prepare(struct session *session, const struct session_shape *shape,
                                struct error *err) MUST_CHECK;

/* plan_prepare for this shape: makes later plans cheap, but makes none now. */
enum error_code session_warm(struct session *session, const struct session_shape *shape, bool measure, bool *whole,
                             struct error *err) MUST_CHECK;

/* Drops all plans except those with runs under way. Returns whether none is left. */
bool session_trim(struct session *session);
bool session_empty(const struct session *session); /* whether the session has none */

#endif
