/* What runs a graph: the interface that vulkan/ and cpu/ implement. A backend works on whole plans of fixed shape.
 * Thread-safety: device_list may be called from any thread; a struct device and its plans belong to one thread at a
 * time, except for device_info, which any thread may call. */
#ifndef RUNTIME_BACKEND_BACKEND_H
#define RUNTIME_BACKEND_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/raster.h"
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
    uint64_t memory_total, memory_budget; /* bytes; budget: how much of it this process may use */
    uint64_t memory_used, memory_peak;    /* bytes of it that this process holds in all its handles; its peak */
    uint64_t memory_driver;               /* bytes in use as the driver counts them, else memory_used */
    uint64_t max_buffer_bytes;            /* the largest tensor that it can handle */
    bool fp16, cooperative_matrix, int8;
    uint32_t subgroup_size;
    enum precision preferred; /* what PRECISION_AUTO means here: fp16 or fp32 */
    char precision_reason[96];
    bool asynchronous; /* works while its caller does something else */
};

struct device;
struct plan;
struct canvas;

struct run_options {
    const atomic_int *cancel; /* not 0: stop as soon as it can and return ERROR_CANCELLED; may be NULL */
    atomic_uint *progress;    /* grows as pieces of the run are done; may be NULL */
    uint64_t seed;            /* for OP_NOISE */
    uint32_t first_image;     /* for OP_NOISE */
    bool background;          /* other runs go before it, even when it has begun */
};

typedef void run_rows_fn(void *user, const float *planes, int first, int count);

/* What goes into an input: one of the first two is set. */
struct run_input {
    const float *planes;                /* float32, dense NCHW */
    const struct raster_source *images; /* n pictures; the tensor has 3 channels */
    /* With n pictures: pixels of each that have other values. Then the tensor has a fourth channel, which is 1 there
     * and 0 elsewhere. They are not needed once the run is submitted. */
    const struct raster_points *points;
};

/* What becomes of one image of an output. */
struct run_image {
    const struct raster_target *targets;
    int target_count;
    /* If the output has a canvas: the image's value at (i, j) times weight_x[i] * weight_y[j] is added to the canvas's
     * pixel (x + i, y + j); a weight of 0 adds nothing, whatever the value. Then the targets show the canvas, with
     * places counted in it, within the rectangle that is complete with this image. */
    int x, y;
    const float *weight_x, *weight_y;
    struct run_done {
        int x, y, width, height;
    } done;
};

/* What becomes of an output, by one of the first three; nothing where all are NULL. */
struct run_output {
    float *planes;                      /* float32, dense NCHW */
    const struct run_image *images;     /* n of them; the tensor has 3 channels, or targets are labels or levels */
    const struct raster_points *points; /* n of them; the tensor has 3 channels */
    struct canvas *canvas;              /* NULL: targets show the image itself */
};

struct run_io {
    const struct run_input *inputs; /* in the graph's order */
    const struct run_output *outputs;
    const struct raster_range *range; /* of all pictures; may be NULL where there are none */
    struct run_options options;
};

/* What a run found out about the outputs that went anywhere. */
struct run_result {
    bool finite;   /* every value is */
    uint32_t flat; /* bit n: image n of an output has the same value everywhere */
};

/* How many threads a device "cpu" opened from now on has, and how many a loop over pixels has (thread.h). 0, the
 * default: the cores that this process may use. May be called from any thread. */
void device_set_cpu_threads(int threads);
/* How many handles of the device "cpu" will work at the same time, 1 by default: with 0 threads they divide the
 * cores. */
void device_set_cpu_handles(int handles);
/* How long making or preparing a plan may measure, in ms, 1000 by default. A measurement that has begun is finished. */
void device_set_patience(int ms);

/* Records what a test found about the device with this id, for every list and info from now on, those of open devices
 * included: why it cannot be used, and why not in fp16; NULL: no objection. May be called from any thread. */
void device_judge(const char *id, const char *unusable, const char *no_fp16);

/* The devices of all backends in the order of preference (discrete, integrated, virtual, cpu, software; then as
 * enumerated). The plain C oracle, "reference", is not listed. *list is the caller's to free(); it may be NULL with a
 * count of 0. */
enum error_code device_list(struct device_info **list, size_t *count, struct error *err) MUST_CHECK;

/* The same for a client that named a device, or several: all that it may mean, and of the rest as few as possible. */
enum error_code device_list_for(const char *wanted, struct device_info **list, size_t *count,
                                struct error *err) MUST_CHECK;

