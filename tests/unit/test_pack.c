/* Packings of params as the device makes them, byte for byte against plain C: every layout, fp32 and fp16, odd channel
 * counts and padding inside, every type of source, in one part and in many. Runs on every usable Vulkan device, under
 * the validation layer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/backend/fault.h"
#include "runtime/vulkan/vk_command.h"
#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_matrix.h"
#include "runtime/vulkan/vk_pack.h"
#include "tests/common/net.h"
#include "tests/common/packing.h"

static struct vk_device *open_device(void)
{
    return (struct vk_device *)net_device(NULL);
}

static void close_device(struct vk_device *device)
{
    struct device *base = &device->base;
    device_close(&base);
}

/* --- what it is ----------------------------------------------------------------------------------------------------
 */

static void read_back(struct vk_device *device, const struct vk_slice *slice, uint8_t *out)
{
    struct error err = ERROR_INIT;
    struct vk_buffer host;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    const VkBufferCopy region = {.srcOffset = slice->offset, .size = slice->range};
    assert_int_equal(vk_memory_create(device, &host, slice->range, MEMORY_READBACK, "a test", &err), OK);
    assert_int_equal(vk_command_begin(device, &commands, &err), OK);
    vkCmdCopyBuffer(commands, slice->buffer->handle, host.handle, 1, &region);
    vk_command_barrier(commands);
    assert_int_equal(vk_command_end(device, commands, &err), OK);
    assert_int_equal(vk_command_run(device, &commands, 1, NULL, &err), OK);
    vk_command_free(device, &commands, 1);
    memcpy(out, host.mapped, slice->range);
    vk_memory_destroy(device, &host);
}

static void check(struct vk_device *device, const struct vk_pack_key *key, const char *what)
{
    struct error err = ERROR_INIT;
    struct vk_slice slice;
    struct packing e = {.key = key, .in = packing_lanes(&key->in), .out = packing_lanes(&key->out)};
    float *values = malloc((key->param->count + 1) * sizeof *values);
    assert_non_null(values);
    param_read(key->param, values);
    assert_int_equal(vk_pack_get(device, key, &slice, &err), OK);
    if (vk_pack_flush(device, &err))
        fail_msg("%s: %s", what, err.text);
    uint8_t *got = malloc(slice.range);
    e.values = values;
    e.bytes = malloc(slice.range);
    assert_true(got && e.bytes);
    read_back(device, &slice, got);
    packing_expect(&e, device);
    assert_int_equal(e.size, slice.range);
    for (size_t i = 0; i < e.size; i++)
        if (got[i] != e.bytes[i])
            fail_msg("%s, fp%d: byte %zu of %zu is %02x and should be %02x", what, key->fp16 ? 16 : 32, i, e.size,
                     got[i], e.bytes[i]);
    vk_pack_forget(&device->base, &key->param, 1);
    free(got);
    free(e.bytes);
    free(e.in);
    free(e.out);
    free(values);
}

/* --- cases ---------------------------------------------------------------------------------------------------------
 */

struct layout_case {
    const char *name;
    enum vk_pack_kind kind;
    int taps, in[4], out[4];
    bool grouped;
};

