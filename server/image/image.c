#include "server/image/image.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "runtime/base/thread.h"
#include "server/image/exif.h"
#include "server/image/icc.h"

static enum error_code image_no_memory(struct error *err, int width, int height)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture of %d×%d pixels", width, height);
}

#define IMAGE_SHARED 16                    /* planes at a time */
#define IMAGE_FAULT_IN ((size_t)256 << 10) /* bytes of a plane that are worth a thread */

static struct {
    int fd;     /* -1: planes are from malloc */
    bool later; /* so are they now */
    bool disk;  /* the file is on a disk */
    uint64_t end;
    struct {
        void *data; /* NULL: free */
        uint64_t at;
    } planes[IMAGE_SHARED];
} image_shared = {.fd = -1};

void image_share(int fd, bool disk)
{
    image_shared.fd = fd;
    image_shared.disk = disk;
}

void image_share_later(bool later)
{
    if (image_shared.fd >= 0)
        image_shared.later = later;
}

static bool image_sharing(void)
{
    return image_shared.fd >= 0 && !image_shared.later;
}

uint64_t image_shared_at(const void *plane)
{
    for (int i = 0; i < IMAGE_SHARED; i++)
        if (image_shared.planes[i].data == plane)
            return image_shared.planes[i].at;
    return UINT64_MAX;
}

static uint64_t image_page(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

struct image_pages {
    void *data;
    size_t bytes;
};

static void *image_fault_in_thread(void *argument)
{
    const struct image_pages *pages = argument;
    if (madvise(pages->data, pages->bytes, MADV_POPULATE_WRITE))
        errno = 0; /* each page at its first use, then */
    free(argument);
    return NULL;
}

/* Pages come from the system while the picture's first rows are being read: at twice the speed of single faults, and on
 * another core. */
static void image_fault_in(void *data, size_t bytes)
{
    pthread_t thread;
    struct image_pages *pages = bytes < IMAGE_FAULT_IN ? NULL : mem_alloc(1, sizeof *pages);
    if (!pages)
        return;
    *pages = (struct image_pages){data, bytes};
    if (pthread_create(&thread, NULL, image_fault_in_thread, pages))
        free(pages);
    else
        pthread_detach(thread);
}

/* Makes the file as long, unless it is longer. Who maps it ahead may lengthen it at the same time, and then it cannot
 * be made shorter (F_SEAL_SHRINK). */
static bool image_shared_reach(uint64_t end)
{
    struct stat status;
    const bool known = fstat(image_shared.fd, &status) == 0;
    return known && ((uint64_t)status.st_size >= end || ftruncate(image_shared.fd, (off_t)end) == 0 ||
                     (fstat(image_shared.fd, &status) == 0 && (uint64_t)status.st_size >= end));
}

/* The next pages of the file, which may be there already. */
static void *image_shared_take(size_t bytes)
{
    int i = 0;
    while (i < IMAGE_SHARED && image_shared.planes[i].data)
        i++;
    const uint64_t at = image_shared.end, end = at + bytes + (image_page() - bytes % image_page()) % image_page();
    if (i == IMAGE_SHARED || end > INT64_MAX || end < at || !image_shared_reach(end))
        return NULL;
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, image_shared.fd, (off_t)at);
    if (data == MAP_FAILED)
        return NULL;
    if (!image_shared.disk)
        image_fault_in(data, bytes);
    image_shared.end = end;
    image_shared.planes[i].data = data;
    image_shared.planes[i].at = at;
    return data;
}

bool image_share_bytes(const void *data, size_t size, uint64_t *at)
{
    void *to = image_shared_take(size);
    if (!to)
        return false;
    memcpy(to, data, size);
    *at = image_shared_at(to);
    return true;
}

static void image_plane_free(void *plane, size_t bytes, bool mapped)
{
    if (!plane || !mapped) {
        spill_free(plane);
        return;
    }
    if (plane_room_leave(plane))
        return;
    for (int i = 0; image_shared.fd >= 0 && i < IMAGE_SHARED; i++)
        if (image_shared.planes[i].data == plane) { /* nobody else has these pages */
            image_shared.planes[i].data = NULL;
            if (fallocate(image_shared.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)image_shared.planes[i].at,
                          (off_t)bytes))
                break; /* they stay until the file is closed */
        }
    munmap(plane, bytes);
}

/* width*height*channels samples of bits, uninitialised; NULL also when the product does not fit. */
static void *image_plane(int width, int height, int channels, int bits)
{
    size_t row, samples;
    if (!mem_mul((size_t)width, (size_t)channels * (size_t)(bits / 8), &row) || !mem_mul(row, (size_t)height, &samples))
        return NULL;
    return image_sharing() ? image_shared_take(samples) : spill_alloc(samples, 1);
}

static size_t image_samples(const struct image *image, int channels)
{
    return (size_t)image->width * (size_t)image->height * (size_t)channels;
}

static size_t image_plane_bytes(const struct image *image, int channels)
{
    return image_samples(image, channels) * (size_t)(image->bits / 8);
}