/* For diagnosis, which asks more than device_list says. The library that the devices "vulkan" are reached by, such as
 * "libvulkan.so.1 for Vulkan 1.3.239"; ERROR_NOT_FOUND: there is none that can be used. May be called from any thread.
 */
enum error_code device_loader(char *out, size_t size, struct error *err) MUST_CHECK;
/* What stands in the way of all devices of a backend. "vulkan": ERROR_NOT_FOUND, there is no loader; ERROR_DEVICE, it
 * finds no driver that works; OK even when it lists no device. "cpu": ERROR_INVALID, SWITCH_CPU_ISA is ignored, since
 * this processor has no such instruction set. May be called from any thread. */
enum error_code device_probe(const char *backend, struct error *err) MUST_CHECK;

/* How a client names one of the devices: by id, UUID, name, or a part of the name that no other device has (at least
 * two characters, one of them a letter); case is ignored. Returns the index, or -1: none, or (*fits > 1) several. */
int device_find(const struct device_info *list, size_t count, const char *wanted, size_t *fits);

/* The end of an error about a missing device: where to read more, if what is missing may be a GPU. */
const char *device_hint(const struct device_info *list, size_t count);

/* Opens by id ("vulkan:0", "cpu", "reference"), UUID or name (see device_find); NULL or "auto": the first usable one in
 * the list that is not software. ERROR_NOT_FOUND names the devices that exist. cache_dir: where compiled pipelines are
 * kept; NULL: nowhere. */
enum error_code device_open(struct device **out, const char *which, const char *cache_dir,
                            struct error *err) MUST_CHECK;
void device_close(struct device **device);
void device_info(const struct device *device, struct device_info *out);

/* Plans a graph for the device: places its tensors, packs its params (once for each device and struct param, shared by
 * all plans), records its commands. Precision AUTO is what the device prefers. name: for the log and errors. The graph
 * may be destroyed afterwards; its params must stay until device_forget_params. Errors: UNSUPPORTED names an operator
 * or feature that the device lacks; TOO_LARGE or NO_MEMORY when a tensor or the whole does not fit: try a smaller
 * shape. */
enum error_code plan_create(struct plan **out, struct device *device, const struct graph *graph,
                            enum precision precision, const char *name, struct error *err) MUST_CHECK;
/* Does in advance what only the first plan of this graph has to do, so that making one then takes no longer than usual:
 * packs the params, compiles what is needed, and, where the device has several forms of it, measures which is the
 * fastest. Measuring takes some seconds and the memory of a plan. Without `measure` it is skipped, with everything that
 * depends on it, and *whole becomes false; so it does if there is more to measure than the patience allows: then call
 * again. This is only a hint: a backend may have nothing to prepare. Errors: as plan_create. */
enum error_code plan_prepare(struct device *device, const struct graph *graph, enum precision precision,
                             const char *name, bool measure, bool *whole, struct error *err) MUST_CHECK;
void plan_destroy(struct plan **plan);

/* Runs the plan once and waits for it. inputs[], outputs[]: host memory, float32, dense NCHW, in the graph's order.
 * ERROR_CANCELLED, ERROR_DEVICE_LOST, ERROR_DEVICE. */
enum error_code plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                         const struct run_options *options, struct error *err) MUST_CHECK;

/* Begins a run. An asynchronous device returns while it is still at work. The inputs have been read by then, and what
 * `run` points to may be freed; the memory that results go to and the canvases must stay until plan_wait. At most
 * PLAN_RUNS runs of a plan may be under way. Errors: those of plan_run, and TOO_LARGE or NO_MEMORY when there is no
 * room for what goes in and out. */
#define PLAN_RUNS 2
enum error_code plan_submit(struct plan *plan, const struct run_io *run, struct error *err) MUST_CHECK;
int plan_under_way(const struct plan *plan); /* how many runs */

/* On an asynchronous device plan_submit's `run` may have no outputs (NULL): the device begins before it is known where
 * they go. This call names them; the rest of `run` must be unchanged. It must come before plan_wait and before another
 * run of the plan. After an error the run can only be given up, by plan_discard. */
enum error_code plan_show(struct plan *plan, const struct run_io *run, struct error *err) MUST_CHECK;

/* Whether plan_wait would return at once. */
bool plan_ready(struct plan *plan);

/* Waits for the plan's oldest run (there must be one) and puts its results where they belong. result may be NULL.
 * Errors: those of plan_run; the run is over in any case. */
