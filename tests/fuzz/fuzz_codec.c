/* Any bytes as a picture file: probe, decode under a limit of 4 megapixels, reduce, and write what came out in both
 * formats. What was decoded must have the size that the header promised, and what was written must be readable. */
#include <stdlib.h>

#include "server/image/codec.h"
#include "tests/fuzz/exercise.h"

static void again(const struct image *image, enum image_format format)
{
    struct codec_output out;
    struct codec_info info;
    struct error err = ERROR_INIT;
    if (codec_encode(image, format, (struct codec_options){.quality = 80, .png_level = 1}, &out, &err) != OK) {
        if (err.code != ERROR_TOO_LARGE)
            abort();
        return;
    }
    if (codec_probe(out.bytes, out.size, &info, &err) != OK || info.width != image->width ||
        info.height != image->height || info.orientation != 1)
        abort();
    free(out.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct codec_info probed, info;
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    enum error_code known = codec_probe(data, size, &probed, &err);
    error_clear(&err);
    if (codec_decode(data, size, 4000000, &image, &info, &err) != OK) {
        if (image || err.code == OK || !err.text[0])
            abort();
        return 0;
    }
    exercise_opened++;
    if (known != OK || image->width != probed.width || image->height != probed.height || info.width != probed.width ||
        (uint64_t)image->width * (uint64_t)image->height > 4000000)
        abort();
    if ((uint64_t)image->width * (uint64_t)image->height < 100000) { /* larger ones would only be slow */
        again(image, IMAGE_PNG);
        error_clear(&err);
        if (image_reduce(image, false, &err) != OK || image->bits != 8 || image->channels != 3)
            abort();
        again(image, IMAGE_JPEG);
    }
    image_destroy(&image);
    return 0;
}
