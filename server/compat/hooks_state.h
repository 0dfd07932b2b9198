/* What the sender of webhooks is made of, for hooks.c (which of them are sent when, and by whom) and hooks_send.c (one
 * POST) alone.
 * Thread-safety: the thread's own, unless it says otherwise. */
#ifndef SERVER_COMPAT_HOOKS_STATE_H
#define SERVER_COMPAT_HOOKS_STATE_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/compat/cog.h"
#include "server/compat/hooks.h"
#include "server/compat/reach.h"

/* Where webhooks go: scheme, host and port. */
struct hooks_receiver {
    int sending;
    struct hooks_receiver *next;
    char origin[];
};

struct hooks_row {
    struct hooks *hooks;
    struct hook hook;
    struct hooks_receiver *to;
    char job[33], prediction[HOOKS_ID_MAX];
    bool started; /* the first is sent, or was */
    int tries;    /* of the last */
    int64_t next_ns;
    struct hooks_row *next;

    CURL *curl; /* what is on its way; NULL: nothing, and the rest is empty */
    struct curl_slist *headers;
    struct compat_text *text;
    uint64_t at;        /* so much of the text is sent */
    bool last;          /* it is the one that is tried again */
    struct reach reach; /* of the receiver's addresses */
    char why[CURL_ERROR_SIZE];
};

/* What the keeper is asked: it lives as long as either of the two wants it. */
struct hooks_ask {
    struct keeper_ticket ticket;
    struct hooks_row *taken; /* they were another server's */
    atomic_bool done;
    atomic_int holders;
};

struct hooks {
    struct server *server;
    pthread_mutex_t lock; /* of fresh, count, running, and receivers as a list */
    struct hooks_row *fresh;
    struct hooks_receiver *receivers; /* few: the setting lists them */
    int count;
    bool running;
    pthread_t thread;
    atomic_bool stop;
    CURLM *multi;           /* there as long as the thread is */
    struct hooks_row *rows; /* the thread's, the oldest first; so is this: */
    struct hooks_ask *ask;  /* NULL: nothing is asked */
    int64_t ask_ns;         /* the next time */
    json_t *over,
        *told; /* ids of jobs that need no webhook any more, or not their first, for the next one; NULL: none */
};

/* --- hooks_send.c --------------------------------------------------------------------------------------------------
 */

/* Sends the text, which is taken over, as the one that is tried again (last), or as the first. True: it could not be,
 * and nothing more is to be sent. */
bool hooks_send(struct hooks_row *row, struct compat_text *text, bool last);
/* It was answered with this status; 0: it was not, and row->why says why. True: nothing more is to be sent. */
bool hooks_sent(struct hooks_row *row, long status);
/* Nothing of it is on its way any more. */
void hooks_drop(struct hooks_row *row);
/* A list of ids in rows has this one, too. Without memory it has not. */
void hooks_note(json_t **list, const char *job);

#endif
