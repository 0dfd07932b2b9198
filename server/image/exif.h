/* The orientation tag (0x0112) of IFD0 in a TIFF block from an untrusted file: read and reset, every offset checked.
 * Thread-safety: functions without state. */
#ifndef SERVER_IMAGE_EXIF_H
#define SERVER_IMAGE_EXIF_H

#include <stddef.h>
#include <stdint.h>

/* 1..8; 1 when the block is broken, has no such tag or a value out of range. */
int exif_orientation(const uint8_t *tiff, size_t size);

/* Sets the tag to 1 if it is there; a block without it is left unchanged. */
void exif_reset_orientation(uint8_t *tiff, size_t size);

#endif
