#include "runtime/weights/pth_zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/weights/pickle_torch.h"

#define ZIP_LOCAL 0x04034b50u
#define ZIP_CENTRAL 0x02014b50u
#define ZIP_END 0x06054b50u
#define ZIP_END64 0x06064b50u
#define ZIP_LOCATOR64 0x07064b50u
#define ZIP_END_SIZE 22u
#define ZIP_END64_SIZE 56u
#define ZIP_LOCATOR64_SIZE 20u
#define ZIP_CENTRAL_SIZE 46u
#define ZIP_MAX_COMMENT 65535u
#define ZIP_MAX_ENTRIES 65536u /* torch writes one for each storage, and a few more */
#define ZIP_FLAG_ENCRYPTED 1u
#define ZIP_FLAG_DESCRIPTOR 8u

struct zip_entry {
    const uint8_t *name;
    uint16_t name_size;
    uint64_t size;
    uint64_t local; /* offset of its local header */
    uint64_t end;   /* offset after its data */
    const uint8_t *data;
};

struct zip {
    const struct catalogue *catalogue;
    uint64_t directory, directory_size; /* where the central directory lies: inside the file */
    uint64_t count;
    struct zip_entry *entries; /* from malloc, sorted by name */
    struct error *err;
};

static const char directory_name[] = "zip directory";

static enum error_code zip_fail_directory(struct zip *zip, const char *reason)
{
    return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, directory_name, "%s", reason);
}

static const char *zip_entry_label(struct catalogue_label *label, const struct zip_entry *entry)
{
    return catalogue_label(label, entry->name, entry->name_size);
}

/* A cursor at that offset of the file; past the end it reads nothing. */
static struct bytes zip_cursor_at(const struct zip *zip, uint64_t at)
{
    struct bytes in = {.data = zip->catalogue->data, .size = zip->catalogue->size, .at = zip->catalogue->size};
    (void)bytes_seek(&in, at);
    return in;
}

static uint64_t zip_number(struct bytes *in, int size)
{
    uint64_t v = 0;
    (void)bytes_number(in, size, &v);
    return v;
}

/* ---- the end records ---- */
struct zip_end {
    uint64_t disk, start_disk, disk_count, count, size, start;
};

/* The end record is the last thing in the file, except for a comment, whose length it gives. */
static bool zip_find_end(const struct zip *zip, uint64_t *at)
{
    size_t size = zip->catalogue->size;
    for (uint64_t comment = 0; comment <= ZIP_MAX_COMMENT && comment + ZIP_END_SIZE <= size; comment++) {
        struct bytes in = zip_cursor_at(zip, size - ZIP_END_SIZE - comment);
        *at = in.at;
        if (zip_number(&in, 4) != ZIP_END)
            continue;
        in.at = *at + 20;
        if (zip_number(&in, 2) == comment)
            return true;
    }
    return false;
}

static bool zip_sizes_agree(uint64_t narrow, int size, uint64_t wide)
{
    return narrow == wide || narrow == (UINT64_C(1) << 8 * size) - 1;
}

