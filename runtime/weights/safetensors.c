#include "runtime/weights/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"

/* The format allows 100 MB; a header takes some 120 bytes a tensor, and parsing one may take 80 times its size. */
#define SAFETENSORS_MAX_HEADER ((uint64_t)1 << 20)

struct range {
    const char *name;
    uint64_t begin, end;
};

struct reader {
    struct catalogue *catalogue;
    const uint8_t *data; /* behind the header */
    uint64_t size;
    struct range *ranges; /* from malloc */
    size_t range_count;
    struct error *err;
};

static enum error_code safetensors_fail_header(struct catalogue *catalogue, struct error *err, const char *reason)
{
    return catalogue_fail(err, ERROR_CORRUPT, catalogue, "header", "%s", reason);
}

static bool safetensors_find_dtype(const char *name, enum weights_dtype *out)
{
    static const struct {
        const char *name;
        enum weights_dtype dtype;
    } dtypes[] = {{"F32", WEIGHTS_F32}, {"F16", WEIGHTS_F16},  {"BF16", WEIGHTS_BF16}, {"F64", WEIGHTS_F64},
                  {"I8", WEIGHTS_I8},   {"I16", WEIGHTS_I16},  {"I32", WEIGHTS_I32},   {"I64", WEIGHTS_I64},
                  {"U8", WEIGHTS_U8},   {"BOOL", WEIGHTS_BOOL}};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = dtypes[i].dtype;
            return true;
        }
    }
    return false;
}

static bool safetensors_size_at(const json_t *array, size_t index, uint64_t *out)
{
    const json_t *v = json_array_get(array, index);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static enum error_code safetensors_read_metadata(struct catalogue *catalogue, json_t *object, struct error *err)
{
    if (!json_is_object(object))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, "__metadata__", "not an object");
    catalogue->metadata = arena_alloc(catalogue->arena, json_object_size(object), sizeof *catalogue->metadata, err);
    if (!catalogue->metadata)
        return ERROR_NO_MEMORY;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return catalogue_fail(err, ERROR_CORRUPT, catalogue, "__metadata__", "a value is not text");
        struct catalogue_pair *pair = &catalogue->metadata[catalogue->metadata_count++];
        pair->key = arena_strdup(catalogue->arena, key, err);
        pair->value = arena_strdup(catalogue->arena, json_string_value(value), err);
        if (!pair->key || !pair->value)
            return ERROR_NO_MEMORY;
    }
    return OK;
}

static enum error_code safetensors_read_tensor(struct reader *r, const char *name, const json_t *object)
{
    struct catalogue_label label, other;
    const char *entry = catalogue_label(&label, name, strlen(name));
    const json_t *dtype = json_object_get(object, "dtype"), *shape = json_object_get(object, "shape"),
                 *offsets = json_object_get(object, "data_offsets");
    struct range range = {.name = name};
    if (!json_is_string(dtype) || !json_is_array(shape) || json_array_size(offsets) != 2 ||
        !safetensors_size_at(offsets, 0, &range.begin) || !safetensors_size_at(offsets, 1, &range.end))
        return catalogue_fail(r->err, ERROR_CORRUPT, r->catalogue, entry, "it needs dtype, shape and two data_offsets");
    struct catalogue_view view = {.name = name, .name_size = strlen(name)};
    if (!safetensors_find_dtype(json_string_value(dtype), &view.dtype))
        return catalogue_fail(r->err, ERROR_UNSUPPORTED, r->catalogue, entry, "dtype %.30s",
                              catalogue_label(&other, json_string_value(dtype), json_string_length(dtype)));
    if (range.begin > range.end || range.end > r->size)
        return catalogue_fail(r->err, ERROR_CORRUPT, r->catalogue, entry,
                              "data_offsets %" PRIu64 " to %" PRIu64 " reach outside the file's %" PRIu64
                              " bytes of data",
                              range.begin, range.end, r->size);
    if (json_array_size(shape) > WEIGHTS_MAX_RANK)
        return catalogue_fail(r->err, ERROR_UNSUPPORTED, r->catalogue, entry,
                              "%zu dimensions, at most %d are supported", json_array_size(shape), WEIGHTS_MAX_RANK);
    uint64_t extents[WEIGHTS_MAX_RANK];
    view.rank = (int)json_array_size(shape);
    view.shape = extents;
    for (int i = 0; i < view.rank; i++)
        if (!safetensors_size_at(shape, (size_t)i, &extents[i]))
            return catalogue_fail(r->err, ERROR_CORRUPT, r->catalogue, entry,
                                  "its shape holds something that is not a size");
    size_t element = catalogue_element_size(view.dtype);
    view.storage = r->data + range.begin;
    view.storage_count = (range.end - range.begin) / element;
    enum error_code code = catalogue_add(r->catalogue, &view, r->err);
    if (code != OK)
        return code;
    if (r->catalogue->tensors[r->catalogue->count - 1].count * element != range.end - range.begin)
        return catalogue_fail(r->err, ERROR_CORRUPT, r->catalogue, entry,
                              "its shape and its data_offsets give different sizes");
    r->ranges[r->range_count++] = range;
    return OK;
}