static const struct layout_case layout_cases[] = {
    {"conv 3x3", PACK_CONV, 9, {5}, {7}, false},
    {"conv 3x3 of segments", PACK_CONV, 9, {6, 3, 4}, {5, 2}, false},
    {"conv 3x3, grouped", PACK_CONV, 9, {20, 8}, {40}, true},
    {"conv 1x1", PACK_CONV, 1, {64}, {3}, false},
    {"matrices 3x3", PACK_MATRIX, 9, {64}, {32}, true},
    {"matrices 3x3, odd", PACK_MATRIX, 9, {3}, {21}, true},
    {"matrices 3x3, in pairs", PACK_MATRIX, 9, {16}, {64}, true},
    {"matrices 1x1 of segments", PACK_MATRIX, 1, {40, 20}, {8, 36}, true},
    {"matrices 2x2 of quads", PACK_MATRIX, 4, {36}, {12}, false},
    {"direct 1x1", PACK_DIRECT, 1, {64}, {256}, true},
    {"direct 1x1 of segments", PACK_DIRECT, 1, {40, 20}, {8, 36}, true},
    {"direct 1x1, odd", PACK_DIRECT, 1, {100}, {3}, true},
    {"direct 3x3 of a picture", PACK_DIRECT, 9, {3}, {64}, true},
    {"direct 7x7 of a picture", PACK_DIRECT, 49, {4}, {20}, true},
    {"direct 3x3", PACK_DIRECT, 9, {32}, {48}, true},
    {"depthwise", PACK_DEPTHWISE, 9, {0}, {13}, false},
    {"depthwise of segments, grouped", PACK_DEPTHWISE, 9, {0}, {9, 40}, true},
    {"linear", PACK_LINEAR, 1, {30}, {18}, false},
    {"linear of a picture, grouped", PACK_LINEAR, 16, {24}, {50}, true},
    {"tensor", PACK_TENSOR, 12, {0}, {10}, false},
    {"tensor, grouped", PACK_TENSOR, 35, {0}, {70}, true},
    {"bias", PACK_TENSOR, 1, {0}, {33}, false},
    {"bias of segments, grouped", PACK_TENSOR, 1, {0}, {64, 3, 16}, true},
    {"one value", PACK_TENSOR, 1, {0}, {1}, true},
};

static int layout_of(const int *segments, bool grouped, struct vk_layout *out)
{
    struct graph *graph;
    struct error err = ERROR_INIT;
    int count = 0;
    *out = (struct vk_layout){0};
    while (count < 4 && segments[count])
        count++;
    if (count == 0)
        return 1;
    assert_int_equal(graph_create(&graph, &err), OK);
    vk_pack_layout(graph, graph_tensor(graph, TENSOR_TEMP, 1, 1, 1, count, segments), grouped, out);
    graph_destroy(&graph);
    return out->channels;
}

/* Numbers of all sizes, with those at which rounding and the range end among them. */
static float number(uint32_t *state, size_t i)
{
    static const float special[] = {0.0f,       -0.0f,      65503.9f,  65504.0f,    65520.0f,   1e30f,    INFINITY,
                                    -INFINITY,  0x1p-14f,   0x1p-15f,  0x1.8p-24f,  0x1p-25f,   -1e-7f,   0x1.ffcp-15f,
                                    0x1.002p0f, 0x1.006p0f, -65519.0f, 0x1.ffep-1f, 0x1.8p-25f, -0x1p-24f};
    *state = *state * 1664525u + 1013904223u;
    if (i % 7 == 3)
        return special[i / 7 % (sizeof special / sizeof special[0])];
    return ldexpf((float)(int32_t)*state / 2147483648.0f, (int)(*state >> 3 & 31) - 20);
}

static struct param *owned_param(size_t count)
{
    struct param *param;
    struct error err = ERROR_INIT;
    uint32_t state = 11;
    assert_int_equal(param_from_values(&param, NULL, count, &err), OK);
    for (size_t i = 0; i < count; i++)
        param->values[i] = number(&state, i);
    return param;
}

static void key_of(const struct layout_case *c, bool fp16, struct vk_pack_key *key, size_t *count)
{
    *key = (struct vk_pack_key){.kind = c->kind, .fp16 = fp16, .taps = c->taps};
    const int in = layout_of(c->in, c->grouped, &key->in), out = layout_of(c->out, c->grouped, &key->out);
    *count = (size_t)in * (size_t)out * (size_t)c->taps;
}

