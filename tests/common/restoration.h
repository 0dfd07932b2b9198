/* What tests of the pipeline begin with: a restoration of a fixture. Failures end the cmocka test that calls.
 * Thread-safety: for one thread. */
#ifndef TESTS_COMMON_RESTORATION_H
#define TESTS_COMMON_RESTORATION_H

#include "runtime/base/file.h"
#include "server/pipeline/pipeline.h"

/* A worker of tests: the device and these models, which are the worker's now. */
void restoration_open_worker(struct worker_context *worker, const char *device, struct model_store *store);
void restoration_close_worker(struct worker_context *worker);

/* For a group of tests: a worker of the device cpu with the fixtures' models. */
extern struct worker_context restoration_worker;
int restoration_begin(void **state);
int restoration_end(void **state);

/* A restoration of the fixture picture with these options (name, value, ..., NULL). The file is mapped into input until
 * the next call, or file_unmap; what was mapped there before is let go. */
struct restoration *restoration_of(struct file *input, const char *picture, const char *const *options);

#endif