enum error_code plan_wait(struct plan *plan, struct run_result *result, struct error *err) MUST_CHECK;

/* Ends all runs under way as soon as possible; their results are lost. */
void plan_discard(struct plan *plan);

/* What plan_wait would do with a run's only output, a 3-channel tensor of h × w, if its values were these (dense CHW):
 * they were made elsewhere, as run_output.planes of a run of one image. run: what plan_submit would get; its inputs do
 * not matter. Only for what a device that is not asynchronous gets. */
void plan_put(const struct run_io *run, int h, int w, const float *planes, struct run_result *result);

/* How the tiles of a picture that are blended lie, in px: the picture's width; their own size; by how much one reaches,
 * at most, beyond what is complete with it, to the right and down. */
struct canvas_shape {
    int width, columns, rows, right, below;
};

/* Where the tiles of one picture are blended: sums of 3 channels, 0 at first, of as many of its pixels as are still
 * added to, or somewhat more. Tiles come in rows, each from left to right, and what they complete covers the picture
 * without gaps; where that begins at (0, 0) a picture begins. All runs that use it must be over when it is
 * destroyed. */
enum error_code canvas_create(struct canvas **out, struct device *device, const struct canvas_shape *shape,
                              struct error *err) MUST_CHECK;
void canvas_destroy(struct canvas **canvas);

/* How many ms the device has worked on networks since it was opened, the current run included; moving pictures there
 * and back does not count. */
double device_busy_ms(const struct device *device);

/* False: not everything that this plan's speed depends on was measured. A new plan goes on with that, which takes a
 * second or more: session.c makes one only now and then. */
bool plan_whole(const struct plan *plan);
/* Device bytes that this plan works with, without its weights. On the CPU most of them are shared by all plans of the
 * handle, of which the largest counts. */
uint64_t plan_bytes(const struct plan *plan);

/* Device bytes that this handle holds: plans, weights, buffers. */
uint64_t device_held(const struct device *device);
/* Bytes of host memory that a GPU's handle holds for transfers, and that any handle keeps for device_take_room;
 * device_held does not count them. */
uint64_t device_staged(const struct device *device);

/* At least *bytes of host memory, which become as many as there are, for who works with the device; NULL: there are
 * none. They are the caller's until device_keep_room, and are then kept for the next one until device_give_back, since
 * new pages cost more than what is written into them. Two are kept, the larger ones; of these a caller gets the smaller
 * that suffices. */
void *device_take_room(struct device *device, size_t *bytes);
void device_keep_room(struct device *device, void *room, size_t bytes);

/* Frees the buffers that no run uses now, but for `keep` bytes; the next runs allocate them again, which costs some
 * ms. */
void device_give_back(struct device *device, uint64_t keep);

/* Makes every later run of the plan measure the time of each node. Such runs are slower: each node waits for the one
 * before it. UNSUPPORTED on a device that cannot. */
enum error_code plan_profile(struct plan *plan, struct error *err) MUST_CHECK;

/* How long the last run, which must have been OK, kept the device: ms from inputs ready to outputs ready on the device;
 * negative where the device cannot tell. node_ms[the graph's node_count]: the time of each node, 0 where it was not
 * measured; may be NULL. */
double plan_ms(const struct plan *plan, double *node_ms);

/* Frees what the device packed of these params. No plan that uses them may exist any more. */
void device_forget_params(struct device *device, const struct param *const *params, size_t count);

/* --- for backends alone ------------------------------------------------------------------------------------------- */

