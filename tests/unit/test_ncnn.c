/* ncnn's files that are not what they should be: each is refused, and the text names the layer or the line. What is
 * read is compared with PyTorch in tests/golden/test_families.c. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "runtime/models/model.h"
#include "runtime/weights/ncnn.h"

#define NCNN_FILE "tests/golden/families/ncnn_rrdbnet_x4"
#define NCNN_CHAIN "tests/golden/families/ncnn_srvgg_x4"
#define NCNN_CUGAN "tests/golden/families/ncnn_cugan_x2"

struct pair {
    char *param;
    struct file bin;
    uint8_t *bytes;
    size_t size;
};

/* The file with the first `from` behind `after` (NULL: of all) replaced by `to`. */
static struct pair load(const char *stem, const char *after, const char *from, const char *to)
{
    struct pair p = {0};
    struct file param;
    struct error err = ERROR_INIT;
    char path[256];
    snprintf(path, sizeof path, "%s.param", stem);
    assert_int_equal(file_map(&param, path, &err), OK);
    p.param = calloc(1, param.size + strlen(to) + 64);
    assert_non_null(p.param);
    memcpy(p.param, param.data, param.size);
    file_unmap(&param);
    char *at = after ? strstr(p.param, after) : p.param;
    at = at && *from ? strstr(at, from) : at;
    assert_non_null(at);
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    memcpy(at, to, strlen(to));
    snprintf(path, sizeof path, "%s.bin", stem);
    assert_int_equal(file_map(&p.bin, path, &err), OK);
    p.size = p.bin.size;
    p.bytes = malloc(p.size + 4);
    assert_non_null(p.bytes);
    memcpy(p.bytes, p.bin.data, p.size);
    return p;
}

static void check_read(struct pair *p, enum error_code wanted, const char *why)
{
    struct error err = ERROR_INIT;
    struct catalogue catalogue = {.file = "mine.param", .data = p->bytes, .size = p->size};
    assert_int_equal(arena_create(&catalogue.arena, &err), OK);
    const enum error_code code = ncnn_read(&catalogue, p->param, strlen(p->param), &err);
    if (code != wanted || !strstr(err.text, why))
        fail_msg("%d: \"%s\" is not %d with \"%s\"", code, err.text, wanted, why);
    arena_destroy(&catalogue.arena);
    file_unmap(&p->bin);
    free(p->bytes);
    free(p->param);
}

