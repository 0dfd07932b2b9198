#include "server/http/upload.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "server/http/multipart.h"
#include "server/pipeline/pipeline.h"

#define UPLOAD_OPTIONS 64
#define UPLOAD_MASK_MAX ((size_t)4 << 20) /* bytes: a mask comes into memory */
#define UPLOAD_FIELDS_MAX 16384           /* bytes of an application/x-www-form-urlencoded body */

enum answer_field { ANSWER_ASYNC, ANSWER_BATCH, ANSWER_FACES_OUT, ANSWER_PRIORITY, ANSWER_FIELDS, ANSWER_NONE = -1 };
const struct upload_row upload_answers[] = {
    [ANSWER_ASYNC] = {"async", "boolean", "true or false",
                      "the answer is 202 at once, and the work an asynchronous job", true, NULL},
    [ANSWER_BATCH] = {"batch", "string",
                      "a name of 1 to 63 letters, digits, dots, dashes and underscores; the first is no dot",
                      "a name for asynchronous jobs that belong together", true, NULL},
    [ANSWER_FACES_OUT] = {"faces_out", "boolean", "true or false",
                          "the crop and the restored picture of each face as further parts of the answer; needs "
                          "Accept: multipart/mixed, or async",
                          false, NULL},
    [ANSWER_PRIORITY] = {"priority", "enum", "normal or low",
                         "low: it waits until nothing of normal priority waits, whoever sent that", true, "normal"},
};
const int upload_answer_count = ANSWER_FIELDS;

struct upload {
    struct options options;
    bool detect;
    bool seen[UPLOAD_OPTIONS]; /* by row of option_rows */
    bool seen_answer[ANSWER_FIELDS], async, faces_out, low;
    char batch[UPLOAD_BATCH_MAX];
    bool takes_size, seen_size[5]; /* POST /v1/estimate; by row of upload_sizes */
    struct upload_size told;
    struct multipart *form;
    bool fields; /* the body is application/x-www-form-urlencoded, kept as the picture until it is over */

    struct body picture;
    size_t limit;
    uint64_t received;
    bool has_picture;
    struct body mask; /* in memory; behind the picture in the end */
    bool has_mask, in_mask;
    char file_name[256];

    /* the form field whose bytes are coming in; not in_field: they are the picture's */
    bool in_field;
    char name[64], value[UPLOAD_VALUE_MAX];
    size_t value_size;
};

enum error_code upload_create(struct upload **out, bool detect, size_t limit, struct error *err)
{
    struct upload *upload = mem_calloc(1, sizeof *upload);
    if (!upload)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    options_init(&upload->options);
    upload->detect = detect;
    upload->told.faces = -1;
    upload->limit = limit;
    *out = upload;
    return OK;
}

void upload_destroy(struct upload **upload)
{
    struct upload *old = *upload;
    *upload = NULL;
    if (!old)
        return;
    multipart_destroy(&old->form);
    body_clear(&old->picture);
    body_clear(&old->mask);
    free(old);
}

void upload_use_spool(struct upload *upload, struct spool *spool)
{
    upload->picture.spool = spool;
}

void upload_take_size(struct upload *upload)
{
    upload->takes_size = true;
}

const struct upload_size *upload_size(const struct upload *upload)
{
    return &upload->told;
}

bool upload_has_picture(const struct upload *upload)
{
    return upload->picture.size > 0;
}

