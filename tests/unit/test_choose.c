/* Which of the faces that a detector found are restored: faces found twice, landmarks that no face has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "server/image/similarity.h"
#include "server/pipeline/detect_choose.h"

enum { SIDE = 1000, MOST = 4 };

static const char again[] = "it is face 0, found once more", unlike[] = "its landmarks do not fit a face";

/* A face whose features are around x, y, turned by an angle; its box is 317 px of the template, as detectors make it.
 */
static struct face face_at(double x, double y, double box, double degrees)
{
    struct face f = {.score = 0.99};
    const double scale = box / 317, c = scale * cos(degrees * acos(-1) / 180),
                 s = scale * sin(degrees * acos(-1) / 180);
    for (int k = 0; k < 5; k++) {
        double u = similarity_template[k][0] - 254.95, v = similarity_template[k][1] - 307.33;
        f.landmarks[k][0] = x + c * u - s * v;
        f.landmarks[k][1] = y + s * u + c * v;
    }
    for (int k = 0; k < 4; k++)
        f.box[k] = (k % 2 ? y : x) + (k < 2 ? -box / 2 : box / 2);
    return f;
}

/* Lets faces be chosen among, in a picture of SIDE × SIDE. The caller destroys it. */
static struct restoration *choose(const struct face *faces, int count, const struct options *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    assert_true(count <= MOST);
    if (restoration_create(&r, &err) || image_create(&r->picture, SIDE, SIDE, 3, 8, false, &err))
        fail_msg("%s", err.text);
    if (options)
        r->options = *options;
    r->faces = mem_calloc((size_t)count, sizeof *r->faces);
    r->face_count = count;
    for (int i = 0; i < count; i++) {
        struct face *f = &r->faces[i];
        *f = faces[i];
        f->id = i;
        f->eye_distance = hypot(f->landmarks[0][0] - f->landmarks[1][0], f->landmarks[0][1] - f->landmarks[1][1]);
    }
    struct step step = {.r = r};
    if (detect_choose(&step, &err))
        fail_msg("%s", err.text);
    return r;
}

/* reasons: of each face, "" for a face that is restored. */
static void expect(const struct face *faces, int count, const struct options *options, const char *const *reasons)
{
    struct restoration *r = choose(faces, count, options);
    int chosen = 0;
    for (int i = 0; i < count; i++) {
        assert_string_equal(r->faces[i].reason, reasons[i]);
        chosen += !*reasons[i];
    }
    assert_int_equal(atomic_load(&r->faces_total), chosen);
    restoration_destroy(&r);
}

/* What the starter detector finds in a portrait of 2048 px: boxes with an overlap of 0.396, where 0.4 is the limit. */
static const struct face portrait[2] = {
    {.box = {691.036, 528.834, 1324.2, 1275.719},
     .score = 0.99998,
     .landmarks =
         {{874.839, 828.615}, {1125.826, 817.428}, {1002.069, 970.614}, {913.551, 1102.257}, {1113.613, 1090.713}}},
    {.box = {570.934, 413.843, 1169.65, 1026.748},
     .score = 0.99537,
     .landmarks = {
         {715.209, 653.784}, {929.354, 648.528}, {788.754, 777.973}, {747.258, 894.754}, {921.378, 887.918}}}};

static void found_twice(void **state)
{
    (void)state;
    struct options options;
    options_init(&options);
    expect(portrait, 2, NULL, (const char *const[]){"", again});
    options.compat = true; /* as the reference */
    expect(portrait, 2, &options, (const char *const[]){"", ""});
    options.compat = false;
    options.only_center_face = true; /* the second one is nearer to the middle of this picture */
    expect(portrait, 2, &options, (const char *const[]){"", again});
    options.only_center_face = false;
    options.faces = FACES_LISTED; /* whoever asks for the second one alone gets it */
    options.face_id_count = 1;
    options.face_ids[0] = 1;
    expect(portrait, 2, &options, (const char *const[]){"not among the faces that were asked for", ""});
    options.face_id_count = 2;
    options.face_ids[1] = 0;
    expect(portrait, 2, &options, (const char *const[]){"", again});
    /* what is refused refuses nothing: the third is over the second alone */
    const struct face row[3] = {face_at(300, 500, 200, 0), face_at(380, 500, 200, 0), face_at(460, 500, 200, 0)};
    expect(row, 3, NULL, (const char *const[]){"", again, ""});
}

/* One box in another, which no overlap tells: the middle one is a part of the large face; beside its features it is
 * another, as is a neighbour whose box overlaps. */
