#include "runtime/weights/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/file.h"
#include "runtime/weights/catalogue.h"
#include "runtime/weights/ncnn.h"
#include "runtime/weights/ncnn_param.h"
#include "runtime/weights/pth_legacy.h"
#include "runtime/weights/pth_zip.h"
#include "runtime/weights/safetensors.h"

struct weights {
    struct file map; /* empty when the bytes are borrowed */
    struct file bin; /* the .bin of an ncnn model, of which map is the .param */
    struct catalogue catalogue;
    const struct weights_tensor **by_name; /* sorted */
};

/* ---- opening ---- */
bool weights_bin_path(char *out, size_t size, const char *path)
{
    static const char ending[] = ".param";
    const size_t n = strlen(path), e = sizeof ending - 1;
    return n > e && strcasecmp(path + n - e, ending) == 0 && n < size &&
           snprintf(out, size, "%.*s.bin", (int)(n - e), path) > 0;
}

/* The .bin beside a .param. */
static enum error_code weights_read_ncnn(struct weights *w, struct error *err)
{
    char path[4096];
    struct error why = ERROR_INIT;
    if (!w->map.data || !weights_bin_path(path, sizeof path, w->catalogue.file))
        return catalogue_fail(err, ERROR_UNSUPPORTED, &w->catalogue, NULL,
                              "an ncnn network without weights: they are read from NAME.bin beside NAME.param");
    const enum error_code code = file_map(&w->bin, path, &why);
    if (code)
        return catalogue_fail(err, code, &w->catalogue, NULL, "its weights are read from the .bin beside it; %s",
                              why.text);
    w->catalogue.data = w->bin.data;
    w->catalogue.size = w->bin.size;
    return ncnn_read(&w->catalogue, (const char *)w->map.data, w->map.size, err);
}

static enum error_code weights_read_any(struct weights *w, struct error *err)
{
    struct catalogue *catalogue = &w->catalogue;
    const uint8_t *p = catalogue->data;
    size_t n = catalogue->size;
    if (n == 0)
        return catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, NULL, "the file is empty");
    if (n >= 4 && memcmp(p, "PK\3\4", 4) == 0)
        return pth_zip_read(catalogue, err);
    if (n >= 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5)
        return pth_legacy_read(catalogue, err);
    if (n > 8 && p[8] == '{')
        return safetensors_read(catalogue, err);
    if (ncnn_param_is(p, n))
        return weights_read_ncnn(w, err);
    return catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, NULL,
                          "not a checkpoint: its first bytes are neither torch.save's, safetensors' nor a .param's");
}

static int weights_compare_tensors(const void *a, const void *b)
{
    return strcmp((*(const struct weights_tensor *const *)a)->name, (*(const struct weights_tensor *const *)b)->name);
}

static enum error_code weights_sort_names(struct weights *w, struct error *err)
{
    size_t n = w->catalogue.count;
    w->by_name = arena_alloc(w->catalogue.arena, n, sizeof *w->by_name, err);
    if (!w->by_name)
        return ERROR_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        w->by_name[i] = &w->catalogue.tensors[i];
    qsort(w->by_name, n, sizeof *w->by_name, weights_compare_tensors);
    for (size_t i = 1; i < n; i++) {
        struct catalogue_label label;
        const char *name = w->by_name[i]->name;
        if (strcmp(w->by_name[i - 1]->name, name) == 0)
            return catalogue_fail(err, ERROR_CORRUPT, &w->catalogue, catalogue_label(&label, name, strlen(name)),
                                  "two tensors have this name");
    }
    return OK;
}

/* Takes over the map, even when it fails. */
static enum error_code weights_open_bytes(struct weights **out, const char *name, struct file map, const void *data,
                                          size_t size, struct error *err)
{
    *out = NULL;
    struct weights *w = mem_calloc(1, sizeof *w);
    if (!w) {
        file_unmap(&map);
        return error_set(err, ERROR_NO_MEMORY, "%s: out of memory", name);
    }
    w->map = map;
    w->catalogue = (struct catalogue){.file = name, .data = data, .size = size};
    enum error_code code = arena_create(&w->catalogue.arena, err);
    if (code == OK) {
        w->catalogue.file = arena_strdup(w->catalogue.arena, name, err);
        code = w->catalogue.file ? OK : ERROR_NO_MEMORY;
    }
    if (code == OK) {
        struct error why = ERROR_INIT;
        code = weights_read_any(w, &why);
        if (code == OK)
            code = weights_sort_names(w, &why);
        if (weights_check(w, err) != OK) /* whatever else was wrong with it */
            code = ERROR_IO;
        else if (code != OK)
            code = error_set(err, code, "%s", why.text);
    }
    if (code == OK)
        *out = w;
    else
        weights_close(&w);
    return code;
}

enum error_code weights_open(struct weights **out, const char *path, struct error *err)
{
    struct file map;
    *out = NULL;
    enum error_code code = file_map(&map, path, err);
    return code == OK ? weights_open_bytes(out, path, map, map.data, map.size, err) : code;
}

