/* Webhooks of cog's predictions: a POST to an address that the client names, when its prediction begins and when it has
 * ended. Only to origins that the setting webhook_origins lists, and never to an address that is not public, whatever
 * its name, unless webhook_private lists it: the check is made when the connection is, so that a name which changes its
 * address does not get around it. One thread sends them all at the same time, a few to each receiver, so that a slow
 * one delays none but its own. What is to be told is stored with the job (store/hook_rows.h): where the server that
 * took a prediction is gone, another one of the same store, or its next start, sends what is not noted there as
 * sent.
 * Thread-safety: every function may be called from any thread, except start and stop. */
#ifndef SERVER_COMPAT_HOOKS_H
#define SERVER_COMPAT_HOOKS_H

#include <jansson.h>

#include "server/config.h"
#include "server/http/request.h"

#define HOOKS_URL_MAX 1024
#define HOOKS_MOST 1000 /* that wait for their predictions */
#define HOOKS_ID_MAX 64 /* of a prediction, with its final 0 */

/* The W3C's trace context of a request, which goes along with its webhooks: header values, "" where there is none. */
struct hook_trace {
    char parent[64], state[513]; /* that many bytes must be passed on (Trace Context, 3.3.1.5) */
};

struct hook {
    char url[HOOKS_URL_MAX]; /* "": none */
    struct hook_trace trace;
    bool start, end; /* which of the two are sent */
};

/* Reads "webhook" and "webhook_events_filter" of a request. ERROR_INVALID: not a URL of a listed origin, or no such
 * event. */
enum error_code hooks_read(const struct config *config, const json_t *json, struct hook *out,
                           struct error *err) MUST_CHECK;

/* What the headers traceparent and tracestate say; NULL: not sent. One that is too long is left out. */
void hooks_trace(struct hook_trace *out, const char *parent, const char *state);

/* server->hooks. */
enum error_code hooks_start(struct server *server, struct error *err) MUST_CHECK;
/* Ends it; what was not sent stays in the store. NULL-safe. Before keeper_destroy. */
void hooks_stop(struct server *server);

/* What the keeper stores with the prediction's job; free(). NULL: no memory. */
char *hooks_text(const struct hook *hook, const char *prediction);
/* The same, read again; url "": it is none. */
void hooks_parse(const char *text, struct hook *out, char prediction[HOOKS_ID_MAX]);

/* From now on this prediction, a stored job, is told of. Too many: the log says so. */
void hooks_add(struct server *server, const struct hook *hook, const char *job, const char *prediction);

#endif
