/* A small network and the Vulkan devices that it runs on, for tests of the backend beside its operators. What goes
 * wrong fails the test. Thread-safety: the test's own thread. */
#ifndef TESTS_COMMON_NET_H
#define TESTS_COMMON_NET_H

#include "runtime/backend/backend.h"

/* Calls `run`, which runs a group of tests, for every usable Vulkan device, under the validation layer; what main
 * returns: also 1 if there is none. */
int net_each_device(int (*run)(void));

/* Opens the device of this turn. */
struct device *net_device(const char *cache_dir);
struct device_info net_device_info(const struct device *device);

/* A chain of 3x3 convolutions with the same small weights: net.param is theirs. */
struct net {
    struct graph *graph;
    struct param *param;
    size_t values; /* of input and output */
    float *input, *output, *expected;
};

void net_create(struct net *net, int channels, int h, int w, int layers);
void net_destroy(struct net *net);
struct plan *net_plan(struct net *net, struct device *device);
enum error_code net_run(struct net *net, struct plan *plan, float *out, const struct run_options *options);

/* What the oracle makes of the net, to net->expected. */
void net_expect(struct net *net);

/* net->output must be net->expected. */
void net_check(const struct net *net);

#endif