/* Text for a message: cut short, control characters and bytes beyond ASCII replaced, so that JSON takes it. */
static const char *upload_shown(const char *text, char out[64])
{
    size_t n = 0;
    for (; text[n] && n < 60; n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = 0;
    if (text[n])
        strcpy(out + n, "...");
    return out;
}

/* The option of that name; NULL if there is none, and for an answer_field. */
static const struct option_row *upload_find_option(const struct upload *upload, const char *name)
{
    const struct option_row *row = options_find(name);
    return row && upload->detect && !row->detect ? NULL : row;
}

static enum answer_field upload_find_answer(const struct upload *upload, const char *name)
{
    for (int i = 0; i < ANSWER_FIELDS; i++)
        if (!strcmp(upload_answers[i].name, name) && (!upload->detect || upload_answers[i].detect))
            return (enum answer_field)i;
    return ANSWER_NONE;
}

const struct upload_size_row upload_sizes[] = {
    {"width", 1, PIPELINE_SIDE, "the picture's width in px"},
    {"height", 1, PIPELINE_SIDE, "the picture's height in px"},
    {"face_count", 0, 10000, "how many faces are to be restored"},
    {"result_width", 1, OPTION_SIDE, "the width of the result in px"},
    {"result_height", 1, OPTION_SIDE, "the height of the result in px"},
};
const int upload_size_count = sizeof upload_sizes / sizeof *upload_sizes;

/* The row, or -1. */
static int upload_find_size(const struct upload *upload, const char *name)
{
    for (int i = 0; upload->takes_size && i < upload_size_count; i++)
        if (!strcmp(upload_sizes[i].name, name))
            return i;
    return -1;
}

static enum error_code upload_set_size(struct upload *upload, int row, const char *value, size_t size,
                                       struct error *err)
{
    int *const values[] = {&upload->told.width, &upload->told.height, &upload->told.faces, &upload->options.width,
                           &upload->options.height};
    char text[64], *end = NULL;
    errno = 0;
    const long number = size && value[0] >= '0' && value[0] <= '9' ? strtol(value, &end, 10) : -1;
    if (upload->seen_size[row])
        return error_set(err, ERROR_INVALID, "%s: sent more than once; once is allowed", upload_sizes[row].name);
    upload->seen_size[row] = true;
    if (!end || *end || strlen(value) != size || errno || number < upload_sizes[row].least ||
        number > upload_sizes[row].most)
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not allowed; allowed is %s, %ld to %ld",
                         upload_sizes[row].name, upload_shown(value, text), upload_sizes[row].allowed,
                         upload_sizes[row].least, upload_sizes[row].most);
    *values[row] = (int)number;
    return OK;
}

static enum error_code upload_unknown(const struct upload *upload, const char *name, bool file, struct error *err)
{
    char known[640] = "", text[64];
    if (file)
        return error_set(err, ERROR_INVALID,
                         "%s: there is no such field; the picture goes in \"image\", a mask in \"mask\"",
                         upload_shown(name, text));
    for (int i = 0; i < option_row_count; i++) {
        size_t used = strlen(known);
        if (!upload->detect || option_rows[i].detect)
            snprintf(known + used, sizeof known - 24 - used, "%s%s", used ? ", " : "", option_rows[i].name);
    }
    for (int i = 0; i < ANSWER_FIELDS; i++) {
        const size_t used = strlen(known);
        if (!upload->detect || upload_answers[i].detect)
            snprintf(known + used, sizeof known - used, ", %s", upload_answers[i].name);
    }
    for (int i = 0; upload->takes_size && i < upload_size_count; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", upload_sizes[i].name);
    }
    return error_set(err, ERROR_INVALID, "%s: there is no such field; known are: %s", upload_shown(name, text), known);
}

bool upload_is_batch(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t size = strlen(name);
    return size && size < UPLOAD_BATCH_MAX && strspn(name, allowed) == size && name[0] != '.';
}

static enum error_code upload_set_answer(struct upload *upload, enum answer_field field, const char *value,
                                         struct error *err)
{
    static const char *const words[] = {"false", "0", "off", "no", "true", "1", "on", "yes", "normal", "low"};
    const int end = field == ANSWER_PRIORITY ? 10 : 8;
    char text[64];
    int word = end == 10 ? 8 : 0;
    while (word < end && strcasecmp(value, words[word]) != 0)
        word++;
    if (field == ANSWER_BATCH ? !upload_is_batch(value) : word == end)
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not allowed; allowed is %s", upload_answers[field].name,
                         upload_shown(value, text), upload_answers[field].allowed);
    if (field == ANSWER_ASYNC)
        upload->async = word >= 4;
    else if (field == ANSWER_FACES_OUT)
        upload->faces_out = word >= 4;
    else if (field == ANSWER_PRIORITY)
        upload->low = word == 9;
    else
        snprintf(upload->batch, sizeof upload->batch, "%s", value);
    return OK;
}