static enum error_code zip_read_end64(struct zip *zip, uint64_t locator, struct zip_end *end, uint64_t *record)
{
    struct bytes in = zip_cursor_at(zip, locator + 4);
    uint64_t disk = zip_number(&in, 4), disks;
    *record = zip_number(&in, 8);
    disks = zip_number(&in, 4);
    if (disk != 0 || disks != 1)
        return zip_fail_directory(zip, "the zip64 locator names another disk");
    if (locator < ZIP_END64_SIZE || *record > locator - ZIP_END64_SIZE)
        return zip_fail_directory(zip, "the zip64 locator points outside the file");
    in = zip_cursor_at(zip, *record);
    if (zip_number(&in, 4) != ZIP_END64 || zip_number(&in, 8) != locator - *record - 12)
        return zip_fail_directory(zip, "the zip64 end record is not where its locator says, or of another size");
    in.at += 4; /* versions */
    struct zip_end wide = {.disk = zip_number(&in, 4)};
    wide.start_disk = zip_number(&in, 4);
    wide.disk_count = zip_number(&in, 8);
    wide.count = zip_number(&in, 8);
    wide.size = zip_number(&in, 8);
    wide.start = zip_number(&in, 8);
    if (!zip_sizes_agree(end->disk, 2, wide.disk) || !zip_sizes_agree(end->start_disk, 2, wide.start_disk) ||
        !zip_sizes_agree(end->disk_count, 2, wide.disk_count) || !zip_sizes_agree(end->count, 2, wide.count) ||
        !zip_sizes_agree(end->size, 4, wide.size) || !zip_sizes_agree(end->start, 4, wide.start))
        return zip_fail_directory(zip, "the zip64 end record contradicts the end record");
    *end = wide;
    return OK;
}

static enum error_code zip_read_end(struct zip *zip)
{
    uint64_t at;
    if (!zip_find_end(zip, &at))
        return zip_fail_directory(zip, "its end record is missing: the file is cut off");
    struct bytes in = zip_cursor_at(zip, at + 4);
    struct zip_end end = {.disk = zip_number(&in, 2)};
    end.start_disk = zip_number(&in, 2);
    end.disk_count = zip_number(&in, 2);
    end.count = zip_number(&in, 2);
    end.size = zip_number(&in, 4);
    end.start = zip_number(&in, 4);
    uint64_t limit = at; /* the directory ends here */
    in = zip_cursor_at(zip, at >= ZIP_LOCATOR64_SIZE ? at - ZIP_LOCATOR64_SIZE : zip->catalogue->size);
    if (zip_number(&in, 4) == ZIP_LOCATOR64) {
        enum error_code code = zip_read_end64(zip, at - ZIP_LOCATOR64_SIZE, &end, &limit);
        if (code != OK)
            return code;
    }
    if (end.disk != 0 || end.start_disk != 0 || end.disk_count != end.count)
        return zip_fail_directory(zip, "the archive is one part of several");
    if (end.start > limit || end.size != limit - end.start)
        return zip_fail_directory(zip, "its offset and size do not lead to its end record");
    if (end.count > end.size / ZIP_CENTRAL_SIZE)
        return zip_fail_directory(zip, "it claims more entries than it has room for");
    if (end.count > ZIP_MAX_ENTRIES)
        return catalogue_fail(zip->err, ERROR_TOO_LARGE, zip->catalogue, directory_name,
                              "%" PRIu64 " entries, at most %u", end.count, ZIP_MAX_ENTRIES);
    zip->directory = end.start;
    zip->directory_size = end.size;
    zip->count = end.count;
    return OK;
}

/* ---- entries ---- */
/* The zip64 extra field (id 1), if the extra fields have one. */
static bool zip_find_extra64(const uint8_t *extra, uint64_t size, struct bytes *out)
{
    struct bytes in = {.data = extra, .size = (size_t)size};
    uint16_t id, length;
    const uint8_t *body;
    while (bytes_u16(&in, &id) && bytes_u16(&in, &length) && bytes_take(&in, length, &body)) {
        if (id == 1) {
            *out = (struct bytes){.data = body, .size = length};
            return true;
        }
    }
    return false;
}

/* Widens the three fields from the zip64 extra field. It holds, in this order, those that are all ones in the header;
 * some writers give all of them; then they must agree. */
