#include "tests/common/checkpoint_writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- buffer ---- */
void checkpoint_put(struct checkpoint_buffer *out, const void *data, size_t size)
{
    if (size > out->capacity - out->size) {
        out->capacity = 2 * out->capacity + size + 256;
        out->data = realloc(out->data, out->capacity);
        if (!out->data) {
            fputs("checkpoint_writer: out of memory\n", stderr);
            abort();
        }
    }
    if (size > 0)
        memcpy(out->data + out->size, data, size);
    out->size += size;
}

void checkpoint_put_le(struct checkpoint_buffer *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        checkpoint_put(out, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void put_text(struct checkpoint_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_text(struct checkpoint_buffer *out, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || n >= (int)sizeof text) {
        fputs("checkpoint_writer: a name is too long\n", stderr);
        abort();
    }
    checkpoint_put(out, text, (size_t)n);
}

bool checkpoint_save(const struct checkpoint_buffer *buffer, const char *path)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(buffer->data, 1, buffer->size, f) == buffer->size;
    if (f && fclose(f) != 0)
        ok = false;
    if (!ok)
        fprintf(stderr, "%s: cannot write\n", path);
    return ok;
}

void checkpoint_free(struct checkpoint_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct checkpoint_buffer){0};
}

/* ---- tensors as bytes ---- */
uint16_t checkpoint_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: in units of 2^-24, where the addition does the rounding */
        float scaled;
        memcpy(&scaled, &magnitude, sizeof scaled);
        scaled += 0.5f; /* the last bit of 0.5f is 2^-24 */
        uint32_t sum;
        memcpy(&sum, &scaled, sizeof sum);
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    uint32_t odd = magnitude >> 13 & 1;
    return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

static uint64_t element_count(const struct checkpoint_tensor *tensor)
{
    uint64_t n = 1;
    for (int i = 0; i < tensor->rank; i++)
        n *= tensor->shape[i];
    return n;
}

static void put_elements(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensor,
                         enum checkpoint_float type)
{
    uint64_t n = element_count(tensor);
    if (type == CHECKPOINT_F32)
        checkpoint_put(out, tensor->data, n * sizeof(float));
    else
        for (uint64_t i = 0; i < n; i++)
            checkpoint_put_le(out, checkpoint_half(tensor->data[i]), 2);
}

