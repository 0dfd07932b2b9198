/* Runs of pictures on every device: what windows, ranges, targets, canvases and labels mean, against formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/run_case.h"

enum { PW = 37, PH = 29, STRIDE = 3 * PW + 5 }; /* a picture whose rows begin anywhere */

/* Two windows of one picture, one of them beyond its edge, to 8 bit, to floats, and only a part of it. */
static void test_windows(void)
{
    enum { W = 19, H = 15 };
    static uint8_t picture[PH * STRIDE], bytes[2][H][W + 3][3], part[5][7 * 3 + 1];
    static float floats[2][H][W][3], planes[2][3][H][W];
    int columns[2][W], rows[2][H];
    struct raster_source sources[2];
    struct raster_target targets[2][3];
    struct run_image images[2];
    struct run_net net;
    run_fill(picture, sizeof picture, 1);
    for (int i = 0; i < 2; i++) {
        for (int x = 0; x < W; x++)
            columns[i][x] = i == 0 ? 3 + x : abs(PW - 1 - abs(PW - 1 - (PW - 8 + x))); /* mirrored */
        for (int y = 0; y < H; y++)
            rows[i][y] = i == 0 ? 11 + y : abs(y - 4);
        sources[i] = (struct raster_source){RASTER_U8, picture, STRIDE, columns[i], rows[i], 0, 0, 0};
        targets[i][0] = (struct raster_target){.form = RASTER_U8, bytes[i], sizeof bytes[i][0], 0, 0, W, H};
        targets[i][1] = (struct raster_target){.form = RASTER_F32, floats[i], sizeof floats[i][0], 0, 0, W, H};
        targets[i][2] = (struct raster_target){.form = RASTER_U8, part, sizeof part[0], 9, 6, 7, 5};
        images[i] = (struct run_image){.targets = targets[i], .target_count = i == 0 ? 3 : 2};
    }
    const struct raster_range *const ranges[] = {&run_unit_range, &run_face_range, &run_blue_range};
    for (int k = 0; k < 3; k++) {
        const struct raster_range *range = ranges[k];
        const struct run_input input = {.images = sources};
        const struct run_output output = {.planes = planes[0][0][0], .images = images};
        memset(bytes, 7, sizeof bytes);
        memset(part, 7, sizeof part);
        run_net_same(&net, 2, H, W, 2);
        run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = range});
        const struct run_result result = run_await(&net);
        assert_true(result.finite && result.flat == 0);
        for (int i = 0; i < 2; i++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++)
                    for (int c = 0; c < 3; c++) {
                        const int tensor = range->bgr ? 2 - c : c;
                        const double p = picture[rows[i][y] * STRIDE + 3 * columns[i][x] + c];
                        const double v = (p / range->unit - range->mean[tensor]) / range->deviation;
                        assert_int_equal(bytes[i][y][x][c], p);
                        assert_true(fabs(floats[i][y][x][c] - p) <= run_allowed());
                        assert_true(fabs(planes[i][tensor][y][x] - v) * range->unit * range->deviation <=
                                    run_allowed());
                        if (i == 0 && x >= 9 && x < 16 && y >= 6 && y < 11)
                            assert_int_equal(part[y - 6][3 * (x - 9) + c], p);
                    }
        for (int y = 0; y < H; y++) /* what lies beside a target is not touched */
            for (int i = 0; i < 9; i++)
                assert_int_equal(((uint8_t *)bytes[0][y][W])[i], 7);
        for (int y = 0; y < 5; y++)
            assert_int_equal(part[y][21], 7);
        run_net_destroy(&net);
    }
}

