/* The store that servers share: whether this machine reaches it, and can use what is there. Nothing of it is changed;
 * one small picture is put where pictures lie, read, and removed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <jansson.h>

#include "runtime/base/log.h"
#include "server/cli/doctor.h"
#include "server/job/job.h"
#include "server/store/payload.h"
#include "server/store/store.h"

#define STORE_TRIES 9
#define STORE_SLOW_MS 20
#define STORE_SEEN_MS 60000 /* servers tell of themselves more often than that */
#define STORE_PICTURE 65536

/* Without this no server of this configuration can work. */
static void store_problem(struct doctor *doctor, const char *why, const char *fix, const char *what,
                          const struct error *err)
{
    doctor->refused = true;
    doctor_add(doctor, DOCTOR_PROBLEM, why, fix, "%s: %s", what, err->text);
}

static int store_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum error_code store_check_latency(struct doctor *doctor, struct store *store, struct error *err)
{
    double ms[STORE_TRIES];
    for (int i = 0; i < STORE_TRIES; i++) {
        const double begin = log_clock_ms();
        const enum error_code code = store_sync_clock(store, err);
        if (code)
            return code;
        ms[i] = log_clock_ms() - begin;
    }
    qsort(ms, STORE_TRIES, sizeof *ms, store_compare);
    if (ms[STORE_TRIES / 2] > STORE_SLOW_MS)
        doctor_add(doctor, DOCTOR_NOTE, "a job waits for some dozen answers, so small pictures take longer",
                   "move the database nearer to the servers, or see what keeps it busy",
                   "the database answers in %.1f ms", ms[STORE_TRIES / 2]);
    else
        doctor_ok(doctor, "the database answers in %.1f ms", ms[STORE_TRIES / 2]);
    return OK;
}

struct store_servers {
    int workers, fronts;
};

/* A store_worker_fn. */
static void store_count_server(void *context, const char *owner, int64_t seen, const char *about)
{
    struct store_servers *servers = context;
    json_t *json = json_loads(about, 0, NULL);
    const char *role = json_string_value(json_object_get(json, "role"));
    (void)owner, (void)seen;
    servers->workers += json_is_true(json_object_get(json, "works"));
    servers->fronts += role && !strcmp(role, "front");
    json_decref(json);
}

static enum error_code store_check_servers(struct doctor *doctor, struct store *store, struct error *err)
{
    struct store_servers servers = {0};
    const enum error_code code =
        store_workers(store, store_clock(store) - STORE_SEEN_MS, store_count_server, &servers, err);
    if (code)
        return code;
    if (!servers.workers)
        doctor_add(doctor, DOCTOR_NOTE, "jobs wait until one comes, and /readyz of a front end answers 503",
                   "start a server with role = worker and this store",
                   "no worker was seen in the last minute (front ends: %d)", servers.fronts);
    else
        doctor_ok(doctor, "seen in the last minute: workers: %d, front ends: %d", servers.workers, servers.fronts);
    return OK;
}

/* A payload_take_fn. */
static enum error_code store_take(void *context, const void *data, size_t size, struct error *err)
{
    (void)data, (void)err;
    *(uint64_t *)context += size;
    return OK;
}

/* Under a name that no job has; what is left of it where this program is killed is swept as after a crash. It is removed
 * where putting failed, too: the answer may be what was lost. */
static enum error_code store_try_payload(struct payload *payload, struct error *err)
{
    char id[33], name[PAYLOAD_NAME_MAX];
    uint64_t read = 0;
    struct error ignored = ERROR_INIT;
    job_make_id(id);
    payload_input_name(name, id);
    const int fd = memfd_create("picture", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, STORE_PICTURE)) {
        if (fd >= 0)
            close(fd);
        return error_set(err, ERROR_NO_MEMORY, "no memory for a picture");
    }
    enum error_code code = payload->engine->put(payload, name, fd, STORE_PICTURE, err);
    if (!code)
        code = payload->engine->get(payload, name, store_take, &read, err);
    if (!code && read != STORE_PICTURE)
        code = error_set(err, ERROR_CORRUPT, "%llu of %d bytes came back", (unsigned long long)read, STORE_PICTURE);
    const enum error_code removed = payload->engine->remove(payload, name, code ? &ignored : err);
    close(fd);
    return code ? code : removed;
}

/* tables: those of the database are there, which rows need. */
static void store_check_payload(struct doctor *doctor, bool tables)
{
    const struct config *config = doctor->config;
    const struct payload_settings settings = {.where = config->payload,
                                              .store = config->store,
                                              .password_file = config->store_password_file,
                                              .brief = true};
    struct payload *payload = NULL;
    struct error err = ERROR_INIT;
    enum error_code code = payload_open(&payload, &settings, &err);
    const double begin = log_clock_ms();
    const bool tried = code || tables || strcmp(payload->engine->name, "rows") != 0;
    if (!code && tried)
        code = store_try_payload(payload, &err);
    if (code)
        store_problem(doctor, "pictures and results lie there until they are fetched",
                      "look at the setting payload, and at what this machine may do there",
                      "a picture could not be put there, read and removed", &err);
    else if (tried)
        doctor_ok(doctor, "a picture of 64 KiB was put into %s, read and removed in %.1f ms", payload->engine->name,
                  log_clock_ms() - begin);
    payload_close(&payload);
}

void doctor_store(struct doctor *doctor)
{
    const struct config *config = doctor->config;
    struct store *store = NULL;
    struct error err = ERROR_INIT;
    bool there;
    if (!store_is_shared(config->store))
        return;
    enum error_code code = store_look_shared(config->store, config->store_password_file, &there, &err);
    if (code) {
        store_problem(doctor, "jobs are accepted and claimed there, so that no server starts without it",
                      code == ERROR_UNSUPPORTED
                          ? "upgrade this program; where its tables are the older ones, restored store migrate, or "
                            "starting a server"
                          : "look at the settings store and store_password_file, and whether the database runs and lets "
                            "this machine in (pg_hba.conf)",
                      "the shared store cannot be used", &err);
        return;
    }
    if (!there) {
        doctor_add(doctor, DOCTOR_NOTE, "nothing has used this database yet",
                   "nothing, if that is so: the first server that starts makes its tables",
                   "the database is reached, and has no tables of ours");
        store_check_payload(doctor, false);
        return;
    }
    doctor_ok(doctor, "the database is reached, and its tables are up to date");
    code = store_open_shared(&store, config->store, config->store_password_file, &err);
    if (!code)
        code = store_check_latency(doctor, store, &err);
    if (!code)
        code = store_check_servers(doctor, store, &err);
    if (code)
        store_problem(doctor, "servers read and write there all the time", "see the database's log",
                      "the database failed", &err);
    else
        store_check_payload(doctor, true);
    store_close(&store);
}
