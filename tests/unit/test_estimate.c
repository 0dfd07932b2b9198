/* What estimates make of a picture's size and the options, and of jobs that are done. No network runs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/job/estimate.h"
#include "server/pipeline/background.h"
#include "server/pipeline/repair.h"
#include "server/pipeline/tile.h"

static const struct model_entry
    detector = {.name = "detector", .bytes = 2000000, .info = {.kind = MODEL_DETECTOR}},
    face = {.name = "face", .bytes = 300000000, .info = {.kind = MODEL_FACE, .face_size = 512}},
    parser = {.name = "parser", .bytes = 80000000, .info = {.kind = MODEL_PARSER}},
    upscaler = {.name = "up x2",
                .bytes = 67000000,
                .info = {.kind = MODEL_UPSCALER, .architecture = "RRDBNet", .scale = 2, .unshuffle = 2}};
static const struct device_info cpu = {.id = "cpu", .name = "Processor", .type = DEVICE_CPU, .usable = true},
                                gpu = {.id = "vulkan:0",
                                       .name = "GPU",
                                       .uuid = "1",
                                       .type = DEVICE_DISCRETE,
                                       .usable = true,
                                       .asynchronous = true};

struct asked {
    struct speed_table *table;
    struct restoration *r;
    const struct model_entry *models[ROLE_COUNT];
    struct estimate_request request;
};

static void begin(struct asked *a, int width, int height)
{
    struct error err = ERROR_INIT;
    memset(a, 0, sizeof *a);
    assert_int_equal(speed_open(&a->table, NULL, &err), OK);
    assert_int_equal(restoration_create(&a->r, &err), OK);
    a->r->in_info.width = width;
    a->r->in_info.height = height;
    a->r->in_info.bits = 8;
    a->r->in_info.channels = 3;
    a->r->in_info.format = a->r->output_format = IMAGE_JPEG;
    a->models[ROLE_DETECTOR] = &detector;
    a->models[ROLE_FACE] = &face;
    a->models[ROLE_PARSER] = &parser;
    a->models[ROLE_UPSCALER] = &upscaler;
    a->request = (struct estimate_request){
        .r = a->r, .models = a->models, .device = &cpu, .precision = PRECISION_FP32, .faces = 1};
}

static void end(struct asked *a)
{
    restoration_destroy(&a->r);
    speed_close(&a->table);
}

static struct estimate predict(const struct asked *a)
{
    struct estimate estimate;
    estimate_predict(a->table, &a->request, &estimate);
    assert_true(estimate.low <= estimate.seconds && estimate.seconds <= estimate.high);
    assert_true(estimate.device_seconds <= estimate.seconds);
    return estimate;
}

/* A machine on which each kind of work takes so long; without anything else. */
static double machine(const struct asked *a, double speed)
{
    struct restoration *r = a->r;
    const double megapixels = r->in_info.width * r->in_info.height / 1e6, faces = a->request.faces;
    const double longest = r->in_info.width > r->in_info.height ? r->in_info.width : r->in_info.height;
    const double scale = longest > 2048 ? 2048 / longest : 1;
    memset(r->stage_ms, 0, sizeof r->stage_ms);
    r->stage_ms[STAGE_DECODE] = 10 * megapixels;
    r->stage_ms[STAGE_DETECT] = 300 * speed * megapixels * scale * scale;
    r->stage_ms[STAGE_RESTORE] = 4000 * speed * faces;
    r->stage_ms[STAGE_PARSE] = 3000 * speed * faces;
    r->stage_ms[STAGE_BACKGROUND] = 50000 * speed * megapixels;
    r->stage_ms[STAGE_ENCODE] = 40 * megapixels;
    double ms = 0;
    for (int stage = 0; stage < STAGE_COUNT; stage++)
        ms += r->stage_ms[stage];
    return ms / 1e3;
}

static void size(struct asked *a, double megapixels)
{
    a->r->in_info.width = (int)(megapixels * 1000);
    a->r->in_info.height = 1000;
}

