#include "runtime/weights/ncnn_param.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCNN_MAGIC "7767517"
#define NCNN_MAX_TEXT ((size_t)4 << 20)
#define NCNN_MAX_LAYERS 8192
#define NCNN_MAX_BLOBS 16384
#define NCNN_MAX_LINE 4096
#define NCNN_ARRAY (-23300) /* the key of array N is this less N */

struct param_reader {
    const struct catalogue *catalogue; /* for errors */
    struct arena *arena;
    const char *at, *end;
    int line;
    char **blobs;    /* by number */
    uint32_t *table; /* open addressing by name: 1 + number */
    size_t table_size;
    struct ncnn_net *net;
    struct error *err;
};

bool ncnn_param_is(const void *data, size_t size)
{
    const size_t n = strlen(NCNN_MAGIC);
    return size > n && memcmp(data, NCNN_MAGIC, n) == 0 && strchr("\r\n \t", ((const char *)data)[n]);
}

float ncnn_value(const struct ncnn_layer *layer, int key, float otherwise)
{
    return layer->set & 1u << key ? layer->values[key][0] : otherwise;
}

int ncnn_int(const struct ncnn_layer *layer, int key, int otherwise)
{
    const float value = ncnn_value(layer, key, (float)otherwise);
    return fabsf(value) < 16777216 && value == truncf(value) ? (int)value : -1; /* -1 means nothing to any key */
}

static enum error_code param_fail(struct param_reader *r, enum error_code code, const char *reason)
{
    return catalogue_fail(r->err, code, r->catalogue, NULL, "line %d: %s", r->line, reason);
}

/* The next line that is not empty, into line[NCNN_MAX_LINE]. */
static enum error_code param_line(struct param_reader *r, char *line)
{
    do {
        const char *end = memchr(r->at, '\n', (size_t)(r->end - r->at));
        const size_t n = (size_t)((end ? end : r->end) - r->at);
        r->line++;
        if (r->at == r->end)
            return param_fail(r, ERROR_CORRUPT, "the text ends before its layers do");
        if (n >= NCNN_MAX_LINE || memchr(r->at, '\0', n))
            return param_fail(r, ERROR_CORRUPT, "too long, or not text");
        memcpy(line, r->at, n);
        line[n] = '\0';
        r->at += n + (end ? 1 : 0);
    } while (strspn(line, " \t\r") == strlen(line));
    return OK;
}

static size_t param_hash(const char *name)
{
    size_t hash = 5381;
    for (; *name; name++)
        hash = hash * 33 ^ (unsigned char)*name;
    return hash;
}

/* The number of the blob of that name, a new one if there was none; -1: too many, or no memory. */
static int param_blob(struct param_reader *r, const char *name)
{
    size_t at = param_hash(name);
    for (; r->table[at & (r->table_size - 1)]; at++)
        if (strcmp(r->blobs[r->table[at & (r->table_size - 1)] - 1], name) == 0)
            return (int)r->table[at & (r->table_size - 1)] - 1;
    if (r->net->blob_count == NCNN_MAX_BLOBS || !(r->blobs[r->net->blob_count] = arena_strdup(r->arena, name, r->err)))
        return -1;
    r->table[at & (r->table_size - 1)] = (uint32_t)++r->net->blob_count;
    return r->net->blob_count - 1;
}

/* "KEY=VALUE", "KEY=A,B,…" or "-233NN=LENGTH,A,B,…". */
static bool param_key(struct ncnn_layer *layer, char *text)
{
    char *end;
    long key = strtol(text, &end, 10);
    if (*end != '=')
        return false;
    const bool old_array = key <= NCNN_ARRAY;
    key = old_array ? NCNN_ARRAY - key : key;
    if (key < 0 || key >= NCNN_MAX_KEYS)
        return false;
    int count = old_array ? -1 : 0; /* the first is the length */
    char *value = end + 1;
    if (*value == '"' || (*value >= 'A' && *value <= 'Z') || (*value >= 'a' && *value <= 'z'))
        return true; /* a text: none of the layers that are used has one */
    for (bool more = true; more; value = end + 1, count++) {
        const float v = strtof(value, &end);
        if (end == value || !isfinite(v) || (*end && *end != ','))
            return false;
        if (count >= 0 && count < 2)
            layer->values[key][count] = v;
        more = *end == ',';
    }
    layer->counts[key] = count;
    layer->set |= 1u << key;
    return true;
}

