#include "runtime/weights/ncnn_terms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TERMS_MAX_CHANNELS (1 << 24)

static int terms_channels(const struct terms *t, const struct term *term)
{
    if (term->kind == TERM_PICTURE || term->kind == TERM_CONV)
        return term->channels;
    const int a = t->list[term->a].channels, b = t->list[term->b].channels;
    if (term->kind == TERM_CONCAT)
        return a && b && a + b < TERMS_MAX_CHANNELS ? a + b : 0;
    if (term->kind == TERM_SHUFFLE)
        return term->number > 0 && term->number <= 16 ? a / (term->number * term->number) : 0;
    return a ? a : term->kind == TERM_ADD ? b : 0;
}

int terms_make(struct terms *t, struct term term)
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
    term.channels = terms_channels(t, &term);
    t->list[t->count] = term;
    t->table[at % (2 * NCNN_MAX_TERMS)] = (uint32_t)++t->count;
    return t->count - 1;
}

int terms_of(struct terms *t, enum term_kind kind, int a, int number)
{
    return terms_make(t, (struct term){.kind = kind, .a = a, .number = number});
}

int terms_conv(struct terms *t, enum ncnn_conv kind, int a, int number, int channels)
{
    return terms_make(t,
                      (struct term){.kind = TERM_CONV, .a = a, .b = (int)kind, .number = number, .channels = channels});
}

int terms_leaky(struct terms *t, int a, float slope)
{
    return terms_make(t, (struct term){.kind = TERM_LEAKY, .a = a, .value = slope});
}

int terms_scale(struct terms *t, int a, float value)
{
    return fabsf(value - 1) <= 1e-6f ? a : terms_make(t, (struct term){.kind = TERM_SCALE, .a = a, .value = value});
}

int terms_pair(struct terms *t, enum term_kind kind, int a, int b)
{
    return terms_make(t, (struct term){.kind = kind, .a = a < b ? a : b, .b = a < b ? b : a});
}

bool terms_match(const struct terms *t, int a, int b)
{
    const int of_a = a < 0 ? 0 : t->list[a].channels, of_b = b < 0 ? 0 : t->list[b].channels;
    return !of_a || !of_b || of_a == of_b;
}

int terms_concat(struct terms *t, int a, int b)
{
    return terms_make(t, (struct term){.kind = TERM_CONCAT, .a = a, .b = b});
}

enum error_code ncnn_fail(struct ncnn *n, enum error_code code, const struct ncnn_layer *layer, const char *why)
{
    char text[200];
    struct catalogue_label type, name;
    if (!layer)
        return catalogue_fail(n->err, code, n->catalogue, NULL, "%s", why);
    snprintf(text, sizeof text, "%.60s %.100s", catalogue_label(&type, layer->type, strlen(layer->type)),
             catalogue_label(&name, layer->name, strlen(layer->name)));
    return catalogue_fail(n->err, code, n->catalogue, text, "%s", why);
}

static const struct {
    const char *type;
    int kernel, stride, pad;
} ncnn_conv_kinds[NCNN_CONV_KINDS] = {
    [NCNN_CONV_3_1_1] = {"Convolution", 3, 1, 1},     [NCNN_CONV_3_1_0] = {"Convolution", 3, 1, 0},
    [NCNN_CONV_2_2_0] = {"Convolution", 2, 2, 0},     [NCNN_CONV_1_1_0] = {"Convolution", 1, 1, 0},
    [NCNN_DECONV_2_2_0] = {"Deconvolution", 2, 2, 0}, [NCNN_DECONV_4_2_3] = {"Deconvolution", 4, 2, 3},
    [NCNN_DECONV_5_3_2] = {"Deconvolution", 5, 3, 2}};

int ncnn_conv_kernel(enum ncnn_conv kind)
{
    return ncnn_conv_kinds[kind].kernel;
}

/* Keys: 1, 11 kernel; 3, 13 stride; 4, 14, 15, 16 pad; 2, 12 dilation; 5 bias; 8 int8; 18 to 21 of a transposed one,
 * the pad and the size of the result. */
enum ncnn_conv ncnn_conv_kind(const struct ncnn_layer *layer)
{
    if (strcmp(layer->type, "InnerProduct") == 0)
        return ncnn_int(layer, 1, 0) == 1 && ncnn_int(layer, 8, 0) == 0 ? NCNN_CONV_1_1_0 : NCNN_CONV_KINDS;
    const int kernel = ncnn_int(layer, 1, -1), stride = ncnn_int(layer, 3, 1), pad = ncnn_int(layer, 4, 0);
    const int same[][2] = {{11, kernel}, {13, stride}, {14, pad}, {15, pad}, {16, pad}, {2, 1},
                           {12, 1},      {8, 0},       {18, 0},   {19, 0},   {20, 0},   {21, 0}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (ncnn_int(layer, same[i][0], same[i][1]) != same[i][1])
            return NCNN_CONV_KINDS;
    int kind = ncnn_int(layer, 5, 0) == 1 ? 0 : NCNN_CONV_KINDS;
    while (kind < NCNN_CONV_KINDS &&
           (strcmp(layer->type, ncnn_conv_kinds[kind].type) != 0 || kernel != ncnn_conv_kinds[kind].kernel ||
            stride != ncnn_conv_kinds[kind].stride || pad != ncnn_conv_kinds[kind].pad))
        kind++;
    return (enum ncnn_conv)kind;
}

int ncnn_next(struct ncnn *n, int *conv, enum ncnn_conv kind, int x, const char *network)
{
    const int had = n->terms.count, term = terms_conv(&n->terms, kind, x, *conv, 0);
    if (term < 0 || term >= had) { /* it is new: no layer of the file computes it */
        char why[160];
        snprintf(
            why, sizeof why,
            "is another convolution, or reads something else, than %s would have there, so this is no network that "
            "we know",
            network);
        if (!n->err->code)
            ncnn_fail(n, ERROR_UNSUPPORTED, *conv < n->conv_count ? n->convs[*conv] : NULL, why);
        return -1;
    }
    (*conv)++;
    return term;
}
