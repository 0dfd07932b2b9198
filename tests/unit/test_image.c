/* The picture type: sizes, orientation, reduction to 8-bit RGB, metadata; and the readers of EXIF and ICC blobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/image/exif.h"
#include "server/image/icc.h"
#include "server/image/image.h"
#include "tests/common/picture.h"

static struct image *create(int width, int height, int channels, int bits, bool alpha)
{
    struct image *image = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(image_create(&image, width, height, channels, bits, alpha, &err), OK);
    return image;
}

static void sizes_are_checked(void **state)
{
    (void)state;
    static const int bad[][4] = {{0, 1, 3, 8}, {1, -1, 3, 8}, {1, 1, 2, 8}, {1, 1, 4, 8}, {1, 1, 3, 10}};
    struct image *image;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct error err = ERROR_INIT;
        assert_int_equal(image_create(&image, bad[i][0], bad[i][1], bad[i][2], bad[i][3], false, &err), ERROR_INVALID);
        assert_null(image);
    }
    struct error err = ERROR_INIT; /* 2^62 * 6 bytes: not a size at all */
    assert_int_equal(image_create(&image, 0x7fffffff, 0x7fffffff, 3, 16, true, &err), ERROR_NO_MEMORY);
    assert_null(image);
    image_destroy(&image);
    image = create(3, 2, 1, 16, true);
    assert_int_equal(((uint16_t *)image->alpha)[5], 65535);
    image_destroy(&image);
    assert_null(image);
}

/* TIFF 6.0, tag 274: "the 0th row represents the visual ... of the image, and the 0th column the visual ...". */
static const struct {
    char row, column;
} sides[9] = {{0, 0}, {'t', 'l'}, {'t', 'r'}, {'b', 'r'}, {'b', 'l'}, {'l', 't'}, {'r', 't'}, {'r', 'b'}, {'l', 'b'}};

static void orientation_follows_the_standard(void **state)
{
    (void)state;
    enum { W = 37, H = 50 };
    for (int orientation = 0; orientation <= 9; orientation++)
        for (int kind = 0; kind < 4; kind++) {
            int channels = kind & 1 ? 3 : 1, bits = kind & 2 ? 16 : 8;
            size_t pixel = (size_t)(channels * bits / 8), sample = (size_t)bits / 8;
            struct image *image = create(W, H, channels, bits, true), *stored = create(W, H, channels, bits, true);
            struct error err = ERROR_INIT;
            unsigned seed = 3;
            for (size_t i = 0; i < W * H * pixel; i++)
                ((uint8_t *)stored->pixels)[i] = ((uint8_t *)image->pixels)[i] = (uint8_t)picture_random(&seed);
            for (size_t i = 0; i < W * H * sample; i++)
                ((uint8_t *)stored->alpha)[i] = ((uint8_t *)image->alpha)[i] = (uint8_t)picture_random(&seed);
            assert_int_equal(image_orient(image, orientation, &err), OK);
            int known = orientation >= 1 && orientation <= 8 ? orientation : 1;
            bool turned = sides[known].row == 'l' || sides[known].row == 'r';
            assert_int_equal(image->width, turned ? H : W);
            assert_int_equal(image->height, turned ? W : H);
            for (int row = 0; row < H; row++)
                for (int column = 0; column < W; column++) {
                    int x = turned ? row : column, y = turned ? column : row; /* counted from the side named */
                    if (strchr("r", turned ? sides[known].row : sides[known].column))
                        x = image->width - 1 - x;
                    if (strchr("b", turned ? sides[known].column : sides[known].row))
                        y = image->height - 1 - y;
                    size_t from = (size_t)(row * W + column), to = (size_t)(y * image->width + x);
                    assert_memory_equal((uint8_t *)image->pixels + to * pixel, (uint8_t *)stored->pixels + from * pixel,
                                        pixel);
                    assert_memory_equal((uint8_t *)image->alpha + to * sample, (uint8_t *)stored->alpha + from * sample,
                                        sample);
                }
            image_destroy(&image);
            image_destroy(&stored);
        }
}

