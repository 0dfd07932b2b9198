#include "server/http/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/proxies.h"

#define TICK_MS 250
#define PROBE_MS 50                    /* after this the result of a probe is known */
#define STALLED_NS INT64_C(3000000000) /* how long a body may make no progress while others wait for its room */
#define LINGER_MAX 32
#define LINGER_NS INT64_C(5000000000)
#define STREAM_ROOM 65536 /* bytes that the system keeps for a client that does not read: else up to some MiB */
#define GONE_BATCH 64     /* hang-ups handled in one tick */

enum activity { READING, HOLDING, WAITING, SENDING, STREAMING };

struct connection {
    struct connections *all;
    struct connection *next, *previous;
    int fd;
    struct in6_addr address; /* IPv4 in its mapped form */
    enum connection_side side;
    enum activity activity;
    int64_t since_ns, moved_ns; /* when that began; when bytes of a request last arrived */
    struct job *job;            /* while WAITING; a reference */
    connection_leave_fn *leave; /* while WAITING for a job of another server */
    void *leave_context;
    char leave_id[33];
    bool interim;   /* while WAITING: its client takes interim answers */
    bool probed;    /* one was sent */
    bool uploading; /* while READING: a body that was admitted */
    bool gone, cut, linger;
};

struct lingering {
    int fd;
    int64_t until_ns;
};

struct connections {
    struct worker_pool *pool;
    struct connection_limits limits;
    pthread_t thread;
    int wake[2]; /* a pipe that wakes the watching thread */
    pthread_mutex_t lock;
    struct connection *first;
    int count[CONNECTION_SIDES]; /* those that are not cut */
    struct lingering lingering[LINGER_MAX];
    int linger_count;
    bool stop;
};

static bool connection_is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

bool connections_admit(struct connections *connections, const struct sockaddr *address)
{
    struct in6_addr from = proxies_address(address);
    if (connection_is_loopback(&from))
        return true;
    int count = 0;
    pthread_mutex_lock(&connections->lock);
    for (struct connection *at = connections->first; at; at = at->next)
        count += !memcmp(&at->address, &from, sizeof from);
    const bool within = count < connections->limits.per_address;
    pthread_mutex_unlock(&connections->lock);
    return within;
}

int connections_count(struct connections *connections)
{
    int count = 0;
    pthread_mutex_lock(&connections->lock);
    for (struct connection *at = connections->first; at; at = at->next)
        count++;
    pthread_mutex_unlock(&connections->lock);
    return count;
}

void connections_set_limits(struct connections *connections, int request_seconds, int per_address)
{
    pthread_mutex_lock(&connections->lock);
    connections->limits.request_seconds = request_seconds;
    connections->limits.per_address = per_address;
    pthread_mutex_unlock(&connections->lock);
}

/* Under the lock. Ends the connection's traffic; libmicrohttpd sees that and closes it. */
static void connection_cut(struct connection *connection)
{
    connection->cut = true;
    connection->all->count[connection->side]--;
    shutdown(connection->fd, SHUT_RDWR);
}

/* Under the lock. Cuts off the one that has kept us waiting the longest for more of a request. */
static void connections_make_room(struct connections *connections, enum connection_side side)
{
    struct connection *idlest = NULL;
    for (struct connection *at = connections->first; at; at = at->next)
        if (at->side == side && at->activity == READING && !at->cut && (!idlest || at->moved_ns < idlest->moved_ns))
            idlest = at;
    if (idlest)
        connection_cut(idlest);
}

struct connection *connection_open(struct connections *connections, enum connection_side side, int fd,
                                   const struct sockaddr *address)
{
    struct connection *connection = mem_calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->all = connections;
    connection->side = side;
    connection->fd = fd;
    connection->address = proxies_address(address);
    connection->since_ns = connection->moved_ns = job_now();
    pthread_mutex_lock(&connections->lock);
    if (connections->count[side] >= connections->limits.most[side])
        connections_make_room(connections, side);
    connections->count[side]++;
    connection->next = connections->first;
    if (connection->next)
        connection->next->previous = connection;
    connections->first = connection;
    pthread_mutex_unlock(&connections->lock);
    return connection;
}

