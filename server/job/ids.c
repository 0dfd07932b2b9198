#include "server/job/ids.h"

#include <stdio.h>
#include <stdlib.h>

void ids_add(void *context, const char *id)
{
    struct ids *ids = context;
    if (ids->count == ids->room) {
        const size_t room = ids->room ? 2 * ids->room : 64;
        void *grown = realloc(ids->ids, room * sizeof *ids->ids);
        if (!grown)
            return;
        ids->ids = grown;
        ids->room = room;
    }
    snprintf(ids->ids[ids->count++], sizeof *ids->ids, "%s", id);
}