void image_drop_alpha(struct image *image)
{
    image_plane_free(image->alpha, image_plane_bytes(image, 1), image->alpha_mapped);
    image->alpha = NULL;
    image->alpha_mapped = false;
}

/* Samples of a plane that will not be used again soon. */
static void image_plane_passed(const void *plane, size_t at, size_t bytes)
{
    const uintptr_t begin = ((uintptr_t)plane + at) / image_page() * image_page(), end = (uintptr_t)plane + at + bytes;
    if (!image_sharing() || !image_shared.disk)
        spill_passed((const uint8_t *)plane + at, bytes);
    else if (image_shared_at(plane) != UINT64_MAX &&
             madvise((void *)begin, end / image_page() * image_page() - begin, MADV_DONTNEED))
        errno = 0; /* they stay, then */
}

void image_passed(const struct image *image, int first, int end)
{
    const size_t sample = (size_t)image->bits / 8, width = (size_t)image->width, rows = (size_t)(end - first);
    const size_t row = width * (size_t)image->channels * sample;
    if (first < end)
        image_plane_passed(image->pixels, (size_t)first * row, rows * row);
    if (first < end && image->alpha)
        image_plane_passed(image->alpha, (size_t)first * width * sample, rows * width * sample);
}

static void image_cut_plane(const struct image *image, uint8_t *plane, int channels, const int part[4])
{
    const size_t pixel = (size_t)channels * (size_t)(image->bits / 8), row = (size_t)image->width * pixel,
                 kept = (size_t)part[2] * pixel;
    for (int y = 0; y < part[3]; y++) {
        memmove(plane + (size_t)y * kept, plane + (size_t)(part[1] + y) * row + (size_t)part[0] * pixel, kept);
        spill_passed(plane + (size_t)y * kept, kept);
        spill_passed(plane + (size_t)(part[1] + y) * row, row);
    }
}

void image_cut(struct image *image, int x, int y, int width, int height)
{
    const int part[4] = {x, y, width, height};
    assert(x >= 0 && y >= 0 && width > 0 && height > 0 && width <= image->width - x && height <= image->height - y);
    if (width == image->width && height == image->height)
        return;
    assert(!image->pixels_mapped && !image->alpha_mapped); /* such planes are freed by their size */
    image_cut_plane(image, image->pixels, image->channels, part);
    if (image->alpha)
        image_cut_plane(image, image->alpha, 1, part);
    image->width = width;
    image->height = height;
}

static void image_free_planes(struct image *image)
{
    image_drop_alpha(image);
    image_plane_free(image->pixels, image_plane_bytes(image, image->channels), image->pixels_mapped);
    image->pixels = NULL;
}

