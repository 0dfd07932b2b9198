#include "tests/common/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct blob {
    unsigned char *data;
    size_t size;
};

static bool fail(const char *path, const char *reason)
{
    fprintf(stderr, "%s: %s\n", path, reason);
    return false;
}

static bool read_file(const char *path, struct blob *out)
{
    *out = (struct blob){0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return fail(path, "cannot open");
    bool ok = false;
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (size >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        out->data = malloc((size_t)size + 1);
        out->size = (size_t)size;
        ok = out->data && fread(out->data, 1, out->size, f) == out->size;
    }
    fclose(f);
    if (ok)
        return true;
    free(out->data);
    *out = (struct blob){0};
    return fail(path, "cannot read");
}

static uint32_t le(const unsigned char *p, int bytes)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint32_t)p[i] << 8 * i;
    return v;
}

/* The header is the text of a Python dict, which numpy always writes in one fixed form. */
static bool parse_header(const char *path, const char *header, struct npy *out)
{
    const char *descr = strstr(header, "'descr': '");
    const char *shape = strstr(header, "'shape': (");
    if (!descr || !shape)
        return fail(path, "npy header without descr or shape");
    if (!strstr(header, "'fortran_order': False"))
        return fail(path, "npy array in fortran order");
    descr += strlen("'descr': '");
    if (descr[0] != '<' && descr[0] != '|')
        return fail(path, "npy array not little-endian");
    size_t n = strcspn(++descr, "'");
    if (n < 2 || n >= sizeof out->dtype)
        return fail(path, "npy array of an unknown dtype");
    memcpy(out->dtype, descr, n);
    out->dtype[n] = '\0';
    out->count = 1;
    for (const char *p = shape + strlen("'shape': ("); *p && *p != ')';) {
        char *end;
        unsigned long long extent = strtoull(p, &end, 10);
        if (end == p || out->rank == NPY_MAX_RANK)
            return fail(path, "npy array of a bad shape");
        out->shape[out->rank++] = (size_t)extent;
        if (__builtin_mul_overflow(out->count, (size_t)extent, &out->count))
            return fail(path, "npy array too large");
        p = end + strspn(end, ", ");
    }
    if (__builtin_mul_overflow(out->count, (size_t)strtoul(out->dtype + 1, NULL, 10), &out->size))
        return fail(path, "npy array too large");
    return true;
}

static bool parse(const char *path, const struct blob *in, struct npy *out)
{
    if (in->size < 12 || memcmp(in->data, "\x93NUMPY", 6) != 0)
        return fail(path, "not an npy array");
    size_t at = in->data[6] == 1 ? 10 : 12;
    size_t length = le(in->data + 8, in->data[6] == 1 ? 2 : 4);
    if (length > in->size - at)
        return fail(path, "npy header truncated");
    char *header = strndup((const char *)in->data + at, length);
    bool ok = header && parse_header(path, header, out);
    free(header);
    if (!ok)
        return false;
    at += length;
    if (in->size - at != out->size)
        return fail(path, "npy array of a wrong size");
    out->data = malloc(out->size + 1);
    if (!out->data)
        return fail(path, "out of memory");
    memcpy(out->data, in->data + at, out->size);
    return true;
}

bool npy_load(const char *path, struct npy *out)
{
    *out = (struct npy){0};
    struct blob file;
    bool ok = read_file(path, &file) && parse(path, &file, out);
    free(file.data);
    return ok;
}

void npy_free(struct npy *npy)
{
    free(npy->data);
    *npy = (struct npy){0};
}

/* One entry of the zip's central directory. */
struct zip_entry {
    const char *name; /* not terminated */
    size_t name_size, method, packed, size, offset;
    uint32_t crc;
};

/* numpy's writer adds no archive comment, so that the end record is the last 22 bytes. */
static bool zip_start(const char *path, const struct blob *zip, size_t *at, size_t *count)
{
    if (zip->size < 22 || memcmp(zip->data + zip->size - 22, "PK\5\6", 4) != 0)
        return fail(path, "not an npz file");
    *count = le(zip->data + zip->size - 12, 2);
    *at = le(zip->data + zip->size - 6, 4);
    return true;
}

