#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/models/retinaface_decode.h"
#include "server/image/resize.h"
#include "server/image/similarity.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/detect.h"
#include "server/pipeline/detect_choose.h"
#include "server/pipeline/size.h"

#define DETECT_NMS 0.4f
#define DETECT_UNSURE 1e12  /* above any picture's area */
#define DETECT_MIN_SIDE 256 /* reductions stop here */
/* A detector finds a face that is larger than those it knows in pieces, or beside its place. From this size on faces
 * are looked for once more, in a view where they are small. */
#define DETECT_LARGE 480.0
#define DETECT_SMALL_VIEW 640
/* auto_rotate, by the starter detector: the surest upright face has at least 0.9999 in each of 47 validation scenes
 * with faces; on their side or head, as they are read, they have one of 0.9937 at most; 41 pictures without faces
 * have none of 0.5. The detector before it had 0.9999 in nine of ten, and up to 0.9998 upside down. */
#define DETECT_TURN_CERTAIN 0.9999
#define DETECT_TURN_SURE 0.999
#define DETECT_TURN_SURER 4.0 /* so many times less doubt */
#define DETECT_TURN_EYES 10.0 /* px */

/* Runs the detector on a view at its own size. */
static enum error_code detect_view(struct step *step, const struct view_u8 *view, struct face_box **boxes,
                                   size_t *count, struct error *err)
{
    int w = view->width, h = view->height;
    struct session *session;
    const struct model_info *info;
    struct session_shape shape = {.n = 1, .h = h, .w = w};
    const struct raster_source source = {.form = RASTER_U8, .data = view->data, .stride = view->stride};
    struct run_output maps[3] = {{0}};
    enum error_code code = step_session(step, ROLE_DETECTOR, &session, &info, err);
    if (code == OK)
        code = step_prepare(step, ROLE_DETECTOR, &shape, err);
    if (code != OK)
        return code;
    bool room = true;
    for (int k = 0; k < 3; k++) {
        int stride = 8 << k;
        size_t cells = (size_t)((w + stride - 1) / stride) * (size_t)((h + stride - 1) / stride);
        maps[k].planes = mem_alloc(cells, 32 * sizeof(float));
        room = room && maps[k].planes;
    }
    if (room)
        code = step_network(step, ROLE_DETECTOR, &shape, &source, maps, 0, err);
    else
        code = error_set(err, ERROR_NO_MEMORY, "detect: out of memory for a picture of %d × %d", w, h);
    const float *planes[3] = {maps[0].planes, maps[1].planes, maps[2].planes};
    if (code == OK)
        code =
            retinaface_decode(planes, h, w, info->min_sizes, (float)fmin(step->r->options.min_score, OPTION_SURE_SCORE),
                              DETECT_NMS, boxes, count, err);
    for (int k = 0; k < 3; k++)
        free(maps[k].planes);
    return code;
}

/* What was found in the picture turned clockwise by so many quarters; one px of the boxes is scale px of that. */
struct detect_found {
    int quarters;
    struct face_box *boxes;
    size_t count;
    double scale[2];
};

/* Runs the detector on the picture, turned, and reduced so that its longest side is `side`. */
static enum error_code detect_at(struct step *step, int side, struct detect_found *found, struct error *err)
{
    struct view_u8 whole = image_view(step->r->picture);
    const int longest = whole.width > whole.height ? whole.width : whole.height, quarters = found->quarters;
    found->scale[0] = found->scale[1] = 1;
    if (side >= longest && !quarters)
        return detect_view(step, &whole, &found->boxes, &found->count, err);
    const double factor = side < longest ? (double)side / longest : 1;
    const int w = (int)fmax(1, floor(whole.width * factor + 0.5)), h = (int)fmax(1, floor(whole.height * factor + 0.5));
    struct image *small = NULL;
    enum error_code code = image_create(&small, w, h, 3, 8, false, err);
    if (code == OK) {
        struct view_u8 view = image_view(small);
        code = resize_smooth_u8(&view, &whole, RESIZE_AREA, err);
    }
    if (code == OK)
        code = image_orient(small, image_quarters(quarters), err);
    if (code == OK) {
        const struct view_u8 view = image_view(small);
        code = detect_view(step, &view, &found->boxes, &found->count, err);
    }
    image_destroy(&small);
    found->scale[quarters % 2] = (double)whole.width / w;
    found->scale[1 - quarters % 2] = (double)whole.height / h;
    return code;
}

static double detect_size(const struct face_box *face)
{
    return fmax(face->box[2] - face->box[0], face->box[3] - face->box[1]);
}

/* Faces that are not sure are there if min_score asks for them. They come after the sure ones, and change nothing about
 * these: so a face has the same id whatever min_score is. */
static bool detect_sure(const struct face_box *face)
{
    return face->score > (float)OPTION_SURE_SCORE;
}

