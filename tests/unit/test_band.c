/* The last layers of a network, by bands of rows: the result is bit by bit what it is without bands, and the memory
 * that they save. Two pictures at once are computed without bands, so they tell what one alone must give. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/backend.h"
#include "runtime/cpu/cpu_band.h"

/* What follows the input: a convolution of its kernel and upsampling, or a pixel shuffle (kernel 0). */
struct layer {
    int channels, kernel, up;
};

#define LAYERS_MAX 13
#define THREADS 2

static const struct layer rrdbnet[] = {{20, 3, 1}, {20, 3, 2}, {16, 3, 2}, {16, 3, 1}, {3, 3, 1}, {0}};
static const struct layer kernels[] = {{24, 5, 1}, {16, 7, 2}, {8, 3, 2}, {8, 5, 1}, {0}};
static const struct layer srvgg[] = {{16, 3, 1}, {48, 3, 1}, {3, 0, 4}, {0}};

static const struct layer chain[] = {{16, 3, 1}, {32, 3, 1}, {32, 3, 1}, {16, 5, 1}, {16, 3, 1}, {16, 3, 1}, {16, 3, 1},
                                     {16, 3, 1}, {16, 3, 1}, {16, 3, 1}, {12, 3, 1}, {3, 0, 2},  {0}};

static struct param *params[LAYERS_MAX];
static int param_count;

static const struct param *random_param(size_t count, int sources)
{
    struct error err = ERROR_INIT;
    float *values = malloc(count * sizeof *values);
    uint32_t random = (uint32_t)count;
    assert_non_null(values);
    for (size_t k = 0; k < count; k++) {
        random = random * 1664525u + 1013904223u;
        values[k] = (float)(int32_t)random / 2147483648.0f / (float)sources;
    }
    assert_int_equal(param_from_values(&params[param_count], values, count, &err), OK);
    free(values);
    return params[param_count++];
}

static struct graph *make(const struct layer *layers, int n, int h, int w)
{
    struct error err = ERROR_INIT;
    struct graph *graph;
    int channels = 3;
    assert_int_equal(graph_create(&graph, &err), OK);
    const struct view input = graph_tensor(graph, TENSOR_INPUT, n, h, w, 1, &channels);
    struct view x = input;
    for (; layers->channels; layers++) {
        h *= layers->up;
        w *= layers->up;
        struct view y =
            graph_tensor(graph, layers[1].channels ? TENSOR_TEMP : TENSOR_OUTPUT, n, h, w, 1, &layers->channels);
        struct node *node = graph_node(graph, layers->kernel ? OP_CONV2D : OP_PIXEL_SHUFFLE, y);
        assert_non_null(node);
        node->in[OP_X] = x;
        if (layers->kernel) {
            const int taps = layers->kernel * layers->kernel;
            node->param[OP_WEIGHT] =
                random_param((size_t)(channels * layers->channels * taps), channels * layers->kernel);
            node->args.conv2d = (struct op_conv2d){.kernel = layers->kernel,
                                                   .stride = 1,
                                                   .pad = layers->kernel / 2,
                                                   .upsample = layers->up,
                                                   .gain = 1,
                                                   .scale = 1,
                                                   .activation = ACTIVATION_LEAKY,
                                                   .slope = 0.2f};
        } else {
            node->in[OP_RESIDUAL1] = input;
            node->args.shuffle.factor = layers->up;
        }
        channels = layers->channels;
        x = y;
    }
    assert_int_equal(graph_finish(graph, &err), OK);
    return graph;
}

static float *input_of(size_t count)
{
    float *in = malloc(2 * count * sizeof *in);
    assert_non_null(in);
    for (size_t i = 0; i < 2 * count; i++) /* the same picture twice */
        in[i] = (float)(i % count * 37 % 101) / 101.0f;
    return in;
}

/* The result of n pictures; bytes: of the plan. */
static float *run(struct device *device, const struct layer *layers, int n, int h, int w, uint64_t *bytes)
{
    struct error err = ERROR_INIT;
    struct plan *plan;
    struct graph *graph = make(layers, n, h, w);
    const struct tensor *t = &graph->tensors[graph->outputs[0]];
    const size_t count = (size_t)t->n * (size_t)t->channels * (size_t)t->h * (size_t)t->w;
    float *in = input_of((size_t)(3 * h * w)), *out = malloc(count * sizeof *out);
    assert_non_null(out);
    memset(out, 0xff, count * sizeof *out); /* NaN */
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), OK);
    for (int i = 0; i < 2; i++) /* the second meets what the first left */
        assert_int_equal(plan_run(plan, (const float *const *)&in, &out, NULL, &err), OK);
    *bytes = plan_bytes(plan);
    plan_destroy(&plan);
    device_forget_params(device, (const struct param *const *)params, (size_t)param_count);
    graph_destroy(&graph);
    while (param_count)
        param_destroy(&params[--param_count]);
    free(in);
    return out;
}

