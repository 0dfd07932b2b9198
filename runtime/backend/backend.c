#include "runtime/backend/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/backend/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"

static const struct backend *const backends[] = {&vk_backend, &cpu_backend};
#define BACKEND_COUNT (sizeof backends / sizeof backends[0])

atomic_int backend_cpu_threads, backend_cpu_handles = 1;

void device_set_cpu_threads(int threads)
{
    atomic_store(&backend_cpu_threads, threads);
    thread_set_count(threads);
}

void device_set_cpu_handles(int handles)
{
    atomic_store(&backend_cpu_handles, handles);
}

/* --- what tests found ----------------------------------------------------------------------------------------------
 */

static struct verdict {
    char id[32], unusable[512], no_fp16[96]; /* "" where there is nothing */
} verdicts[64];
static int verdict_count;
static pthread_mutex_t verdict_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. */
static struct verdict *verdict_find(const char *id)
{
    for (int i = 0; i < verdict_count; i++)
        if (strcmp(verdicts[i].id, id) == 0)
            return &verdicts[i];
    return NULL;
}

void device_judge(const char *id, const char *unusable, const char *no_fp16)
{
    pthread_mutex_lock(&verdict_lock);
    struct verdict *verdict = verdict_find(id);
    if (!verdict && verdict_count < (int)(sizeof verdicts / sizeof *verdicts))
        verdict = &verdicts[verdict_count++];
    if (verdict) {
        snprintf(verdict->id, sizeof verdict->id, "%s", id);
        snprintf(verdict->unusable, sizeof verdict->unusable, "%s", unusable ? unusable : "");
        snprintf(verdict->no_fp16, sizeof verdict->no_fp16, "%s", no_fp16 ? no_fp16 : "");
    }
    pthread_mutex_unlock(&verdict_lock);
}

static void verdict_apply(struct device_info *info)
{
    pthread_mutex_lock(&verdict_lock);
    const struct verdict *verdict = verdict_find(info->id);
    if (verdict && *verdict->unusable && info->usable) {
        info->usable = false;
        snprintf(info->reason, sizeof info->reason, "%s", verdict->unusable);
    }
    if (verdict && *verdict->no_fp16) {
        info->fp16 = false;
        info->preferred = PRECISION_FP32;
        snprintf(info->precision_reason, sizeof info->precision_reason, "%s", verdict->no_fp16);
    }
    pthread_mutex_unlock(&verdict_lock);
}

/* --- what is allocated ---------------------------------------------------------------------------------------------
 */

#define MAX_ACCOUNTS 64
static pthread_mutex_t accounts_lock = PTHREAD_MUTEX_INITIALIZER;
static struct backend_account accounts[MAX_ACCOUNTS];

struct backend_account *backend_account_open(const char *id)
{
    pthread_mutex_lock(&accounts_lock);
    int i = 0; /* the last one is for all that find no room, which no machine has */
    while (i < MAX_ACCOUNTS - 1 && *accounts[i].id && strcmp(accounts[i].id, id) != 0)
        i++;
    struct backend_account *account = &accounts[i];
    snprintf(account->id, sizeof account->id, "%s", id);
    if (account->handles++ == 0)
        atomic_store(&account->peak, atomic_load(&account->used));
    pthread_mutex_unlock(&accounts_lock);
    return account;
}

void backend_account_close(struct backend_account *account)
{
    pthread_mutex_lock(&accounts_lock);
    account->handles--;
    pthread_mutex_unlock(&accounts_lock);
}

void backend_account_add(struct backend_account *account, uint64_t bytes)
{
    const uint64_t used = atomic_fetch_add(&account->used, bytes) + bytes;
    uint64_t peak = atomic_load(&account->peak);
    while (used > peak && !atomic_compare_exchange_weak(&account->peak, &peak, used))
        ;
}

void backend_account_remove(struct backend_account *account, uint64_t bytes)
{
    atomic_fetch_sub(&account->used, bytes);
}

/* --- devices -------------------------------------------------------------------------------------------------------
 */

static int device_order(const void *a, const void *b)
{
    const struct device_info *x = a, *y = b;
    if (x->type != y->type)
        return (int)x->type - (int)y->type;
    return strverscmp(x->id, y->id); /* "vulkan:2" before "vulkan:10" */
}

/* The devices of all backends, or of one. */
static enum error_code list_devices(const struct backend *only, struct device_info **list, size_t *count,
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
        verdict_apply(&(*list)[i]);
    if (*count)
        qsort(*list, *count, sizeof **list, device_order);
    return OK;
}

enum error_code device_list(struct device_info **list, size_t *count, struct error *err)
{
    return list_devices(NULL, list, count, err);
}

static const struct backend *backend_by_name(const char *name)
{
    for (size_t b = 0; b < BACKEND_COUNT; b++)
        if (strcmp(backends[b]->name, name) == 0)
            return backends[b];
    return NULL;
}

/* So that a stray digit is not taken for a device whose name happens to have it. */
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
    /* Who wants the CPU need not load graphics drivers, which take some 45 MiB. */
    const bool cpu = which && strcasecmp(which, "cpu") == 0;
    enum error_code code = list_devices(cpu ? &cpu_backend : NULL, &list, &count, err);
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
        code = backend_by_name(chosen->backend)->open(out, chosen, cache_dir, err);
    free(list);
    if (!code)
        code = fault_open(out, err);
    return code;
}

void device_close(struct device **device)
{
    if (!*device)
        return;
    (*device)->backend->close(*device);
    *device = NULL;
}

void device_info(const struct device *device, struct device_info *out)
{
    device->backend->info(device, out);
    verdict_apply(out);
}

enum error_code plan_create(struct plan **out, struct device *device, const struct graph *graph,
                            enum precision precision, const char *name, struct error *err)
{
    *out = NULL;
    if (graph->error.code || graph->node_count == 0 || graph->output_count == 0)
        return error_set(err, ERROR_INTERNAL, "%s: the graph is not finished", name);
    struct device_info info;
    device_info(device, &info);
    if (precision == PRECISION_AUTO)
        precision = info.preferred;
    if (precision == PRECISION_FP16 && !info.fp16)
        return error_set(err, ERROR_INVALID, "device %s (%s) does not compute in fp16: %s; use precision fp32 or auto",
                         info.id, info.name, info.precision_reason);
    return device->backend->plan_create(out, device, graph, precision, name, err);
}

void plan_destroy(struct plan **plan)
{
    if (!*plan)
        return;
    (*plan)->backend->plan_destroy(*plan);
    *plan = NULL;
}

enum error_code plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                         const struct run_options *options, struct error *err)
{
    static const struct run_options none = {0};
    if (options && options->cancel && atomic_load(options->cancel))
        return error_set(err, ERROR_CANCELLED, "cancelled");
    return plan->backend->plan_run(plan, inputs, outputs, options ? options : &none, err);
}

uint64_t plan_bytes(const struct plan *plan)
{
    return plan->backend->plan_bytes(plan);
}

enum error_code plan_profile(struct plan *plan, struct error *err)
{
    if (!plan->backend->plan_profile)
        return error_set(err, ERROR_UNSUPPORTED, "the backend %s does not time single layers", plan->backend->name);
    return plan->backend->plan_profile(plan, err);
}

double plan_ms(const struct plan *plan, double *node_ms)
{
    return plan->backend->plan_ms ? plan->backend->plan_ms(plan, node_ms) : -1;
}

void device_forget_params(struct device *device, const struct param *const *params, size_t count)
{
    device->backend->forget_params(device, params, count);
}
