/* A picture in memory: 8 or 16 bit, gray or RGB, an optional alpha plane, and the file's ICC, EXIF and XMP blobs. What
 * was lost (16 bit, gray, CMYK, a profile) is recorded in notes, for the report.
 * Thread-safety: a struct image belongs to one thread at a time; several threads may read one that nobody changes. */
#ifndef SERVER_IMAGE_IMAGE_H
#define SERVER_IMAGE_IMAGE_H

#include <stdbool.h>

#include "runtime/base/error.h"
#include "server/image/plane_room.h"
#include "server/image/view.h"

enum image_format {
    IMAGE_NONE,
    IMAGE_JPEG,
    IMAGE_PNG,
    IMAGE_WEBP,
    IMAGE_TIFF,
    IMAGE_AVIF,
    IMAGE_HEIC,
    IMAGE_JXL,
    IMAGE_JP2
};
#define IMAGE_FORMAT_COUNT (IMAGE_JP2 + 1)

/* Bits of image.notes; image_note_text has the sentence of each. */
enum image_note {
    IMAGE_NOTE_BITS_REDUCED = 1 << 0, /* 16 bit to 8 */
    IMAGE_NOTE_GRAY = 1 << 1,         /* gray to three equal channels */
    IMAGE_NOTE_CMYK = 1 << 2,         /* CMYK or YCCK to RGB by the plain formula */
    IMAGE_NOTE_ICC_KEPT = 1 << 3,     /* the pixels use a profile other than sRGB; it stays attached */
    IMAGE_NOTE_ICC_DROPPED = 1 << 4,  /* a gray or CMYK profile, or one that cannot be written */
    IMAGE_NOTE_FLATTENED = 1 << 5,    /* alpha flattened on white, for a format without alpha */
    IMAGE_NOTE_EXIF_DROPPED = 1 << 6, /* too large for the format's field */
    IMAGE_NOTE_XMP_DROPPED = 1 << 7,
    IMAGE_NOTE_GAMMA = 1 << 8,       /* a PNG's gamma other than sRGB's was applied */
    IMAGE_NOTE_EXIF_PARTLY = 1 << 9, /* a TIFF has its texts alone */
    IMAGE_NOTE_ICC_DAMAGED = 1 << 10,
    IMAGE_NOTE_ICC_CONVERTED = 1 << 11, /* a profile of tables: the pixels are sRGB now */
    IMAGE_NOTE_CMYK_PROFILE = 1 << 12,  /* CMYK to sRGB by the picture's profile */
    IMAGE_NOTE_IPTC_DROPPED = 1 << 13,
    IMAGE_NOTE_CMYK_KEPT = 1 << 14, /* the result is CMYK by the picture's profile again */
    IMAGE_NOTE_BASELINE = 1 << 15   /* too large for a progressive JPEG */
};
#define IMAGE_NOTE_COUNT 16

struct image_blob {
    uint8_t *data; /* malloc; NULL for none */
    size_t size;
};

struct image {
    int width, height; /* 1 and up */
    int channels;      /* 1 gray or 3 RGB, interleaved */
    int bits;          /* 8: uint8_t, 16: uint16_t in host order */
    void *pixels;      /* height rows of width*channels samples, no padding */
    void *alpha;       /* height rows of width samples of the same bits, not premultiplied; NULL: opaque */
    struct image_blob icc, exif, xmp; /* exif: the TIFF block, without JPEG's "Exif\0\0" */
    struct image_blob iptc;           /* IIM records, as they are in a resource of Photoshop's */
    double density[2];                /* px an inch, across and down; 0: unknown */
    struct image_blob colour;         /* the struct colour of a profile that is not sRGB, of a picture just decoded */
    struct image_blob cmyk;           /* how its colours become CMYK again (cmyk.h), of a picture that had it */
    enum image_format format;         /* of the source file; IMAGE_NONE if made here */
    unsigned notes;                   /* enum image_note */
    bool pixels_mapped, alpha_mapped; /* the plane is pages of a file (image_share, image_map), not from malloc */
};

/* A picture whose samples the caller must set, all of them (alpha: adds an opaque plane). ERROR_INVALID for sides,
 * channels or bits out of range; ERROR_NO_MEMORY also when the size does not fit size_t. */
enum error_code image_create(struct image **out, int width, int height, int channels, int bits, bool alpha,
                             struct error *err) MUST_CHECK;