static bool zip_widen(const uint8_t *extra, uint64_t extra_size, uint64_t *fields, int count, uint64_t disk)
{
    const uint64_t ones = UINT32_MAX;
    struct bytes wide;
    size_t need = 0;
    for (int i = 0; i < count; i++)
        need += fields[i] == ones ? 8 : 0;
    if (!zip_find_extra64(extra, extra_size, &wide))
        return need == 0;
    size_t all = 8 * (size_t)count, tail = disk == UINT16_MAX ? 4 : 0;
    bool complete = wide.size == all || wide.size == all + 4 || (count == 3 && wide.size == 16 && fields[2] != ones);
    if (!complete && wide.size != need + tail)
        return false;
    for (int i = 0; i < count; i++) {
        if (!complete && fields[i] != ones)
            continue;
        uint64_t v;
        if (!bytes_u64(&wide, &v))
            break; /* the form of 16 bytes: sizes alone */
        if (fields[i] != ones && fields[i] != v)
            return false;
        fields[i] = v;
    }
    return true;
}

/* The local header repeats name, method and sizes; if it differs, one of the two is wrong. Sizes may be left to a
 * descriptor after the data and are then 0. */
static enum error_code zip_read_local(struct zip *zip, struct zip_entry *entry)
{
    struct catalogue_label label;
    const char *shown = zip_entry_label(&label, entry);
    struct bytes in = zip_cursor_at(zip, entry->local);
    uint64_t signature = zip_number(&in, 4);
    in.at += in.size - in.at >= 2 ? 2 : 0;
    uint64_t flags = zip_number(&in, 2), method = zip_number(&in, 2);
    const uint8_t *skipped, *name, *extra, *data;
    if (signature != ZIP_LOCAL || !bytes_take(&in, 8, &skipped))
        return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, shown, "no local header at its offset");
    uint64_t sizes[2];
    sizes[1] = zip_number(&in, 4); /* packed */
    sizes[0] = zip_number(&in, 4);
    uint64_t name_size = zip_number(&in, 2), extra_size = zip_number(&in, 2);
    if (!bytes_take(&in, name_size, &name) || !bytes_take(&in, extra_size, &extra) ||
        !bytes_take(&in, entry->size, &data) || in.at > zip->directory)
        return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, shown,
                              "its %" PRIu64 " bytes reach outside the file's data", entry->size);
    if (name_size != entry->name_size || memcmp(name, entry->name, name_size) != 0 || method != 0)
        return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, shown,
                              "its local header names another entry or method");
    bool widened = sizes[0] != UINT32_MAX && sizes[1] != UINT32_MAX;
    if (!widened)
        widened = zip_widen(extra, extra_size, sizes, 2, 0);
    for (int i = 0; i < 2; i++)
        if (!widened || (sizes[i] != entry->size && !(flags & ZIP_FLAG_DESCRIPTOR && sizes[i] == 0)))
            return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, shown,
                                  "its local header gives another size than the directory");
    entry->data = data;
    entry->end = in.at;
    return OK;
}

static enum error_code zip_read_central(struct zip *zip, struct bytes *in, struct zip_entry *entry)
{
    const uint8_t *fixed, *extra, *comment;
    uint64_t at = in->at;
    if (zip_number(in, 4) != ZIP_CENTRAL || !bytes_take(in, ZIP_CENTRAL_SIZE - 4, &fixed))
        return zip_fail_directory(zip, "an entry's header is damaged");
    struct bytes field = {.data = in->data, .size = in->size, .at = (size_t)at + 8};
    uint64_t flags = zip_number(&field, 2), method = zip_number(&field, 2);
    field.at += 8; /* time, date, checksum */
    uint64_t wide[3], packed = zip_number(&field, 4);
    wide[0] = zip_number(&field, 4);
    wide[1] = packed;
    entry->name_size = (uint16_t)zip_number(&field, 2);
    uint64_t extra_size = zip_number(&field, 2), comment_size = zip_number(&field, 2), disk = zip_number(&field, 2);
    field.at += 6; /* attributes */
    wide[2] = zip_number(&field, 4);
    if (!bytes_take(in, entry->name_size, &entry->name) || !bytes_take(in, extra_size, &extra) ||
        !bytes_take(in, comment_size, &comment))
        return zip_fail_directory(zip, "an entry's name or extra fields reach outside the directory");
    struct catalogue_label label;
    const char *shown = zip_entry_label(&label, entry);
    if (flags & ZIP_FLAG_ENCRYPTED)
        return catalogue_fail(zip->err, ERROR_UNSUPPORTED, zip->catalogue, shown, "the entry is encrypted");
    if (method != 0)
        return catalogue_fail(zip->err, ERROR_UNSUPPORTED, zip->catalogue, shown,
                              "the entry is compressed (method %" PRIu64 "), torch.save stores entries as they are",
                              method);
    if ((disk != 0 && disk != UINT16_MAX) || !zip_widen(extra, extra_size, wide, 3, disk))
        return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, shown, "its zip64 fields are inconsistent");
    if (wide[0] != wide[1])
        return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, shown,
                              "a stored entry with two sizes, %" PRIu64 " and %" PRIu64, wide[1], wide[0]);
    entry->size = wide[0];
    entry->local = wide[2];
    return zip_read_local(zip, entry);
}

