/* What servers with one store tell of each other: their devices and models, and estimates, which they ask for. A front
 * has no devices and no models of its own; a server that computes, too, begins with its own. Thread-safety: as struct
 * request; fleet_answer from any thread. */
#ifndef SERVER_HTTP_FLEET_H
#define SERVER_HTTP_FLEET_H

#include "server/http/request.h"

/* Whether this server shares its store with others. */
bool fleet_is_shared(const struct request *request);
/* Decides whether the request is one for other servers, because they have the models that r names and this one has
 * not. A front leaves all to others. */
void fleet_choose(struct request *request, const struct restoration *r);
/* What the request is checked against; NULL: other servers have the models, so it waits for one of them. */
const struct model_store *fleet_checks(const struct request *request);

/* What all servers have, of the list of that name ("devices", "models") in what each says of itself; a model that
 * several have comes once, a device of another server says whose it is (worker, HOST:PID). NULL: the store cannot be
 * read; err says why (a server that computes tells of itself then). The next one as well. */
json_t *fleet_list(const struct request *request, const char *list, struct error *err);
/* The models, with `published` of each, and those that are published and no server has yet. */
json_t *fleet_models(const struct request *request, struct error *err);
/* Puts the devices and models of all into the document of GET /v1/capabilities. */
void fleet_tell_capabilities(const struct request *request, json_t *capabilities);

/* Asks all workers what this restoration would take; faces: negative if unknown. The connection is suspended when it is
 * OK; ERROR_BUSY: there is no worker. fleet_estimated has the quickest one's answer then: *device is the document's,
 * *document the caller's. Errors: ERROR_BUSY: none has answered; else what the workers say. */
enum error_code fleet_ask(struct request *request, const struct restoration *r, int faces,
                          struct error *err) MUST_CHECK;
enum error_code fleet_estimated(struct request *request, struct estimate *out, const char **device, json_t **document,
                                struct error *err) MUST_CHECK;
/* The request is over. */
void fleet_forget(struct request *request);

/* An asks_answer_fn of a server, for one that computes. */
json_t *fleet_answer(void *server, const json_t *question);

#endif
