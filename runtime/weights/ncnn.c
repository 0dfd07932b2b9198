#include "runtime/weights/ncnn.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/weights/ncnn_param.h"

#define NCNN_MAX_TERMS 65536
#define NCNN_TAG_FP16 0x01306B47u
#define NCNN_TAG_FP32 0x0002C056u
#define NCNN_TAG_INT8 0x000D4B38u

/* What a blob is, as a term over the picture: two layers of which one is spelt in another way give the same term. */
enum term_kind {
    TERM_PICTURE,
    TERM_CONV,    /* of a; number: which convolution */
    TERM_LEAKY,   /* a < 0 ? value*a : a */
    TERM_PRELU,   /* of a; number: which slopes */
    TERM_SCALE,   /* value*a */
    TERM_ADD,     /* a + b, a < b */
    TERM_CONCAT,  /* channels of a, then of b */
    TERM_NEAREST, /* a, number times as large */
    TERM_SHUFFLE  /* pixel shuffle of a by number */
};

struct term {
    enum term_kind kind;
    int a, b, number;
    float value;
};

struct terms {
    struct term *list;
    uint32_t *table; /* open addressing: 1 + index */
    int count;
};

/* The index of a term, the same for equal ones; -1: too many. Terms of what is -1 are -1. */
static int terms_make(struct terms *t, struct term term)
{
    size_t at = (size_t)term.kind;
    const int parts[3] = {term.a, term.b, term.number};
    if (term.kind != TERM_PICTURE && (term.a < 0 || term.b < 0))
        return -1;
    for (int i = 0; i < 3; i++)
        at = at * 1000003 ^ (size_t)parts[i];
    for (; t->table[at % (2 * NCNN_MAX_TERMS)]; at++) {
        const struct term *o = &t->list[t->table[at % (2 * NCNN_MAX_TERMS)] - 1];
        if (o->kind == term.kind && o->a == term.a && o->b == term.b && o->number == term.number &&
            fabsf(o->value - term.value) <= 1e-6f)
            return (int)(o - t->list);
    }
    if (t->count == NCNN_MAX_TERMS)
        return -1;
    t->list[t->count] = term;
    t->table[at % (2 * NCNN_MAX_TERMS)] = (uint32_t)++t->count;
    return t->count - 1;
}

static int terms_leaky(struct terms *t, int a, float slope)
{
    return terms_make(t, (struct term){.kind = TERM_LEAKY, .a = a, .value = slope});
}

static int terms_scale(struct terms *t, int a, float value)
{
    return fabsf(value - 1) <= 1e-6f ? a : terms_make(t, (struct term){.kind = TERM_SCALE, .a = a, .value = value});
}

static int terms_add(struct terms *t, int a, int b)
{
    return terms_make(t, (struct term){.kind = TERM_ADD, .a = a < b ? a : b, .b = a < b ? b : a});
}

static int terms_of(struct terms *t, enum term_kind kind, int a, int number)
{
    return terms_make(t, (struct term){.kind = kind, .a = a, .number = number});
}

static int terms_concat(struct terms *t, int a, int b)
{
    return terms_make(t, (struct term){.kind = TERM_CONCAT, .a = a, .b = b});
}

/* A file on its way into the catalogue. */
struct ncnn {
    struct catalogue *catalogue;
    struct ncnn_net net;
    struct terms terms;
    int *blobs; /* the term of each, or -1 */
    struct ncnn_layer **convs, **slopes;
    int conv_count, slope_count, nearest_count, concat_count;
    int result;
    bool resized; /* the result went through a resize that is left out */
    struct error *err;
};

static enum error_code ncnn_fail(struct ncnn *n, enum error_code code, const struct ncnn_layer *layer, const char *why)
{
    char text[200];
    struct catalogue_label type, name;
    if (!layer)
        return catalogue_fail(n->err, code, n->catalogue, NULL, "%s", why);
    snprintf(text, sizeof text, "%.60s %.100s", catalogue_label(&type, layer->type, strlen(layer->type)),
             catalogue_label(&name, layer->name, strlen(layer->name)));
    return catalogue_fail(n->err, code, n->catalogue, text, "%s", why);
}

/* ---- the graph ---- */
/* The activation that a convolution has in itself, or else x. */
static int ncnn_fused(struct ncnn *n, const struct ncnn_layer *layer, int x)
{
    const int kind = ncnn_int(layer, 9, 0);
    if (kind == 0)
        return x;
    return kind == 1   ? terms_leaky(&n->terms, x, 0)
           : kind == 2 ? terms_leaky(&n->terms, x, layer->set & 1u << 10 ? layer->values[10][0] : 0)
                       : -1;
}

