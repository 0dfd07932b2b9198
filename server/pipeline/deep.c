#include "server/pipeline/deep.h"

#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/codec.h"
#include "server/image/pixel.h"

#define DEEP_STEP 257.0f /* levels of 16 bit in one of 8 */

void deep_destroy(struct deep **deep)
{
    if (!*deep)
        return;
    image_destroy(&(*deep)->pixels);
    free(*deep);
    *deep = NULL;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* r->picture moves into deep->pixels, and a picture of 8 bits takes its place. */
static enum error_code deep_split(struct restoration *r, struct deep *deep, struct error *err)
{
    struct image *all = r->picture, *shallow = NULL;
    enum error_code code = image_widen(all, err);
    if (code == OK)
        code = image_shallow(all, &shallow, err);
    if (code != OK)
        return code;
    deep->pixels = all;
    r->picture = shallow;
    return OK;
}

enum error_code deep_begin(struct restoration *r, struct error *err)
{
    const bool gray = r->picture->channels == 1, wide = r->picture->bits == 16;
    const bool keep_gray = gray && codec_is_gray(r->output_format), keep_wide = wide && codec_is_deep(r->output_format);
    deep_destroy(&r->deep);
    if (r->detect_only || r->options.compat || (!keep_gray && !wide))
        return image_reduce(r->picture, r->options.compat, err);
    struct deep *deep = r->deep = mem_calloc(1, sizeof *deep);
    if (!deep)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    *deep = (struct deep){.channels = keep_gray ? 1 : 3, .bits = keep_wide ? 16 : 8};
    enum error_code code = wide ? deep_split(r, deep, err) : OK;
    if (code == OK)
        code = image_reduce(r->picture, false, err);
    r->picture->notes &= ~(unsigned)((keep_gray ? IMAGE_NOTE_GRAY : 0) | (keep_wide ? IMAGE_NOTE_BITS_REDUCED : 0));
    if (code == OK && wide && !keep_wide)
        r->picture->notes |= IMAGE_NOTE_BITS_REDUCED;
    return code;
}

void deep_read(const struct restoration *r, int y, float *to)
{
    const size_t n = 3 * (size_t)r->picture->width, first = (size_t)y * n;
    const struct image *wide = r->deep ? r->deep->pixels : NULL;
    const uint16_t *words = wide ? (const uint16_t *)wide->pixels + first : NULL;
    const uint8_t *bytes = (const uint8_t *)r->picture->pixels + first;
    for (size_t i = 0; i < n; i++)
        to[i] = words ? (float)words[i] / DEEP_STEP : (float)bytes[i];
}

void deep_read_alpha(const struct restoration *r, int y, float *to)
{
    const size_t n = (size_t)r->picture->width, first = (size_t)y * n;
    const struct image *wide = r->deep ? r->deep->pixels : NULL;
    const uint16_t *words = wide ? (const uint16_t *)wide->alpha + first : NULL;
    const uint8_t *bytes = (const uint8_t *)r->picture->alpha + first;
    for (size_t i = 0; i < n; i++)
        to[i] = words ? (float)words[i] / DEEP_STEP : (float)bytes[i];
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

enum error_code deep_result(struct restoration *r, int width, int height, struct error *err)
{
    const struct deep *deep = r->deep;
    return image_create(&r->result, width, height, deep ? deep->channels : 3, deep ? deep->bits : 8, false, err);
}

/* n samples of 0..255 from sample `at` of a plane on. */
static void deep_write(void *plane, int bits, size_t at, const float *from, size_t n)
{
    if (bits == 8) {
        pixel_round((uint8_t *)plane + at, from, n);
        return;
    }
    uint16_t *to = (uint16_t *)plane + at;
    for (size_t i = 0; i < n; i++)
        to[i] = (uint16_t)(from[i] * DEEP_STEP + 0.5f);
}

void deep_row(struct restoration *r, int y, float *row)
{
    struct image *result = r->result;
    size_t n = (size_t)result->width;
    pixel_clamp(row, 3 * n);
    if (result->channels == 1) /* by how bright the three are; equal ones stay what they are */
        for (size_t x = 0; x < n; x++)
            row[x] =
                row[3 * x + 1] + 0.2126f * (row[3 * x] - row[3 * x + 1]) + 0.0722f * (row[3 * x + 2] - row[3 * x + 1]);
    n *= (size_t)result->channels;
    deep_write(result->pixels, result->bits, (size_t)y * n, row, n);
}

void deep_alpha_row(struct restoration *r, int y, const float *row)
{
    const size_t n = (size_t)r->result->width;
    deep_write(r->result->alpha, r->result->bits, (size_t)y * n, row, n);
}
