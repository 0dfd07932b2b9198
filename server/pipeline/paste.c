#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/raster.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/filter.h"
#include "server/image/pixel.h"
#include "server/image/similarity.h"
#include "server/image/warp.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/paste.h"
#include "server/pipeline/strength.h"
#include "server/pipeline/yield.h"

#define PASTE_BAND 64 /* rows warped at a time */

static enum error_code paste_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory to paste a face");
}

/* Crop -> result. compat adds half an output pixel when enlarging, as the reference does; the default maps pixel
 * centres exactly, by the ratio of the sizes (int(w·s) need not be w·s). */
static void paste_matrix(const struct step *step, const struct face *face, double m[6])
{
    const struct restoration *r = step->r;
    double s = r->options.upscale, scale[2] = {s, s}, offset[2] = {s > 1 ? 0.5 * s : 0, s > 1 ? 0.5 * s : 0};
    if (!r->options.compat) {
        scale[0] = (double)step->width / r->picture->width;
        scale[1] = (double)step->height / r->picture->height;
        offset[0] = 0.5 * (scale[0] - 1);
        offset[1] = 0.5 * (scale[1] - 1);
    }
    similarity_invert(face->affine, m);
    for (int i = 0; i < 6; i++)
        m[i] = m[i] * scale[i / 3] + (i % 3 == 2 ? offset[i / 3] : 0);
}

static bool paste_placed(const struct patch *p)
{
    return p->rect.width > 0 && p->rect.height > 0;
}

static enum error_code paste_place(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    step->patches = mem_calloc((size_t)r->face_count, sizeof *step->patches);
    if (!step->patches)
        return paste_no_memory(err);
    for (int i = 0; i < r->face_count; i++) {
        const struct face *f = &r->faces[i];
        struct patch *p = &step->patches[i];
        if (f->reason[0])
            continue;
        paste_matrix(step, f, p->matrix);
        p->rect = warp_bounds(p->matrix, f->size, f->size, step->width, step->height, 2);
        if (!paste_placed(p) || !r->options.compat)
            continue;
        p->element = f->classes ? sizeof(double) : sizeof(float);
        p->pixels = mem_alloc((size_t)p->rect.width * (size_t)p->rect.height, 3 * p->element);
        if (!p->pixels)
            return paste_no_memory(err);
    }
    return OK;
}

void paste_background_row(struct step *step, int y, float *row, const float *rest)
{
    size_t n = 3 * (size_t)step->width;
    pixel_clamp(row, n); /* Lanczos overshoots */
    for (size_t i = 0; rest && i < n; i++)
        row[i] += rest[i];
    raster_lay(step->layers, step->layer_count, 0, y, step->width, row);
    if (step->r->deep) {
        deep_row(step->r, y, row);
        return;
    }
    pixel_clamp(row, n);
    pixel_round((uint8_t *)step->r->result->pixels + (size_t)y * n, row, n);
}

/* compat: the background under a face is the rounded one. */
static void paste_load(const struct image *result, struct patch *p)
{
    size_t n = 3 * (size_t)p->rect.width;
    for (int y = 0; y < p->rect.height; y++) {
        const uint8_t *from =
            (const uint8_t *)result->pixels + 3 * ((size_t)(p->rect.y + y) * (size_t)result->width + (size_t)p->rect.x);
        for (size_t i = 0; i < n; i++) {
            if (p->element == sizeof(double))
                ((double *)p->pixels)[(size_t)y * n + i] = from[i];
            else
                ((float *)p->pixels)[(size_t)y * n + i] = from[i];
        }
    }
}

/* compat truncates. */
static void paste_truncate(const struct image *result, const struct patch *p)
{
    size_t n = 3 * (size_t)p->rect.width, width = (size_t)result->width;
    for (int y = 0; y < p->rect.height; y++) {
        uint8_t *to = (uint8_t *)result->pixels + 3 * ((size_t)(p->rect.y + y) * width + (size_t)p->rect.x);
        for (size_t i = 0; i < n; i++) {
            size_t k = (size_t)y * n + i;
            double v = p->element == sizeof(double) ? ((const double *)p->pixels)[k] : ((const float *)p->pixels)[k];
            v = fmin(fmax(v, 0), 255);
            to[i] = (uint8_t)v;
        }
    }
}

