#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/pipeline/step.h"

/* The restored face, unrounded if it is kept that way. */
static struct raster_source parse_source(const struct face *face)
{
    size_t row = 3 * (size_t)face->size;
    if (face->restoration_float)
        return (struct raster_source){
            .form = RASTER_F32, .data = face->restoration_float, .stride = row * sizeof(float)};
    return (struct raster_source){.form = RASTER_U8, .data = face->restoration->pixels, .stride = row};
}

static enum error_code parse_faces(struct step *step, struct face *const *faces, int count, struct error *err)
{
    struct raster_source sources[STEP_BATCH];
    struct raster_target labels[STEP_BATCH];
    struct run_image images[STEP_BATCH] = {{0}};
    const struct run_output outputs[2] = {{.images = images}}; /* the other is a picture that nobody needs */
    const int size = faces[0]->size;
    const struct session_shape shape = {.n = count, .h = size, .w = size};
    for (int i = 0; i < count; i++) {
        struct face *f = faces[i];
        if (!f->classes && !(f->classes = mem_alloc((size_t)size * (size_t)size, 1)))
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
        sources[i] = parse_source(f);
        labels[i] = (struct raster_target){
            .form = RASTER_LABEL, .data = f->classes, .stride = (size_t)size, .width = size, .height = size};
        images[i] = (struct run_image){.targets = &labels[i], .target_count = 1};
    }
    return step_network(step, ROLE_PARSER, &shape, sources, outputs, 0, err);
}

static bool parse_wanted(const struct face *face)
{
    return face->restored;
}

/* ParseNet on every restored face, for the blend mask. */
enum error_code parse_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct face **faces;
    int count;
    if (r->options.aligned || r->options.parse == PARSE_FALSE)
        return OK;
    enum error_code code = step_faces_in_work(step, parse_wanted, &faces, &count, err);
    if (code != OK)
        return code;
    if (count && !step->model[ROLE_PARSER]) {
        restoration_note(r, "no-parser", "no face parser is installed: faces were blended with a square mask");
        count = 0;
    }
    code = step_faces(step, ROLE_PARSER, faces, count, parse_faces, err);
    free(faces);
    return code;
}