bool upload_knows(const struct upload *upload, const char *name)
{
    return upload_find_size(upload, name) >= 0 || upload_find_answer(upload, name) != ANSWER_NONE ||
           upload_find_option(upload, name);
}

enum error_code upload_field(struct upload *upload, const char *name, const char *value, size_t size, struct error *err)
{
    char text[64];
    const int told = upload_find_size(upload, name);
    if (told >= 0)
        return upload_set_size(upload, told, value, size, err);
    const enum answer_field answer = upload_find_answer(upload, name);
    const struct option_row *row = answer == ANSWER_NONE ? upload_find_option(upload, name) : NULL;
    if (answer == ANSWER_NONE && !row)
        return upload_unknown(upload, name, false, err);
    bool *seen = row ? &upload->seen[row - option_rows] : &upload->seen_answer[answer];
    const char *allowed = row ? row->allowed : upload_answers[answer].allowed;
    if (*seen)
        return error_set(err, ERROR_INVALID, "%s: sent more than once; once is allowed", upload_shown(name, text));
    *seen = true;
    if (!size && (!row || strcmp(row->name, "suffix") != 0))
        return error_set(err, ERROR_INVALID, "%s: the value is empty; allowed is %s", upload_shown(name, text),
                         allowed);
    if (memchr(value, 0, size))
        return error_set(err, ERROR_INVALID, "%s: the value holds a zero byte", upload_shown(name, text));
    if (!utf8_valid(value)) {
        char sent[64];
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not UTF-8; allowed is %s", upload_shown(name, text),
                         upload_shown(value, sent), allowed);
    }
    return row ? options_set(&upload->options, row->name, value, err) : upload_set_answer(upload, answer, value, err);
}

enum error_code upload_argument(struct upload *upload, const char *name, size_t name_size, const char *value,
                                size_t size, struct error *err)
{
    if (!name_size)
        return value ? error_set(err, ERROR_INVALID, "a field has no name") : OK;
    if (memchr(name, 0, name_size))
        return error_set(err, ERROR_INVALID, "the name of a field holds a zero byte");
    return upload_field(upload, name, value ? value : "", value ? size : 0, err);
}

static enum error_code upload_over(const struct upload *upload, const char *what, struct error *err)
{
    char limit[ERROR_BYTES_MAX];
    return error_set(err, ERROR_TOO_LARGE, "the %s is over the limit of %s", what, error_bytes(limit, upload->limit));
}

static enum error_code upload_append(struct upload *upload, const char *data, size_t size, struct error *err)
{
    if (size > upload->limit - upload->picture.size)
        return upload_over(upload, "picture", err);
    return body_append(&upload->picture, data, size, err);
}