static void check(const struct layer *layers, int h, int w, int scale, double least)
{
    struct error err = ERROR_INIT;
    struct device *device;
    uint64_t banded, whole;
    int channels = 0;
    for (const struct layer *at = layers; at->channels; at++)
        channels = at->channels;
    device_set_cpu_threads(THREADS);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    device_set_cpu_threads(0);
    float *one = run(device, layers, 1, h, w, &banded), *two = run(device, layers, 2, h, w, &whole);
    const size_t count = (size_t)channels * (size_t)(h * scale) * (size_t)(w * scale);
    assert_memory_equal(one, two, count * sizeof *one);
    assert_memory_equal(two, two + count, count * sizeof *one);
    assert_true((double)whole / 2 > least * (double)banded);
    device_close(&device);
    free(one);
    free(two);
}

static void results_do_not_depend_on_bands(void **state)
{
    (void)state;
    check(rrdbnet, 91, 150, 4, 1.3);
    check(rrdbnet, 50, 301, 4, 1.3);
    check(kernels, 90, 203, 4, 1.3);
    check(srvgg, 150, 133, 4, 1.3);
    check(chain, 911, 1010, 2, 1.9); /* from the input on */
}

/* ---- results that never exist as a whole ---- */

/* A target that has room for some rows: what it was given, in all. */
struct taken {
    float strip[5 * 3 * 1500], *all;
    int width, rows;
};

static void take(void *user, int rows)
{
    struct taken *taken = user;
    const size_t row = 3 * (size_t)taken->width;
    assert_true(rows > 0 && rows <= 5);
    memcpy(taken->all + (size_t)taken->rows * row, taken->strip, (size_t)rows * row * sizeof(float));
    taken->rows += rows;
}

static float between(float value)
{
    return value < 0 ? 0 : value > 1 ? 255 : value * 255;
}

/* Pictures made of a result as it comes are those made of all of it: a rectangle of it, all of it through a strip of
 * five rows, and what a canvas shows that it is added to. */
static void check_pictures(const struct layer *layers, int h, int w, int scale)
{
    enum { LEFT = 7, TOP = 13, WIDTH = 90, HEIGHT = 70, BLEND_Y = 3 };
    static const struct raster_range range = {.unit = 255, .deviation = 1, .low = 0, .high = 1};
    struct error err = ERROR_INIT;
    struct device *device;
    struct plan *plan;
    struct canvas *canvas;
    uint64_t unused;
    const int rows = h * scale, columns = w * scale;
    const size_t plane = (size_t)rows * (size_t)columns;
    const struct canvas_shape shape = {.width = columns, .columns = columns, .rows = rows};
    device_set_cpu_threads(THREADS);
    assert_int_equal(device_open(&device, "cpu", NULL, &err), OK);
    device_set_cpu_threads(0);
    float *planes = run(device, layers, 1, h, w, &unused), *in = input_of((size_t)(3 * h * w));
    struct graph *graph = make(layers, 1, h, w);
    assert_int_equal(plan_create(&plan, device, graph, PRECISION_AUTO, "test", &err), OK);
    assert_int_equal(canvas_create(&canvas, device, &shape, &err), OK);
    float *weights = malloc((size_t)(rows + columns) * sizeof *weights);
    struct taken part = {.all = malloc(3 * plane * sizeof(float)), .width = columns}, sum = part;
    sum.all = malloc(3 * plane * sizeof(float));
    assert_true(weights && part.all && sum.all);
    for (int i = 0; i < rows + columns; i++)
        weights[i] = (float)(i % 5) / 4;
    static uint8_t piece[HEIGHT][WIDTH][3];
    const struct raster_target targets[] = {{.form = RASTER_U8, piece, sizeof piece[0], LEFT, TOP, WIDTH, HEIGHT},
                                            {.form = RASTER_F32,
                                             part.strip,
                                             3 * sizeof(float) * (size_t)columns,
                                             0,
                                             0,
                                             columns,
                                             rows,
                                             .take = take,
                                             .user = &part,
                                             .most = 5},
                                            {.form = RASTER_F32,
                                             sum.strip,
                                             3 * sizeof(float) * (size_t)columns,
                                             0,
                                             BLEND_Y,
                                             columns,
                                             rows,
                                             .take = take,
                                             .user = &sum,
                                             .most = 5}};
    const struct run_image images[] = {{.targets = targets, .target_count = 2},
                                       {.targets = &targets[2],
                                        .target_count = 1,
                                        .x = 0,
                                        .y = BLEND_Y,
                                        .done = {0, 0, columns, rows + BLEND_Y},
                                        .weight_x = weights,
                                        .weight_y = weights + columns}};
    const struct run_input input = {.planes = in};
    for (int i = 0; i < 2; i++) {
        const struct run_output output = {.images = &images[i], .canvas = i ? canvas : NULL};
        const struct run_io io = {.inputs = &input, .outputs = &output, .range = &range};
        struct run_result result;
        assert_int_equal(plan_submit(plan, &io, &err), OK);
        assert_int_equal(plan_wait(plan, &result, &err), OK);
        assert_true(result.finite && !result.flat);
    }
    assert_int_equal(part.rows, rows);
    assert_int_equal(sum.rows, rows);
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            for (size_t c = 0; c < 3; c++) {
                const size_t at = (size_t)y * (size_t)columns + (size_t)x;
                const float value = planes[c * plane + at], weight = weights[x] * weights[columns + y];
                const bool inside = x >= LEFT && x < LEFT + WIDTH && y >= TOP && y < TOP + HEIGHT;
                assert_true(part.all[3 * at + c] == between(value));
                assert_true(sum.all[3 * at + c] == between(0 + weight * value));
                if (inside)
                    assert_int_equal(piece[y - TOP][x - LEFT][c], (int)rintf(between(value)));
            }
    for (int i = 0; i < 2; i++) { /* what is said of a result, too */
        const struct run_output output = {.images = &(struct run_image){0}};
        const struct run_io io = {.inputs = &input, .outputs = &output, .range = &range};
        struct run_result result;
        memset(in, 0, (size_t)(3 * h * w) * sizeof *in);
        in[3 * h * w - 1] = i ? NAN : 0;
        assert_int_equal(plan_submit(plan, &io, &err), OK);
        assert_int_equal(plan_wait(plan, &result, &err), OK);
        assert_true(result.finite == (i == 0) && result.flat == (i == 0));
    }
    plan_destroy(&plan);
    canvas_destroy(&canvas);
    device_forget_params(device, (const struct param *const *)params, (size_t)param_count);
    graph_destroy(&graph);
    while (param_count)
        param_destroy(&params[--param_count]);
    device_close(&device);
    free(weights);
    free(part.all);
    free(sum.all);
    free(planes);
    free(in);
}

