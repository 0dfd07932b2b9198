#include "server/image/tiff_header.h"

#include <stdlib.h>
#include <string.h>

#include "server/image/codec_row.h"

#define TIFF_DIRECTORIES 10000
#define TIFF_ENTRIES 4096 /* of a directory */
#define TIFF_FIELDS 128   /* of a directory that are copied */
#define TIFF_EXIF_MOST ((size_t)1 << 20)

enum { TIFF_SHORT = 3, TIFF_LONG = 4, TIFF_IFD = 13, TIFF_LONG8 = 16, TIFF_IFD8 = 18 };
enum { TIFF_TO_EXIF = 0x8769, TIFF_TO_GPS = 0x8825, TIFF_MAKER_NOTE = 0x927c, TIFF_TO_INTEROPERABILITY = 0xa005 };

struct tiff_file {
    const uint8_t *bytes;
    size_t size;
    bool high_first, large; /* large: BigTIFF */
};

struct tiff_field {
    int tag, type;
    uint64_t count;
    const uint8_t *data; /* in the file, all of it */
    size_t bytes;
};

static uint64_t tiff_number(const struct tiff_file *file, const uint8_t *p, int count)
{
    uint64_t value = 0;
    if (file->high_first)
        return codec_big(p, count);
    for (int i = count; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

static int tiff_type_size(int type)
{
    static const uint8_t sizes[] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8};
    return type >= 0 && type < (int)sizeof sizes ? sizes[type] : 0;
}

bool tiff_header_matches(const uint8_t *bytes, size_t size)
{
    return size >= 8 && (!memcmp(bytes, "II*\0", 4) || !memcmp(bytes, "MM\0*", 4) || !memcmp(bytes, "II+\0", 4) ||
                         !memcmp(bytes, "MM\0+", 4));
}

static struct tiff_file tiff_open(const uint8_t *bytes, size_t size)
{
    return (struct tiff_file){bytes, size, bytes[0] == 'M', bytes[2] == '+' || bytes[3] == '+'};
}

/* The entry there. false: its type is unknown, or its data are not in the file. */
static bool tiff_entry(const struct tiff_file *file, const uint8_t *at, struct tiff_field *out)
{
    const int wide = file->large ? 8 : 4;
    *out = (struct tiff_field){.tag = (int)tiff_number(file, at, 2),
                               .type = (int)tiff_number(file, at + 2, 2),
                               .count = tiff_number(file, at + 4, wide)};
    const uint64_t each = (uint64_t)tiff_type_size(out->type);
    if (!each || out->count > file->size / each)
        return false;
    out->bytes = (size_t)(out->count * each);
    out->data = at + 4 + wide;
    if (out->bytes > (size_t)wide) {
        const uint64_t offset = tiff_number(file, out->data, wide);
        if (offset > file->size || out->bytes > file->size - offset)
            return false;
        out->data = file->bytes + offset;
    }
    return true;
}

/* The first value of a field of whole numbers. */
static uint64_t tiff_value(const struct tiff_file *file, const struct tiff_field *field)
{
    const bool whole =
        field->type == TIFF_SHORT || field->type == TIFF_LONG || field->type >= TIFF_IFD || field->type == 1;
    return field->bytes && whole ? tiff_number(file, field->data, tiff_type_size(field->type)) : 0;
}

/* The directory there: its entries and how many; *next: the offset of the next one, 0: it is the last. */
static const uint8_t *tiff_directory(const struct tiff_file *file, uint64_t offset, int *count, uint64_t *next)
{
    const size_t head = file->large ? 8 : 2, entry = file->large ? 20 : 12, tail = file->large ? 8 : 4;
    *next = 0;
    if (offset > file->size || file->size - offset < head)
        return NULL;
    const uint8_t *at = file->bytes + offset;
    const uint64_t there = (file->size - offset - head) / entry, wanted = tiff_number(file, at, (int)head);
    if (wanted > TIFF_ENTRIES || wanted > there)
        return NULL;
    *count = (int)wanted;
    const uint8_t *end = at + head + wanted * entry;
    if ((size_t)(file->bytes + file->size - end) >= tail)
        *next = tiff_number(file, end, (int)tail);
    return at + head;
}

static void tiff_read_field(const struct tiff_file *file, const struct tiff_field *field, struct tiff_header *out)
{
    const uint64_t value = tiff_value(file, field);
    switch (field->tag) {
    case 256:
        out->width = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
        break;
    case 257:
        out->height = value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
        break;
    case 258:
        out->bits = (int)(value & 0xffff);
        break;
    case 262:
        out->photometric = (int)(value & 0xffff);
        break;
    case 274:
        out->orientation = value >= 1 && value <= 8 ? (int)value : 1;
        break;
    case 277:
        out->samples = (int)(value & 0xffff);
        break;
    case 338:
        out->extra = field->bytes ? (int)(value & 0xffff) : -1;
        break;
    }
}

bool tiff_header_read(const uint8_t *bytes, size_t size, int page, struct tiff_header *out)
{
    const struct tiff_file file = tiff_open(bytes, size);
    *out = (struct tiff_header){0};
    if (file.large && size < 16)
        return false;
    uint64_t offset = tiff_number(&file, bytes + (file.large ? 8 : 4), file.large ? 8 : 4);
    for (int n = 0; n < TIFF_DIRECTORIES && offset; n++) {
        struct tiff_header header = {.offset = offset, .bits = 1, .samples = 1, .orientation = 1, .extra = -1};
        struct tiff_field field;
        uint64_t kind = 0;
        int count;
        const uint8_t *at = tiff_directory(&file, offset, &count, &offset);
        if (!at)
            return n > 0 && page <= out->pages; /* libtiff does not read it, either */
        for (int i = 0; i < count; i++, at += file.large ? 20 : 12)
            if (tiff_entry(&file, at, &field)) {
                if (field.tag == 254)
                    kind = tiff_value(&file, &field);
                tiff_read_field(&file, &field, &header);
            }
        if (kind & 5 && n > 0) /* a smaller copy, or a mask */
            continue;
        header.pages = ++out->pages;
        if (header.pages == page)
            *out = header;
    }
    return out->pages > 0;
}

/* ---- EXIF -------------------------------------------------------------------------------------------------------- */

/* The directories of the block that is made: the first, EXIF's and GPS's. */
struct tiff_copy {
    const struct tiff_file *file;
    struct tiff_field fields[3][TIFF_FIELDS];
    int counts[3];
    struct codec_buffer block;
};

static bool tiff_is_copied(int directory, int tag)
{
    static const uint16_t first[] = {0x010e, 0x010f, 0x0110, 0x0112, 0x011a, 0x011b,
                                     0x0128, 0x0131, 0x0132, 0x013b, 0x8298};
    for (size_t i = 0; directory == 0 && i < sizeof first / sizeof *first; i++)
        if (first[i] == tag)
            return true;
    return directory > 0 && tag != TIFF_MAKER_NOTE && tag != TIFF_TO_INTEROPERABILITY;
}

/* Takes from the directory there what is to be copied. */
static void tiff_collect(struct tiff_copy *copy, int directory, uint64_t offset)
{
    const struct tiff_file *file = copy->file;
    uint64_t next;
    int count, *used = &copy->counts[directory];
    const uint8_t *at = tiff_directory(file, offset, &count, &next);
    for (int i = 0; at && i < count; i++, at += file->large ? 20 : 12) {
        struct tiff_field field;
        if (!tiff_entry(file, at, &field))
            continue;
        if (directory == 0 && field.tag == TIFF_TO_EXIF)
            tiff_collect(copy, 1, tiff_value(file, &field));
        else if (directory == 0 && field.tag == TIFF_TO_GPS)
            tiff_collect(copy, 2, tiff_value(file, &field));
        else if (tiff_is_copied(directory, field.tag) && field.type < TIFF_LONG8 && *used < TIFF_FIELDS)
            copy->fields[directory][(*used)++] = field;
    }
}

static void tiff_put(const struct tiff_copy *copy, size_t at, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        copy->block.bytes[at + (size_t)i] = (uint8_t)(value >> 8 * (copy->file->high_first ? count - 1 - i : i));
}

/* Where the next thing is written: at an even offset. */
static bool tiff_reserve(struct tiff_copy *copy, size_t bytes, size_t *at)
{
    static const uint8_t zeros[2 + 12 * (TIFF_FIELDS + 2) + 4];
    *at = copy->block.size;
    return codec_buffer_add(&copy->block, zeros, bytes + (bytes & 1));
}

static bool tiff_write_field(struct tiff_copy *copy, size_t at, const struct tiff_field *field)
{
    size_t data = at + 8;
    tiff_put(copy, at, (uint64_t)field->tag, 2);
    tiff_put(copy, at + 2, (uint64_t)field->type, 2);
    tiff_put(copy, at + 4, field->count, 4);
    if (field->bytes <= 4) {
        memcpy(copy->block.bytes + data, field->data, field->bytes);
        return true;
    }
    tiff_put(copy, data, copy->block.size, 4);
    return codec_buffer_add(&copy->block, field->data, field->bytes) &&
           (!(field->bytes & 1) || codec_buffer_add(&copy->block, "", 1));
}

static int tiff_compare(const void *a, const void *b)
{
    return ((const struct tiff_field *)a)->tag - ((const struct tiff_field *)b)->tag;
}

/* Writes a directory; links: whether entries for the other two follow in it, which are written after it. */
static bool tiff_write_directory(struct tiff_copy *copy, int directory)
{
    static const int links[3] = {0, TIFF_TO_EXIF, TIFF_TO_GPS};
    struct tiff_field *fields = copy->fields[directory];
    int count = copy->counts[directory], all = count;
    size_t at, below;
    for (int i = 1; directory == 0 && i < 3; i++)
        all += copy->counts[i] > 0;
    if (!tiff_reserve(copy, 2 + 12 * (size_t)all + 4, &at))
        return false;
    tiff_put(copy, at, (uint64_t)all, 2);
    at += 2;
    qsort(fields, (size_t)count, sizeof *fields, tiff_compare);
    for (int i = 0; i < count; i++, at += 12)
        if (copy->block.size > TIFF_EXIF_MOST || !tiff_write_field(copy, at, &fields[i]))
            return false;
    for (int i = 1; directory == 0 && i < 3; i++) {
        if (!copy->counts[i])
            continue;
        below = copy->block.size;
        tiff_put(copy, at, (uint64_t)links[i], 2);
        tiff_put(copy, at + 2, TIFF_LONG, 2);
        tiff_put(copy, at + 4, 1, 4);
        tiff_put(copy, at + 8, below, 4);
        if (!tiff_write_directory(copy, i))
            return false;
        at += 12;
    }
    return true;
}

enum error_code tiff_header_exif(const uint8_t *bytes, size_t size, uint64_t offset, struct image_blob *out,
                                 struct error *err)
{
    const struct tiff_file file = tiff_open(bytes, size);
    struct tiff_copy copy = {.file = &file};
    enum error_code code = OK;
    size_t head;
    tiff_collect(&copy, 0, offset);
    if (copy.counts[0] + copy.counts[1] + copy.counts[2] == 0)
        return OK;
    if (!tiff_reserve(&copy, 8, &head))
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata");
    memcpy(copy.block.bytes, file.high_first ? "MM\0*" : "II*\0", 4);
    tiff_put(&copy, 4, 8, 4);
    if (tiff_write_directory(&copy, 0))
        code = image_blob_set(out, copy.block.bytes, copy.block.size, err);
    else if (copy.block.size <= TIFF_EXIF_MOST)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory for a picture's metadata");
    free(copy.block.bytes);
    return code;
}

bool tiff_header_text(const uint8_t *exif, size_t exif_size, int tag, char *out, size_t size)
{
    enum { TEXT = 2 };
    uint64_t next;
    int count = 0;
    if (!tiff_header_matches(exif, exif_size))
        return false;
    const struct tiff_file file = tiff_open(exif, exif_size);
    const uint8_t *at = file.large ? NULL : tiff_directory(&file, tiff_number(&file, exif + 4, 4), &count, &next);
    for (int i = 0; at && i < count; i++, at += 12) {
        struct tiff_field field;
        if (!tiff_entry(&file, at, &field) || field.tag != tag || field.type != TEXT || field.bytes >= size)
            continue;
        memcpy(out, field.data, field.bytes);
        out[field.bytes] = 0;
        return field.bytes > 0;
    }
    return false;
}
