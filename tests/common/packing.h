/* What a packing of params should be, byte for byte, in plain C.
 * Thread-safety: functions without state. */
#ifndef TESTS_COMMON_PACKING_H
#define TESTS_COMMON_PACKING_H

#include "runtime/vulkan/vk_device.h"
#include "runtime/vulkan/vk_pack.h"

struct packing {
    const struct vk_pack_key *key;
    const float *values;
    uint32_t *in, *out; /* lanes, and none in the 32 after them */
    uint8_t *bytes;
    size_t size;
    bool left; /* of a matrix in fp32 */
};

/* To the nearest, ties to even; what is beyond the range becomes the largest number. */
uint16_t packing_half(float value);

/* What a half number of a split weight stands for. */
double packing_split_value(uint16_t bits);

/* Of the two numbers in fp16 that a weight is split into, the first one or what it leaves: each to the nearest, and no
 * number where the weight is too large. */
uint16_t packing_split(float value, bool left);

/* Fills bytes, for which there is room. */
void packing_expect(struct packing *packing, const struct vk_device *device);

/* The channel of each lane, for struct packing; the caller's to free(). */
uint32_t *packing_lanes(const struct vk_layout *layout);

#endif
