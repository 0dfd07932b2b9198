/* Payloads as objects of a bucket: not part of this program yet. */
#include "server/store/payload.h"

enum error_code payload_s3_open(struct payload **out, const struct payload_settings *settings, struct error *err)
{
    (void)settings;
    *out = NULL;
    return error_set(err, ERROR_UNSUPPORTED, "payload = s3://… is not supported by this version; use rows or a folder");
}