/* Of the pixels of `length`, the mean of those that pixel `at` of `count` touches, which they are reduced to. */
static double reduced(const uint8_t *picture, int stride, const int length[2], const int count[2], const int at[2],
                      int channel)
{
    double sum = 0;
    int pixels = 0;
    for (int y = 0; y < length[0]; y++)
        for (int x = 0; x < length[1]; x++)
            if ((y + 1) * count[0] > at[0] * length[0] && y * count[0] < (at[0] + 1) * length[0] &&
                (x + 1) * count[1] > at[1] * length[1] && x * count[1] < (at[1] + 1) * length[1]) {
                sum += picture[y * stride + 3 * x + channel];
                pixels++;
            }
    return sum / pixels;
}

/* A picture beside itself, reduced: where the first input has all of it, with its edge repeated, or a part. */
static void test_reduced(void)
{
    enum { MOST = 1100, BYTES = 3 * MOST * 3, VALUES = 3 * 12 * 300 };
    static const struct {
        int length[2], count[2]; /* height and width: of the picture, of what it becomes */
    } sizes[] = {{{29, 37}, {7, 11}},   {{1, 300}, {1, 256}}, {{12, 20}, {12, 20}}, {{17, 23}, {1, 1}},
                 {{3, MOST}, {2, 256}}, {{300, 1}, {12, 1}},  {{5, 3}, {7, 8}},     {{3, 700}, {1, 300}}};
    static uint8_t picture[BYTES + 2000];
    static float first[3 * 400 * (MOST + 8)], second[VALUES];
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof sizes[0]; k++) {
        const int *length = sizes[k / 2].length, *count = sizes[k / 2].count, stride = 3 * length[1] + 2;
        const int h = length[0] + (k % 2 ? -length[0] / 2 : 3), w = length[1] + (k % 2 ? 0 : 5);
        int columns[MOST + 8], rows[MOST + 8];
        const struct raster_range *range = k % 3 ? &run_face_range : &run_blue_range;
        const double step = (double)range->unit * (double)range->deviation;
        struct run_net net;
        run_fill(picture, sizeof picture, 3 + (uint32_t)k);
        assert_true((size_t)(stride * length[0]) <= sizeof picture && 3 * count[0] * count[1] <= VALUES);
        for (int i = 0; i < w || i < h; i++) {
            columns[i] = i < length[1] ? i : length[1] - 1;
            rows[i] = i < length[0] ? i : length[0] - 1;
        }
        const struct raster_source whole = {RASTER_U8, picture, (size_t)stride, columns, rows, 0, 0, 0},
                                   small = {RASTER_U8, picture, (size_t)stride, NULL, NULL, length[1], length[0], 0};
        const struct run_input inputs[2] = {{.images = &whole}, {.images = &small}};
        const struct run_output outputs[2] = {{.planes = first}, {.planes = second}};
        run_net_pair(&net, (const int[2]){h, w}, count);
        run_submit(&net, &(struct run_io){.inputs = inputs, .outputs = outputs, .range = range});
        run_await(&net);
        for (int c = 0; c < 3; c++) {
            const int from = range->bgr ? 2 - c : c;
            for (int y = 0; y < h; y++)
                for (int x = 0; x < w; x++) {
                    const double v = (picture[rows[y] * stride + 3 * columns[x] + from] / (double)range->unit -
                                      (double)range->mean[c]) /
                                     (double)range->deviation;
                    assert_true(fabs((double)first[(c * h + y) * w + x] - v) * step <= run_allowed());
                }
            for (int y = 0; y < count[0]; y++)
                for (int x = 0; x < count[1]; x++) {
                    const double p = reduced(picture, stride, length, count, (const int[2]){y, x}, from),
                                 v = (p / (double)range->unit - (double)range->mean[c]) / (double)range->deviation,
                                 got = (double)second[(c * count[0] + y) * count[1] + x];
                    assert_true(fabs(got - v) * step <= run_allowed());
                }
        }
        run_net_destroy(&net);
    }
}

