/* Pictures that a client names by an address: they are fetched from origins that the setting fetch_origins lists, and
 * never from an address that is not public unless fetch_private lists it (reach.h). A redirection leads on within the
 * list alone. Each has a thread of its own, which may wait, and limits: of bytes (body_limit) and seconds, and of how
 * many there are at once.
 * Thread-safety: every function may be called from any thread, except start, end and stop. */
#ifndef SERVER_COMPAT_FETCH_H
#define SERVER_COMPAT_FETCH_H

#include "server/compat/reach.h"
#include "server/config.h"
#include "server/http/request.h"

#define FETCH_URL_MAX 4096 /* signed addresses are long */
#define FETCH_MOST 8       /* at once */
#define FETCH_SECONDS 30

/* One picture. The caller's, who leaves it alone until done has been called. */
struct fetch {
    char url[FETCH_URL_MAX];
    struct body body; /* what has come; its spool is the caller's choice */
    struct error err; /* why it has not; names the origin alone, since the rest of an address may be secret */
    void (*done)(void *context);
    void *context;

    struct fetches *fetches; /* fetch.c's own, as all that follows */
    const struct config *config;
    int64_t until_ns;
    struct reach reach; /* of the origin's addresses */
};

/* Whether the address may be fetched from. ERROR_INVALID says why not, and which setting decides that. */
enum error_code fetch_check(const struct config *config, const char *url, struct error *err) MUST_CHECK;

/* Begins; done is called on another thread, once, perhaps before this returns. ERROR_BUSY: there are too many, or the
 * server ends; ERROR_NO_MEMORY. */
enum error_code fetch_begin(struct server *server, struct fetch *fetch, struct error *err) MUST_CHECK;

/* server->fetches. End: those that are on their way fail, and there are no more; it waits for them. */
enum error_code fetch_start(struct server *server, struct error *err) MUST_CHECK;
void fetch_end(struct server *server);
void fetch_stop(struct server *server);

#endif
