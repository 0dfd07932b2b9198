/* The self-test of a device: 1+2=3, then two small networks with stored answers, in fp32 and, where the device has it,
 * in fp16, and in fp32 in a plan of fp16, with fp32's bound. The first has every operator up to NOISE of op.h, the
 * second the later ones, the other activations, and kernels of up to 17×17; software Vulkan, which would compile for 10
 * s more, is not asked for it. A device that computes wrongly must not touch a picture, and fp16 is used only where its
 * measured error is small. Thread-safety: selftest_open and selftest_run may be called from any thread; selftest_device
 * by the one that the device belongs to. */
#ifndef RUNTIME_SELFTEST_H
#define RUNTIME_SELFTEST_H

#include "runtime/backend/backend.h"

/* Largest errors allowed, relative to the answers' range. Working devices are at 4e-7 and 8e-4. */
#define SELFTEST_BOUND_FP32 1e-4
#define SELFTEST_BOUND_FP16 1e-2

enum selftest_state { SELFTEST_NOT_RUN, SELFTEST_PASSED, SELFTEST_FAILED };

struct selftest_figure {
    enum selftest_state state;
    double max_error;     /* relative to the answers' range; INFINITY when a value was not finite, 0 without values */
    enum error_code code; /* why it could not be run; OK if it was */
    char reason[256];     /* why it failed or was not run, else "" */
};

struct selftest {
    struct selftest_figure fp32; /* failed: the device must not be used */
    struct selftest_figure fp16; /* failed: the device must be used in fp32 */
    double ms;                   /* all of it, opening the device included */
};

/* "not run", "passed", "failed". */
const char *selftest_state_name(enum selftest_state state);

/* Tests an open device. It may be lost afterwards. */
void selftest_device(struct device *device, struct selftest *out);

/* Opens the device with this id or name, tests it, and tells the backend the result (device_judge), so that the device
 * is not opened again if it failed, and computes in fp32 if only its fp16 failed. It stays open unless it failed: then
 * the error is ERROR_DEVICE, or device_open's, and *out is NULL. cache_dir: as for device_open; with it, the test's
 * pipelines are compiled only once. */
enum error_code selftest_open(struct device **out, const char *id, const char *cache_dir, struct selftest *test,
                              struct error *err) MUST_CHECK;

/* The same, but closes the device afterwards. A device that cannot be opened has failed. */
void selftest_run(const char *id, const char *cache_dir, struct selftest *out);

#endif