static void reduction_rounds_or_cuts(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++)
        for (int channels = 1; channels <= 3; channels += 2) {
            struct image *image = create(256, 256, channels, 16, true);
            struct error err = ERROR_INIT;
            for (int i = 0; i < 65536; i++) {
                for (int c = 0; c < channels; c++)
                    ((uint16_t *)image->pixels)[i * channels + c] = (uint16_t)(i ^ c);
                ((uint16_t *)image->alpha)[i] = (uint16_t)(65535 - i);
            }
            assert_int_equal(image_reduce(image, cut, &err), OK);
            assert_int_equal(image->bits, 8);
            assert_int_equal(image->channels, 3);
            assert_int_equal(image->notes, IMAGE_NOTE_BITS_REDUCED | (channels == 1 ? IMAGE_NOTE_GRAY : 0));
            for (int i = 0; i < 65536; i++)
                for (int c = 0; c < 4; c++) {
                    int v = c == 3 ? 65535 - i : channels == 1 ? i : i ^ c;
                    int byte = cut ? v >> 8 : (int)((double)v * 255 / 65535 + 0.5);
                    assert_int_equal(c == 3 ? image_alpha_view(image).data[i] : image_view(image).data[i * 3 + c],
                                     byte);
                }
            image_destroy(&image);
        }
    struct image *image = create(5, 4, 3, 8, false); /* nothing to do */
    void *pixels = image->pixels;
    struct error err = ERROR_INIT;
    assert_int_equal(image_reduce(image, false, &err), OK);
    assert_ptr_equal(image->pixels, pixels);
    assert_int_equal(image->notes, 0);
    image_destroy(&image);
}

/* A profile of a header, one tag and its text, as much as icc.c reads. */
static size_t make_profile(uint8_t out[200], const char *space, const void *text, size_t size)
{
    memset(out, 0, 200);
    memcpy(out + 16, space, 4);
    memcpy(out + 36, "acsp", 4);
    out[131] = 1;
    memcpy(out + 132, "desc", 4);
    out[139] = 144;
    out[143] = (uint8_t)size;
    memcpy(out + 144, text, size);
    return 144 + size;
}

