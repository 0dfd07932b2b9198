/* What is seen through stains and tape: it comes back as it was, and what hides all is filled. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/image/defect.h"
#include "server/pipeline/repair.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"

enum { W = 320, H = 256, STAIN = 1 + DEFECT_STAIN, CRACK = 1 + DEFECT_CRACK, SPOT = 1 + DEFECT_DUST };

struct veiled {
    const char *name;
    int channels, bits;
    bool colours;        /* the picture has several */
    float thick, uneven; /* how much of the veil's colour there is; and how much that varies inside */
    float rgb[3];        /* the veil's colour */
    uint8_t kind;        /* in the mask */
    bool takes;          /* it has no light of its own */
    double most;  /* levels that what is deep inside may differ from the truth, as a deviation; 0: it is filled */
    bool blurred; /* only what is coarse is seen under it, but that is strong */
};

static bool veil_at(int x, int y, int more)
{
    return hypot(x - 130, y - 120) < 70 + more || (x > 250 - more && y > 150 - more && y < 190 + more);
}

/* What the picture has of fine texture at a place. */
static float texture(int x, int y, unsigned *seed)
{
    const float noise = (float)(picture_random(seed) % 1000) / 1000 - 0.5f;
    return 25 * sinf((float)(x + y) / 3) + 30 * noise;
}

/* A picture with texture at all scales, which the veil does not have. */
static void truth_of(const struct veiled *of, float *rgb)
{
    unsigned seed = 5;
    for (int i = 0; i < W * H; i++) {
        const int x = i % W, y = i / W;
        const float waves = of->blurred ? 60 : 20, fine = texture(x, y, &seed),
                    light = 120 + waves * sinf((float)x / 29) * cosf((float)y / 33) +
                            (of->blurred && veil_at(x, y, 0) ? 0.3f : 1) * fine;
        for (int c = 0; c < 3; c++)
            rgb[3 * i + c] = light + (of->colours ? 20 * sinf((float)(x + 60 * c) / 50) : 0);
    }
}

/* What a veil changes a channel by: it has light of its own, or takes away a part of what there is. */
static float veil_of(const struct veiled *of, float thick, int c, float light)
{
    return of->takes ? -thick * (255 - of->rgb[c]) / 255 * light : thick * (of->rgb[c] - light);
}

static void set(struct image *image, int at, const float *rgb)
{
    for (int c = 0; c < image->channels; c++)
        if (image->bits == 16)
            ((uint16_t *)image->pixels)[at * image->channels + c] = (uint16_t)lrintf(257 * rgb[c]);
        else
            ((uint8_t *)image->pixels)[at * image->channels + c] = (uint8_t)lrintf(rgb[c]);
}

static float sample(const struct image *image, int i)
{
    return image->bits == 16 ? (float)((const uint16_t *)image->pixels)[i] / 257 : ((const uint8_t *)image->pixels)[i];
}

