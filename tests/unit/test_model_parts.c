/* Networks whose checkpoint lacks one tensor, and what settings and metadata change of a network. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "runtime/base/file.h"
#include "runtime/models/model.h"
#include "tests/common/shared.h"

static void map_fixture(struct file *file, const char *name)
{
    char path[512];
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/%s.safetensors", shared_fixtures(), name);
    if (file_map(file, path, &err))
        fail_msg("%s", err.text);
}

/* Whether the checkpoint opens, and its graph can be built for the shape. */
static enum error_code build(const uint8_t *bytes, size_t size, int side, struct error *err)
{
    struct model *model;
    struct graph *graph;
    const struct session_shape shape = {.n = 1, .h = side, .w = side};
    enum error_code code = model_open_memory(&model, "parts", bytes, size, NULL, err);
    if (code)
        return code;
    code = model_graph(model, &shape, &graph, err);
    if (code == OK)
        graph_destroy(&graph);
    model_close(&model);
    return code;
}

/* The header of a checkpoint in memory, and where it names a tensor. */
static json_t *header_of(const uint8_t *bytes, size_t *length)
{
    memcpy(length, bytes, 8);
    json_t *header = json_loadb((const char *)bytes + 8, *length, 0, NULL);
    assert_non_null(header);
    return header;
}

static uint8_t *name_in(uint8_t *bytes, size_t length, const char *name)
{
    char key[300];
    snprintf(key, sizeof key, "\"%s\"", name);
    uint8_t *at = memmem(bytes + 8, length, key, strlen(key));
    assert_non_null(at);
    return at + 1;
}

static bool among(const char *name, const char *const *parts)
{
    for (; *parts; parts++)
        if (strstr(name, *parts))
            return true;
    return false;
}

/* Every tensor in turn has another name. */
static void each_tensor_is_missed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int side;
        const char *optional[8]; /* parts of the names of those that it may do without */
    } rows[] = {
        {"face_64", 64, {"toRGB", "style_mlp"}},
        {"rrdb_x4", 16, {NULL}},
        {"srvgg_x2", 16, {NULL}},
        {"srvgg_x1", 16, {NULL}},
        {"parser", 32, {"num_batches"}},
        {"detector", 32, {"num_batches"}},
        {"detector_resnet50", 64, {"num_batches"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file file;
        struct error err = ERROR_INIT;
        map_fixture(&file, rows[i].name);
        if (build(file.data, file.size, rows[i].side, &err))
            fail_msg("%s: %s", rows[i].name, err.text);
        uint8_t *bytes = malloc(file.size);
        memcpy(bytes, file.data, file.size);
        size_t length;
        json_t *header = header_of(bytes, &length), *value;
        const char *name;
        json_object_foreach(header, name, value)
        {
            if (strcmp(name, "__metadata__") == 0)
                continue;
            uint8_t *at = name_in(bytes, length, name);
            *at ^= 0x20; /* the first letter becomes large or small */
            error_clear(&err);
            const enum error_code code = build(bytes, file.size, rows[i].side, &err);
            *at ^= 0x20;
            if (code == OK && !among(name, rows[i].optional))
                fail_msg("%s works without %s", rows[i].name, name);
            assert_true(code == OK || strncmp(err.text, "parts: ", 7) == 0);
            const char *shown = name + (strncmp(name, "module.", 7) == 0 ? 7 : 0);
            if (code != OK && code != ERROR_UNSUPPORTED && /* that: it looks like no network then */
                (code != ERROR_CORRUPT || !strstr(err.text, "is missing") || !strstr(err.text, shown)))
                fail_msg("without %s: %s", name, err.text);
        }
        json_decref(header);
        free(bytes);
        file_unmap(&file);
    }
}

static void run_srvgg(const uint8_t *bytes, size_t size, const struct model_settings *settings, float *out)
{
    float in[3 * 8 * 8];
    struct error err = ERROR_INIT;
    struct device *device;
    struct model *model;
    struct session *session;
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++)
        in[i] = (float)(i * 7 % 23) / 23;
    if (device_open(&device, "reference", NULL, &err) ||
        model_open_memory(&model, "srvgg", bytes, size, settings, &err) ||
        model_session(&session, model, device, PRECISION_FP32, &err) ||
        session_run(session, &(struct session_shape){.n = 1, .h = 8, .w = 8}, (const float *[]){in}, (float *[]){out},
                    NULL, &err))
        fail_msg("%s", err.text);
    session_destroy(&session);
    model_forget(model, device);
    model_close(&model);
    device_close(&device);
}

