/* The little that we read of an ICC profile from an untrusted file: its colour space, and whether it is called sRGB.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_ICC_H
#define SERVER_IMAGE_ICC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum icc_space { ICC_NONE, ICC_GRAY, ICC_RGB, ICC_OTHER }; /* ICC_NONE: no profile, or no valid header */

enum icc_space icc_space(const uint8_t *profile, size_t size);

/* Whether the description tag contains "sRGB": the only mark that all sRGB profiles share. */
bool icc_is_srgb(const uint8_t *profile, size_t size);

#endif
