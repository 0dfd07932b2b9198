#include "server/pipeline/deep.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/cmyk.h"
#include "server/image/codec.h"
#include "server/image/pixel.h"
#include "server/image/profile.h"
#include "server/image/resize.h"

#define DEEP_STEP 257.0f /* levels of 16 bit in one of 8 */

void deep_destroy(struct deep **deep)
{
    if (!*deep)
        return;
    image_destroy(&(*deep)->pixels);
    image_destroy(&(*deep)->source);
    free((*deep)->colour);
    free(*deep);
    *deep = NULL;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* Row y of a plane in floats of the 8-bit scale. */
static void deep_floats(const struct image *image, const void *plane, int channels, int y, float *to)
{
    const size_t n = (size_t)image->width * (size_t)channels, first = (size_t)y * n;
    for (size_t i = 0; i < n; i++)
        to[i] = image->bits == 16 ? (float)((const uint16_t *)plane)[first + i] / DEEP_STEP
                                  : (float)((const uint8_t *)plane)[first + i];
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

struct deep_loop {
    const struct image *from;
    const struct colour *colour;
    struct image *to;
    atomic_bool outside, failed; /* some colours lie outside of sRGB */
};

#define DEEP_OUTSIDE 0.5f /* levels of 255 that count */

static void deep_convert_rows(void *context, int item)
{
    struct deep_loop *loop = context;
    const size_t width = (size_t)loop->to->width, channels = (size_t)loop->from->channels;
    float *own = mem_alloc(width, (channels + 3) * sizeof(float)), *rgb = own + channels * width;
    int begin, end;
    if (!own)
        atomic_store(&loop->failed, true);
    thread_band(loop->to->height, item, &begin, &end);
    for (int y = begin; y < end && own; y++) {
        bool outside = false;
        deep_floats(loop->from, loop->from->pixels, loop->from->channels, y, own);
        colour_to_srgb(loop->colour, own, rgb, width);
        for (size_t i = 0; i < 3 * width; i++)
            outside = outside || rgb[i] < -DEEP_OUTSIDE || rgb[i] > 255 + DEEP_OUTSIDE;
        if (outside)
            atomic_store(&loop->outside, true);
        pixel_clamp(rgb, 3 * width);
        deep_write(loop->to->pixels, 16, (size_t)y * 3 * width, rgb, 3 * width);
        if (loop->to->alpha) {
            deep_floats(loop->from, loop->from->alpha, 1, y, own);
            deep_write(loop->to->alpha, 16, (size_t)y * width, own, width);
        }
    }
    free(own);
}

/* Makes deep->pixels of a picture with colours of its own, and r->picture of that. What sRGB cannot hold stays in
 * deep->source, if the result shall have those colours. */
static enum error_code deep_manage(struct restoration *r, struct deep *deep, const struct colour *colour, bool keep,
                                   struct error *err)
{
    struct image *all = r->picture, *shallow = NULL;
    struct deep_loop loop = {.from = all, .colour = colour};
    enum error_code code = image_create(&loop.to, all->width, all->height, 3, 16, all->alpha != NULL, err);
    if (code != OK)
        return code;
    thread_for(thread_bands(all->height), deep_convert_rows, &loop);
    deep->pixels = loop.to;
    if (atomic_load(&loop.failed))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's colours");
    code = image_shallow(loop.to, &shallow, err);
    if (code == OK && keep && !(deep->colour = mem_alloc(1, sizeof *deep->colour)))
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's colours");
    if (code == OK && !keep)
        code = profile_srgb(&shallow->icc, err);
    if (code != OK) {
        image_destroy(&shallow);
        return code;
    }
    image_move_metadata(shallow, all);
    if (keep)
        *deep->colour = *colour;
    r->picture = shallow;
    if (keep && atomic_load(&loop.outside))
        deep->source = all;
    else
        image_destroy(&all);
    return OK;
}

/* The model of the picture's colours, or NULL: they are sRGB's, or taken for that. */
static enum error_code deep_colour(const struct image *image, struct colour **out, struct error *err)
{
    *out = NULL;
    if (image->colour.size != sizeof **out)
        return OK;
    if (!(*out = mem_alloc(1, sizeof **out)))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's colours");
    memcpy(*out, image->colour.data, sizeof **out);
    if ((*out)->channels != image->channels || !colour_complete(*out)) {
        free(*out);
        *out = NULL;
    }
    return OK;
}

/* r->picture as 8-bit RGB whose values stand for sRGB's. A profile of gray is not lost. */
static enum error_code deep_reduce(struct restoration *r, bool keep_gray, struct error *err)
{
    struct image *picture = r->picture;
    const unsigned before = picture->notes;
    struct image_blob icc = picture->icc;
    if (keep_gray)
        picture->icc = (struct image_blob){0};
    enum error_code code = image_reduce(picture, r->options.compat, err);
    if (keep_gray)
        picture->icc = icc;
    if (!r->options.compat && profile_known()) /* it is sRGB, whatever its name */
        picture->notes &= ~(unsigned)(IMAGE_NOTE_ICC_KEPT & ~before);
    return code;
}

/* Whether the result is CMYK again; else the picture becomes sRGB. */
static bool deep_cmyk(const struct restoration *r, struct image *picture)
{
    if (!picture->cmyk.data)
        return false;
    if (r->options.profile == PROFILE_KEEP && !r->options.compat && !r->options.aligned && cmyk_known(picture) &&
        codec_is_cmyk(r->output_format)) {
        picture->notes = (picture->notes & ~(unsigned)IMAGE_NOTE_CMYK_PROFILE) | IMAGE_NOTE_CMYK_KEPT;
        return true;
    }
    free(picture->cmyk.data);
    picture->cmyk = (struct image_blob){0};
    return false;
}

/* A picture of inks that is wanted as plain RGB. */
static enum error_code deep_flatten(struct restoration *r, const struct colour *colour, struct error *err)
{
    struct deep none = {0};
    const enum error_code code = deep_manage(r, &none, colour, false, err);
    image_destroy(&none.pixels);
    return code;
}

/* Whether a row has three equal channels everywhere. */
static bool deep_neutral_row(const struct image *image, int y)
{
    const size_t n = 3 * (size_t)image->width;
    const void *row = (const uint8_t *)image->pixels + (size_t)y * n * (size_t)(image->bits / 8);
    const uint8_t *low = row;
    const uint16_t *high = row;
    for (size_t i = 0; i < n; i += 3)
        if (image->bits == 16 ? high[i] != high[i + 1] || high[i] != high[i + 2]
                              : low[i] != low[i + 1] || low[i] != low[i + 2])
            return false;
    return true;
}

/* Whether the whole picture has: it ends at the first pixel with a colour. */
static bool deep_neutral(const struct image *image)
{
    int y = 0;
    for (; y < image->height && deep_neutral_row(image, y); y++)
        image_passed(image, y, y + 1);
    return y == image->height;
}

enum error_code deep_begin(struct restoration *r, struct error *err)
{
    const bool inks = cmyk_known(r->picture);
    const bool gray = r->picture->channels == 1, wide = (inks ? cmyk_bits(r->picture) : r->picture->bits) == 16;
    const bool keep_inks = deep_cmyk(r, r->picture);
    const bool keep_gray = gray && codec_is_gray(r->output_format), keep_wide = wide && codec_is_deep(r->output_format);
    /* a run that only detects sees the same pixels, so faces keep their ids */
    const bool plain = r->options.compat && !r->faceless;
    const bool neutral = !r->options.compat && r->options.preserve_color && r->picture->channels == 3 && !inks &&
                         strcmp(r->options.bg_upsampler, "none") != 0 && deep_neutral(r->picture);
    struct colour *colour = NULL;
    deep_destroy(&r->deep);
    enum error_code code = (plain || r->options.compat) && !inks ? OK : deep_colour(r->picture, &colour, err);
    if (code == OK && inks && colour && (plain || r->options.compat)) {
        code = deep_flatten(r, colour, err);
        free(colour);
        return code;
    }
    if (code == OK && (plain || (!keep_gray && !wide && !colour && !neutral)))
        return deep_reduce(r, false, err);
    struct deep *deep = r->deep = code == OK ? mem_calloc(1, sizeof *deep) : NULL;
    if (code == OK && !deep)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK) {
        *deep =
            (struct deep){.channels = keep_gray ? 1 : 3, .bits = keep_wide || keep_inks ? 16 : 8, .neutral = neutral};
        if (colour)
            code = deep_manage(r, deep, colour,
                               r->options.profile == PROFILE_KEEP && keep_gray == gray && keep_inks == inks, err);
        else if (wide)
            code = deep_split(r, deep, err);
    }
    if (code == OK && !colour)
        code = deep_reduce(r, keep_gray, err);
    free(colour);
    if (code != OK)
        return code;
    r->picture->notes &= ~(unsigned)(IMAGE_NOTE_GRAY | IMAGE_NOTE_BITS_REDUCED);
    r->picture->notes |=
        (gray && !keep_gray ? IMAGE_NOTE_GRAY : 0u) | (wide && !keep_wide ? IMAGE_NOTE_BITS_REDUCED : 0u);
    return OK;
}

void deep_read(const struct restoration *r, int y, float *to)
{
    const struct image *from = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    deep_floats(from, from->pixels, 3, y, to);
}

void deep_read_alpha(const struct restoration *r, int y, float *to)
{
    const struct image *from = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    deep_floats(from, from->alpha, 1, y, to);
}

/* ---- what sRGB cannot hold --------------------------------------------------------------------------------------- */

struct deep_rest {
    const struct restoration *r;
    struct resize_stream *stream; /* NULL: the result has the picture's size */
    int next;                     /* row of the picture */
    float *own, *row, *known;     /* a row of the picture: its samples; what sRGB lacks of it; what is of sRGB */
};

/* The next row of the picture. */
static void deep_rest_read(struct deep_rest *rest, float *to)
{
    const struct image *source = rest->r->deep->source;
    const size_t n = 3 * (size_t)source->width;
    deep_floats(source, source->pixels, source->channels, rest->next, rest->own);
    colour_to_srgb(rest->r->deep->colour, rest->own, to, (size_t)source->width);
    deep_floats(rest->r->deep->pixels, rest->r->deep->pixels->pixels, 3, rest->next++, rest->known);
    for (size_t i = 0; i < n; i++)
        to[i] -= rest->known[i];
}

enum error_code deep_rest_create(struct deep_rest **out, const struct restoration *r, int width, int height,
                                 struct error *err)
{
    *out = NULL;
    if (!r->deep || !r->deep->source)
        return OK;
    const struct image *source = r->deep->source;
    struct deep_rest *rest = *out = mem_calloc(1, sizeof *rest);
    if (!rest || !(rest->own = mem_alloc((size_t)source->width, 9 * sizeof(float))))
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    rest->r = r;
    rest->row = rest->own + 3 * (size_t)source->width;
    rest->known = rest->row + 3 * (size_t)source->width;
    if (source->width == width && source->height == height)
        return OK;
    return resize_stream_create(&rest->stream, source->width, source->height, width, height, 3, RESIZE_LANCZOS4, err);
}

void deep_rest_rows(struct deep_rest *rest, float *rows, size_t row, int count)
{
    int have = 0;
    for (; !rest->stream && have < count; have++)
        deep_rest_read(rest, rows + (size_t)have * row);
    while (have < count) {
        have += resize_stream_pull(rest->stream, rows + (size_t)have * row, count - have);
        if (have < count) {
            deep_rest_read(rest, rest->row);
            resize_stream_push(rest->stream, rest->row, 1);
        }
    }
}

void deep_rest_destroy(struct deep_rest **rest)
{
    if (!*rest)
        return;
    resize_stream_destroy(&(*rest)->stream);
    free((*rest)->own);
    free(*rest);
    *rest = NULL;
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

enum error_code deep_result(struct restoration *r, int width, int height, struct error *err)
{
    const struct deep *deep = r->deep;
    return image_create(&r->result, width, height, deep ? deep->channels : 3, deep ? deep->bits : 8, false, err);
}

/* How bright three channels are; equal ones stay what they are. */
static float deep_bright(const float *rgb)
{
    return rgb[1] + 0.2126f * (rgb[0] - rgb[1]) + 0.0722f * (rgb[2] - rgb[1]);
}

/* n pixels of RGB in sRGB to the result's channels and colours, in place. */
static void deep_own(const struct restoration *r, float *row, size_t n)
{
    const struct colour *colour = r->deep ? r->deep->colour : NULL;
    const bool neutral = r->deep && r->deep->neutral;
    if (!colour)
        pixel_clamp(row, 3 * n);
    for (size_t x = 0; neutral && x < n; x++)
        row[3 * x] = row[3 * x + 1] = row[3 * x + 2] = deep_bright(row + 3 * x);
    if (colour)
        colour_from_srgb(colour, row, row, n);
    for (size_t x = 0; r->result->channels == 1 && !colour && x < n; x++)
        row[x] = deep_bright(row + 3 * x);
}

void deep_read_own(const struct restoration *r, int y, float *row)
{
    const struct image *source = r->deep ? r->deep->source : NULL;
    if (source) {
        deep_floats(source, source->pixels, source->channels, y, row);
        return;
    }
    deep_read(r, y, row);
    deep_own(r, row, (size_t)r->picture->width);
}

void deep_row(struct restoration *r, int y, float *row)
{
    deep_own(r, row, (size_t)r->result->width);
    deep_put(r, y, row);
}

void deep_get(const struct restoration *r, int y, float *row)
{
    deep_floats(r->result, r->result->pixels, r->result->channels, y, row);
}

void deep_put(struct restoration *r, int y, const float *row)
{
    const size_t n = (size_t)r->result->width * (size_t)r->result->channels;
    deep_write(r->result->pixels, r->result->bits, (size_t)y * n, row, n);
}

void deep_alpha_row(struct restoration *r, int y, const float *row)
{
    const size_t n = (size_t)r->result->width;
    deep_write(r->result->alpha, r->result->bits, (size_t)y * n, row, n);
}
