#include <stdlib.h>

#include "runtime/base/mem.h"
#include "server/pipeline/step.h"

#define PARSE_CLASSES 19

static void parse_input(const struct face *face, float *out)
{
    size_t plane = (size_t)face->size * (size_t)face->size;
    const uint8_t *rounded = face->restoration_float ? NULL : face->restoration->pixels;
    for (size_t i = 0; i < plane; i++)
        for (size_t c = 0; c < 3; c++) {
            float x = rounded ? (float)rounded[3 * i + c] : face->restoration_float[3 * i + c];
            out[c * plane + i] = (x / 255.0f - 0.5f) / 0.5f;
        }
}

/* The label of the largest logit, the first of equals. */
static void parse_labels(const float *logits, size_t plane, uint8_t *labels)
{
    for (size_t i = 0; i < plane; i++) {
        int best = 0;
        for (int k = 1; k < PARSE_CLASSES; k++)
            if (logits[(size_t)k * plane + i] > logits[(size_t)best * plane + i])
                best = k;
        labels[i] = (uint8_t)best;
    }
}

/* ParseNet on every restored face, for the blend mask. */
enum error_code parse_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = OK;
    float *buffer = NULL;
    for (int i = 0; i < r->face_count && code == OK; i++) {
        struct face *f = &r->faces[i];
        if (!f->restored || r->options.aligned || r->options.parse == PARSE_FALSE)
            continue;
        if (!step->model[ROLE_PARSER]) {
            restoration_note(r, "there is no face parser: faces were blended by the square mask");
            break;
        }
        size_t plane = (size_t)f->size * (size_t)f->size;
        if (!buffer && !(buffer = mem_alloc(plane, (3 + PARSE_CLASSES + 3) * sizeof *buffer)))
            return error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
        f->classes = mem_alloc(plane, 1);
        if (!f->classes) {
            code = error_set(err, ERROR_NO_MEMORY, "out of memory for a face");
            break;
        }
        struct session_shape shape = {.n = 1, .h = f->size, .w = f->size};
        struct step_tensor input = {buffer, 3 * plane};
        struct step_tensor outputs[2] = {{buffer + 3 * plane, PARSE_CLASSES * plane},
                                         {buffer + (3 + PARSE_CLASSES) * plane, 3 * plane}};
        parse_input(f, input.data);
        code = step_network(step, ROLE_PARSER, &shape, input, outputs, 2, 0, err);
        if (code == OK)
            parse_labels(outputs[0].data, plane, f->classes);
    }
    free(buffer);
    return code;
}
