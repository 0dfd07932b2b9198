#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/pixel.h"
#include "server/image/resize.h"
#include "server/image/similarity.h"
#include "server/image/warp.h"
#include "server/pipeline/align.h"
#include "server/pipeline/deep.h"

/* The colour outside the picture, as the face networks were trained. */
static const uint8_t align_border[3] = {132, 133, 135};

/* The side of the face network's square, in px; 512 without a face network. */
static enum error_code align_face_size(struct step *step, int *size, struct error *err)
{
    *size = 512;
    if (!step->context || !step->model[ROLE_FACE])
        return OK;
    struct session *session;
    const struct model_info *info;
    enum error_code code = step_session(step, ROLE_FACE, &session, &info, err);
    if (code == OK)
        *size = info->face_size;
    return code;
}

/* The unrounded crop, and the 8-bit one if it is needed. */
static enum error_code align_buffers(const struct restoration *r, struct face *face, struct error *err)
{
    enum error_code code = OK;
    if (r->options.compat || r->keep_faces)
        code = image_create(&face->crop, face->size, face->size, 3, 8, false, err);
    if (code == OK && !r->options.compat) {
        face->crop_float = mem_alloc((size_t)face->size * (size_t)face->size, 3 * sizeof(float));
        if (!face->crop_float)
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
    }
    return code;
}

static void align_round_rows(void *context, int item)
{
    enum { CHUNK = 512 };
    const struct face *face = context;
    size_t row = 3 * (size_t)face->size;
    float part[CHUNK];
    int begin, end;
    thread_band(face->size, item, &begin, &end);
    for (size_t at = (size_t)begin * row, last = (size_t)end * row, n; at < last; at += n) {
        n = last - at < CHUNK ? last - at : CHUNK;
        memcpy(part, face->crop_float + at, n * sizeof *part);
        pixel_clamp(part, n);
        pixel_round((uint8_t *)face->crop->pixels + at, part, n);
    }
}

static void align_round(struct face *face)
{
    if (face->crop)
        thread_for(thread_bands(face->size), align_round_rows, face);
}

static struct view_f32 align_float_view(const struct face *face)
{
    return (struct view_f32){face->crop_float, face->size, face->size, 3, 3 * (size_t)face->size};
}

static bool align_fit(const struct restoration *r, struct face *face)
{
    double target[5][2];
    for (int k = 0; k < 10; k++)
        target[k / 2][k % 2] = similarity_template[k / 2][k % 2] * (face->size / 512.0);
    return r->options.compat ? similarity_fit_lmeds(face->landmarks, target, 5, face->affine)
                             : similarity_fit(face->landmarks, target, 5, face->affine);
}

enum error_code align_warp(const struct restoration *r, struct face *face, struct error *err)
{
    enum error_code code = align_buffers(r, face, err);
    if (code != OK)
        return code;
    struct view_u8 picture = image_view(r->picture);
    if (r->options.compat) {
        struct view_u8 crop = image_view(face->crop);
        warp_exact_u8(&crop, 0, 0, &picture, face->affine, align_border);
    } else {
        const float border[3] = {align_border[0], align_border[1], align_border[2]};
        struct view_f32 smooth = align_float_view(face);
        if (r->deep && r->deep->pixels) {
            const struct view_u16 deep = {r->deep->pixels->pixels, picture.width, picture.height, 3, picture.stride};
            warp_smooth_u16(&smooth, 0, 0, &deep, face->affine, border);
        } else {
            warp_smooth_u8(&smooth, 0, 0, &picture, face->affine, border);
        }
        align_round(face);
    }
    return OK;
}

/* An aligned picture is only resized. */
static enum error_code align_resize(const struct restoration *r, struct face *face, struct error *err)
{
    struct view_u8 picture = image_view(r->picture);
    face->affine[0] = (double)face->size / picture.width;
    face->affine[4] = (double)face->size / picture.height;
    enum error_code code = align_buffers(r, face, err);
    if (code != OK)
        return code;
    if (r->options.compat) {
        struct view_u8 crop = image_view(face->crop);
        return resize_linear_exact(&crop, &picture, err);
    }
    size_t count = 3 * (size_t)picture.width * (size_t)picture.height;
    struct view_f32 from = {mem_alloc(count, sizeof(float)), picture.width, picture.height, 3, picture.stride};
    if (!from.data)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (int y = 0; y < picture.height; y++)
        deep_read(r, y, from.data + (size_t)y * picture.stride);
    struct view_f32 to = align_float_view(face);
    code = resize_smooth_f32(&to, &from, RESIZE_LINEAR, err);
    free(from.data);
    if (code == OK)
        align_round(face);
    return code;
}

/* Where each chosen face's crop is in the picture. */
static enum error_code align_place(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    int size = 0, chosen = 0;
    enum error_code code = r->face_count ? align_face_size(step, &size, err) : OK;
    for (int i = 0; i < r->face_count && code == OK; i++) {
        struct face *f = &r->faces[i];
        if (f->reason[0])
            continue;
        f->size = size;
        if (!r->options.aligned && !align_fit(r, f))
            snprintf(f->reason, sizeof f->reason, "its landmarks do not fit a face");
        chosen += !f->reason[0];
    }
    atomic_store(&r->faces_total, chosen);
    return code;
}

/* Makes the crops of the next faces; the first call places all. */
enum error_code align_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = step->end ? OK : align_place(step, err);
    step->first = step->end;
    for (int chosen = 0; step->end < r->face_count && chosen < STEP_GROUP; step->end++)
        chosen += !r->faces[step->end].reason[0];
    for (int i = step->first; i < step->end && code == OK; i++) {
        struct face *f = &r->faces[i];
        if (f->reason[0])
            continue;
        code = r->options.aligned ? align_resize(r, f, err) : align_warp(r, f, err);
        if (code == OK)
            code = step_check(step, err);
    }
    return code;
}