/* Where earlier faces changed row y of the result under this one, it continues from their unrounded values. */
static void paste_carry(struct patch *to, const struct patch *from, int y)
{
    int x0 = to->rect.x > from->rect.x ? to->rect.x : from->rect.x;
    int x1 = to->rect.x + to->rect.width;
    if (from->rect.x + from->rect.width < x1)
        x1 = from->rect.x + from->rect.width;
    if (y < from->rect.y || y >= from->rect.y + from->rect.height || x0 >= x1)
        return;
    size_t t = (size_t)(y - to->rect.y) * (size_t)to->rect.width + (size_t)(x0 - to->rect.x);
    size_t f = (size_t)(y - from->rect.y) * (size_t)from->rect.width + (size_t)(x0 - from->rect.x);
    memcpy((char *)to->pixels + t * 3 * to->element, (const char *)from->pixels + f * 3 * from->element,
           (size_t)(x1 - x0) * 3 * to->element);
}

static void paste_carry_row(struct patch *patches, int index, int y)
{
    for (int earlier = 0; earlier < index; earlier++)
        if (patches[earlier].pixels)
            paste_carry(&patches[index], &patches[earlier], y);
}

/* How ParseNet's labels become a mask, in px of the crop; the numbers are those for 512 px. */
struct paste_soften {
    int size, kernel, border; /* 101 and 10 */
    double sigma;             /* 11 */
};

static struct paste_soften paste_soften(int size)
{
    return (struct paste_soften){.size = size,
                                 .kernel = 2 * (50 * size / 512) + 1,
                                 .border = (10 * size + 256) / 512,
                                 .sigma = 11.0 * size / 512};
}

/* The face, its parts, glasses, hair (13) and ear rings (15) are pasted; background (0), hat, necklace, neck and
 * clothes are not. */
static bool paste_opaque(uint8_t class)
{
    static const bool opaque[19] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 0};
    return class < 19 && opaque[class];
}

static bool paste_at_edge(const struct paste_soften *soften, int x, int y)
{
    int last = soften->size - soften->border;
    return x < soften->border || y < soften->border || x >= last || y >= last;
}

/* From 0 to 1, flat at both ends. */
static float paste_ease(float u)
{
    return u * u * u * (10 - u * (15 - 6 * u));
}

/* The default fades the mask to 0 towards the crop's edge, where a mask that is cut off leaves a line through beard or
 * neck: over 60 px of 512, and nowhere steeper than a straight line over 32 would. Of a column or a row: a px's share
 * is the product of both. */
static float paste_fade(int size, int at)
{
    const int edge = at < size - 1 - at ? at : size - 1 - at;
    return paste_ease(fminf((float)edge / (60.0f * (float)size / 512), 1));
}

enum error_code paste_parse_mask(const uint8_t *classes, int size, double *mask, struct error *err)
{
    const struct paste_soften soften = paste_soften(size);
    size_t n = (size_t)size;
    for (size_t i = 0; i < n * n; i++)
        mask[i] = paste_opaque(classes[i]) ? 255 : 0;
    struct view_f64 view = {mask, size, size, 1, n};
    enum error_code code = filter_gaussian_f64(&view, &view, soften.kernel, soften.sigma, err);
    if (code == OK)
        code = filter_gaussian_f64(&view, &view, soften.kernel, soften.sigma, err);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++)
            mask[y * size + x] = paste_at_edge(&soften, x, y) ? 0 : mask[y * size + x] / 255;
    return code;
}

enum error_code paste_square_mask(const struct step *step, const struct patch *patch, int size, float *eroded,
                                  float *soft, struct error *err)
{
    int w = patch->rect.width, h = patch->rect.height;
    size_t count = (size_t)w * (size_t)h, ones_count = (size_t)size * (size_t)size;
    struct view_f32 e = {eroded, w, h, 1, (size_t)w}, b = {soft, w, h, 1, (size_t)w};
    struct view_f32 ones = {mem_alloc(ones_count, sizeof(float)), size, size, 1, (size_t)size};
    if (!ones.data)
        return paste_no_memory(err);
    for (size_t i = 0; i < ones_count; i++)
        ones.data[i] = 1;
    if (step->r->options.compat)
        warp_exact_f32(&e, patch->rect.x, patch->rect.y, &ones, patch->matrix, 0);
    else
        warp_smooth_f32(&e, patch->rect.x, patch->rect.y, &ones, patch->matrix, (const float[]){0});
    free(ones.data);
    const double scale =
        size_asked(&step->r->options)
            ? sqrt((double)step->width / step->r->picture->width * step->height / step->r->picture->height)
            : step->r->options.upscale;
    enum error_code code = filter_erode_f32(&e, &e, (int)(2 * scale), err);
    double area = 0;
    for (size_t i = 0; i < count; i++)
        area += eroded[i];
    int edge = (int)sqrtf((float)area) / 20;
    if (code == OK)
        code = filter_erode_f32(&b, &e, 2 * edge, err);
    if (code == OK)
        code = filter_gaussian_f32(&b, &b, 2 * edge + 1, 0, err);
    return code;
}

