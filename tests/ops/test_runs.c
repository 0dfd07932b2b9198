/* Runs of pictures on every device: what windows, ranges, targets, canvases and labels mean, against formulas, and runs
 * that follow each other before the first is over. On Vulkan under the validation layer, and in every way in which its
 * memory can be chosen. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/vulkan/vk_device.h"

static struct device *device;
static enum precision precision;

/* --- networks ------------------------------------------------------------------------------------------------------
 */

struct net {
    struct graph *graph;
    struct param *weight;
    struct plan *plan;
};

static void net_plan(struct net *net)
{
    struct error err = ERROR_INIT;
    if (graph_finish(net->graph, &err) || plan_create(&net->plan, device, net->graph, precision, "net", &err))
        fail_msg("%s", err.text);
}

static void net_destroy(struct net *net)
{
    plan_destroy(&net->plan);
    if (net->weight)
        device_forget_params(device, (const struct param *const *)&net->weight, 1);
    graph_destroy(&net->graph);
    param_destroy(&net->weight);
}

/* y = x, after as many steps on the way. */
static void net_same(struct net *net, int n, int h, int w, int steps)
{
    struct error err = ERROR_INIT;
    const int rgb = 3;
    *net = (struct net){0};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    struct view x = graph_tensor(net->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    for (int i = 0; i < steps; i++) {
        struct view y = i + 1 < steps ? graph_temp(net->graph, n, 3, h, w)
                                      : graph_tensor(net->graph, TENSOR_OUTPUT, n, h, w, 1, &rgb);
        struct node *node = graph_node(net->graph, OP_ADD, y);
        node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
        node->args.add = (struct op_add){.x_scale = 0.25f, .residual1_scale = 0.75f};
        x = y;
    }
    net_plan(net);
}

/* Two outputs of 1×1 convolutions: `classes` channels, of which each two are equal; and the sum of x's channels,
 * thrice.
 */
static void net_classes(struct net *net, int n, int h, int w, int classes)
{
    struct error err = ERROR_INIT;
    const int rgb = 3;
    float *values = malloc((size_t)(3 * classes) * sizeof *values);
    for (int i = 0; i < classes; i++)
        for (int c = 0; c < 3; c++)
            values[3 * i + c] = sinf((float)(i / 2 * 3 + c) * 1.7f);
    *net = (struct net){0};
    assert_int_equal(graph_create(&net->graph, &err), OK);
    assert_int_equal(param_from_values(&net->weight, values, (size_t)(3 * classes), &err), OK);
    free(values);
    struct view x = graph_tensor(net->graph, TENSOR_INPUT, n, h, w, 1, &rgb);
    struct node *node =
        graph_node(net->graph, OP_CONV2D, graph_tensor(net->graph, TENSOR_OUTPUT, n, h, w, 1, &classes));
    node->in[OP_X] = x;
    node->param[OP_WEIGHT] = net->weight;
    node->args.conv2d = (struct op_conv2d){.kernel = 1, .stride = 1, .upsample = 1, .gain = 1, .scale = 1};
    node = graph_node(net->graph, OP_ADD, graph_tensor(net->graph, TENSOR_OUTPUT, n, h, w, 1, &rgb));
    node->in[OP_X] = node->in[OP_RESIDUAL1] = x;
    node->args.add = (struct op_add){.x_scale = 1, .residual1_scale = 1};
    net_plan(net);
}

static uint8_t noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (uint8_t)(*state >> 24);
}

static void fill(uint8_t *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = noise(&seed);
}

static void submit(struct net *net, const struct run_io *run)
{
    struct error err = ERROR_INIT;
    if (plan_submit(net->plan, run, &err))
        fail_msg("%s", err.text);
}

static struct run_result await(struct net *net)
{
    struct error err = ERROR_INIT;
    struct run_result result;
    if (plan_wait(net->plan, &result, &err))
        fail_msg("%s", err.text);
    return result;
}

/* Of a sample of 0..255 that went through a tensor: in fp16, whose step there is 0.125, a little over one. */
static double allowed(void)
{
    return precision == PRECISION_FP16 ? 0.2 : 1e-4;
}

