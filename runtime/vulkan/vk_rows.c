#include "runtime/vulkan/vk_rows.h"

#include <string.h>

#include "runtime/base/thread.h"

#define ITEM_BYTES ((size_t)1 << 16) /* of a thread's item, about: threads that still wake find some left */

static int rows_of_item(const struct vk_rows *r)
{
    return (int)(ITEM_BYTES / (r->bytes + 1)) + 1;
}

static int rows_items_of(const struct vk_rows *r)
{
    return (r->rows + rows_of_item(r) - 1) / rows_of_item(r);
}

static void rows_copy_item(void *context, int item)
{
    const struct vk_rows *r = context;
    for (; item >= rows_items_of(r); r++)
        item -= rows_items_of(r);
    const int begin = item * rows_of_item(r), end = begin + rows_of_item(r);
    for (int y = begin; y < end && y < r->rows; y++)
        memcpy(r->to + (size_t)y * r->to_stride, r->from + (size_t)y * r->from_stride, r->bytes);
}

static void rows_copy_all(const struct vk_rows *list, size_t count)
{
    int items = 0;
    for (size_t i = 0; i < count; i++)
        items += rows_items_of(&list[i]);
    thread_for(items, rows_copy_item, (void *)list);
}

static void rows_hand_out(const struct vk_rows *all)
{
    struct vk_rows some = *all;
    for (int y = 0; y < all->rows; y += some.rows) {
        some.rows = all->rows - y < all->most ? all->rows - y : all->most;
        some.from = all->from + (size_t)y * all->from_stride;
        rows_copy_all(&some, 1);
        all->take(all->user, some.rows);
    }
}

void vk_rows_copy(const struct vk_rows *list, size_t count)
{
    for (size_t i = 0, many; i < count; i += many) {
        for (many = 0; i + many < count && !list[i + many].take;)
            many++;
        if (many) {
            rows_copy_all(list + i, many);
        } else {
            rows_hand_out(list + i);
            many = 1;
        }
    }
}

void vk_rows_long(const char *from, char *to, size_t bytes, struct vk_rows out[2])
{
    const size_t rest = bytes % ITEM_BYTES, most = bytes - rest;
    out[0] = (struct vk_rows){.from = from,
                              .to = to,
                              .from_stride = ITEM_BYTES,
                              .to_stride = ITEM_BYTES,
                              .bytes = ITEM_BYTES,
                              .rows = (int)(bytes / ITEM_BYTES)};
    out[1] = (struct vk_rows){
        .from = from + most, .to = to + most, .from_stride = rest, .to_stride = rest, .bytes = rest, .rows = 1};
}