void connection_close(struct connection **connection)
{
    struct connection *old = *connection;
    *connection = NULL;
    if (!old)
        return;
    struct connections *all = old->all;
    pthread_mutex_lock(&all->lock);
    if (old->previous)
        old->previous->next = old->next;
    else
        all->first = old->next;
    if (old->next)
        old->next->previous = old->previous;
    all->count[old->side] -= !old->cut;
    if (old->linger && !old->cut && all->linger_count < LINGER_MAX) {
        int fd = fcntl(old->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            all->lingering[all->linger_count++] = (struct lingering){fd, job_now() + LINGER_NS};
        ssize_t written = write(all->wake[1], "", 1);
        (void)written; /* a full pipe wakes just as well */
    }
    pthread_mutex_unlock(&all->lock);
    job_release(&old->job);
    free(old);
}

static void connection_change(struct connection *connection, enum activity activity, struct job *job, bool interim)
{
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    struct job *old = connection->job;
    connection->activity = activity;
    connection->since_ns = connection->moved_ns = job_now();
    connection->job = job ? job_hold(job) : NULL;
    connection->leave = NULL;
    connection->interim = interim;
    connection->probed = connection->uploading = false;
    if (activity != SENDING)
        connection->gone = false;
    pthread_mutex_unlock(&connection->all->lock);
    job_release(&old);
}

void connection_reading(struct connection *connection)
{
    connection_change(connection, READING, NULL, false);
}

void connection_uploading(struct connection *connection)
{
    connection_change(connection, READING, NULL, false);
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    connection->uploading = true;
    pthread_mutex_unlock(&connection->all->lock);
}

void connection_moved(struct connection *connection)
{
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    connection->moved_ns = job_now();
    pthread_mutex_unlock(&connection->all->lock);
}

void connection_holding(struct connection *connection)
{
    connection_change(connection, HOLDING, NULL, false);
}

void connection_waiting(struct connection *connection, struct job *job, bool interim)
{
    connection_change(connection, WAITING, job, interim);
}

void connection_waiting_elsewhere(struct connection *connection, connection_leave_fn *leave, void *context,
                                  const char *id, bool interim)
{
    connection_change(connection, HOLDING, NULL, interim);
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    connection->leave = leave;
    connection->leave_context = context;
    snprintf(connection->leave_id, sizeof connection->leave_id, "%s", id);
    connection->activity = WAITING;
    pthread_mutex_unlock(&connection->all->lock);
}

void connection_sending(struct connection *connection)
{
    connection_change(connection, SENDING, NULL, false);
}

void connection_streaming(struct connection *connection)
{
    const int room = STREAM_ROOM;
    connection_change(connection, STREAMING, NULL, false);
    if (connection) /* if not, it is only slower to notice a client that does not read */
        (void)setsockopt(connection->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
}

bool connection_crowded(struct connection *connection)
{
    if (!connection)
        return true;
    struct connections *all = connection->all;
    pthread_mutex_lock(&all->lock);
    bool crowded = all->count[connection->side] > all->limits.most[connection->side];
    pthread_mutex_unlock(&all->lock);
    return crowded;
}

void connection_linger(struct connection *connection, bool linger)
{
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    connection->linger = linger;
    pthread_mutex_unlock(&connection->all->lock);
}

bool connection_is_local(const struct connection *connection)
{
    return connection && connection_is_loopback(&connection->address); /* set at the start and never changed */
}

bool connection_gone(struct connection *connection)
{
    if (!connection)
        return false;
    pthread_mutex_lock(&connection->all->lock);
    bool gone = connection->gone;
    pthread_mutex_unlock(&connection->all->lock);
    return gone;
}

int connections_close_idle(struct connections *connections)
{
    int left = 0;
    pthread_mutex_lock(&connections->lock);
    for (struct connection *at = connections->first; at; at = at->next)
        if (at->activity != READING)
            left++;
        else if (!at->cut)
            connection_cut(at);
    pthread_mutex_unlock(&connections->lock);
    return left;
}

/* What the peer has done. */
enum hang_up { STAYS, HALF_CLOSED, HUNG_UP };

static enum hang_up connection_hang_up(const struct connection *connection)
{
    struct pollfd fd = {.fd = connection->fd, .events = POLLRDHUP};
    if (poll(&fd, 1, 0) <= 0)
        return STAYS;
    return fd.revents & (POLLHUP | POLLERR) ? HUNG_UP : fd.revents & POLLRDHUP ? HALF_CLOSED : STAYS;
}

/* Whether the missing part of a request can no longer come. libmicrohttpd 0.9.75, when bytes and their end arrive
 * together, reads the bytes and waits for the end for ever; it alone knows whether those were all bytes of the request.
 * Closing a direction that is closed already wakes it to read the end, once it has taken what came before. */
static bool connection_cut_short(const struct connection *connection)
{
    int unread = 0;
    enum hang_up how = connection_hang_up(connection);
    if (how == HALF_CLOSED && !ioctl(connection->fd, FIONREAD, &unread) && !unread)
        shutdown(connection->fd, SHUT_RD);
    return how == HUNG_UP;
}

/* Whether nobody waits for the job any more. A client that has closed only its own direction looks like one that has
 * closed both, until something is sent: then the latter answers with a reset. */
static bool connection_abandoned(struct connection *connection, bool *probed)
{
    static const char interim[] = "HTTP/1.1 102 Processing\r\n\r\n";
    enum hang_up how = connection_hang_up(connection);
    if (how != HALF_CLOSED || !connection->interim)
        return how != STAYS;
    if (!connection->probed) {
        connection->probed = *probed = true; /* what is still on its way to the client tells just as well */
        return send(connection->fd, interim, sizeof interim - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN;
    }
    return false;
}

bool connection_left(struct connection *connection, uint64_t body)
{
    int unread = 0;
    if (!connection)
        return true;
    enum hang_up how = connection_hang_up(connection);
    return how == HUNG_UP ||
           (how == HALF_CLOSED && !ioctl(connection->fd, FIONREAD, &unread) && (uint64_t)unread < body);
}

/* The job of a client that hung up. */
struct left {
    struct job *job; /* a reference; NULL: leave says it to another server */
    connection_leave_fn *leave;
    void *context;
    char id[33];
};

static struct left connection_leave(const struct connection *connection)
{
    struct left left = {.leave = connection->leave, .context = connection->leave_context};
    left.job = connection->job ? job_hold(connection->job) : NULL;
    memcpy(left.id, connection->leave_id, sizeof left.id);
    return left;
}

/* Checks all connections; returns after how many milliseconds to call it again. */
static int connections_look(struct connections *connections)
{
    struct left gone[GONE_BATCH];
    int count = 0;
    bool probed = false;
    const int64_t now = job_now();
    const bool wanted = inflight_wanted(worker_pool_inflight(connections->pool));
    pthread_mutex_lock(&connections->lock);
    const int64_t request_ns = (int64_t)connections->limits.request_seconds * 1000000000;
    for (struct connection *at = connections->first; at; at = at->next) {
        if (at->activity == HOLDING || at->activity == STREAMING) {
            continue; /* see inflight_sweep and stream.c */
        } else if (at->activity == WAITING) {
            if (!at->gone && count < GONE_BATCH && connection_abandoned(at, &probed)) {
                at->gone = true;
                gone[count++] = connection_leave(at);
            }
        } else if (!at->cut && now - at->since_ns > request_ns) {
            log_event(LOG_INFO, "slow-client", "activity=%s", at->activity == READING ? "reading" : "sending");
            connection_cut(at);
        } else if (!at->cut && wanted && at->activity == READING && at->uploading && now - at->moved_ns > STALLED_NS) {
            log_event(LOG_INFO, "slow-client", "activity=stalled");
            connection_cut(at);
        } else if (!at->cut && at->activity == READING && connection_cut_short(at)) {
            connection_cut(at);
        }
    }
    pthread_mutex_unlock(&connections->lock);
    /* outside of the lock: a job that only waited ends here, and its end resumes the connection */
    for (int i = 0; i < count; i++) {
        if (gone[i].job)
            worker_pool_cancel(connections->pool, gone[i].job, ERROR_CANCELLED);
        else if (gone[i].leave)
            gone[i].leave(gone[i].context, gone[i].id);
        job_release(&gone[i].job);
    }
    return probed ? PROBE_MS : TICK_MS;
}

/* Drains one lingering socket; true while there may be more to come. */
static bool lingering_drain(const struct lingering *lingering, int64_t now)
{
    static char sink[65536]; /* one thread reads, and nobody looks */
    for (int i = 0; i < 64; i++) {
        ssize_t n = recv(lingering->fd, sink, sizeof sink, MSG_DONTWAIT);
        if (n <= 0)
            return n < 0 &&
                   now < lingering->until_ns; /* 0: the client has closed; an error shows as hang-up next time */
    }
    return now < lingering->until_ns;
}

static void *connections_watch(void *argument)
{
    struct connections *connections = argument;
    int64_t looked = 0;
    int every_ms = TICK_MS;
    bool stop = false;
    while (!stop) {
        struct pollfd fds[LINGER_MAX + 1] = {{.fd = connections->wake[0], .events = POLLIN}};
        struct lingering lingering[LINGER_MAX];
        pthread_mutex_lock(&connections->lock);
        int count = connections->linger_count;
        memcpy(lingering, connections->lingering, sizeof lingering);
        pthread_mutex_unlock(&connections->lock);
        for (int i = 0; i < count; i++)
            fds[i + 1] = (struct pollfd){.fd = lingering[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)count + 1, every_ms);
        char bytes[64];
        ssize_t drained = fds[0].revents ? read(connections->wake[0], bytes, sizeof bytes) : 0;
        (void)drained; /* only to empty the pipe */
        int64_t now = job_now();
        pthread_mutex_lock(&connections->lock);
        stop = connections->stop;
        for (int i = connections->linger_count - 1; i >= 0; i--) {
            struct pollfd fd = {.fd = connections->lingering[i].fd, .events = POLLIN};
            bool ready = poll(&fd, 1, 0) > 0;
            if (ready ? (fd.revents & POLLERR) || !lingering_drain(&connections->lingering[i], now)
                      : now >= connections->lingering[i].until_ns) {
                close(connections->lingering[i].fd);
                connections->lingering[i] = connections->lingering[--connections->linger_count];
            }
        }
        pthread_mutex_unlock(&connections->lock);
        if (now - looked >= every_ms * INT64_C(1000000)) {
            looked = now;
            every_ms = connections_look(connections);
            worker_pool_expire(connections->pool);
            inflight_sweep(worker_pool_inflight(connections->pool), now);
        }
    }
    return NULL;
}

enum error_code connections_create(struct connections **out, struct worker_pool *pool,
                                   const struct connection_limits *limits, struct error *err)
{
    *out = NULL;
    struct connections *connections = mem_calloc(1, sizeof *connections);
    if (!connections)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of connections");
    connections->pool = pool;
    connections->limits = *limits;
    pthread_mutex_init(&connections->lock, NULL);
    if (pipe2(connections->wake, O_CLOEXEC | O_NONBLOCK)) {
        free(connections);
        return error_set(err, ERROR_IO, "a pipe could not be made");
    }
    if (pthread_create(&connections->thread, NULL, connections_watch, connections)) {
        close(connections->wake[0]);
        close(connections->wake[1]);
        free(connections);
        return error_set(err, ERROR_IO, "the thread that watches connections could not be started");
    }
    *out = connections;
    return OK;
}

void connections_destroy(struct connections **connections)
{
    struct connections *old = *connections;
    *connections = NULL;
    if (!old)
        return;
    pthread_mutex_lock(&old->lock);
    old->stop = true;
    pthread_mutex_unlock(&old->lock);
    ssize_t written = write(old->wake[1], "", 1);
    (void)written; /* a full pipe wakes just as well */
    pthread_join(old->thread, NULL);
    for (int i = 0; i < old->linger_count; i++)
        close(old->lingering[i].fd);
    close(old->wake[0]);
    close(old->wake[1]);
    pthread_mutex_destroy(&old->lock);
    free(old);
}
