/* What runs a graph: the interface that vulkan/ and cpu/ implement. A backend works on whole plans of fixed shape.
 * Thread-safety: device_list may be called from any thread; a struct device and its plans belong to one thread at a
 * time, but for device_info, which may be called from any. */
#ifndef RUNTIME_BACKEND_BACKEND_H
#define RUNTIME_BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/nn/graph.h"

enum device_type { DEVICE_DISCRETE, DEVICE_INTEGRATED, DEVICE_VIRTUAL, DEVICE_CPU, DEVICE_SOFTWARE };

enum precision { PRECISION_AUTO, PRECISION_FP32, PRECISION_FP16 };

struct device_info {
    char id[32];   /* "vulkan:0", "cpu", "reference" */
    char uuid[40]; /* 8-4-4-4-12 hexadecimal digits, empty if none */
    char name[256];
    enum device_type type;
    char backend[16];
    char api_version[32], driver[256]; /* driver: name and version */
    bool usable;
    char reason[512];                     /* why it is not usable, or a remark (software Vulkan is slow) */
    uint64_t memory_total, memory_budget; /* bytes; budget: what this process may use of it */
    uint64_t memory_used, memory_peak;    /* bytes that this process allocated, by all its handles; the most of it */
    uint64_t memory_driver;               /* bytes in use by the driver's count; memory_used where it keeps none */
    uint64_t max_buffer_bytes;            /* the largest tensor that it takes */
    bool fp16, cooperative_matrix, int8;
    uint32_t subgroup_size;
    enum precision preferred; /* what PRECISION_AUTO means here: fp16 or fp32 */
    char precision_reason[96];
};

struct run_options {
    const atomic_int *cancel; /* not 0: stop as soon as it can and return ERROR_CANCELLED; may be NULL */
    uint64_t seed;            /* for OP_NOISE */
    uint32_t first_image;     /* for OP_NOISE */
};

struct device;
struct plan;

/* How many threads a device "cpu" that is opened from now on has, and a loop over pixels (thread.h); 0, as at the
 * start: the cores that this process may use. From any thread. */
void device_set_cpu_threads(int threads);
/* How many handles of the device "cpu" are to work at once, 1 at the start: with 0 threads they divide the cores. */
void device_set_cpu_handles(int handles);

/* What a test found about the device with this id, for every list and info from now on, also of devices that are open:
 * why it cannot be used, and why not in fp16; NULL: nothing against it. From any thread. */
void device_judge(const char *id, const char *unusable, const char *no_fp16);

/* The devices of all backends in the order of preference (discrete, integrated, virtual, cpu, software; then as
 * enumerated). The plain C oracle, "reference", is not listed. *list is the caller's to free(); it may be NULL with a
 * count of 0. */
enum error_code device_list(struct device_info **list, size_t *count, struct error *err) MUST_CHECK;

/* How a client names one of the devices: by id, UUID, name, or a part of the name that no other has, of at least two
 * characters with a letter; case-insensitive. The index, or -1: none, or (*fits > 1) several. */
int device_find(const struct device_info *list, size_t count, const char *wanted, size_t *fits);

/* What the error says at its end that a device is not there: where to read more, if it may be a GPU that is missing. */
const char *device_hint(const struct device_info *list, size_t count);

/* Opens by id ("vulkan:0", "cpu", "reference"), UUID or name (see device_find); NULL or
 * "auto": the first usable in the list that is not software. ERROR_NOT_FOUND names those that there are. cache_dir:
 * where compiled pipelines are kept; NULL: nowhere. */
enum error_code device_open(struct device **out, const char *which, const char *cache_dir,
                            struct error *err) MUST_CHECK;
void device_close(struct device **device);
void device_info(const struct device *device, struct device_info *out);

/* Plans a graph for the device: places its tensors, packs its params (once a device for each struct param, shared by
 * all plans), records its commands. precision AUTO is what the device prefers. name: for the log and errors. The graph
 * may be destroyed afterwards, its params may not, until device_forget_params. Errors: UNSUPPORTED names an operator or
 * feature that the device lacks; TOO_LARGE or NO_MEMORY when a tensor or the whole does not fit: try a smaller shape.
 */
enum error_code plan_create(struct plan **out, struct device *device, const struct graph *graph,
                            enum precision precision, const char *name, struct error *err) MUST_CHECK;
void plan_destroy(struct plan **plan);

/* Runs the plan once and waits for it. inputs[], outputs[]: host memory, float32, dense NCHW, in the graph's order.
 * ERROR_CANCELLED, ERROR_DEVICE_LOST, ERROR_DEVICE. */
enum error_code plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                         const struct run_options *options, struct error *err) MUST_CHECK;

/* Device bytes that only this plan holds (its arena and staging). */
uint64_t plan_bytes(const struct plan *plan);

/* Makes every later run of the plan take the time of each node, which costs some: a node waits for the one before it.
 * UNSUPPORTED on a device that cannot. */
enum error_code plan_profile(struct plan *plan, struct error *err) MUST_CHECK;

/* How long the last run, which was OK, kept the device: ms from when its inputs lay there to when its outputs did;
 * negative where the device cannot tell. node_ms[the graph's node_count]: of each node, 0 where its time was not taken;
 * may be NULL. */
double plan_ms(const struct plan *plan, double *node_ms);

/* Frees what the device packed of these params. No plan that uses them may be left. */
void device_forget_params(struct device *device, const struct param *const *params, size_t count);

/* --- for backends alone ------------------------------------------------------------------------------------------- */

struct backend {
    const char *name;
    /* Appends this backend's devices to a growing array. A backend that finds no driver adds nothing and is OK. */
    enum error_code (*list)(struct device_info **list, size_t *count, struct error *err);
    enum error_code (*open)(struct device **out, const struct device_info *info, const char *cache_dir,
                            struct error *err);
    void (*close)(struct device *device);
    void (*info)(const struct device *device, struct device_info *out);
    enum error_code (*plan_create)(struct plan **out, struct device *device, const struct graph *graph,
                                   enum precision precision, const char *name, struct error *err);
    void (*plan_destroy)(struct plan *plan);
    enum error_code (*plan_run)(struct plan *plan, const float *const *inputs, float *const *outputs,
                                const struct run_options *options, struct error *err);
    uint64_t (*plan_bytes)(const struct plan *plan);
    enum error_code (*plan_profile)(struct plan *plan, struct error *err); /* this and the next: both, or NULL */
    double (*plan_ms)(const struct plan *plan, double *node_ms);
    void (*forget_params)(struct device *device, const struct param *const *params, size_t count);
};

/* Every backend's struct device and struct plan begins with these. */
struct device {
    const struct backend *backend;
};
struct plan {
    const struct backend *backend;
    struct device *device;
};

/* What all handles of one device have allocated in this process. */
struct backend_account {
    char id[32];
    int handles;
    _Atomic uint64_t used, peak;
};

/* The account of the device with this id; close it with the handle. With the first handle its peak begins anew. */
struct backend_account *backend_account_open(const char *id);
void backend_account_close(struct backend_account *account);
/* From any thread. */
void backend_account_add(struct backend_account *account, uint64_t bytes);
void backend_account_remove(struct backend_account *account, uint64_t bytes);

extern const struct backend vk_backend;                     /* runtime/vulkan */
extern const struct backend cpu_backend;                    /* runtime/cpu/cpu_device.c: native code */
extern atomic_int backend_cpu_threads, backend_cpu_handles; /* as device_set_cpu_threads was told */
extern const struct backend cpu_ref_backend;                /* runtime/cpu/cpu_ref.c: plain C, the oracle */

#endif
