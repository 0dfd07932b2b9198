#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/step.h"

#define PARSE_CLASSES 19

#define PARSE_CHUNK 4096 /* px of a thread's item */

struct parse_loop {
    const struct face *face;
    float *input, *logits;
    size_t plane;
};

static void parse_input(void *context, int item)
{
    const struct parse_loop *loop = context;
    const struct face *face = loop->face;
    const uint8_t *rounded = face->restoration_float ? NULL : face->restoration->pixels;
    size_t begin = (size_t)item * PARSE_CHUNK,
           end = begin + PARSE_CHUNK < loop->plane ? begin + PARSE_CHUNK : loop->plane;
    for (size_t i = begin; i < end; i++)
        for (size_t c = 0; c < 3; c++) {
            float x = rounded ? (float)rounded[3 * i + c] : face->restoration_float[3 * i + c];
            loop->input[c * loop->plane + i] = (x / 255.0f - 0.5f) / 0.5f;
        }
}

/* The label of the largest logit, the first of equals. Class by class, which vectorises. */
static void parse_labels(void *context, int item)
{
    const struct parse_loop *loop = context;
    size_t begin = (size_t)item * PARSE_CHUNK,
           count = loop->plane - begin < PARSE_CHUNK ? loop->plane - begin : PARSE_CHUNK;
    float best[PARSE_CHUNK];
    uint8_t *labels = loop->face->classes + begin;
    memcpy(best, loop->logits + begin, count * sizeof *best);
    memset(labels, 0, count);
    for (uint8_t k = 1; k < PARSE_CLASSES; k++) {
        const float *logits = loop->logits + (size_t)k * loop->plane + begin;
        for (size_t i = 0; i < count; i++) {
            labels[i] = logits[i] > best[i] ? k : labels[i];
            best[i] = logits[i] > best[i] ? logits[i] : best[i];
        }
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
        struct parse_loop loop = {f, input.data, outputs[0].data, plane};
        int chunks = (int)((plane + PARSE_CHUNK - 1) / PARSE_CHUNK);
        thread_for(chunks, parse_input, &loop);
        code = step_network(step, ROLE_PARSER, &shape, input, outputs, 2, 0, err);
        if (step_too_large(code))
            code = step_no_room(step, ROLE_PARSER, err, "a face of %d × %d px", f->size, f->size);
        if (code == OK)
            thread_for(chunks, parse_labels, &loop);
    }
    free(buffer);
    return code;
}
