#include "tests/common/picture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/image/codec.h"
#include "tests/common/shared.h"

void picture_need_shared(void)
{
    if (!shared_present()) {
        printf("skip: the shared goldens are not there\n");
        skip();
    }
}

struct image *picture_load(const char *path)
{
    struct error err = ERROR_INIT;
    struct file file;
    struct image *image = NULL;
    if (file_map(&file, path, &err) != OK || codec_decode(file.data, file.size, 0, &image, NULL, &err) != OK)
        fail_msg("%s: %s", path, err.text);
    file_unmap(&file);
    return image;
}

static const char *picture_path(const char *golden_case, const char *name)
{
    picture_need_shared();
    return shared_path("golden/pipeline/%s/%s", golden_case, name);
}

struct image *picture_golden(const char *golden_case, const char *name)
{
    return picture_load(picture_path(golden_case, name));
}

json_t *picture_meta(const char *golden_case)
{
    json_error_t err;
    const char *path = picture_path(golden_case, "meta.json");
    json_t *meta = json_load_file(path, 0, &err);
    if (!meta)
        fail_msg("%s: %s", path, err.text);
    return meta;
}

void picture_matrix(const json_t *meta, const char *key, size_t index, double matrix[6])
{
    const json_t *m = json_array_get(json_object_get(meta, key), index);
    for (size_t i = 0; i < 6; i++) {
        const json_t *v = json_array_get(json_array_get(m, i / 3), i % 3);
        assert_true(json_is_number(v));
        matrix[i] = json_number_value(v);
    }
}

struct image *picture_waves(int width, int height, int channels, int bits)
{
    struct image *image;
    struct error err = ERROR_INIT;
    if (image_create(&image, width, height, channels, bits, false, &err))
        fail_msg("%s", err.text);
    const size_t n = (size_t)width * (size_t)height * (size_t)channels;
    for (size_t i = 0; i < n; i++) {
        const double x = (double)(i / (size_t)channels % (size_t)width),
                     y = (double)(i / (size_t)channels / (size_t)width);
        const double v = 0.5 + 0.3 * sin(x / 23 + (double)(i % (size_t)channels)) * cos(y / 31);
        if (bits == 16)
            ((uint16_t *)image->pixels)[i] = (uint16_t)(v * 65535);
        else
            ((uint8_t *)image->pixels)[i] = (uint8_t)(v * 255);
    }
    return image;
}

unsigned picture_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 16 & 0x7fff;
}

void picture_fill(struct view_u8 view, unsigned seed)
{
    for (int y = 0; y < view.height; y++)
        for (int x = 0; x < view.width; x++)
            for (int c = 0; c < view.channels; c++) {
                double wave = sin(x * 0.13 + c) + cos(y * 0.09 - c) + sin((x + y) * 0.31);
                double v = 128 + 38 * wave + picture_random(&seed) % 21 - 10.;
                view.data[(size_t)y * view.stride + (size_t)(x * view.channels + c)] = (uint8_t)(v < 0     ? 0
                                                                                                 : v > 255 ? 255
                                                                                                           : v);
            }
}

int picture_difference(struct view_u8 a, struct view_u8 b, size_t *differing)
{
    int worst = 0;
    size_t count = 0;
    assert_int_equal(a.width, b.width);
    assert_int_equal(a.height, b.height);
    assert_int_equal(a.channels, b.channels);
    for (int y = 0; y < a.height; y++)
        for (int x = 0; x < a.width * a.channels; x++) {
            int d = abs(a.data[(size_t)y * a.stride + (size_t)x] - b.data[(size_t)y * b.stride + (size_t)x]);
            worst = d > worst ? d : worst;
            count += d != 0;
        }
    if (differing)
        *differing = count;
    return worst;
}