/* The masks of one face: of the crop (compat, ParseNet) or of the patch (the square). */
struct paste_mask {
    double *crop;         /* size×size */
    float *eroded, *soft; /* rect.width × rect.height */
};

static enum error_code paste_make_mask(const struct step *step, const struct face *f, const struct patch *p,
                                       struct paste_mask *mask, struct error *err)
{
    size_t area = (size_t)p->rect.width * (size_t)p->rect.height;
    if (f->classes && !step->r->options.compat)
        return OK; /* paste_make_layer makes its own */
    if (f->classes) {
        mask->crop = mem_alloc((size_t)f->size * (size_t)f->size, sizeof(double));
        return mask->crop ? paste_parse_mask(f->classes, f->size, mask->crop, err) : paste_no_memory(err);
    }
    mask->eroded = mem_alloc(area, sizeof(float));
    mask->soft = mem_alloc(area, sizeof(float));
    if (!mask->eroded || !mask->soft)
        return paste_no_memory(err);
    return paste_square_mask(step, p, f->size, mask->eroded, mask->soft, err);
}

static void paste_free_mask(struct paste_mask *mask)
{
    free(mask->crop);
    free(mask->eroded);
    free(mask->soft);
}

/* The reference's blend: the face warped as 8 bit; double with ParseNet, float with the square mask. */
static enum error_code paste_blend_compat(const struct face *f, struct patch *p, const struct paste_mask *mask,
                                          struct error *err)
{
    static const uint8_t black[3] = {0};
    int w = p->rect.width;
    struct view_u8 source = image_view(f->restoration);
    struct view_f64 crop_mask = {mask->crop, f->size, f->size, 1, (size_t)f->size};
    uint8_t *face = mem_alloc((size_t)w, 3 * PASTE_BAND);
    double *warped = mem_alloc((size_t)w, sizeof(double) * PASTE_BAND);
    enum error_code code = face && warped ? OK : paste_no_memory(err);
    for (int y = 0; y < p->rect.height && code == OK; y += PASTE_BAND) {
        int rows = p->rect.height - y < PASTE_BAND ? p->rect.height - y : PASTE_BAND;
        struct view_u8 face_band = {face, w, rows, 3, 3 * (size_t)w};
        struct view_f64 mask_band = {warped, w, rows, 1, (size_t)w};
        size_t first = (size_t)y * (size_t)w;
        warp_exact_u8(&face_band, p->rect.x, p->rect.y + y, &source, p->matrix, black);
        if (mask->crop)
            warp_exact_f64(&mask_band, p->rect.x, p->rect.y + y, &crop_mask, p->matrix, 0);
        for (size_t i = 0; i < (size_t)rows * (size_t)w; i++)
            for (size_t c = 0; c < 3; c++) {
                if (mask->crop) {
                    double *to = (double *)p->pixels + 3 * (first + i) + c;
                    *to = warped[i] * face[3 * i + c] + (1 - warped[i]) * *to;
                } else {
                    float *to = (float *)p->pixels + 3 * (first + i) + c, m = mask->soft[first + i];
                    *to = m * (mask->eroded[first + i] * (float)face[3 * i + c]) + (1 - m) * *to;
                }
            }
    }
    free(face);
    free(warped);
    return code;
}

/* The crop as the default blends it: RGB times ParseNet's mask, and the mask as fourth channel, so that nothing from
 * beyond the crop's edge bleeds in when the face shrinks. Without labels the mask is 1. */
struct paste_crop {
    const struct face *face;
    struct paste_soften soften;
    float *mask; /* size×size, 0..255, or NULL */
    float *rgbm; /* size×size×4 */
    float *fade; /* of the columns */
};

static void paste_label_rows(void *context, int item)
{
    const struct paste_crop *crop = context;
    size_t n = (size_t)crop->face->size;
    int begin, end;
    thread_band(crop->face->size, item, &begin, &end);
    for (size_t i = (size_t)begin * n; i < (size_t)end * n; i++)
        crop->mask[i] = paste_opaque(crop->face->classes[i]) ? 255 : 0;
}