/* From one photo the others follow within a factor of two, from 0.1 to 50 megapixels, with any number of faces. */
static void test_learns(void **state)
{
    (void)state;
    static const double sizes[] = {0.1, 0.5, 2, 12, 50};
    for (int device = 0; device < 2; device++) {
        struct asked a;
        begin(&a, 1000, 1000);
        a.request.device = device ? &gpu : &cpu;
        assert_false(predict(&a).measured);
        for (int faces = 1; faces <= 4; faces++) { /* on a GPU they tell the face's time from the background's */
            a.request.faces = faces % 3;
            machine(&a, device ? 0.01 : 1);
            a.r->stage_ms[STAGE_BACKGROUND] += 5000; /* plans in the making: once */
            a.r->making_ms[STAGE_BACKGROUND] = 5000;
            estimate_learn(a.table, &a.request);
        }
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (a.request.faces = 0; a.request.faces < 3; a.request.faces++) {
                size(&a, sizes[i]);
                const double seconds = machine(&a, device ? 0.01 : 1);
                const struct estimate estimate = predict(&a);
                assert_true(estimate.measured);
                if (estimate.seconds > 2 * seconds || estimate.seconds < seconds / 2)
                    fail_msg("%s, %.1f MP, %d faces: %.3f s of %.3f", a.request.device->id, sizes[i], a.request.faces,
                             estimate.seconds, seconds);
            }
        end(&a);
    }
}

/* What another network will take follows from the speed that one showed. */
static void test_unknown_model(void **state)
{
    (void)state;
    struct asked a;
    struct model_entry other = upscaler;
    begin(&a, 1000, 1000);
    const double before = predict(&a).seconds;
    machine(&a, 100);
    estimate_learn(a.table, &a.request);
    snprintf(other.name, sizeof other.name, "another");
    a.models[ROLE_UPSCALER] = &other;
    const struct estimate estimate = predict(&a);
    assert_false(estimate.measured);
    assert_true(estimate.seconds > 20 * before); /* the machine is slow */
    assert_true(estimate.high / estimate.low > 4);
    a.request.device = &gpu; /* of another device it says nothing */
    a.models[ROLE_UPSCALER] = &upscaler;
    assert_false(predict(&a).measured);
    assert_true(predict(&a).seconds < before);
    end(&a);
}

/* The filler's part is told from the detector's once pictures with different damage were repaired; how much there will
 * be to fill is unknown: from nothing to everything. */
static void test_filler(void **state)
{
    (void)state;
    static const struct model_entry damage = {.name = "damage", .bytes = 3800000, .info = {.kind = MODEL_DAMAGE}},
                                    filler = {.name = "fill", .bytes = 7600000, .info = {.kind = MODEL_FILLER}};
    struct asked a;
    begin(&a, 1000, 1000);
    a.models[ROLE_DAMAGE] = &damage;
    const struct estimate without = predict(&a);
    a.models[ROLE_FILLER] = &filler;
    const struct estimate with = predict(&a);
    assert_true(with.seconds > without.seconds && with.groups[GROUP_REPAIR] > without.groups[GROUP_REPAIR]);
    assert_float_equal(with.low, without.low, 1e-9);
    assert_true(with.high > without.high + (with.seconds - without.seconds));
    /* six columns and rows of windows of 256 px */
    assert_float_equal(repair_fill_most(1000, 1000, &filler.info), 36 * 65536 / 1e6, 1e-9);
    for (int i = 0; i < 12; i++) { /* a second for a megapixel looked at, ten for one that is filled */
        a.r->damage.filled = i % 3 * 0.5;
        machine(&a, 1);
        a.r->stage_ms[STAGE_REPAIR] = 1000 + 10000 * a.r->damage.filled;
        estimate_learn(a.table, &a.request);
    }
    const double repair = 1 + 10 * 0.5; /* half a megapixel on average */
    const struct estimate learned = predict(&a);
    if (learned.groups[GROUP_REPAIR] > 1.3 * repair || learned.groups[GROUP_REPAIR] < repair / 1.3)
        fail_msg("%.3f s of %.3f", learned.groups[GROUP_REPAIR], repair);
    assert_true(learned.measured);
    for (int i = 0; i < 40; i++) { /* from now on nothing is damaged */
        a.r->damage.filled = 0;
        machine(&a, 1);
        a.r->stage_ms[STAGE_REPAIR] = 1000;
        estimate_learn(a.table, &a.request);
    }
    const double whole = predict(&a).groups[GROUP_REPAIR];
    if (whole > 1.3 || whole < 0.8)
        fail_msg("%.3f s of 1", whole);
    end(&a);
}

