#include "tests/fuzz/exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/weights/weights.h"

#define READ_LIMIT ((uint64_t)1 << 22) /* elements an input, so that one run stays short */

size_t exercise_opened;

static void expect(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken promise: %s\n", what);
        abort();
    }
}

void exercise(const uint8_t *data, size_t size)
{
    struct weights *weights;
    struct error err = ERROR_INIT;
    enum error_code code = weights_open_memory(&weights, "fuzz", data, size, &err);
    expect(code == err.code, "the code returned is the code set");
    if (code != OK) {
        expect(weights == NULL, "nothing is open after a failure");
        expect(strncmp(err.text, "fuzz: ", 6) == 0, "the error names the file");
        expect(code == ERROR_UNSUPPORTED || code == ERROR_CORRUPT || code == ERROR_TOO_LARGE,
               "the code is one of three");
        return;
    }
    exercise_opened++;
    uint64_t left = READ_LIMIT;
    for (size_t i = 0; i < weights_count(weights); i++) {
        const struct weights_tensor *tensor = weights_at(weights, i);
        expect(weights_find(weights, tensor->name) == tensor, "every tensor is found by its name");
        expect(tensor->count <= size, "no tensor has more elements than the file has bytes");
        if (tensor->count > left)
            continue;
        left -= tensor->count;
        float *values = malloc(tensor->count * sizeof *values + 1);
        if (!values)
            abort();
        weights_read_f32(tensor, values);
        free(values);
    }
    (void)weights_metadata(weights, "format");
    weights_close(&weights);
}
