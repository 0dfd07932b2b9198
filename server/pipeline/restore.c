#include <math.h>
#include <stdlib.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/step.h"

/* RGB -1..1, planar. compat divides in double and subtracts in float, as the reference does. */
static void restore_input(const struct face *face, float *out)
{
    size_t plane = (size_t)face->size * (size_t)face->size;
    const uint8_t *exact = face->crop->pixels;
    for (size_t i = 0; i < plane; i++)
        for (size_t c = 0; c < 3; c++) {
            float x = face->crop_float ? face->crop_float[3 * i + c] / 255.0f : (float)(exact[3 * i + c] / 255.0);
            out[c * plane + i] = (x - 0.5f) / 0.5f;
        }
}

struct restore_loop {
    const struct face *face;
    const float *planes;
    uint8_t *rounded; /* NULL: not wanted */
};

static void restore_rows(void *context, int item)
{
    const struct restore_loop *loop = context;
    size_t size = (size_t)loop->face->size, plane = size * size;
    float *exact = loop->face->restoration_float;
    int begin, end;
    thread_band(loop->face->size, item, &begin, &end);
    for (size_t i = (size_t)begin * size; i < (size_t)end * size; i++)
        for (size_t c = 0; c < 3; c++) {
            float y = loop->planes[c * plane + i];
            y = ((y < -1 ? -1 : y > 1 ? 1 : y) + 1) / 2 * 255;
            if (loop->rounded)
                loop->rounded[3 * i + c] = (uint8_t)lrintf(y);
            if (exact)
                exact[3 * i + c] = y;
        }
}

static enum error_code restore_output(const struct restoration *r, struct face *face, const float *planes,
                                      struct error *err)
{
    size_t plane = (size_t)face->size * (size_t)face->size;
    bool compat = r->options.compat, rounded_too = compat || r->keep_faces || r->options.aligned;
    enum error_code code = OK;
    if (rounded_too)
        code = image_create(&face->restoration, face->size, face->size, 3, 8, false, err);
    if (code == OK && !compat) {
        face->restoration_float = mem_alloc(plane, 3 * sizeof(float));
        if (!face->restoration_float)
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
    }
    if (code != OK)
        return code;
    struct restore_loop loop = {face, planes, rounded_too ? face->restoration->pixels : NULL};
    thread_for(thread_bands(face->size), restore_rows, &loop);
    return OK;
}

/* The face network on every crop. */
enum error_code restore_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = OK;
    float *buffer = NULL;
    atomic_store(&r->faces_done, 0);
    for (int i = 0; i < r->face_count && code == OK; i++) {
        struct face *f = &r->faces[i];
        if (f->reason[0])
            continue;
        size_t count = 3 * (size_t)f->size * (size_t)f->size;
        if (!buffer && !(buffer = mem_alloc(2 * count, sizeof *buffer))) /* all faces have one size */
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
        struct session_shape shape = {
            .n = 1, .h = f->size, .w = f->size, .variant = r->options.has_seed ? MODEL_NOISE_SEED : MODEL_NOISE_STORED};
        struct step_tensor input = {buffer, count}, output = {buffer + count, count};
        restore_input(f, input.data);
        code = step_network(step, ROLE_FACE, &shape, input, &output, 1, (uint32_t)f->id, err);
        if (step_too_large(code))
            code = step_no_room(step, ROLE_FACE, err, "a face of %d × %d px", f->size, f->size);
        if (code == OK)
            code = restore_output(r, f, output.data, err);
        free(f->crop_float);
        f->crop_float = NULL;
        if (!r->keep_faces)
            image_destroy(&f->crop);
        f->restored = code == OK;
        if (f->restored)
            atomic_fetch_add(&r->faces_done, 1);
    }
    free(buffer);
    return code;
}