static void paste_crop_rows(void *context, int item)
{
    const struct paste_crop *crop = context;
    int size = crop->face->size, begin, end;
    thread_band(size, item, &begin, &end);
    for (int y = begin; y < end; y++) {
        const size_t first = (size_t)y * (size_t)size;
        const float *mask = crop->mask ? crop->mask + first : NULL, *rgb = crop->face->restoration_float + 3 * first;
        const float fade = paste_fade(size, y);
        float *to = crop->rgbm + 4 * first;
        for (int x = 0; x < size; x++, rgb += 3, to += 4) {
            const float m = mask ? mask[x] / 255 * (crop->fade[x] * fade) : 1;
            to[0] = m * rgb[0];
            to[1] = m * rgb[1];
            to[2] = m * rgb[2];
            to[3] = m;
        }
    }
}

static enum error_code paste_make_crop(struct paste_crop *crop, struct error *err)
{
    const struct paste_soften *soften = &crop->soften;
    int bands = thread_bands(soften->size);
    enum error_code code = OK;
    if (crop->mask) {
        const struct view_f32 mask = {crop->mask, soften->size, soften->size, 1, (size_t)soften->size};
        thread_for(bands, paste_label_rows, crop);
        code = filter_gaussian_f32(&mask, &mask, soften->kernel, soften->sigma, err);
        if (code == OK)
            code = filter_gaussian_f32(&mask, &mask, soften->kernel, soften->sigma, err);
    }
    for (int x = 0; x < soften->size; x++)
        crop->fade[x] = paste_fade(soften->size, x);
    if (code == OK)
        thread_for(bands, paste_crop_rows, crop);
    return code;
}

struct paste_layer {
    const struct patch *patch;
    const struct strength *strength;
    double scale[2];                 /* of the result */
    const struct paste_mask *square; /* its masks are NULL with ParseNet */
    struct view_f32 crop;
};

static void paste_layer_rows(void *context, int item)
{
    const struct paste_layer *layer = context;
    const struct patch *p = layer->patch;
    const float none[4] = {0};
    int begin, end;
    thread_band(p->rect.height, item, &begin, &end);
    size_t first = (size_t)begin * (size_t)p->rect.width, count = (size_t)(end - begin) * (size_t)p->rect.width;
    float *to = p->layer + 4 * first;
    const struct view_f32 view = {to, p->rect.width, end - begin, 4, 4 * (size_t)p->rect.width};
    warp_smooth_f32(&view, p->rect.x, p->rect.y + begin, &layer->crop, p->matrix, none);
    for (size_t i = 0; i < count && layer->square->soft; i++, to += 4) {
        float m = layer->square->soft[first + i], inner = m * layer->square->eroded[first + i];
        for (int c = 0; c < 3; c++)
            to[c] *= inner;
        to[3] = m;
    }
    for (int y = begin; y < end; y++)
        strength_apply(layer->strength, p->rect.x, p->rect.y + y, p->rect.width, layer->scale[0], layer->scale[1],
                       p->layer + 4 * (size_t)y * (size_t)p->rect.width);
}

/* Whether a mask of floats, or with wide of doubles, `stride` apart, changes an 8-bit picture anywhere. It begins in
 * the middle, where faces are. */
static bool paste_shows(const void *mask, size_t count, size_t stride, bool wide)
{
    const double least = 0.5 / 255;
    for (size_t i = 0; i < count; i++) {
        const size_t k = stride * ((i + count / 2) % count);
        if ((wide ? ((const double *)mask)[k] : (double)((const float *)mask)[k]) > least)
            return true;
    }
    return false;
}

static enum error_code paste_make_layer(const struct step *step, struct face *f, struct patch *p, struct error *err)
{
    size_t count = (size_t)f->size * (size_t)f->size;
    struct paste_mask mask = {0};
    float *work = mem_alloc(5 * count + (size_t)f->size, sizeof(float));
    p->layer = mem_alloc((size_t)p->rect.width * (size_t)p->rect.height, 4 * sizeof(float));
    enum error_code code = work && p->layer ? paste_make_mask(step, f, p, &mask, err) : paste_no_memory(err);
    struct paste_crop crop = {f, paste_soften(f->size), f->classes ? work + 4 * count : NULL, work, work + 5 * count};
    struct strength strength = {0};
    const struct paste_layer layer = {
        .patch = p,
        .strength = &strength,
        .scale = {(double)step->width / step->r->picture->width, (double)step->height / step->r->picture->height},
        .square = &mask,
        .crop = {work, f->size, f->size, 4, 4 * (size_t)f->size}};
    if (code == OK)
        code = strength_of(step->r, f, &strength, err);
    if (code == OK)
        code = paste_make_crop(&crop, err);
    if (code == OK)
        thread_for(thread_bands(p->rect.height), paste_layer_rows, (void *)&layer);
    if (code == OK && f->used > 0 &&
        !paste_shows(p->layer + 3, (size_t)p->rect.width * (size_t)p->rect.height, 4, false)) {
        f->unmasked = true;
        f->used = 0;
    }
    strength_free(&strength);
    paste_free_mask(&mask);
    free(work);
    return code;
}

