#include "runtime/weights/ncnn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/weights/ncnn_terms.h"

#define NCNN_TAG_FP16 0x01306B47u
#define NCNN_TAG_FP32 0x0002C056u
#define NCNN_TAG_INT8 0x000D4B38u

/* ---- the graph ---- */
/* The activation that a convolution has in itself, or else x. */
static int ncnn_fused(struct ncnn *n, const struct ncnn_layer *layer, int x)
{
    const int kind = ncnn_int(layer, 9, 0);
    if (kind == 0)
        return x;
    return kind == 1   ? terms_leaky(&n->terms, x, 0)
           : kind == 2 ? terms_leaky(&n->terms, x, layer->set & 1u << 10 ? layer->values[10][0] : 0)
           : kind == 4 ? terms_of(&n->terms, TERM_SIGMOID, x, 0)
                       : -1;
}

/* A convolution's outputs, inputs and weights; false if they do not fit each other. */
static bool ncnn_conv_sizes(const struct ncnn_layer *layer, enum ncnn_conv kind, int sizes[3])
{
    const int area = ncnn_conv_kernel(kind) * ncnn_conv_kernel(kind);
    sizes[0] = ncnn_int(layer, 0, -1);
    sizes[2] = ncnn_int(layer, strcmp(layer->type, "InnerProduct") == 0 ? 2 : 6, -1);
    if (sizes[0] < 1 || sizes[2] < 1 || sizes[2] / area % sizes[0] || sizes[2] % area)
        return false;
    sizes[1] = sizes[2] / area / sizes[0];
    return true;
}

static int ncnn_conv(struct ncnn *n, struct ncnn_layer *layer, int x)
{
    const enum ncnn_conv kind = ncnn_conv_kind(layer);
    int sizes[3];
    if (kind == NCNN_CONV_KINDS || (strcmp(layer->type, "InnerProduct") == 0 && n->terms.list[x].kind != TERM_MEAN &&
                                    n->terms.list[x].kind != TERM_LEAKY))
        return -1;
    const int channels = n->terms.list[x].channels;
    if (!ncnn_conv_sizes(layer, kind, sizes) || (channels && channels != sizes[1])) {
        ncnn_fail(n, ERROR_CORRUPT, layer, "its numbers of inputs, outputs and weights do not fit each other");
        return -1;
    }
    n->convs[n->conv_count] = layer;
    n->deconv_count += kind >= NCNN_DECONV_2_2_0;
    return ncnn_fused(n, layer, terms_conv(&n->terms, kind, x, n->conv_count++, sizes[0]));
}

/* Only the same number of pixels taken off each side. */
static int ncnn_crop(struct ncnn *n, const struct ncnn_layer *layer, int x)
{
    const float *starts = layer->values[9], *ends = layer->values[10], *axes = layer->values[11];
    const int by = ncnn_int(layer, 9, 0);
    const uint32_t keys = 7u << 9;
    if (layer->set != keys || layer->counts[9] != 2 || layer->counts[10] != 2 || layer->counts[11] != 2 || by < 1)
        return -1;
    const bool both = (axes[0] == -2 && axes[1] == -1) || (axes[0] == 1 && axes[1] == 2);
    const bool even = starts[1] == starts[0] && ends[0] == -starts[0] && ends[1] == -starts[0];
    return both && even ? terms_of(&n->terms, TERM_CROP, x, by) : -1;
}

static int ncnn_sum(struct ncnn *n, const struct ncnn_layer *layer, const int *x)
{
    if (strcmp(layer->type, "BinaryOp") == 0) {
        const int op = ncnn_int(layer, 0, 0);
        if (ncnn_int(layer, 1, 0) == 1)
            return op == 2 && layer->input_count == 1 ? terms_scale(&n->terms, x[0], ncnn_value(layer, 2, 0)) : -1;
        const bool pair = layer->input_count == 2 && (op == 0 || op == 2);
        return pair && terms_match(&n->terms, x[0], x[1])
                   ? terms_pair(&n->terms, op ? TERM_MULTIPLY : TERM_ADD, x[0], x[1])
                   : -1;
    }
    if (ncnn_int(layer, 0, 0) != 1 || layer->input_count != 2)
        return -1;
    const bool scaled = layer->set & 2u && layer->counts[1] == 2;
    return terms_pair(&n->terms, TERM_ADD, terms_scale(&n->terms, x[0], scaled ? layer->values[1][0] : 1),
                      terms_scale(&n->terms, x[1], scaled ? layer->values[1][1] : 1));
}

