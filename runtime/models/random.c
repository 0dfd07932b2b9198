#include "runtime/models/random.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

void random_tensor(struct random_file *f, float offset, float deviation, int rank, const int *shape, const char *format,
                   ...)
{
    assert(f->count < RANDOM_MAX_TENSORS);
    struct random_tensor *t = &f->tensors[f->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->offset = offset;
    t->spread = deviation * 1.7320508f; /* of a uniform distribution: sqrt(3) of its deviation */
}

static size_t random_elements(const struct random_tensor *t)
{
    size_t count = 1;
    for (int i = 0; i < t->rank; i++)
        count *= (size_t)t->shape[i];
    return count;
}

static void random_header(const struct random_file *f, FILE *out)
{
    size_t at = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct random_tensor *t = &f->tensors[i];
        fprintf(out, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i ? "," : "{", t->name);
        for (int d = 0; d < t->rank; d++)
            fprintf(out, "%s%d", d ? "," : "", t->shape[d]);
        size_t end = at + random_elements(t) * sizeof(float);
        fprintf(out, "],\"data_offsets\":[%zu,%zu]}", at, end);
        at = end;
    }
    fputc('}', out);
}

/* splitmix64 (Steele et al. 2014), two values a step. */
static void random_fill(const struct random_tensor *t, uint64_t *state, uint8_t *to)
{
    size_t count = random_elements(t);
    for (size_t i = 0; i < count; i += 2) {
        uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        const float pair[2] = {t->offset + t->spread * ((float)(z >> 40) * 0x1p-23f - 1),
                               t->offset + t->spread * ((float)(z & 0xffffff) * 0x1p-23f - 1)};
        memcpy(to + i * sizeof(float), pair, (count - i < 2 ? count - i : 2) * sizeof(float));
    }
}

enum error_code random_write(const struct random_file *f, uint8_t **bytes, size_t *size, struct error *err)
{
    char *header = NULL;
    size_t length = 0, total = 0;
    FILE *text = open_memstream(&header, &length);
    if (text) {
        random_header(f, text);
        if (fclose(text)) {
            free(header);
            header = NULL;
        }
    }
    for (size_t i = 0; i < f->count; i++)
        total += random_elements(&f->tensors[i]) * sizeof(float);
    *size = 8 + length + total;
    *bytes = header ? mem_alloc(*size, 1) : NULL;
    if (*bytes) {
        uint64_t state = 1;
        uint8_t *to = *bytes;
        for (int i = 0; i < 8; i++)
            *to++ = (uint8_t)((uint64_t)length >> (8 * i));
        memcpy(to, header, length);
        to += length;
        for (size_t i = 0; i < f->count; i++) {
            random_fill(&f->tensors[i], &state, to);
            to += random_elements(&f->tensors[i]) * sizeof(float);
        }
    }
    free(header);
    return *bytes ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for random weights");
}

void random_conv(struct random_file *f, int out, int in, int kernel, float gain, bool bias, const char *name)
{
    float deviation = gain * sqrtf(2 / (float)(in * kernel * kernel));
    random_tensor(f, 0, deviation, SHAPE(out, in, kernel, kernel), "%s.weight", name);
    if (bias)
        random_tensor(f, 0, 0.02f, SHAPE(out), "%s.bias", name);
}

void random_norm(struct random_file *f, int channels, const char *name)
{
    random_tensor(f, 1, 0.05f, SHAPE(channels), "%s.weight", name);
    random_tensor(f, 0, 0.02f, SHAPE(channels), "%s.bias", name);
    random_tensor(f, 0, 0.02f, SHAPE(channels), "%s.running_mean", name);
    random_tensor(f, 1, 0.05f, SHAPE(channels), "%s.running_var", name);
}

struct random_text random_text(const char *format, ...)
{
    struct random_text name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}
