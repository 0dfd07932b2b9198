/* Fuzzes the reader of torch.save's zip form. */
#include <string.h>

#include "tests/fuzz/exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4 || memcmp(data, "PK\3\4", 4) != 0) /* another reader's */
        return 0;
    exercise(data, size);
    return 0;
}
