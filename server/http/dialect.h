/* The clients of other programs that the server answers in their own form. server/compat defines the table; the setting
 * `compat` says which of them are on.
 * Thread-safety: constant data and functions without state. */
#ifndef SERVER_HTTP_DIALECT_H
#define SERVER_HTTP_DIALECT_H

#include "server/http/router.h"

struct dialect {
    const char *name;           /* its word in the setting */
    const char *paths;          /* with blanks between: what begins like one of them is its own, "=/path" that alone */
    const char *shared;         /* a path of ours whose errors have the members of its form, too; NULL: none */
    const struct route *routes; /* the last has no path */
    const char *elsewhere; /* what a client of it may look for that is not there, and what there is; NULL: nothing */
    const struct route *index; /* answers GET / for those who ask for JSON; NULL: the page does */
    /* An error in its form; a new reference, NULL when memory runs out. */
    json_t *(*problem)(const struct request *request, enum reply reply, const struct error *err);
    const char *challenge; /* HTTP Basic is taken, with the token as the password, and asked for like this; NULL: no */
    enum error_code (*start)(struct server *server, struct error *err); /* what it needs; or NULL */
    void (*end)(struct server *server);  /* nothing of it keeps a connection suspended any more; or NULL */
    void (*stop)(struct server *server); /* there are no connections any more; or NULL */
    const char *openapi; /* its part of /openapi.json: {"paths", "schemas", "responses", "parameters"} */
};

/* The last is NULL. */
extern const struct dialect *const dialects[];

/* Whose path it is, among those that the setting turns on; NULL: ours, or nobody's. */
const struct dialect *dialect_of(const char *path, const char *compat);
/* Whose form the errors of our own path have as well; NULL: none's. */
const struct dialect *dialect_shared(const char *path, const char *compat);

bool dialect_on(const struct dialect *dialect, const char *compat);
/* Whether the setting is "none" or a list of names; ERROR_INVALID says which there are. */
enum error_code dialect_check(const char *compat, struct error *err) MUST_CHECK;

#endif
