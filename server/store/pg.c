#include "server/store/pg.h"

#include "server/store/store.h"

#ifndef RESTORED_LIBPQ

enum error_code pg_available(struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED,
                     "store = postgresql://…: this program was built without libpq; install libpq-dev and build it "
                     "again, or use store = sqlite");
}

void store_reaches(const char *where, store_port_fn *port, store_file_fn *file, void *context)
{
    (void)where, (void)port, (void)file, (void)context;
}

#else

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"

#define PG_PORT 5432      /* where the URI names none */
#define PG_CANCEL_MS 2000 /* for the answer to a cancellation */

/* The server warned during what this thread waits for: about a commit, it says that no standby has it. */
static _Thread_local bool pg_warned;

enum error_code pg_available(struct error *err)
{
    (void)err;
    return OK;
}

void store_reaches(const char *where, store_port_fn *port, store_file_fn *file, void *context)
{
    static const char *const files[] = {"sslrootcert", "sslcert", "sslkey", "sslcrl", "passfile"};
    PQconninfoOption *options = PQconninfoParse(where, NULL);
    for (const PQconninfoOption *at = options; at && at->keyword; at++) {
        if (!strcmp(at->keyword, "port")) { /* one a host, or one for all */
            const char *list = at->val ? at->val : "";
            for (bool more = true; more; list += more) {
                const size_t length = strcspn(list, ",");
                port(context, length ? (unsigned)strtoul(list, NULL, 10) : PG_PORT);
                list += length;
                more = *list == ',';
            }
        }
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            if (at->val && *at->val && !strcmp(at->keyword, files[i]))
                file(context, at->val);
    }
    PQconninfoFree(options);
}

static int64_t pg_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static enum error_code pg_password(const char *file, char *out, size_t size, struct error *err)
{
    *out = 0;
    if (!file || !*file)
        return OK;
    FILE *in = fopen(file, "re");
    const bool read = in && fgets(out, (int)size, in);
    if (in)
        fclose(in);
    if (!read) {
        error_set(err, ERROR_INVALID, "store_password_file cannot be read, or is empty");
        error_local(err, ": %s", file);
        return ERROR_INVALID;
    }
    out[strcspn(out, "\r\n")] = 0;
    return OK;
}

static void pg_notice(void *context, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    (void)context;
    if (!severity || strcmp(severity, "WARNING") != 0)
        return;
    pg_warned = true;
    log_event(LOG_WARN, "postgresql", "code=%s text=\"%s\"", state ? state : "", text ? text : "");
}

/* The first line of libpq's message, for the log. */
static void pg_detail(struct error *err, PGconn *db, const char *state)
{
    const char *text = db ? PQerrorMessage(db) : "";
    error_detail(err, "sqlstate=%s text=\"%.*s\"", state ? state : "", (int)strcspn(text, "\n"), text);
}

/* What libpq says of a URI that it does not understand quotes it, with its password, and so do what it says of the port
 * and the host that it takes from one whose password has a / or an @. */
static enum error_code pg_check(const char *where, struct error *err)
{
    PQconninfoOption *options = PQconninfoParse(where, NULL);
    bool sound = options != NULL;
    for (const PQconninfoOption *at = options; at && at->keyword; at++) {
        const bool port = at->val && !strcmp(at->keyword, "port");
        const bool host = at->val && *at->val && !strcmp(at->keyword, "host");
        sound &= !port || !at->val[strspn(at->val, "0123456789,")];
        sound &= !host || !strchr(at->val + 1, '@'); /* one at its start is an abstract socket */
    }
    PQconninfoFree(options);
    return sound
               ? OK
               : error_set(err, ERROR_INVALID,
                           "store is no URI of PostgreSQL: postgresql://USER@HOST:PORT/DATABASE?NAME=VALUE; a password "
                           "in it needs %%40 for @, %%2F for / and %%25 for %%, or stands in store_password_file");
}

/* Why there is no connection, host by host, for whoever runs this machine. */
static void pg_why(struct error *err, PGconn *db)
{
    char text[400];
    snprintf(text, sizeof text, "%s", PQerrorMessage(db));
    for (size_t used = strlen(text); used && text[used - 1] == '\n';)
        text[--used] = 0;
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ';' : *c == '"' ? '\'' : *c;
    error_local(err, " (%s)", text);
}

enum error_code pg_connect(PGconn **out, const char *where, const char *password_file, struct error *err)
{
    char password[1024], seconds[16], dead[16];
    *out = NULL;
    enum error_code code = pg_check(where, err);
    if (!code)
        code = pg_password(password_file, password, sizeof password, err);
    if (code)
        return code;
    snprintf(seconds, sizeof seconds, "%d", PG_CONNECT_SECONDS);
    snprintf(dead, sizeof dead, "%d", PG_DEAD_MS);
    /* what the URI says comes later, and wins; but the password is the file's, if there is one */
    const char *const keys[] = {"connect_timeout",
                                "tcp_user_timeout",
                                "keepalives_idle",
                                "client_encoding",
                                "fallback_application_name",
                                "dbname",
                                *password ? "password" : NULL,
                                NULL};
    const char *const values[] = {seconds, dead, "10", "UTF8", "restored", where, password, NULL};
    PGconn *db = PQconnectdbParams(keys, values, 1);
    explicit_bzero(password, sizeof password);
    if (!db)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a connection to the database");
    if (PQstatus(db) != CONNECTION_OK) {
        code = error_set(err, ERROR_IO, "the database of jobs cannot be reached; try again later");
        pg_why(err, db);
        pg_detail(err, db, NULL);
        PQfinish(db);
        return code;
    }
    PQsetNoticeReceiver(db, pg_notice, NULL);
    code = pg_do(db, "SET idle_in_transaction_session_timeout = " PG_IDLE_MS, 0, NULL, NULL, err);
    if (code)
        PQfinish(db);
    else
        *out = db;
    return code;
}