static void contained(void **state)
{
    (void)state;
    const struct face large = face_at(500, 500, 400, 0);
    const struct face nose[2] = {large, face_at(510, 530, 60, 0)}, eye[2] = {large, face_at(425, 430, 60, 0)},
                      whole[2] = {face_at(425, 430, 60, 0), large}, cheek[2] = {large, face_at(640, 640, 60, 0)},
                      neighbour[2] = {large, face_at(740, 520, 400, 10)},
                      child[2] = {large, face_at(650, 690, 200, -20)};
    expect(nose, 2, NULL, (const char *const[]){"", again});
    expect(eye, 2, NULL, (const char *const[]){"", again});
    expect(whole, 2, NULL, (const char *const[]){"", again}); /* the surer one is kept, whichever it is */
    expect(cheek, 2, NULL, (const char *const[]){"", ""});
    expect(neighbour, 2, NULL, (const char *const[]){"", ""});
    expect(child, 2, NULL, (const char *const[]){"", ""});
}

static void landmarks(void **state)
{
    (void)state;
    struct options compat;
    options_init(&compat);
    compat.compat = true;
    for (int turn = -180; turn < 180; turn += 45) {
        struct face upright = face_at(500, 500, 300, turn), mirrored = upright, profile = upright;
        expect(&upright, 1, NULL, (const char *const[]){""});
        const double x = 20 * cos(turn * acos(-1) / 180), y = 20 * sin(turn * acos(-1) / 180);
        for (int k = 0; k < 5; k++) { /* left and right change places, or are nearly one, and the nose is beside them */
            const int other = (int[]){1, 0, 2, 4, 3}[k], side = (int[]){-1, 1, 4, -1, 1}[k];
            for (int c = 0; c < 2; c++) {
                mirrored.landmarks[k][c] = upright.landmarks[other][c];
                profile.landmarks[k][c] =
                    (upright.landmarks[k][c] + upright.landmarks[other][c]) / 2 + side * (c ? y : x) / 2;
            }
        }
        expect(&mirrored, 1, NULL, (const char *const[]){unlike});
        expect(&mirrored, 1, &compat, (const char *const[]){""});
        expect(&profile, 1, NULL, (const char *const[]){""});
    }
    struct face outside = face_at(500, 500, 300, 0), tiny = outside, wide = outside, none = outside, line = outside;
    const struct face small = face_at(500, 500, 80, 0), large = face_at(500, 500, 900, 0);
    outside.box[0] = 600, outside.box[2] = 900;
    memcpy(tiny.landmarks, small.landmarks, sizeof tiny.landmarks);
    memcpy(wide.landmarks, large.landmarks, sizeof wide.landmarks);
    none.landmarks[2][1] = NAN;
    for (int k = 0; k < 5; k++)
        line.landmarks[k][1] = 500;
    line.landmarks[2][0] = 700;
    line.landmarks[3][0] = 300;
    for (int i = 0; i < 5; i++)
        expect((const struct face *const[]){&outside, &tiny, &wide, &none, &line}[i], 1, NULL,
               (const char *const[]){unlike});
}

/* Sizes and scores leave faces out, never renumber them, and the nearest to the middle is one of those left. */
static void filters(void **state)
{
    (void)state;
    struct options options;
    struct face row[3] = {face_at(200, 500, 200, 0), face_at(500, 500, 100, 0), face_at(750, 500, 150, 0)};
    row[2].box[3] += 30; /* 150 x 180: the longer side counts */
    row[2].score = 0.985;
    static const char small[] = "its box is 100.0 px, less than min_face (101 px)",
                      large[] = "its box is 200.0 px, more than max_face (199 px)",
                      middling[] = "its box is 180.0 px, less than min_face (181 px)",
                      unsure[] = "its score is 0.9850, less than min_score (0.99)",
                      aside[] = "not the face nearest to the picture's centre";
    options_init(&options);
    options.min_face = 100;
    options.max_face = 200;
    options.min_score = 0.985;
    expect(row, 3, &options, (const char *const[]){"", "", ""});
    options.min_face = 101;
    expect(row, 3, &options, (const char *const[]){"", small, ""});
    options.max_face = 199;
    expect(row, 3, &options, (const char *const[]){large, small, ""});
    options.max_face = 0;
    options.min_score = 0.99;
    expect(row, 3, &options, (const char *const[]){"", small, unsure});
    options.min_score = 0.5;
    options.only_center_face = true;
    expect(row, 3, &options, (const char *const[]){aside, small, ""});
    options.min_face = 181;
    expect(row, 3, &options, (const char *const[]){"", "its box is 100.0 px, less than min_face (181 px)", middling});
    options.only_center_face = false; /* what is hardly beyond a limit does not look as if it were not */
    options.min_face = 0;
    options.max_face = 180;
    options.min_score = 1;
    row[0] = face_at(200, 500, 180.02f, 0);
    row[0].score = row[1].score = 1;
    row[2].score = 0.99999f;
    expect(row, 3, &options,
           (const char *const[]){"its box is 180.1 px, more than max_face (180 px)", "",
                                 "its score is 0.9999, less than min_score (1)"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(found_twice), cmocka_unit_test(contained),
                                       cmocka_unit_test(landmarks), cmocka_unit_test(filters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
