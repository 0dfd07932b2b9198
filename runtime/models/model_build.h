/* The vocabulary of the architectures' build functions: parameters fetched from the checkpoint by name, and nodes that
 * match torch's layers. A build function runs once when the model is opened, with a small shape: that run checks every
 * tensor's shape and makes the params; later runs reuse them. A failure is kept in graph->error, and the calls after it
 * do nothing. Thread-safety: after model_open a struct model is only read. */
#ifndef RUNTIME_MODELS_MODEL_BUILD_H
#define RUNTIME_MODELS_MODEL_BUILD_H

#include "runtime/models/model.h"

struct model_build;

struct architecture {
    /* True if the tensors are this network's; fills *info (min_sizes aside). A checkpoint that is known but not
     * supported sets err. */
    bool (*detect)(const struct weights *weights, struct model_info *info, struct error *err);
    void (*build)(struct model_build *b, const struct session_shape *shape);
    void (*smallest)(const struct model_info *info, struct session_shape *shape); /* a shape for the first build */
};

extern const struct architecture architecture_rrdbnet, architecture_srvgg, architecture_gfpgan, architecture_retinaface,
    architecture_parsenet, architecture_damage, architecture_filler, architecture_bopbtl, architecture_migan,
    architecture_restoreformer, architecture_codeformer, architecture_span, architecture_plksr, architecture_cugan,
    architecture_fbcnn, architecture_drunet, architecture_dncnn;

struct model_build {
    struct graph *graph;
    const struct model *model;
    struct model *loading; /* the same model while it is being opened, else NULL */
    double norm_epsilon;   /* of BatchNorm2d; 0: torch's 1e-5 */
    struct node scratch;   /* build_* return this after a failure, so that callers need no check */
};

/* Tensor names in printf form. The text lives until the end of the full expression (C17 6.2.4p8): pass it on, do not
 * keep it. */
struct build_text {
    char text[160];
};
struct build_text build_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define build_name(...) (build_text(__VA_ARGS__).text)

const struct model_settings *build_settings(const struct model_build *b);

/* The LeakyReLU slope of a network whose tensors do not tell its activation, 0 for ReLU: as the settings say (slope, or
 * activation), else the file's metadata ("activation"), else `usual`. Fails if the metadata is not understood. */
float build_slope(struct model_build *b, float usual);

/* The number of tensors format(0), format(1), … before the first gap; format holds one %d. */
int build_count(const struct weights *weights, const char *format);

/* How many blocks PREFIX0REST, PREFIX1REST, … there are, counted from `first`. Fails if the file has tensors of a later
 * block: then the one between is missing. */
int build_blocks(struct model_build *b, const char *prefix, int first, const char *rest);

/* The largest number N of the tensors named PREFIXN.…; -1: there is none. */
int build_last(const struct weights *weights, const char *prefix);

/* Size of dimension `dim` of a tensor; 0 if there is no such tensor or dimension. */
int build_dim(const struct weights *weights, const char *name, int dim);
/* The same of one that must be there; fails, and returns 0, if it is not. */
int build_size(struct model_build *b, const char *name, int dim);

/* The named tensor as a param of that shape (leading dimensions of 1 are ignored), count 1..4 dims. */
const struct param *build_param(struct model_build *b, const char *name, int rank, const int *shape);

/* A tensor's single value. */
float build_scalar(struct model_build *b, const char *name);

/* Derived params: the cached param of that name, or, while the model is being opened, a new one from make()'s values.
 * count > 0. */
typedef void build_fill_fn(struct model_build *b, const char *name, float *values, size_t count);
const struct param *build_derived(struct model_build *b, const char *name, size_t count, build_fill_fn *fill);

/* Conv2d "name.weight", "name.bias", stride 1, padding kernel/2, no activation: the caller changes the node's args
 * before it makes the next one. */
struct node *build_conv(struct model_build *b, const char *name, struct view x, struct view out, int kernel);
/* The same without bias, as the network's authors have it. */
struct node *build_conv_plain(struct model_build *b, const char *name, struct view x, struct view out, int kernel);

/* The same with weights that were made: [channels of out][channels of x][kernel][kernel]. */
struct node *build_conv_of(struct model_build *b, const struct param *weight, struct view x, struct view out,
                           int kernel);

/* Depthwise, padding (kernel-1)/2, no activation. */
struct node *build_depthwise_of(struct model_build *b, const struct param *weight, const struct param *bias,
                                struct view x, struct view out, int kernel, int stride);

/* Conv2d, whose bias may be absent, followed by BatchNorm2d (eval mode, eps: norm_epsilon), folded. */
struct node *build_conv_bn(struct model_build *b, const char *conv, const char *norm, struct view x, struct view out,
                           int kernel);

/* The same, but depthwise; bias and activation are in args.depthwise; stride as given. */
struct node *build_depthwise_bn(struct model_build *b, const char *conv, const char *norm, struct view x,
                                struct view out, int kernel, int stride);

/* Linear "name.weight", "name.bias". */
struct node *build_linear(struct model_build *b, const char *name, struct view x, struct view out);

/* The same where each weight counts `rate` of its stored value. */
struct node *build_linear_rate(struct model_build *b, const char *name, float rate, struct view x, struct view out);

/* OP_LAYER_NORM or OP_GROUP_NORM of x with "name.weight" and "name.bias"; of one group and PyTorch's epsilon of 1e-5,
 * which the caller may change in the node. */
struct node *build_norm_layer(struct model_build *b, const char *name, enum op_kind kind, struct view x,
                              struct view out);

struct view build_resize(struct model_build *b, enum resize_mode mode, struct view x, int h, int w);

/* A new temporary with c channels, shaped n, h, w like x. */
struct view build_like(struct model_build *b, struct view x, int c);

void build_fail(struct model_build *b, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