enum error_code weights_open_memory(struct weights **out, const char *name, const void *data, size_t size,
                                    struct error *err)
{
    return weights_open_bytes(out, name, (struct file){0}, data, size, err);
}

enum error_code weights_check(const struct weights *weights, struct error *err)
{
    if (!file_changed(&weights->map) && (!weights->bin.data || !file_changed(&weights->bin)))
        return OK;
    return error_set(err, ERROR_IO,
                     "%s: the file was changed or cut off while it was in use; put a complete file in its place "
                     "(by renaming, as mv does), and it will be read",
                     weights->catalogue.file);
}

struct file_id weights_id(const struct weights *weights)
{
    return file_id(&weights->map);
}

uint64_t weights_bytes(const struct weights *weights)
{
    return weights->map.size + weights->bin.size;
}

void weights_expect(const struct weights *weights)
{
    file_expect(&weights->map);
    if (weights->bin.data)
        file_expect(&weights->bin);
}

void weights_close(struct weights **weights)
{
    struct weights *w = *weights;
    if (!w)
        return;
    arena_destroy(&w->catalogue.arena);
    file_unmap(&w->map);
    file_unmap(&w->bin);
    free(w);
    *weights = NULL;
}

/* ---- looking up ---- */
size_t weights_count(const struct weights *weights)
{
    return weights->catalogue.count;
}

const struct weights_tensor *weights_at(const struct weights *weights, size_t index)
{
    return index < weights->catalogue.count ? &weights->catalogue.tensors[index] : NULL;
}

const struct weights_tensor *weights_find(const struct weights *weights, const char *name)
{
    size_t low = 0, high = weights->catalogue.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(weights->by_name[middle]->name, name);
        if (order == 0)
            return weights->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const char *weights_metadata(const struct weights *weights, const char *key)
{
    const struct catalogue *c = &weights->catalogue;
    for (size_t i = 0; i < c->metadata_count; i++)
        if (strcmp(c->metadata[i].key, key) == 0)
            return c->metadata[i].value;
    return NULL;
}

const char *weights_format(const struct weights *weights)
{
    return weights->catalogue.format;
}

/* ---- reading ---- */
static float weights_float_from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static float weights_float_from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 0) { /* zero and subnormal: fraction * 2^-24 */
        float v = (float)fraction * 0x1p-24f;
        return sign ? -v : v;
    }
    if (exponent == 31)
        return weights_float_from_bits(sign | 0x7f800000u | fraction << 13);
    return weights_float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* count elements, step bytes apart; src need not be aligned. */
#define CONVERT(type, expression)                                                                                      \
    for (uint64_t i = 0; i < count; i++) {                                                                             \
        type v;                                                                                                        \
        memcpy(&v, src, sizeof v);                                                                                     \
        out[i] = (expression);                                                                                         \
        src += step;                                                                                                   \
    }                                                                                                                  \
    break

static void weights_convert(enum weights_dtype dtype, const uint8_t *src, int64_t step, uint64_t count, float *out)
{
    switch (dtype) {
    case WEIGHTS_F32:
        if (step == sizeof *out) {
            memcpy(out, src, (size_t)count * sizeof *out);
            break;
        }
        CONVERT(float, v);
    case WEIGHTS_F16:
        CONVERT(uint16_t, weights_float_from_half(v));
    case WEIGHTS_BF16:
        CONVERT(uint16_t, weights_float_from_bits((uint32_t)v << 16));
    case WEIGHTS_F64:
        CONVERT(double, (float)v);
    case WEIGHTS_I8:
        CONVERT(int8_t, v);
    case WEIGHTS_I16:
        CONVERT(int16_t, v);
    case WEIGHTS_I32:
        CONVERT(int32_t, (float)v);
    case WEIGHTS_I64:
        CONVERT(int64_t, (float)v);
    case WEIGHTS_U8:
        CONVERT(uint8_t, v);
    case WEIGHTS_BOOL:
        CONVERT(uint8_t, v != 0);
    }
}

void weights_read_f32(const struct weights_tensor *tensor, float *out)
{
    if (tensor->count == 0)
        return;
    int64_t element = (int64_t)catalogue_element_size(tensor->dtype);
    /* The last dimensions, as long as they follow each other without a gap, make one row. */
    int outer = tensor->rank;
    uint64_t row = 1;
    int64_t step = 1;
    while (outer > 0) {
        uint64_t extent = tensor->shape[outer - 1];
        int64_t stride = tensor->stride[outer - 1];
        if (extent != 1) {
            if (row == 1)
                step = stride;
            else if (stride != step * (int64_t)row)
                break;
            row *= extent;
        }
        outer--;
    }
    uint64_t at[WEIGHTS_MAX_RANK] = {0}, rows = tensor->count / row;
    const uint8_t *src = tensor->data;
    for (uint64_t r = 0; r < rows; r++) {
        weights_convert(tensor->dtype, src, step * element, row, out + r * row);
        for (int i = outer - 1; i >= 0; i--) {
            if (++at[i] < tensor->shape[i]) {
                src += tensor->stride[i] * element;
                break;
            }
            src -= (int64_t)(at[i] - 1) * tensor->stride[i] * element;
            at[i] = 0;
        }
    }
}
