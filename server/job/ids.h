/* A list of jobs' ids that grows.
 * Thread-safety: a list belongs to one thread at a time. */
#ifndef SERVER_JOB_IDS_H
#define SERVER_JOB_IDS_H

#include <stddef.h>

struct ids { /* zeroed: empty; free(ids) */
    char (*ids)[33];
    size_t count, room;
};

/* context: the struct ids. When memory is out the id is left out. */
void ids_add(void *context, const char *id);

#endif
