/* Fuzzes the reader of safetensors. */
#include "tests/fuzz/exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 9 || data[8] != '{') /* another reader's */
        return 0;
    exercise(data, size);
    return 0;
}