static enum error_code upload_part_begin(void *context, const struct multipart_part *part, struct error *err)
{
    struct upload *upload = context;
    const char *name = part->name, *encoding = part->encoding;
    char text[64];
    if (!name || !*name)
        return error_set(err, ERROR_INVALID, "a part of the form has no name");
    if (encoding && strcasecmp(encoding, "binary") != 0 && strcasecmp(encoding, "8bit") != 0 &&
        strcasecmp(encoding, "7bit") != 0)
        return error_set(err, ERROR_INVALID, "%s: Content-Transfer-Encoding is not supported in a form",
                         upload_shown(name, text));
    upload->in_mask = !upload->takes_size && strcmp(name, "mask") == 0;
    upload->in_field = !upload->in_mask && strcmp(name, "image") != 0;
    if (upload->in_mask) {
        if (upload->has_mask)
            return error_set(err, ERROR_INVALID, "mask: sent more than once; send one a request");
        upload->has_mask = true;
        return OK;
    }
    if (!upload->in_field) {
        if (upload->has_picture)
            return error_set(err, ERROR_INVALID, "image: sent more than once; send one picture a request");
        upload->has_picture = true;
        snprintf(upload->file_name, sizeof upload->file_name, "%s", part->file_name ? part->file_name : "");
        return OK;
    }
    /* refused by its name at once, however long its value is; no option's name is longer than upload->name */
    if (upload_find_answer(upload, name) == ANSWER_NONE && upload_find_size(upload, name) < 0 &&
        !upload_find_option(upload, name))
        return upload_unknown(upload, name, part->file_name != NULL, err);
    upload->value_size = 0;
    snprintf(upload->name, sizeof upload->name, "%s", name);
    return OK;
}

static enum error_code upload_part_data(void *context, const char *data, size_t size, struct error *err)
{
    struct upload *upload = context;
    if (upload->in_mask && size > UPLOAD_MASK_MAX - upload->mask.size)
        return error_set(err, ERROR_TOO_LARGE, "mask: it is over the limit of 4 MiB; a PNG of one bit is small");
    if (upload->in_mask)
        return body_append(&upload->mask, data, size, err);
    if (!upload->in_field)
        return upload_append(upload, data, size, err);
    if (size >= sizeof upload->value - upload->value_size)
        return error_set(err, ERROR_INVALID, "%s: the value is longer than %d bytes", upload->name,
                         UPLOAD_VALUE_MAX - 1);
    memcpy(upload->value + upload->value_size, data, size);
    upload->value_size += size;
    return OK;
}

static enum error_code upload_part_end(void *context, struct error *err)
{
    struct upload *upload = context;
    if (!upload->in_field)
        return OK;
    upload->value[upload->value_size] = 0;
    return upload_field(upload, upload->name, upload->value, upload->value_size, err);
}

static const struct multipart_events upload_events = {upload_part_begin, upload_part_data, upload_part_end};

/* Whether a Content-Type is this type, whatever its parameters. */
static bool upload_is_type(const char *content_type, const char *type)
{
    const size_t size = strlen(type);
    return content_type && strncasecmp(content_type, type, size) == 0 &&
           (!content_type[size] || strchr("; \t", content_type[size]));
}

enum error_code upload_begin(struct upload *upload, const char *content_type, size_t expected, struct error *err)
{
    if (upload->takes_size && !expected)
        return OK;
    if (upload->takes_size && upload_is_type(content_type, "application/x-www-form-urlencoded")) {
        upload->fields = true;
        return OK;
    }
    if (!content_type || strncasecmp(content_type, "multipart/", 10) != 0) {
        if (!expected)
            return error_set(err, ERROR_INVALID,
                             "the body is empty; send a picture, or a form with the file part \"image\"");
        upload->has_picture = true;
        return OK;
    }
    if (!upload_is_type(content_type, "multipart/form-data"))
        return error_set(err, ERROR_UNSUPPORTED, "multipart/form-data is the only multipart type that is taken");
    return multipart_create(&upload->form, content_type, &upload_events, upload, err);
}

static enum error_code upload_eat(struct upload *upload, const char *data, size_t size, struct error *err)
{
    upload->received += size;
    if (upload->received > upload->limit)
        return upload_over(upload, "body", err);
    if (upload->fields && upload->received > UPLOAD_FIELDS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "the fields are over the limit of %d KiB", UPLOAD_FIELDS_MAX / 1024);
    return upload->form ? multipart_feed(upload->form, data, size, err) : upload_append(upload, data, size, err);
}

enum error_code upload_feed(struct upload *upload, const char *data, size_t size, struct error *err)
{
    const enum error_code code = upload_eat(upload, data, size, err);
    if (code)
        body_clear(&upload->picture); /* others can use its room while the rest of the body passes */
    return code;
}