static const struct raster_range unit_range = {.unit = 255, .deviation = 1, .low = 0, .high = 1};
static const struct raster_range face_range = {
    .unit = 255, .mean = {0.5f, 0.5f, 0.5f}, .deviation = 0.5f, .low = -1, .high = 1};
static const struct raster_range blue_range = {
    .unit = 1, .mean = {104, 117, 123}, .deviation = 1, .low = -200, .high = 200, .bgr = true};

/* --- the cases -----------------------------------------------------------------------------------------------------
 */

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
    struct net net;
    fill(picture, sizeof picture, 1);
    for (int i = 0; i < 2; i++) {
        for (int x = 0; x < W; x++)
            columns[i][x] = i == 0 ? 3 + x : abs(PW - 1 - abs(PW - 1 - (PW - 8 + x))); /* mirrored */
        for (int y = 0; y < H; y++)
            rows[i][y] = i == 0 ? 11 + y : abs(y - 4);
        sources[i] = (struct raster_source){RASTER_U8, picture, STRIDE, columns[i], rows[i]};
        targets[i][0] = (struct raster_target){.form = RASTER_U8, bytes[i], sizeof bytes[i][0], 0, 0, W, H};
        targets[i][1] = (struct raster_target){.form = RASTER_F32, floats[i], sizeof floats[i][0], 0, 0, W, H};
        targets[i][2] = (struct raster_target){.form = RASTER_U8, part, sizeof part[0], 9, 6, 7, 5};
        images[i] = (struct run_image){.targets = targets[i], .target_count = i == 0 ? 3 : 2};
    }
    const struct raster_range *const ranges[] = {&unit_range, &face_range, &blue_range};
    for (int k = 0; k < 3; k++) {
        const struct raster_range *range = ranges[k];
        const struct run_input input = {.images = sources};
        const struct run_output output = {.planes = planes[0][0][0], .images = images};
        memset(bytes, 7, sizeof bytes);
        memset(part, 7, sizeof part);
        net_same(&net, 2, H, W, 2);
        submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = range});
        const struct run_result result = await(&net);
        assert_true(result.finite && result.flat == 0);
        for (int i = 0; i < 2; i++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++)
                    for (int c = 0; c < 3; c++) {
                        const int tensor = range->bgr ? 2 - c : c;
                        const double p = picture[rows[i][y] * STRIDE + 3 * columns[i][x] + c];
                        const double v = (p / range->unit - range->mean[tensor]) / range->deviation;
                        assert_int_equal(bytes[i][y][x][c], p);
                        assert_true(fabs(floats[i][y][x][c] - p) <= allowed());
                        assert_true(fabs(planes[i][tensor][y][x] - v) * range->unit * range->deviation <= allowed());
                        if (i == 0 && x >= 9 && x < 16 && y >= 6 && y < 11)
                            assert_int_equal(part[y - 6][3 * (x - 9) + c], p);
                    }
        for (int y = 0; y < H; y++) /* what lies beside a target is not touched */
            for (int i = 0; i < 9; i++)
                assert_int_equal(((uint8_t *)bytes[0][y][W])[i], 7);
        for (int y = 0; y < 5; y++)
            assert_int_equal(part[y][21], 7);
        net_destroy(&net);
    }
}

/* Floats in; results are clamped, and rounded to even. */
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

static void test_floats(void)
{
    enum { W = 5, H = 3 };
    struct taken taken = {.rows = 0};
    static const float values[W] = {-40, 0.5f, 100.5f, 101.5f, 300};
    static const uint8_t rounded[W] = {0, 0, 100, 102, 255};
    float in[H][W][3], out[H][W][3];
    uint8_t bytes[H][W][3];
    struct net net;
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
    net_same(&net, 1, H, W, 1);
    submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = &range});
    await(&net);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            for (int c = 0; c < 3; c++) {
                assert_true(out[y][x][c] == fminf(fmaxf(values[x], 0), 255));
                assert_int_equal(bytes[y][x][c], rounded[x]);
            }
    assert_int_equal(taken.calls, 2);
    assert_memory_equal(taken.all, out, sizeof out);
    net_destroy(&net);
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
    struct net net;
    fill(picture[0][0][0], sizeof picture, 5);
    for (int i = 0; i < N; i++) {
        sources[i] = (struct raster_source){RASTER_U8, picture[i], sizeof picture[i][0], NULL, NULL};
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
    net_classes(&net, N, H, W, CLASSES);
    submit(&net, &(struct run_io){.inputs = &input, .outputs = outputs, .range = &face_range});
    await(&net);
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
    net_destroy(&net);
}

