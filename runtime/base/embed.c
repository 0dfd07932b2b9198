#include "runtime/base/embed.h"

#include <string.h>

struct embed_entry {
    const char *name;
    const uint8_t *start, *end;
};

extern const struct embed_entry embed_table[]; /* made by tools/embed.sh; ends with a NULL name */

const uint8_t *embed_find(const char *name, size_t *size)
{
    for (const struct embed_entry *e = embed_table; e->name; e++) {
        if (strcmp(e->name, name) == 0) {
            *size = (size_t)(e->end - e->start);
            return e->start;
        }
    }
    return NULL;
}
