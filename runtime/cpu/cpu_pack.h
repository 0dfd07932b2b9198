/* Params as the kernels want them, packed once for each device and use and shared by all plans; and the layouts of
 * channels that packing follows. Thread-safety: as the device; layout functions are without state. */
#ifndef RUNTIME_CPU_CPU_PACK_H
#define RUNTIME_CPU_CPU_PACK_H

#include "runtime/cpu/cpu_kernel.h"
#include "runtime/nn/graph.h"

struct cpu_device;

/* Where a view's channels lie: in runs, each padded to whole blocks. Segments that fill their blocks are joined with
 * the next one, so equal placements have equal layouts. */
struct cpu_layout {
    int channels, blocks;
    int run_count;
    int run[GRAPH_MAX_SEGMENTS];
};

void cpu_pack_layout(const struct graph *graph, struct view view, struct cpu_layout *out);
bool cpu_pack_same(const struct cpu_layout *a, const struct cpu_layout *b);

/* lanes[channels]: the lane of each channel. used[blocks]: channels in each block. Either may be NULL. */
void cpu_pack_lanes(const struct cpu_layout *layout, int *lanes, int *used);

enum cpu_pack_kind {
    CPU_PACK_SUM,    /* [out block][in block][tap][in lane][out lane] from [out][in][tap] */
    CPU_PACK_TENSOR, /* [out block][tap][out lane] from [out][tap]: constants, depthwise filters, biases, slopes */
    CPU_PACK_PLAIN   /* as it is */
};

/* What distinguishes one packing from another. Padding becomes 0. */
struct cpu_pack_key {
    const struct param *param;
    enum cpu_pack_kind kind;
    int taps;
    struct cpu_layout in, out;
};

struct cpu_packs {
    struct cpu_packed *list;
    size_t count, capacity;
};

enum error_code cpu_pack_get(struct cpu_device *device, const struct cpu_pack_key *key, const float **out,
                             struct error *err) MUST_CHECK;

/* The backend's forget_params; and frees all packings. */
void cpu_pack_forget(struct cpu_device *device, const struct param *const *params, size_t count);
void cpu_pack_destroy(struct cpu_device *device);

#endif