static void pictures_of_rows_as_they_come(void **state)
{
    (void)state;
    check_pictures(rrdbnet, 91, 150, 4);
    check_pictures(srvgg, 150, 133, 4);
}

/* Every row of every layer is computed once and in order, after the rows that it reads and while they exist, and never
 * more exist than there is room for. */
static void rows_are_there_when_they_are_read(void **state)
{
    (void)state;
    static const struct layer *const all[] = {rrdbnet, kernels, srvgg, chain};
    for (int i = 0; i < 4; i++)
        for (int h = 150; h < 160; h++) {
            struct graph *graph = all[i] == chain ? make(chain, 1, 8 * h + h % 10, 1010) : make(all[i], 1, h, 300);
            struct cpu_band band;
            struct cpu_band_rows rows = {0};
            int need[CPU_BAND_MOST];
            cpu_band_plan(&band, graph, THREADS);
            assert_true(all[i] == chain ? band.count == 12 : band.count > 0);
            while (cpu_band_next(&band, &rows, need))
                for (int k = 0; k < band.count; k++) {
                    const struct cpu_band_layer *layer = &band.layer[k];
                    const int low = cpu_band_lowest(&band, k, k + 1 < band.count ? rows.done[k + 1] : rows.done[k]);
                    assert_true(low >= rows.low[k] && low <= rows.done[k]);
                    assert_true(need[k] >= rows.done[k] && need[k] <= layer->h && need[k] - low <= layer->room);
                    assert_true(need[k] == layer->h || need[k] % 4 == 0);
                    if (layer->kernel && need[k] > rows.done[k]) {
                        const int top = (rows.done[k] - layer->pad) / layer->up,
                                  end = (need[k] - 1 - layer->pad + layer->kernel - 1) / layer->up + 1;
                        assert_true(rows.low[k - 1] <= (top > 0 ? top : 0));
                        assert_true(rows.done[k - 1] >= (end < band.layer[k - 1].h ? end : band.layer[k - 1].h));
                    }
                    rows.low[k] = low;
                    rows.done[k] = need[k];
                }
            for (int k = 0; k < band.count; k++)
                assert_int_equal(rows.done[k], band.layer[k].h);
            graph_destroy(&graph);
            while (param_count)
                param_destroy(&params[--param_count]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_bands),
        cmocka_unit_test(rows_are_there_when_they_are_read),
        cmocka_unit_test(pictures_of_rows_as_they_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
