/* A device with its models, ready to run restorations; opened again once when the device is lost during a job.
 * Thread-safety: an engine belongs to one thread at a time, except for engine_info, which any thread may call. */
#ifndef SERVER_JOB_ENGINE_H
#define SERVER_JOB_ENGINE_H

#include "server/pipeline/helpers.h"
#include "server/pipeline/pipeline.h"

struct engine;

/* Opens the device (id, UUID, name; "auto": the best). cache_dir: for compiled pipelines, or NULL. The store is
 * borrowed. device: an open handle of the device to take over; NULL, or *device NULL: opens one. Errors are those of
 * device_open. */
enum error_code engine_create(struct engine **out, const char *which, const char *cache_dir, struct model_store *store,
                              struct device **device, struct error *err) MUST_CHECK;
/* The precision of restorations that leave it open, if the device has it. AUTO, the default: what the device
 * prefers. */
void engine_set_precision(struct engine *engine, enum precision precision);
/* How many bytes the device may hold between jobs (0, the default: plan_cache_usual), and how many engines share it. */
void engine_set_memory(struct engine *engine, uint64_t bytes, int engines);
void engine_destroy(struct engine **engine);

/* Puts the default models on the device and prepares it for pictures of usual sizes, so that the first job need not
 * wait for weights or pipelines. On a device that the cache does not know yet, measurements begin for the most usual
 * size only and are left to engine_prepare for the others. The models' names go into loaded ("" where there is
 * none). */
enum error_code engine_preload(struct engine *engine, char loaded[ROLE_COUNT][128], struct error *err) MUST_CHECK;

/* Whether anything is left to prepare; and prepares the next piece, which may take seconds, so call it when there is no
 * job. A job that comes earlier prepares what it needs. The results stay in the cache for good. */
bool engine_unprepared(const struct engine *engine);
enum error_code engine_prepare(struct engine *engine, struct error *err) MUST_CHECK;

/* When there is no job: gives back what was not used for keep_ms, on the device and on the host; and, after
 * ENGINE_REST_MS without a job, what the next job gets again within some ms: empty buffers, and what malloc holds.
 * After ENGINE_EASE_MS already, what of the buffers is beyond ENGINE_EASE_BYTES: pictures that need as much take long.
 * Returns in how many ms there is more to give back; negative: nothing is left. Where jobs never pause, engine_compute
 * gives back what malloc holds once in ENGINE_BUSY_MS: pictures of many sizes leave holes between what is kept. */
#define ENGINE_REST_MS 2000
#define ENGINE_EASE_MS 20
#define ENGINE_EASE_BYTES (UINT64_C(128) << 20)
#define ENGINE_BUSY_MS 60000
int engine_give_back(struct engine *engine, int64_t keep_ms);

/* Runs pipeline_compute for a restoration that has begun. A device that is lost is opened again and the work is done
 * once more, which becomes a note. If it is lost again or cannot be opened, the error is ERROR_DEVICE_LOST, with the
 * driver's reason as its detail, and the next restoration first tries to open it. */
enum error_code engine_compute(struct engine *engine, struct restoration *r, struct error *err) MUST_CHECK;

/* Sets what is called during engine_compute once all of a restoration's work is on the device: it may call engine_ahead
 * with the next one, which must then be passed to engine_compute or engine_forget. */
void engine_set_spare(struct engine *engine, void (*spare)(void *user), void *user);
void engine_ahead(struct engine *engine, struct restoration *r);
void engine_forget(struct engine *engine);

/* Who helps with the next restoration; NULL: nobody. */
void engine_set_helpers(struct engine *engine, const struct helpers *helpers);
/* Computes a tile of another server's, as tile_order_run. cancel: not 0: it stops. A lost device is opened again by the
 * next job. */
enum error_code engine_help(struct engine *engine, const struct tile_order *order, const struct model_entry *entry,
                            enum precision precision, const void *input, void *output, const atomic_int *cancel,
                            struct error *err) MUST_CHECK;

/* The whole restoration. */
enum error_code engine_run(struct engine *engine, struct restoration *r, struct error *err) MUST_CHECK;

/* How often the device has been lost; whether it is open now. */
unsigned engine_losses(const struct engine *engine);
bool engine_usable(const struct engine *engine);

/* The device's info, with current numbers, or as last seen when it is lost. Never waits. */
void engine_info(struct engine *engine, struct device_info *out);

#endif
