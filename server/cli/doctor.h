/* What may prevent a device, the configuration, or the store that servers share, from being used: checks of this
 * machine, each after those that it depends on. A check adds findings: the facts and, where something is wrong, why
 * that matters and what to do. Thread-safety: for the main thread. */
#ifndef SERVER_CLI_DOCTOR_H
#define SERVER_CLI_DOCTOR_H

#include "runtime/backend/backend.h"
#include "runtime/selftest.h"
#include "server/config.h"
#include "server/job/devices.h"

enum doctor_state { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_PROBLEM };

struct finding {
    const char *check; /* the name of the check that found it */
    enum doctor_state state;
    char found[1024];
    char why[512], fix[640]; /* "" where all is well */
};

#define DOCTOR_FINDINGS 128

struct doctor {
    const char *root; /* put before the system's paths, except for libraries; "" except in tests */
    const struct config *config;
    const char *check; /* the running one */
    struct finding findings[DOCTOR_FINDINGS];
    int count;
    unsigned vendor;  /* of a graphics processor on the PCI bus, else 0 */
    bool loader;      /* the Vulkan loader is there */
    int vulkan_count; /* devices that Vulkan has, software left out */
    struct device_info devices[DEVICES_MAX];
    struct selftest tests[DEVICES_MAX]; /* of the devices */
    int device_count;
    char chosen[32];    /* the device that will do the work, "" if there is none */
    char summary[1024]; /* one sentence: which and why */
    bool refused;       /* no server can work with this configuration, or with the shared store that it names */
};

struct doctor_check {
    const char *name;  /* of findings */
    const char *title; /* for people */
    void (*run)(struct doctor *doctor);
};

/* The checks in their order, ended by one without a name; each relies on those before it. */
extern const struct doctor_check doctor_checks[];

/* Runs one check. */
void doctor_run(struct doctor *doctor, const struct doctor_check *check);

/* Adds that something is all right, or a finding with its reason and what to do; format: what was found. */
void doctor_ok(struct doctor *doctor, const char *format, ...) __attribute__((format(printf, 2, 3)));
void doctor_add(struct doctor *doctor, enum doctor_state state, const char *why, const char *fix, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

/* The environment variable that limits the Vulkan loader to certain drivers; NULL if none is set. */
const char *doctor_driver_variable(void);

/* How to get a Vulkan driver for the hardware on the PCI bus. */
const char *doctor_driver_advice(const struct doctor *doctor);

/* The checks. doctor_hardware.c: */
void doctor_gpu(struct doctor *doctor);
void doctor_nodes(struct doctor *doctor);
void doctor_cpu(struct doctor *doctor);
/* doctor_driver.c: */
void doctor_loader(struct doctor *doctor);
void doctor_drivers(struct doctor *doctor);
/* doctor_device.c: */
void doctor_devices(struct doctor *doctor);
void doctor_selftests(struct doctor *doctor);
void doctor_choice(struct doctor *doctor);
/* doctor_config.c: */
void doctor_config(struct doctor *doctor);
/* doctor_store.c: */
void doctor_store(struct doctor *doctor);

#endif
