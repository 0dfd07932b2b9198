#include "runtime/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
{
    if (err && err->code == OK) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
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
        [ERROR_BUSY] = "busy",
        [ERROR_INTERNAL] = "internal",
    };
    return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "unknown";
}