/* One that went wrong teaches nothing. */
static void test_disturbed(void **state)
{
    (void)state;
    struct asked a;
    begin(&a, 1000, 1000);
    machine(&a, 1);
    a.r->shrinks = 1;
    estimate_learn(a.table, &a.request);
    assert_false(predict(&a).measured);
    a.r->shrinks = 0;
    a.r->fallbacks = 1;
    estimate_learn(a.table, &a.request);
    assert_false(predict(&a).measured);
    end(&a);
}

static void test_options(void **state)
{
    (void)state;
    struct asked a;
    begin(&a, 3000, 2000);
    const struct estimate whole = predict(&a);
    assert_int_equal(whole.width, 6000);
    assert_int_equal(whole.height, 4000);
    assert_true(whole.tiles > 1);
    a.r->options.bg_tile = 0;
    assert_int_equal(predict(&a).tiles, 1);
    assert_true(predict(&a).memory > whole.memory);
    /* the networks, and of each pixel of the one tile so many channels: RRDBNet's dense blocks, and its end at x2 */
    const double weights = 2e6 + 3e8 + 8e7 + 67e6, tile = 6e6 * (6 * 64 / 4 + 2 * 64 * 4) * 4;
    const uint64_t pictures = estimate_picture_bytes(3000, 2000, 3, 8, &a.r->options);
    assert_float_equal((double)(predict(&a).memory - pictures), weights + tile, 1e3);
    static const struct model_entry compact = {
        .name = "srvgg",
        .bytes = 67000000,
        .info = {.kind = MODEL_UPSCALER, .architecture = "SRVGGNetCompact", .scale = 4, .unshuffle = 1}};
    a.models[ROLE_UPSCALER] =
        &compact; /* two tensors of 64 channels, the picture of x4 twice, and rows to be reduced */
    assert_float_equal((double)(predict(&a).memory - pictures),
                       weights + 6e6 * (2 * 64 + 6 * 16) * 4 + 12.0 * (12000 + 6000) * 128, 1e3);
    a.models[ROLE_UPSCALER] = &upscaler;
    a.r->options.bg_tile = 100;
    assert_true(predict(&a).tiles >= 600);
    assert_true(predict(&a).seconds > whole.seconds); /* tiles overlap */
    a.r->options.bg_tile = -1;
    a.request.faces = -1; /* unknown: as with one, from none to several */
    const struct estimate unknown = predict(&a);
    assert_float_equal(unknown.seconds, whole.seconds, 1e-9);
    assert_true(unknown.low < whole.low && unknown.high > whole.high);
    a.models[ROLE_UPSCALER] = NULL;
    assert_true(predict(&a).seconds < whole.seconds);
    assert_int_equal(predict(&a).tiles, 0);
    a.r->detect_only = true;
    assert_int_equal(predict(&a).width, 0);
    end(&a);
}

static uint64_t upscaling(struct asked *a)
{
    const struct restoration *r = a->r;
    a->models[ROLE_FACE] = a->models[ROLE_PARSER] = a->models[ROLE_DETECTOR] = NULL;
    return predict(a).memory - estimate_picture_bytes(r->in_info.width, r->in_info.height, 3, 8, &r->options);
}