static void test_graphs(void **state)
{
    (void)state;
    static const struct {
        const char *stem, *after, *from, *to;
        enum error_code code;
        const char *why;
    } cases[] = {
        {NCNN_FILE, NULL, "", "", OK, ""},
        {NCNN_FILE, "Eltwise", "2,2.000000e-01", "2,3.000000e-01", ERROR_UNSUPPORTED, "Convolution_"},
        {NCNN_FILE, "Concat_", "Concat ", "Softmax ", ERROR_UNSUPPORTED, "Softmax Concat_"},
        {NCNN_FILE, "Convolution", "1=3", "1=5", ERROR_UNSUPPORTED, "Convolution Convolution_1: a layer that neither"},
        {NCNN_FILE, "Convolution", "4=1", "4=0", ERROR_UNSUPPORTED, "Convolution_1"},
        {NCNN_FILE, "Convolution", "5=1", "5=0", ERROR_UNSUPPORTED, "Convolution_1"},
        {NCNN_FILE, "Convolution", "9=2 -23310=1,2", "9=2 -23310=1,3", ERROR_UNSUPPORTED,
         "reads something else, than RRDBNet or SRVGG"},
        {NCNN_FILE, "Convolution", "9=2", "9=5", ERROR_UNSUPPORTED, "Convolution_2"},
        {NCNN_FILE, "Interp", "1=2.0", "1=3.0", ERROR_UNSUPPORTED, "Interp_"},
        {NCNN_FILE, "Convolution", "6=108", "6=107", ERROR_CORRUPT, "do not fit each other"},
        {NCNN_FILE, "Convolution", " data", " nowhere", ERROR_CORRUPT, "reads what no layer before it gives"},
        {NCNN_FILE, NULL, "7767517\n", "7767517\n0 ", ERROR_CORRUPT, "line 2: not the numbers of layers and blobs"},
        {NCNN_FILE, NULL, "7767517\n", "7767517\n9999", ERROR_CORRUPT, "line 2"},
        {NCNN_FILE, "Convolution", " 0=4", " 99=4", ERROR_CORRUPT, "line 4: not KEY=VALUE"},
        {NCNN_FILE, "Convolution", " 0=4", " zero", ERROR_CORRUPT, "not KEY=VALUE"},
        {NCNN_FILE, "Convolution", " 0=4", " 0=nan", ERROR_CORRUPT, "do not fit each other"},
        {NCNN_FILE, "Convolution_1 ", " 1 1 ", " 99 1 ", ERROR_TOO_LARGE, "more than 16 inputs or outputs"},
        {NCNN_CHAIN, NULL, "", "", OK, ""},
        {NCNN_CHAIN, "PixelShuffle_", "0=4", "0=2", ERROR_UNSUPPORTED, "nearly SRVGGNetCompact"},
        {NCNN_CHAIN, "Interp_", "1=4.0", "1=2.0", ERROR_UNSUPPORTED, "Interp_"},
        {NCNN_CHAIN, "PReLU", "0=4", "0=0", ERROR_CORRUPT, "PReLU PReLU_2: its number"},
        {NCNN_CUGAN, NULL, "", "", OK, ""},
        {NCNN_CUGAN, "Pooling", "b6 0=1", "b6x 0=1", ERROR_CORRUPT, "InnerProduct InnerProduct_7: reads what no layer"},
        {NCNN_CUGAN, "Pooling", "0=1", "0=0", ERROR_UNSUPPORTED, "Pooling Pooling_6: a layer that neither"},
        {NCNN_CUGAN, "Pooling", "4=1", "4=0", ERROR_UNSUPPORTED, "Pooling Pooling_6: a layer that neither"},
        {NCNN_CUGAN, "Convolution_4 ", " b4 ", " b4x ", ERROR_CORRUPT,
         "Convolution Convolution_5: reads what no layer"},
        {NCNN_CUGAN, "Convolution_5 ", "0=4", "0=8", ERROR_CORRUPT, "Convolution Convolution_5: its numbers of inputs"},
        {NCNN_CUGAN, "Deconvolution_11 ", "6=64", "6=128", ERROR_CORRUPT,
         "Deconvolution Deconvolution_11: its numbers"},
        {NCNN_CUGAN, "InnerProduct_8 ", "2=4", "2=5", ERROR_CORRUPT, "InnerProduct InnerProduct_8: its numbers of"},
        {NCNN_CUGAN, "InnerProduct_8 ", "9=4", "9=1", ERROR_UNSUPPORTED, "Deconvolution Deconvolution_11: is another"},
        {NCNN_CUGAN, "BinaryOp_9 ", "b5_split_0", "b7", ERROR_UNSUPPORTED, "BinaryOp BinaryOp_9: a layer that neither"},
        {NCNN_CUGAN, "BinaryOp_9 ", "0=2", "0=0", ERROR_UNSUPPORTED, "Deconvolution Deconvolution_11: is another"},
        {NCNN_CUGAN, "Crop_10 ", "=2,4,4", "=2,5,5", ERROR_UNSUPPORTED, "Crop Crop_10: a layer that neither"},
        {NCNN_CUGAN, "Crop_10 ", "b2_split_0", "b2_split_9", ERROR_CORRUPT, "Crop Crop_10: reads what no layer"},
        {NCNN_CUGAN, "Crop_10 ", "2,4,4 -23310=2,-4,-4", "2,6,6 -23310=2,-6,-6", ERROR_UNSUPPORTED,
         "Convolution_13: is"},
        {NCNN_CUGAN, "Crop_40 ", "b16_split_0", "b35_split_0", ERROR_UNSUPPORTED, "Convolution Convolution_43: is"},
        {NCNN_CUGAN, "Deconvolution_14 ", "4=3", "4=2", ERROR_UNSUPPORTED, "Deconvolution Deconvolution_14: a layer"},
        {NCNN_CUGAN, "Deconvolution_14 ", "5=1", "5=1 18=1", ERROR_UNSUPPORTED,
         "Deconvolution Deconvolution_14: a layer"},
        {NCNN_CUGAN, "Convolution_43 ", "1,1.0", "1,2.0", ERROR_UNSUPPORTED, "Convolution Convolution_45: is another"},
        {NCNN_CUGAN, "BinaryOp_46 ", " b44", " b45", ERROR_UNSUPPORTED, "BinaryOp BinaryOp_46: nearly Real-CUGAN"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair p = load(cases[i].stem, cases[i].after, cases[i].from, cases[i].to);
        check_read(&p, cases[i].code, cases[i].why);
    }
}

static void test_weights(void **state)
{
    (void)state;
    struct pair p = load(NCNN_FILE, NULL, "", "");
    p.size -= 4;
    check_read(&p, ERROR_CORRUPT, "the .bin ends before its weights do");
    p = load(NCNN_FILE, NULL, "", "");
    memset(p.bytes + p.size, 0, 4);
    p.size += 4;
    check_read(&p, ERROR_CORRUPT, "more bytes than the .param's layers take");
    p = load(NCNN_FILE, NULL, "", "");
    memcpy(p.bytes, "\x38\x4b\x0d", 4);
    check_read(&p, ERROR_UNSUPPORTED, "Convolution Convolution_1: its weights are int8");
    p = load(NCNN_FILE, NULL, "", "");
    memcpy(p.bytes, "\x01\x02\x03", 4);
    check_read(&p, ERROR_UNSUPPORTED, "stored in a way that is not known");
}

/* The same tensors as in a checkpoint, whose transposed convolutions are stored in another order. */
static void test_cugan(void **state)
{
    (void)state;
    static const char *const names[] = {"cugan_x2", "cugan_x4", "cugan_x2_nose"};
    for (size_t f = 0; f < 3; f++) {
        struct error err = ERROR_INIT;
        struct weights *ours, *theirs;
        char path[128];
        snprintf(path, sizeof path, "tests/golden/families/ncnn_%s.param", names[f]);
        assert_int_equal(weights_open(&ours, path, &err), OK);
        snprintf(path, sizeof path, "tests/golden/families/%s.safetensors", names[f]);
        assert_int_equal(weights_open(&theirs, path, &err), OK);
        assert_int_equal(weights_count(ours), weights_count(theirs) - 2); /* golden.in, golden.out */
        for (size_t i = 0; i < weights_count(ours); i++) {
            const struct weights_tensor *a = weights_at(ours, i), *b = weights_find(theirs, a->name);
            if (!b || a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) != 0)
                fail_msg("%s is not what %s has", a->name, path);
            float values[2][4096];
            assert_true(a->count <= 4096);
            weights_read_f32(a, values[0]);
            weights_read_f32(b, values[1]);
            if (memcmp(values[0], values[1], a->count * sizeof(float)) != 0)
                fail_msg("%s has other values than in %s", a->name, path);
        }
        weights_close(&ours);
        weights_close(&theirs);
    }
}

