#include "runtime/base/embed.h"

#include <string.h>

/* Made by tools/embed.sh; each ends with a NULL name. Programs without starter models (the tests) link no such
 * table. */
extern const struct embed_file embed_table[];
extern const struct embed_file embed_starter_table[] __attribute__((weak));

const uint8_t *embed_find(const char *name, size_t *size)
{
    for (const struct embed_file *file = embed_table; file->name; file++) {
        if (strcmp(file->name, name) == 0) {
            *size = (size_t)(file->end - file->start);
            return file->start;
        }
    }
    return NULL;
}

const struct embed_file *embed_starters(void)
{
    static const struct embed_file none[1];
    return embed_starter_table ? embed_starter_table : none;
}
