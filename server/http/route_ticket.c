/* What a request asks of the keeper, while its connection is suspended. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"

struct held_ticket {
    struct keeper_ticket ticket; /* the request's */
    struct held_ticket *instead; /* what the request gets where the server stops first; its own `instead` is NULL */
    struct request *request;
    bool left; /* the request has gone on without it */
    struct held_ticket *next, *previous;
};

/* Of server->held and `left`; in no server, because the keeper may be done with a ticket after its server is gone. */
static pthread_mutex_t ticket_lock = PTHREAD_MUTEX_INITIALIZER;

static void ticket_free(struct held_ticket *held)
{
    if (held->ticket.wish == KEEPER_FETCH && held->ticket.fd >= 0)
        close(held->ticket.fd);
    keeper_ticket_clear(&held->ticket);
    free(held->instead);
    free(held);
}

/* Under the lock. */
static void ticket_unlink(struct held_ticket *held)
{
    if (held->previous)
        held->previous->next = held->next;
    else
        held->request->server->held = held->next;
    if (held->next)
        held->next->previous = held->previous;
}

/* The keeper is done with the ticket. */
static void ticket_done(void *context)
{
    struct held_ticket *held = context;
    pthread_mutex_lock(&ticket_lock);
    const bool left = held->left;
    if (!left) {
        ticket_unlink(held);
        MHD_resume_connection(held->request->connection); /* it may be gone now */
    }
    pthread_mutex_unlock(&ticket_lock);
    if (left)
        ticket_free(held);
}

struct keeper_ticket *route_jobs_ticket(struct request *request, enum keeper_wish wish)
{
    struct held_ticket *held = mem_calloc(1, sizeof *held);
    struct held_ticket *instead = mem_calloc(1, sizeof *instead);
    if (!held || !instead) {
        free(held);
        free(instead);
        return NULL;
    }
    held->instead = instead;
    held->request = request;
    held->ticket.wish = instead->ticket.wish = wish;
    held->ticket.fd = instead->ticket.fd = -1;
    held->ticket.done = ticket_done;
    held->ticket.context = held;
    request->ticket = &held->ticket;
    return &held->ticket;
}

static void ticket_refuse(struct keeper_ticket *ticket)
{
    error_set(&ticket->err, ERROR_BUSY, "the server is shutting down");
}

enum MHD_Result route_jobs_ask(struct request *request)
{
    struct held_ticket *held = (struct held_ticket *)request->ticket;
    struct server *server = request->server;
    connection_holding(request->link);
    pthread_mutex_lock(&ticket_lock);
    const bool over = server->holds_no_more;
    MHD_suspend_connection(request->connection);
    if (over) {
        ticket_refuse(&held->ticket);
        MHD_resume_connection(request->connection);
    } else {
        held->next = server->held;
        if (held->next)
            held->next->previous = held;
        server->held = held;
    }
    pthread_mutex_unlock(&ticket_lock);
    if (!over)
        keeper_ask(server->keeper, &held->ticket);
    return MHD_YES;
}

enum MHD_Result route_jobs_fetch(struct request *request, const struct store_job *row)
{
    struct keeper_ticket *ticket = route_jobs_ticket(request, KEEPER_FETCH);
    if (!ticket)
        return MHD_NO;
    memcpy(ticket->job.id, row->id, sizeof ticket->job.id);
    ticket->job.attempts = row->attempts;
    return route_jobs_ask(request);
}

void route_jobs_forget(struct request *request)
{
    if (request->ticket)
        ticket_free((struct held_ticket *)request->ticket);
    request->ticket = NULL;
}

bool route_jobs_end(struct server *server)
{
    pthread_mutex_lock(&ticket_lock);
    const bool some = server->held;
    server->holds_no_more = true;
    for (struct held_ticket *held; (held = server->held);) {
        struct request *request = held->request;
        ticket_unlink(held);
        held->left = true;
        ticket_refuse(&held->instead->ticket);
        request->ticket = &held->instead->ticket;
        held->instead = NULL;
        MHD_resume_connection(request->connection);
    }
    pthread_mutex_unlock(&ticket_lock);
    return some;
}