void paste_end(struct step *step)
{
    for (int i = 0; step->patches && i < step->r->face_count; i++) {
        free(step->patches[i].layer);
        free(step->patches[i].pixels);
    }
    free(step->patches);
    free(step->layers);
    step->patches = NULL;
    step->layers = NULL;
    step->layer_count = step->layered = 0;
}

/* Frees what only a face's layer needed. */
static void paste_layered(struct face *face)
{
    free(face->restoration_float);
    free(face->classes);
    face->restoration_float = NULL;
    face->classes = NULL;
}

enum error_code paste_layers(struct step *step, struct error *err)
{
    const struct restoration *r = step->r;
    if (r->options.aligned || (r->options.compat && step_end(step) < r->face_count))
        return OK; /* compat places all at once, after they are restored */
    enum error_code code = step->patches ? OK : paste_place(step, err);
    if (code == OK && !step->layers && !(step->layers = mem_calloc((size_t)r->face_count, sizeof *step->layers)))
        code = paste_no_memory(err);
    for (; step->layered < step_end(step) && code == OK && !r->options.compat; step->layered++) {
        struct patch *p = &step->patches[step->layered];
        const double weight = options_weight(&r->options, r->faces[step->layered].id);
        if (!paste_placed(p))
            continue;
        code = paste_make_layer(step, &r->faces[step->layered], p, err);
        if (step->first > 0 || step_end(step) < r->face_count) /* there are many */
            paste_layered(&r->faces[step->layered]);
        if (code == OK)
            yield_layer(step, step->layered);
        if (code == OK)
            code = step_check(step, err);
        step->layers[step->layer_count++] = (struct raster_layer){.rgba = p->layer,
                                                                  .x = p->rect.x,
                                                                  .y = p->rect.y,
                                                                  .width = p->rect.width,
                                                                  .height = p->rect.height,
                                                                  .weight = weight < 0 ? 1 : (float)weight};
    }
    return code;
}

static enum error_code paste_compat(struct step *step, struct error *err)
{
    const struct restoration *r = step->r;
    enum error_code code = OK;
    for (int i = 0; i < r->face_count && code == OK; i++) {
        struct patch *p = &step->patches[i];
        struct paste_mask mask = {0};
        if (!p->pixels)
            continue;
        paste_load(r->result, p);
        for (int y = p->rect.y; y < p->rect.y + p->rect.height; y++)
            paste_carry_row(step->patches, i, y);
        code = paste_make_mask(step, &r->faces[i], p, &mask, err);
        if (code == OK && mask.crop)
            r->faces[i].unmasked =
                !paste_shows(mask.crop, (size_t)r->faces[i].size * (size_t)r->faces[i].size, 1, true);
        if (code == OK)
            code = paste_blend_compat(&r->faces[i], p, &mask, err);
        paste_free_mask(&mask);
        if (code == OK)
            code = step_check(step, err);
    }
    for (int i = 0; i < r->face_count && code == OK; i++)
        if (step->patches[i].pixels)
            paste_truncate(r->result, &step->patches[i]);
    return code;
}

/* Lays the restored faces over the background, later ones over earlier ones. */
enum error_code paste_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    if (r->options.compat && !r->options.aligned)
        return paste_compat(step, err);
    if (!r->options.compat)
        paste_end(step); /* they came with the background */
    if (!r->options.aligned)
        return OK;
    struct image *face = r->faces[0].restoration; /* it is the result */
    enum error_code code = deep_result(r, face->width, face->height, err);
    for (int y = 0; code == OK && r->deep && y < face->height; y++)
        deep_row(r, y, r->faces[0].restoration_float + 3 * (size_t)y * (size_t)face->width);
    if (code == OK && !r->deep)
        memcpy(r->result->pixels, face->pixels, 3 * (size_t)face->width * (size_t)face->height);
    return code;
}
