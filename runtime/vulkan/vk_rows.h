/* Copies rows of bytes between pictures and memory that the device sees, on all cores.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_VULKAN_VK_ROWS_H
#define RUNTIME_VULKAN_VK_ROWS_H

#include <stddef.h>

struct vk_rows {
    const char *from;
    char *to;
    size_t from_stride, to_stride, bytes; /* bytes: of a row */
    int rows;
    /* Not NULL: `to` has room for `most` rows, and after as many, or the last, this is called (raster.h). */
    void (*take)(void *user, int rows);
    void *user;
    int most;
};

/* Copies all of them; those that are taken in their order. */
void vk_rows_copy(const struct vk_rows *list, size_t count);

/* Splits one long row into two lists of shorter ones, so that many cores can copy it. */
void vk_rows_long(const char *from, char *to, size_t bytes, struct vk_rows out[2]);

#endif
