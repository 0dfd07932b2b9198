/* How much of this machine the process may use. Every function reads the system's files below `root` ("" except in
 * tests).
 * Thread-safety: functions without state. */
#ifndef RUNTIME_BASE_MACHINE_H
#define RUNTIME_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* The number of cores that this process may use: `affinity` (0: what the scheduler says), but no more than the cgroup's
 * share of processor time, rounded up (version 2: cpu.max, version 1: cpu.cfs_quota_us; of its own group and those
 * above it). At least 1. */
int machine_threads(const char *root, int affinity);

/* Bytes of memory: the machine's, or the cgroup's limit if that is lower; and how many of them are not in use. */
void machine_memory(const char *root, uint64_t *total, uint64_t *available);

/* The processor's model name. */
void machine_name(const char *root, char *out, size_t size);

#endif
