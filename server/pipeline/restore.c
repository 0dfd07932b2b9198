#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/image/pixel.h"
#include "server/pipeline/tint.h"

/* Where the results of a face go; an earlier attempt may have left one. */
static enum error_code restore_room(const struct restoration *r, struct face *face, struct error *err)
{
    bool compat = r->options.compat, rounded_too = compat || r->keep_faces || r->options.aligned;
    if (rounded_too && !face->restoration) {
        enum error_code code = image_create(&face->restoration, face->size, face->size, 3, 8, false, err);
        if (code != OK)
            return code;
    }
    if (!compat && !face->restoration_float) {
        face->restoration_float = mem_alloc((size_t)face->size * (size_t)face->size, 3 * sizeof(float));
        if (!face->restoration_float)
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
    }
    return OK;
}

/* The crop before rounding, if there is one. */
static struct raster_source restore_source(const struct face *face)
{
    size_t row = 3 * (size_t)face->size;
    if (face->crop_float)
        return (struct raster_source){.form = RASTER_F32, .data = face->crop_float, .stride = row * sizeof(float)};
    return (struct raster_source){.form = RASTER_U8, .data = face->crop->pixels, .stride = row};
}

static int restore_targets(const struct face *face, struct raster_target *targets)
{
    int count = 0;
    size_t row = 3 * (size_t)face->size;
    if (face->restoration)
        targets[count++] = (struct raster_target){.form = RASTER_U8,
                                                  .data = face->restoration->pixels,
                                                  .stride = row,
                                                  .width = face->size,
                                                  .height = face->size};
    if (face->restoration_float)
        targets[count++] = (struct raster_target){.form = RASTER_F32,
                                                  .data = face->restoration_float,
                                                  .stride = row * sizeof(float),
                                                  .width = face->size,
                                                  .height = face->size};
    return count;
}

static void restore_done(struct restoration *r, struct face *face)
{
    free(face->crop_float);
    face->crop_float = NULL;
    if (!r->keep_faces)
        image_destroy(&face->crop);
    face->restored = true;
    atomic_fetch_add(&r->faces_done, 1);
}

/* Which of the face network's graphs the options mean. */
static int restore_variant(const struct step *step)
{
    const struct options *o = &step->r->options;
    if (step->model[ROLE_FACE]->info.fidelity)
        return (int)(o->w * MODEL_FIDELITY + 0.5);
    return o->has_seed ? MODEL_NOISE_SEED : MODEL_NOISE_STORED;
}

static enum error_code restore_batch(struct step *step, struct face *const *faces, int count, struct error *err)
{
    struct restoration *r = step->r;
    struct raster_source sources[STEP_BATCH];
    struct raster_target targets[STEP_BATCH][2];
    struct run_image images[STEP_BATCH] = {{0}};
    const struct run_output output = {.images = images};
    struct session_shape shape = {
        .n = count, .h = faces[0]->size, .w = faces[0]->size, .variant = restore_variant(step)};
    for (int i = 0; i < count; i++) {
        enum error_code code = restore_room(r, faces[i], err);
        if (code != OK)
            return code;
        sources[i] = restore_source(faces[i]);
        images[i].targets = targets[i];
        images[i].target_count = restore_targets(faces[i], targets[i]);
    }
    return step_network(step, ROLE_FACE, &shape, sources, &output, (uint32_t)faces[0]->id, err);
}

/* Gives the face the picture's colours, if it shall keep them. */
static enum error_code restore_colours(const struct restoration *r, struct face *face, struct error *err)
{
    if (!r->options.preserve_color || r->options.compat)
        return OK;
    enum error_code code = tint_keep(r, face, err);
    const size_t row = 3 * (size_t)face->size;
    for (size_t y = 0; code == OK && face->restoration && y < (size_t)face->size; y++) {
        pixel_clamp(face->restoration_float + y * row, row);
        pixel_round((uint8_t *)face->restoration->pixels + y * row, face->restoration_float + y * row, row);
    }
    return code;
}

static enum error_code restore_faces(struct step *step, struct face *const *faces, int count, struct error *err)
{
    enum error_code code = restore_batch(step, faces, count, err);
    for (int i = 0; i < count && code == OK; i++)
        code = restore_colours(step->r, faces[i], err);
    for (int i = 0; i < count && code == OK; i++)
        restore_done(step->r, faces[i]);
    restoration_moved(step->r);
    return code;
}

static bool restore_wanted(const struct face *face)
{
    return !face->reason[0];
}

/* The face network on every crop. */
enum error_code restore_step(struct step *step, struct error *err)
{
    struct face **faces;
    int count;
    enum error_code code = step_faces_in_work(step, restore_wanted, &faces, &count, err);
    if (code != OK)
        return code;
    if (step->first == 0)
        atomic_store(&step->r->faces_done, 0);
    code = step_faces(step, ROLE_FACE, faces, count, restore_faces, err);
    free(faces);
    return code;
}