/* Without PReLU's slopes the settings say what stands between the convolutions: the same comes out as with slopes that
 * are all equal to the settings' one. */
static void settings_choose_the_activation(void **state)
{
    (void)state;
    static const char *const slopes[] = {"body.1.weight", "body.3.weight", "body.5.weight"};
    static const struct {
        struct model_settings settings;
        float slope;
    } rows[] = {{{.activation = ACTIVATION_NONE}, 0},
                {{.activation = ACTIVATION_RELU, .activation_slope = 0.3f}, 0},
                {{.activation = ACTIVATION_LEAKY, .activation_slope = 0.3f}, 0.3f},
                {{.activation = ACTIVATION_LEAKY}, 0.1f}};
    static float with[4][3 * 16 * 16], without[4][3 * 16 * 16];
    for (int i = 0; i < 4; i++) {
        struct file file;
        map_fixture(&file, "srvgg_x2");
        uint8_t *bytes = malloc(file.size);
        memcpy(bytes, file.data, file.size);
        size_t length;
        json_t *header = header_of(bytes, &length);
        for (int k = 0; k < 3; k++) {
            const json_t *offsets = json_object_get(json_object_get(header, slopes[k]), "data_offsets");
            const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
                         end = (size_t)json_integer_value(json_array_get(offsets, 1));
            assert_true(end > begin);
            for (size_t at = begin; at < end; at += sizeof(float))
                memcpy(bytes + 8 + length + at, &rows[i].slope, sizeof(float));
        }
        run_srvgg(bytes, file.size, NULL, with[i]);
        for (int k = 0; k < 3; k++)
            *name_in(bytes, length, slopes[k]) ^= 0x20;
        run_srvgg(bytes, file.size, &rows[i].settings, without[i]);
        for (int k = 0; k < 3 * 16 * 16; k++)
            assert_true(with[i][k] == without[i][k]);
        json_decref(header);
        free(bytes);
        file_unmap(&file);
    }
    assert_memory_not_equal(with[1], with[2], sizeof with[1]);
    assert_memory_not_equal(with[2], with[3], sizeof with[2]);
}

/* The largest slope in the pyramid and the backbone of the fixture's network, whose metadata have that activation. */
static float slope_of(const char *name, const char *activation, const struct model_settings *settings)
{
    static const char begin[] = "{\"__metadata__\":{";
    char line[64];
    struct file file;
    struct model *model;
    struct graph *graph = NULL;
    struct error err = ERROR_INIT;
    map_fixture(&file, name);
    snprintf(line, sizeof line, "\"activation\":\"%s\",", activation);
    const size_t added = activation ? strlen(line) : 0, head = 8 + strlen(begin);
    uint8_t *bytes = malloc(file.size + added);
    uint64_t length;
    memcpy(&length, file.data, 8); /* tests run on little-endian machines */
    length += added;
    memcpy(bytes, &length, 8);
    assert_memory_equal(file.data + 8, begin, strlen(begin));
    memcpy(bytes + 8, begin, strlen(begin));
    memcpy(bytes + head, line, added);
    memcpy(bytes + head + added, file.data + head, file.size - head);
    if (model_open_memory(&model, "parts", bytes, file.size + added, settings, &err) ||
        model_graph(model, &(struct session_shape){.n = 1, .h = 64, .w = 64}, &graph, &err))
        fail_msg("%s", err.text);
    float slope = 0;
    for (int i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].kind == OP_CONV2D && graph->nodes[i].args.conv2d.activation == ACTIVATION_LEAKY)
            slope = fmaxf(slope, graph->nodes[i].args.conv2d.slope);
    graph_destroy(&graph);
    model_close(&model);
    free(bytes);
    file_unmap(&file);
    return slope;
}

/* The tensors do not say it; the reference goes by the pyramid's width, here 8 and 72 channels. */
static void metadata_tell_a_detectors_activation(void **state)
{
    (void)state;
    static const struct model_settings slope = {.has_slope = true, .slope = 0.5f};
    assert_true(slope_of("detector", NULL, NULL) == 0.1f);
    assert_true(slope_of("detector", "relu", NULL) == 0);
    assert_true(slope_of("detector_resnet50", NULL, NULL) == 0);
    assert_true(slope_of("detector_resnet50", "leakyrelu:0.25", NULL) == 0.25f);
    assert_true(slope_of("detector_resnet50", "leakyrelu:0.25", &slope) == 0.5f); /* the settings go before */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_is_missed),
        cmocka_unit_test(settings_choose_the_activation),
        cmocka_unit_test(metadata_tell_a_detectors_activation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
