/* Payloads as objects of a bucket:
 *   payload = s3://BUCKET/PREFIX?endpoint=https://HOST&region=NAME&style=host&credentials=FILE&ca=FILE
 * What a crash leaves behind is removed by a rule of the bucket, since no job tells of it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/store/payload.h"
#include "server/store/s3.h"

struct objects {
    struct payload payload;
    struct s3 *s3;
};

static enum error_code objects_put(struct payload *payload, const char *name, int fd, uint64_t size, struct error *err)
{
    const struct s3_source source = {.fd = fd, .size = size};
    return s3_put(((struct objects *)payload)->s3, name, &source, err);
}

/* Between the two kinds of functions that take bytes. */
struct objects_taker {
    payload_take_fn *take;
    void *context;
    enum error_code code;
    struct error *err;
};

static bool objects_take(void *context, const void *data, size_t size)
{
    struct objects_taker *taker = context;
    taker->code = taker->take(taker->context, data, size, taker->err);
    return !taker->code;
}

static enum error_code objects_get(struct payload *payload, const char *name, payload_take_fn *take, void *context,
                                   struct error *err)
{
    struct objects_taker taker = {.take = take, .context = context, .err = err};
    struct error why = ERROR_INIT;
    const enum error_code code = s3_get(((struct objects *)payload)->s3, name, 0, 0, NULL, objects_take, &taker, &why);
    if (taker.code)
        return taker.code;
    return code ? error_copy(err, code, &why) : OK;
}

static enum error_code objects_remove(struct payload *payload, const char *name, struct error *err)
{
    return s3_delete(((struct objects *)payload)->s3, name, err);
}

static void objects_close(struct payload *payload)
{
    struct objects *objects = (struct objects *)payload;
    s3_close(&objects->s3);
    free(objects);
}

static void objects_hurry(struct payload *payload)
{
    s3_hurry(((struct objects *)payload)->s3);
}

static const struct payload_engine objects_engine = {.name = "s3",
                                                     .put = objects_put,
                                                     .get = objects_get,
                                                     .remove = objects_remove,
                                                     .hurry = objects_hurry,
                                                     .close = objects_close};

/* Reads "name=value&…", which it cuts up. */
static enum error_code objects_options(char *text, struct s3_settings *out, struct error *err)
{
    char *rest = NULL;
    for (char *name = strtok_r(text, "&", &rest); name; name = strtok_r(NULL, "&", &rest)) {
        char *value = strchr(name, '=');
        if (value)
            *value++ = 0;
        else
            value = "";
        if (!strcmp(name, "endpoint"))
            out->endpoint = value;
        else if (!strcmp(name, "region"))
            out->region = value;
        else if (!strcmp(name, "credentials"))
            out->credentials = value;
        else if (!strcmp(name, "ca"))
            out->ca_file = value;
        else if (!strcmp(name, "style") && (!strcmp(value, "host") || !strcmp(value, "path")))
            out->host_style = !strcmp(value, "host");
        else
            return error_set(err, ERROR_INVALID,
                             "payload: \"%s=%s\" is none of endpoint=URL, region=NAME, style=path or host, "
                             "credentials=FILE, ca=FILE",
                             name, value);
    }
    return OK;
}

enum error_code payload_s3_open(struct payload **out, const struct payload_settings *settings, struct error *err)
{
    struct s3_settings s3 = {0};
    struct objects *objects = mem_calloc(1, sizeof *objects);
    char *text = objects ? strdup(settings->where + strlen("s3://")) : NULL;
    *out = NULL;
    if (!text) {
        free(objects);
        return error_set(err, ERROR_NO_MEMORY, "no memory for payloads");
    }
    char *options = strchr(text, '?');
    if (options)
        *options++ = 0;
    char *prefix = strchr(text, '/');
    if (prefix)
        *prefix++ = 0;
    s3.bucket = text;
    s3.prefix = prefix;
    if (settings->brief) {
        s3.stall_seconds = 5;
        s3.tries = 2;
    }
    objects->payload.engine = &objects_engine;
    enum error_code code = options ? objects_options(options, &s3, err) : OK;
    if (!code)
        code = s3_open(&objects->s3, &s3, err);
    free(text);
    if (code)
        objects_close(&objects->payload);
    else
        *out = &objects->payload;
    return code;
}
