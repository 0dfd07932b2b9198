/* Names of files in formats that are not read: those that people send most, and what to do about each. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "server/image/codec_row.h"

#define OTHER_LOOK 1024    /* bytes looked at of a text */
#define OTHER_ENTRIES 1024 /* of a TIFF's first directory */

#define CONVERT "export it as JPEG or PNG"
#define DECODE "the file's own bytes are needed"
#define RAW_FILE "this is a camera's raw file, which cannot be read yet; develop it and export it as JPEG or PNG"

static bool other_at(const uint8_t *bytes, size_t size, size_t offset, const char *magic, size_t length)
{
    return size >= offset + length && !memcmp(bytes + offset, magic, length);
}

struct tiff {
    const uint8_t *bytes;
    size_t size;
    bool big;
};

static uint32_t other_number(const struct tiff *tiff, size_t at, int count)
{
    uint32_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint32_t)tiff->bytes[at + (size_t)i] << 8 * (tiff->big ? count - 1 - i : i);
    return value;
}

/* Whether a TIFF is a camera's: DNG says so, and NEF, ARW and their like have a maker and put the picture into
 * directories below the first one. */
bool codec_is_raw(const uint8_t *bytes, size_t size)
{
    const struct tiff tiff = {bytes, size, size > 0 && bytes[0] == 'M'};
    bool make = false, below = false;
    if (other_at(bytes, size, 8, "CR", 2))
        return true;
    if (size < 8 || bytes[2] == '+' || bytes[3] == '+')
        return false;
    size_t at = other_number(&tiff, 4, 4);
    if (at > size - 2)
        return false;
    size_t count = other_number(&tiff, at, 2);
    at += 2;
    for (size_t i = 0; i < count && i < OTHER_ENTRIES && size - at >= 12; i++, at += 12) {
        uint32_t tag = other_number(&tiff, at, 2);
        if (tag == 0xc612) /* DNGVersion */
            return true;
        make |= tag == 0x010f;  /* Make */
        below |= tag == 0x014a; /* SubIFDs */
    }
    return make && below;
}

/* Whether the first box of an ISO base media file names one of these brands, 4 bytes each. */
static bool other_has_brand(const uint8_t *bytes, size_t size, const char *brands)
{
    const struct tiff box = {bytes, size, true};
    size_t end = size >= 16 ? other_number(&box, 0, 4) : 0;
    for (size_t at = 8; at + 4 <= end && at + 4 <= size && at < OTHER_LOOK; at += at == 8 ? 8 : 4) /* 12: a version */
        for (const char *brand = brands; *brand; brand += 4)
            if (!memcmp(bytes + at, brand, 4))
                return true;
    return false;
}

/* Formats that are recognised by their first bytes. */
static const struct {
    size_t offset;
    const char *magic;
    size_t length;
    const char *sentence;
} other_rows[] = {
#define ROW(offset, magic, sentence)                                                                                   \
    {                                                                                                                  \
        offset, magic, sizeof magic - 1, sentence                                                                      \
    }
#define RAW(magic) ROW(0, magic, RAW_FILE)
    ROW(0, "GIF8", "this is a GIF, which cannot be read yet; " CONVERT),
    RAW("IIU\0"),
    RAW("IIRO"),
    RAW("IIRS"),
    RAW("MMOR"),
    RAW("FUJIFILMCCD-RAW"),
    RAW("FOVb"),
    RAW("\0MRM"),
    ROW(6, "HEAPCCDR", RAW_FILE),
    ROW(0, "II\xbc", "this is a JPEG XR picture, which cannot be read yet; " CONVERT),
    ROW(0, "8BPS", "this is a Photoshop file, which cannot be read; " CONVERT),
    ROW(0, "gimp xcf", "this is a GIMP file, which cannot be read; " CONVERT),
    ROW(0, "qoif", "this is a QOI picture, which cannot be read; " CONVERT),
    ROW(0, "v/1\1", "this is an OpenEXR picture, which cannot be read; " CONVERT),
    ROW(0, "#?RADIANCE", "this is a Radiance HDR picture, which cannot be read; " CONVERT),
    ROW(0, "\0\0\1\0", "this is an icon file, which cannot be read; " CONVERT),
    ROW(0, "%PDF", "this is a PDF document, not a picture; " CONVERT),
    ROW(0, "%!PS", "this is a PostScript document, not a picture; " CONVERT),
    ROW(0, "\x1f\x8b", "these bytes are compressed with gzip; " DECODE ", not compressed again"),
    ROW(0, "PK\3\4", "this is a ZIP archive; unpack it and use the pictures in it"),
    ROW(0, "Rar!", "this is a RAR archive; unpack it and use the pictures in it"),
    ROW(0, "7z\xbc\xaf", "this is a 7z archive; unpack it and use the pictures in it"),
    ROW(0, "\x1a\x45\xdf\xa3", "this is a video, not a picture; export a single frame as JPEG or PNG"),
    ROW(8, "AVI ", "this is a video, not a picture; export a single frame as JPEG or PNG"),
#undef RAW
#undef ROW
};

