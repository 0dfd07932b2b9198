/* Checkpoints that should open: the shared ones against their goldens, and our own in every form. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/weights/weights.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/npy.h"
#include "tests/common/refuse.h"

static const char *shared_path(char *out, size_t size, const char *name)
{
    const char *folder = getenv("RESTORED_SHARED");
    snprintf(out, size, "%s/%s", folder ? folder : "../shared", name);
    return out;
}

static void need_shared(void)
{
    char path[512];
    FILE *f = fopen(shared_path(path, sizeof path, "models/README.md"), "rb");
    if (!f) {
        printf("skip: no shared checkpoints (%s)\n", path);
        skip();
    }
    fclose(f);
}

static struct weights *open_shared(const char *name)
{
    char path[512], file[256];
    struct error err = ERROR_INIT;
    struct weights *weights;
    snprintf(file, sizeof file, "models/%s", name);
    if (weights_open(&weights, shared_path(path, sizeof path, file), &err) != OK)
        fail_msg("%s", err.text);
    return weights;
}

static float *read_all(const struct weights_tensor *tensor)
{
    float *values = malloc(tensor->count * sizeof *values + 1);
    assert_non_null(values);
    weights_read_f32(tensor, values);
    return values;
}

static void opens_every_shared_file(void **state)
{
    static const struct {
        const char *name, *format;
        size_t count;
    } files[] = {
        {"gfpgan_tiny.pth", "torch-zip", 285},
        {"gfpgan_micro.pth", "torch-zip", 177},
        {"gfpganv1_micro.pth", "torch-zip", 213},
        {"rrdb_x2_tiny.pth", "torch-zip", 72},
        {"rrdb_x4_tiny.pth", "torch-zip", 72},
        {"rrdb_x2_tiny_legacy.pth", "torch-legacy", 72},
        {"rrdb_x2_tiny_fp16.pth", "torch-zip", 72},
        {"rrdb_x2_tiny_bothkeys.pth", "torch-zip", 72},
        {"realesr-animevideov3.pth", "torch-zip", 53},
        {"realesr-animevideov3_fp16.pth", "torch-zip", 53},
        {"upscayl-lite-4x.pth", "torch-zip", 101},
        {"detection_mobilenet0.25_biubug6.pth", "torch-legacy", 300},
        {"detection_mobilenet0.25_anchors.pth", "torch-legacy", 300},
        {"detection_mobilenet0.25_distilled.pth", "torch-zip", 300},
        {"detection_Resnet50_tiny.pth", "torch-zip", 456},
        {"parsing_parsenet_tiny.pth", "torch-zip", 142},
        {"loader_views.pth", "torch-zip", 21},
        {"loader_views_legacy.pth", "torch-legacy", 21},
    };
    (void)state;
    need_shared();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct weights *weights = open_shared(files[i].name);
        assert_int_equal(weights_count(weights), files[i].count);
        assert_string_equal(weights_format(weights), files[i].format);
        for (size_t t = 0; t < weights_count(weights); t++) {
            const struct weights_tensor *tensor = weights_at(weights, t);
            assert_ptr_equal(weights_find(weights, tensor->name), tensor);
            assert_true(strncmp(tensor->name, "module.", 7) != 0);
            free(read_all(tensor));
        }
        assert_null(weights_at(weights, weights_count(weights)));
        assert_null(weights_find(weights, "no such tensor"));
        assert_null(weights_metadata(weights, "format"));
        weights_close(&weights);
        assert_null(weights);
    }
}

static void compare_views(const char *name)
{
    char path[512], key[64];
    shared_path(path, sizeof path, "golden/loader_views.npz");
    struct weights *weights = open_shared(name);
    size_t count = 0;
    for (; npz_key(path, count, key, sizeof key); count++) {
        struct npy golden;
        assert_true(npz_load(path, key, &golden));
        assert_string_equal(golden.dtype, "f4");
        const struct weights_tensor *tensor = weights_find(weights, key);
        if (!tensor)
            fail_msg("%s has no %s", name, key);
        assert_int_equal(tensor->rank, golden.rank);
        for (int i = 0; i < golden.rank; i++)
            assert_int_equal(tensor->shape[i], golden.shape[i]);
        assert_int_equal(tensor->count, golden.count);
        float *values = read_all(tensor);
        if (golden.size > 0)
            assert_memory_equal(values, golden.data, golden.size);
        free(values);
        npy_free(&golden);
    }
    assert_int_equal(count, weights_count(weights));
    weights_close(&weights);
}

static void reads_views_exactly(void **state)
{
    (void)state;
    need_shared();
    compare_views("loader_views.pth");
    compare_views("loader_views_legacy.pth");
}

static void assert_same(const char *first, const char *second)
{
    struct weights *a = open_shared(first), *b = open_shared(second);
    assert_int_equal(weights_count(a), weights_count(b));
    for (size_t i = 0; i < weights_count(a); i++) {
        const struct weights_tensor *x = weights_at(a, i), *y = weights_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->count, y->count);
        float *u = read_all(x), *v = read_all(y);
        assert_memory_equal(u, v, x->count * sizeof *u);
        free(u);
        free(v);
    }
    weights_close(&a);
    weights_close(&b);
}

static void forms_and_wrappers_agree(void **state)
{
    (void)state;
    need_shared();
    assert_same("rrdb_x2_tiny.pth", "rrdb_x2_tiny_legacy.pth");
    assert_same("rrdb_x2_tiny.pth", "rrdb_x2_tiny_bothkeys.pth"); /* its 'params' are wrong on purpose */
}