/* Whether a view of this longest side may show a face that is too large for it. Where there is none at all, a look at
 * the small view costs at most a quarter. */
static bool detect_doubtful(const struct face_box *boxes, size_t count, int side)
{
    const bool any = count && detect_sure(&boxes[0]);
    double largest = any ? 0 : INFINITY;
    for (size_t i = 0; i < count && detect_sure(&boxes[i]); i++)
        largest = fmax(largest, detect_size(&boxes[i]));
    return largest >= DETECT_LARGE && side >= (any ? DETECT_SMALL_VIEW * 5 / 4 : 2 * DETECT_SMALL_VIEW);
}

/* Intersection over union. */
static double detect_overlap(const float a[4], const float b[4])
{
    const double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
    const double areas = (double)(a[2] - a[0]) * (a[3] - a[1]) + (double)(b[2] - b[0]) * (b[3] - b[1]);
    return w > 0 && h > 0 ? w * h / (areas - w * h) : 0;
}

/* Puts those of some faces that no face of a list overlaps behind it. Their number. */
static size_t detect_add(struct face_box *list, size_t count, const struct face_box *faces, size_t more, bool sure)
{
    const size_t first = count;
    for (size_t i = 0; i < more; i++) {
        bool other = detect_sure(&faces[i]) == sure;
        for (size_t k = 0; k < first && other; k++)
            other = detect_overlap(list[k].box, faces[i].box) <= DETECT_NMS;
        if (other)
            list[count++] = faces[i];
    }
    return count;
}

/* Makes a list of the large faces of a small view, one px of which is k px of the first, and those of the first view,
 * in this order, since of what is found twice the first stays. all: room for both. Their number. */
static size_t detect_join(struct face_box *all, struct face_box *small, size_t found, const double k[2],
                          const struct face_box *boxes, size_t count)
{
    size_t large = 0, n = 0;
    for (size_t i = 0; i < found; i++) {
        struct face_box face = small[i];
        for (int c = 0; c < 4; c++)
            face.box[c] *= (float)k[c % 2];
        for (int c = 0; c < 10; c++)
            face.landmarks[c / 2][c % 2] *= (float)k[c % 2];
        if (detect_size(&face) >= DETECT_LARGE)
            small[large++] = face;
    }
    for (int sure = 1; sure >= 0; sure--) {
        n = detect_add(all, n, small, large, sure);
        n = detect_add(all, n, boxes, count, sure);
    }
    return n;
}