/* --- layers ---- */

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
            const float alpha = fmaxf(0, (float)noise(&state) / 128 - 1);
            for (int c = 0; c < 3; c++)
                rgba[i][k][c] = alpha * (float)noise(&state);
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
    return fabs(p - byte) <= 0.5 + allowed() + 1e-4;
}

/* Layers over two images, one of which shows a part of itself. */
static void test_layers(void)
{
    enum { W = 541, H = 14, X = 6, Y = 3, PART_W = 530, PART_H = 9 };
    static uint8_t picture[2][H][W][3], whole[H][W][3], part[PART_H][PART_W][3];
    const struct raster_range *const ranges[] = {&unit_range, &blue_range};
    const struct raster_layer *layers = some_layers(W, H);
    struct raster_source sources[2];
    fill(picture[0][0][0], sizeof picture, 4);
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
        struct net net;
        for (int i = 0; i < 2; i++) {
            sources[i] = (struct raster_source){RASTER_U8, picture[i], sizeof picture[i][0], NULL, NULL};
            images[i] = (struct run_image){.targets = &targets[i], .target_count = 1};
        }
        const struct run_input input = {.images = sources};
        const struct run_output output = {.images = images};
        memset(whole, 0, sizeof whole);
        memset(part, 0, sizeof part);
        net_same(&net, 2, H, W, 1);
        submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = ranges[k]});
        await(&net);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                for (int c = 0; c < 3; c++)
                    assert_true(layered(layers, picture[0][y][x][c], x, y, c, whole[y][x][c]));
        for (int y = 0; y < PART_H; y++)
            for (int x = 0; x < PART_W; x++)
                for (int c = 0; c < 3; c++)
                    assert_true(layered(layers, picture[1][Y + y][X + x][c], X + x, Y + y, c, part[y][x][c]));
        net_destroy(&net);
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
    struct net net;
    const struct canvas_shape shape = {W, TILE, TILE, TILE - STEP, TILE - STEP};
    const struct raster_layer *layers = some_layers(W, H);
    fill(picture[0][0], sizeof picture, 9);
    for (int k = 0; k < 3; k++)
        for (int x = 0; x < TILE; x++) {
            const float rise = k > 0 && x < TILE - STEP ? ((float)x + 0.5f) / (TILE - STEP) : 1;
            const float fall = k < 2 && x >= STEP ? ((float)(TILE - x) - 0.5f) / (TILE - STEP) : 1;
            weight[k][x] = rise * fall;
        }
    net_same(&net, BATCH, TILE, TILE, 1);
    for (int way = 0; way < 2; way++) { /* in batches of a row; and twice, since what is over must be cleared */
        if (way == 0)
            assert_int_equal(canvas_create(&canvas, device, &shape, &err), OK);
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
                sources[i] = (struct raster_source){RASTER_U8, picture, sizeof picture[0], columns[i], rows};
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
                await(&net);
            submit(&net, &(struct run_io){.inputs = &input, .outputs = &output, .range = &unit_range});
        }
        while (plan_under_way(net.plan) > 0)
            await(&net);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                for (int c = 0; c < 3; c++) {
                    assert_true(fabs(floats[y][x][c] - (float)picture[y][x][c]) <= 2 * allowed());
                    assert_int_equal(bytes[y][x][c], picture[y][x][c]);
                    assert_true(layered(layers, floats[y][x][c], x, y, c, under[y][x][c]));
                }
    }
    net_destroy(&net);
    canvas_destroy(&canvas);
}