static void test_veils(void **state)
{
    (void)state;
    static const struct veiled cases[] = {
        {"tape over a gray print", 3, 8, false, 0.35f, 0.25f, {184, 140, 56}, STAIN, false, 5.5, false},
        {"brown stain", 3, 8, true, 0.4f, 0, {115, 77, 31}, STAIN, false, 5.5, false},
        {"the same taken for a spot", 3, 8, true, 0.4f, 0, {115, 77, 31}, SPOT, false, 5.5, false},
        {"as light as the picture", 3, 8, false, 0.5f, 0, {120, 112, 100}, STAIN, false, 5, false},
        {"bleached, gray", 1, 8, false, 0.3f, 0, {240, 240, 240}, STAIN, false, 5.5, false},
        {"tea on a gray print", 3, 8, false, 1, 0, {220, 170, 110}, STAIN, true, 6, false},
        {"tea, uneven", 3, 8, false, 0.8f, 0.25f, {220, 170, 110}, STAIN, true, 6, false},
        {"tea in colours", 3, 8, true, 1, 0, {220, 190, 150}, STAIN, true, 6, false},
        {"16 bits", 3, 16, true, 0.3f, 0, {200, 180, 150}, STAIN, false, 5.5, false},
        {"no damage", 3, 8, true, 0, 0, {0, 0, 0}, STAIN, false, 0.5, false},
        {"that blurs", 3, 8, false, 0.3f, 0, {184, 140, 56}, STAIN, false, 11, true},
        {"hides all", 3, 8, true, 1, 0, {230, 225, 210}, STAIN, false, 0, false},
        {"hides nearly all", 3, 8, true, 0.8f, 0, {60, 60, 60}, STAIN, false, 0, false},
        {"a torn part", 3, 8, true, 0.4f, 0, {115, 77, 31}, CRACK, false, 0, false},
        {"painted over by the user", 3, 8, true, 0.4f, 0, {115, 77, 31}, DEFECT_GIVEN, false, 0, false},
    };
    float *truth = malloc(3 * W * H * sizeof *truth);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const struct veiled *of = &cases[k];
        struct error err = ERROR_INIT;
        struct restoration *r;
        assert_int_equal(restoration_create(&r, &err), OK);
        struct step step = {.r = r};
        r->picture = picture_waves(W, H, of->channels, of->bits);
        uint8_t *mask = calloc(W, H);
        truth_of(of, truth);
        for (int i = 0; i < W * H; i++) {
            const int x = i % W, y = i / W;
            const float thick = of->thick * (1 + of->uneven * cosf((float)x / 31));
            float rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = truth[3 * i + c] + (veil_at(x, y, 0) ? veil_of(of, thick, c, truth[3 * i + c]) : 0);
            mask[i] = veil_at(x, y, 2) ? of->kind : 0;
            set(r->picture, i, rgb);
        }
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        double squares = 0, left = 0, beyond = 0;
        int count = 0;
        for (int i = 0; i < W * H; i++) {
            const int x = i % W, y = i / W;
            for (int c = 0; c < of->channels; c++) {
                const float off = sample(r->picture, of->channels * i + c) - truth[3 * i + c];
                if (!veil_at(x, y, 2 + REPAIR_FEATHER + 1))
                    beyond = fmax(beyond, fabsf(off));
                else if (veil_at(x, y, -6)) {
                    squares += off * off;
                    left += powf(veil_of(of, of->thick, c, truth[3 * i + c]), 2);
                    count++;
                }
            }
        }
        const double off = sqrt(squares / count);
        printf("    %s: %.1f levels off, %.1f before\n", of->name, off, sqrt(left / count));
        assert_true(beyond <= 0.5 + 1e-3);
        assert_true(of->most > 0 ? off < of->most : off > 20);
        free(mask);
        restoration_destroy(&r);
    }
    free(truth);
}

/* A mask that was sent says by its grays what is a stain; what is white in it is filled. */
static void test_sent(void **state)
{
    (void)state;
    static const struct veiled stain = {"", 3, 8, true, 0.4f, 0, {115, 77, 31}, STAIN, false, 0, false};
    float *truth = malloc(3 * W * H * sizeof *truth);
    truth_of(&stain, truth);
    for (int white = 0; white < 2; white++) {
        struct error err = ERROR_INIT;
        struct restoration *r;
        assert_int_equal(restoration_create(&r, &err), OK);
        struct step step = {.r = r};
        r->picture = picture_waves(W, H, 3, 8);
        assert_int_equal(image_create(&r->mask, W, H, 1, 8, false, &err), OK);
        r->options.mask_kinds = true;
        for (int i = 0; i < W * H; i++) {
            const int x = i % W, y = i / W;
            float rgb[3];
            for (int c = 0; c < 3; c++)
                rgb[c] = truth[3 * i + c] + (veil_at(x, y, 0) ? veil_of(&stain, stain.thick, c, truth[3 * i + c]) : 0);
            set(r->picture, i, rgb);
            ((uint8_t *)r->mask->pixels)[i] = !veil_at(x, y, 2) ? 0 : white ? 255 : defect_grays[STAIN];
        }
        assert_int_equal(repair_step(&step, &err), OK);
        double off = 0;
        for (int i = 0; i < 3 * W * H; i++)
            off += veil_at(i / 3 % W, i / 3 / W, -6) ? fabs(sample(r->picture, i) - truth[i]) / (3 * W * H) : 0;
        printf("    a %s mask: %.2f\n", white ? "white" : "stain's", off);
        assert_true(white ? off > 2.5 : off < 1);
        assert_int_equal(((uint8_t *)r->mask->pixels)[120 * W + 130], white ? 255 : defect_grays[STAIN]);
        assert_true(r->damage.given && r->damage.shares[STAIN - 1] == 0);
        restoration_destroy(&r);
    }
    free(truth);
}

