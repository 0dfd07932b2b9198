#include "server/image/plane_room.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#define PLANE_ROOM_COUNT 8
#define PLANE_ROOM_MOST ((uint64_t)96 << 20) /* bytes that are kept */
#define PLANE_ROOM_KEEP_MS 2000
#define PLANE_ROOM_DEATH_MS 1000 /* a process that has answered ends at once */

/* CLEAN ones wait for a picture, DIRTY ones for plane_room_clean. */
enum plane_room_state { PLANE_ROOM_CLEAN, PLANE_ROOM_BUSY, PLANE_ROOM_DIRTY };

struct plane_room_entry {
    struct plane_room room; /* first: a room is its entry */
    enum plane_room_state state;
    int planes, socket; /* socket -1: none */
    uint64_t used;      /* bytes at its beginning that may not be zero */
    double since;       /* clean */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct plane_room_entry *list[PLANE_ROOM_COUNT]; /* those that are kept, or were when a picture took them */
    bool cleans;                                     /* there is a thread for that */
} plane_rooms = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void plane_room_free(struct plane_room_entry *entry)
{
    if (entry->room.data)
        munmap(entry->room.data, entry->room.bytes);
    if (entry->room.fd >= 0)
        close(entry->room.fd);
    if (entry->socket >= 0)
        close(entry->socket);
    free(entry);
}

static struct plane_room_entry *plane_room_create(uint64_t bytes)
{
    struct plane_room_entry *entry = mem_calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    *entry = (struct plane_room_entry){.state = PLANE_ROOM_BUSY, .socket = -1, .used = bytes};
    entry->room = (struct plane_room){.fd = memfd_create("picture", MFD_CLOEXEC | MFD_ALLOW_SEALING), .bytes = bytes};
    if (entry->room.fd < 0 || fcntl(entry->room.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL)) {
        plane_room_free(entry);
        return NULL;
    }
    return entry;
}

void plane_room_fill(struct plane_room *room)
{
    if (room->data || !room->bytes || fallocate(room->fd, 0, 0, (off_t)room->bytes))
        return;
    void *data = mmap(NULL, room->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, room->fd, 0);
    room->data = data == MAP_FAILED ? NULL : data;
}

/* Under the lock: the smallest clean one that is large enough, but no waste. */
static struct plane_room_entry *plane_room_find(uint64_t bytes)
{
    struct plane_room_entry *best = NULL;
    for (int i = 0; i < PLANE_ROOM_COUNT; i++) {
        struct plane_room_entry *entry = plane_rooms.list[i];
        if (entry && entry->state == PLANE_ROOM_CLEAN && entry->room.bytes >= bytes &&
            (!best || entry->room.bytes < best->room.bytes))
            best = entry;
    }
    return best;
}

struct plane_room *plane_room_take(uint64_t bytes)
{
    pthread_mutex_lock(&plane_rooms.lock);
    struct plane_room_entry *entry = bytes ? plane_room_find(bytes) : NULL;
    if (entry) {
        entry->state = PLANE_ROOM_BUSY;
        entry->used = bytes;
    }
    pthread_mutex_unlock(&plane_rooms.lock);
    if (!entry)
        entry = plane_room_create(bytes);
    return entry ? &entry->room : NULL;
}

/* Under the lock. */
static void plane_room_forget(const struct plane_room_entry *entry)
{
    for (int i = 0; i < PLANE_ROOM_COUNT; i++)
        if (plane_rooms.list[i] == entry)
            plane_rooms.list[i] = NULL;
}

void plane_room_drop(struct plane_room *room)
{
    struct plane_room_entry *entry = (struct plane_room_entry *)room;
    if (!room)
        return;
    pthread_mutex_lock(&plane_rooms.lock);
    plane_room_forget(entry);
    pthread_mutex_unlock(&plane_rooms.lock);
    plane_room_free(entry);
}

/* The process that had the file has ended, and left nothing in it. */
static bool plane_room_scrub(const struct plane_room_entry *entry)
{
    struct pollfd end = {.fd = entry->socket};
    struct stat status;
    if (poll(&end, 1, PLANE_ROOM_DEATH_MS) != 1 || !(end.revents & POLLHUP) || fstat(entry->room.fd, &status))
        return false;
    const uint64_t size = (uint64_t)status.st_size;
    if (size > entry->room.bytes && fallocate(entry->room.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                              (off_t)entry->room.bytes, (off_t)(size - entry->room.bytes)))
        return false;
    memset(entry->room.data, 0, entry->used);
    return true;
}

