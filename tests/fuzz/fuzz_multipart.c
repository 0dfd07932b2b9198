/* Any bytes as a form: the first line is its Content-Type, the rest its body, taken whole and in pieces of every size
 * up to that of a boundary. All have to give the same parts, or the same refusal. */
#include <stdlib.h>
#include <string.h>

#include "server/http/multipart.h"
#include "tests/fuzz/exercise.h"

/* What came out, hashed so that it does not matter in which pieces the data came (FNV-1a). */
struct outcome {
    uint64_t hash;
    int parts, open;
    struct error err;
};

static void add(struct outcome *outcome, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        outcome->hash = (outcome->hash ^ bytes[i]) * 1099511628211u;
}

static void add_text(struct outcome *outcome, const char *text)
{
    add(outcome, text ? text : "\1", (text ? strlen(text) : 1) + 1);
}

static enum error_code begin(void *context, const struct multipart_part *part, struct error *err)
{
    struct outcome *outcome = context;
    (void)err;
    if (outcome->open++)
        abort();
    outcome->parts++;
    add_text(outcome, part->name);
    add_text(outcome, part->file_name);
    add_text(outcome, part->encoding);
    return OK;
}

static enum error_code data_came(void *context, const char *data, size_t size, struct error *err)
{
    struct outcome *outcome = context;
    (void)err;
    if (!size || outcome->open != 1)
        abort();
    add(outcome, data, size);
    return OK;
}

static enum error_code end(void *context, struct error *err)
{
    struct outcome *outcome = context;
    (void)err;
    if (outcome->open-- != 1)
        abort();
    add(outcome, "end", 4);
    return OK;
}

static const struct multipart_events events = {begin, data_came, end};

static struct outcome take(const char *type, const uint8_t *data, size_t size, size_t step)
{
    struct outcome outcome = {.hash = 14695981039346656037u};
    struct multipart *multipart;
    if (multipart_create(&multipart, type, &events, &outcome, &outcome.err) != OK)
        return outcome;
    enum error_code code = OK;
    for (size_t at = 0; at < size && code == OK; at += step)
        code = multipart_feed(multipart, (const char *)data + at, step < size - at ? step : size - at, &outcome.err);
    if (code == OK)
        code = multipart_finish(multipart, &outcome.err);
    if (code != outcome.err.code || (code && !outcome.err.text[0]) || outcome.parts > MULTIPART_PARTS)
        abort();
    if (code == OK && outcome.open)
        abort();
    multipart_destroy(&multipart);
    return outcome;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    const size_t length = newline ? (size_t)(newline - data) : 0;
    if (!newline || memchr(data, 0, length))
        return 0;
    char *type = malloc(length + 1);
    if (!type)
        abort();
    memcpy(type, data, length);
    type[length] = 0;
    data += length + 1;
    size -= length + 1;
    const struct outcome whole = take(type, data, size, size ? size : 1);
    for (size_t step = 1; step < size && step <= MULTIPART_BOUNDARY_MAX + 8; step += step < 8 ? 1 : 9) {
        const struct outcome pieces = take(type, data, size, step);
        if (pieces.err.code != whole.err.code || strcmp(pieces.err.text, whole.err.text) != 0 ||
            (whole.err.code == OK && (pieces.hash != whole.hash || pieces.parts != whole.parts)))
            abort();
    }
    free(type);
    exercise_opened += whole.err.code == OK && whole.parts > 0;
    return 0;
}
