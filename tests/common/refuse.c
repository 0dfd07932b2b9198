#include "tests/common/refuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/weights/weights.h"

static const char file_name[] = "hostile.bin";

/* From memory of exactly that size, so that a sanitizer sees any read beyond it. */
static enum error_code open_exact(struct weights **out, uint8_t **copy, const void *data, size_t size,
                                  struct error *err)
{
    *copy = malloc(size ? size : 1);
    if (!*copy)
        abort();
    if (size > 0)
        memcpy(*copy, data, size);
    return weights_open_memory(out, file_name, *copy, size, err);
}

static enum error_code try_open(const void *data, size_t size, struct error *err)
{
    struct weights *weights;
    uint8_t *copy;
    enum error_code code = open_exact(&weights, &copy, data, size, err);
    weights_close(&weights);
    free(copy);
    return code;
}

bool refuse(const struct checkpoint_buffer *file, enum error_code code, const char *entry, const char *reason)
{
    struct error err = ERROR_INIT;
    char start[256];
    enum error_code got = try_open(file->data, file->size, &err);
    snprintf(start, sizeof start, "%s: %s%s", file_name, entry ? entry : "", entry ? ": " : "");
    size_t n = strlen(start);
    if (got == code && err.code == code && strncmp(err.text, start, n) == 0 && strstr(err.text + n, reason))
        return true;
    fprintf(stderr, "wanted %s, \"%s ... %s\"\n   got %s, \"%s\"\n", error_code_name(code), start, reason,
            error_code_name(got), err.text);
    return false;
}

bool refuse_beginnings(const struct checkpoint_buffer *file, size_t magic)
{
    for (size_t n = 0; n < file->size; n++) {
        struct error err = ERROR_INIT;
        enum error_code code = try_open(file->data, n, &err), wanted = n < magic ? ERROR_UNSUPPORTED : ERROR_CORRUPT;
        if (code != wanted || strncmp(err.text, "hostile.bin: ", 13) != 0) {
            fprintf(stderr, "%zu of %zu bytes: got %s, \"%s\"\n", n, file->size, error_code_name(code), err.text);
            return false;
        }
    }
    return true;
}

bool refuse_nothing(const struct checkpoint_buffer *file)
{
    struct error err = ERROR_INIT;
    struct weights *weights;
    uint8_t *copy;
    enum error_code code = open_exact(&weights, &copy, file->data, file->size, &err);
    if (code != OK)
        fprintf(stderr, "wanted ok, got %s, \"%s\"\n", error_code_name(code), err.text);
    for (size_t i = 0; code == OK && i < weights_count(weights); i++) {
        const struct weights_tensor *tensor = weights_at(weights, i);
        float *values = malloc(tensor->count * sizeof *values + 1);
        if (!values)
            abort();
        weights_read_f32(tensor, values);
        free(values);
    }
    weights_close(&weights);
    free(copy);
    return code == OK;
}