/* First a server may say why it goes, then that it is gone. */
bool pg_alive(PGconn *db)
{
    return PQconsumeInput(db) && PQconsumeInput(db) && PQstatus(db) == CONNECTION_OK;
}

enum error_code pg_failed(PGconn *db, const PGresult *result, struct error *err)
{
    const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    enum error_code code;
    if (!state || !strncmp(state, "08", 2) || !strncmp(state, "57", 2) || !strncmp(state, "40", 2) ||
        !strncmp(state, "55", 2) || !strncmp(state, "25", 2) || !strcmp(state, "53300"))
        code = error_set(err, ERROR_IO, "the database of jobs does not answer now; try again later");
    else if (!strncmp(state, "23", 2))
        code = error_set(err, ERROR_INTERNAL, "the database of jobs has such a row already");
    else if (!strcmp(state, "53100"))
        code = error_set(err, ERROR_FULL, "no room on the disk of the database of jobs");
    else if (!strncmp(state, "53", 2))
        code = error_set(err, ERROR_NO_MEMORY, "the database of jobs has no memory");
    else if (!strcmp(state, "42501") || !strncmp(state, "28", 2))
        code = error_set(err, ERROR_IO, "the database of jobs refuses this user");
    else
        code = error_set(err, ERROR_CORRUPT, "the tables of the database of jobs are not what they should be");
    pg_detail(err, db, state);
    return code;
}

/* A thread's function. */
static void *pg_cancel_now(void *cancel)
{
    char text[256];
    (void)PQcancel(cancel, text, sizeof text);
    PQfreeCancel(cancel);
    return NULL;
}

/* PQcancel waits without a limit for a server that takes the connection and says nothing, so nobody waits for it. */
static void pg_cancel(PGconn *db)
{
    PGcancel *cancel = PQgetCancel(db);
    pthread_attr_t detached;
    pthread_t thread;
    if (!cancel)
        return;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &detached, pg_cancel_now, cancel))
        PQfreeCancel(cancel);
    pthread_attr_destroy(&detached);
}

/* Waits until libpq has a whole result, or the connection is broken; false: neither comes. */
static bool pg_wait(PGconn *db)
{
    int64_t until = pg_now() + PG_ANSWER_MS;
    bool cancelled = false;
    while (PQisBusy(db)) {
        struct pollfd socket = {.fd = PQsocket(db), .events = POLLIN};
        const int64_t left = until - pg_now();
        if (left <= 0 && cancelled)
            return false;
        if (left <= 0) {
            pg_cancel(db);
            cancelled = true;
            until = pg_now() + PG_CANCEL_MS;
        } else if (socket.fd < 0 || (poll(&socket, 1, (int)left) > 0 && !PQconsumeInput(db))) {
            return true; /* its result says so */
        }
    }
    return true;
}

PGresult *pg_next(PGconn *db)
{
    return pg_wait(db) ? PQgetResult(db) : NULL;
}

PGresult *pg_receive(PGconn *db)
{
    PGresult *last = NULL, *next;
    for (;;) {
        if (!pg_wait(db)) {
            PQclear(last);
            return NULL;
        }
        if (!(next = PQgetResult(db)))
            return last;
        PQclear(last);
        last = next;
    }
}

enum error_code pg_do(PGconn *db, const char *sql, int count, const char *const *values, PGresult **out,
                      struct error *err)
{
    PGresult *result = PQsendQueryParams(db, sql, count, NULL, values, NULL, NULL, 0) ? pg_receive(db) : NULL;
    const ExecStatusType status = result ? PQresultStatus(result) : PGRES_FATAL_ERROR;
    const enum error_code code =
        status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK ? OK : pg_failed(db, result, err);
    if (out && !code) {
        *out = result;
        return OK;
    }
    PQclear(result);
    return code;
}

enum error_code pg_commit(PGconn *db, struct error *err)
{
    PGresult *result = NULL;
    pg_warned = false;
    enum error_code code = pg_do(db, "COMMIT", 0, NULL, &result, err);
    if (!code && strcmp(PQcmdStatus(result), "COMMIT") != 0) /* ROLLBACK: a statement in it had failed */
        code = error_set(err, ERROR_IO, "the database of jobs did not commit; try again later");
    else if (!code && pg_warned)
        code = error_set(err, ERROR_IO, "no standby of the database of jobs has confirmed the job; try again later");
    if (result)
        PQclear(result);
    return code;
}

#endif