/* What cannot be reduced is refused on every device. */
static void test_not_reduced(void)
{
    static uint8_t pixel[3];
    const int lists[4] = {0};
    const struct raster_source wrong[] = {{RASTER_U8, pixel, 3, lists, NULL, 1, 1, 0},
                                          {RASTER_U8, pixel, 3, NULL, lists, 1, 1, 0},
                                          {RASTER_F32, pixel, 3, NULL, NULL, 1, 1, 0},
                                          {RASTER_U8, pixel, 3, NULL, NULL, 1, 0, 0},
                                          {RASTER_U8, pixel, 3, NULL, NULL, 0, 1, 0},
                                          {RASTER_U8, pixel, 3, NULL, NULL, RASTER_REDUCED + 1, 1, 0},
                                          {RASTER_U8, pixel, 3, NULL, NULL, 60000, 60000, 0},
                                          {RASTER_U8, pixel, 3, NULL, NULL, 1, RASTER_REDUCED + 1, 0}};
    struct run_net net;
    run_net_same(&net, 1, 4, 4, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        float planes[3 * 4 * 4];
        struct error err = ERROR_INIT;
        const struct run_input input = {.images = &wrong[i]};
        const struct run_output output = {.planes = planes};
        const struct run_io run = {.inputs = &input, .outputs = &output, .range = &run_unit_range};
        assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_INTERNAL);
        assert_string_equal(err.text, "input 0 cannot be reduced");
    }
    run_net_destroy(&net);
}

/* Runs of two nets that get the same picture by its number; its bytes change without a new one, which nobody may do, to
 * see who has which: software Vulkan has the earlier ones as long as they are in the other's memory. */
static void test_numbers(void)
{
    enum { W = 40, H = 24, VALUES = 3 * W * H };
    static uint8_t picture[4][H][W][3], bytes[H][W][3];
    static float planes[VALUES], busy[3 * 64 * 64];
    struct device_info info;
    struct run_net first, second, slow;
    device_info(run_device, &info);
    const bool keeps = info.type == DEVICE_SOFTWARE, may = info.asynchronous;
    run_fill(picture[0][0][0], sizeof picture, 77);
    run_net_same(&first, 1, H, W, 1);
    run_net_same(&second, 1, H, W + 8, 1); /* its edge is repeated */
    run_net_same(&slow, 1, 64, 64, 20);
    int columns[W + 8];
    for (int i = 0; i < W + 8; i++)
        columns[i] = i < W ? i : W - 1;
    struct raster_source source = {RASTER_U8, bytes, sizeof bytes[0], NULL, NULL, 0, 0, 0}, wide = source;
    wide.columns = columns;
    const struct run_input input = {.images = &source}, other = {.images = &wide}, plane = {.planes = busy};
    static float out[3 * H * (W + 8)];
    const struct run_output output = {.planes = planes}, wide_output = {.planes = out}, slow_output = {.planes = busy};
    const struct run_io run = {.inputs = &input, .outputs = &output, .range = &run_unit_range},
                        again = {.inputs = &other, .outputs = &wide_output, .range = &run_unit_range},
                        before = {.inputs = &plane, .outputs = &slow_output};
    for (int way = 0; way < 6; way++) {
        source.number = 100 + (uint64_t)way;
        wide.number = way == 1 ? 99 : way == 2 ? 0 : source.number; /* 1, 2: another, none */
        memcpy(bytes, picture[0], sizeof bytes);
        run_submit(&first, &run);
        run_await(&first);
        if (way == 3) { /* its memory has another one now */
            source.number = 200;
            run_submit(&first, &run);
            run_await(&first);
        }
        memcpy(bytes, picture[1], sizeof bytes);
        run_submit(&slow, &before);
        run_submit(&second, &again);
        memcpy(bytes, picture[2], sizeof bytes);
        if (way == 4) { /* or is to have another one while it is copied */
            source.number = 300;
            run_submit(&first, &run);
            run_await(&first);
        } else if (way == 5) { /* or is freed */
            run_net_destroy(&first);
        }
        run_await(&second);
        run_await(&slow);
        int fits[2] = {0, 0};
        for (int i = 0; i < 3 * H * (W + 8); i++) {
            const int x = i % (W + 8), y = i / (W + 8) % H, c = i / (W + 8) / H;
            for (int k = 0; k < 2; k++)
                fits[k] += fabs((double)out[i] * 255 - picture[k][y][x < W ? x : W - 1][c]) <= run_allowed();
        }
        const bool had = way == 0 || way > 3;
        assert_true(fits[0] == 3 * H * (W + 8) || fits[1] == 3 * H * (W + 8));
        assert_true(had && keeps ? fits[0] > fits[1] : had && may ? true : fits[1] > fits[0]);
    }
    run_net_destroy(&second);
    run_net_destroy(&slow);
}