/* A wide picture never exists at the network's size: the CPU keeps of overlapping tiles what is still added to, and
 * reduces each tile by itself; a GPU keeps a row of tiles. */
static void test_rows_of_tiles(void **state)
{
    (void)state;
    struct asked a;
    struct model_entry seamless = upscaler;
    seamless.info.exact_tiles = true;
    seamless.info.radius = 32; /* so windows are of the same size */
    int columns, rows, w, h;
    begin(&a, 30000, 1500);
    a.r->options.bg_tile = 512;
    tile_windows(30000, 512, &upscaler.info, &columns, &w);
    tile_windows(1500, 512, &upscaler.info, &rows, &h);
    assert_true(columns > 50 && rows == 3);
    /* px that the outer windows share, the last more because no core is a part of one; bytes of a px at x2, in floats
     */
    const double below = 96, right = 96 + columns * (w - 64) - 30000, px = 12.0 * 2 * 2;
    const struct device_info *const devices[] = {&cpu, &gpu};
    for (int d = 0; d < 2; d++) {
        a.request.device = devices[d];
        a.models[ROLE_UPSCALER] = &upscaler;
        const double sums = d ? px * 30000 * h : px * (30000 * below + right * h);
        a.r->options.upscale = 2; /* the network's own: no rows beside it */
        const uint64_t same = upscaling(&a);
        a.models[ROLE_UPSCALER] = &seamless;
        const uint64_t alone = upscaling(&a);
        assert_true(alone < same);
        assert_true(fabs((double)(same - alone) - sums) < 1e3);
        a.r->options.upscale = 1; /* each tile's rows, what they add to, and rows of the result */
        const double reduced = 12.0 * (w * 2 * (d ? h * 2 : 128) + 30000.0 * h + 30000 * 128);
        assert_true(fabs((double)(upscaling(&a) - alone) - reduced) < 1e5);
        a.r->options.upscale = 3; /* a row of tiles */
        const double enlarged = 12.0 * (60000.0 * h * 2 + 90000 * 128);
        assert_true(fabs((double)(upscaling(&a) - alone) - enlarged) < 1e5);
    }
    a.r->options.bg_tile = 0;
    a.r->options.upscale = 2;
    a.models[ROLE_UPSCALER] = &upscaler;
    const uint64_t whole = upscaling(&a);
    a.models[ROLE_UPSCALER] = &seamless;
    assert_true(upscaling(&a) == whole); /* one tile has no seams */
    end(&a);
}

/* What the result's format costs goes by the result's pixels. */
static void test_formats(void **state)
{
    (void)state;
    double more[2][2];
    for (int large = 0; large < 2; large++) {
        struct asked a;
        begin(&a, 1000, 1000);
        memset(a.models, 0, sizeof a.models);
        a.request.faces = 0;
        size(&a, large ? 4 : 1);
        const double jpeg = predict(&a).seconds;
        a.r->output_format = IMAGE_PNG;
        a.r->options.png_level = 3;
        more[large][0] = predict(&a).seconds - jpeg;
        a.r->options.png_level = 9;
        more[large][1] = predict(&a).seconds - jpeg;
        a.r->output_format = IMAGE_JPEG;
        a.r->options.progressive = true;
        assert_true(predict(&a).seconds > jpeg);
        machine(&a, 1);
        a.r->stage_ms[STAGE_ENCODE] = 1e6;
        estimate_learn(a.table, &a.request);
        assert_true(predict(&a).groups[GROUP_ENCODE] > 100);
        a.r->options.progressive = false; /* which all cores write */
        assert_true(predict(&a).groups[GROUP_ENCODE] < 1);
        end(&a);
        assert_true(more[large][0] > 0 && more[large][1] > 2 * more[large][0]);
    }
    for (int k = 0; k < 2; k++)
        assert_true(fabs(more[1][k] - 4 * more[0][k]) < 1e-9);
}

