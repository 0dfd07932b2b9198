#include "server/image/image.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/exif.h"
#include "server/image/icc.h"

static enum error_code image_no_memory(struct error *err, int width, int height)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture of %d×%d pixels", width, height);
}

/* width*height*channels samples of bits, uninitialised; NULL also when the product does not fit. */
static void *image_plane(int width, int height, int channels, int bits)
{
    size_t row, samples;
    if (!mem_mul((size_t)width, (size_t)channels * (size_t)(bits / 8), &row) || !mem_mul(row, (size_t)height, &samples))
        return NULL;
    return mem_alloc(samples, 1);
}

static size_t image_samples(const struct image *image, int channels)
{
    return (size_t)image->width * (size_t)image->height * (size_t)channels;
}

enum error_code image_create(struct image **out, int width, int height, int channels, int bits, bool alpha,
                             struct error *err)
{
    *out = NULL;
    if (width < 1 || height < 1 || (channels != 1 && channels != 3) || (bits != 8 && bits != 16))
        return error_set(err, ERROR_INVALID, "no picture can have %d×%d pixels, %d channels, %d bits", width, height,
                         channels, bits);
    struct image *image = mem_calloc(1, sizeof *image);
    if (!image)
        return image_no_memory(err, width, height);
    *image = (struct image){.width = width, .height = height, .channels = channels, .bits = bits};
    image->pixels = image_plane(width, height, channels, bits);
    if (!image->pixels || (alpha && image_add_alpha(image, err) != OK)) {
        image_destroy(&image);
        return image_no_memory(err, width, height);
    }
    *out = image;
    return OK;
}

void image_destroy(struct image **image)
{
    struct image *old = *image;
    if (!old)
        return;
    free(old->pixels);
    free(old->alpha);
    free(old->icc.data);
    free(old->exif.data);
    free(old->xmp.data);
    free(old);
    *image = NULL;
}

enum error_code image_add_alpha(struct image *image, struct error *err)
{
    if (image->alpha)
        return OK;
    image->alpha = image_plane(image->width, image->height, 1, image->bits);
    if (!image->alpha)
        return image_no_memory(err, image->width, image->height);
    memset(image->alpha, 0xff, image_samples(image, 1) * (size_t)(image->bits / 8));
    return OK;
}

/* Where upright pixel (x, y) comes from in a stored picture of width × height: TIFF 6.0, tag 274. */
static inline size_t image_orient_from(int orientation, int width, int height, int x, int y)
{
    bool swap = orientation >= 5;                                                              /* rows were columns */
    bool right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8; /* stored x runs back */
    bool down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;  /* stored y runs back */
    int sx = swap ? y : x, sy = swap ? x : y;
    return (size_t)(down ? height - 1 - sy : sy) * (size_t)width + (size_t)(right ? width - 1 - sx : sx);
}

/* Inlined once for each pixel size, so that each copy is a few moves. Square blocks keep both sides in cache when x and
 * y swap. */
static inline __attribute__((always_inline)) void image_orient_plane(char *to, const char *from, int orientation,
                                                                     int width, int height, size_t pixel)
{
    enum { BLOCK = 32 };
    int out_width = orientation >= 5 ? height : width, out_height = orientation >= 5 ? width : height;
    for (int y0 = 0; y0 < out_height; y0 += BLOCK)
        for (int x0 = 0; x0 < out_width; x0 += BLOCK)
            for (int y = y0; y < y0 + BLOCK && y < out_height; y++)
                for (int x = x0; x < x0 + BLOCK && x < out_width; x++)
                    memcpy(to + ((size_t)y * (size_t)out_width + (size_t)x) * pixel,
                           from + image_orient_from(orientation, width, height, x, y) * pixel, pixel);
}

static void *image_oriented(const struct image *image, const void *plane, int channels, int orientation)
{
    int width = image->width, height = image->height;
    void *to = image_plane(width, height, channels, image->bits);
    if (!to)
        return NULL;
    switch (channels * (image->bits / 8)) {
    case 1:
        image_orient_plane(to, plane, orientation, width, height, 1);
        break;
    case 2:
        image_orient_plane(to, plane, orientation, width, height, 2);
        break;
    case 3:
        image_orient_plane(to, plane, orientation, width, height, 3);
        break;
    default:
        image_orient_plane(to, plane, orientation, width, height, 6);
    }
    return to;
}

enum error_code image_orient(struct image *image, int orientation, struct error *err)
{
    if (orientation >= 2 && orientation <= 8) {
        void *pixels = image_oriented(image, image->pixels, image->channels, orientation);
        void *alpha = image->alpha && pixels ? image_oriented(image, image->alpha, 1, orientation) : NULL;
        if (!pixels || (image->alpha && !alpha)) {
            free(pixels);
            return image_no_memory(err, image->width, image->height);
        }
        free(image->pixels);
        free(image->alpha);
        image->pixels = pixels;
        image->alpha = alpha;
        if (orientation >= 5) {
            int width = image->width;
            image->width = image->height;
            image->height = width;
        }
    }
    if (image->exif.data)
        exif_reset_orientation(image->exif.data, image->exif.size);
    return OK;
}