static bool zip_next(const char *path, const struct blob *zip, size_t *at, struct zip_entry *out)
{
    if (*at > zip->size || zip->size - *at < 46 || memcmp(zip->data + *at, "PK\1\2", 4) != 0)
        return fail(path, "npz directory damaged");
    const unsigned char *p = zip->data + *at;
    *out = (struct zip_entry){.name = (const char *)p + 46,
                              .name_size = le(p + 28, 2),
                              .method = le(p + 10, 2),
                              .packed = le(p + 20, 4),
                              .size = le(p + 24, 4),
                              .offset = le(p + 42, 4),
                              .crc = le(p + 16, 4)};
    *at += 46 + out->name_size + le(p + 30, 2) + le(p + 32, 2);
    return *at <= zip->size || fail(path, "npz directory damaged");
}

static bool unpack(const char *path, const struct blob *zip, const struct zip_entry *entry, struct blob *out)
{
    if (entry->offset > zip->size || zip->size - entry->offset < 30)
        return fail(path, "npz entry outside the file");
    const unsigned char *local = zip->data + entry->offset;
    size_t start = entry->offset + 30 + le(local + 26, 2) + le(local + 28, 2);
    if (start > zip->size || zip->size - start < entry->packed)
        return fail(path, "npz entry outside the file");
    *out = (struct blob){.data = malloc(entry->size + 1), .size = entry->size};
    if (!out->data)
        return fail(path, "out of memory");
    if (entry->method == 0 && entry->packed == entry->size) {
        memcpy(out->data, zip->data + start, entry->size);
    } else if (entry->method == 8) {
        z_stream z = {.next_in = zip->data + start,
                      .avail_in = (uInt)entry->packed,
                      .next_out = out->data,
                      .avail_out = (uInt)entry->size};
        bool ok = inflateInit2(&z, -15) == Z_OK && inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0;
        inflateEnd(&z);
        if (!ok)
            return fail(path, "npz entry does not inflate");
    } else {
        return fail(path, "npz entry of an unknown method");
    }
    return crc32(0, out->data, (uInt)out->size) == entry->crc || fail(path, "npz entry with a wrong checksum");
}

bool npz_load(const char *path, const char *key, struct npy *out)
{
    *out = (struct npy){0};
    struct blob zip, entry_data = {0};
    struct zip_entry entry;
    size_t at, count, n = strlen(key);
    bool ok = read_file(path, &zip) && zip_start(path, &zip, &at, &count), found = false;
    for (size_t i = 0; ok && !found && i < count; i++) {
        ok = zip_next(path, &zip, &at, &entry);
        found =
            ok && entry.name_size == n + 4 && memcmp(entry.name, key, n) == 0 && memcmp(entry.name + n, ".npy", 4) == 0;
    }
    if (ok && !found) {
        fprintf(stderr, "%s: no array %s\n", path, key);
        ok = false;
    }
    if (ok)
        ok = unpack(path, &zip, &entry, &entry_data) && parse(path, &entry_data, out);
    free(entry_data.data);
    free(zip.data);
    return ok;
}

bool npz_key(const char *path, size_t index, char *key, size_t size)
{
    struct blob zip;
    struct zip_entry entry;
    size_t at, count;
    bool ok = read_file(path, &zip) && zip_start(path, &zip, &at, &count) && index < count;
    for (size_t i = 0; ok && i <= index; i++)
        ok = zip_next(path, &zip, &at, &entry);
    if (ok) {
        size_t n = entry.name_size > 4 ? entry.name_size - 4 : 0;
        ok = n < size || fail(path, "npz key too long");
        if (ok) {
            memcpy(key, entry.name, n);
            key[n] = '\0';
        }
    }
    free(zip.data);
    return ok;
}
