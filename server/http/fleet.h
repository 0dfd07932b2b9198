/* What a front, which has no devices and no models of its own, tells of the servers that work for it and of the store:
 * their devices and models, and estimates, which it asks them for. Thread-safety: as struct request; fleet_answer from
 * any thread. */
#ifndef SERVER_HTTP_FLEET_H
#define SERVER_HTTP_FLEET_H

#include "server/http/request.h"

bool fleet_is_front(const struct request *request);

/* What all servers have, of the list of that name ("devices", "models") in what each says of itself; a model that
 * several have comes once, a device says whose it is (worker, HOST:PID). NULL: the store cannot be read; err says why.
 * The next one as well. */
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
