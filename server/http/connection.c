#include "server/http/connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define TICK_MS 250
#define LINGER_MAX 32
#define LINGER_NS INT64_C(5000000000)
#define GONE_BATCH 64 /* hang-ups handled in one tick */

enum activity { READING, WAITING, SENDING };

struct connection {
    struct connections *all;
    struct connection *next, *previous;
    int fd;
    struct in6_addr address; /* IPv4 in its mapped form */
    enum activity activity;
    int64_t since_ns;
    struct job *job; /* while WAITING; a reference */
    bool gone, cut, linger;
};

struct lingering {
    int fd;
    int64_t until_ns;
};

struct connections {
    struct worker_pool *pool;
    int64_t request_ns;
    int per_address;
    pthread_t thread;
    int wake[2]; /* a pipe: ends the wait of the watching thread */
    pthread_mutex_t lock;
    struct connection *first;
    struct lingering lingering[LINGER_MAX];
    int linger_count;
    bool stop;
};

static struct in6_addr address_of(const struct sockaddr *address)
{
    struct in6_addr out = IN6ADDR_ANY_INIT;
    if (address && address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, address, sizeof six);
        out = six.sin6_addr;
    } else if (address && address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        out.s6_addr[10] = out.s6_addr[11] = 0xff;
        memcpy(out.s6_addr + 12, &four.sin_addr, 4);
    }
    return out;
}

static bool is_loopback(const struct in6_addr *address)
{
    return IN6_IS_ADDR_LOOPBACK(address) || (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
}

bool connections_admit(struct connections *connections, const struct sockaddr *address)
{
    struct in6_addr from = address_of(address);
    if (is_loopback(&from))
        return true;
    int count = 0;
    pthread_mutex_lock(&connections->lock);
    for (struct connection *at = connections->first; at; at = at->next)
        count += !memcmp(&at->address, &from, sizeof from);
    pthread_mutex_unlock(&connections->lock);
    return count < connections->per_address;
}

struct connection *connection_open(struct connections *connections, int fd, const struct sockaddr *address)
{
    struct connection *connection = mem_calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->all = connections;
    connection->fd = fd;
    connection->address = address_of(address);
    connection->since_ns = job_now();
    pthread_mutex_lock(&connections->lock);
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

static void change(struct connection *connection, enum activity activity, struct job *job)
{
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    struct job *old = connection->job;
    connection->activity = activity;
    connection->since_ns = job_now();
    connection->job = job ? job_hold(job) : NULL;
    if (activity != SENDING)
        connection->gone = false;
    pthread_mutex_unlock(&connection->all->lock);
    job_release(&old);
}

void connection_reading(struct connection *connection)
{
    change(connection, READING, NULL);
}

void connection_waiting(struct connection *connection, struct job *job)
{
    change(connection, WAITING, job);
}

void connection_sending(struct connection *connection)
{
    change(connection, SENDING, NULL);
}

void connection_linger(struct connection *connection, bool linger)
{
    if (!connection)
        return;
    pthread_mutex_lock(&connection->all->lock);
    connection->linger = linger;
    pthread_mutex_unlock(&connection->all->lock);
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

/* Under the lock. Ends the connection's traffic; libmicrohttpd sees that and closes it. */
static void cut(struct connection *connection)
{
    connection->cut = true;
    shutdown(connection->fd, SHUT_RDWR);
}

int connections_close_idle(struct connections *connections)
{
    int left = 0;
    pthread_mutex_lock(&connections->lock);
    for (struct connection *at = connections->first; at; at = at->next)
        if (at->activity != READING)
            left++;
        else if (!at->cut)
            cut(at);
    pthread_mutex_unlock(&connections->lock);
    return left;
}

/* Under the lock. A half-closed socket counts as a hang-up: from here the two look the same. */
static bool hung_up(const struct connection *connection)
{
    struct pollfd fd = {.fd = connection->fd, .events = POLLRDHUP};
    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static void look(struct connections *connections)
{
    struct job *gone[GONE_BATCH];
    int count = 0;
    int64_t now = job_now();
    pthread_mutex_lock(&connections->lock);
    for (struct connection *at = connections->first; at; at = at->next) {
        if (at->activity == WAITING) {
            if (!at->gone && count < GONE_BATCH && hung_up(at)) {
                at->gone = true;
                gone[count++] = job_hold(at->job);
            }
        } else if (!at->cut && now - at->since_ns > connections->request_ns) {
            log_event(LOG_INFO, "slow-client", "activity=%s", at->activity == READING ? "reading" : "sending");
            cut(at);
        }
    }
    pthread_mutex_unlock(&connections->lock);
    /* outside of the lock: a job that only waited ends here, and its end resumes the connection */
    for (int i = 0; i < count; i++) {
        worker_pool_cancel(connections->pool, gone[i], ERROR_CANCELLED);
        job_release(&gone[i]);
    }
}

/* Reads one lingering socket empty; true while there may be more to come. */
static bool drain(const struct lingering *lingering, int64_t now)
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

static void *watch(void *argument)
{
    struct connections *connections = argument;
    int64_t looked = 0;
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
        poll(fds, (nfds_t)count + 1, TICK_MS);
        char bytes[64];
        ssize_t drained = fds[0].revents ? read(connections->wake[0], bytes, sizeof bytes) : 0;
        (void)drained; /* only to empty the pipe */
        int64_t now = job_now();
        pthread_mutex_lock(&connections->lock);
        stop = connections->stop;
        for (int i = connections->linger_count - 1; i >= 0; i--) {
            struct pollfd fd = {.fd = connections->lingering[i].fd, .events = POLLIN};
            bool ready = poll(&fd, 1, 0) > 0;
            if (ready ? (fd.revents & POLLERR) || !drain(&connections->lingering[i], now)
                      : now >= connections->lingering[i].until_ns) {
                close(connections->lingering[i].fd);
                connections->lingering[i] = connections->lingering[--connections->linger_count];
            }
        }
        pthread_mutex_unlock(&connections->lock);
        if (now - looked >= TICK_MS * INT64_C(1000000)) {
            looked = now;
            look(connections);
            worker_pool_expire(connections->pool);
        }
    }
    return NULL;
}

enum error_code connections_create(struct connections **out, struct worker_pool *pool, int request_seconds,
                                   int per_address, struct error *err)
{
    *out = NULL;
    struct connections *connections = mem_calloc(1, sizeof *connections);
    if (!connections)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of connections");
    connections->pool = pool;
    connections->request_ns = (int64_t)request_seconds * 1000000000;
    connections->per_address = per_address;
    pthread_mutex_init(&connections->lock, NULL);
    if (pipe2(connections->wake, O_CLOEXEC | O_NONBLOCK)) {
        free(connections);
        return error_set(err, ERROR_IO, "a pipe could not be made");
    }
    if (pthread_create(&connections->thread, NULL, watch, connections)) {
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