/* Two parts of a picture, as large as each other: one number, but other bytes. */
static void test_parts(void)
{
    enum { W = 20, H = 12, PART = 3 * W * H };
    static uint8_t picture[2][H][W][3];
    static float planes[2][PART];
    struct run_net net;
    struct raster_source sources[2];
    run_fill(picture[0][0][0], sizeof picture, 9);
    for (int i = 0; i < 2; i++)
        sources[i] = (struct raster_source){RASTER_U8, picture[i], sizeof picture[i][0], NULL, NULL, 0, 0, 500};
    const struct run_input input = {.images = sources};
    const struct run_output output = {.planes = planes[0]};
    run_net_same(&net, 2, H, W, 1);
    run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = &run_unit_range});
    run_await(&net);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < PART; k++)
            assert_true(fabs((double)planes[i][k] * 255 - picture[i][k / W % H][k % W][k / W / H]) <= run_allowed());
    run_net_destroy(&net);
}

/* A target's rows, as they are taken: a strip with room for two. */
struct taken {
    float strip[2][5][3], all[3][5][3];
    int rows, calls;
};

static void take(void *user, int rows)
{
    struct taken *taken = user;
    assert_true(rows > 0 && rows <= 2 && taken->rows + rows <= 3);
    memcpy(taken->all[taken->rows], taken->strip, (size_t)rows * sizeof taken->strip[0]);
    taken->rows += rows;
    taken->calls++;
}

/* Floats in; results are clamped, and rounded to even. */
static void test_floats(void)
{
    enum { W = 5, H = 3 };
    struct taken taken = {.rows = 0};
    static const float values[W] = {-40, 0.5f, 100.5f, 101.5f, 300};
    static const uint8_t rounded[W] = {0, 0, 100, 102, 255};
    float in[H][W][3], out[H][W][3];
    uint8_t bytes[H][W][3];
    struct run_net net;
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++)
                in[y][x][c] = values[x];
    /* no division, so that halves stay what they are, on whatever device */
    const struct raster_range range = {.unit = 1, .deviation = 1, .low = 0, .high = 255};
    const struct raster_source source = {.form = RASTER_F32, .data = in, .stride = sizeof in[0]};
    const struct raster_target targets[] = {
        {.form = RASTER_F32, out, sizeof out[0], 0, 0, W, H},
        {.form = RASTER_F32, taken.strip, sizeof taken.strip[0], 0, 0, W, H, .take = take, .user = &taken, .most = 2},
        {.form = RASTER_U8, bytes, sizeof bytes[0], 0, 0, W, H}};
    const struct run_image image = {.targets = targets, .target_count = 3};
    const struct run_input input = {.images = &source};
    const struct run_output output = {.images = &image};
    run_net_same(&net, 1, H, W, 1);
    run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = &range});
    run_await(&net);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                assert_true(out[y][x][c] == fminf(fmaxf(values[x], 0), 255));
                assert_int_equal(bytes[y][x][c], rounded[x]);
            }
    assert_int_equal(taken.calls, 2);
    assert_memory_equal(taken.all, out, sizeof out);
    run_net_destroy(&net);
}

