#include "tests/common/shared.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *shared_path(const char *format, ...)
{
    static char paths[8][1024];
    static unsigned next;
    char *path = paths[next++ % 8];
    const char *root = getenv("RESTORED_SHARED");
    int used = snprintf(path, sizeof paths[0], "%s/", root ? root : "../shared");
    va_list args;
    va_start(args, format);
    vsnprintf(path + used, sizeof paths[0] - (size_t)used, format, args);
    va_end(args);
    return path;
}

bool shared_present(void)
{
    return access(shared_path("golden/README.md"), R_OK) == 0;
}

const char *shared_fixtures(void)
{
    const char *path = getenv("RESTORED_FIXTURES");
    return path ? path : "build/fixtures";
}