static void test_bytes(void **state)
{
    (void)state;
    struct options options;
    options_init(&options);
    options.upscale = 2;
    options.ext = FORMAT_PNG;
    assert_true(estimate_picture_bytes(1000, 1000, 3, 8, &options) == 27000000);
    assert_true(estimate_picture_bytes(1000, 1000, 3, 16, &options) == 57000000);
    options.ext = FORMAT_JPEG;
    assert_true(estimate_picture_bytes(1000, 1000, 3, 8, &options) == 19000000);
    options.progressive = true; /* and of 4 MP all coefficients */
    assert_true(estimate_picture_bytes(1000, 1000, 3, 8, &options) == 43000000);
    assert_true(estimate_picture_bytes(4001, 4000, 3, 8, &options) < UINT64_C(400000000)); /* 64 MP stay baseline */
    options.progressive = false;
    assert_true(estimate_picture_bytes(65000, 65000, 3, 8, &options) > UINT64_C(1) << 36);
}

/* Parts count by what they take: ten seconds in all, of which each stage is so much. */
static void test_progress(void **state)
{
    (void)state;
    struct asked a;
    double left;
    begin(&a, 1000, 1000);
    struct restoration *r = a.r;
    const struct estimate estimate = {.seconds = 12,
                                      .faces = 1,
                                      .groups = {[GROUP_DECODE] = 2,
                                                 [GROUP_DETECT] = 1,
                                                 [GROUP_FACES] = 1.5,
                                                 [GROUP_PARSE] = 0.5,
                                                 [GROUP_BACKGROUND] = 6,
                                                 [GROUP_ENCODE] = 1}};
    r->stage = STAGE_DETECT; /* decoded, and just begun on the device */
    r->entered = 1u << STAGE_DECODE | 1u << STAGE_DETECT;
    assert_float_equal(estimate_progress(&estimate, r, 0, &left), 0, 1e-9);
    assert_float_equal(left, 10, 1e-9);
    r->stage = STAGE_RESTORE;
    r->faces_total = 1;
    assert_float_equal(estimate_progress(&estimate, r, 1, &left), 0.1, 1e-9);
    assert_float_equal(left, 9, 1e-9); /* as predicted */
    r->faces_done = 1;
    r->tiles_total = 3;
    r->tiles_done = 1;
    assert_float_equal(estimate_progress(&estimate, r, 10, &left), 0.5, 1e-9);
    assert_float_equal(left, 0.5 * (0.5 * 10 + 10), 1e-9); /* half way between prediction and its own pace */
    r->faces_total = 4;                                    /* more than predicted: 16 seconds in all */
    assert_float_equal(estimate_progress(&estimate, r, 0, &left), (1 + 2 + 2) / 16.0, 1e-9);
    r->faces_total = r->faces_done = 0; /* none: 8 seconds in all */
    assert_float_equal(estimate_progress(&estimate, r, 0, &left), (1 + 2) / 8.0, 1e-9);
    r->entered |= 1u << STAGE_PASTE; /* only encoding is left, whatever was counted */
    assert_float_equal(estimate_progress(&estimate, r, 0, &left), 7 / 8.0, 1e-9);
    assert_true(estimate_progress(&(struct estimate){0}, r, 1, &left) > 0 && left < 0); /* nothing predicted */
    end(&a);
}