static uint8_t image_byte(const void *plane, int bits, size_t i, bool cut)
{
    if (bits == 8)
        return ((const uint8_t *)plane)[i];
    unsigned v = ((const uint16_t *)plane)[i];
    return (uint8_t)(cut ? v >> 8 : (v * 255u + 32767u) / 65535u);
}

/* The plane as 8 bit with each sample copies times, or NULL. */
static uint8_t *image_bytes(const struct image *image, const void *plane, int channels, int copies, bool cut)
{
    uint8_t *to = image_plane(image->width, image->height, channels * copies, 8);
    size_t n = image_samples(image, channels);
    for (size_t i = 0, at = 0; to && i < n; i++) {
        uint8_t v = image_byte(plane, image->bits, i, cut);
        for (int k = 0; k < copies; k++)
            to[at++] = v;
    }
    return to;
}

static void image_blob_clear(struct image_blob *blob)
{
    free(blob->data);
    *blob = (struct image_blob){0};
}

enum error_code image_reduce(struct image *image, bool cut, struct error *err)
{
    bool gray = image->channels == 1, deep = image->bits == 16;
    if (gray || deep) {
        uint8_t *pixels = image_bytes(image, image->pixels, image->channels, gray ? 3 : 1, cut);
        uint8_t *alpha = pixels && image->alpha ? image_bytes(image, image->alpha, 1, 1, cut) : NULL;
        if (!pixels || (image->alpha && !alpha)) {
            free(pixels);
            return image_no_memory(err, image->width, image->height);
        }
        free(image->pixels);
        free(image->alpha);
        image->pixels = pixels;
        image->alpha = alpha;
        image->channels = 3;
        image->bits = 8;
        image->notes |= (gray ? IMAGE_NOTE_GRAY : 0u) | (deep ? IMAGE_NOTE_BITS_REDUCED : 0u);
    }
    if (image->icc.data && icc_space(image->icc.data, image->icc.size) != ICC_RGB) {
        image_blob_clear(&image->icc); /* it says nothing about RGB values */
        image->notes |= IMAGE_NOTE_ICC_DROPPED;
    } else if (image->icc.data && !icc_is_srgb(image->icc.data, image->icc.size)) {
        image->notes |= IMAGE_NOTE_ICC_KEPT;
    }
    return OK;
}

enum error_code image_blob_set(struct image_blob *blob, const void *data, size_t size, struct error *err)
{
    assert(!blob->data);
    if (size == 0)
        return OK;
    blob->data = mem_alloc(size, 1);
    if (!blob->data)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata (%zu bytes)", size);
    memcpy(blob->data, data, size);
    blob->size = size;
    return OK;
}

enum error_code image_copy_metadata(struct image *to, const struct image *from, struct error *err)
{
    image_blob_clear(&to->icc);
    image_blob_clear(&to->exif);
    image_blob_clear(&to->xmp);
    to->format = from->format;
    to->notes |= from->notes;
    enum error_code code = image_blob_set(&to->icc, from->icc.data, from->icc.size, err);
    if (code == OK)
        code = image_blob_set(&to->exif, from->exif.data, from->exif.size, err);
    if (code == OK)
        code = image_blob_set(&to->xmp, from->xmp.data, from->xmp.size, err);
    return code;
}

struct view_u8 image_view(const struct image *image)
{
    assert(image->bits == 8);
    return (struct view_u8){image->pixels, image->width, image->height, image->channels,
                            (size_t)image->width * (size_t)image->channels};
}

struct view_u8 image_alpha_view(const struct image *image)
{
    assert(image->bits == 8 && image->alpha);
    return (struct view_u8){image->alpha, image->width, image->height, 1, (size_t)image->width};
}

const char *image_format_name(enum image_format format)
{
    static const char *const names[] = {"none", "jpeg", "png", "webp", "tiff", "avif", "heic", "jxl", "jp2"};
    return names[format];
}

const char *image_note_text(unsigned note)
{
    switch (note) {
    case IMAGE_NOTE_BITS_REDUCED:
        return "16-bit samples were reduced to 8 bits";
    case IMAGE_NOTE_GRAY:
        return "the gray picture was turned into RGB";
    case IMAGE_NOTE_CMYK:
        return "CMYK colours were converted to RGB without a colour profile";
    case IMAGE_NOTE_ICC_KEPT:
        return "the picture's ICC profile is not sRGB; its values were used as they are and the profile is kept";
    case IMAGE_NOTE_ICC_DROPPED:
        return "an ICC profile that does not fit the result was dropped";
    case IMAGE_NOTE_FLATTENED:
        return "transparency was flattened on white, since the output format has none";
    case IMAGE_NOTE_EXIF_DROPPED:
        return "the EXIF data is too large for the output format and was dropped";
    case IMAGE_NOTE_XMP_DROPPED:
        return "the XMP data is too large for the output format and was dropped";
    case IMAGE_NOTE_GAMMA:
        return "the picture's gamma was converted to sRGB's";
    default:
        return NULL;
    }
}