struct backend {
    const char *name;
    /* Appends this backend's devices to a growing array. A backend that finds no driver adds nothing and is OK. */
    enum error_code (*list)(struct device_info **list, size_t *count, struct error *err);
    enum error_code (*loader)(char *out, size_t size, struct error *err); /* or NULL: see device_loader */
    enum error_code (*probe)(struct error *err);                          /* see device_probe */
    enum error_code (*open)(struct device **out, const struct device_info *info, const char *cache_dir,
                            struct error *err);
    void (*close)(struct device *device);
    void (*info)(const struct device *device, struct device_info *out);
    enum error_code (*plan_create)(struct plan **out, struct device *device, const struct graph *graph,
                                   enum precision precision, const char *name, struct error *err);
    enum error_code (*plan_prepare)(struct device *device, const struct graph *graph, enum precision precision,
                                    const char *name, bool measure, bool *whole, struct error *err); /* or NULL */
    void (*plan_destroy)(struct plan *plan);
    /* Either this, */
    enum error_code (*plan_run)(struct plan *plan, const float *const *inputs, float *const *outputs,
                                const struct run_options *options, struct error *err);
    /* or NULL: the same for a plan_in_rows, whose only output has one image; its rows are handed out as they are there,
     * from the first to the last: `count` of them from `first` on, dense [c][count][w]. */
    bool (*plan_in_rows)(const struct plan *plan);
    enum error_code (*plan_run_rows)(struct plan *plan, const float *const *inputs, run_rows_fn *take, void *user,
                                     const struct run_options *options, struct error *err);
    /* or all of these, for an asynchronous device. */
    enum error_code (*plan_submit)(struct plan *plan, const struct run_io *run, struct error *err);
    enum error_code (*plan_show)(struct plan *plan, const struct run_io *run, struct error *err);
    bool (*plan_ready)(struct plan *plan);
    enum error_code (*plan_wait)(struct plan *plan, bool discard, struct run_result *result, struct error *err);
    enum error_code (*canvas_create)(struct canvas **out, struct device *device, const struct canvas_shape *shape,
                                     struct error *err);
    void (*canvas_destroy)(struct canvas *canvas);
    double (*busy_ms)(const struct device *device);
    uint64_t (*held)(const struct device *device); /* this and the next may be NULL: then struct device says it */
    uint64_t (*staged)(const struct device *device);
    void (*give_back)(struct device *device, uint64_t keep); /* or NULL */
    bool (*plan_whole)(const struct plan *plan);             /* NULL: always */
    uint64_t (*plan_bytes)(const struct plan *plan);
    enum error_code (*plan_profile)(struct plan *plan, struct error *err); /* this and the next: both, or NULL */
    double (*plan_ms)(const struct plan *plan, double *node_ms);
    void (*forget_params)(struct device *device, const struct param *const *params, size_t count);
};

#define DEVICE_ROOMS 2

/* What a plan's caller sees of an input or output. */
struct plan_shape {
    int n, c, h, w;
};

/* Every backend's struct device, plan and canvas begins with these. All members except the pointers are for backend.c,
 * host_run.c and the session. */
struct device {
    const struct backend *backend;
    double busy_ms;
    _Atomic uint64_t held, staged; /* bytes that this handle has allocated: see device_held, device_staged */
    struct plan_cache *cache;      /* shared by all sessions on it, or NULL: see runtime/plan_cache.h */
    void *tensors;                 /* host_run.c's, of the last run; NULL: none are kept */
    size_t tensors_size;
    struct device_room {
        void *memory;
        size_t bytes;
    } rooms[DEVICE_ROOMS]; /* device_keep_room's; NULL: none is kept */
};
struct plan {
    const struct backend *backend;
    struct device *device;
    struct plan_shape *shapes; /* of the inputs, then the outputs */
    int input_count, output_count;
    unsigned runs; /* that its session has sent */
    int under_way;
    bool blind;                           /* the newest of them has no outputs yet */
    struct run_result results[PLAN_RUNS]; /* of a backend with plan_run: of the runs under way */
};
struct canvas {
    const struct backend *backend; /* NULL: in host memory */
    struct canvas_shape shape;
};

/* plan_create without its checks, for a layer whose device info differs from that of the device beneath. */
enum error_code backend_plan(struct plan **out, struct device *device, const struct graph *graph,
                             enum precision precision, const char *name, struct error *err) MUST_CHECK;

/* Adds what tests found about the device to its info: see device_judge. */
void backend_judged(struct device_info *info);

/* What all handles of one device have allocated in this process. */
struct backend_account {
    char id[32];
    int handles;
    _Atomic uint64_t used, peak;
};

/* The account of the device with this id; close it with the handle. Its peak starts again with the first handle. */
struct backend_account *backend_account_open(const char *id);
void backend_account_close(struct backend_account *account);
/* From any thread. */
void backend_account_add(struct backend_account *account, uint64_t bytes);
void backend_account_remove(struct backend_account *account, uint64_t bytes);

extern const struct backend vk_backend;  /* runtime/vulkan */
extern const struct backend cpu_backend; /* runtime/cpu/cpu_device.c: native code */
extern atomic_int backend_cpu_threads, backend_cpu_handles, backend_patience; /* as device_set_… was told */
extern const struct backend cpu_ref_backend; /* runtime/cpu/cpu_ref.c: plain C, the oracle */

#endif
