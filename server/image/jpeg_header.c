#include "server/image/jpeg_header.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "runtime/base/mem.h"

#define DAMAGED "the JPEG is damaged or cut short: "
#define UNSUPPORTED "this kind of JPEG is not supported: "
#define ICC_HEADING "ICC_PROFILE" /* 12 bytes with the final 0, then the part's number and how many there are */

/* Marker codes of ITU-T T.81, table B.1. */
enum {
    MARKER_SOF0 = 0xc0,
    MARKER_DHT = 0xc4,
    MARKER_JPG = 0xc8,
    MARKER_DAC = 0xcc,
    MARKER_SOF15 = 0xcf,
    MARKER_RST0 = 0xd0,
    MARKER_RST7 = 0xd7,
    MARKER_EOI = 0xd9,
    MARKER_SOS = 0xda,
    MARKER_DQT = 0xdb,
    MARKER_DNL = 0xdc,
    MARKER_DRI = 0xdd,
    MARKER_APP0 = 0xe0,
    MARKER_APP1 = 0xe1,
    MARKER_APP2 = 0xe2,
    MARKER_APP13 = 0xed,
    MARKER_APP15 = 0xef,
    MARKER_COM = 0xfe,
    MARKER_TEM = 0x01
};

struct jpeg_walk {
    const uint8_t *bytes;
    size_t size, at, stray;
    int segments;
};

static unsigned jpeg_header_u16(const uint8_t *p)
{
    return p[0] * 256u + p[1];
}

static enum error_code jpeg_header_cut(struct error *err)
{
    return error_set(err, ERROR_CORRUPT, DAMAGED "it ends before the picture begins");
}

/* Goes to the next marker and past it. Bytes between segments are skipped, as in libjpeg: cameras pad. */
static enum error_code jpeg_header_next(struct jpeg_walk *walk, int *code, struct error *err)
{
    for (;;) {
        const size_t begin = walk->at;
        const uint8_t *found =
            walk->at < walk->size ? memchr(walk->bytes + walk->at, 0xff, walk->size - walk->at) : NULL;
        if (!found)
            return jpeg_header_cut(err);
        walk->at = (size_t)(found - walk->bytes);
        while (walk->at < walk->size && walk->bytes[walk->at] == 0xff)
            walk->at++;
        if (walk->at == walk->size)
            return jpeg_header_cut(err);
        *code = walk->bytes[walk->at++];
        walk->stray += walk->at - begin - (*code ? 2 : 0);
        if (walk->stray > JPEG_HEADER_STRAY)
            return error_set(err, ERROR_CORRUPT, DAMAGED "more than %u bytes before the picture belong to nothing",
                             JPEG_HEADER_STRAY);
        if (*code)
            break;
    }
    if (++walk->segments > JPEG_HEADER_SEGMENTS)
        return error_set(err, ERROR_CORRUPT, "the JPEG has more than %d segments before its picture",
                         JPEG_HEADER_SEGMENTS);
    return OK;
}

/* The payload of the segment whose marker was passed. */
static enum error_code jpeg_header_payload(struct jpeg_walk *walk, struct jpeg_header_blob *out, struct error *err)
{
    if (walk->size - walk->at < 2)
        return jpeg_header_cut(err);
    size_t length = jpeg_header_u16(walk->bytes + walk->at);
    length = length < 2 ? 2 : length; /* libjpeg treats such a segment as empty */
    if (length > walk->size - walk->at)
        return jpeg_header_cut(err);
    *out = (struct jpeg_header_blob){walk->bytes + walk->at + 2, length - 2};
    walk->at += length;
    return OK;
}

static enum error_code jpeg_header_frame(struct jpeg_header *header, int code, const struct jpeg_header_blob *payload,
                                         struct error *err)
{
    /* baseline, extended and progressive, by Huffman or arithmetic codes */
    const bool known = code <= MARKER_SOF0 + 2 || code == MARKER_SOF0 + 9 || code == MARKER_SOF0 + 10;
    if (!known)
        return error_set(err, ERROR_UNSUPPORTED, UNSUPPORTED "lossless or hierarchical (SOF%d)", code - MARKER_SOF0);
    if (header->components)
        return error_set(err, ERROR_CORRUPT, DAMAGED "it has two frames");
    if (payload->size < 6)
        return error_set(err, ERROR_CORRUPT, DAMAGED "its frame is too short");
    const uint8_t *p = payload->data;
    const int bits = p[0], components = p[5];
    const unsigned height = jpeg_header_u16(p + 1), width = jpeg_header_u16(p + 3);
    if (!height || !width || !components || payload->size != 6 + 3 * (size_t)components)
        return error_set(err, ERROR_CORRUPT, DAMAGED "its frame makes no sense");
    if (height > JPEG_MAX_DIMENSION || width > JPEG_MAX_DIMENSION)
        return error_set(err, ERROR_TOO_LARGE, "the JPEG has %u×%u pixels; at most %ld a side are read", width, height,
                         JPEG_MAX_DIMENSION);
    if (bits != 8)
        return error_set(err, ERROR_UNSUPPORTED, UNSUPPORTED "%d bits a sample", bits);
    if (components != 1 && components != 3 && components != 4)
        return error_set(err, ERROR_UNSUPPORTED, UNSUPPORTED "%d colour channels", components);
    header->width = (int)width;
    header->height = (int)height;
    header->components = components;
    return OK;
}