static int ncnn_resize(struct ncnn *n, const struct ncnn_layer *layer, int x)
{
    const float factor = ncnn_value(layer, 1, 1);
    if (factor != ncnn_value(layer, 2, 1) || layer->input_count != 1)
        return -1;
    if (ncnn_int(layer, 0, 0) == 1 && factor == truncf(factor) && factor >= 1 && factor <= 16) {
        n->nearest_count++;
        return terms_of(&n->terms, TERM_NEAREST, x, (int)factor);
    }
    n->resized = factor > 0; /* only the last layer may */
    return n->resized ? x : -1;
}

/* The term of what a layer gives, -1 if it is none that these networks have. */
static int ncnn_layer_term(struct ncnn *n, struct ncnn_layer *layer)
{
    int x[NCNN_MAX_ENDS];
    for (int i = 0; i < layer->input_count; i++)
        x[i] = n->blobs[layer->inputs[i]];
    const char *type = layer->type;
    if (n->resized)
        return -1;
    if (strcmp(type, "Input") == 0)
        return layer->input_count ? -1 : terms_make(&n->terms, (struct term){.kind = TERM_PICTURE});
    if (strcmp(type, "Concat") == 0) {
        int all = layer->input_count && ncnn_int(layer, 0, 0) == 0 ? x[0] : -1;
        for (int i = 1; i < layer->input_count; i++)
            all = terms_concat(&n->terms, all, x[i]);
        n->concat_count++;
        return all;
    }
    if (strcmp(type, "Eltwise") == 0 || strcmp(type, "BinaryOp") == 0)
        return ncnn_sum(n, layer, x);
    if (layer->input_count != 1)
        return -1;
    if (strcmp(type, "Split") == 0)
        return x[0];
    if (strcmp(type, "Convolution") == 0 || strcmp(type, "Deconvolution") == 0 || strcmp(type, "InnerProduct") == 0)
        return ncnn_conv(n, layer, x[0]);
    if (strcmp(type, "ReLU") == 0)
        return terms_leaky(&n->terms, x[0], ncnn_value(layer, 0, 0));
    if (strcmp(type, "Sigmoid") == 0)
        return terms_of(&n->terms, TERM_SIGMOID, x[0], 0);
    if (strcmp(type, "Crop") == 0)
        return ncnn_crop(n, layer, x[0]);
    if (strcmp(type, "Pooling") == 0) {
        n->mean_count++;
        return ncnn_int(layer, 0, 0) == 1 && ncnn_int(layer, 4, 0) == 1 ? terms_of(&n->terms, TERM_MEAN, x[0], 0) : -1;
    }
    if (strcmp(type, "Interp") == 0)
        return ncnn_resize(n, layer, x[0]);
    if (strcmp(type, "PixelShuffle") == 0)
        return ncnn_int(layer, 1, 0) ? -1 : terms_of(&n->terms, TERM_SHUFFLE, x[0], ncnn_int(layer, 0, 1));
    if (strcmp(type, "PReLU") == 0) {
        n->slopes[n->slope_count] = layer;
        return terms_of(&n->terms, TERM_PRELU, x[0], n->slope_count++);
    }
    return -1;
}

static enum error_code ncnn_walk(struct ncnn *n)
{
    for (int i = 0; i < n->net.blob_count; i++)
        n->blobs[i] = -1;
    for (int i = 0; i < n->net.layer_count; i++) {
        struct ncnn_layer *layer = &n->net.layers[i];
        for (int k = 0; k < layer->input_count; k++)
            if (n->blobs[layer->inputs[k]] < 0)
                return ncnn_fail(n, ERROR_CORRUPT, layer, "reads what no layer before it gives");
        const int term = ncnn_layer_term(n, layer);
        if (n->err->code)
            return n->err->code;
        if (term < 0 || (layer->output_count != 1 && strcmp(layer->type, "Split") != 0))
            return ncnn_fail(n, ERROR_UNSUPPORTED, layer,
                             "a layer that neither RRDBNet nor SRVGGNetCompact nor Real-CUGAN has, so this is no "
                             "network that we know");
        for (int k = 0; k < layer->output_count; k++)
            n->blobs[layer->outputs[k]] = term;
        n->result = term;
    }
    return OK;
}

