/* Cases of runs, and the devices and precisions that each is tried on. What goes wrong fails the test.
 * Thread-safety: the test's own thread. */
#ifndef TESTS_COMMON_RUN_CASE_H
#define TESTS_COMMON_RUN_CASE_H

#include "runtime/backend/backend.h"

typedef void run_case(void);

/* Runs the cases, of which the last is NULL, on the oracle and on every usable device in each precision that it has; on
 * Vulkan under the validation layer, and in every way in which its memory can be chosen. What main returns. */
int run_all_devices(const char *name, run_case *const *cases);

/* Those of this turn. */
extern struct device *run_device;
extern enum precision run_precision;

/* Of a sample of 0..255 that went through a tensor: in fp16, whose step there is 0.125, a little over one. */
double run_allowed(void);

extern const struct raster_range run_unit_range, run_face_range, run_blue_range;

struct run_net {
    struct graph *graph;
    struct param *weight;
    struct plan *plan;
};

/* Makes the plan of a net that has its graph. */
void run_net_plan(struct run_net *net);

/* y = x, after as many steps on the way. */
void run_net_same(struct run_net *net, int n, int h, int w, int steps);

/* The same of two inputs, each with its height and width. */
void run_net_pair(struct run_net *net, const int first[2], const int second[2]);

/* Two outputs of 1×1 convolutions: `classes` channels, of which each two are equal; and the sum of x's channels,
 * thrice. */
void run_net_classes(struct run_net *net, int n, int h, int w, int classes);
void run_net_destroy(struct run_net *net);

void run_submit(struct run_net *net, const struct run_io *run);
struct run_result run_await(struct run_net *net);

/* The next byte of a fixed sequence, and as many of one. */
uint8_t run_noise(uint32_t *state);
void run_fill(uint8_t *bytes, size_t count, uint32_t seed);

#endif
