#include "server/store/listen.h"

#include "server/store/pg.h"

#ifndef RESTORED_LIBPQ

enum error_code listen_open(struct listen **out, const char *where, const char *password_file, struct error *err)
{
    (void)where, (void)password_file;
    *out = NULL;
    return pg_available(err);
}

void listen_close(struct listen **listen)
{
    *listen = NULL;
}

bool listen_wait(struct listen *listen, int milliseconds, listen_fn *each, void *context)
{
    (void)listen, (void)milliseconds, (void)each, (void)context;
    return false;
}

void listen_wake(struct listen *listen)
{
    (void)listen;
}

#else

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define LISTEN_RETRY_MS 1000

struct listen {
    char *where, *password_file;
    PGconn *db;
    int wake; /* an eventfd */
};

enum error_code listen_open(struct listen **out, const char *where, const char *password_file, struct error *err)
{
    struct listen *listen = *out = mem_calloc(1, sizeof *listen);
    if (!listen)
        return error_set(err, ERROR_NO_MEMORY, "no memory to listen to other servers");
    listen->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    listen->where = strdup(where);
    listen->password_file = strdup(password_file ? password_file : "");
    if (listen->wake >= 0 && listen->where && listen->password_file)
        return OK;
    listen_close(out);
    return error_set(err, ERROR_IO, "the server could not begin to listen to others");
}

void listen_close(struct listen **listen)
{
    struct listen *old = *listen;
    *listen = NULL;
    if (!old)
        return;
    PQfinish(old->db);
    if (old->wake >= 0)
        close(old->wake);
    free(old->where);
    free(old->password_file);
    free(old);
}

void listen_wake(struct listen *listen)
{
    const uint64_t one = 1;
    const ssize_t ignored = write(listen->wake, &one, sizeof one);
    (void)ignored;
}

/* Waits for the connection (fd -1: there is none) or a wake-up. */
static void listen_poll(struct listen *listen, int fd, int milliseconds)
{
    struct pollfd sources[] = {{.fd = listen->wake, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    uint64_t count;
    (void)poll(sources, 2, milliseconds);
    const ssize_t ignored = read(listen->wake, &count, sizeof count);
    (void)ignored;
}

static bool listen_connect(struct listen *listen)
{
    struct error ignored = ERROR_INIT; /* the store says the same */
    if (pg_connect(&listen->db, listen->where, listen->password_file, &ignored))
        return false;
    if (!pg_do(listen->db, "LISTEN restored", 0, NULL, NULL, &ignored))
        return true;
    PQfinish(listen->db);
    listen->db = NULL;
    return false;
}

bool listen_wait(struct listen *listen, int milliseconds, listen_fn *each, void *context)
{
    PGnotify *notify;
    bool again = false;
    if (!listen->db && !(again = listen_connect(listen))) {
        listen_poll(listen, -1, milliseconds < LISTEN_RETRY_MS ? milliseconds : LISTEN_RETRY_MS);
        return false;
    }
    if (!again)
        listen_poll(listen, PQsocket(listen->db), milliseconds);
    if (!PQconsumeInput(listen->db) || PQstatus(listen->db) != CONNECTION_OK) {
        PQfinish(listen->db);
        listen->db = NULL;
        return false;
    }
    while ((notify = PQnotifies(listen->db))) {
        each(context, notify->extra);
        PQfreemem(notify);
    }
    return again;
}

#endif
