#include "server/store/payload.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "server/store/store.h"

void payload_input_name(char out[PAYLOAD_NAME_MAX], const char *id)
{
    snprintf(out, PAYLOAD_NAME_MAX, "in/%.32s", id);
}

void payload_output_name(char out[PAYLOAD_NAME_MAX], const char *id, int attempts)
{
    snprintf(out, PAYLOAD_NAME_MAX, "out/%.32s/%d", id, attempts);
}

enum error_code payload_open(struct payload **out, const struct payload_settings *settings, struct error *err)
{
    const char *where = settings->where;
    const bool shared = store_is_shared(settings->store);
    *out = NULL;
    if (!strcmp(where, "spool") || (!strcmp(where, "auto") && !shared))
        return shared ? error_set(err, ERROR_INVALID,
                                  "payload = spool: other servers cannot read this one's spool; with store = "
                                  "postgresql:// the pictures go to rows, s3://… or a shared folder")
                      : OK;
    if (!shared)
        return error_set(err, ERROR_INVALID, "payload = %.80s needs store = postgresql://…", where);
    if (!strcmp(where, "auto") || !strcmp(where, "rows"))
        return payload_rows_open(out, settings, err);
    if (!strncmp(where, "s3://", 5))
        return payload_s3_open(out, settings, err);
    if (*where == '/')
        return payload_folder_open(out, settings, err);
    return error_set(err, ERROR_INVALID,
                     "payload = \"%.80s\" is not auto, spool, rows, s3://BUCKET/PREFIX or the path of a folder", where);
}

void payload_close(struct payload **payload)
{
    struct payload *old = *payload;
    *payload = NULL;
    if (old)
        old->engine->close(old);
}
