#include "runtime/weights/catalogue.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A checkpoint has hundreds of tensors, thousands at most. Many views of one storage cost a file a few bytes each, but
 * us a few hundred and whatever is made from their values. */
#define CATALOGUE_MAX_TENSORS ((size_t)1 << 14)
#define CATALOGUE_MAX_SHARED 2 /* elements of all tensors together, for each byte of the file */

size_t catalogue_element_size(enum weights_dtype dtype)
{
    static const size_t sizes[] = {
        [WEIGHTS_F32] = 4, [WEIGHTS_F16] = 2, [WEIGHTS_BF16] = 2, [WEIGHTS_F64] = 8, [WEIGHTS_I8] = 1,
        [WEIGHTS_I16] = 2, [WEIGHTS_I32] = 4, [WEIGHTS_I64] = 8,  [WEIGHTS_U8] = 1,  [WEIGHTS_BOOL] = 1,
    };
    return sizes[dtype];
}

const char *catalogue_label(struct catalogue_label *label, const void *name, size_t size)
{
    const unsigned char *p = name;
    size_t limit = sizeof label->text - 1, n = size < limit ? size : limit;
    for (size_t i = 0; i < n; i++)
        label->text[i] = p[i] >= 0x20 && p[i] < 0x7f ? (char)p[i] : '?';
    label->text[n] = '\0';
    if (size > limit)
        memcpy(label->text + limit - 3, "...", 3);
    return label->text;
}

enum error_code catalogue_fail(struct error *err, enum error_code code, const struct catalogue *catalogue,
                               const char *entry, const char *format, ...)
{
    char reason[300];
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    /* Only the end of a very long path is shown, so that entry and reason always have room. */
    size_t n = strlen(catalogue->file), keep = 200;
    const char *cut = n > keep ? "..." : "", *file = n > keep ? catalogue->file + n - keep : catalogue->file;
    if (entry)
        return error_set(err, code, "%s%s: %s: %s", cut, file, entry, reason);
    return error_set(err, code, "%s%s: %s", cut, file, reason);
}

static bool catalogue_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static bool catalogue_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* The product of the shape; an empty tensor's other extents may be as large as they like. */
static bool catalogue_shape_count(int rank, const uint64_t *shape, uint64_t *out)
{
    for (int i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            *out = 0;
            return true;
        }
    }
    *out = 1;
    for (int i = 0; i < rank; i++)
        if (!catalogue_mul_u64(*out, shape[i], out))
            return false;
    return true;
}

static void catalogue_shape_text(int rank, const uint64_t *shape, char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%" PRIu64, i ? ", " : "", shape[i]);
    if (at < size)
        snprintf(out + at, size - at, "]");
}

static enum error_code catalogue_check_view(const struct catalogue *catalogue, const struct catalogue_view *view,
                                            const char *entry, struct weights_tensor *out, struct error *err)
{
    char shape[8 + 22 * WEIGHTS_MAX_RANK];
    catalogue_shape_text(view->rank, view->shape, shape, sizeof shape);
    if (!catalogue_shape_count(view->rank, view->shape, &out->count))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry, "shape %s has more elements than can be counted",
                              shape);
    uint64_t dense = 1, last = view->offset;
    bool fits = true;
    for (int i = view->rank - 1; i >= 0; i--) {
        uint64_t stride = view->stride ? view->stride[i] : dense, span = 0;
        out->shape[i] = view->shape[i];
        out->stride[i] = out->count > 0 ? (int64_t)stride : 0;
        if (out->count > 0) {
            dense *= view->shape[i]; /* divides count, which has been checked */
            fits = fits && stride <= INT64_MAX && catalogue_mul_u64(view->shape[i] - 1, stride, &span) &&
                   catalogue_add_u64(last, span, &last);
        }
    }
    if (out->count == 0)
        fits = view->offset <= view->storage_count;
    if (!fits || (out->count > 0 && last >= view->storage_count))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry,
                              "shape %s at offset %" PRIu64 " reaches outside its storage of %" PRIu64 " elements",
                              shape, view->offset, view->storage_count);
    if (out->count > catalogue->size)
        return catalogue_fail(err, ERROR_TOO_LARGE, catalogue, entry,
                              "shape %s expands to more elements than the file has bytes", shape);
    if (catalogue->elements + out->count > CATALOGUE_MAX_SHARED * (uint64_t)catalogue->size)
        return catalogue_fail(err, ERROR_TOO_LARGE, catalogue, entry,
                              "with shape %s the tensors have more elements than the file has bytes", shape);
    return OK;
}

static enum error_code catalogue_grow(struct catalogue *catalogue, struct error *err)
{
    size_t capacity = catalogue->capacity ? 2 * catalogue->capacity : 64;
    struct weights_tensor *more = arena_alloc(catalogue->arena, capacity, sizeof *more, err);
    if (!more)
        return ERROR_NO_MEMORY;
    if (catalogue->count > 0)
        memcpy(more, catalogue->tensors, catalogue->count * sizeof *more);
    catalogue->tensors = more;
    catalogue->capacity = capacity;
    return OK;
}

enum error_code catalogue_add(struct catalogue *catalogue, const struct catalogue_view *view, struct error *err)
{
    struct catalogue_label label;
    const char *entry = catalogue_label(&label, view->name, view->name_size);
    if (memchr(view->name, '\0', view->name_size))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry, "the tensor's name has a zero byte");
    if (view->rank > WEIGHTS_MAX_RANK)
        return catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, entry, "%d dimensions, at most %d are supported",
                              view->rank, WEIGHTS_MAX_RANK);
    if (catalogue->count == CATALOGUE_MAX_TENSORS)
        return catalogue_fail(err, ERROR_TOO_LARGE, catalogue, entry, "the file holds more than %zu tensors",
                              CATALOGUE_MAX_TENSORS);
    struct weights_tensor tensor = {.dtype = view->dtype, .rank = view->rank};
    enum error_code code = catalogue_check_view(catalogue, view, entry, &tensor, err);
    if (code == OK && catalogue->count == catalogue->capacity)
        code = catalogue_grow(catalogue, err);
    if (code != OK)
        return code;
    /* What torch.nn.DataParallel and training programs put before every name. */
    static const char *const prefixes[] = {"module.", "netG."};
    size_t skip = 0;
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const size_t n = strlen(prefixes[i]);
        if (view->name_size - skip >= n && memcmp(view->name + skip, prefixes[i], n) == 0)
            skip += n;
    }
    char *name = arena_alloc(catalogue->arena, view->name_size - skip + 1, 1, err);
    if (!name)
        return ERROR_NO_MEMORY;
    memcpy(name, view->name + skip, view->name_size - skip);
    tensor.name = name;
    tensor.data = view->storage;
    if (tensor.count > 0)
        tensor.data += view->offset * catalogue_element_size(view->dtype);
    catalogue->elements += tensor.count;
    catalogue->tensors[catalogue->count++] = tensor;
    return OK;
}
