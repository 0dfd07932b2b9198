/* What runs a graph: the interface that vulkan/ and cpu/ implement. A backend works on whole plans of fixed shape.
 * Thread-safety: device_list may be called from any thread; a struct device and its plans belong to one thread at a
 * time, but for device_info, which may be called from any. */
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
    uint64_t memory_total, memory_budget; /* bytes; budget: what this process may use of it */
    uint64_t memory_used, memory_peak;    /* bytes of it that this process has, by all its handles; the most of it */
    uint64_t memory_driver;               /* bytes in use by the driver's count; memory_used where it keeps none */
    uint64_t max_buffer_bytes;            /* the largest tensor that it takes */
    bool fp16, cooperative_matrix, int8;
    uint32_t subgroup_size;
    enum precision preferred; /* what PRECISION_AUTO means here: fp16 or fp32 */
    char precision_reason[96];
    bool asynchronous; /* works on while its caller does something else */
};

struct device;
struct plan;
struct canvas;

struct run_options {
    const atomic_int *cancel; /* not 0: stop as soon as it can and return ERROR_CANCELLED; may be NULL */
    uint64_t seed;            /* for OP_NOISE */
    uint32_t first_image;     /* for OP_NOISE */
    bool background;          /* runs that are not go before it, also where it has begun */
};

/* What goes into an input: one of the two. */
struct run_input {
    const float *planes;                /* float32, dense NCHW */
    const struct raster_source *images; /* n pictures; the tensor has 3 channels */
};

/* What becomes of one image of an output. */
struct run_image {
    const struct raster_target *targets;
    int target_count;
    /* Where the output has a canvas: the canvas's pixel (x + i, y + j) grows by the image's value at (i, j) times
     * weight_x[i] * weight_y[j]; of value times 0 nothing is added. Then the targets show the canvas, their places
     * being the canvas's, and then rows clear_y and the clear_rows-1 after it become 0. */
    int x, y, clear_y, clear_rows;
    const float *weight_x, *weight_y;
};

/* What becomes of an output; nothing where both are NULL. */
struct run_output {
    float *planes;                  /* float32, dense NCHW */
    const struct run_image *images; /* n of them; the tensor has 3 channels, or targets are labels */
    struct canvas *canvas;          /* NULL: targets show the image itself */
};

struct run_io {
    const struct run_input *inputs; /* in the graph's order */
    const struct run_output *outputs;
    const struct raster_range *range; /* of all pictures; may be NULL where there are none */
    struct run_options options;
};

/* What is to be said of the outputs that went anywhere. */
struct run_result {
    bool finite;   /* every value is */
    uint32_t flat; /* bit n: image n of an output has one value everywhere */
};

/* How many threads a device "cpu" that is opened from now on has, and a loop over pixels (thread.h); 0, as at the
 * start: the cores that this process may use. From any thread. */
void device_set_cpu_threads(int threads);
/* How many handles of the device "cpu" are to work at once, 1 at the start: with 0 threads they divide the cores. */
void device_set_cpu_handles(int handles);
/* How long making or preparing a plan may measure, ms, 1000 at the start; what it has begun it ends. */
void device_set_patience(int ms);

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
/* Does once what making a plan of this graph does only the first time, so that it then takes no longer than any other:
 * packs the params, compiles what is needed, and measures which form of it is the fastest where the device has several.
 * That last takes some seconds, and the memory of a plan: without `measure` it is left undone, with all that hangs on
 * it, and *whole tells so, as it does if there is more to measure than the patience lasts: then call again. No more
 * than a hint: a backend may have nothing to prepare. Errors: as plan_create. */
enum error_code plan_prepare(struct device *device, const struct graph *graph, enum precision precision,
                             const char *name, bool measure, bool *whole, struct error *err) MUST_CHECK;
void plan_destroy(struct plan **plan);

/* Runs the plan once and waits for it. inputs[], outputs[]: host memory, float32, dense NCHW, in the graph's order.
 * ERROR_CANCELLED, ERROR_DEVICE_LOST, ERROR_DEVICE. */
enum error_code plan_run(struct plan *plan, const float *const *inputs, float *const *outputs,
                         const struct run_options *options, struct error *err) MUST_CHECK;

/* Begins a run and returns while the device is at work on it, if it is an asynchronous one. The inputs were read by
 * then and what `run` points to may go; the memory that results go to and the canvases must stay until plan_wait. At
 * most PLAN_RUNS runs of a plan are under way. Errors: those of plan_run, and TOO_LARGE or NO_MEMORY where there is no
 * room for what goes in and out. */
