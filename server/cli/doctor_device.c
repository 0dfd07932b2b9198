/* The devices that there are, whether they compute rightly, and which of them work will run on. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/vulkan/vk_device.h"
#include "server/cli/doctor.h"
#include "server/http/json.h"
#include "server/job/devices.h"

#define TRACE                                                                                                          \
    "mend what stands above; if nothing does, VK_LOADER_DEBUG=all vulkaninfo --summary (of vulkan-tools) tells what "  \
    "the loader and the driver say"

static void check_device(struct doctor *doctor, const struct device_info *info)
{
    if (info->usable)
        doctor_ok(
            doctor,
            "%s: %s, %s, Vulkan %s, driver %s, %.1f GiB; fp16 %s, cooperative matrix %s, int8 %s, subgroups of %u",
            info->id, info->name, json_device_type_name(info->type), info->api_version, info->driver,
            (double)info->memory_total / 0x1p30, info->fp16 ? "yes" : "no", info->cooperative_matrix ? "yes" : "no",
            info->int8 ? "yes" : "no", info->subgroup_size);
    else
        doctor_add(doctor, DOCTOR_PROBLEM, "our shaders need what it lacks, so it is not used",
                   "install a newer driver; if that is the newest, this device cannot be used",
                   "%s: %s (Vulkan %s, driver %s) cannot be used: %s", info->id, info->name, info->api_version,
                   info->driver, info->reason);
}

void doctor_devices(struct doctor *doctor)
{
    struct error err = ERROR_INIT;
    struct device_info *list;
    size_t count;
    int software = 0;
    const bool works = doctor->loader && vk_device_probe(&err) == OK;
    if (doctor->loader && !works)
        doctor_add(doctor, DOCTOR_PROBLEM, "no graphics processor can be used through Vulkan", TRACE, "%s", err.text);
    if (device_list(&list, &count, &err)) {
        doctor_add(doctor, DOCTOR_PROBLEM, "nothing can be computed", "try again", "%s", err.text);
        return;
    }
    for (size_t i = 0; i < count && doctor->device_count < DOCTOR_DEVICES; i++) {
        doctor->devices[doctor->device_count++].info = list[i];
        if (strcmp(list[i].backend, "vulkan"))
            continue;
        check_device(doctor, &list[i]);
        if (list[i].type == DEVICE_SOFTWARE)
            software++;
        else
            doctor->vulkan_count++;
    }
    free(list);
    if (doctor->vulkan_count)
        return;
    if (doctor->vendor)
        doctor_add(doctor, DOCTOR_PROBLEM, "the graphics processor is there and nothing uses it", TRACE,
                   "the PCI bus has a graphics processor, but Vulkan lists none");
    else if (software)
        doctor_add(doctor, DOCTOR_NOTE,
                   "software Vulkan computes on the processor, many times slower than the device cpu does; it is used "
                   "only when asked for by name",
                   "nothing, if this machine has no graphics processor; else install its driver",
                   "Vulkan has software devices alone");
    else if (works)
        doctor_add(doctor, DOCTOR_NOTE, "Vulkan can do nothing here", doctor_driver_advice(doctor),
                   "Vulkan lists no device");
}

void doctor_selftests(struct doctor *doctor)
{
    char storage[1024], fix[400];
    const char *cache = config_cache_dir(doctor->config, storage, sizeof storage);
    for (int i = 0; i < doctor->device_count; i++) {
        const struct device_info *info = &doctor->devices[i].info;
        struct selftest *test = &doctor->devices[i].test;
        if (!info->usable)
            continue; /* said above */
        selftest_run(info->id, cache, test);
        if (info->type == DEVICE_CPU)
            snprintf(fix, sizeof fix, "run this again, and test the memory (memtester); if it stays, report it");
        else
            snprintf(fix, sizeof fix, "update the driver (it is %.200s) and run this again; if it stays, report it",
                     info->driver);
        if (test->fp32.state != SELFTEST_PASSED)
            doctor_add(doctor, DOCTOR_PROBLEM,
                       "a device that computes wrongly makes black, gray or garbled pictures, so it is not used", fix,
                       "%s failed: %s", info->id, test->fp32.reason);
        else if (test->fp16.state == SELFTEST_PASSED)
            doctor_ok(
                doctor,
                "%s passed: largest error %.1e of the range in fp32 (allowed: %.0e), %.1e in fp16 (%.0e); %.0f ms",
                info->id, test->fp32.max_error, SELFTEST_BOUND_FP32, test->fp16.max_error, SELFTEST_BOUND_FP16,
                test->ms);
        else
            doctor_ok(doctor, "%s passed: largest error %.1e of the range in fp32 (allowed: %.0e); %.0f ms", info->id,
                      test->fp32.max_error, SELFTEST_BOUND_FP32, test->ms);
        if (test->fp16.state == SELFTEST_FAILED)
            doctor_add(doctor, DOCTOR_NOTE,
                       "in fp16 faces would come out gray or black, so it is used in fp32, at about half the speed",
                       fix, "%s failed in fp16: %s", info->id, test->fp16.reason);
    }
}

