/* Lists the devices, finds one by its name and opens it. Calls fault.c, which calls backend.c, which calls host_run.c,
 * never the other way round. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/backend/backend.h"
#include "runtime/backend/fault.h"

static const struct backend *const backends[] = {&vk_backend, &cpu_backend};
#define BACKEND_COUNT (sizeof backends / sizeof backends[0])

static int device_order(const void *a, const void *b)
{
    const struct device_info *x = a, *y = b;
    if (x->type != y->type)
        return (int)x->type - (int)y->type;
    return strverscmp(x->id, y->id); /* "vulkan:2" before "vulkan:10" */
}

/* The devices of all backends, or of one. */
static enum error_code device_list_of(const struct backend *only, struct device_info **list, size_t *count,
                                      struct error *err)
{
    *list = NULL;
    *count = 0;
    for (size_t b = 0; b < BACKEND_COUNT; b++) {
        enum error_code code = only && only != backends[b] ? OK : backends[b]->list(list, count, err);
        if (code) {
            free(*list);
            *list = NULL;
            *count = 0;
            return code;
        }
    }
    for (size_t i = 0; i < *count; i++)
        backend_judged(&(*list)[i]);
    if (*count)
        qsort(*list, *count, sizeof **list, device_order);
    return OK;
}

enum error_code device_list(struct device_info **list, size_t *count, struct error *err)
{
    return device_list_of(NULL, list, count, err);
}

/* For the CPU, graphics drivers need not be loaded, which take some 45 MiB, and half of the time that the program needs
 * before its first picture. */
enum error_code device_list_for(const char *wanted, struct device_info **list, size_t *count, struct error *err)
{
    const bool cpu = wanted && strcasecmp(wanted, "cpu") == 0;
    return device_list_of(cpu ? &cpu_backend : NULL, list, count, err);
}

static const struct backend *device_backend_named(const char *name)
{
    for (size_t b = 0; b < BACKEND_COUNT; b++)
        if (strcmp(backends[b]->name, name) == 0)
            return backends[b];
    return NULL;
}

enum error_code device_loader(char *out, size_t size, struct error *err)
{
    return vk_backend.loader(out, size, err);
}

enum error_code device_probe(const char *backend, struct error *err)
{
    return device_backend_named(backend)->probe(err);
}

/* So that a stray digit does not match a device whose name happens to contain it. */
static bool device_is_fragment(const char *text)
{
    return strlen(text) >= 2 && strpbrk(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

int device_find(const struct device_info *list, size_t count, const char *wanted, size_t *fits)
{
    int found = -1;
    *fits = 0;
    for (size_t i = 0; *wanted && i < count; i++)
        if (!strcasecmp(list[i].id, wanted) || !strcasecmp(list[i].uuid, wanted) || !strcasecmp(list[i].name, wanted))
            return (int)i;
    for (size_t i = 0; device_is_fragment(wanted) && i < count; i++) {
        if (!strcasestr(list[i].name, wanted))
            continue;
        found = (int)i;
        ++*fits;
    }
    return *fits == 1 ? found : -1;
}

const char *device_hint(const struct device_info *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].type != DEVICE_CPU && list[i].type != DEVICE_SOFTWARE)
            return "";
    return "; restored doctor says why a GPU is missing";
}

static void device_names(const struct device_info *list, size_t count, char *out, size_t size)
{
    size_t used = 0;
    snprintf(out, size, "none");
    for (size_t i = 0; i < count && used < size; i++) {
        int n = snprintf(out + used, size - used, "%s%s (%s)", i ? ", " : "", list[i].id, list[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
}

enum error_code device_open(struct device **out, const char *which, const char *cache_dir, struct error *err)
{
    *out = NULL;
    if (which && strcmp(which, "reference") == 0) {
        struct device_info info = {.id = "reference"};
        enum error_code opened = cpu_ref_backend.open(out, &info, cache_dir, err);
        return opened ? opened : fault_open(out, err);
    }
    struct device_info *list;
    size_t count;
    enum error_code code = device_list_for(which, &list, &count, err);
    if (code)
        return code;
    const struct device_info *chosen = NULL;
    char names[400];
    device_names(list, count, names, sizeof names);
    if (which && *which && strcasecmp(which, "auto") != 0) {
        size_t fits;
        const int found = device_find(list, count, which, &fits);
        chosen = found >= 0 ? &list[found] : NULL;
        if (!chosen)
            code =
                error_set(err, ERROR_NOT_FOUND,
                          fits                 ? "\"%.64s\" fits several devices; the devices are: %s"
                          : strchr(which, ',') ? "one device works here, and \"%.64s\" is a list; the devices are: %s"
                                               : "there is no device \"%.64s\"; the devices are: %s%s",
                          which, names, device_hint(list, count));
        else if (!chosen->usable)
            code = error_set(err, ERROR_DEVICE, "device %s (%s) cannot be used: %s", chosen->id, chosen->name,
                             chosen->reason);
    } else {
        for (size_t i = 0; i < count && !chosen; i++)
            if (list[i].usable && list[i].type != DEVICE_SOFTWARE)
                chosen = &list[i];
        if (!chosen)
            code = error_set(err, ERROR_NOT_FOUND,
                             "no usable device; the devices are: %s. Install a Vulkan driver "
                             "(Debian: mesa-vulkan-drivers); software Vulkan has to be named",
                             names);
    }
    if (!code)
        code = device_backend_named(chosen->backend)->open(out, chosen, cache_dir, err);
    free(list);
    if (!code)
        code = fault_open(out, err);
    return code;
}