/* The first of the largest channels, of all and, in a part of the picture, of those from the sixth on, where also the
 * level of that one is asked for; and an output that nobody asks for. */
static void test_labels(void)
{
    enum { W = 21, H = 10, CLASSES = 19, N = 2, FIRST = 5, LEFT = 3, TOP = 2 };
    static uint8_t picture[N][H][W][3], labels[N][H][W + 1], later[N][H][W], levels[N][H][W];
    static float planes[N][CLASSES][H][W];
    struct raster_source sources[N];
    struct raster_target targets[N][3];
    struct run_image images[N];
    struct run_net net;
    run_fill(picture[0][0][0], sizeof picture, 5);
    for (int i = 0; i < N; i++) {
        sources[i] = (struct raster_source){RASTER_U8, picture[i], sizeof picture[i][0], NULL, NULL, 0, 0, 0};
        targets[i][0] = (struct raster_target){.form = RASTER_LABEL, labels[i], sizeof labels[i][0], 0, 0, W, H};
        targets[i][1] = (struct raster_target){RASTER_LABEL, later[i], W, LEFT, TOP, W - LEFT, H - TOP, .first = FIRST};
        targets[i][2] = targets[i][1];
        targets[i][2].form = RASTER_LEVEL;
        targets[i][2].data = levels[i];
        images[i] = (struct run_image){.targets = targets[i], .target_count = 3};
    }
    memset(labels, 99, sizeof labels);
    const struct run_input input = {.images = sources};
    const struct run_output outputs[2] = {{.planes = planes[0][0][0], .images = images}};
    run_net_classes(&net, N, H, W, CLASSES);
    run_submit(&net, &(struct run_io){.inputs = &input, .outputs = outputs, .range = &run_face_range});
    run_await(&net);
    int seen[CLASSES] = {0};
    for (int i = 0; i < N; i++)
        for (int y = 0; y < H; y++) {
            for (int x = 0; x < W; x++) {
                int best = 0, last = FIRST;
                for (int k = 1; k < CLASSES; k++)
                    best = planes[i][k][y][x] > planes[i][best][y][x] ? k : best;
                for (int k = FIRST; k < CLASSES; k++)
                    last = planes[i][k][y][x] > planes[i][last][y][x] ? k : last;
                assert_int_equal(labels[i][y][x], best);
                if (x >= LEFT && y >= TOP) {
                    const float level = roundf(planes[i][FIRST][y][x] * 16) + 128;
                    assert_int_equal(later[i][y - TOP][x - LEFT], last - FIRST);
                    assert_int_equal(levels[i][y - TOP][x - LEFT], level > 0 ? level < 255 ? level : 255 : 0);
                }
                assert_int_equal(best % 2, 0); /* of two equal ones the first */
                seen[best]++;
            }
            assert_int_equal(labels[i][y][W], 99);
        }
    int kinds = 0;
    for (int k = 0; k < CLASSES; k++)
        kinds += seen[k] > 0;
    assert_true(kinds > 3);
    run_net_destroy(&net);
}

enum { LAYERS = 5, LAYER_W = 560, LAYER_H = 28 };

/* Some over each other, some beyond the edges of a picture of w × h, the last one beyond it altogether. */
static const struct raster_layer *some_layers(int w, int h)
{
    static float rgba[LAYERS][LAYER_H * LAYER_W][4];
    static struct raster_layer layers[LAYERS];
    const struct rect {
        int x, y, width, height;
    } places[LAYERS] = {
        {2, 1, w / 2, h / 2}, {w / 3, -2, w / 2, h}, {w / 2, h / 3, w, h}, {w - 3, h - 2, 5, 4}, {w, 0, 7, 3}};
    uint32_t state = 11;
    for (int i = 0; i < LAYERS; i++) {
        assert_true(places[i].width <= LAYER_W && places[i].height <= LAYER_H);
        for (int k = 0; k < places[i].width * places[i].height; k++) {
            const float alpha = fmaxf(0, (float)run_noise(&state) / 128 - 1);
            for (int c = 0; c < 3; c++)
                rgba[i][k][c] = alpha * (float)run_noise(&state);
            rgba[i][k][3] = alpha;
        }
        layers[i] = (struct raster_layer){.rgba = rgba[i][0],
                                          .x = places[i].x,
                                          .y = places[i].y,
                                          .width = places[i].width,
                                          .height = places[i].height,
                                          .weight = i == 1 ? 0.6f : 1};
    }
    return layers;
}

