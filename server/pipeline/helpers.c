#include "server/pipeline/helpers.h"

#include "server/pipeline/step.h"

#define HELPERS_SIDE 32768 /* px of a window's side: larger ones are beyond TILE_ORDER_MOST anyway */

size_t tile_order_input(const struct tile_order *order)
{
    return 3 * (size_t)order->width * (size_t)order->height * (order->bits == 16 ? 2 : 1);
}

size_t tile_order_output(const struct tile_order *order)
{
    const size_t s = (size_t)order->scale;
    if (order->done.width > 0)
        return 3 * (size_t)order->done.width * (size_t)order->done.height;
    return 3 * sizeof(float) * s * s * (size_t)order->width * (size_t)order->height;
}

bool tile_order_valid(const struct tile_order *order)
{
    const struct rect *done = &order->done;
    return order->width > 0 && order->width <= HELPERS_SIDE && order->height > 0 && order->height <= HELPERS_SIDE &&
           (order->bits == 8 || order->bits == 16) && order->scale > 0 && order->scale <= 16 && done->x >= 0 &&
           done->y >= 0 && done->width >= 0 && done->height >= 0 &&
           (int64_t)done->x + done->width <= (int64_t)order->width * order->scale &&
           (int64_t)done->y + done->height <= (int64_t)order->height * order->scale &&
           (done->width > 0) == (done->height > 0) && tile_order_input(order) <= TILE_ORDER_MOST &&
           tile_order_output(order) <= TILE_ORDER_MOST;
}

enum error_code tile_order_run(const struct tile_order *order, struct worker_context *context,
                               const struct model_entry *entry, enum precision precision, const void *input,
                               void *output, const struct run_options *options, struct error *err)
{
    const struct session_shape shape = {.n = 1, .h = order->height, .w = order->width};
    const struct raster_source source = {.form = order->bits == 16 ? RASTER_U16 : RASTER_U8,
                                         .data = input,
                                         .stride = tile_order_input(order) / (size_t)order->height};
    const struct raster_target target = {.form = RASTER_U8,
                                         .data = output,
                                         .stride = 3 * (size_t)order->done.width,
                                         .x = order->done.x,
                                         .y = order->done.y,
                                         .width = order->done.width,
                                         .height = order->done.height};
    const struct run_image image = {.targets = &target, .target_count = 1};
    const struct run_input in = {.images = &source};
    const struct run_output out = {.planes = order->done.width ? NULL : output,
                                   .images = order->done.width ? &image : NULL};
    const struct run_io run = {
        .inputs = &in, .outputs = &out, .range = model_range(MODEL_UPSCALER), .options = *options};
    const struct model_info *info;
    struct session *session;
    struct plan *plan;
    struct run_result result;
    enum error_code code = model_set_session(context->models, entry, precision, &session, &info, err);
    if (code == OK && (info->kind != MODEL_UPSCALER || info->scale != order->scale || order->width % info->unshuffle ||
                       order->height % info->unshuffle))
        code = error_set(err, ERROR_INVALID, "a tile that does not go with %s", entry->name);
    if (code == OK)
        code = session_submit(session, &shape, &run, &plan, err);
    if (code == OK)
        code = plan_wait(plan, &result, err);
    const char *fault = code == OK ? step_fault(&result, &source, &shape) : NULL;
    return fault ? error_set(err, ERROR_DEVICE, "a tile's result is %s", fault) : code;
}