static void check_layouts(struct vk_device *device)
{
    for (size_t i = 0; i < sizeof layout_cases / sizeof layout_cases[0]; i++)
        for (int fp16 = layout_cases[i].kind == PACK_DIRECT; fp16 < 2; fp16++) {
            struct vk_pack_key key;
            size_t count;
            key_of(&layout_cases[i], fp16, &key, &count);
            struct param *param = owned_param(count);
            key.param = param;
            check(device, &key, layout_cases[i].name);
            param_destroy(&param);
        }
}

/* Sums of as many products as a 3×3 convolution of 512 channels has, each number split as shaders/matrix does it: what
 * the three products leave out is below fp32's own rounding; one product alone has fp16's error. */
static void test_split(void **state)
{
    const int count = 4608;
    uint32_t seed = 5;
    double exact = 0, three = 0, one = 0, size = 0;
    (void)state;
    for (int i = 0; i < count; i++) {
        const float a = (float)(number(&seed, 0) > 0 ? 1 : -1) * (float)(seed >> 8) * 0x1p-24f;
        const float b = (float)(number(&seed, 0) > 0 ? 1 : -1) * (float)(seed >> 8) * 0x1p-30f;
        /* the input's split is the same with another factor, which is a power of two, too */
        const double a1 = packing_split_value(packing_split(a, false)),
                     a2 = packing_split_value(packing_split(a, true));
        const double b1 = packing_split_value(packing_split(b, false)),
                     b2 = packing_split_value(packing_split(b, true));
        exact += (double)a * b;
        size += fabs((double)a * b);
        three += a1 * b1 + a1 * b2 + a2 * b1;
        one += a1 * b1;
    }
    print_message("three products: %.2g of the sum of all sizes, one: %.2g\n", fabs(three - exact) / size,
                  fabs(one - exact) / size);
    assert_true(fabs(three - exact) < 0x1p-24 * size);
    assert_true(fabs(one - exact) > 0x1p-20 * size);
}

/* An order of a matrix's elements, and of its columns, that no driver has. */
static void set_order(struct vk_device *device)
{
    for (int i = 0; i < 256; i++)
        device->matrix_order[i] = (uint8_t)(i * 37 + 5);
    for (int i = 0; i < 16; i++)
        device->matrix_column[i] = (uint8_t)((i * 5 + 3) % 16), device->matrix_row[i] = (uint8_t)((i * 11 + 6) % 16);
}

static void test_layouts(void **state)
{
    struct vk_device *device = open_device();
    (void)state;
    set_order(device);
    check_layouts(device);
    close_device(device);
}

/* Channel c of pixel q, of those that a pixel shuffle makes of one, is c * 16 + q before it and lane c of quad q. */
static void test_shuffled(void **state)
{
    struct vk_layout layout, dense;
    uint32_t lanes[64];
    (void)state;
    vk_pack_layout_shuffled(3, 0, 4, &layout);
    vk_pack_layout_dense(48, false, &dense);
    assert_int_equal(layout.channels, 48);
    assert_int_equal(layout.blocks, 16);
    assert_false(vk_pack_layout_same(&layout, &dense));
    vk_pack_lanes(&layout, lanes);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(lanes[i], i % 4 < 3 ? i % 4 * 16 + i / 4 : VK_PACK_NO_CHANNEL);
    vk_pack_layout_shuffled(16, 2, 2, &layout); /* a group of 16 lanes a pixel */
    assert_int_equal(layout.blocks, 16);
    vk_pack_lanes(&layout, lanes);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(lanes[i], i % 16 * 4 + i / 16);
}

/* Through buffers so small that nearly everything goes in parts, and much of it has a part that makes them larger. */
static void test_parts(void **state)
{
    (void)state;
    for (size_t bytes = 64; bytes <= 8192; bytes *= 8) {
        struct vk_device *device = open_device();
        set_order(device);
        device->upload_bytes = bytes;
        check_layouts(device);
        assert_int_equal(atomic_load(&device->account->used), 0);
        close_device(device);
    }
}

