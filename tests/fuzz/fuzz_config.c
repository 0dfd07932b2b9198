/* Any bytes as a configuration file: refused with file and line, or taken; and what --print-config would print of it is
 * taken again, with the same values. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/config_load.h"
#include "tests/fuzz/exercise.h"

static enum error_code load(struct config *config, const void *data, size_t size, struct error *err)
{
    char path[64];
    const int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    config_init(config);
    const enum error_code code = config_load(config, path, err);
    close(fd);
    return code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config first, second;
    struct error err = ERROR_INIT;
    char *text = NULL;
    size_t text_size = 0;
    const enum error_code code = load(&first, data, size, &err);
    if (code != err.code || (code && !*err.text))
        abort();
    if (code)
        return 0;
    FILE *out = open_memstream(&text, &text_size);
    if (!out)
        return 0;
    config_print(&first, NULL, out);
    if (fclose(out) || load(&second, text, text_size, &err))
        abort();
    for (size_t i = 0; config_key(i); i++)
        if (!config_equal(&first, &second, i))
            abort();
    free(text);
    exercise_opened++;
    return 0;
}