/* Whether the byte is what lies over sample p at (x, y). */
static bool layered(const struct raster_layer *layers, double p, int x, int y, int c, uint8_t byte)
{
    for (int i = 0; i < LAYERS; i++) {
        const struct raster_layer *l = &layers[i];
        if (x < l->x || y < l->y || x >= l->x + l->width || y >= l->y + l->height)
            continue;
        const float *over = l->rgba + 4 * ((y - l->y) * l->width + x - l->x);
        p += (double)l->weight * ((double)over[c] - (double)over[3] * p);
    }
    return fabs(p - byte) <= 0.5 + run_allowed() + 1e-4;
}

/* Layers over two images, one of which shows a part of itself. */
static void test_layers(void)
{
    enum { W = 541, H = 14, X = 6, Y = 3, PART_W = 530, PART_H = 9 };
    static uint8_t picture[2][H][W][3], whole[H][W][3], part[PART_H][PART_W][3];
    const struct raster_range *const ranges[] = {&run_unit_range, &run_blue_range};
    const struct raster_layer *layers = some_layers(W, H);
    struct raster_source sources[2];
    run_fill(picture[0][0][0], sizeof picture, 4);
    for (int k = 0; k < 2; k++) {
        const struct raster_target targets[] = {{.form = RASTER_U8,
                                                 .data = whole,
                                                 .stride = sizeof whole[0],
                                                 .width = W,
                                                 .height = H,
                                                 .layers = layers,
                                                 .layer_count = LAYERS},
                                                {.form = RASTER_U8,
                                                 .data = part,
                                                 .stride = sizeof part[0],
                                                 .x = X,
                                                 .y = Y,
                                                 .width = PART_W,
                                                 .height = PART_H,
                                                 .layers = layers,
                                                 .layer_count = LAYERS,
                                                 .left = X,
                                                 .top = Y}};
        struct run_image images[2];
        struct run_net net;
        for (int i = 0; i < 2; i++) {
            sources[i] = (struct raster_source){RASTER_U8, picture[i], sizeof picture[i][0], NULL, NULL, 0, 0, 0};
            images[i] = (struct run_image){.targets = &targets[i], .target_count = 1};
        }
        const struct run_input input = {.images = sources};
        const struct run_output output = {.images = images};
        memset(whole, 0, sizeof whole);
        memset(part, 0, sizeof part);
        run_net_same(&net, 2, H, W, 1);
        run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = ranges[k]});
        run_await(&net);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                for (int c = 0; c < 3; c++)
                    assert_true(layered(layers, picture[0][y][x][c], x, y, c, whole[y][x][c]));
        for (int y = 0; y < PART_H; y++)
            for (int x = 0; x < PART_W; x++)
                for (int c = 0; c < 3; c++)
                    assert_true(layered(layers, picture[1][Y + y][X + x][c], X + x, Y + y, c, part[y][x][c]));
        run_net_destroy(&net);
    }
}