/* The .bin is looked for beside the .param, and told when it is not there. */
static void test_beside(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct file param;
    struct weights *weights;
    char bin[64];
    assert_false(weights_bin_path(bin, sizeof bin, "a.pth"));
    assert_false(weights_bin_path(bin, sizeof bin, ".param"));
    assert_true(weights_bin_path(bin, sizeof bin, "x/a.b.PARAM"));
    assert_string_equal(bin, "x/a.b.bin");
    assert_int_equal(file_map(&param, NCNN_FILE ".param", &err), OK);
    assert_int_equal(weights_open_memory(&weights, "mine", param.data, param.size, &err), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "NAME.bin beside NAME.param"));
    char path[] = "/tmp/restored-ncnn-XXXXXX.param";
    const int fd = mkstemps(path, 6);
    assert_true(fd >= 0);
    assert_int_equal(file_write(path, param.data, param.size, &err), OK);
    err = (struct error)ERROR_INIT;
    assert_int_equal(weights_open(&weights, path, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "its weights are read from the .bin beside it"));
    remove(path);
    file_unmap(&param);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_graphs), cmocka_unit_test(test_weights),
                                       cmocka_unit_test(test_cugan), cmocka_unit_test(test_beside)};
    return cmocka_run_group_tests_name("ncnn", tests, NULL, NULL);
}
