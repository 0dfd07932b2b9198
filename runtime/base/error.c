#include "runtime/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/utf8.h"

enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
{
    if (err && err->code == OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        utf8_clean(err->text); /* names of files and tensors are untrusted */
        err->code = code;
    }
    return code;
}

void error_local(struct error *err, const char *format, ...)
{
    if (!err)
        return;
    size_t used = strlen(err->text);
    if (!err->local)
        err->local = (int)used;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text + used, sizeof err->text - used, format, args);
    va_end(args);
    utf8_clean(err->text + used);
}

enum error_code error_copy(struct error *err, enum error_code code, const struct error *from)
{
    if (err && err->code == OK) {
        *err = *from;
        err->code = code;
    }
    return code;
}

void error_detail(struct error *err, const char *format, ...)
{
    if (!err)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(err->detail, sizeof err->detail, format, args);
    va_end(args);
}

const char *error_bytes(char out[ERROR_BYTES_MAX], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    for (; value >= 1024 && unit < 3; unit++)
        value /= 1024;
    if (bytes < 1024)
        snprintf(out, ERROR_BYTES_MAX, "%u bytes", (unsigned)bytes);
    else
        snprintf(out, ERROR_BYTES_MAX, "%.*f %s (%llu bytes)", value != (double)(uint64_t)value, value, units[unit],
                 (unsigned long long)bytes);
    return out;
}

void error_clear(struct error *err)
{
    if (err)
        memset(err, 0, sizeof *err);
}

const char *error_code_name(enum error_code code)
{
    static const char *const names[] = {
        [OK] = "ok",
        [ERROR_INVALID] = "invalid",
        [ERROR_NOT_FOUND] = "not-found",
        [ERROR_UNSUPPORTED] = "unsupported",
        [ERROR_CORRUPT] = "corrupt",
        [ERROR_TOO_LARGE] = "too-large",
        [ERROR_NO_MEMORY] = "no-memory",
        [ERROR_IO] = "io",
        [ERROR_DEVICE] = "device",
        [ERROR_DEVICE_LOST] = "device-lost",
        [ERROR_DEVICE_DISABLED] = "device-disabled",
        [ERROR_CANCELLED] = "cancelled",
        [ERROR_TIMEOUT] = "timeout",
        [ERROR_STALLED] = "stalled",
        [ERROR_TOO_SLOW] = "too-slow",
        [ERROR_BUSY] = "busy",
        [ERROR_FULL] = "full",
        [ERROR_INTERNAL] = "internal",
    };
    return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "unknown";
}
