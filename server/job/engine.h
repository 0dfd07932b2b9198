/* A device with its models, ready to run restorations; opened anew once when the device is lost under a job.
 * Thread-safety: an engine belongs to one thread at a time, but for engine_info, which may be called from any. */
#ifndef SERVER_JOB_ENGINE_H
#define SERVER_JOB_ENGINE_H

#include "server/pipeline/pipeline.h"

struct engine;

/* Opens the device (id, UUID, name; "auto": the best). cache_dir: for compiled pipelines, or NULL. The store is
 * borrowed. device: takes over that handle of the device, which is open already; NULL, or *device NULL: opens one.
 * Errors are those of device_open. */
enum error_code engine_create(struct engine **out, const char *which, const char *cache_dir, struct model_store *store,
                              struct device **device, struct error *err) MUST_CHECK;
/* What restorations get that leave the precision open, where the device has it. AUTO, as at first: what it prefers. */
void engine_set_precision(struct engine *engine, enum precision precision);
void engine_destroy(struct engine **engine);

/* Puts the default models on the device and prepares it for pictures of usual sizes, so that the first job need not
 * wait for weights or pipelines. What has to be measured, on a device that the cache does not know yet, is begun for
 * the most usual size alone and left to engine_prepare for the others. The models' names into loaded ("" where there is
 * none). */
enum error_code engine_preload(struct engine *engine, char loaded[ROLE_COUNT][128], struct error *err) MUST_CHECK;

/* Whether anything is left to prepare, and the next piece of it, which may take seconds: for when there is no job. A
 * job that comes first does what it needs of it. The results are in the cache, for all times. */
bool engine_unprepared(const struct engine *engine);
enum error_code engine_prepare(struct engine *engine, struct error *err) MUST_CHECK;

/* Runs pipeline_compute for a restoration that has begun. A device that is lost is opened anew and the work done once
 * more, which becomes a note; lost again, or not to be opened, the error is ERROR_DEVICE_LOST, with the driver's reason
 * for its detail, and the next one tries to open it first. */
enum error_code engine_compute(struct engine *engine, struct restoration *r, struct error *err) MUST_CHECK;

/* What is called in the midst of engine_compute, when all of a restoration's work is on the device: it may call
 * engine_ahead with the next one, which engine_compute or engine_forget must get then. */
void engine_set_spare(struct engine *engine, void (*spare)(void *user), void *user);
void engine_ahead(struct engine *engine, struct restoration *r);
void engine_forget(struct engine *engine);

/* The whole restoration. */
enum error_code engine_run(struct engine *engine, struct restoration *r, struct error *err) MUST_CHECK;

/* How often the device was lost so far; whether it is there now. */
unsigned engine_losses(const struct engine *engine);
bool engine_usable(const struct engine *engine);

/* What device it is, with its numbers of now, or as it was last seen when it is lost. Waits for nothing. */
void engine_info(struct engine *engine, struct device_info *out);

#endif