/* Element i, which is finite. */
static double packed_number(const uint8_t *got, size_t i, bool fp16)
{
    uint16_t half;
    float single;
    if (!fp16) {
        memcpy(&single, got + i * sizeof single, sizeof single);
        return (double)single;
    }
    memcpy(&half, got + i * sizeof half, sizeof half);
    const int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    const double size = ldexp(exponent ? 0x400 + fraction : fraction, (exponent ? exponent : 1) - 25);
    return half >> 15 ? -size : size;
}

/* A kernel as F(4x4, 3x3) transforms it, or in fp16 F(2x2, 3x3): G k G^T, of Lavin and Gray 2015, in double; to 1e-6 of
 * the largest, or 5e-4. Through buffers large and small. */
static void check_winograd(bool fp16, size_t bytes)
{
    static const double four[6][3] = {{1 / 4.0, 0, 0},
                                      {-1 / 6.0, -1 / 6.0, -1 / 6.0},
                                      {-1 / 6.0, 1 / 6.0, -1 / 6.0},
                                      {1 / 24.0, 1 / 12.0, 1 / 6.0},
                                      {1 / 24.0, -1 / 12.0, 1 / 6.0},
                                      {0, 0, 1}};
    static const double two[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
    static const struct layout_case c = {"Winograd", PACK_WINOGRAD, 9, {6, 3}, {17, 2}, false};
    const double(*transform)[3] = fp16 ? two : four;
    const size_t side = fp16 ? 4 : 6, positions = side * side;
    struct error err = ERROR_INIT;
    struct vk_device *device = open_device();
    struct vk_pack_key key;
    struct vk_slice slice;
    size_t count;
    uint32_t random = 5;
    device->upload_bytes = bytes;
    key_of(&c, fp16, &key, &count);
    struct param *param = owned_param(count);
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        param->values[i] = (float)(int32_t)random / 2147483648.0f;
    }
    key.param = param;
    assert_int_equal(vk_pack_get(device, &key, &slice, &err), OK);
    assert_int_equal(vk_pack_flush(device, &err), OK);
    const size_t lanes = (size_t)key.in.blocks * 4, outs = ((size_t)key.out.blocks + 3) / 4 * 16;
    assert_int_equal(slice.range, outs * lanes * positions * (fp16 ? 2 : 4));
    uint8_t *got = malloc(slice.range);
    uint32_t *in = packing_lanes(&key.in), *out = packing_lanes(&key.out);
    assert_non_null(got);
    read_back(device, &slice, got);
    for (size_t i = 0; i < outs * lanes * positions; i++) {
        const size_t step = i / 16 / (fp16 ? 4 * positions : positions), of = step % (fp16 ? lanes / 4 : lanes);
        const size_t position = i / (fp16 ? 64 : 16) % positions, unit = step / (fp16 ? lanes / 4 : lanes) * 16;
        const size_t lane = fp16 ? of * 4 + i / 4 % 4 : of, to = unit + (fp16 ? i / 16 % 4 * 4 + i % 4 : i % 16);
        double wanted = 0;
        for (size_t tap = 0; tap < 9 && in[lane] != VK_PACK_NO_CHANNEL && out[to] != VK_PACK_NO_CHANNEL; tap++)
            wanted += transform[position / side][tap / 3] * transform[position % side][tap % 3] *
                      (double)param->values[(out[to] * (size_t)key.in.channels + in[lane]) * 9 + tap];
        assert_true(fabs(packed_number(got, i, fp16) - wanted) <= (fp16 ? 5e-4 * 2.25 : 1e-6));
    }
    free(got);
    free(in);
    free(out);
    vk_pack_forget(&device->base, &key.param, 1);
    param_destroy(&param);
    close_device(device);
}

static void test_winograd(void **state)
{
    (void)state;
    for (size_t bytes = 512; bytes <= 1 << 20; bytes *= 2048) {
        check_winograd(false, bytes);
        check_winograd(true, bytes);
    }
}