static int safetensors_compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin > y->begin ? 1 : -1;
    if (x->end != y->end)
        return x->end > y->end ? 1 : -1;
    return strcmp(x->name, y->name); /* so that an error names the same one everywhere */
}

static enum error_code safetensors_check_ranges(struct reader *r)
{
    uint64_t at = 0;
    if (r->range_count > 0)
        qsort(r->ranges, r->range_count, sizeof *r->ranges, safetensors_compare_ranges);
    for (size_t i = 0; i < r->range_count; i++) {
        struct catalogue_label label;
        const struct range *range = &r->ranges[i];
        if (range->begin != at)
            return catalogue_fail(
                r->err, ERROR_CORRUPT, r->catalogue, catalogue_label(&label, range->name, strlen(range->name)), "%s",
                range->begin < at ? "its data overlaps another tensor's" : "a hole lies before its data");
        at = range->end;
    }
    if (at != r->size)
        return catalogue_fail(r->err, ERROR_CORRUPT, r->catalogue, "header",
                              "%" PRIu64 " bytes of data belong to no tensor", r->size - at);
    return OK;
}

static enum error_code safetensors_read_header(struct reader *r, json_t *header)
{
    if (!json_is_object(header))
        return safetensors_fail_header(r->catalogue, r->err, "not an object");
    r->ranges = mem_alloc(json_object_size(header), sizeof *r->ranges);
    if (!r->ranges)
        return catalogue_fail(r->err, ERROR_NO_MEMORY, r->catalogue, "header", "out of memory");
    enum error_code code = OK;
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value)
    {
        code = strcmp(name, "__metadata__") == 0 ? safetensors_read_metadata(r->catalogue, value, r->err)
                                                 : safetensors_read_tensor(r, name, value);
        if (code != OK)
            return code;
    }
    return safetensors_check_ranges(r);
}

enum error_code safetensors_read(struct catalogue *catalogue, struct error *err)
{
    struct bytes in = {.data = catalogue->data, .size = catalogue->size};
    uint64_t length;
    const uint8_t *text;
    catalogue->format = "safetensors";
    if (!bytes_u64(&in, &length) || !bytes_take(&in, length, &text))
        return safetensors_fail_header(catalogue, err, "its length reaches outside the file");
    if (length > SAFETENSORS_MAX_HEADER)
        return catalogue_fail(err, ERROR_TOO_LARGE, catalogue, "header", "%" PRIu64 " bytes, at most %" PRIu64, length,
                              SAFETENSORS_MAX_HEADER);
    json_error_t json_error;
    json_t *header = json_loadb((const char *)text, (size_t)length, JSON_REJECT_DUPLICATES, &json_error);
    if (!header && json_error_code(&json_error) == json_error_out_of_memory)
        return error_set(err, ERROR_NO_MEMORY, "%s: out of memory for its header", catalogue->file);
    if (!header) {
        struct catalogue_label label;
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, "header", "not valid JSON: %s",
                              catalogue_label(&label, json_error.text, strlen(json_error.text)));
    }
    struct reader r = {.catalogue = catalogue, .data = in.data + in.at, .size = in.size - in.at, .err = err};
    enum error_code code = safetensors_read_header(&r, header);
    free(r.ranges);
    json_decref(header);
    return code;
}
