/* Any bytes as a picture that a process of its own reads (decoder.h), as in a server. Whatever becomes of that process,
 * the picture is refused or is what this process reads. This program is that process, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/image/decoder_child.h"
#include "tests/fuzz/exercise.h"

#define MOST_PIXELS 4000000

/* Before libFuzzer looks at the arguments. */
__attribute__((constructor)) static void be_the_child(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], DECODER_COMMAND))
        _Exit(decoder_child_main());
}

static void expect(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "broken promise: %s\n", what);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    struct image *there = NULL, *here = NULL;
    struct codec_info info;
    struct error err = ERROR_INIT, own = ERROR_INIT;
    const struct decoder_job job = {.bytes = data, .size = size, .fd = -1, .page = 1, .max_pixels = MOST_PIXELS};
    bool died;
    expect(started || !decoder_start(NULL, &err), "the process that forks starts");
    started = true;
    const enum error_code code = decoder_decode(&job, &there, &info, NULL, &died, &err);
    expect(code == err.code && !code == (there != NULL), "a picture, or why there is none");
    expect(code != ERROR_INTERNAL && code != ERROR_IO, "the server's side works");
    if (died) { /* fuzz_formats would die of it */
        fprintf(stderr, "a process died: %s (%s)\n", err.text, err.detail);
        expect(code == ERROR_CORRUPT, "a death is the picture's fault");
        return 0;
    }
    const enum error_code alone = codec_decode(data, size, MOST_PIXELS, &here, NULL, &own);
    expect(code == alone || (code == ERROR_CORRUPT && strstr(err.text, "more memory")), "both read the same");
    if (!code) {
        exercise_opened++;
        const size_t pixels = (size_t)here->width * (size_t)here->height * (size_t)here->bits / 8;
        expect(here->width == there->width && here->height == there->height && here->bits == there->bits &&
                   here->channels == there->channels && here->notes == there->notes && !here->alpha == !there->alpha,
               "both pictures are of one kind");
        if (here->format != IMAGE_HEIC) { /* libde265 leaves what a damaged file does not say as it finds it */
            expect(!memcmp(here->pixels, there->pixels, pixels * (size_t)here->channels), "both have the same pixels");
            expect(!here->alpha || !memcmp(here->alpha, there->alpha, pixels), "and the same transparency");
        }
        expect(here->colour.size == there->colour.size && here->icc.size == there->icc.size, "and the same colours");
    }
    image_destroy(&here);
    image_destroy(&there);
    return 0;
}