/* What is said of results. */
static void test_verdicts(void)
{
    enum { W = 6, H = 4, N = 3 };
    static float in[N][3][H][W], out[N][3][H][W];
    struct net net;
    struct run_input input = {.planes = in[0][0][0]};
    struct run_output output = {.planes = out[0][0][0]};
    net_same(&net, N, H, W, 1);
    float *values = in[0][0][0];
    for (int i = 0; i < N * 3 * H * W; i++)
        values[i] = i / (3 * H * W) == 1 ? 0.5f : (float)i / 100;
    submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
    struct run_result result = await(&net);
    assert_true(result.finite);
    assert_int_equal(result.flat, 2);
    in[1][2][H - 1][W - 1] = 0.75f; /* the very last */
    in[2][1][1][1] = precision == PRECISION_FP16 ? 1 : INFINITY;
    submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
    result = await(&net);
    assert_int_equal(result.finite, precision == PRECISION_FP16);
    assert_int_equal(result.flat, 0);
    in[2][1][1][1] = NAN;
    if (precision == PRECISION_FP32) { /* a narrower number may make something else of it */
        submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
        assert_false(await(&net).finite);
    }
    output = (struct run_output){0}; /* nobody looks */
    submit(&net, &(struct run_io){.inputs = &input, .outputs = &output});
    result = await(&net);
    assert_true(result.finite && result.flat == 0);
    net_destroy(&net);
}

/* Runs follow each other before the first is over, each with what it was given, and end in order. */
static void test_under_way(void)
{
    enum { W = 64, H = 48, RUNS = 7 };
    static uint8_t in[H][W][3], out[RUNS][H][W][3];
    struct error err = ERROR_INIT;
    struct net net;
    const struct raster_source source = {RASTER_U8, in, sizeof in[0], NULL, NULL};
    const struct run_input input = {.images = &source};
    net_same(&net, 1, H, W, 20);
    assert_int_equal(plan_under_way(net.plan), 0);
    for (int run = 0, ended = 0; ended < RUNS;) {
        if (run < RUNS && plan_under_way(net.plan) < PLAN_RUNS) {
            struct raster_target target = {.form = RASTER_U8, out[run], sizeof out[run][0], 0, 0, W, H};
            const struct run_image image = {.targets = &target, .target_count = 1};
            const struct run_output output = {.images = &image};
            fill(in[0][0], sizeof in, (uint32_t)run);
            submit(&net, &(struct run_io){.inputs = &input,
                                          .outputs = &output,
                                          .range = &unit_range,
                                          .options = {.background = run % 2 == 0}});
            memset(in, 0, sizeof in); /* they were read */
            memset(&target, 0, sizeof target);
            run++;
            continue;
        }
        await(&net);
        fill(in[0][0], sizeof in, (uint32_t)ended);
        assert_memory_equal(in, out[ended], sizeof in);
        ended++;
    }
    /* one too many, one too late, and those that nobody waits for */
    atomic_int cancel = 0;
    struct raster_target target = {.form = RASTER_U8, out[0], sizeof out[0][0], 0, 0, W, H};
    const struct run_image image = {.targets = &target, .target_count = 1};
    const struct run_output output = {.images = &image};
    const struct run_io run = {
        .inputs = &input, .outputs = &output, .range = &unit_range, .options = {.cancel = &cancel}};
    for (int i = 0; i < PLAN_RUNS; i++)
        submit(&net, &run);
    assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_INTERNAL);
    plan_discard(net.plan);
    assert_int_equal(plan_under_way(net.plan), 0);
    submit(&net, &run);
    for (int i = 0; !plan_ready(net.plan); i++) {
        assert_true(i < 600000); /* ten minutes */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    await(&net);
    error_clear(&err);
    atomic_store(&cancel, 1);
    assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_CANCELLED);
    atomic_store(&cancel, 0);
    submit(&net, &run); /* left under way */
    net_destroy(&net);
    assert_true(device_busy_ms(device) > 0);
}