static void profiles_are_kept_or_dropped_with_a_note(void **state)
{
    (void)state;
    static const struct {
        const char *space, *text;
        size_t size;
        int channels;
        unsigned notes;
    } cases[] = {{"RGB ", "sRGB IEC61966-2.1", 17, 3, 0},
                 {"RGB ", "\0s\0R\0G\0B", 8, 3, 0},
                 {"RGB ", "Display P3", 10, 3, IMAGE_NOTE_ICC_KEPT},
                 {"RGB ", "sRGB", 4, 1, IMAGE_NOTE_GRAY},
                 {"GRAY", "Dot Gain 20%", 12, 1, IMAGE_NOTE_GRAY | IMAGE_NOTE_ICC_DROPPED},
                 {"CMYK", "SWOP", 4, 3, IMAGE_NOTE_ICC_DROPPED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t profile[200];
        size_t size = make_profile(profile, cases[i].space, cases[i].text, cases[i].size);
        struct image *image = create(2, 2, cases[i].channels, 8, false);
        struct error err = ERROR_INIT;
        assert_int_equal(image_blob_set(&image->icc, profile, size, &err), OK);
        assert_int_equal(image_reduce(image, false, &err), OK);
        assert_int_equal(image->notes, cases[i].notes);
        assert_true((image->icc.data == NULL) == ((cases[i].notes & IMAGE_NOTE_ICC_DROPPED) != 0));
        image_destroy(&image);
        for (size_t cut = 0; cut < size; cut++) { /* exact allocations let the sanitizers see a read beyond */
            uint8_t *part = malloc(cut + !cut);
            memcpy(part, profile, cut);
            icc_is_srgb(part, cut);
            assert_true(cut >= 132 || icc_space(part, cut) == ICC_NONE);
            free(part);
        }
        profile[139] = 0xff; /* a tag that lies outside */
        profile[136] = 0xff;
        assert_false(icc_is_srgb(profile, size));
    }
}

static size_t make_exif(uint8_t out[64], bool big, unsigned type, unsigned value)
{
    static const uint8_t little_tiff[] = {'I', 'I', 42, 0, 8, 0, 0,   0, 2, 0, 0x0f, 1,
                                          2,   0,   1,  0, 0, 0, 'x', 0, 0, 0, 0x12, 1};
    static const uint8_t big_tiff[] = {'M', 'M', 0, 42, 0, 0, 0,   8, 0, 2, 1, 0x0f,
                                       0,   2,   0, 0,  0, 1, 'x', 0, 0, 0, 1, 0x12};
    memset(out, 0, 64);
    memcpy(out, big ? big_tiff : little_tiff, sizeof big_tiff);
    out[big ? 25 : 24] = (uint8_t)type;
    out[big ? 29 : 26] = 1;
    out[big ? 31 : 30] = (uint8_t)value;
    return 38;
}

static void the_orientation_tag_is_read_and_reset(void **state)
{
    (void)state;
    uint8_t tiff[64];
    for (int big = 0; big < 2; big++)
        for (unsigned value = 0; value < 12; value++) {
            size_t size = make_exif(tiff, big, 3, value);
            int expected = value >= 1 && value <= 8 ? (int)value : 1;
            assert_int_equal(exif_orientation(tiff, size), expected);
            for (size_t cut = 0; cut < size; cut++) {
                uint8_t *part = malloc(cut + !cut);
                memcpy(part, tiff, cut);
                int got = exif_orientation(part, cut);
                assert_true(got == 1 || got == expected);
                exif_reset_orientation(part, cut);
                free(part);
            }
            exif_reset_orientation(tiff, size);
            assert_int_equal(exif_orientation(tiff, size), 1);
            make_exif(tiff, big, 4, value); /* a LONG is not what the standard says */
            assert_int_equal(exif_orientation(tiff, size), 1);
        }
    assert_int_equal(exif_orientation(NULL, 0), 1);
}

/* Bytes that end where the memory does: a read beyond them is a fault, with and without sanitizers. */
static uint8_t *at_the_end(const uint8_t *bytes, size_t size, uint8_t **page)
{
    const size_t length = (size_t)sysconf(_SC_PAGESIZE);
    *page = mmap(NULL, 2 * length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(*page != MAP_FAILED && size <= length);
    assert_int_equal(mprotect(*page + length, length, PROT_NONE), 0);
    memcpy(*page + length - size, bytes, size);
    return *page + length - size;
}

static void same_after_reset(const uint8_t *bytes, size_t size)
{
    uint8_t *page, *tiff = at_the_end(bytes, size, &page);
    assert_int_equal(exif_orientation(tiff, size), 1);
    exif_reset_orientation(tiff, size);
    assert_memory_equal(tiff, bytes, size);
    munmap(page, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

static void exif_without_orientation_stays_as_it_is(void **state)
{
    (void)state;
    uint8_t tiff[64];
    for (int big = 0; big < 2; big++) {
        const int low = big ? 1 : 0; /* of a 16-bit number */
        size_t size = make_exif(tiff, big, 3, 6);
        for (size_t cut = 0; cut < size - 6; cut++) /* the entry lacks its value's place, or more */
            same_after_reset(tiff, cut);
        tiff[8 + low] = 1; /* the entry stands after the last one */
        same_after_reset(tiff, size);
        make_exif(tiff, big, 3, 6);
        tiff[22 + low] = 0x13; /* another tag */
        same_after_reset(tiff, size);
        make_exif(tiff, big, 3, 6);
        tiff[big ? 29 : 26] = 2; /* two values */
        same_after_reset(tiff, size);
        make_exif(tiff, big, 3, 6);
        tiff[2 + low] = 43;
        same_after_reset(tiff, size);
        make_exif(tiff, big, 3, 6);
        tiff[0] = 'X';
        same_after_reset(tiff, size);
        tiff[1] = 'X';
        same_after_reset(tiff, size);
        for (size_t at = 0; at < 70; at++) { /* the directory lies where no entry is whole, or outside */
            make_exif(tiff, big, 3, 6);
            tiff[big ? 7 : 4] = (uint8_t)at;
            if (at < 8 || at > 8)
                same_after_reset(tiff, size);
        }
        make_exif(tiff, big, 3, 6);
        tiff[big ? 4 : 7] = 0x80;
        same_after_reset(tiff, size);
    }
}

static void a_profile_s_text_may_lie_far_inside(void **state)
{
    (void)state;
    static uint8_t profile[0x11300];
    for (int text = 0; text < 2; text++) {
        make_profile(profile, "RGB ", "", 0);
        profile[137] = 1; /* at 0x11213 = 70163 */
        profile[138] = 0x12;
        profile[139] = 0x13;
        profile[143] = 12;
        memcpy(profile + 0x11213, text ? "sRGB a" : "P3 ab", 5);
        memcpy(profile + 0x11213 + 12, "sRGB", 4); /* beyond the text */
        assert_int_equal(icc_is_srgb(profile, sizeof profile), text);
    }
    profile[138] = 0x11;
    assert_false(icc_is_srgb(profile, sizeof profile));
}

static void hostile_exif_does_no_harm(void **state)
{
    (void)state;
    unsigned seed = 11;
    for (int round = 0; round < 20000; round++) {
        size_t size = picture_random(&seed) % 40;
        uint8_t *tiff = malloc(size + !size);
        for (size_t i = 0; i < size; i++) /* mostly plausible bytes */
            tiff[i] = (uint8_t)(picture_random(&seed) % 4 ? picture_random(&seed) % 16 : picture_random(&seed));
        if (size >= 8) {
            memcpy(tiff, round % 2 ? "II*\0" : "MM\0*", 4);
            if (round % 3 == 0)
                memset(tiff + 4, round % 5 ? 0xff : 0, 4);
        }
        int orientation = exif_orientation(tiff, size);
        assert_in_range(orientation, 1, 8);
        exif_reset_orientation(tiff, size);
        free(tiff);
    }
}

static void metadata_is_copied(void **state)
{
    (void)state;
    struct image *from = create(2, 2, 3, 8, false), *to = create(4, 4, 3, 8, false);
    struct error err = ERROR_INIT;
    uint8_t tiff[64];
    size_t size = make_exif(tiff, true, 3, 6);
    assert_int_equal(image_blob_set(&from->exif, tiff, size, &err), OK);
    assert_int_equal(image_blob_set(&from->xmp, "<x/>", 4, &err), OK);
    assert_int_equal(image_blob_set(&to->icc, "old", 3, &err), OK);
    from->format = IMAGE_PNG;
    from->notes = IMAGE_NOTE_GRAY;
    assert_int_equal(image_orient(from, 6, &err), OK);
    assert_int_equal(exif_orientation(from->exif.data, from->exif.size), 1);
    assert_int_equal(image_copy_metadata(to, from, &err), OK);
    assert_int_equal(to->exif.size, size);
    assert_memory_equal(to->exif.data, from->exif.data, size);
    assert_memory_equal(to->xmp.data, "<x/>", 4);
    assert_null(to->icc.data);
    assert_int_equal(to->format, IMAGE_PNG);
    assert_int_equal(to->notes, IMAGE_NOTE_GRAY);
    image_destroy(&from);
    image_destroy(&to);
}

static void every_note_has_its_sentence(void **state)
{
    (void)state;
    for (int i = 0; i < IMAGE_NOTE_COUNT; i++)
        assert_true(image_note_text(1u << i) && image_note_code(1u << i));
    assert_null(image_note_text(1u << IMAGE_NOTE_COUNT));
    assert_null(image_note_code(1u << IMAGE_NOTE_COUNT));
    assert_null(image_note_text(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(orientation_follows_the_standard),
        cmocka_unit_test(reduction_rounds_or_cuts),
        cmocka_unit_test(profiles_are_kept_or_dropped_with_a_note),
        cmocka_unit_test(the_orientation_tag_is_read_and_reset),
        cmocka_unit_test(exif_without_orientation_stays_as_it_is),
        cmocka_unit_test(a_profile_s_text_may_lie_far_inside),
        cmocka_unit_test(hostile_exif_does_no_harm),
        cmocka_unit_test(metadata_is_copied),
        cmocka_unit_test(every_note_has_its_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