/* What a trial found out stands for every network of that device, and of no other, until jobs know better. */
static void test_seed(void **state)
{
    (void)state;
    struct asked a;
    begin(&a, 1000, 1000);
    const double guessed = predict(&a).seconds;
    assert_false(estimate_knows(a.table, &cpu, PRECISION_FP32));
    estimate_seed(a.table, &cpu, PRECISION_FP32, 4, 8); /* two seconds each */
    assert_true(estimate_knows(a.table, &cpu, PRECISION_FP32));
    assert_false(estimate_knows(a.table, &cpu, PRECISION_FP16));
    assert_false(estimate_knows(a.table, &gpu, PRECISION_FP32));
    const struct estimate slow = predict(&a);
    assert_false(slow.measured);
    assert_true(slow.seconds > 20 * guessed);
    estimate_seed(a.table, &gpu, PRECISION_FP32, 4, 0.8);
    a.request.device = &gpu;
    assert_float_equal(predict(&a).device_seconds, slow.device_seconds / 10, 1e-6 * slow.device_seconds);
    a.request.device = &cpu;
    for (int i = 0; i < 12; i++) {
        machine(&a, 0.02);
        estimate_learn(a.table, &a.request);
    }
    const double seconds = machine(&a, 0.02);
    const struct estimate learned = predict(&a);
    assert_true(learned.measured);
    if (learned.seconds > 1.5 * seconds || learned.seconds < seconds / 1.5)
        fail_msg("%.3f s of %.3f", learned.seconds, seconds);
    end(&a);
}

/* A tile as large as the picture is none. */
/* Small tiles overlap, and each of them takes something beside its pixels: they are told to take longer than a few
 * large ones, before any was measured; and what is learned of them does not change what is told of large ones. */
static void test_small_tiles(void **state)
{
    (void)state;
    struct asked a;
    begin(&a, 1500, 1000);
    a.r->options.bg_tile = 500;
    for (int i = 0; i < 3; i++) {
        machine(&a, 1);
        estimate_learn(a.table, &a.request);
    }
    const double large = predict(&a).groups[GROUP_BACKGROUND];
    assert_true(large > 70 && large < 80);
    a.r->options.bg_tile = 32;
    const struct estimate first = predict(&a);
    assert_true(first.tiles > 1000);
    assert_false(first.measured);
    const double pixels = (double)first.tiles * 32 * 32 / 1.5e6; /* at least; a window is larger than its tile */
    assert_true(first.groups[GROUP_BACKGROUND] > 1.2 * pixels * large);
    for (int i = 0; i < 3; i++) {
        machine(&a, 1);
        a.r->stage_ms[STAGE_BACKGROUND] = 900e3;
        estimate_learn(a.table, &a.request);
    }
    const struct estimate small = predict(&a);
    assert_true(small.measured);
    assert_true(small.groups[GROUP_BACKGROUND] > 600 && small.groups[GROUP_BACKGROUND] < 1100);
    a.r->options.bg_tile = 500;
    assert_true(predict(&a).groups[GROUP_BACKGROUND] == large);
    end(&a);
}

static void test_tile(void **state)
{
    (void)state;
    assert_int_equal(background_tile(100, 50, 99, 2, DEVICE_CPU), 99);
    assert_int_equal(background_tile(100, 50, 100, 2, DEVICE_CPU), 0);
    assert_int_equal(background_tile(50, 100, 100, 2, DEVICE_CPU), 0);
    assert_int_equal(background_tile(100, 50, 0, 2, DEVICE_CPU), 0);
    /* strips, so that no more than 12 megapixels in floats leave a device at once */
    assert_int_equal(background_strip(2000, 1500, -1, 2), 0);
    assert_int_equal(background_strip(2000, 1501, -1, 2), 1500);
    assert_int_equal(background_strip(15000, 750, -1, 2), 200);
    assert_int_equal(background_strip(15000, 750, 300, 2), 0);
    assert_int_equal(background_strip(1000000, 750, -1, 4), 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),    cmocka_unit_test(test_unknown_model), cmocka_unit_test(test_filler),
        cmocka_unit_test(test_disturbed), cmocka_unit_test(test_options),       cmocka_unit_test(test_rows_of_tiles),
        cmocka_unit_test(test_formats),   cmocka_unit_test(test_bytes),         cmocka_unit_test(test_progress),
        cmocka_unit_test(test_seed),      cmocka_unit_test(test_tile),          cmocka_unit_test(test_small_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