/* Weights of [20][6][3][3], as a checkpoint has them. */
static void test_sources(void **state)
{
    static const struct {
        const char *name;
        enum weights_dtype dtype;
        size_t size;
        bool shifted, turned, scaled;
    } sources[] = {
        {"fp32", WEIGHTS_F32, 4, false, false, false},
        {"fp32, unaligned", WEIGHTS_F32, 4, true, false, false},
        {"fp16", WEIGHTS_F16, 2, false, false, false},
        {"fp16, unaligned", WEIGHTS_F16, 2, true, false, false},
        {"bf16", WEIGHTS_BF16, 2, false, false, false},
        {"bf16, scaled", WEIGHTS_BF16, 2, true, false, true},
        {"fp32, scaled", WEIGHTS_F32, 4, false, false, true},
        {"fp16, scaled", WEIGHTS_F16, 2, false, false, true},
        {"int8", WEIGHTS_I8, 1, false, false, false},
        {"fp64, scaled", WEIGHTS_F64, 8, false, false, true},
        {"fp32, turned", WEIGHTS_F32, 4, false, true, false},
        {"fp16, turned, scaled", WEIGHTS_F16, 2, false, true, true},
    };
    enum { OUT = 20, IN = 6, TAPS = 9, COUNT = OUT * IN * TAPS };
    struct error err = ERROR_INIT;
    struct vk_device *device = open_device();
    uint8_t *bytes = malloc(COUNT * 8 + 1);
    float scales[OUT];
    assert_non_null(bytes);
    (void)state;
    set_order(device);
    for (int i = 0; i < OUT; i++)
        scales[i] = 0.3f + 0.11f * (float)i;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        uint32_t random = 3;
        struct param *param;
        struct weights_tensor tensor = {.name = "w",
                                        .dtype = sources[i].dtype,
                                        .rank = 4,
                                        .shape = {OUT, IN, 3, 3},
                                        .stride = {IN * TAPS, TAPS, 3, 1},
                                        .count = COUNT,
                                        .data = bytes + sources[i].shifted};
        if (sources[i].turned) { /* stored as [in][out][3][3] */
            tensor.stride[0] = TAPS;
            tensor.stride[1] = OUT * TAPS;
        }
        for (size_t k = 0; k < COUNT; k++) {
            uint8_t *to = bytes + sources[i].shifted + k * sources[i].size;
            const float value = number(&random, k);
            const double wide = (double)value;
            const uint16_t half =
                (uint16_t)(k % 11 ? packing_half(value) : random >> 16); /* infinities and NaN among them */
            const int8_t small = (int8_t)(random >> 24);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            const uint16_t brain = (uint16_t)(bits >> 16);
            memcpy(to,
                   sources[i].dtype == WEIGHTS_F32    ? (const void *)&value
                   : sources[i].dtype == WEIGHTS_F16  ? (const void *)&half
                   : sources[i].dtype == WEIGHTS_BF16 ? (const void *)&brain
                   : sources[i].dtype == WEIGHTS_F64  ? (const void *)&wide
                                                      : (const void *)&small,
                   sources[i].size);
        }
        assert_int_equal(
            param_from_tensor(&param, &tensor, sources[i].scaled ? scales : NULL, sources[i].scaled ? OUT : 0, &err),
            OK);
        enum weights_dtype type;
        const bool raw = sources[i].size != 1 && sources[i].size != 8 && !sources[i].turned;
        assert_ptr_equal(param_raw(param, &type), raw ? tensor.data : NULL);
        for (int matrix = 0; matrix < 2; matrix++)
            for (int fp16 = matrix || sources[i].dtype == WEIGHTS_F16; fp16 < 2; fp16++) {
                struct vk_pack_key key = {
                    .param = param, .kind = matrix ? PACK_MATRIX : PACK_CONV, .fp16 = fp16, .taps = TAPS};
                layout_of((const int[4]){IN}, matrix, &key.in);
                layout_of((const int[4]){OUT}, matrix, &key.out);
                check(device, &key, sources[i].name);
            }
        param_destroy(&param);
    }
    free(bytes);
    close_device(device);
}

