/* Any bytes as an EXIF block: an orientation of 1 to 8, and after the reset it is 1 and nothing else has changed. */
#include <stdlib.h>
#include <string.h>

#include "server/image/exif.h"
#include "tests/fuzz/exercise.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = calloc(1, size + 1);
    size_t changed = 0;
    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    const int before = exif_orientation(copy, size);
    exif_reset_orientation(copy, size);
    for (size_t i = 0; i < size; i++)
        changed += copy[i] != data[i];
    if (before < 1 || before > 8 || exif_orientation(copy, size) != 1 || changed > 8)
        abort();
    exercise_opened += before > 1;
    free(copy);
    return 0;
}