/* 2×3 tiles with feathered seams come together in a canvas that has fewer rows than the picture. */
static void test_canvas(void)
{
    enum { TILE = 16, STEP = 12, NX = 3, NY = 2, W = STEP * (NX - 1) + TILE, H = STEP * (NY - 1) + TILE, BATCH = NX };
    static uint8_t picture[H][W][3], bytes[H][W][3], under[H][W][3];
    static float floats[H][W][3], weight[3][TILE]; /* of the first tile of an axis, one between, the last */
    struct error err = ERROR_INIT;
    struct canvas *canvas;
    struct run_net net;
    const struct canvas_shape shape = {W, TILE, TILE, TILE - STEP, TILE - STEP};
    const struct raster_layer *layers = some_layers(W, H);
    run_fill(picture[0][0], sizeof picture, 9);
    for (int k = 0; k < 3; k++)
        for (int x = 0; x < TILE; x++) {
            const float rise = k > 0 && x < TILE - STEP ? ((float)x + 0.5f) / (TILE - STEP) : 1;
            const float fall = k < 2 && x >= STEP ? ((float)(TILE - x) - 0.5f) / (TILE - STEP) : 1;
            weight[k][x] = rise * fall;
        }
    run_net_same(&net, BATCH, TILE, TILE, 1);
    for (int way = 0; way < 2; way++) { /* in batches of a row; and twice, since what is over must be cleared */
        if (way == 0)
            assert_int_equal(canvas_create(&canvas, run_device, &shape, &err), OK);
        memset(bytes, 0, sizeof bytes);
        memset(floats, 0, sizeof floats);
        for (int j = 0; j < NY; j++) {
            int columns[NX][TILE], rows[TILE];
            struct raster_source sources[NX];
            struct raster_target targets[NX][3];
            struct run_image images[NX];
            for (int i = 0; i < NX; i++) {
                const int x0 = i * STEP, y0 = j * STEP, w = i + 1 < NX ? STEP : TILE, h = j + 1 < NY ? STEP : TILE;
                for (int k = 0; k < TILE; k++) {
                    columns[i][k] = x0 + k;
                    rows[k] = y0 + k;
                }
                sources[i] = (struct raster_source){RASTER_U8, picture, sizeof picture[0], columns[i], rows, 0, 0, 0};
                targets[i][0] = (struct raster_target){.form = RASTER_U8, bytes[y0][x0], sizeof bytes[0], x0, y0, w, h};
                targets[i][1] =
                    (struct raster_target){.form = RASTER_F32, floats[y0][x0], sizeof floats[0], x0, y0, w, h};
                targets[i][2] = (struct raster_target){
                    .form = RASTER_U8, under[y0][x0], sizeof under[0], x0, y0, w, h, layers, LAYERS, x0, y0};
                images[i] = (struct run_image){.targets = targets[i],
                                               .target_count = 3,
                                               .x = x0,
                                               .y = y0,
                                               .done = {x0, y0, w, h},
                                               .weight_x = weight[i == 0       ? 0
                                                                  : i + 1 < NX ? 1
                                                                               : 2],
                                               .weight_y = weight[j == 0 ? 0 : 2]};
            }
            const struct run_input input = {.images = sources};
            const struct run_output output = {.images = images, .canvas = canvas};
            if (plan_under_way(net.plan) == PLAN_RUNS)
                run_await(&net);
            run_submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = &run_unit_range});
        }
        while (plan_under_way(net.plan) > 0)
            run_await(&net);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                for (int c = 0; c < 3; c++) {
                    assert_true(fabs(floats[y][x][c] - (float)picture[y][x][c]) <= 2 * run_allowed());
                    assert_int_equal(bytes[y][x][c], picture[y][x][c]);
                    assert_true(layered(layers, floats[y][x][c], x, y, c, under[y][x][c]));
                }
    }
    run_net_destroy(&net);
    canvas_destroy(&canvas);
}

int main(void)
{
    static run_case *const cases[] = {test_windows, test_reduced, test_not_reduced, test_numbers, test_parts,
                                      test_floats,  test_labels,  test_layers,      test_canvas,  NULL};
    return run_all_devices("rasters", cases);
}