/* A run whose outputs are named when it is under way, and what may not be done before they are. */
static void test_shown_later(void)
{
    enum { W = 64, H = 48 };
    static uint8_t in[H][W][3], out[2][H][W][3];
    struct error err = ERROR_INIT;
    struct device_info info;
    struct net net;
    const struct raster_source source = {RASTER_U8, in, sizeof in[0], NULL, NULL};
    const struct run_input input = {.images = &source};
    struct raster_target target = {.form = RASTER_U8, out[0], sizeof out[0][0], 0, 0, W, H};
    const struct run_image image = {.targets = &target, .target_count = 1};
    const struct run_output output = {.images = &image};
    struct run_io run = {.inputs = &input, .range = &unit_range, .options = {.background = true}};
    device_info(device, &info);
    net_same(&net, 1, H, W, 20);
    fill(in[0][0], sizeof in, 7);
    if (!info.asynchronous) {
        assert_int_equal(plan_submit(net.plan, &run, &err), ERROR_INTERNAL);
        net_destroy(&net);
        return;
    }
    submit(&net, &run);
    assert_false(plan_ready(net.plan));
    struct run_io full = run;
    full.outputs = &output;
    assert_int_equal(plan_submit(net.plan, &full, &err), ERROR_INTERNAL); /* what it would overwrite nobody has seen */
    error_clear(&err);
    if (plan_show(net.plan, &full, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan_show(net.plan, &full, &err), ERROR_INTERNAL);
    error_clear(&err);
    target.data = out[1];
    full.options.background = false;
    submit(&net, &full); /* goes before none of its plan */
    await(&net);
    await(&net);
    assert_memory_equal(in, out[0], sizeof in);
    assert_memory_equal(in, out[1], sizeof in);
    submit(&net, &run);
    assert_int_equal(plan_wait(net.plan, NULL, &err), ERROR_INTERNAL);
    assert_int_equal(plan_under_way(net.plan), 0);
    submit(&net, &run);
    plan_discard(net.plan);
    submit(&net, &full);
    await(&net);
    submit(&net, &run); /* left under way */
    net_destroy(&net);
}

/* --- all devices ---------------------------------------------------------------------------------------------------
 */

static void run_all(const char *name)
{
    static void (*const tests[])(void) = {test_windows, test_floats,   test_labels,    test_layers,
                                          test_canvas,  test_verdicts, test_under_way, test_shown_later};
    struct device_info info;
    device_info(device, &info);
    for (int p = 0; p < (info.fp16 ? 2 : 1); p++) {
        precision = p ? PRECISION_FP16 : PRECISION_FP32;
        for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
            tests[i]();
    }
    device_info(device, &info);
    assert_int_equal(info.memory_used, 0);
    print_message("%s: %s\n", name, info.fp16 ? "fp32, fp16" : "fp32");
}

static void test_devices(void **state)
{
    (void)state;
    static const struct {
        const char *backend, *variable, *value;
    } ways[] = {{"vulkan", "RESTORED_VULKAN_DIRECT", "0"},
                {"vulkan", "RESTORED_VULKAN_DIRECT", "1"},
                {"vulkan", "RESTORED_VULKAN_GROUPED", "1"},
                {"cpu", "RESTORED_CPU_ISA", ""}};
    struct device_info *list = NULL;
    size_t count = 0;
    struct error err = ERROR_INIT;
    assert_int_equal(device_open(&device, "reference", NULL, &err), OK);
    run_all("reference");
    device_close(&device);
    assert_int_equal(device_list(&list, &count, &err), OK);
    for (size_t i = 0; i < count; i++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            if (!list[i].usable || strcmp(ways[w].backend, list[i].backend) != 0)
                continue;
            if (*ways[w].value)
                setenv(ways[w].variable, ways[w].value, 1);
            assert_int_equal(device_open(&device, list[i].id, NULL, &err), OK);
            run_all(list[i].name);
            device_close(&device);
            unsetenv(ways[w].variable);
        }
    free(list);
    assert_int_equal(vk_validation_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_devices)};
    setenv("RESTORED_VULKAN_VALIDATION", "1", 1);
    return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