static bool other_finds(const char *text, const char *word)
{
    return strcasestr(text, word) != NULL;
}

/* What kind of text it is, by its beginning. NULL: not text. */
static const char *other_text(const uint8_t *bytes, size_t size)
{
    char text[OTHER_LOOK + 1];
    size_t n = 0, skip = size >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (skip < size && isspace(bytes[skip]))
        skip++;
    for (; n < OTHER_LOOK && skip + n < size; n++) {
        uint8_t byte = bytes[skip + n];
        if ((byte < 0x20 && !isspace(byte)) || byte == 0x7f)
            break;
        text[n] = (char)byte;
    }
    text[n] = 0;
    if (!strncmp(text, "--", 2) && other_finds(text, "Content-Disposition:"))
        return "this is a form with the wrong Content-Type; send it as multipart/form-data with its boundary, "
               "as HTTP libraries do if you set no Content-Type yourself";
    if (!strncasecmp(text, "data:", 5))
        return "this is a data: URL; decode what follows its comma: " DECODE;
    if (!strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8))
        return "this is the address of a picture, and nothing is fetched; " DECODE;
    if (!strncasecmp(text, "<svg", 4) || (!strncasecmp(text, "<?xml", 5) && other_finds(text, "<svg")))
        return "this is an SVG drawing, which has no pixels to restore; " CONVERT;
    if (!strncasecmp(text, "<!doctype html", 14) || !strncasecmp(text, "<html", 5))
        return "this is a web page, not a picture; save the picture itself";
    if (n < OTHER_LOOK && skip + n < size)
        return NULL; /* not all of it is text */
    if (n > 1 && (*text == '{' || *text == '['))
        return "this is JSON; " DECODE ", in HTTP as the body or as the file part \"image\" of a form";
    if (n >= 64 && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_ \r\n") == n &&
        strcspn(text, " ") >= 64)
        return "this is text, perhaps base64; decode it: " DECODE;
    return n ? "this is text, not a picture; " DECODE : NULL;
}

const char *codec_other(const uint8_t *bytes, size_t size)
{
    if (other_at(bytes, size, 4, "ftyp", 4)) {
        if (other_has_brand(bytes, size, "crx "))
            return RAW_FILE;
        return "this is a video, not a picture; export a single frame as JPEG or PNG";
    }
    if (size >= 4 && (!memcmp(bytes, "II*\0", 4) || !memcmp(bytes, "MM\0*", 4)))
        return RAW_FILE; /* all others are recognised as TIFFs */
    for (size_t i = 0; i < sizeof other_rows / sizeof *other_rows; i++)
        if (other_at(bytes, size, other_rows[i].offset, other_rows[i].magic, other_rows[i].length))
            return other_rows[i].sentence;
    if (size >= 18 && !memcmp(bytes, "BM", 2) && bytes[14] >= 12 && bytes[14] <= 124 && !bytes[15] && !bytes[16])
        return "this is a BMP picture, which cannot be read yet; " CONVERT;
    if (size >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '7' && isspace(bytes[2]))
        return "this is a PNM picture, which cannot be read; " CONVERT;
    return other_text(bytes, size);
}