static int ncnn_conv(struct ncnn *n, struct ncnn_layer *layer, int x)
{
    static const struct {
        int key, value;
    } plain[] = {{1, 3}, {2, 1}, {3, 1}, {4, 1}, {11, 3}, {12, 1}, {13, 1}, {14, 1}, {15, 1}, {16, 1}, {5, 1}, {8, 0}};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        const bool needed = plain[i].key == 1 || plain[i].key == 4 || plain[i].key == 5;
        if (ncnn_int(layer, plain[i].key, needed ? -1 : plain[i].value) != plain[i].value)
            return -1;
    }
    n->convs[n->conv_count] = layer;
    return ncnn_fused(n, layer, terms_of(&n->terms, TERM_CONV, x, n->conv_count++));
}

static int ncnn_sum(struct ncnn *n, const struct ncnn_layer *layer, const int *x)
{
    if (strcmp(layer->type, "BinaryOp") == 0) {
        const int op = ncnn_int(layer, 0, 0);
        if (ncnn_int(layer, 1, 0) == 1)
            return op == 2 && layer->input_count == 1 ? terms_scale(&n->terms, x[0], ncnn_value(layer, 2, 0)) : -1;
        return op == 0 && layer->input_count == 2 ? terms_add(&n->terms, x[0], x[1]) : -1;
    }
    if (ncnn_int(layer, 0, 0) != 1 || layer->input_count != 2)
        return -1;
    const bool scaled = layer->set & 2u && layer->counts[1] == 2;
    return terms_add(&n->terms, terms_scale(&n->terms, x[0], scaled ? layer->values[1][0] : 1),
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
    if (strcmp(type, "Convolution") == 0)
        return ncnn_conv(n, layer, x[0]);
    if (strcmp(type, "ReLU") == 0)
        return terms_leaky(&n->terms, x[0], ncnn_value(layer, 0, 0));
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
        if (term < 0 || (layer->output_count != 1 && strcmp(layer->type, "Split") != 0))
            return ncnn_fail(
                n, ERROR_UNSUPPORTED, layer,
                "a layer that neither RRDBNet nor SRVGGNetCompact has, so this is no network that we know");
        for (int k = 0; k < layer->output_count; k++)
            n->blobs[layer->outputs[k]] = term;
        n->result = term;
    }
    return OK;
}

/* ---- what the networks compute ---- */
/* The term of the next convolution of x, in the order of the file; -1 where the file has another one there. */
static int ncnn_next(struct ncnn *n, int *conv, int x)
{
    const int had = n->terms.count, term = terms_of(&n->terms, TERM_CONV, x, *conv);
    if (term < 0 || term >= had) { /* it is new: no layer of the file computes it */
        if (!n->err->code)
            ncnn_fail(n, ERROR_UNSUPPORTED, *conv < n->conv_count ? n->convs[*conv] : NULL,
                      "reads something else than RRDBNet or SRVGGNetCompact would there, so this is no network that we "
                      "know");
        return -1;
    }
    (*conv)++;
    return term;
}

static int ncnn_dense(struct ncnn *n, int *conv, int x)
{
    int seen = x;
    for (int i = 0; i < 4; i++)
        seen = terms_concat(&n->terms, seen, terms_leaky(&n->terms, ncnn_next(n, conv, seen), 0.2f));
    return terms_add(&n->terms, terms_scale(&n->terms, ncnn_next(n, conv, seen), 0.2f), x);
}

/* RRDBNet as runtime/models/rrdbnet.c has it: 15 convolutions a block, and 4 and the upsamplings' besides. */
static int ncnn_rrdbnet(struct ncnn *n, int *blocks)
{
    int conv = 0, x = ncnn_next(n, &conv, terms_make(&n->terms, (struct term){.kind = TERM_PICTURE})), first = x;
    *blocks = (n->conv_count - 4 - n->nearest_count) / 15;
    for (int i = 0; i < *blocks && x >= 0; i++) {
        int y = x;
        for (int r = 0; r < 3; r++)
            y = ncnn_dense(n, &conv, y);
        x = terms_add(&n->terms, terms_scale(&n->terms, y, 0.2f), x);
    }
    x = terms_add(&n->terms, ncnn_next(n, &conv, x), first);
    for (int i = 0; i < n->nearest_count; i++)
        x = terms_leaky(&n->terms, ncnn_next(n, &conv, terms_of(&n->terms, TERM_NEAREST, x, 2)), 0.2f);
    return ncnn_next(n, &conv, terms_leaky(&n->terms, ncnn_next(n, &conv, x), 0.2f));
}

