/* The devices of this machine and what each is doing: the source of GET /v1/devices and of the device metrics.
 * Thread-safety: every function may be called from any thread. */
#ifndef SERVER_JOB_DEVICES_H
#define SERVER_JOB_DEVICES_H

#include "server/job/job.h"

enum device_state { DEVICE_IDLE, DEVICE_BUSY, DEVICE_LOST, DEVICE_DISABLED };

struct device_status {
    struct device_info info;
    enum device_state state;
    char current_job[33]; /* "" when idle */
    uint64_t jobs_done, jobs_failed, lost;
    double busy_seconds, utilisation; /* utilisation: 0..1 over the last minute */
    bool is_default;                  /* the one that jobs run on that name none */
};

struct devices;

/* Lists the machine's devices once; none is OK. */
enum error_code devices_create(struct devices **out, struct error *err) MUST_CHECK;
void devices_destroy(struct devices **devices);

/* What a device_info alone says, for a program that runs no jobs. */
void devices_status_of(const struct device_info *info, struct device_status *out);

/* The id of the device a client asked for by id, UUID or name (exact, or a unique part of it, case-insensitive).
 * ERROR_INVALID names those there are. The oracle is no answer: it is not in the list. */
enum error_code devices_find(struct devices *devices, const char *wanted, char id[32], struct error *err) MUST_CHECK;

/* A worker has opened it (again), or has fresh numbers of its memory. A device not in the list joins it. */
void devices_update(struct devices *devices, const struct device_info *info);
void devices_set_default(struct devices *devices, const char *id);

/* A job begins and ends on the device. end: JOB_DONE, JOB_FAILED or JOB_CANCELLED, which counts as neither. */
void devices_begin(struct devices *devices, const char *id, const char *job_id);
void devices_end(struct devices *devices, const char *id, const char *job_id, int64_t started_ns, enum job_state end);

/* It was lost and could not be opened again; devices_update brings it back. */
void devices_mark_lost(struct devices *devices, const char *id);
/* It was lost; counts it. */
void devices_count_loss(struct devices *devices, const char *id);

/* A copy of all rows into *list, free() it. ERROR_NO_MEMORY. */
enum error_code devices_read(struct devices *devices, struct device_status **list, size_t *count,
                             struct error *err) MUST_CHECK;

#endif