static int zip_compare_place(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    return (x->local > y->local) - (x->local < y->local);
}

static int zip_compare_name(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    size_t n = x->name_size < y->name_size ? x->name_size : y->name_size;
    int order = memcmp(x->name, y->name, n);
    return order != 0 ? order : (x->name_size > y->name_size) - (x->name_size < y->name_size);
}

static enum error_code zip_read_directory(struct zip *zip)
{
    struct bytes in = {.data = zip->catalogue->data,
                       .size = (size_t)(zip->directory + zip->directory_size),
                       .at = (size_t)zip->directory};
    zip->entries = mem_calloc((size_t)zip->count, sizeof *zip->entries);
    if (!zip->entries)
        return catalogue_fail(zip->err, ERROR_NO_MEMORY, zip->catalogue, directory_name, "out of memory");
    enum error_code code = OK;
    for (uint64_t i = 0; i < zip->count && code == OK; i++)
        code = zip_read_central(zip, &in, &zip->entries[i]);
    if (code == OK && in.at != in.size)
        code = zip_fail_directory(zip, "it is longer than its entries");
    if (code != OK)
        return code;
    struct catalogue_label a, b;
    qsort(zip->entries, (size_t)zip->count, sizeof *zip->entries, zip_compare_place);
    for (uint64_t i = 1; i < zip->count; i++)
        if (zip->entries[i].local < zip->entries[i - 1].end)
            return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, zip_entry_label(&a, &zip->entries[i]),
                                  "it overlaps the entry %s", zip_entry_label(&b, &zip->entries[i - 1]));
    qsort(zip->entries, (size_t)zip->count, sizeof *zip->entries, zip_compare_name);
    for (uint64_t i = 1; i < zip->count; i++)
        if (zip_compare_name(&zip->entries[i - 1], &zip->entries[i]) == 0)
            return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, zip_entry_label(&a, &zip->entries[i]),
                                  "two entries have this name");
    return OK;
}

static const struct zip_entry *zip_find_entry(const struct zip *zip, const char *name, size_t size)
{
    struct zip_entry key = {.name = (const uint8_t *)name, .name_size = (uint16_t)size};
    if (size > UINT16_MAX || zip->count == 0)
        return NULL;
    return bsearch(&key, zip->entries, (size_t)zip->count, sizeof key, zip_compare_name);
}

/* ---- torch's entries ---- */
/* <root>/<name>, where the root is the part before the slash in the name of data.pkl. */
static const struct zip_entry *zip_find_under(const struct zip *zip, const struct zip_entry *pickle, const char *folder,
                                              const void *name, size_t size)
{
    char path[1024];
    size_t root = pickle->name_size - (sizeof "data.pkl" - 1), middle = strlen(folder);
    if (root + middle > sizeof path || size > sizeof path - root - middle)
        return NULL;
    memcpy(path, pickle->name, root);
    memcpy(path + root, folder, middle);
    memcpy(path + root + middle, name, size);
    return zip_find_entry(zip, path, root + middle + size);
}