/* "type name inputs outputs INPUT… OUTPUT… KEY=VALUE…" */
static enum error_code param_layer(struct param_reader *r, struct ncnn_layer *layer, char *line)
{
    static const char blank[] = " \t\r";
    char *rest, *type = strtok_r(line, blank, &rest), *name = strtok_r(NULL, blank, &rest);
    char *inputs = strtok_r(NULL, blank, &rest), *outputs = strtok_r(NULL, blank, &rest);
    if (!outputs)
        return param_fail(r, ERROR_CORRUPT, "a layer has a type, a name and the numbers of its inputs and outputs");
    layer->type = arena_strdup(r->arena, type, r->err);
    layer->name = arena_strdup(r->arena, name, r->err);
    if (!layer->type || !layer->name)
        return ERROR_NO_MEMORY;
    layer->input_count = atoi(inputs);
    layer->output_count = atoi(outputs);
    if (layer->input_count < 0 || layer->input_count > NCNN_MAX_ENDS || layer->output_count < 0 ||
        layer->output_count > NCNN_MAX_ENDS)
        return param_fail(r, ERROR_TOO_LARGE, "a layer has more than 16 inputs or outputs");
    for (int i = 0; i < layer->input_count + layer->output_count; i++) {
        const char *blob = strtok_r(NULL, blank, &rest);
        const int number = blob ? param_blob(r, blob) : -1;
        if (number < 0)
            return param_fail(r, ERROR_CORRUPT, blob ? "too many blobs" : "a layer's inputs or outputs are missing");
        if (i < layer->input_count)
            layer->inputs[i] = number;
        else
            layer->outputs[i - layer->input_count] = number;
    }
    for (char *key = strtok_r(NULL, blank, &rest); key; key = strtok_r(NULL, blank, &rest))
        if (!param_key(layer, key))
            return param_fail(r, ERROR_CORRUPT, "not KEY=VALUE");
    return OK;
}

enum error_code ncnn_param_read(struct ncnn_net *out, struct arena *arena, const struct catalogue *catalogue,
                                const char *text, size_t size, struct error *err)
{
    struct param_reader r = {
        .catalogue = catalogue, .arena = arena, .at = text, .end = text + size, .net = out, .err = err};
    char line[NCNN_MAX_LINE];
    int layers = 0, blobs = 0;
    *out = (struct ncnn_net){0};
    if (size > NCNN_MAX_TEXT)
        return catalogue_fail(err, ERROR_TOO_LARGE, catalogue, NULL, "the .param has more than 4 MiB");
    r.table_size = 2 * (size_t)NCNN_MAX_BLOBS;
    r.blobs = arena_alloc(arena, NCNN_MAX_BLOBS, sizeof *r.blobs, err);
    r.table = arena_alloc(arena, r.table_size, sizeof *r.table, err);
    if (!r.blobs || !r.table)
        return ERROR_NO_MEMORY;
    enum error_code code = param_line(&r, line); /* the magic number, which was looked at */
    code = code ? code : param_line(&r, line);
    if (code)
        return code;
    if (sscanf(line, "%d %d", &layers, &blobs) != 2 || layers < 1 || layers > NCNN_MAX_LAYERS)
        return param_fail(&r, ERROR_CORRUPT, "not the numbers of layers and blobs");
    out->layers = arena_alloc(arena, (size_t)layers, sizeof *out->layers, err);
    if (!out->layers)
        return ERROR_NO_MEMORY;
    for (; out->layer_count < layers && !code; out->layer_count++) {
        code = param_line(&r, line);
        code = code ? code : param_layer(&r, &out->layers[out->layer_count], line);
    }
    return code;
}
