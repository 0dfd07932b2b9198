/* Runs of pictures on a backend that takes only tensors: conversion, blending and checks on the host.
 * Thread-safety: as the device. */
#ifndef RUNTIME_BACKEND_HOST_RUN_H
#define RUNTIME_BACKEND_HOST_RUN_H

#include "runtime/backend/backend.h"

/* A whole run, by the backend's plan_run. */
enum error_code host_run(struct plan *plan, const struct run_io *run, struct run_result *result,
                         struct error *err) MUST_CHECK;

/* Frees the memory of a device's runs that is kept for the next one, if it is more than `keep` bytes. */
void host_run_give_back(struct device *device, uint64_t keep);

enum error_code host_run_canvas(struct canvas **out, const struct canvas_shape *shape, struct error *err) MUST_CHECK;

#endif