/* Looks for faces that are too large for a view. */
static enum error_code detect_large(struct step *step, struct detect_found *found, struct error *err)
{
    struct detect_found small = {.quarters = found->quarters};
    enum error_code code = detect_at(step, DETECT_SMALL_VIEW, &small, err);
    const double k[2] = {small.scale[0] / found->scale[0], small.scale[1] / found->scale[1]};
    struct face_box *all = code == OK && small.count ? mem_alloc(small.count + found->count, sizeof *all) : NULL;
    if (all) {
        found->count = detect_join(all, small.boxes, small.count, k, found->boxes, found->count);
        free(found->boxes);
        found->boxes = all;
    } else if (code == OK && small.count) {
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    free(small.boxes);
    return code;
}

struct detect_rank {
    double weight; /* score times area; all sure ones are above the others */
    size_t index;
};

static int detect_heavier(const void *a, const void *b)
{
    const struct detect_rank *x = a, *y = b;
    return x->weight < y->weight ? 1 : x->weight > y->weight ? -1 : x->index > y->index ? 1 : -1;
}

static int detect_earlier(const void *a, const void *b)
{
    const struct detect_rank *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Of too many faces, keeps the largest and surest, in their order. */
static enum error_code detect_limit(struct restoration *r, struct face_box *boxes, size_t *count, struct error *err)
{
    const size_t most = (size_t)r->limits.max_faces;
    if (!most || *count <= most)
        return OK;
    struct detect_rank *ranks = mem_alloc(*count, sizeof *ranks);
    if (!ranks)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < *count; i++) {
        const float *box = boxes[i].box;
        ranks[i] = (struct detect_rank){(double)boxes[i].score * (box[2] - box[0]) * (box[3] - box[1]) -
                                            (detect_sure(&boxes[i]) ? 0 : DETECT_UNSURE),
                                        i};
    }
    qsort(ranks, *count, sizeof *ranks, detect_heavier);
    qsort(ranks, most, sizeof *ranks, detect_earlier);
    for (size_t i = 0; i < most; i++)
        boxes[i] = boxes[ranks[i].index];
    free(ranks);
    restoration_note(r, "faces-left-out",
                     "%zu faces were found; the %zu largest and surest were taken, and %zu left out (max_faces)",
                     *count, most, *count - most);
    *count = most;
    return OK;
}

/* A point of a turned picture in the one of width × height before. */
static void detect_back(double *x, double *y, int quarters, int width, int height)
{
    for (; quarters > 0; quarters--) { /* back by one; the picture's sides before that */
        const double to_y = (quarters % 2 ? height : width) - 1 - *x;
        *x = *y;
        *y = to_y;
    }
}

static void detect_face_back(struct face *f, int quarters, const struct image *picture)
{
    double box[4] = {f->box[0], f->box[1], f->box[2], f->box[3]};
    detect_back(&box[0], &box[1], quarters, picture->width, picture->height);
    detect_back(&box[2], &box[3], quarters, picture->width, picture->height);
    for (int k = 0; k < 2; k++) {
        f->box[k] = fmin(box[k], box[k + 2]);
        f->box[k + 2] = fmax(box[k], box[k + 2]);
    }
    for (int k = 0; k < 5; k++)
        detect_back(&f->landmarks[k][0], &f->landmarks[k][1], quarters, picture->width, picture->height);
}

/* A face in the px of the picture as it was looked at. */
static struct face detect_face(const struct detect_found *found, size_t i)
{
    struct face f = {.id = (int)i, .score = found->boxes[i].score};
    for (int k = 0; k < 4; k++)
        f.box[k] = found->boxes[i].box[k] * found->scale[k % 2];
    for (int k = 0; k < 10; k++)
        f.landmarks[k / 2][k % 2] = found->boxes[i].landmarks[k / 2][k % 2] * found->scale[k % 2];
    f.eye_distance = hypot(f.landmarks[0][0] - f.landmarks[1][0], f.landmarks[0][1] - f.landmarks[1][1]);
    return f;
}

static enum error_code detect_faces(struct restoration *r, const struct detect_found *found, struct error *err)
{
    const size_t count = found->count;
    r->faces = mem_calloc(count, sizeof *r->faces);
    if (!r->faces)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    r->face_count = (int)count;
    for (size_t i = 0; i < count; i++) {
        r->faces[i] = detect_face(found, i);
        detect_face_back(&r->faces[i], found->quarters, r->picture);
    }
    return OK;
}

/* With aligned=true the whole picture is the one face. */
static enum error_code detect_aligned(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct face_box box = {.box = {0, 0, (float)r->picture->width, (float)r->picture->height}, .score = 1};
    for (int k = 0; k < 10; k++)
        box.landmarks[k / 2][k % 2] =
            (float)(similarity_template[k / 2][k % 2] / 512 * (k % 2 ? r->picture->height : r->picture->width));
    const struct detect_found found = {.boxes = &box, .count = 1, .scale = {1, 1}};
    enum error_code code = detect_faces(r, &found, err);
    r->faces_total = 1;
    return code;
}

/* Finds the faces of the turned picture, at the largest size for which there is room. */
static enum error_code detect_find(struct step *step, struct detect_found *found, struct error *err)
{
    struct restoration *r = step->r;
    int longest = r->picture->width > r->picture->height ? r->picture->width : r->picture->height, side = longest;
    if (!r->options.compat && r->limits.detect_max_side && side > r->limits.detect_max_side)
        side = r->limits.detect_max_side;
    int wanted = side;
    enum error_code code = detect_at(step, side, found, err);
    while (step_too_large(code) && side > DETECT_MIN_SIDE) {
        error_clear(err);
        step->r->shrinks++;
        side = side * 3 / 4 > DETECT_MIN_SIDE ? side * 3 / 4 : DETECT_MIN_SIDE;
        code = detect_at(step, side, found, err);
    }
    if (step_too_large(code))
        code = step_no_room(step, ROLE_DETECTOR, err, "a picture of %d px", side);
    if (code == OK && side < wanted)
        restoration_note(r, "detected-smaller",
                         "the device's memory is too small to detect at full size: faces were looked for at %d of "
                         "%d px",
                         side, longest);
    if (code == OK && !r->options.compat && detect_doubtful(found->boxes, found->count, side))
        code = detect_large(step, found, err);
    return code == OK ? step_check(step, err) : code;
}

/* Whether the face is nearer to upright than to lying: a detector may find them at any angle. */
static bool detect_upright(const struct face *face)
{
    double m[6];
    return similarity_fit(face->landmarks, similarity_template, 5, m) && m[0] > fabs(m[3]);
}

/* The surest of the upright faces that are large enough to say which side is up; score 0: there is none. */
static struct face detect_best(const struct detect_found *found)
{
    struct face best = {0};
    for (size_t i = 0; i < found->count; i++) {
        const struct face f = detect_face(found, i);
        if (f.score > best.score && f.eye_distance >= DETECT_TURN_EYES && detect_possible(&f) && detect_upright(&f))
            best = f;
    }
    return best;
}

/* Whether the face that would turn the picture is there at another size, too. */
static enum error_code detect_confirm(struct step *step, int quarters, const struct face *face, bool *is,
                                      struct error *err)
{
    struct detect_found again = {.quarters = quarters};
    const struct image *picture = step->r->picture;
    int side = picture->width > picture->height ? picture->width : picture->height;
    if (step->r->limits.detect_max_side && side > step->r->limits.detect_max_side)
        side = step->r->limits.detect_max_side;
    enum error_code code = detect_at(step, (int)fmax(1, side * 0.8), &again, err);
    *is = false;
    for (size_t i = 0; i < again.count && code == OK && !*is; i++) {
        const struct face f = detect_face(&again, i);
        *is = detect_possible(&f) && detect_around(face->box, &f);
    }
    free(again.boxes);
    return code;
}

/* In one of two pictures that are upside down some detectors take eyes for mouths, and are nearly sure. So a very sure
 * face ends the search, and else the surest of four sides wins, if it is very much surer than the one that is up.
 * found: what is there as the picture is; then what is there as it should be.
 */
static enum error_code detect_turned(struct step *step, struct detect_found *found, struct error *err)
{
    struct restoration *r = step->r;
    struct detect_found best = *found;
    struct face face = detect_best(found);
    const double up = face.score;
    enum error_code code = OK;
    r->rotation.looked = true;
    for (int quarters = 1; quarters < 4 && up < DETECT_TURN_CERTAIN && code == OK; quarters++) {
        struct detect_found other = {.quarters = quarters};
        code = detect_find(step, &other, err);
        const struct face f = code == OK ? detect_best(&other) : face;
        const bool surer = code == OK && f.score > face.score;
        struct detect_found *const loser = surer ? &best : &other;
        if (loser->boxes != found->boxes)
            free(loser->boxes);
        if (surer) {
            best = other;
            face = f;
        }
    }
    bool turn =
        code == OK && best.quarters && face.score >= DETECT_TURN_SURE && 1 - up > DETECT_TURN_SURER * (1 - face.score);
    if (turn)
        code = detect_confirm(step, best.quarters, &face, &turn, err);
    turn = turn && code == OK;
    if (best.boxes != found->boxes)
        free(turn ? found->boxes : best.boxes);
    if (turn)
        *found = best;
    r->rotation.degrees = turn ? 90 * best.quarters : 0;
    return code;
}

/* Turns all forms of the picture, so that what was found turned is found as it is. */
static enum error_code detect_turn(struct step *step, struct detect_found *found, struct error *err)
{
    struct restoration *r = step->r;
    const int orientation = image_quarters(found->quarters);
    struct image *const images[] = {r->picture, r->deep ? r->deep->pixels : NULL, r->deep ? r->deep->source : NULL,
                                    r->mask};
    const struct model_entry *model[ROLE_COUNT];
    struct size size;
    enum error_code code = OK;
    for (size_t i = 0; i < sizeof images / sizeof *images && code == OK; i++)
        if (images[i])
            code = image_orient(images[i], orientation, err);
    if (code != OK)
        return code;
    if (found->quarters % 2) {
        const double across = r->picture->density[0];
        r->picture->density[0] = r->picture->density[1];
        r->picture->density[1] = across;
    }
    atomic_store(&r->turned, found->quarters);
    found->quarters = 0;
    restoration_note(r, "turned", "the picture was turned by %d degrees clockwise, because its faces are upright so",
                     r->rotation.degrees);
    pipeline_size(r, &size);
    step->width = size.width;
    step->height = size.height;
    return step->context ? pipeline_check_size(r, step->context->store, model, err) : OK; /* of the other side */
}

enum error_code detect_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct detect_found found = {0};
    if (r->options.aligned && !r->detect_only)
        return detect_aligned(step, err);
    if (!step->model[ROLE_DETECTOR] || step->detected)
        return OK;
    enum error_code code = detect_find(step, &found, err);
    if (code == OK && r->options.auto_rotate != ROTATE_OFF && !r->options.compat && !atomic_load(&r->turned))
        code = detect_turned(step, &found, err);
    if (code == OK && found.quarters && r->options.auto_rotate == ROTATE_APPLY && !r->detect_only)
        code = detect_turn(step, &found, err);
    if (code == OK)
        code = detect_limit(r, found.boxes, &found.count, err);
    if (code == OK)
        code = detect_faces(r, &found, err);
    free(found.boxes);
    step->detected = code == OK;
    return code == OK ? detect_choose(step, err) : code;
}

bool detect_turns(const struct step *step)
{
    const struct options *o = &step->r->options;
    return o->auto_rotate == ROTATE_APPLY && !o->compat && !o->aligned && !step->r->detect_only &&
           step->model[ROLE_DETECTOR];
}

enum error_code detect_first(struct step *step, struct error *err)
{
    return detect_turns(step) ? detect_step(step, err) : OK;
}
