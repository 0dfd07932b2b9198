#include "server/job/depot.h"

#include <fcntl.h>
#include <unistd.h>

#include "runtime/base/log.h"

/* A payload_take_fn: into a file of the spool. */
static enum error_code depot_take(void *context, const void *data, size_t size, struct error *err)
{
    return spool_write(context, data, size, err);
}

/* A payload as a file of the spool without a name. */
static enum error_code depot_fetch(const struct depot *depot, const char *name, struct spool_file **out,
                                   struct error *err)
{
    enum error_code code = spool_create(depot->spool, out, err);
    if (!code)
        code = depot->payload->engine->get(depot->payload, name, depot_take, *out, err);
    if (code)
        spool_discard(out);
    return code;
}

enum error_code depot_put_input(const struct depot *depot, struct body *body, const char *id, struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    if (!depot->payload)
        return body_keep(body, depot->spool, id, err);
    payload_input_name(name, id);
    enum error_code code = body_to_file(body, depot->spool, err);
    if (!code)
        code = depot->payload->engine->put(depot->payload, name, spool_descriptor(body->file), body->size, err);
    if (!code)
        body_clear(body);
    return code;
}

enum error_code depot_get_input(const struct depot *depot, const char *id, struct body *out, struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    struct spool_file *file = NULL;
    if (!depot->payload)
        return body_kept(out, depot->spool, id, err);
    payload_input_name(name, id);
    *out = (struct body){.spool = depot->spool};
    struct error why = ERROR_INIT;
    const enum error_code code = depot_fetch(depot, name, &file, &why);
    if (!code) {
        out->file = file;
        out->size = (size_t)spool_size(file);
        return OK;
    }
    const bool gone = code == ERROR_NOT_FOUND || code == ERROR_CORRUPT;
    return error_copy(err, gone ? code : ERROR_BUSY, &why);
}

enum error_code depot_put_output(const struct depot *depot, const char *id, int attempts, struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    uint64_t size;
    int fd;
    if (!depot->payload)
        return OK;
    payload_output_name(name, id, attempts);
    enum error_code code = spool_read(depot->spool, id, SPOOL_OUTPUT, &fd, &size, err);
    if (code)
        return code;
    code = depot->payload->engine->put(depot->payload, name, fd, size, err);
    close(fd);
    return code;
}

void depot_settle(const struct depot *depot, const char *id)
{
    if (!depot->payload)
        return;
    spool_remove(depot->spool, id, SPOOL_OUTPUT);
    spool_remove(depot->spool, id, SPOOL_RECORD); /* one without its output is dropped at the next start */
}

enum error_code depot_get_output(const struct depot *depot, const char *id, int attempts, int *fd, uint64_t *size,
                                 struct error *err)
{
    char name[PAYLOAD_NAME_MAX];
    struct spool_file *file = NULL;
    *fd = -1;
    if (!depot->payload)
        return spool_read(depot->spool, id, SPOOL_OUTPUT, fd, size, err);
    payload_output_name(name, id, attempts);
    enum error_code code = depot_fetch(depot, name, &file, err);
    if (code)
        return code;
    *size = spool_size(file);
    *fd = fcntl(spool_descriptor(file), F_DUPFD_CLOEXEC, 0);
    if (*fd < 0)
        code = error_set(err, ERROR_IO, "a result cannot be read: %m");
    spool_discard(&file); /* its bytes stay as long as the descriptor */
    return code;
}

static void depot_remove(const struct depot *depot, const char *name)
{
    struct error local = ERROR_INIT;
    if (depot->payload->engine->remove(depot->payload, name, &local))
        log_event(LOG_WARN, "payload", "name=%s text=\"%s\" result=\"it is swept later\"", name, local.text);
}

void depot_remove_input(const struct depot *depot, const char *id)
{
    char name[PAYLOAD_NAME_MAX];
    payload_input_name(name, id);
    if (depot->payload)
        depot_remove(depot, name);
    else
        spool_remove(depot->spool, id, SPOOL_INPUT);
}

void depot_remove_output(const struct depot *depot, const char *id, int attempts)
{
    char name[PAYLOAD_NAME_MAX];
    if (!depot->payload) {
        spool_remove(depot->spool, id, SPOOL_OUTPUT);
        return;
    }
    for (int i = attempts ? attempts : 1; i <= (attempts ? attempts : DEPOT_ATTEMPTS); i++) {
        payload_output_name(name, id, i);
        depot_remove(depot, name);
    }
}