/* Under the lock: one to clean, or to give back; NULL: none. wait: until when there may be one, ms; 0: for ever. */
static struct plane_room_entry *plane_room_next(double *wait)
{
    const double now = log_clock_ms();
    *wait = 0;
    for (int i = 0; i < PLANE_ROOM_COUNT; i++) {
        struct plane_room_entry *entry = plane_rooms.list[i];
        if (!entry || entry->state == PLANE_ROOM_BUSY)
            continue;
        if (entry->state == PLANE_ROOM_DIRTY || entry->since + PLANE_ROOM_KEEP_MS <= now)
            return entry;
        if (*wait == 0 || entry->since + PLANE_ROOM_KEEP_MS < *wait)
            *wait = entry->since + PLANE_ROOM_KEEP_MS;
    }
    return NULL;
}

static void plane_room_sleep(double until)
{
    struct timespec at;
    if (until == 0) {
        pthread_cond_wait(&plane_rooms.changed, &plane_rooms.lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &at);
    const double ms = until - log_clock_ms() + 1;
    const int64_t ns = at.tv_nsec + (int64_t)((ms > 1 ? ms : 1) * 1e6);
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&plane_rooms.changed, &plane_rooms.lock, &at);
}

static void *plane_room_thread(void *unused)
{
    thread_give_way();
    pthread_mutex_lock(&plane_rooms.lock);
    for (;;) {
        double wait;
        struct plane_room_entry *entry = plane_room_next(&wait);
        if (!entry) {
            plane_room_sleep(wait);
            continue;
        }
        const bool dirty = entry->state == PLANE_ROOM_DIRTY;
        entry->state = PLANE_ROOM_BUSY;
        pthread_mutex_unlock(&plane_rooms.lock);
        const bool clean = dirty && plane_room_scrub(entry);
        if (!clean) {
            plane_room_drop(&entry->room);
            entry = NULL;
        } else {
            close(entry->socket);
            entry->socket = -1;
        }
        pthread_mutex_lock(&plane_rooms.lock);
        if (entry) {
            entry->state = PLANE_ROOM_CLEAN;
            entry->since = log_clock_ms();
        }
    }
    return unused;
}

/* Under the lock: whether it is in the list, for which it may need a place. */
static bool plane_room_list(struct plane_room_entry *entry)
{
    uint64_t bytes = entry->room.bytes;
    int place = -1;
    for (int i = 0; i < PLANE_ROOM_COUNT; i++) {
        if (plane_rooms.list[i] == entry)
            return true;
        if (plane_rooms.list[i])
            bytes += plane_rooms.list[i]->room.bytes;
        else
            place = i;
    }
    pthread_t thread;
    if (place < 0 || bytes > PLANE_ROOM_MOST)
        return false;
    if (!plane_rooms.cleans && pthread_create(&thread, NULL, plane_room_thread, NULL))
        return false;
    if (!plane_rooms.cleans)
        pthread_detach(thread);
    plane_rooms.cleans = true;
    plane_rooms.list[place] = entry;
    return true;
}

void plane_room_hold(struct plane_room *room, int planes, int socket)
{
    struct plane_room_entry *entry = (struct plane_room_entry *)room;
    pthread_mutex_lock(&plane_rooms.lock);
    entry->planes = planes;
    entry->socket = socket;
    const bool listed = plane_room_list(entry);
    pthread_mutex_unlock(&plane_rooms.lock);
    if (listed)
        return;
    room->data = NULL; /* the picture unmaps its planes itself */
    plane_room_free(entry);
}

bool plane_room_leave(const void *plane)
{
    const uint8_t *at = plane;
    bool found = false;
    pthread_mutex_lock(&plane_rooms.lock);
    for (int i = 0; i < PLANE_ROOM_COUNT && !found; i++) {
        struct plane_room_entry *entry = plane_rooms.list[i];
        found = entry && entry->planes > 0 && at >= entry->room.data && at < entry->room.data + entry->room.bytes;
        if (found && --entry->planes == 0) {
            entry->state = PLANE_ROOM_DIRTY;
            pthread_cond_signal(&plane_rooms.changed);
        }
    }
    pthread_mutex_unlock(&plane_rooms.lock);
    return found;
}

uint64_t plane_room_kept(void)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&plane_rooms.lock);
    for (int i = 0; i < PLANE_ROOM_COUNT; i++)
        if (plane_rooms.list[i] && plane_rooms.list[i]->state == PLANE_ROOM_CLEAN)
            bytes += plane_rooms.list[i]->room.bytes;
    pthread_mutex_unlock(&plane_rooms.lock);
    return bytes;
}
