/* Which devices there are, whether they compute correctly, and which of them will do the work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/cli/cli.h"
#include "server/cli/doctor.h"
#include "server/http/json.h"

#define TRACE                                                                                                          \
    "fix what is listed above; if that does not help, VK_LOADER_DEBUG=all vulkaninfo --summary (of vulkan-tools) "     \
    "tells what the loader and the driver say"

static void doctor_check_device(struct doctor *doctor, const struct device_info *info)
{
    if (info->usable)
        doctor_ok(
            doctor,
            "%s: %s, %s, Vulkan %s, driver %s, %.1f GiB; fp16 %s, cooperative matrix %s, int8 %s, subgroups of %u",
            info->id, info->name, json_device_type_name(info->type), info->api_version, info->driver,
            (double)info->memory_total / 0x1p30, info->fp16 ? "yes" : "no", info->cooperative_matrix ? "yes" : "no",
            info->int8 ? "yes" : "no", info->subgroup_size);
    else
        doctor_add(doctor, DOCTOR_PROBLEM, "it lacks what our shaders need, so it is not used",
                   "install a newer driver; if that is the newest, this device cannot be used",
                   "%s: %s (Vulkan %s, driver %s) cannot be used: %s", info->id, info->name, info->api_version,
                   info->driver, info->reason);
}

/* A finding about Vulkan's list; if an environment variable hides drivers, that may be the reason. */
static void doctor_add_about_list(struct doctor *doctor, enum doctor_state state, const char *why, const char *fix,
                                  const char *found)
{
    const char *name = doctor_driver_variable();
    char both[512];
    snprintf(both, sizeof both, "%s%s%s%s", fix, name ? "; or unset " : "", name ? name : "",
             name ? ", which hides other drivers" : "");
    doctor_add(doctor, state, why, both, "%s", found);
}

void doctor_devices(struct doctor *doctor)
{
    struct error err = ERROR_INIT;
    struct device_info *list;
    size_t count;
    int software = 0;
    const bool works = doctor->loader && device_probe("vulkan", &err) == OK;
    if (doctor->loader && !works)
        doctor_add_about_list(doctor, DOCTOR_PROBLEM, "no graphics processor can be used through Vulkan", TRACE,
                              err.text);
    if (device_list(&list, &count, &err)) {
        doctor_add(doctor, DOCTOR_PROBLEM, "nothing can be computed", "try again", "%s", err.text);
        return;
    }
    for (size_t i = 0; i < count && doctor->device_count < DEVICES_MAX; i++) {
        doctor->devices[doctor->device_count++] = list[i];
        if (strcmp(list[i].backend, "vulkan"))
            continue;
        doctor_check_device(doctor, &list[i]);
        if (list[i].type == DEVICE_SOFTWARE)
            software++;
        else
            doctor->vulkan_count++;
    }
    free(list);
    if (doctor->vulkan_count)
        return;
    if (doctor->vendor)
        doctor_add_about_list(doctor, DOCTOR_PROBLEM, "the graphics processor is there and nothing uses it", TRACE,
                              "the PCI bus has a graphics processor, but Vulkan lists none");
    else if (software)
        doctor_add_about_list(
            doctor, DOCTOR_NOTE,
            "software Vulkan computes on the processor, many times slower than the device cpu does; it is used "
            "only when asked for by name",
            "nothing, if this machine has no graphics processor; else install its driver",
            "Vulkan has software devices alone");
    else if (works)
        doctor_add_about_list(doctor, DOCTOR_NOTE, "Vulkan can do nothing here", doctor_driver_advice(doctor),
                              "Vulkan lists no device");
}

void doctor_selftests(struct doctor *doctor)
{
    char storage[1024], fix[400];
    const char *cache = config_cache_dir(doctor->config, storage, sizeof storage);
    for (int i = 0; i < doctor->device_count; i++) {
        const struct device_info *info = &doctor->devices[i];
        struct selftest *test = &doctor->tests[i];
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

/* "cpu (NAME), in fp32" */
static void doctor_describe(const struct doctor *doctor, const struct device_info *info, char *out, size_t size)
{
    const enum precision set = doctor->config->precision, used = set == PRECISION_AUTO ? info->preferred : set;
    snprintf(out, size, "%s (%s), in %s", info->id, info->name, used == PRECISION_FP16 ? "fp16" : "fp32");
}

/* The best device that passed its self-test; NULL if none did. */
static const struct device_info *doctor_best_that_passed(const struct doctor *doctor)
{
    for (int i = 0; i < doctor->device_count; i++)
        if (doctor->devices[i].usable && doctor->tests[i].fp32.state == SELFTEST_PASSED)
            return &doctor->devices[i];
    return NULL;
}

/* Says that no work can be done, and which device could do it. reason: why the configuration cannot be followed, or
 * "". */
static void doctor_add_no_device(struct doctor *doctor, bool by_itself, const char *reason)
{
    const struct device_info *left = doctor_best_that_passed(doctor);
    const bool software = left && left->type == DEVICE_SOFTWARE;
    char fix[512];
    snprintf(doctor->summary, sizeof doctor->summary, "No work can be done: %s",
             *reason      ? reason
             : !by_itself ? "the device that the configuration asks for cannot be used"
             : software   ? "no device can be used but software Vulkan, which works only when it is named"
                          : "no device can be used");
    if (software)
        snprintf(fix, sizeof fix, "fix what is listed above; meanwhile --device %s works (software Vulkan, slow)",
                 left->id);
    else
        snprintf(fix, sizeof fix, "%s",
                 by_itself || !left ? "fix what is listed above" : "set device to auto, or to one that can be used");
    doctor_add(doctor, DOCTOR_PROBLEM, "nothing can be restored", fix, "%s", doctor->summary);
}

void doctor_choice(struct doctor *doctor)
{
    const char *wanted = doctor->config->device;
    const bool by_itself = !*wanted || !strcasecmp(wanted, "auto");
    struct device_status *list = NULL;
    size_t count = 0, used = 0;
    enum device_type type = DEVICE_CPU;
    struct error err = ERROR_INIT;
    char chosen[600] = "", row[320];
    if (cli_devices_read(doctor->config, doctor->tests, (size_t)doctor->device_count, &list, &count, &err) == OK)
        for (size_t i = 0; i < count; i++) {
            if (list[i].is_default)
                snprintf(doctor->chosen, sizeof doctor->chosen, "%s", list[i].info.id);
            if (*list[i].reason || used >= sizeof chosen)
                continue;
            type = list[i].info.type;
            doctor_describe(doctor, &list[i].info, row, sizeof row);
            int n = snprintf(chosen + used, sizeof chosen - used, "%s%s", used ? " and " : "", row);
            used += n > 0 ? (size_t)n : 0;
        }
    if (!*doctor->chosen) {
        doctor_add_no_device(doctor, by_itself, err.code ? err.text : "");
    } else {
        snprintf(doctor->summary, sizeof doctor->summary, "\"%.128s\" is %s: %s.", by_itself ? "auto" : wanted, chosen,
                 !by_itself           ? "the configuration asks for it"
                 : type == DEVICE_CPU ? "there is no graphics processor that can be used"
                                      : "the best kind there is, in the order discrete, integrated, virtual, cpu");
        doctor_ok(doctor, "%s", doctor->summary);
    }
    for (size_t i = 0; i < count; i++)
        if (*list[i].reason)
            doctor_ok(doctor, "%s is not used: %s", list[i].info.id, list[i].reason);
    free(list);
}
