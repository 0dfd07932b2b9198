/* Rows of bytes on their way between pictures and memory that the device sees, which all cores carry.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_VULKAN_VK_ROWS_H
#define RUNTIME_VULKAN_VK_ROWS_H

#include <stddef.h>

struct vk_rows {
    const char *from;
    char *to;
    size_t from_stride, to_stride, bytes; /* bytes: of a row */
    int rows;
};

/* Copies all of them. */
void vk_rows_copy(const struct vk_rows *list, size_t count);

/* One long row as two lists of shorter ones, which many cores can carry. */
void vk_rows_long(const char *from, char *to, size_t bytes, struct vk_rows out[2]);

#endif