/* ---- files of our own ---- */
static float numbers[24];
static const struct checkpoint_tensor tensors[] = {
    {"module.conv.weight", 3, {2, 3, 4}, numbers}, {"conv.bias", 1, {5}, numbers + 7}, {"scale", 0, {0}, numbers + 3}};

static void check_own(const struct checkpoint_buffer *file, const char *format)
{
    struct error err = ERROR_INIT;
    struct weights *weights;
    static const char *const names[] = {"conv.weight", "conv.bias", "scale"};
    if (weights_open_memory(&weights, "own", file->data, file->size, &err) != OK)
        fail_msg("%s", err.text);
    assert_string_equal(weights_format(weights), format);
    assert_int_equal(weights_count(weights), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct weights_tensor *tensor = weights_at(weights, i);
        assert_string_equal(tensor->name, names[i]);
        assert_int_equal(tensor->rank, tensors[i].rank);
        float *values = read_all(tensor);
        assert_memory_equal(values, tensors[i].data, tensor->count * sizeof *values);
        free(values);
    }
    weights_close(&weights);
}

static void reads_every_form_and_wrapper(void **state)
{
    static const char *const wrappers[] = {"params_ema", "params-ema", "params",   "state_dict", "model_state_dict",
                                           "model",      "net",        "anything", NULL};
    (void)state;
    for (int i = 0; i < 24; i++)
        numbers[i] = 0.25f * (float)i - 3; /* halves hold them exactly */
    struct checkpoint_buffer file = {0};
    for (enum checkpoint_float type = CHECKPOINT_F32; type <= CHECKPOINT_F16; type++) {
        for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
            file.size = 0;
            checkpoint_torch_zip(&file, tensors, 3, type, wrappers[i]);
            check_own(&file, "torch-zip");
            file.size = 0;
            checkpoint_torch_legacy(&file, tensors, 3, type, wrappers[i]);
            check_own(&file, "torch-legacy");
        }
        file.size = 0;
        checkpoint_safetensors(&file, tensors, 3, type);
        check_own(&file, "safetensors");
    }
    checkpoint_free(&file);
}

static void put_header(struct checkpoint_buffer *file, const char *json)
{
    checkpoint_put_le(file, strlen(json), 8);
    checkpoint_put(file, json, strlen(json));
}

static void converts_every_half(void **state)
{
    (void)state;
    struct checkpoint_buffer file = {0};
    put_header(&file, "{\"h\":{\"dtype\":\"F16\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}");
    for (unsigned bits = 0; bits < 65536; bits++)
        checkpoint_put_le(&file, bits, 2);
    struct error err = ERROR_INIT;
    struct weights *weights;
    assert_int_equal(weights_open_memory(&weights, "halves", file.data, file.size, &err), OK);
    float *values = read_all(weights_at(weights, 0));
    for (unsigned bits = 0; bits < 65536; bits++) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        float v = values[bits];
        assert_int_equal(!!signbit(v), bits >> 15);
        if (exponent == 31 && fraction != 0)
            assert_true(isnan(v));
        else if (exponent == 31)
            assert_true(isinf(v));
        else
            assert_true(fabs(v) == (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24)));
        if (!isnan(v))
            assert_int_equal(checkpoint_half(v), bits);
    }
    free(values);
    weights_close(&weights);
    checkpoint_free(&file);
}