/* ---- what the networks compute ---- */
static int ncnn_next_same(struct ncnn *n, int *conv, int x)
{
    return ncnn_next(n, conv, NCNN_CONV_3_1_1, x, "RRDBNet or SRVGGNetCompact");
}

static int ncnn_dense(struct ncnn *n, int *conv, int x)
{
    int seen = x;
    for (int i = 0; i < 4; i++)
        seen = terms_concat(&n->terms, seen, terms_leaky(&n->terms, ncnn_next_same(n, conv, seen), 0.2f));
    return terms_pair(&n->terms, TERM_ADD, terms_scale(&n->terms, ncnn_next_same(n, conv, seen), 0.2f), x);
}

/* RRDBNet as runtime/models/rrdbnet.c has it: 15 convolutions a block, and 4 and the upsamplings' besides. */
static int ncnn_rrdbnet(struct ncnn *n, int *blocks)
{
    int conv = 0, x = ncnn_next_same(n, &conv, terms_make(&n->terms, (struct term){.kind = TERM_PICTURE})), first = x;
    *blocks = (n->conv_count - 4 - n->nearest_count) / 15;
    for (int i = 0; i < *blocks && x >= 0; i++) {
        int y = x;
        for (int r = 0; r < 3; r++)
            y = ncnn_dense(n, &conv, y);
        x = terms_pair(&n->terms, TERM_ADD, terms_scale(&n->terms, y, 0.2f), x);
    }
    x = terms_pair(&n->terms, TERM_ADD, ncnn_next_same(n, &conv, x), first);
    for (int i = 0; i < n->nearest_count; i++)
        x = terms_leaky(&n->terms, ncnn_next_same(n, &conv, terms_of(&n->terms, TERM_NEAREST, x, 2)), 0.2f);
    return ncnn_next_same(n, &conv, terms_leaky(&n->terms, ncnn_next_same(n, &conv, x), 0.2f));
}

/* SRVGGNetCompact: a chain, and the picture added to it. *slope: of an activation that is not PReLU. */
static int ncnn_srvgg(struct ncnn *n, float *slope)
{
    const int picture = terms_make(&n->terms, (struct term){.kind = TERM_PICTURE});
    int conv = 0, x = picture;
    for (int i = 0; i < n->terms.count && !n->slope_count; i++)
        *slope = n->terms.list[i].kind == TERM_LEAKY ? n->terms.list[i].value : *slope;
    for (int i = 0; i < n->conv_count; i++) {
        x = ncnn_next_same(n, &conv, x);
        if (i + 1 < n->conv_count)
            x = n->slope_count ? terms_of(&n->terms, TERM_PRELU, x, i) : terms_leaky(&n->terms, x, *slope);
    }
    const struct term *last = n->result >= 0 ? &n->terms.list[n->result] : NULL; /* for its factor */
    int factor = 1;
    for (int i = 0; last && i < 2 && last->kind == TERM_ADD; i++) {
        const struct term *part = &n->terms.list[i ? last->b : last->a];
        factor = part->kind == TERM_SHUFFLE ? part->number : factor;
    }
    if (factor == 1)
        return terms_pair(&n->terms, TERM_ADD, x, picture);
    return terms_pair(&n->terms, TERM_ADD, terms_of(&n->terms, TERM_SHUFFLE, x, factor),
                      terms_of(&n->terms, TERM_NEAREST, picture, factor));
}

/* ---- the weights ---- */
/* The name that RRDBNet's checkpoints have for a convolution, by its number. */
static void ncnn_rrdbnet_name(char *out, size_t size, int conv, int blocks, int ups)
{
    const int in_block = conv - 1, after = conv - 1 - 15 * blocks;
    if (conv == 0)
        snprintf(out, size, "conv_first");
    else if (after < 0)
        snprintf(out, size, "body.%d.rdb%d.conv%d", in_block / 15, in_block / 5 % 3 + 1, in_block % 5 + 1);
    else if (after == 0)
        snprintf(out, size, "conv_body");
    else if (after <= ups)
        snprintf(out, size, "conv_up%d", after);
    else
        snprintf(out, size, "%s", after == ups + 1 ? "conv_hr" : "conv_last");
}

