#include "tests/common/restoration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "tests/common/models.h"
#include "tests/common/shared.h"

void restoration_open_worker(struct worker_context *worker, const char *device, struct model_store *store)
{
    struct error err = ERROR_INIT;
    log_set_level(LOG_ERROR);
    *worker = (struct worker_context){.store = store};
    if (device_open(&worker->device, device, NULL, &err) ||
        model_set_create(&worker->models, worker->store, worker->device, &err))
        fail_msg("%s", err.text);
}

void restoration_close_worker(struct worker_context *worker)
{
    model_set_destroy(&worker->models);
    model_store_destroy(&worker->store);
    device_close(&worker->device);
}

struct worker_context restoration_worker;

int restoration_begin(void **state)
{
    (void)state;
    restoration_open_worker(&restoration_worker, "cpu", models_of_fixtures());
    return 0;
}

int restoration_end(void **state)
{
    (void)state;
    restoration_close_worker(&restoration_worker);
    return 0;
}

struct restoration *restoration_of(struct file *input, const char *picture, const char *const *options)
{
    char path[512];
    struct error err = ERROR_INIT;
    struct restoration *r;
    snprintf(path, sizeof path, "%s/%s", shared_fixtures(), picture);
    file_unmap(input);
    if (restoration_create(&r, &err) || file_map(input, path, &err))
        fail_msg("%s", err.text);
    r->input = input->data;
    r->input_bytes = input->size;
    for (; *options; options += 2)
        if (options_set(&r->options, options[0], options[1], &err))
            fail_msg("%s", err.text);
    return r;
}