#define PLAN_RUNS 2
enum error_code plan_submit(struct plan *plan, const struct run_io *run, struct error *err) MUST_CHECK;
int plan_under_way(const struct plan *plan); /* how many runs */

/* On an asynchronous device plan_submit's `run` may have no outputs (NULL): its device is at work already while it is
 * still unknown where they go. This names them, `run` being otherwise as it was; it must come before plan_wait and
 * before another run of the plan. After an error the run can only be given up, by plan_discard. */
enum error_code plan_show(struct plan *plan, const struct run_io *run, struct error *err) MUST_CHECK;

/* Whether plan_wait would not wait. */
bool plan_ready(struct plan *plan);

/* Waits for the plan's oldest run, of which there must be one, and puts its results where they belong. result may be
 * NULL. Errors: those of plan_run; the run is over in any case. */
enum error_code plan_wait(struct plan *plan, struct run_result *result, struct error *err) MUST_CHECK;

/* Ends all runs under way as soon as it can; their results are lost. */
void plan_discard(struct plan *plan);

/* Where tiles of one picture are laid over each other: sums of `width` pixels of 3 channels in `rows` rows, 0 at first;
 * row y of the picture is in row y % rows. All runs that are given it must be over when it is destroyed. */
enum error_code canvas_create(struct canvas **out, struct device *device, int width, int rows,
                              struct error *err) MUST_CHECK;
void canvas_destroy(struct canvas **canvas);

/* How many ms the device was at work on networks since it was opened, the run that it is at included; bringing pictures
 * there and back is no such work. */
double device_busy_ms(const struct device *device);

/* Device bytes that only this plan holds (its arena and staging). */
/* False: not everything was measured that this plan's speed depends on. One that is made anew goes on with that. */
bool plan_whole(const struct plan *plan);
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
    enum error_code (*plan_prepare)(struct device *device, const struct graph *graph, enum precision precision,
                                    const char *name, bool measure, bool *whole, struct error *err); /* or NULL */
    void (*plan_destroy)(struct plan *plan);
    /* Either this, */
    enum error_code (*plan_run)(struct plan *plan, const float *const *inputs, float *const *outputs,
                                const struct run_options *options, struct error *err);
    /* or all of these, for an asynchronous device. */
    enum error_code (*plan_submit)(struct plan *plan, const struct run_io *run, struct error *err);
    enum error_code (*plan_show)(struct plan *plan, const struct run_io *run, struct error *err);
    bool (*plan_ready)(struct plan *plan);
    enum error_code (*plan_wait)(struct plan *plan, bool discard, struct run_result *result, struct error *err);
    enum error_code (*canvas_create)(struct canvas **out, struct device *device, int width, int rows,
                                     struct error *err);
    void (*canvas_destroy)(struct canvas *canvas);
    double (*busy_ms)(const struct device *device);
    bool (*plan_whole)(const struct plan *plan); /* NULL: always */
    uint64_t (*plan_bytes)(const struct plan *plan);
    enum error_code (*plan_profile)(struct plan *plan, struct error *err); /* this and the next: both, or NULL */
    double (*plan_ms)(const struct plan *plan, double *node_ms);
    void (*forget_params)(struct device *device, const struct param *const *params, size_t count);
};

/* What a plan's caller sees of an input or output. */
struct plan_shape {
    int n, c, h, w;
};

/* Every backend's struct device, plan and canvas begins with these; all but the pointers are for backend.c and
 * host_run.c. */
struct device {
    const struct backend *backend;
    double busy_ms;
};
struct plan {
    const struct backend *backend;
    struct device *device;
    struct plan_shape *shapes; /* of the inputs, then the outputs */
    int input_count, output_count;
    int under_way;
    bool blind;                           /* the newest of them has no outputs yet */
    struct run_result results[PLAN_RUNS]; /* of a backend with plan_run: of the runs under way */
};
struct canvas {
    const struct backend *backend; /* NULL: in host memory */
    int width, rows;
};

/* plan_create without its checks, for a layer that says something else of its device than what is beneath. */
enum error_code backend_plan(struct plan **out, struct device *device, const struct graph *graph,
                             enum precision precision, const char *name, struct error *err) MUST_CHECK;

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

extern const struct backend vk_backend;  /* runtime/vulkan */
extern const struct backend cpu_backend; /* runtime/cpu/cpu_device.c: native code */
extern atomic_int backend_cpu_threads, backend_cpu_handles, backend_patience; /* as device_set_… was told */
extern const struct backend cpu_ref_backend; /* runtime/cpu/cpu_ref.c: plain C, the oracle */

#endif