/* `count` elements as they are stored: with a tag before them, or plain float32. NULL, with err set, on failure. */
static const uint8_t *ncnn_take(struct ncnn *n, struct bytes *bin, const struct ncnn_layer *layer, uint64_t count,
                                bool tagged, enum weights_dtype *dtype)
{
    uint64_t tag = 0;
    const uint8_t *data = NULL;
    const bool there = !tagged || bytes_number(bin, 4, &tag);
    if (tag != 0 && tag != NCNN_TAG_FP16 && tag != NCNN_TAG_FP32) {
        ncnn_fail(n, ERROR_UNSUPPORTED, layer,
                  tag == NCNN_TAG_INT8 ? "its weights are int8; float16 and float32 are read"
                                       : "its weights are stored in a way that is not known");
        return NULL;
    }
    *dtype = tag == NCNN_TAG_FP16 ? WEIGHTS_F16 : WEIGHTS_F32;
    const uint64_t bytes = (count * (tag == NCNN_TAG_FP16 ? 2 : 4) + 3) & ~(uint64_t)3;
    if (!there || !bytes_take(bin, bytes, &data))
        ncnn_fail(n, ERROR_CORRUPT, layer, "the .bin ends before its weights do");
    return data;
}

/* A tensor of that name, shape and stride that is the next in the .bin. */
static enum error_code ncnn_add(struct ncnn *n, struct bytes *bin, const struct ncnn_layer *layer,
                                struct catalogue_view *view, bool tagged)
{
    view->name_size = strlen(view->name);
    view->storage_count = 1;
    for (int i = 0; i < view->rank; i++)
        view->storage_count *= view->shape[i]; /* of counts that were limited */
    view->storage = ncnn_take(n, bin, layer, view->storage_count, tagged, &view->dtype);
    return view->storage ? catalogue_add(n->catalogue, view, n->err) : n->err->code;
}

/* "stem.weight" and "stem.bias". ncnn has the outputs of all convolutions first; torch has the inputs of a transposed
 * one first, and so its weights are looked at in another order. */
static enum error_code ncnn_conv_weights(struct ncnn *n, struct bytes *bin, const struct ncnn_layer *layer,
                                         const char *stem)
{
    const enum ncnn_conv kind = ncnn_conv_kind(layer);
    int sizes[3];
    char name[80];
    if (!ncnn_conv_sizes(layer, kind, sizes))
        return ncnn_fail(n, ERROR_CORRUPT, layer, "its numbers of inputs, outputs and weights do not fit each other");
    const uint64_t kernel = (uint64_t)ncnn_conv_kernel(kind), area = kernel * kernel, outputs = (uint64_t)sizes[0],
                   inputs = (uint64_t)sizes[1];
    const uint64_t shape[4] = {outputs, inputs, kernel, kernel}, turned[4] = {inputs, outputs, kernel, kernel},
                   stride[4] = {area, inputs * area, kernel, 1};
    const bool transposed = kind >= NCNN_DECONV_2_2_0;
    snprintf(name, sizeof name, "%s.weight", stem);
    const enum error_code code = ncnn_add(
        n, bin, layer,
        &(struct catalogue_view){
            .name = name, .rank = 4, .shape = transposed ? turned : shape, .stride = transposed ? stride : NULL},
        true);
    snprintf(name, sizeof name, "%s.bias", stem);
    return code ? code
                : ncnn_add(n, bin, layer, &(struct catalogue_view){.name = name, .rank = 1, .shape = shape}, false);
}

