/* ncnn's .param: a network's layers as text. Grammar and keys as in ncnn's documentation
 * (param-and-model-file-structure, operators); a layer's keys that are absent have ncnn's defaults. Thread-safety: no
 * shared state. */
#ifndef RUNTIME_WEIGHTS_NCNN_PARAM_H
#define RUNTIME_WEIGHTS_NCNN_PARAM_H

#include "runtime/weights/catalogue.h"

#define NCNN_MAX_KEYS 32
#define NCNN_MAX_ENDS 16 /* inputs, or outputs, of a layer */

struct ncnn_layer {
    const char *type, *name;
    int input_count, output_count;
    int inputs[NCNN_MAX_ENDS], outputs[NCNN_MAX_ENDS]; /* numbers of blobs, by first appearance */
    uint32_t set;                                      /* which keys are there */
    float values[NCNN_MAX_KEYS][2];                    /* of an array the first two */
    int counts[NCNN_MAX_KEYS];                         /* of an array; 1 else */
};

struct ncnn_net {
    struct ncnn_layer *layers;
    int layer_count, blob_count;
};

/* Whether these bytes begin as a .param does. */
bool ncnn_param_is(const void *data, size_t size);

/* Reads the text into the arena; the catalogue names the file in errors. CORRUPT (the text names the line), TOO_LARGE,
 * NO_MEMORY. */
enum error_code ncnn_param_read(struct ncnn_net *out, struct arena *arena, const struct catalogue *catalogue,
                                const char *text, size_t size, struct error *err) MUST_CHECK;

/* The value of a key, or `otherwise` where there is none. */
float ncnn_value(const struct ncnn_layer *layer, int key, float otherwise);
int ncnn_int(const struct ncnn_layer *layer, int key, int otherwise);

#endif