/* A white patch that lies in part over white: what is no spot there is not filled, and a spot that ends all around is.
 */
static void test_open(void **state)
{
    (void)state;
    for (int open = 0; open < 2; open++) {
        struct error err = ERROR_INIT;
        struct restoration *r;
        assert_int_equal(restoration_create(&r, &err), OK);
        struct step step = {.r = r};
        r->picture = picture_waves(W, H, 3, 8);
        uint8_t *mask = calloc(W, H), *before = malloc(3 * W * H), *pixels = r->picture->pixels;
        unsigned seed = 4;
        for (int i = 0; i < W * H; i++) {
            const int x = i % W, y = i / W;
            const bool spot = x > 100 && x < 180 && y > 90 && y < 150, cloth = open && y > 90;
            mask[i] = spot ? SPOT : 0;
            memset(pixels + 3 * i, (spot || cloth ? 235 : 60 + x / 16) + (int)(picture_random(&seed) % 7), 3);
        }
        memcpy(before, pixels, 3 * W * H);
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        assert_true(open ? !memcmp(before, pixels, 3 * W * H) : pixels[3 * (120 * W + 140)] < 100);
        free(before);
        free(mask);
        restoration_destroy(&r);
    }
}

/* Pictures of any size, down to pieces that are all of it: nothing beyond the mask and what is beside it changes. */
static void test_sizes(void **state)
{
    (void)state;
    unsigned seed = 9;
    for (int n = 0; n < 120; n++) {
        const int width = 1 + (int)(picture_random(&seed) % 70), height = 1 + (int)(picture_random(&seed) % 70);
        struct error err = ERROR_INIT;
        struct restoration *r;
        assert_int_equal(restoration_create(&r, &err), OK);
        struct step step = {.r = r};
        r->picture = picture_waves(width, height, n % 3 ? 3 : 1, n % 2 ? 8 : 16);
        const size_t bytes = (size_t)width * (size_t)height * (n % 3 ? 3 : 1) * (n % 2 ? 1 : 2);
        uint8_t *mask = calloc((size_t)width, (size_t)height), *before = malloc(bytes);
        memcpy(before, r->picture->pixels, bytes);
        for (int box = 0; box < 3; box++) {
            const int left = (int)(picture_random(&seed) % 60) - 5, top = (int)(picture_random(&seed) % 60) - 5,
                      side = (int)(picture_random(&seed) % 40);
            for (int y = top < 0 ? 0 : top; y < top + side && y < height; y++)
                for (int x = left < 0 ? 0 : left; x < left + side && x < width; x++)
                    mask[y * width + x] = (uint8_t)(1 + (n + box) % DEFECT_GIVEN);
        }
        if (n % 5) /* else it may all be a hole */
            mask[0] = 0;
        assert_int_equal(repair_fill(&step, mask, NULL, 1, &err), OK);
        const size_t px = bytes / ((size_t)width * (size_t)height);
        for (int i = 0; i < width * height; i++) {
            bool near = false;
            for (int y = i / width - REPAIR_FEATHER; y <= i / width + REPAIR_FEATHER; y++)
                for (int x = i % width - REPAIR_FEATHER; x <= i % width + REPAIR_FEATHER; x++)
                    near = near || (x >= 0 && y >= 0 && x < width && y < height && mask[y * width + x]);
            assert_true(near || !memcmp(before + px * (size_t)i, (uint8_t *)r->picture->pixels + px * (size_t)i, px));
        }
        free(before);
        free(mask);
        restoration_destroy(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_veils),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_sent),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, restoration_begin, restoration_end);
}