static void gives_metadata(void **state)
{
    (void)state;
    struct checkpoint_buffer file = {0};
    put_header(&file, "{\"__metadata__\":{\"format\":\"pt\",\"scale\":\"4\"},"
                      "\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}  ");
    checkpoint_put(&file, "\x07\xff", 2);
    struct error err = ERROR_INIT;
    struct weights *weights;
    assert_int_equal(weights_open_memory(&weights, "metadata", file.data, file.size, &err), OK);
    assert_string_equal(weights_metadata(weights, "scale"), "4");
    assert_null(weights_metadata(weights, "other"));
    float *values = read_all(weights_at(weights, 0));
    assert_true(values[0] == 7 && values[1] == 255);
    free(values);
    weights_close(&weights);
    checkpoint_free(&file);
}

static void refuses_what_is_no_checkpoint(void **state)
{
    (void)state;
    struct checkpoint_buffer file = {0};
    assert_true(refuse(&file, ERROR_UNSUPPORTED, NULL, "the file is empty"));
    checkpoint_put(&file, "import torch, this is a text", 28);
    assert_true(refuse(&file, ERROR_UNSUPPORTED, NULL, "not a checkpoint"));
    file.size = 0;
    checkpoint_put(&file, "\x80\x06}.", 4); /* there is no such protocol of pickle */
    assert_true(refuse(&file, ERROR_UNSUPPORTED, NULL, "not a checkpoint"));
    checkpoint_free(&file);
    struct error err = ERROR_INIT;
    struct weights *weights;
    assert_int_equal(weights_open(&weights, "no/such/file.pth", &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no/such/file.pth"));
    assert_null(weights);
    error_clear(&err);
    assert_int_equal(weights_open(&weights, "tests", &err), ERROR_IO);
    assert_non_null(strstr(err.text, "tests: "));
}

/* A long path or a name full of control characters leaves the error readable, and its reason in it. */
static void keeps_errors_readable(void **state)
{
    (void)state;
    char path[3000];
    memset(path, 'p', sizeof path);
    snprintf(path + sizeof path - 20, 20, "/end.safetensors");
    struct checkpoint_buffer file = {0}, header = {0};
    static const char tensor[] = "\":{\"dtype\":\"F8\",\"shape\":[],\"data_offsets\":[0,0]}}";
    checkpoint_put(&header, "{\"", 2);
    for (int i = 0; i < 300; i++)
        checkpoint_put(&header, "\\u001b", 6);
    checkpoint_put(&header, tensor, sizeof tensor - 1);
    checkpoint_put_le(&file, header.size, 8);
    checkpoint_put(&file, header.data, header.size);
    struct error err = ERROR_INIT;
    struct weights *weights;
    assert_int_equal(weights_open_memory(&weights, path, file.data, file.size, &err), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "/end.safetensors: ????"));
    assert_non_null(strstr(err.text, ": dtype F8"));
    for (const char *p = err.text; *p; p++)
        assert_true(*p >= 0x20 && *p < 0x7f);
    for (int length = 200; length <= 201; length++) { /* the longest that is shown whole */
        memset(path, 'p', sizeof path);
        path[length] = 0;
        error_clear(&err);
        assert_int_equal(weights_open_memory(&weights, path, file.data, file.size, &err), ERROR_UNSUPPORTED);
        assert_int_equal(strncmp(err.text, length == 200 ? "pppp" : "...p", 4), 0);
    }
    checkpoint_free(&header);
    checkpoint_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_every_shared_file),       cmocka_unit_test(reads_views_exactly),
        cmocka_unit_test(forms_and_wrappers_agree),      cmocka_unit_test(reads_every_form_and_wrapper),
        cmocka_unit_test(converts_every_half),           cmocka_unit_test(gives_metadata),
        cmocka_unit_test(refuses_what_is_no_checkpoint), cmocka_unit_test(keeps_errors_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
