/* Prints in a screen of dots: which pictures are taken for one, and that dots are no damage there, but scratches are.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/image/codec.h"
#include "server/pipeline/repair.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"
#include "tests/common/shared.h"

enum { W = 402, H = 301 };

static struct image *blank(void)
{
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(image_create(&image, W, H, 3, 8, false, &err), OK);
    return image;
}

static uint8_t *sample(struct image *image, int x, int y)
{
    return (uint8_t *)image->pixels + 3 * ((size_t)y * W + (size_t)x);
}

/* A gray from 0 to 1 that waves of all lengths make. */
static double waves(unsigned seed, int x, int y)
{
    double gray = 0.5;
    for (int i = 0; i < 10; i++) {
        const double length = 12 << i % 5, way = picture_random(&seed) % 628 / 100.0,
                     along = x * cos(way) + y * sin(way);
        gray += 0.06 * sin(along * 6.2831853 / length + picture_random(&seed) % 628 / 100.0);
    }
    return fmin(fmax(gray, 0.02), 0.98);
}

/* What a screen of dots makes of a gray, from 0 to 1. */
static double dots(double gray, int x, int y, double pitch, double angle)
{
    const double turn = 3.14159265 / pitch, a = (x * cos(angle) + y * sin(angle)) * turn,
                 b = (y * cos(angle) - x * sin(angle)) * turn;
    return 1 / (1 + exp(-(gray - 0.5 - 0.5 * sin(a) * sin(b)) * 25));
}

/* angles: of red's, green's and blue's dots, in degrees. */
static struct image *print(unsigned seed, double pitch, const double angles[3])
{
    struct image *image = blank();
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            const double gray = waves(seed, x, y);
            for (int c = 0; c < 3; c++)
                sample(image, x, y)[c] = (uint8_t)(20 + 200 * dots(gray, x, y, pitch, angles[c] * 3.14159265 / 180));
        }
    return image;
}

static void test_prints(void **state)
{
    (void)state;
    static const struct {
        double pitch, angles[3];
    } forms[] = {
        {4, {45, 45, 45}}, {5.7, {45, 45, 45}}, {8, {45, 45, 45}}, {5, {49, 49, 49}}, {4, {0, 0, 0}}, {5, {15, 75, 0}},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct image *image = print(7, forms[i].pitch, forms[i].angles);
        if (!repair_is_screen(image))
            fail_msg("a print in dots of %g px is none", forms[i].pitch);
        image_destroy(&image);
    }
}

enum { GRAIN, STRIPES, BRICKS, CHECKED, WAVES, SORTS };

static void test_others(void **state)
{
    (void)state;
    static const char *const names[SORTS] = {"grain", "stripes", "bricks", "a checked cloth", "waves"};
    for (int sort = 0; sort < SORTS; sort++) {
        struct image *image = sort == WAVES ? picture_waves(W, H, 3, 8) : blank();
        unsigned random = 5;
        for (int y = 0; y < H && sort != WAVES; y++)
            for (int x = 0; x < W; x++) {
                const bool joint = y % 12 < 2 || (x + y / 12 * 14) % 28 < 2, cloth = x > W / 2 && y > H / 2;
                const int wave = sort == STRIPES  ? 40 * (x % 6 < 3)
                                 : sort == BRICKS ? 60 * joint
                                 : sort == GRAIN  ? 0
                                                  : 40 * (cloth && x % 6 < 3 && y % 6 < 3);
                const int light = 100 + wave + (int)(picture_random(&random) % 24);
                memset(sample(image, x, y), light, 3);
            }
        if (repair_is_screen(image))
            fail_msg("%s are taken for a screen", names[sort]);
        image_destroy(&image);
    }
    struct image *small;
    struct error err = ERROR_INIT;
    assert_int_equal(image_create(&small, 60, 400, 3, 8, false, &err), OK);
    assert_false(repair_is_screen(small));
    image_destroy(&small);
}

