#include "server/image/codec.h"
#include "server/pipeline/step.h"

#include <stdlib.h>

static void decode_note_damage(struct restoration *r, const struct codec_damage *damage)
{
    const int missing = damage->rows - damage->good;
    if (!damage->rows)
        return;
    if (missing && damage->cut)
        restoration_note(r, "the file is cut short: the lowest %d of %d rows are missing and were filled with gray",
                         missing, damage->rows);
    else if (missing)
        restoration_note(r, "the file is damaged: the lowest %d of %d rows may be wrong", missing, damage->rows);
    else
        restoration_note(r, "the file is damaged near its end: all rows are there, but some may be coarse");
}

static void decode_note_page(struct restoration *r)
{
    if (r->in_info.pages > 1)
        restoration_note(r, "the file has %d pages or frames; number %d was restored", r->in_info.pages,
                         r->options.page);
    else if (!r->in_info.pages)
        restoration_note(r, "the file has several pages or frames; number %d was restored", r->options.page);
}

/* Reads the picture upright. The networks take 8 bit RGB; compat drops the alpha plane as the reference does. */
enum error_code decode_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct codec_damage damage;
    struct error local = ERROR_INIT;
    const bool accept = r->options.damaged == DAMAGED_ACCEPT;
    enum error_code code = codec_decode_page(r->input, r->input_bytes, r->options.page, r->limits.input_pixels,
                                             &r->picture, NULL, accept ? &damage : NULL, &local);
    if (code) {
        error_set(err, code,
                  code == ERROR_CORRUPT && !accept && codec_salvages(r->in_info.format)
                      ? "%s: a part of the picture is missing or wrong; "
                        "damaged=accept restores what can be read"
                      : "%s",
                  local.text);
        error_detail(err, "%s", local.detail);
    }
    if (code == OK && accept)
        decode_note_damage(r, &damage);
    if (code == OK)
        decode_note_page(r);
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
