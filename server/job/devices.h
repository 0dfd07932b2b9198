/* The devices of this machine: which of them jobs run on, and what each is doing. The source of GET /v1/devices and of
 * the device metrics.
 * Thread-safety: every function may be called from any thread. */
#ifndef SERVER_JOB_DEVICES_H
#define SERVER_JOB_DEVICES_H

#include "runtime/selftest.h"
#include "server/job/engine.h"
#include "server/job/job.h"

enum device_state { DEVICE_IDLE, DEVICE_BUSY, DEVICE_LOST, DEVICE_DISABLED };

struct device_status {
    struct device_info info; /* with its current memory, and memory_peak since the start, while it is open */
    enum device_state state;
    char current_job[33];             /* of its running jobs the one that began first; "" when idle */
    uint64_t jobs_done, jobs_failed;  /* here; a job that was lost here and done elsewhere counts as failed here */
    uint64_t lost;                    /* times */
    double busy_seconds, utilisation; /* with at least one job at work; utilisation: 0..1 over the last minute */
    bool open;                        /* a worker has it */
    struct selftest test;
    bool is_default;  /* the first of those that run jobs which name no device */
    char reason[640]; /* why it does not run jobs that name no device; "": it does */
};

struct devices;

/* A table of these devices, which are in the order of preference; those beyond DEVICES_MAX are left out. */
enum error_code devices_create(struct devices **out, const struct device_info *list, size_t count,
                               struct error *err) MUST_CHECK;
void devices_destroy(struct devices **devices);

/* Chooses the devices for jobs that name none. wanted: "auto" or "", every usable device of the best kind available,
 * never software; or one device as device_find takes it; or several in the order of preference, separated by commas; or
 * "reference", the oracle, which then joins the table. Devices that are named here move to the front of the table, so
 * that their numbers are their ranks: call this before the numbers are used. ERROR_INVALID names the devices that
 * exist. */
enum error_code devices_choose(struct devices *devices, const char *wanted, struct error *err) MUST_CHECK;

/* The one device that a request names, by id, UUID or name. ERROR_INVALID: none fits, or more than one; the text says
 * which exist. ERROR_DEVICE_DISABLED: it cannot be used; the text says why. */
enum error_code devices_find(struct devices *devices, const char *wanted, int *device, struct error *err) MUST_CHECK;

/* Where a job that names no device may run after it was lost on those tried: the chosen devices; if all of them are
 * lost, also the next of the others in the order of preference, never software. 0: nowhere. */
uint32_t devices_route(struct devices *devices, uint32_t tried);

/* The chosen devices without those tried; 0: none is left. */
uint32_t devices_chosen(struct devices *devices, uint32_t tried);

/* The device's id; it lives as long as the table. */
const char *devices_id(const struct devices *devices, int device);

/* Its info, with current numbers if it is open. */
void devices_info(struct devices *devices, int device, struct device_info *out);

/* Records the result of its self-test; a device that failed is disabled. */
void devices_tested(struct devices *devices, int device, const struct selftest *test);

/* A worker has opened it, and its engine provides the current numbers until devices_down. */
void devices_up(struct devices *devices, int device, struct engine *engine);
/* The worker does not have it any more, or never had it: engine may be NULL. reason: why, or NULL when the worker
 * ends. */
void devices_down(struct devices *devices, int device, struct engine *engine, const char *reason);

/* A job begins and ends on the device. end: JOB_DONE, JOB_FAILED or JOB_CANCELLED, which counts as neither. */
void devices_begin(struct devices *devices, int device, const char *job_id);
void devices_end(struct devices *devices, int device, const char *job_id, enum job_state end);
void devices_count_lost(struct devices *devices, int device, unsigned times);

/* A copy of all rows in *list, which the caller frees with free(). ERROR_NO_MEMORY. */
enum error_code devices_read(struct devices *devices, struct device_status **list, size_t *count,
                             struct error *err) MUST_CHECK;

#endif
