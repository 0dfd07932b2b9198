#include "server/pipeline/detect_choose.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/image/similarity.h"

#define DETECT_MIN_EYES 5.0 /* px; closer eyes mean a face too small or seen from the side */
/* Of 1,500 faces that were found in photos and scenes, profiles among them, the template explains at least 0.68 of the
 * landmarks' spread (of a mirrored face 0.01), and the box's side is 275 to 360 px of it. */
#define DETECT_LIKENESS 0.4
#define DETECT_SIDE_LEAST 150.0
#define DETECT_SIDE_MOST 650.0
#define DETECT_CONTAINED 0.8 /* of the smaller box */
#define DETECT_CENTRAL 0.8   /* of a face's oval: what lies here in a face is a part of it */

static __attribute__((format(printf, 2, 3))) void detect_skip(struct face *face, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!face->reason[0])
        vsnprintf(face->reason, sizeof face->reason, format, args);
    va_end(args);
}

static void detect_middle(const struct face *face, double middle[2])
{
    for (int c = 0; c < 2; c++) {
        middle[c] = 0;
        for (int k = 0; k < 5; k++)
            middle[c] += face->landmarks[k][c] / 5;
    }
}

bool detect_around(const double box[4], const struct face *face)
{
    double middle[2];
    detect_middle(face, middle);
    return middle[0] > box[0] && middle[0] < box[2] && middle[1] > box[1] && middle[1] < box[3];
}

static double detect_area(const double box[4])
{
    return fmax(0, box[2] - box[0]) * fmax(0, box[3] - box[1]);
}

static double detect_spread(const double points[][2])
{
    double sum[2] = {0}, squares = 0;
    for (int k = 0; k < 10; k++) {
        sum[k % 2] += points[k / 2][k % 2];
        squares += points[k / 2][k % 2] * points[k / 2][k % 2];
    }
    return squares - (sum[0] * sum[0] + sum[1] * sum[1]) / 5;
}

bool detect_possible(const struct face *face)
{
    double m[6];
    if (!similarity_fit(face->landmarks, similarity_template, 5, m))
        return false;
    double scale = hypot(m[0], m[3]), side = sqrt(detect_area(face->box)) * scale;
    double likeness = scale * scale * detect_spread(face->landmarks) / detect_spread(similarity_template);
    return likeness > DETECT_LIKENESS && side > DETECT_SIDE_LEAST && side < DETECT_SIDE_MOST &&
           detect_around(face->box, face);
}

/* Whether a point of the picture is well within a face. */
static bool detect_central(const struct face *face, const double point[2])
{
    double m[6];
    return similarity_fit(face->landmarks, similarity_template, 5, m) &&
           similarity_oval(m[0] * point[0] + m[1] * point[1] + m[2], m[3] * point[0] + m[4] * point[1] + m[5]) <
               DETECT_CENTRAL;
}

/* Whether two faces are one, found twice: each box has the middle of the other's features (no face hides half of
 * another and leaves it to be found), or one box lies in the other, and its features in the middle of the other's face.
 */
static bool detect_same(const struct face *a, const struct face *b)
{
    double middle_a[2], middle_b[2], shared[4];
    detect_middle(a, middle_a);
    detect_middle(b, middle_b);
    if (detect_around(a->box, b) && detect_around(b->box, a))
        return true;
    for (int k = 0; k < 4; k++)
        shared[k] = k < 2 ? fmax(a->box[k], b->box[k]) : fmin(a->box[k], b->box[k]);
    return detect_area(shared) >= DETECT_CONTAINED * fmin(detect_area(a->box), detect_area(b->box)) &&
           (detect_central(a, middle_b) || detect_central(b, middle_a));
}

static bool detect_listed(const struct options *options, int id)
{
    bool listed = options->faces != FACES_LISTED;
    for (int k = 0; k < options->face_id_count && !listed; k++)
        listed = options->face_ids[k] == id;
    return listed;
}

/* Refuses what cannot be a face, and of each face that was found twice the one that is less sure, unless that one alone
 * was asked for. */
static void detect_refuse(struct restoration *r)
{
    for (int i = 0; i < r->face_count; i++) {
        struct face *f = &r->faces[i];
        if (f->eye_distance < DETECT_MIN_EYES)
            detect_skip(f, "the eyes are less than 5 px apart");
        else if (!r->options.compat && !detect_possible(f))
            detect_skip(f, "its landmarks do not fit a face");
        for (int k = 0; k < i && !r->options.compat && !f->reason[0]; k++)
            if (!r->faces[k].reason[0] && detect_listed(&r->options, r->faces[k].id) && detect_same(f, &r->faces[k]))
                snprintf(f->reason, sizeof f->reason, "it is face %d, found once more", r->faces[k].id);
    }
}

/* Applies what the options demand of a single face. Numbers are rounded away from their limits: none "is 1.0000, less
 * than 1". */
static void detect_filter(const struct options *o, struct face *f)
{
    const double side = fmax(f->box[2] - f->box[0], f->box[3] - f->box[1]);
    if (side < o->min_face)
        detect_skip(f, "its box is %.1f px, less than min_face (%d px)", floor(side * 10) / 10, o->min_face);
    if (o->max_face && side > o->max_face)
        detect_skip(f, "its box is %.1f px, more than max_face (%d px)", ceil(side * 10) / 10, o->max_face);
    if (f->score < o->min_score && o->min_score > OPTION_SURE_SCORE) /* with less, the detector names no others */
        detect_skip(f, "its score is %.4f, less than min_score (%g)", floor(f->score * 1e4) / 1e4, o->min_score);
}

enum error_code detect_choose(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    const struct options *o = &r->options;
    int centre = -1, chosen = 0;
    double nearest = INFINITY;
    detect_refuse(r);
    for (int i = 0; i < r->face_count; i++) {
        struct face *f = &r->faces[i];
        detect_filter(o, f);
        double d = hypot((f->box[0] + f->box[2]) / 2 - r->picture->width / 2.0,
                         (f->box[1] + f->box[3]) / 2 - r->picture->height / 2.0);
        if (!f->reason[0] && d < nearest) {
            nearest = d;
            centre = i;
        }
    }
    for (int i = 0; i < r->face_count; i++) {
        struct face *f = &r->faces[i];
        if (o->faces == FACES_NONE)
            detect_skip(f, "faces=none");
        if (!strcmp(o->version, "none") && !r->detect_only)
            detect_skip(f, "version=none");
        if (!detect_listed(o, f->id))
            detect_skip(f, "not among the faces that were asked for");
        if (o->only_center_face && i != centre)
            detect_skip(f, "not the face nearest to the picture's centre");
        chosen += !f->reason[0];
    }
    for (int k = 0; o->faces == FACES_LISTED && k < o->face_id_count; k++)
        if (o->face_ids[k] >= r->face_count)
            restoration_note(r, "face-missing",
                             r->face_count == 1 ? "face %d was asked for, but the picture has %d face"
                                                : "face %d was asked for, but the picture has %d faces",
                             o->face_ids[k], r->face_count);
    for (int k = 0; k < o->weight_count && !o->compat; k++)
        if (o->weight_ids[k] >= r->face_count)
            restoration_note(r, "weight-missing",
                             r->face_count == 1 ? "weight: there is no face %d; the picture has %d face"
                                                : "weight: there is no face %d; the picture has %d faces",
                             o->weight_ids[k], r->face_count);
    atomic_store(&r->faces_total, chosen);
    return step_check(step, err);
}