/* Many packings at once: through the buffers in turn, with none larger than it was to be. */
static void test_bounded(void **state)
{
    enum { PARAMS = 40, CHANNELS = 64 };
    struct vk_device *device = open_device();
    struct error err = ERROR_INIT;
    struct param *params[PARAMS];
    struct vk_slice slices[PARAMS];
    (void)state;
    device->upload_bytes = 1 << 20; /* a param is half of it */
    for (int i = 0; i < PARAMS; i++) {
        struct vk_pack_key key = {.kind = PACK_CONV, .taps = 36};
        vk_pack_layout_dense(CHANNELS, false, &key.in);
        vk_pack_layout_dense(CHANNELS, false, &key.out);
        key.param = params[i] = owned_param(CHANNELS * CHANNELS * 36);
        assert_int_equal(vk_pack_get(device, &key, &slices[i], &err), OK);
    }
    const uint64_t packed = atomic_load(&device->account->used);
    assert_int_equal(vk_pack_flush(device, &err), OK);
    assert_int_equal(atomic_load(&device->account->used), packed);
    assert_true(atomic_load(&device->account->peak) <= packed + 2 * device->upload_bytes);
    for (int i = 0; i < PARAMS; i++) {
        float first[4]; /* in lane 0 of the first block: a row apart */
        uint8_t *got = malloc(slices[i].range);
        assert_non_null(got);
        read_back(device, &slices[i], got);
        memcpy(first, got, sizeof first);
        for (int lane = 0; lane < 4; lane++)
            assert_memory_equal(&first[lane], &params[i]->values[lane * CHANNELS * 36], sizeof(float));
        free(got);
    }
    for (int i = 0; i < PARAMS; i++) {
        const struct param *param = params[i];
        vk_pack_forget(&device->base, &param, 1);
        param_destroy(&params[i]);
    }
    assert_int_equal(atomic_load(&device->account->used), 0);
    close_device(device);
}

/* What fails is forgotten, and comes when it is asked for again. */
static void test_failures(void **state)
{
    static const char *const faults[] = {"no_memory@alloc:1", "no_memory@alloc:2", "no_memory@alloc:3", "lost@submit:1",
                                         "lost@submit:3"};
    struct param *param = owned_param(64 * 64 * 9);
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct vk_device *device = open_device();
        struct error err = ERROR_INIT;
        struct vk_slice slice;
        struct vk_pack_key key = {.param = param, .kind = PACK_CONV, .taps = 9};
        vk_pack_layout_dense(64, false, &key.in);
        vk_pack_layout_dense(64, false, &key.out);
        device->upload_bytes = 16384;
        assert_int_equal(fault_set(faults[i], &err), OK);
        enum error_code code = vk_pack_get(device, &key, &slice, &err);
        if (code == OK)
            code = vk_pack_flush(device, &err);
        else
            assert_int_equal(vk_pack_flush(device, &(struct error)ERROR_INIT), OK);
        assert_int_equal(code, strstr(faults[i], "lost") ? ERROR_DEVICE_LOST : ERROR_NO_MEMORY);
        assert_int_equal(fault_injected(), 1);
        assert_int_equal(atomic_load(&device->account->used), 0);
        assert_int_equal(fault_set(NULL, &err), OK);
        if (code == ERROR_NO_MEMORY)
            check(device, &key, "after a failure");
        close_device(device);
    }
    param_destroy(&param);
}

static void test_validation_is_silent(void **state)
{
    (void)state;
    assert_int_equal(vk_validation_count(), 0);
}

static int pack_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_split),    cmocka_unit_test(test_shuffled),
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_winograd), cmocka_unit_test(test_sources),
        cmocka_unit_test(test_bounded), cmocka_unit_test(test_failures), cmocka_unit_test(test_validation_is_silent),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}

int main(void)
{
    return net_each_device(pack_run);
}
