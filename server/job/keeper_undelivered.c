/* Results that cannot be delivered while the database or the payloads are away: they stay on this server's disk, each
 * with a record of whose attempt it is, so that the next start can deliver them if nobody else has the job meanwhile.
 */
#include "server/job/keeper_state.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define RECORD_MOST ((size_t)64 << 20) /* bytes; a longer one is none of ours */

/* --- writing -------------------------------------------------------------------------------------------------------
 */

static char *undelivered_text(const struct keeper *keeper, const struct running *running)
{
    const struct store_job *row = &running->row;
    json_t *json =
        json_pack("{s:s, s:s, s:i, s:I, s:I, s:I, s:s*, s:s*}", "owner", keeper->owner, "token", row->token, "attempts",
                  row->attempts, "started", (json_int_t)row->started, "finished", (json_int_t)row->finished, "bytes",
                  (json_int_t)row->output_bytes, "report", row->report, "parts", row->parts);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

void keeper_note_undelivered(struct keeper *keeper, struct running *running)
{
    struct spool_file *file = NULL;
    struct error err = ERROR_INIT;
    if (!keeper->depot.payload || running->noted || !running->spooled || running->give_back ||
        running->row.state != STORE_DONE)
        return;
    running->noted = true; /* once: where the disk is full, the job is computed again after a restart */
    char *text = undelivered_text(keeper, running);
    enum error_code code = text ? OK : ERROR_NO_MEMORY;
    if (!code && running->row.output_bytes) /* it was only on its way until now */
        code = spool_save(keeper->spool, running->row.id, SPOOL_OUTPUT, &err);
    if (!code)
        code = spool_create(keeper->spool, &file, &err);
    if (!code)
        code = spool_write(file, text, strlen(text), &err);
    if (!code)
        code = spool_keep(keeper->spool, &file, running->row.id, SPOOL_RECORD, &err);
    if (code)
        log_event(LOG_WARN, "spool", "id=%s text=\"%s\" result=\"after a restart this job is computed again\"",
                  running->row.id, code == ERROR_NO_MEMORY ? "no memory to note an undelivered result" : err.text);
    spool_discard(&file);
    free(text);
}

void keeper_note_all(struct keeper *keeper)
{
    for (struct running *at = keeper->running; at; at = at->next)
        keeper_note_undelivered(keeper, at);
}

/* --- after a start -------------------------------------------------------------------------------------------------
 */

static char *undelivered_read(struct spool *spool, const char *id)
{
    struct error ignored = ERROR_INIT;
    uint64_t size = 0;
    int fd;
    if (spool_read(spool, id, SPOOL_RECORD, &fd, &size, &ignored))
        return NULL;
    char *text = size <= RECORD_MOST ? mem_alloc((size_t)size + 1, 1) : NULL;
    size_t at = 0;
    for (ssize_t n = 1; text && at < size && n;) {
        n = pread(fd, text + at, (size_t)size - at, (off_t)at);
        if (n < 0 && errno != EINTR)
            break;
        at += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (text)
        text[at] = 0;
    return text;
}

static char *undelivered_copy(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? strdup(text) : NULL;
}

/* A job of which such a record is there; NULL: it is none, or its result is gone. */
static struct running *undelivered_job(struct keeper *keeper, const char *id)
{
    struct error ignored = ERROR_INIT;
    uint64_t size = 0;
    int fd = -1;
    char *text = undelivered_read(keeper->spool, id);
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    const json_int_t bytes = json_integer_value(json_object_get(json, "bytes"));
    struct running *running = json ? mem_calloc(1, sizeof *running) : NULL;
    free(text);
    if (running) {
        struct store_job *row = &running->row;
        const char *owner = json_string_value(json_object_get(json, "owner"));
        const char *token = json_string_value(json_object_get(json, "token")); /* who may hear of its end */
        const bool here = !bytes || !spool_read(keeper->spool, id, SPOOL_OUTPUT, &fd, &size, &ignored);
        if (fd >= 0)
            close(fd);
        memcpy(row->id, id, sizeof row->id);
        snprintf(row->owner, sizeof row->owner, "%s", owner ? owner : "");
        snprintf(row->token, sizeof row->token, "%s", token ? token : "");
        row->state = STORE_DONE;
        row->attempts = (int)json_integer_value(json_object_get(json, "attempts"));
        row->started = json_integer_value(json_object_get(json, "started"));
        row->finished = json_integer_value(json_object_get(json, "finished"));
        row->output_bytes = bytes > 0 ? (uint64_t)bytes : 0;
        row->report = undelivered_copy(json, "report");
        row->parts = undelivered_copy(json, "parts");
        running->keeper = keeper;
        running->ended = running->spooled = running->noted = running->adopted = true;
        if (!here || !owner || !row->report || size != row->output_bytes)
            running_free(&running);
    }
    json_decref(json);
    return running;
}

/* A spool_file_fn. */
static void undelivered_add(void *context, const char *id, enum spool_kind kind)
{
    if (kind == SPOOL_RECORD)
        ids_add(context, id);
}

void keeper_gather_undelivered(struct keeper *keeper)
{
    struct ids ids = {0};
    spool_each(keeper->spool, undelivered_add, &ids);
    for (size_t i = 0; i < ids.count; i++) {
        struct running *running = undelivered_job(keeper, ids.ids[i]);
        if (!running) {
            log_event(LOG_WARN, "spool",
                      "id=%s text=\"a result of before the start is gone, or its record is damaged\"", ids.ids[i]);
            spool_remove(keeper->spool, ids.ids[i], SPOOL_RECORD); /* and its output, as one of nobody's */
            continue;
        }
        running->next = keeper->undelivered;
        keeper->undelivered = running;
    }
    free(ids.ids);
}

enum error_code keeper_adopt(struct keeper *keeper, int64_t now, struct error *err)
{
    enum error_code code = OK;
    for (struct running *at = keeper->undelivered; at && !code; at = at->next) {
        bool held = false;
        int attempts = 0;
        code = store_adopt(keeper->store, at->row.id, at->row.owner, at->row.attempts, keeper->owner,
                           now + KEEPER_LEASE_MS, &attempts, &held, err);
        at->lost = !held;
        at->adopts = attempts;
    }
    return code;
}

void keeper_adopted(struct keeper *keeper)
{
    struct running *at;
    while ((at = keeper->undelivered)) {
        if (at->lost) {
            log_event(LOG_WARN, "late",
                      "id=%s text=\"a result of before the start is dropped: its job is another "
                      "server's now, or has ended\"",
                      at->row.id);
            depot_settle(&keeper->depot, at->row.id);
            running_free(&keeper->undelivered);
            continue;
        }
        log_event(LOG_INFO, "spool", "id=%s text=\"a result of before the start is delivered now\"", at->row.id);
        keeper->undelivered = at->next;
        at->row.attempts = at->adopts;
        at->row.expires = store_clock(keeper->store) + keeper->settings.result_seconds * 1000;
        at->noted = false; /* it is this server's attempt now */
        keeper_note_undelivered(keeper, at);
        pthread_mutex_lock(&keeper->lock);
        at->next = keeper->running;
        keeper->running = at;
        keeper->running_count++;
        keeper_wake(keeper);
        pthread_mutex_unlock(&keeper->lock);
    }
}
