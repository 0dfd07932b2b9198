#include "server/image/codec.h"
#include "server/pipeline/step.h"

#include <stdlib.h>

/* Reads the picture upright. The networks take 8 bit RGB; compat drops the alpha plane as the reference does. */
enum error_code decode_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = codec_decode(r->input, r->input_bytes, r->limits.input_pixels, &r->picture, NULL, err);
    if (code == OK)
        code = image_reduce(r->picture, r->options.compat, err);
    if (code == OK && r->options.compat) {
        free(r->picture->alpha);
        r->picture->alpha = NULL;
    }
    for (unsigned bit = 0; code == OK && bit < IMAGE_NOTE_COUNT; bit++)
        if (r->picture->notes & (1u << bit))
            restoration_note(r, "%s", image_note_text(1u << bit));
    return code;
}
