/* Checkpoints that name more than any network has: each is refused before it costs memory or time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "runtime/models/model.h"
#include "runtime/weights/weights.h"
#include "tests/common/checkpoint_writer.h"
#include "tests/common/shared.h"

#define MOST 1024

/* A fixture's tensors, of which some get another shape, filled with zeros where that has more elements. */
struct changed {
    struct weights *weights;
    struct checkpoint_tensor tensors[MOST];
    float *values[MOST];
    size_t count;
};

static void load(struct changed *out, const char *fixture)
{
    char path[512];
    struct error err = ERROR_INIT;
    *out = (struct changed){0};
    snprintf(path, sizeof path, "%s/%s.safetensors", shared_fixtures(), fixture);
    if (weights_open(&out->weights, path, &err))
        fail_msg("%s", err.text);
    out->count = weights_count(out->weights);
    assert_true(out->count < MOST);
    for (size_t i = 0; i < out->count; i++) {
        const struct weights_tensor *t = weights_at(out->weights, i);
        out->values[i] = calloc(t->count + 1, sizeof(float));
        assert_non_null(out->values[i]);
        weights_read_f32(t, out->values[i]);
        out->tensors[i] = (struct checkpoint_tensor){t->name, t->rank, {0}, out->values[i]};
        memcpy(out->tensors[i].shape, t->shape, sizeof t->shape);
    }
}

static void reshape(struct changed *c, const char *name, int rank, const uint64_t *shape)
{
    for (size_t i = 0; i < c->count; i++) {
        if (strcmp(c->tensors[i].name, name) != 0)
            continue;
        size_t count = 1;
        for (int k = 0; k < rank; k++) {
            count *= shape[k];
            c->tensors[i].shape[k] = shape[k];
        }
        c->tensors[i].rank = rank;
        free(c->values[i]);
        c->tensors[i].data = c->values[i] = calloc(count + 1, sizeof(float));
        assert_non_null(c->values[i]);
        return;
    }
    fail_msg("%s is not in the fixture", name);
}

static void open_tensors(const struct checkpoint_tensor *tensors, size_t count, enum error_code code, const char *says)
{
    struct checkpoint_buffer file = {0};
    struct model *model;
    struct error err = ERROR_INIT;
    checkpoint_safetensors(&file, tensors, count, CHECKPOINT_F32);
    assert_int_equal(model_open_memory(&model, "hostile", file.data, file.size, NULL, &err), code);
    if (code && !strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
    model_close(&model);
    checkpoint_free(&file);
}

static void open_changed(struct changed *c, enum error_code code, const char *says)
{
    open_tensors(c->tensors, c->count, code, says);
    for (size_t i = 0; i < c->count; i++)
        free(c->values[i]);
    weights_close(&c->weights);
}

static void test_as_it_is(void **state)
{
    struct changed c;
    (void)state;
    load(&c, "face_64");
    open_changed(&c, OK, "");
}

static long resident_kib(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* An empty tensor may name any extent: nothing follows from those. */
static void test_empty_tensor(void **state)
{
    static const char name[] = "stylegan_decoder.style_conv1.modulated_conv.weight";
    struct changed c;
    (void)state;
    const long before = resident_kib();
    load(&c, "face_64");
    reshape(&c, name, 5, (const uint64_t[]){1, 1 << 24, 16, 0, 0});
    open_changed(&c, ERROR_CORRUPT, name);
    assert_true(resident_kib() - before < 256 * 1024); /* it was 1 GiB of floats, and of their sums */
}

/* Either extent alone is enough for the layer to be missing. */
static void test_empty_layer(void **state)
{
    static const uint64_t shapes[][5] = {{1, 0, 16, 3, 3}, {1, 16, 0, 3, 3}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct changed c;
        load(&c, "face_64");
        reshape(&c, "stylegan_decoder.style_conv1.modulated_conv.weight", 5, shapes[i]);
        open_changed(&c, ERROR_CORRUPT, "tensor stylegan_decoder.style_conv1.modulated_conv.weight is empty");
    }
}

static void test_classes(void **state)
{
    struct changed c;
    (void)state;
    load(&c, "parser");
    uint64_t in = 0;
    for (size_t i = 0; i < c.count; i++)
        if (strcmp(c.tensors[i].name, "out_mask_conv.conv2d.weight") == 0)
            in = c.tensors[i].shape[1];
    reshape(&c, "out_mask_conv.conv2d.weight", 4, (const uint64_t[]){257, in, 3, 3});
    reshape(&c, "out_mask_conv.conv2d.bias", 1, (const uint64_t[]){257});
    open_changed(&c, ERROR_UNSUPPORTED, "a face parser of 257 classes; at most 256");
    load(&c, "parser");
    reshape(&c, "out_mask_conv.conv2d.weight", 4, (const uint64_t[]){256, in, 3, 3});
    reshape(&c, "out_mask_conv.conv2d.bias", 1, (const uint64_t[]){256});
    open_changed(&c, OK, "");
}

/* A block is missing: the fault is the file's, not the request's. */
static void test_missing_block(void **state)
{
    struct changed c;
    (void)state;
    load(&c, "parser");
    for (size_t i = 0; i < c.count; i++)
        if (strcmp(c.tensors[i].name, "decoder.1.conv1.conv2d.weight") == 0)
            c.tensors[i].name = "other";
    open_changed(&c, ERROR_CORRUPT, "tensor decoder.1.conv1.conv2d.weight is missing");
}

/* SRVGGs of that many convolutions of 3 to `channels` to 3 channels. */
static void open_chain(size_t count, uint64_t channels, enum error_code code, const char *says)
{
    struct checkpoint_tensor *tensors = calloc(2 * count, sizeof *tensors);
    char(*names)[2][32] = calloc(count, sizeof *names);
    float *zeros = calloc(9 * 3 * channels, sizeof(float));
    assert_true(tensors && names && zeros);
    for (size_t i = 0; i < count; i++) {
        const uint64_t out = i % 2 || i == count - 1 ? 3 : channels, in = i % 2 ? channels : 3;
        snprintf(names[i][0], sizeof names[i][0], "body.%zu.weight", 2 * i);
        snprintf(names[i][1], sizeof names[i][1], "body.%zu.bias", 2 * i);
        tensors[2 * i] = (struct checkpoint_tensor){names[i][0], 4, {out, in, 3, 3}, zeros};
        tensors[2 * i + 1] = (struct checkpoint_tensor){names[i][1], 1, {out}, zeros};
    }
    open_tensors(tensors, 2 * count, code, says);
    free(tensors);
    free(names);
    free(zeros);
}

static void test_layers(void **state)
{
    (void)state;
    open_chain(4000, 3, OK, "");
    open_chain(8192, 3, ERROR_TOO_LARGE, "header"); /* which ends before the layers do (GRAPH_MAX_NODES) */
    open_chain(2, 65536, OK, "");
    open_chain(2, 65537, ERROR_TOO_LARGE, "a layer of 65537 channels, at most 65536");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_it_is), cmocka_unit_test(test_empty_tensor),  cmocka_unit_test(test_empty_layer),
        cmocka_unit_test(test_classes),  cmocka_unit_test(test_missing_block), cmocka_unit_test(test_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
