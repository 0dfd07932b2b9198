/* What ncnn's layers compute, as terms over the picture: two layers of which one is spelt in another way give the same
 * term, and so a file's layers are compared with a network's. Inside runtime/weights only.
 * Thread-safety: what belongs to one file belongs to one thread. */
#ifndef RUNTIME_WEIGHTS_NCNN_TERMS_H
#define RUNTIME_WEIGHTS_NCNN_TERMS_H

#include "runtime/weights/ncnn_param.h"

#define NCNN_MAX_TERMS 65536

enum term_kind {
    TERM_PICTURE,
    TERM_CONV,     /* of a; b: which enum ncnn_conv, number: which convolution of the file */
    TERM_LEAKY,    /* a < 0 ? value*a : a */
    TERM_PRELU,    /* of a; number: which slopes */
    TERM_SIGMOID,  /* of a */
    TERM_SCALE,    /* value*a */
    TERM_ADD,      /* a + b, a < b */
    TERM_MULTIPLY, /* a*b, a < b */
    TERM_MEAN,     /* of each channel of a */
    TERM_CROP,     /* a without number pixels at each side */
    TERM_CONCAT,   /* channels of a, then of b */
    TERM_NEAREST,  /* a, number times as large */
    TERM_SHUFFLE   /* pixel shuffle of a by number */
};

/* The convolutions that the networks have: kernel, stride, pad. */
enum ncnn_conv {
    NCNN_CONV_3_1_1,
    NCNN_CONV_3_1_0,
    NCNN_CONV_2_2_0,
    NCNN_CONV_1_1_0, /* also an inner product of means */
    NCNN_DECONV_2_2_0,
    NCNN_DECONV_4_2_3,
    NCNN_DECONV_5_3_2,
    NCNN_CONV_KINDS
};

struct term {
    enum term_kind kind;
    int a, b, number;
    float value;
    int channels; /* of what it gives; 0: not known, as of the picture */
};

struct terms {
    struct term *list;
    uint32_t *table; /* open addressing: 1 + index */
    int count;
};

/* A file on its way into the catalogue. */
struct ncnn {
    struct catalogue *catalogue;
    struct ncnn_net net;
    struct terms terms;
    int *blobs; /* the term of each, or -1 */
    struct ncnn_layer **convs, **slopes;
    const char **names; /* of the convolutions, where the network says them */
    int conv_count, slope_count, nearest_count, concat_count, deconv_count, mean_count;
    int result;
    bool resized; /* the result went through a resize that is left out */
    struct error *err;
};

/* Each gives the index of a term, the same for equal ones; -1: too many, or of something that is -1. */
int terms_make(struct terms *t, struct term term);
int terms_of(struct terms *t, enum term_kind kind, int a, int number);
int terms_conv(struct terms *t, enum ncnn_conv kind, int a, int number, int channels);
int terms_leaky(struct terms *t, int a, float slope);
int terms_scale(struct terms *t, int a, float value);
int terms_pair(struct terms *t, enum term_kind kind, int a, int b); /* ADD, MULTIPLY: in any order */
bool terms_match(const struct terms *t, int a, int b);              /* as many channels, or not known */
int terms_concat(struct terms *t, int a, int b);

/* Sets "file: layer: why"; layer may be NULL. Returns code. */
enum error_code ncnn_fail(struct ncnn *n, enum error_code code, const struct ncnn_layer *layer, const char *why);

/* Which convolution a layer is (Convolution, Deconvolution, InnerProduct), with a bias; NCNN_CONV_KINDS: none of them.
 */
enum ncnn_conv ncnn_conv_kind(const struct ncnn_layer *layer);
int ncnn_conv_kernel(enum ncnn_conv kind);

/* The term of the next convolution of x, in the order of the file; -1, with err set, where the file has another one
 * there, or of something else. network: for the error. */
int ncnn_next(struct ncnn *n, int *conv, enum ncnn_conv kind, int x, const char *network);

/* What Real-CUGAN computes (runtime/models/cugan.c), and the names that its checkpoints have for the convolutions. */
int ncnn_cugan(struct ncnn *n);

#endif