/* ---- safetensors ---- */
void checkpoint_safetensors(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                            enum checkpoint_float type)
{
    struct checkpoint_buffer header = {0};
    uint64_t at = 0;
    put_text(&header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < count; i++) {
        put_text(&header, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", tensors[i].name,
                 type == CHECKPOINT_F32 ? "F32" : "F16");
        for (int d = 0; d < tensors[i].rank; d++)
            put_text(&header, "%s%llu", d ? "," : "", (unsigned long long)tensors[i].shape[d]);
        uint64_t end = at + element_count(&tensors[i]) * (type == CHECKPOINT_F32 ? 4 : 2);
        put_text(&header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    put_text(&header, "}");
    while (header.size % 8)
        put_text(&header, " ");
    checkpoint_put_le(out, header.size, 8);
    checkpoint_put(out, header.data, header.size);
    checkpoint_free(&header);
    for (size_t i = 0; i < count; i++)
        put_elements(out, &tensors[i], type);
}

/* ---- zip ---- */
void checkpoint_zip_add(struct checkpoint_zip *zip, const char *name, const void *data, size_t size)
{
    size_t offset = zip->file.size, length = strlen(name);
    uint32_t crc = (uint32_t)crc32(0, data, (uInt)size);
    /* An extra field pads the data to a multiple of 64 bytes; it takes at least its own 4. */
    size_t pad = (64 - (offset + 30 + length + 4) % 64) % 64;
    checkpoint_put_le(&zip->file, 0x04034b50, 4);
    checkpoint_put_le(&zip->file, 0, 2);
    checkpoint_put_le(&zip->file, 0x0808, 2); /* UTF-8 names, sizes in a descriptor after the data */
    checkpoint_put_le(&zip->file, 0, 2);      /* stored */
    checkpoint_put_le(&zip->file, 0, 4);      /* time and date */
    checkpoint_put_le(&zip->file, 0, 8);      /* checksum and packed size come in the descriptor */
    checkpoint_put_le(&zip->file, 0, 4);
    checkpoint_put_le(&zip->file, length, 2);
    checkpoint_put_le(&zip->file, pad + 4, 2);
    checkpoint_put(&zip->file, name, length);
    checkpoint_put(&zip->file, "FB", 2);
    checkpoint_put_le(&zip->file, pad, 2);
    for (size_t i = 0; i < pad; i++)
        checkpoint_put(&zip->file, "Z", 1);
    checkpoint_put(&zip->file, data, size);
    checkpoint_put_le(&zip->file, 0x08074b50, 4);
    checkpoint_put_le(&zip->file, crc, 4);
    checkpoint_put_le(&zip->file, size, zip->wide ? 8 : 4);
    checkpoint_put_le(&zip->file, size, zip->wide ? 8 : 4);

    checkpoint_put_le(&zip->directory, 0x02014b50, 4);
    checkpoint_put_le(&zip->directory, 0, 4); /* versions */
    checkpoint_put_le(&zip->directory, 0x0808, 2);
    checkpoint_put_le(&zip->directory, 0, 6); /* method, time, date */
    checkpoint_put_le(&zip->directory, crc, 4);
    checkpoint_put_le(&zip->directory, zip->wide ? UINT32_MAX : size, 4);
    checkpoint_put_le(&zip->directory, zip->wide ? UINT32_MAX : size, 4);
    checkpoint_put_le(&zip->directory, length, 2);
    checkpoint_put_le(&zip->directory, zip->wide ? 28 : 0, 2);
    checkpoint_put_le(&zip->directory, 0, 6);
    checkpoint_put_le(&zip->directory, 0, 4); /* attributes */
    checkpoint_put_le(&zip->directory, zip->wide ? UINT32_MAX : offset, 4);
    checkpoint_put(&zip->directory, name, length);
    if (zip->wide) {
        checkpoint_put_le(&zip->directory, 1, 2);
        checkpoint_put_le(&zip->directory, 24, 2);
        checkpoint_put_le(&zip->directory, size, 8);
        checkpoint_put_le(&zip->directory, size, 8);
        checkpoint_put_le(&zip->directory, offset, 8);
    }
    zip->count++;
}

void checkpoint_zip_finish(struct checkpoint_zip *zip, struct checkpoint_buffer *out)
{
    size_t start = zip->file.size, size = zip->directory.size;
    struct checkpoint_buffer *file = &zip->file;
    checkpoint_put(file, zip->directory.data, size);
    size_t record = file->size;
    checkpoint_put_le(file, 0x06064b50, 4); /* zip64 end of central directory */
    checkpoint_put_le(file, 44, 8);
    checkpoint_put_le(file, 0x2d, 2);
    checkpoint_put_le(file, 0x2d, 2);
    checkpoint_put_le(file, 0, 8);
    checkpoint_put_le(file, zip->count, 8);
    checkpoint_put_le(file, zip->count, 8);
    checkpoint_put_le(file, size, 8);
    checkpoint_put_le(file, start, 8);
    checkpoint_put_le(file, 0x07064b50, 4); /* its locator */
    checkpoint_put_le(file, 0, 4);
    checkpoint_put_le(file, record, 8);
    checkpoint_put_le(file, 1, 4);
    checkpoint_put_le(file, 0x06054b50, 4); /* end of central directory */
    checkpoint_put_le(file, 0, 4);
    checkpoint_put_le(file, zip->wide ? UINT16_MAX : zip->count, 2);
    checkpoint_put_le(file, zip->wide ? UINT16_MAX : zip->count, 2);
    checkpoint_put_le(file, zip->wide ? UINT32_MAX : size, 4);
    checkpoint_put_le(file, zip->wide ? UINT32_MAX : start, 4);
    checkpoint_put_le(file, 0, 2); /* comment */
    checkpoint_put(out, file->data, file->size);
    checkpoint_free(&zip->file);
    checkpoint_free(&zip->directory);
    zip->count = 0;
}

/* ---- pickle ---- */
void checkpoint_pickle_op(struct checkpoint_buffer *out, int opcode)
{
    checkpoint_put_le(out, (uint64_t)opcode, 1);
}

void checkpoint_pickle_start(struct checkpoint_buffer *out)
{
    checkpoint_put(out, "\x80\x02", 2);
}

void checkpoint_pickle_text(struct checkpoint_buffer *out, const char *text)
{
    checkpoint_pickle_op(out, 'X');
    checkpoint_put_le(out, strlen(text), 4);
    checkpoint_put(out, text, strlen(text));
}

void checkpoint_pickle_int(struct checkpoint_buffer *out, int64_t value)
{
    if (value >= 0 && value < 256) {
        checkpoint_pickle_op(out, 'K');
        checkpoint_put_le(out, (uint64_t)value, 1);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        checkpoint_pickle_op(out, 'J');
        checkpoint_put_le(out, (uint64_t)value, 4);
    } else {
        checkpoint_put(out, "\x8a\x08", 2);
        checkpoint_put_le(out, (uint64_t)value, 8);
    }
}

void checkpoint_pickle_global(struct checkpoint_buffer *out, const char *module, const char *name)
{
    put_text(out, "c%s\n%s\n", module, name);
}

static void pickle_extents(struct checkpoint_buffer *out, const int64_t *values, int rank)
{
    checkpoint_pickle_op(out, '(');
    for (int i = 0; i < rank; i++)
        checkpoint_pickle_int(out, values[i]);
    checkpoint_pickle_op(out, 't');
}

void checkpoint_pickle_tensor(struct checkpoint_buffer *out, const struct checkpoint_view *view, bool legacy)
{
    checkpoint_pickle_global(out, "torch._utils", "_rebuild_tensor_v2");
    checkpoint_put(out, "((", 2);
    checkpoint_pickle_text(out, "storage");
    checkpoint_pickle_global(out, "torch", view->storage);
    checkpoint_pickle_text(out, view->key);
    checkpoint_pickle_text(out, "cpu");
    checkpoint_pickle_int(out, view->numel);
    checkpoint_put(out, legacy ? "NtQ" : "tQ", legacy ? 3 : 2);
    checkpoint_pickle_int(out, view->offset);
    pickle_extents(out, view->shape, view->rank);
    pickle_extents(out, view->stride, view->rank);
    checkpoint_pickle_op(out, 0x89); /* requires_grad */
    checkpoint_pickle_global(out, "collections", "OrderedDict");
    checkpoint_put(out, ")RtR", 4);
}

static void pickle_state(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                         enum checkpoint_float type, const char *wrapper, bool legacy)
{
    checkpoint_pickle_start(out);
    if (wrapper) {
        checkpoint_pickle_op(out, '}');
        checkpoint_pickle_text(out, wrapper);
    }
    checkpoint_pickle_global(out, "collections", "OrderedDict");
    checkpoint_put(out, ")R(", 3);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%zu", i);
        struct checkpoint_view view = {.storage = type == CHECKPOINT_F32 ? "FloatStorage" : "HalfStorage",
                                       .key = key,
                                       .numel = (int64_t)element_count(&tensors[i]),
                                       .rank = tensors[i].rank};
        int64_t stride = 1;
        for (int d = view.rank - 1; d >= 0; d--) {
            view.shape[d] = (int64_t)tensors[i].shape[d];
            view.stride[d] = stride;
            stride *= view.shape[d];
        }
        checkpoint_pickle_text(out, tensors[i].name);
        checkpoint_pickle_tensor(out, &view, legacy);
    }
    checkpoint_pickle_op(out, 'u');
    if (wrapper)
        checkpoint_pickle_op(out, 's');
    checkpoint_pickle_op(out, '.');
}

/* ---- torch.save ---- */
void checkpoint_torch_zip(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                          enum checkpoint_float type, const char *wrapper)
{
    struct checkpoint_zip zip = {0};
    struct checkpoint_buffer part = {0};
    pickle_state(&part, tensors, count, type, wrapper, false);
    checkpoint_zip_add(&zip, "archive/data.pkl", part.data, part.size);
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "archive/data/%zu", i);
        part.size = 0;
        put_elements(&part, &tensors[i], type);
        checkpoint_zip_add(&zip, name, part.data, part.size);
    }
    checkpoint_zip_add(&zip, "archive/version", "3\n", 2);
    checkpoint_zip_finish(&zip, out);
    checkpoint_free(&part);
}