/* What follows the heading; the first one counts. */
static void jpeg_header_keep(struct jpeg_header_blob *blob, const struct jpeg_header_blob *payload, const char *heading,
                             size_t heading_size)
{
    if (!blob->data && payload->size > heading_size && memcmp(payload->data, heading, heading_size) == 0)
        *blob = (struct jpeg_header_blob){payload->data + heading_size, payload->size - heading_size};
}

/* ICC.1:2022, B.4. */
static void jpeg_header_profile(struct jpeg_header *header, const struct jpeg_header_blob *payload)
{
    const size_t heading = sizeof ICC_HEADING;
    if (payload->size < heading + 2 || memcmp(payload->data, ICC_HEADING, heading) != 0 || header->icc_count < 0)
        return;
    const int number = payload->data[heading], count = payload->data[heading + 1];
    if (!header->icc_count)
        header->icc_count = count;
    if (!number || number > count || count != header->icc_count || header->icc[number].data)
        header->icc_count = -1;
    else
        header->icc[number] = (struct jpeg_header_blob){payload->data + heading + 2, payload->size - heading - 2};
}

enum error_code jpeg_header_read(const uint8_t *bytes, size_t size, struct jpeg_header *out, struct error *err)
{
    struct jpeg_walk walk = {.bytes = bytes, .size = size, .at = 2};
    memset(out, 0, sizeof *out);
    for (;;) {
        int marker;
        struct jpeg_header_blob payload = {0};
        enum error_code code = jpeg_header_next(&walk, &marker, err);
        if (code)
            return code;
        if (marker == MARKER_TEM || (marker >= MARKER_RST0 && marker <= MARKER_RST7))
            continue;
        if (marker == MARKER_EOI)
            return jpeg_header_cut(err);
        const bool frame =
            marker >= MARKER_SOF0 && marker <= MARKER_SOF15 && marker != MARKER_DHT && marker != MARKER_DAC;
        const bool known = frame || marker == MARKER_DHT || marker == MARKER_DAC ||
                           (marker >= MARKER_SOS && marker <= MARKER_DRI) ||
                           (marker >= MARKER_APP0 && marker <= MARKER_APP15) || marker == MARKER_COM;
        if (!known)
            return error_set(err, ERROR_CORRUPT, DAMAGED "the marker %02x stands before the picture", marker);
        if (marker == MARKER_SOS && !out->components)
            return error_set(err, ERROR_CORRUPT, DAMAGED "a scan comes before its frame");
        if (marker == MARKER_SOS)
            return OK;
        code = jpeg_header_payload(&walk, &payload, err);
        if (!code && frame)
            code = jpeg_header_frame(out, marker, &payload, err);
        if (code)
            return code;
        if (marker == MARKER_APP1) {
            jpeg_header_keep(&out->exif, &payload, JPEG_HEADER_EXIF, sizeof JPEG_HEADER_EXIF);
            jpeg_header_keep(&out->xmp, &payload, JPEG_HEADER_XMP, sizeof JPEG_HEADER_XMP);
        } else if (marker == MARKER_APP2) {
            jpeg_header_profile(out, &payload);
        } else if (marker == MARKER_APP13) {
            jpeg_header_keep(&out->resources, &payload, JPEG_HEADER_RESOURCES, sizeof JPEG_HEADER_RESOURCES);
        }
    }
}

enum error_code jpeg_header_icc(const struct jpeg_header *header, uint8_t **out, size_t *size, struct error *err)
{
    *out = NULL;
    *size = 0;
    size_t total = 0;
    for (int i = 1; i <= header->icc_count; i++) {
        if (!header->icc[i].data)
            return OK;                /* a part is missing */
        total += header->icc[i].size; /* each below 64 KiB */
    }
    if (!total)
        return OK;
    uint8_t *profile = mem_alloc(total, 1);
    if (!profile)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a colour profile");
    for (int i = 1; i <= header->icc_count; i++) {
        memcpy(profile + *size, header->icc[i].data, header->icc[i].size);
        *size += header->icc[i].size;
    }
    *out = profile;
    return OK;
}
