#include "runtime/vulkan/vk_layers.h"

#include <string.h>

#include "runtime/vulkan/vk_rows.h"

#define PIXEL (4 * sizeof(float))

/* The part of a layer that lies over the target, in the target's px. */
struct overlap {
    uint32_t left, top, right, bottom;
};

static bool layers_overlap_of(const struct raster_target *target, const struct raster_layer *layer, struct overlap *out)
{
    const int left = layer->x - target->left, top = layer->y - target->top;
    const int right = left + layer->width, bottom = top + layer->height;
    if (right <= 0 || bottom <= 0 || left >= target->width || top >= target->height)
        return false;
    *out = (struct overlap){(uint32_t)(left > 0 ? left : 0), (uint32_t)(top > 0 ? top : 0),
                            (uint32_t)(right < target->width ? right : target->width),
                            (uint32_t)(bottom < target->height ? bottom : target->height)};
    return true;
}

uint64_t vk_layers_bytes(const struct raster_target *target)
{
    uint64_t pixels = 0;
    struct overlap o;
    for (int i = 0; i < target->layer_count; i++)
        if (layers_overlap_of(target, &target->layers[i], &o))
            pixels += 2 + (uint64_t)(o.right - o.left) * (o.bottom - o.top);
    return pixels * PIXEL;
}

void vk_layers_write(const struct raster_target *target, void *part, uint32_t *used, struct params_raster *push)
{
    uint32_t(*const to)[4] = part;
    struct overlap o;
    push->layers = *used;
    for (int i = 0; i < target->layer_count; i++)
        push->layer_count += layers_overlap_of(target, &target->layers[i], &o);
    uint32_t item = push->layers, next = push->layers + 2 * push->layer_count;
    for (int i = 0; i < target->layer_count; i++) {
        const struct raster_layer *layer = &target->layers[i];
        if (!layers_overlap_of(target, layer, &o))
            continue;
        const uint32_t width = o.right - o.left, height = o.bottom - o.top;
        const size_t x = (size_t)(target->left + (int)o.left - layer->x),
                     y = (size_t)(target->top + (int)o.top - layer->y);
        const struct vk_rows rows = {.from = (const char *)(layer->rgba + 4 * (y * (size_t)layer->width + x)),
                                     .to = (char *)to[next],
                                     .from_stride = (size_t)layer->width * PIXEL,
                                     .to_stride = width * PIXEL,
                                     .bytes = width * PIXEL,
                                     .rows = (int)height};
        memcpy(to[item++], &o, sizeof o);
        memcpy(to[item], (const uint32_t[]){next, width}, 2 * sizeof(uint32_t));
        memcpy(&to[item++][2], &layer->weight, sizeof layer->weight);
        vk_rows_copy(&rows, 1);
        next += width * height;
    }
    *used = next;
}