/* How many pixels are likely to be damage. where: NULL, or of which. */
static int likely(const struct image *image, const uint8_t *level, const uint8_t *where)
{
    int count = 0;
    for (int i = 0; i < image->width * image->height; i++)
        count += level[i] > 150 && (!where || where[i]);
    return count;
}

/* A photo, printed in dots 45 degrees apart from its sides. */
static struct image *printed(const char *name, double pitch)
{
    struct file file;
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    if (file_map(&file, shared_path("photos/%s", name), &err) ||
        codec_decode(file.data, file.size, 0, &image, NULL, &err))
        fail_msg("%s", err.text);
    file_unmap(&file);
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++) {
            uint8_t *rgb = (uint8_t *)image->pixels + 3 * ((size_t)y * (size_t)image->width + (size_t)x);
            const double gray = (0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]) / 255;
            memset(rgb, (int)(20 + 200 * dots(gray, x, y, pitch, 3.14159265 / 4)), 3);
        }
    return image;
}

/* A scratch 3 px wide from the upper edge to the lower one, and where it is. */
static void scratch(struct image *image, uint8_t *where)
{
    for (int y = 20; y < image->height - 20; y++)
        for (int x = 60 + y / 2; x < 63 + y / 2 && x < image->width; x++) {
            const size_t at = (size_t)y * (size_t)image->width + (size_t)x;
            memset((uint8_t *)image->pixels + 3 * at, 250, 3);
            where[at] = 1;
        }
}

static void test_damage(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    static const struct {
        const char *name;
        double pitch;
    } photos[] = {{"one_face_2.jpg", 4}, {"aligned_face.png", 4}, {"scene_plants.png", 4}};
    if (!shared_present() || access("models/starter/starter_damage.safetensors", R_OK))
        skip();
    struct worker_context own = {.device = restoration_worker.device, .store = models_of("models/starter", NULL)};
    struct restoration *r = NULL;
    if (model_set_create(&own.models, own.store, own.device, &err) || restoration_create(&r, &err))
        fail_msg("%s", err.text);
    struct step step = {.r = r, .context = &own};
    step.model[ROLE_DAMAGE] = models_resolve(own.store, ROLE_DAMAGE, "starter_damage");
    for (size_t i = 0; i < sizeof photos / sizeof photos[0]; i++)
        for (int scratched = 0; scratched < 2; scratched++) {
            r->picture = printed(photos[i].name, photos[i].pitch);
            const size_t pixels = (size_t)r->picture->width * (size_t)r->picture->height;
            uint8_t *level = calloc(pixels, 4), *kind = level + pixels, *room = kind + pixels, *where = room + pixels;
            assert_non_null(level);
            if (scratched)
                scratch(r->picture, where);
            if (repair_find(&step, r->picture, 0, level, kind, &err))
                fail_msg("%s", err.text);
            const int before = likely(r->picture, level, scratched ? where : NULL);
            if (repair_find_halved(&step, level, room, &err))
                fail_msg("%s", err.text);
            const int after = likely(r->picture, level, scratched ? where : NULL);
            print_message("%s: %d px of %s are likely damage, %d by the half, too\n", photos[i].name, before,
                          scratched ? "a scratch" : "dots", after);
            assert_true(scratched ? before > 500 && after > before * 9 / 10 : before > 20 && after == 0);
            if (!scratched) { /* and so the whole step finds nothing */
                r->damage_only = true;
                if (repair_step(&step, &err))
                    fail_msg("%s", err.text);
                assert_true(r->damage.looked && r->damage.share == 0);
                image_destroy(&r->mask);
            }
            free(level);
            image_destroy(&r->picture);
        }
    restoration_destroy(&r);
    model_set_destroy(&own.models);
    model_store_destroy(&own.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prints), cmocka_unit_test(test_others),
                                       cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests(tests, restoration_begin, restoration_end);
}
