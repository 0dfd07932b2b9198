#include "runtime/backend/fault.h"
#include "server/image/decoder.h"
#include "server/pipeline/deep.h"

static void decode_note_damage(struct restoration *r, const struct codec_damage *damage)
{
    const int missing = damage->rows - damage->good;
    if (!damage->rows)
        return;
    if (missing && damage->cut)
        restoration_note(r, "file-cut",
                         "the file is cut short: the lowest %d of %d rows are missing and were filled with gray",
                         missing, damage->rows);
    else if (missing)
        restoration_note(r, "file-damaged", "the file is damaged: the lowest %d of %d rows may be wrong", missing,
                         damage->rows);
    else
        restoration_note(r, "file-damaged-end",
                         "the file is damaged near its end: all rows are there, but some may be coarse");
}

static void decode_note_page(struct restoration *r)
{
    if (r->in_info.pages > 1)
        restoration_note(r, "pages", "the file has %d pages or frames; number %d was restored", r->in_info.pages,
                         r->options.page);
    else if (!r->in_info.pages)
        restoration_note(r, "pages-uncounted", "the file has several pages or frames; number %d was restored",
                         r->options.page);
}

static enum error_code decode_check(void *context, struct error *err)
{
    return step_check(context, err);
}

/* Of the test programs alone. */
static enum decoder_fault decode_fault(void)
{
    static const enum decoder_fault faults[] = {[FAULT_DECODE_NONE] = DECODER_FINE,
                                                [FAULT_DECODE_CRASH] = DECODER_CRASH,
                                                [FAULT_DECODE_HANG] = DECODER_HANG,
                                                [FAULT_DECODE_BOMB] = DECODER_BOMB};
    return faults[fault_decode()];
}

/* Reads the mask that was sent: gray in the end, as large as the picture. */
static enum error_code decode_mask(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct image *mask = NULL;
    struct codec_damage damage;
    struct error local = ERROR_INIT;
    bool died;
    const struct decoder_job job = {.bytes = r->mask_input,
                                    .size = r->mask_bytes,
                                    .fd = -1,
                                    .page = 1,
                                    .max_pixels = r->limits.input_pixels,
                                    .check = decode_check,
                                    .context = step};
    enum error_code code = decoder_decode(&job, &mask, NULL, &damage, &died, &local);
    if (code != OK)
        return error_set(err, code, "mask: %s", local.text);
    code = pipeline_check_mask(r, mask->width, mask->height, err);
    if (code == OK)
        code = image_reduce(mask, false, err);
    image_destroy(&r->mask);
    if (code == OK)
        code = image_create(&r->mask, mask->width, mask->height, 1, 8, false, err);
    const size_t pixels = (size_t)mask->width * (size_t)mask->height;
    const uint8_t *alpha = mask->alpha;
    for (size_t i = 0; i < pixels && code == OK; i++) {
        const uint8_t *p = (const uint8_t *)mask->pixels + 3 * i;
        const int opaque = alpha ? alpha[i] : 255, gray = (p[0] + p[1] + p[2]) / 3;
        const int white = alpha && r->mask_clear ? 255 - opaque : (gray * opaque + 127) / 255;
        ((uint8_t *)r->mask->pixels)[i] = (uint8_t)white;
    }
    image_destroy(&mask);
    return code;
}

/* Reads the result that this one will be blended with. */
static enum error_code decode_other(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct codec_damage damage;
    bool died;
    const struct decoder_job job = {.bytes = r->other_input,
                                    .size = r->other_bytes,
                                    .fd = -1,
                                    .page = 1,
                                    .max_pixels = r->limits.result_pixels,
                                    .check = decode_check,
                                    .context = step};
    return decoder_decode(&job, &r->other, NULL, &damage, &died, err);
}

/* Reads the picture upright. The networks take RGB; compat drops the alpha plane as the reference does. */
enum error_code decode_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct codec_damage damage;
    struct error local = ERROR_INIT;
    const bool accept = r->options.damaged == DAMAGED_ACCEPT;
    bool died;
    const struct decoder_job job = {.bytes = r->input,
                                    .size = r->input_bytes,
                                    .fd = r->input_file - 1,
                                    .page = r->options.page,
                                    .max_pixels = r->limits.input_pixels,
                                    .salvage = accept,
                                    .fault = decode_fault(),
                                    .check = decode_check,
                                    .context = step};
    enum error_code code = decoder_decode(&job, &r->picture, NULL, &damage, &died, &local);
    if (code) {
        error_set(err, code,
                  code == ERROR_CORRUPT && !died && !accept && codec_salvages(r->in_info.format)
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
        code = deep_begin(r, err);
    if (code == OK && r->options.compat && !r->faceless && r->picture->alpha) {
        restoration_note(r, "compat-opaque",
                         "compat: the picture's transparency was dropped, as inference_gfpgan.py does");
        image_drop_alpha(r->picture);
    }
    if (code == OK)
        restoration_note_image(r, r->picture->notes);
    if (code == OK && r->other_bytes)
        code = decode_other(step, err);
    return code == OK && r->mask_bytes ? decode_mask(step, err) : code;
}
