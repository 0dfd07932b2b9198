/* What this process takes of the machine, as the system counts it.
 * Thread-safety: a function without state. */
#ifndef SERVER_PROCESS_H
#define SERVER_PROCESS_H

#include <stdint.h>

struct process_usage {
    double cpu_seconds;             /* of all threads, in the program and in the kernel */
    double started_seconds;         /* since 1970, UTC */
    uint64_t resident, virtual;     /* bytes */
    uint64_t open_files, max_files; /* descriptors; max: the soft limit, UINT64_MAX for none */
};

/* What the system does not tell (no /proc) is 0. */
struct process_usage process_read(void);

#endif