static enum error_code zip_find_pickle(struct zip *zip, const struct zip_entry **out)
{
    static const char suffix[] = "/data.pkl";
    const size_t n = sizeof suffix - 1;
    *out = NULL;
    for (uint64_t i = 0; i < zip->count; i++) {
        const struct zip_entry *e = &zip->entries[i];
        if (e->name_size < n || memcmp(e->name + e->name_size - n, suffix, n) != 0 ||
            memchr(e->name, '/', e->name_size - n))
            continue;
        struct catalogue_label label;
        if (*out)
            return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, zip_entry_label(&label, e),
                                  "a second data.pkl in one file");
        *out = e;
    }
    if (!*out)
        return catalogue_fail(zip->err, ERROR_UNSUPPORTED, zip->catalogue, "data.pkl",
                              "the zip file has no such entry: it is not a torch checkpoint");
    return OK;
}

static enum error_code zip_check_byteorder(struct zip *zip, const struct zip_entry *pickle)
{
    const struct zip_entry *order = zip_find_under(zip, pickle, "", "byteorder", strlen("byteorder"));
    if (!order || (order->size == 6 && memcmp(order->data, "little", 6) == 0))
        return OK;
    struct catalogue_label label;
    if (order->size == 3 && memcmp(order->data, "big", 3) == 0)
        return catalogue_fail(zip->err, ERROR_UNSUPPORTED, zip->catalogue, zip_entry_label(&label, order),
                              "big-endian tensors are not supported");
    return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, zip_entry_label(&label, order),
                          "neither 'little' nor 'big'");
}

static enum error_code zip_find_storages(struct zip *zip, const struct zip_entry *pickle_entry, struct pickle *pickle)
{
    for (size_t i = 0; i < pickle->storage_count; i++) {
        struct pickle_storage *s = pickle->storages[i];
        const struct zip_entry *e = zip_find_under(zip, pickle_entry, "data/", s->key.bytes, s->key.size);
        struct catalogue_label label, name;
        if (!e) {
            snprintf(name.text, sizeof name.text, "data/%.80s", catalogue_label(&label, s->key.bytes, s->key.size));
            return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, name.text, "the storage is missing");
        }
        if (s->count > e->size / catalogue_element_size(s->dtype))
            return catalogue_fail(zip->err, ERROR_CORRUPT, zip->catalogue, zip_entry_label(&name, e),
                                  "%" PRIu64 " bytes are too few for %" PRIu64 " elements of %zu bytes", e->size,
                                  s->count, catalogue_element_size(s->dtype));
        s->data = e->data;
    }
    return OK;
}

enum error_code pth_zip_read(struct catalogue *catalogue, struct error *err)
{
    struct zip zip = {.catalogue = catalogue, .err = err};
    const struct zip_entry *entry = NULL;
    struct pickle pickle = {0};
    struct catalogue_label label;
    catalogue->format = "torch-zip";
    enum error_code code = zip_read_end(&zip);
    if (code == OK)
        code = zip_read_directory(&zip);
    if (code == OK)
        code = zip_find_pickle(&zip, &entry);
    if (code == OK)
        code = zip_check_byteorder(&zip, entry);
    if (code == OK) {
        struct bytes in = {.data = entry->data, .size = (size_t)entry->size};
        code = pickle_walk(&pickle, catalogue, zip_entry_label(&label, entry), &in, err);
        if (code == OK && in.at != in.size)
            code = catalogue_fail(err, ERROR_CORRUPT, catalogue, label.text, "%zu bytes follow the pickle",
                                  in.size - in.at);
    }
    if (code == OK)
        code = zip_find_storages(&zip, entry, &pickle);
    if (code == OK)
        code = pickle_torch_add_tensors(&pickle, catalogue, label.text, err);
    pickle_release(&pickle);
    free(zip.entries);
    return code;
}
