/* Fuzzes the reader of ncnn's models: the .param's text, a zero byte, the .bin. */
#include <stdlib.h>
#include <string.h>

#include "runtime/weights/ncnn.h"
#include "tests/fuzz/exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = memchr(data, 0, size);
    struct error err = ERROR_INIT;
    struct catalogue catalogue = {.file = "fuzz"};
    if (!zero || arena_create(&catalogue.arena, &err))
        return 0;
    catalogue.data = zero + 1;
    catalogue.size = size - (size_t)(zero + 1 - data);
    if (ncnn_read(&catalogue, (const char *)data, (size_t)(zero - data), &err) == OK) {
        exercise_opened++;
        for (size_t i = 0; i < catalogue.count; i++) {
            float *values = malloc(catalogue.tensors[i].count * sizeof *values + 1);
            if (values)
                weights_read_f32(&catalogue.tensors[i], values);
            free(values);
        }
    }
    arena_destroy(&catalogue.arena);
    return 0;
}