/* Planes of image_plane instead of those that it has. */
static void image_set_planes(struct image *image, void *pixels, void *alpha)
{
    image_free_planes(image);
    image->pixels = pixels;
    image->alpha = alpha;
    image->pixels_mapped = image_sharing();
    image->alpha_mapped = alpha && image_sharing();
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
    image->pixels_mapped = image_sharing();
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
    image_free_planes(old);
    free(old->icc.data);
    free(old->exif.data);
    free(old->xmp.data);
    free(old->iptc.data);
    free(old->colour.data);
    free(old->cmyk.data);
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
    image->alpha_mapped = image_sharing();
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

int image_quarters(int quarters)
{
    return (int[]){1, 6, 3, 8}[quarters];
}

enum error_code image_orient(struct image *image, int orientation, struct error *err)
{
    if (orientation >= 2 && orientation <= 8) {
        void *pixels = image_oriented(image, image->pixels, image->channels, orientation);
        void *alpha = image->alpha && pixels ? image_oriented(image, image->alpha, 1, orientation) : NULL;
        if (!pixels || (image->alpha && !alpha)) {
            image_plane_free(pixels, image_plane_bytes(image, image->channels), image_sharing());
            return image_no_memory(err, image->width, image->height);
        }
        image_set_planes(image, pixels, alpha);
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

uint64_t image_pages_of(uint64_t bytes)
{
    return bytes + (image_page() - bytes % image_page()) % image_page();
}

/* A plane of a file; NULL: it is not all there, or cannot be mapped. */
static void *image_map_plane(int fd, uint64_t at, uint64_t bytes)
{
    struct stat status;
    if (at % image_page() || fstat(fd, &status) || bytes > (uint64_t)status.st_size ||
        at > (uint64_t)status.st_size - bytes)
        return NULL;
    void *plane = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)at);
    return plane == MAP_FAILED ? NULL : plane;
}

enum error_code image_map(struct image **out, const struct plane_room *room, int *planes, const struct image *like,
                          uint64_t pixels, uint64_t alpha, struct error *err)
{
    const int width = like->width, height = like->height, channels = like->channels, bits = like->bits;
    *out = NULL;
    *planes = 0;
    if (width < 1 || height < 1 || (channels != 1 && channels != 3) || (bits != 8 && bits != 16))
        return error_set(err, ERROR_CORRUPT, "no picture can have %d×%d pixels, %d channels, %d bits", width, height,
                         channels, bits);
    struct image *image = mem_calloc(1, sizeof *image);
    if (!image)
        return image_no_memory(err, width, height);
    *image = (struct image){.width = width, .height = height, .channels = channels, .bits = bits};
    const uint64_t first = image_plane_bytes(image, channels), second = image_plane_bytes(image, 1),
                   behind = image_pages_of(first);
    image->pixels_mapped = true;
    image->alpha_mapped = alpha != UINT64_MAX;
    if (room->data && pixels == 0 && alpha == (image->alpha_mapped ? behind : UINT64_MAX) &&
        room->bytes >= behind + (image->alpha_mapped ? image_pages_of(second) : 0)) {
        image->pixels = room->data;
        image->alpha = image->alpha_mapped ? room->data + behind : NULL;
        *planes = 1 + image->alpha_mapped;
    } else {
        image->pixels = image_map_plane(room->fd, pixels, first);
        image->alpha = image->alpha_mapped ? image_map_plane(room->fd, alpha, second) : NULL;
    }
    if (!image->pixels || (image->alpha_mapped && !image->alpha)) {
        image_destroy(&image);
        return error_set(err, ERROR_CORRUPT, "the pixels of a picture of %d×%d are not there", width, height);
    }
    *out = image;
    return OK;
}

static unsigned image_sample(const void *plane, int bits, size_t i, int wanted, bool cut)
{
    const unsigned v = bits == 8 ? ((const uint8_t *)plane)[i] : ((const uint16_t *)plane)[i];
    return bits == wanted ? v : cut ? v >> 8 : (v * 255u + 32767u) / 65535u;
}

struct image_loop {
    const struct image *image;
    const void *from;
    void *to;
    int channels, copies, bits; /* of from; of each sample in to, and its bits: those of the picture, or 8 */
    bool cut;
};

static void image_convert_rows(void *context, int item)
{
    const struct image_loop *loop = context;
    const size_t row = (size_t)loop->image->width * (size_t)loop->channels;
    int begin, end;
    thread_band(loop->image->height, item, &begin, &end);
    size_t at = (size_t)begin * row * (size_t)loop->copies;
    for (size_t i = (size_t)begin * row; i < (size_t)end * row; i++) {
        const unsigned v = image_sample(loop->from, loop->image->bits, i, loop->bits, loop->cut);
        for (int k = 0; k < loop->copies; k++, at++)
            if (loop->bits == 8)
                ((uint8_t *)loop->to)[at] = (uint8_t)v;
            else
                ((uint16_t *)loop->to)[at] = (uint16_t)v;
    }
}

/* The plane with so many bits and each sample copies times, or NULL. */
static void *image_converted(const struct image *image, const void *plane, int channels, int copies, int bits, bool cut)
{
    struct image_loop loop = {
        image, plane, image_plane(image->width, image->height, channels * copies, bits), channels, copies, bits, cut};
    if (loop.to)
        thread_for(thread_bands(image->height), image_convert_rows, &loop);
    return loop.to;
}

enum error_code image_widen(struct image *image, struct error *err)
{
    assert(image->bits == 16);
    if (image->channels == 3)
        return OK;
    void *pixels = image_converted(image, image->pixels, 1, 3, 16, false);
    if (!pixels)
        return image_no_memory(err, image->width, image->height);
    image_plane_free(image->pixels, image_plane_bytes(image, 1), image->pixels_mapped);
    image->pixels = pixels;
    image->pixels_mapped = image_sharing();
    image->channels = 3;
    image->notes |= IMAGE_NOTE_GRAY;
    return OK;
}

enum error_code image_shallow(struct image *from, struct image **out, struct error *err)
{
    assert(from->bits == 16);
    struct image *image = *out = mem_calloc(1, sizeof *image);
    if (!image)
        return image_no_memory(err, from->width, from->height);
    *image = (struct image){.width = from->width, .height = from->height, .channels = from->channels, .bits = 8};
    void *pixels = image_converted(from, from->pixels, from->channels, 1, 8, false);
    void *alpha = from->alpha ? image_converted(from, from->alpha, 1, 1, 8, false) : NULL;
    image_set_planes(image, pixels, alpha);
    if (!pixels || (from->alpha && !alpha)) {
        image_destroy(out);
        return image_no_memory(err, from->width, from->height);
    }
    image_move_metadata(image, from);
    return OK;
}

enum error_code image_reduce(struct image *image, bool cut, struct error *err)
{
    bool gray = image->channels == 1, deep = image->bits == 16;
    if (gray || deep) {
        void *pixels = image_converted(image, image->pixels, image->channels, gray ? 3 : 1, 8, cut);
        void *alpha = pixels && image->alpha ? image_converted(image, image->alpha, 1, 1, 8, cut) : NULL;
        if (!pixels || (image->alpha && !alpha)) {
            image_plane_free(pixels, image_samples(image, 3), image_sharing());
            return image_no_memory(err, image->width, image->height);
        }
        image_set_planes(image, pixels, alpha);
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
