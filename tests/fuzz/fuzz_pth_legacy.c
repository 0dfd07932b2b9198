/* Fuzzes the reader of torch.save's legacy form. */
#include "tests/fuzz/exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || data[0] != 0x80) /* another reader's */
        return 0;
    exercise(data, size);
    return 0;
}