void checkpoint_legacy_start(struct checkpoint_buffer *out, bool little_endian)
{
    checkpoint_put(out, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
    checkpoint_pickle_start(out);
    checkpoint_pickle_int(out, 1001);
    checkpoint_pickle_op(out, '.');
    checkpoint_pickle_start(out);
    checkpoint_put(out, "}(", 2);
    checkpoint_pickle_text(out, "protocol_version");
    checkpoint_pickle_int(out, 1001);
    checkpoint_pickle_text(out, "little_endian");
    checkpoint_pickle_op(out, little_endian ? 0x88 : 0x89);
    checkpoint_put(out, "u.", 2);
}

void checkpoint_torch_legacy(struct checkpoint_buffer *out, const struct checkpoint_tensor *tensors, size_t count,
                             enum checkpoint_float type, const char *wrapper)
{
    checkpoint_legacy_start(out, true);
    pickle_state(out, tensors, count, type, wrapper, true);
    checkpoint_pickle_start(out);
    checkpoint_put(out, "](", 2);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%zu", i);
        checkpoint_pickle_text(out, key);
    }
    checkpoint_put(out, "e.", 2);
    for (size_t i = 0; i < count; i++) {
        checkpoint_put_le(out, element_count(&tensors[i]), 8);
        put_elements(out, &tensors[i], type);
    }
}