/* The devices that are not used, into text. */
static void passed_over(const struct doctor *doctor, char *text, size_t size)
{
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < doctor->device_count && used < size; i++) {
        const struct device_info *info = &doctor->devices[i].info;
        const bool failed = doctor->devices[i].test.fp32.state == SELFTEST_FAILED;
        if (info->usable && !failed)
            continue;
        int n =
            snprintf(text + used, size - used, "; %s %s", info->id, failed ? "failed its self-test" : "cannot be used");
        used += n > 0 ? (size_t)n : 0;
    }
}

/* Where jobs run that name no device, as bits, by the rules of the server; the devices into *list, free() it. 0:
 * nowhere, and why. */
static uint32_t choose(const char *wanted, struct device_info **list, bool *as_wanted, struct error *err)
{
    struct devices *devices = NULL;
    size_t count = 0;
    uint32_t routes = 0;
    *list = NULL;
    if (!device_list(list, &count, err) && !devices_create(&devices, *list, count, err) &&
        !devices_choose(devices, wanted, err)) {
        routes = devices_route(devices, 0);
        *as_wanted = routes & devices_chosen(devices, 0);
        if (!routes)
            error_set(err, ERROR_DEVICE, "there is no usable device");
    }
    devices_destroy(&devices);
    return routes;
}

void doctor_choice(struct doctor *doctor)
{
    const char *wanted = doctor->config->device;
    const bool by_itself = !*wanted || !strcasecmp(wanted, "auto");
    struct device_info *list;
    struct error err = ERROR_INIT;
    bool as_wanted = false;
    char others[240], also[200] = "";
    passed_over(doctor, others, sizeof others);
    const uint32_t routes = choose(wanted, &list, &as_wanted, &err);
    if (!routes) {
        snprintf(doctor->summary, sizeof doctor->summary, "No work can be done: %s", err.text);
        doctor_add(doctor, DOCTOR_PROBLEM, "nothing can be restored",
                   by_itself ? "mend what stands above" : "set device to auto, or to a device that is there", "%s",
                   err.text);
        free(list);
        return;
    }
    const struct device_info *info = &list[__builtin_ctz(routes)];
    for (int i = __builtin_ctz(routes) + 1; i < DEVICES_MAX; i++)
        if (routes >> i & 1)
            snprintf(also + strlen(also), sizeof also - strlen(also), ", %s", list[i].id);
    snprintf(doctor->chosen, sizeof doctor->chosen, "%s", info->id);
    const char *why = !by_itself && !as_wanted   ? "what the configuration asks for cannot be used"
                      : !by_itself               ? "the configuration asks for it"
                      : info->type == DEVICE_CPU ? "there is no graphics processor that can be used"
                                                 : "the best kind of discrete, integrated, virtual that there is";
    snprintf(doctor->summary, sizeof doctor->summary, "\"%.200s\" is %s (%s)%s, in %s: %s%s.",
             by_itself ? "auto" : wanted, info->id, info->name, also,
             info->preferred == PRECISION_FP16 ? "fp16" : "fp32", why, others);
    free(list);
    if (by_itself || as_wanted)
        doctor_ok(doctor, "%s", doctor->summary);
    else
        doctor_add(doctor, DOCTOR_PROBLEM, "the server works on another device than it was meant to",
                   "mend what stands above, or set device to auto", "%s", doctor->summary);
}
