#include "server/cli/cli_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/log.h"
#include "runtime/selftest.h"

/* The devices that may still do it, as bits. */
static uint32_t cli_engine_left(const struct cli_engine *engine)
{
    const bool any = !*engine->wanted || !strcasecmp(engine->wanted, "auto");
    return any ? devices_route(engine->devices, engine->tried) : devices_chosen(engine->devices, engine->tried);
}

static enum error_code cli_engine_open_device(struct cli_engine *engine, int device, struct error *err)
{
    const char *id = devices_id(engine->devices, device);
    struct selftest test;
    struct device *open = NULL;
    struct error local = ERROR_INIT;
    enum error_code code = selftest_open(&open, id, engine->cache_dir, &test, &local);
    devices_tested(engine->devices, device, &test);
    if (test.fp32.state == SELFTEST_FAILED)
        return error_set(err, ERROR_DEVICE, "device %s cannot be used: %s", id, test.fp32.reason);
    if (test.fp16.state == SELFTEST_FAILED)
        log_event(LOG_WARN, "self-test", "device=%s fp16=failed reason=\"%s\"", id, test.fp16.reason);
    if (code)
        return error_set(err, code, "%s", local.text);
    code = engine_create(&engine->engine, id, engine->cache_dir, engine->store, &open, err);
    if (!code) {
        engine_set_precision(engine->engine, engine->precision);
        engine_set_memory(engine->engine, engine->memory, 1);
    }
    return code;
}

/* Opens the first device that is left. err: why the last one of them could not be opened. */
static enum error_code cli_engine_open_next(struct cli_engine *engine, struct error *err)
{
    enum error_code code = error_set(err, ERROR_DEVICE, "there is no usable device; restored devices lists them");
    for (uint32_t devices; code && (devices = cli_engine_left(engine));) {
        const int device = __builtin_ctz(devices);
        error_clear(err);
        code = cli_engine_open_device(engine, device, err);
        if (!code)
            engine->device = device;
        else
            engine->tried |= UINT32_C(1) << device;
        if (code)
            log_event(LOG_ERROR, "device", "device=%s reason=\"%s\" detail=\"%s\"", devices_id(engine->devices, device),
                      err->text, err->detail);
    }
    return code;
}

enum error_code cli_engine_open(struct cli_engine *engine, const char *wanted, const char *cache_dir,
                                enum precision precision, uint64_t memory, struct model_store *store, struct error *err)
{
    struct device_info *list = NULL;
    size_t count = 0;
    *engine = (struct cli_engine){
        .wanted = wanted, .cache_dir = cache_dir, .precision = precision, .memory = memory, .store = store};
    enum error_code code = device_list_for(wanted, &list, &count, err);
    if (!code)
        code = devices_create(&engine->devices, list, count, err);
    free(list);
    if (!code)
        code = devices_choose(engine->devices, wanted, err);
    return code ? code : cli_engine_open_next(engine, err);
}

enum error_code cli_engine_run(struct cli_engine *engine, struct restoration *r, struct error *err)
{
    struct error local = ERROR_INIT, ignored = ERROR_INIT;
    enum error_code code;
    while ((code = engine_run(engine->engine, r, &local)) == ERROR_DEVICE_LOST) {
        struct engine *lost = engine->engine;
        struct device_info info;
        engine_info(lost, &info);
        engine->engine = NULL;
        engine->tried |= UINT32_C(1) << engine->device;
        if (cli_engine_open_next(engine, &ignored)) { /* the next picture tries this one again */
            engine->engine = lost;
            break;
        }
        engine_destroy(&lost);
        error_clear(&local);
        restoration_note(r, "device-changed", "%s was lost again, so another device restored this picture", info.id);
    }
    if (code) {
        error_set(err, code, "%s", local.text);
        error_detail(err, "%s", local.detail);
    }
    return code;
}

void cli_engine_close(struct cli_engine *engine)
{
    engine_destroy(&engine->engine);
    devices_destroy(&engine->devices);
}