/* SRVGGNetCompact: a chain, and the picture added to it. *slope: of an activation that is not PReLU. */
static int ncnn_srvgg(struct ncnn *n, float *slope)
{
    const int picture = terms_make(&n->terms, (struct term){.kind = TERM_PICTURE});
    int conv = 0, x = picture;
    for (int i = 0; i < n->terms.count && !n->slope_count; i++)
        *slope = n->terms.list[i].kind == TERM_LEAKY ? n->terms.list[i].value : *slope;
    for (int i = 0; i < n->conv_count; i++) {
        x = ncnn_next(n, &conv, x);
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
        return terms_add(&n->terms, x, picture);
    return terms_add(&n->terms, terms_of(&n->terms, TERM_SHUFFLE, x, factor),
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

static enum error_code ncnn_add(struct ncnn *n, struct bytes *bin, const struct ncnn_layer *layer, const char *name,
                                int rank, const uint64_t *shape, bool tagged)
{
    struct catalogue_view view = {
        .name = name, .name_size = strlen(name), .rank = rank, .shape = shape, .storage_count = 1};
    for (int i = 0; i < rank; i++)
        view.storage_count *= shape[i]; /* of counts that were limited */
    view.storage = ncnn_take(n, bin, layer, view.storage_count, tagged, &view.dtype);
    return view.storage ? catalogue_add(n->catalogue, &view, n->err) : n->err->code;
}

static enum error_code ncnn_weights(struct ncnn *n, bool dense, int blocks)
{
    struct bytes bin = {.data = n->catalogue->data, .size = n->catalogue->size};
    enum error_code code = OK;
    int conv = 0, slope = 0;
    for (int i = 0; i < n->net.layer_count && !code; i++) {
        const struct ncnn_layer *layer = &n->net.layers[i];
        const bool is_conv = conv < n->conv_count && layer == n->convs[conv];
        char stem[64], name[80];
        if (!is_conv && !(slope < n->slope_count && layer == n->slopes[slope]))
            continue;
        const int outputs = ncnn_int(layer, 0, -1), count = ncnn_int(layer, 6, -1);
        if (outputs < 1 || (is_conv && (count < 1 || count % (9 * outputs))))
            return ncnn_fail(n, ERROR_CORRUPT, layer, "its numbers of outputs and weights do not fit each other");
        const uint64_t shape[4] = {(uint64_t)outputs, is_conv ? (uint64_t)count / (9 * (uint64_t)outputs) : 0, 3, 3};
        if (dense)
            ncnn_rrdbnet_name(stem, sizeof stem, conv, blocks, n->nearest_count);
        else
            snprintf(stem, sizeof stem, "body.%d", is_conv ? 2 * conv : 2 * slope + 1);
        snprintf(name, sizeof name, "%s.weight", stem);
        code = ncnn_add(n, &bin, layer, name, is_conv ? 4 : 1, shape, is_conv);
        snprintf(name, sizeof name, "%s.bias", stem);
        if (is_conv && !code)
            code = ncnn_add(n, &bin, layer, name, 1, shape, false);
        conv += is_conv;
        slope += !is_conv;
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
    if (!n->terms.list || !n->terms.table || !n->blobs || !n->convs || !n->slopes)
        return ERROR_NO_MEMORY;
    code = ncnn_walk(n);
    if (code)
        return code;
    const bool dense = n->concat_count > 0;
    int blocks = 0;
    float slope = 0;
    const int wanted = dense ? ncnn_rrdbnet(n, &blocks) : ncnn_srvgg(n, &slope);
    if (n->err->code)
        return n->err->code;
    if (wanted < 0 || wanted != n->result)
        return ncnn_fail(n, ERROR_UNSUPPORTED, NULL,
                         dense ? "nearly RRDBNet, but what comes after its convolutions is something else"
                               : "nearly SRVGGNetCompact, but what comes after its convolutions is something else");
    code = ncnn_weights(n, dense, blocks);
    return code || dense || n->slope_count ? code : ncnn_activation(n, slope);
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
