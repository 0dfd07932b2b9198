/* What a server with a shared store does beside its keeper: on connections of its own it keeps the leases of the jobs
 * at work here, tells the other servers what happens to them and what this server has, and hears the same from them.
 * What others tell comes into the ring of events, so that whoever listens here hears of all jobs. Thread-safety: every
 * function may be called from any thread, except create and destroy. */
#ifndef SERVER_JOB_CLUSTER_H
#define SERVER_JOB_CLUSTER_H

#include <jansson.h>

#include "server/job/worker_pool.h"

#define CLUSTER_LEASE_MS 30000
#define CLUSTER_BEAT_MS 5000

struct cluster;
struct keeper;

struct cluster_settings {
    const char *store, *password_file;
    bool works;       /* it takes jobs */
    const char *role; /* both, front or worker; static */
};

enum error_code cluster_create(struct cluster **out, const struct cluster_settings *settings, struct keeper *keeper,
                               struct worker_pool *pool, const struct model_store *models,
                               struct error *err) MUST_CHECK;
/* The others are told that it is gone. */
void cluster_destroy(struct cluster **cluster);

/* Something was published that the others should hear at once. */
void cluster_poke(struct cluster *cluster);

/* The leases of the jobs at work here go on now, not at the next beat. */
void cluster_renew(struct cluster *cluster);

/* Jobs at work elsewhere were asked to stop: their servers are to look now, not at their next beat. */
void cluster_tell_cancel(struct cluster *cluster);

/* Who says what this server has: an object, whose keys the others see in cluster_servers. NULL: nobody (any more). */
typedef json_t *cluster_about_fn(void *context);
void cluster_set_about(struct cluster *cluster, cluster_about_fn *about, void *context);

/* Tells all servers this text, which begins with '?' or '!'; it is taken over. */
void cluster_say(struct cluster *cluster, char *text);
/* Who hears such texts of others, on a thread of the cluster's; and NULL now and then, so that it sees the time pass.
 * NULL: nobody (any more). */
typedef void cluster_listener_fn(void *context, const char *text);
void cluster_set_listener(struct cluster *cluster, cluster_listener_fn *listener, void *context);

/* Those of a job's needs (record_needs as JSON; NULL: none) that no server has, by what they told last; all, if no
 * server has all of them. Empty: some server can do it, or that is not known yet. *anybody: there are servers that take
 * jobs. The caller's. */
json_t *cluster_lacking(struct cluster *cluster, const json_t *needs, bool *anybody);

/* OK when some server is there that takes jobs; ERROR_BUSY. */
enum error_code cluster_ready(struct cluster *cluster, struct error *err) MUST_CHECK;

/* What all servers that are there say of themselves: an array of objects with owner, role, version, host, seen_seconds,
 * devices, models, queue. The caller's. NULL: the store cannot be read; err says why. */
json_t *cluster_servers(struct cluster *cluster, struct error *err);

/* The server stops: nobody waits any more (done is called), also in future. */
void cluster_end_waits(struct cluster *cluster);

/* --- waiting for a job's end, holding no thread --------------------------------------------------------------------
 */

struct cluster_waiter {
    char id[33];
    void (*done)(void *context); /* on a thread of the cluster's; it must not block */
    void *context;
    struct cluster_waiter *next;
};
/* done is called once the job has ended (or is gone), perhaps before this returns; unless cluster_leave comes before.
 */
void cluster_await(struct cluster *cluster, struct cluster_waiter *waiter);
/* False: done has been called, or is being called. */
bool cluster_leave(struct cluster *cluster, struct cluster_waiter *waiter);
/* Whether anybody waits for a job. */
bool cluster_awaited(struct cluster *cluster);

#endif