/* Decodes one name or value of application/x-www-form-urlencoded in place; returns its new size. */
static size_t upload_decode(char *text, size_t size)
{
    size_t used = 0;
    for (size_t at = 0; at < size; at++) {
        char c = text[at] == '+' ? ' ' : text[at];
        char digits[3] = {0}, *end = digits;
        if (c == '%' && size - at > 2) {
            memcpy(digits, text + at + 1, 2);
            const long byte = isxdigit((unsigned char)digits[0]) ? strtol(digits, &end, 16) : 0;
            if (end == digits + 2) {
                c = (char)byte;
                at += 2;
            }
        }
        text[used++] = c;
    }
    return used;
}

/* The whole body as fields: "name=value&name=value". */
static enum error_code upload_fields(struct upload *upload, struct error *err)
{
    enum error_code code = upload_append(upload, "&", 1, err); /* each ends with one now, which becomes its final 0 */
    upload->picture.size -= code == OK;
    char *at = (char *)upload->picture.data, *end = at + upload->picture.size, *next;
    for (; code == OK && at < end; at = next + 1) {
        next = memchr(at, '&', (size_t)(end - at) + 1);
        char *equals = memchr(at, '=', (size_t)(next - at)), *value = equals ? equals + 1 : next;
        const size_t name_size = upload_decode(at, (size_t)((equals ? equals : next) - at));
        const size_t size = upload_decode(value, (size_t)(next - value));
        at[name_size] = value[size] = 0;
        code = upload_argument(upload, at, name_size, equals ? value : NULL, size, err);
    }
    upload->picture.size = 0;
    return code;
}

enum error_code upload_finish(struct upload *upload, struct error *err)
{
    enum error_code code = upload->form ? multipart_finish(upload->form, err) : OK;
    if (upload->fields && code == OK)
        code = upload_fields(upload, err);
    if (code)
        return code;
    if (*upload->batch && upload->seen_answer[ANSWER_ASYNC] && !upload->async)
        return error_set(err, ERROR_INVALID, "batch: jobs of a batch are asynchronous; async may not be false");
    const bool told = upload->told.width && upload->told.height;
    if (upload->takes_size && told && upload->has_picture)
        return error_set(err, ERROR_INVALID, "image: send the picture, or its width and height, not both");
    if (upload->takes_size && !upload->has_picture && !told)
        return error_set(err, ERROR_INVALID, "send the picture's width and height, or the picture itself");
    if (told && !upload->has_picture)
        return options_check(&upload->options, err);
    if (!upload->has_picture)
        return error_set(err, ERROR_INVALID,
                         "image: there is no picture in the form; send it as the file part \"image\"");
    if (!upload->picture.size)
        return error_set(err, ERROR_INVALID, "image: the picture is empty");
    if (upload->has_mask && !upload->mask.size)
        return error_set(err, ERROR_INVALID, "mask: the picture is empty");
    code = options_check(&upload->options, err);
    return code ? code : body_append(&upload->picture, upload->mask.data, upload->mask.size, err);
}

size_t upload_mask(const struct upload *upload)
{
    return upload->mask.size;
}

struct options *upload_options(struct upload *upload)
{
    return &upload->options;
}

bool upload_async(const struct upload *upload, bool preferred)
{
    return upload->seen_answer[ANSWER_ASYNC] ? upload->async : preferred || *upload->batch;
}

const char *upload_batch(const struct upload *upload)
{
    return upload->batch;
}

bool upload_faces_out(const struct upload *upload)
{
    return upload->faces_out;
}

bool upload_low(const struct upload *upload)
{
    return upload->low;
}

const char *upload_file_name(const struct upload *upload)
{
    return upload->file_name;
}

uint64_t upload_received(const struct upload *upload)
{
    return upload->received;
}

void upload_take(struct upload *upload, struct body *out)
{
    *out = upload->picture;
    upload->picture = (struct body){0};
}