static enum error_code ncnn_weights(struct ncnn *n, bool dense, int blocks)
{
    struct bytes bin = {.data = n->catalogue->data, .size = n->catalogue->size};
    enum error_code code = OK;
    int conv = 0, slope = 0;
    for (int i = 0; i < n->net.layer_count && !code; i++) {
        const struct ncnn_layer *layer = &n->net.layers[i];
        char stem[64];
        if (conv < n->conv_count && layer == n->convs[conv]) {
            if (n->deconv_count)
                snprintf(stem, sizeof stem, "%s", n->names[conv]);
            else if (dense)
                ncnn_rrdbnet_name(stem, sizeof stem, conv, blocks, n->nearest_count);
            else
                snprintf(stem, sizeof stem, "body.%d", 2 * conv);
            code = ncnn_conv_weights(n, &bin, layer, stem);
            conv++;
        } else if (slope < n->slope_count && layer == n->slopes[slope]) {
            const int outputs = ncnn_int(layer, 0, -1);
            const uint64_t shape[1] = {(uint64_t)outputs};
            if (outputs < 1)
                return ncnn_fail(n, ERROR_CORRUPT, layer, "its number of slopes is none");
            snprintf(stem, sizeof stem, "body.%d.weight", 2 * slope + 1);
            code = ncnn_add(n, &bin, layer, &(struct catalogue_view){.name = stem, .rank = 1, .shape = shape}, false);
            slope++;
        }
    }
    if (!code && bin.at != bin.size)
        code = ncnn_fail(n, ERROR_CORRUPT, NULL, "the .bin has more bytes than the .param's layers take");
    return code;
}

static enum error_code ncnn_activation(struct ncnn *n, float slope)
{
    char text[40];
    snprintf(text, sizeof text, slope > 0 ? "leakyrelu:%.6g" : "relu", (double)slope);
    struct catalogue_pair *pair = arena_alloc(n->catalogue->arena, 1, sizeof *pair, n->err);
    char *value = pair ? arena_strdup(n->catalogue->arena, text, n->err) : NULL;
    if (!value)
        return ERROR_NO_MEMORY;
    *pair = (struct catalogue_pair){"activation", value};
    n->catalogue->metadata = pair;
    n->catalogue->metadata_count = 1;
    return OK;
}

static enum error_code ncnn_read_net(struct ncnn *n, struct arena *arena, const char *text, size_t size)
{
    enum error_code code = ncnn_param_read(&n->net, arena, n->catalogue, text, size, n->err);
    if (code)
        return code;
    const size_t layers = (size_t)n->net.layer_count;
    n->terms.list = arena_alloc(arena, NCNN_MAX_TERMS, sizeof *n->terms.list, n->err);
    n->terms.table = arena_alloc(arena, 2 * NCNN_MAX_TERMS, sizeof *n->terms.table, n->err);
    n->blobs = arena_alloc(arena, (size_t)n->net.blob_count, sizeof *n->blobs, n->err);
    n->convs = arena_alloc(arena, layers, sizeof(struct ncnn_layer *), n->err);
    n->slopes = arena_alloc(arena, layers, sizeof(struct ncnn_layer *), n->err);
    n->names = arena_alloc(arena, layers, sizeof *n->names, n->err);
    if (!n->terms.list || !n->terms.table || !n->blobs || !n->convs || !n->slopes || !n->names)
        return ERROR_NO_MEMORY;
    code = ncnn_walk(n);
    if (code)
        return code;
    const bool cugan = n->deconv_count > 0, dense = !cugan && n->concat_count > 0;
    int blocks = 0;
    float slope = 0;
    const int wanted = cugan ? ncnn_cugan(n) : dense ? ncnn_rrdbnet(n, &blocks) : ncnn_srvgg(n, &slope);
    if (n->err->code)
        return n->err->code;
    if (wanted < 0 || wanted != n->result) {
        char why[100];
        snprintf(why, sizeof why, "nearly %s, but what comes after its convolutions is something else",
                 cugan   ? "Real-CUGAN"
                 : dense ? "RRDBNet"
                         : "SRVGGNetCompact");
        return ncnn_fail(n, ERROR_UNSUPPORTED, &n->net.layers[layers - 1], why);
    }
    code = ncnn_weights(n, dense, blocks);
    return code || cugan || dense || n->slope_count ? code : ncnn_activation(n, slope);
}

enum error_code ncnn_read(struct catalogue *catalogue, const char *text, size_t size, struct error *err)
{
    struct error why = ERROR_INIT;
    struct ncnn n = {.catalogue = catalogue, .result = -1, .err = &why};
    struct arena *arena; /* of everything that is not needed later */
    catalogue->format = "ncnn";
    if (arena_create(&arena, err))
        return ERROR_NO_MEMORY;
    const enum error_code code = ncnn_read_net(&n, arena, text, size);
    arena_destroy(&arena);
    return code ? error_set(err, code, "%s", why.text) : OK;
}