void image_destroy(struct image **image);

/* Adds an opaque alpha plane. OK when there is one already. */
enum error_code image_add_alpha(struct image *image, struct error *err) MUST_CHECK;

/* These rows will not be used again soon: a very large picture need not keep them in memory (spill.h). */
void image_passed(const struct image *image, int first, int end);

/* Keeps this part of the picture, which lies within it. */
void image_cut(struct image *image, int x, int y, int width, int height);

/* Without its alpha plane, if it has one. */
void image_drop_alpha(struct image *image);

/* Rotates and mirrors pixels and alpha as EXIF orientation 1..8 says (anything else acts as 1), and resets the tag in
 * the EXIF blob to 1. */
enum error_code image_orient(struct image *image, int orientation, struct error *err) MUST_CHECK;

/* The orientation that turns a picture clockwise by 0 to 3 quarters. */
int image_quarters(int quarters);

/* Converts the picture to what the pipeline works on, 8 bit RGB, and notes what was reduced. cut: 16 bit becomes 8 by
 * dropping the low byte, as in the reference (compat); else by rounding, (v*255 + 32767) / 65535. An RGB profile stays:
 * the pixels are still in its space. A picture that is 8 bit RGB already is unchanged. On an error the picture is
 * unchanged. */
enum error_code image_reduce(struct image *image, bool cut, struct error *err) MUST_CHECK;

/* Makes a 16-bit picture RGB; a gray one gets three equal channels. On an error it is unchanged. */
enum error_code image_widen(struct image *image, struct error *err) MUST_CHECK;
/* A copy of a 16-bit picture in 8 bits, rounded, which takes its metadata. */
enum error_code image_shallow(struct image *from, struct image **out, struct error *err) MUST_CHECK;

/* Moves metadata, format and notes from one picture to another; blobs that it has already stay. */
void image_move_metadata(struct image *to, struct image *from);

/* Leaves out EXIF, XMP and IPTC. */
void image_strip(struct image *image);

/* Copies ICC, EXIF, XMP, IPTC, CMYK, density, format and notes from one picture to another of the same scene (input to
 * result). */
enum error_code image_copy_metadata(struct image *to, const struct image *from, struct error *err) MUST_CHECK;

/* From now on the planes of this process's pictures are pages of that file, so that another process can map them; for a
 * process that reads one picture with one thread that creates and changes pictures. disk: it lies on a disk and need
 * not stay in memory: pages leave it when they are passed. */
void image_share(int fd, bool disk);
/* Where a plane begins in the file. */
uint64_t image_shared_at(const void *plane);
/* Puts bytes into the file. false: it does not grow. */
bool image_share_bytes(const void *data, size_t size, uint64_t *at);

/* Until the next call planes are this process's own after all: they are not yet those of the picture to be shared. */
void image_share_later(bool later);

/* A whole number of pages for that many bytes. */
uint64_t image_pages_of(uint64_t bytes);

/* A picture of like's size, channels and bits whose planes are pages of a room's file that another process has filled;
 * the offset of one that is not there is UINT64_MAX. planes: how many of them lie in the room's data; none, if they are
 * not where they should be, and then they are mapped once more. ERROR_CORRUPT when the numbers make no sense or the
 * file is too short for them. */
enum error_code image_map(struct image **out, const struct plane_room *room, int *planes, const struct image *like,
                          uint64_t pixels, uint64_t alpha, struct error *err) MUST_CHECK;

/* Frees what the blob holds; it is empty then. */
void image_blob_clear(struct image_blob *blob);

/* Makes a copy of data (malloc); size 0 gives an empty blob and OK. The blob must be empty before. */
enum error_code image_blob_set(struct image_blob *blob, const void *data, size_t size, struct error *err) MUST_CHECK;

/* Views of an 8-bit picture's pixels and of its alpha plane, which must exist. */
struct view_u8 image_view(const struct image *image);
struct view_u8 image_alpha_view(const struct image *image);

/* "jpeg", "png", "webp", ...; "none". */
const char *image_format_name(enum image_format format);

/* The sentence of one bit of notes, such as "16-bit samples were reduced to 8 bits"; NULL for no such bit. */
const char *image_note_text(unsigned note);
/* Its name for programs, which does not change, such as "bits-reduced"; NULL for no such bit. */
const char *image_note_code(unsigned note);

#endif
