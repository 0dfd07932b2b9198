/* Answers that hold pictures as base64, which is made on its way out. */
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/compat/compat.h"
#include "server/image/codec.h"

#define COMPAT_PIECE ((size_t)64 << 10) /* bytes that are sent at a time */
#define COMPAT_MARK "\\u0001"           /* as JSON writes the byte on both sides of a picture's number */

json_t *compat_mark(int picture, const char *before)
{
    return json_sprintf("%s\x01%d\x01", before, picture);
}

const char *compat_type(const struct compat *compat, int picture)
{
    return codec_media_type(compat->pictures[picture].job->restoration->output_format);
}

size_t compat_encode(const uint8_t *from, size_t size, uint64_t at, char *out, size_t most)
{
    const uint64_t all = BASE64_ENCODE_RAW_LENGTH(size);
    size_t used = 0;
    while (at < all && used < most) {
        const size_t first = (size_t)(at / 4) * 3, in = (size_t)(at % 4), left = size - first;
        if (!in && most - used >= 4) {
            size_t groups = (most - used) / 4, bytes = groups * 3;
            if (bytes > left)
                bytes = left;
            groups = (bytes + 2) / 3;
            base64_encode_raw(out + used, bytes, from + first);
            used += 4 * groups;
            at += 4 * groups;
            continue;
        }
        char group[4];
        base64_encode_raw(group, left < 3 ? left : 3, from + first);
        const size_t part = most - used < 4 - in ? most - used : 4 - in;
        memcpy(out + used, group + in, part);
        used += part;
        at += part;
    }
    return used;
}

/* A part of a text: what stands in it, or a picture. */
struct compat_part {
    uint64_t begin; /* in the text */
    const char *text;
    struct compat_bytes picture; /* its data NULL: it is text */
};

struct compat_text {
    char *text; /* of all parts */
    uint64_t size;
    size_t count;
    struct compat_part parts[];
};

void compat_text_free(struct compat_text *text)
{
    for (size_t i = 0; text && i < text->count; i++)
        if (text->parts[i].picture.release)
            text->parts[i].picture.release(text->parts[i].picture.owner);
    if (text)
        free(text->text);
    free(text);
}

uint64_t compat_text_size(const struct compat_text *text)
{
    return text->size;
}

size_t compat_text_read(const struct compat_text *text, uint64_t at, char *to, size_t most)
{
    size_t used = 0, i = 0;
    while (i + 1 < text->count && text->parts[i + 1].begin <= at)
        i++;
    for (; i < text->count && used < most; i++) {
        const struct compat_part *part = &text->parts[i];
        const uint64_t end = i + 1 < text->count ? text->parts[i + 1].begin : text->size;
        const uint64_t from = at + used - part->begin;
        size_t take = most - used;
        if (take > end - part->begin - from)
            take = (size_t)(end - part->begin - from);
        if (part->picture.data)
            compat_encode(part->picture.data, part->picture.size, from, to + used, take);
        else
            memcpy(to + used, part->text + from, take);
        used += take;
    }
    return used;
}

/* The next mark: one behind a backslash is text that somebody wrote. NULL: there is none. */
static const char *compat_find(const char *text, const char *from)
{
    while ((from = strstr(from, COMPAT_MARK)) && from > text && from[-1] == '\\')
        from++;
    return from;
}

static void compat_release_job(void *owner)
{
    struct job *job = owner;
    job_release(&job);
}

struct compat_text *compat_text_make(json_t *json, compat_picture_fn *picture, void *context)
{
    size_t size = 0, marks = 0;
    char *dumped = reply_dump(json, &size);
    if (!dumped)
        return NULL;
    for (const char *at = dumped; (at = compat_find(dumped, at)); at += strlen(COMPAT_MARK))
        marks++;
    struct compat_text *text = mem_calloc(1, sizeof *text + (marks + 1) * sizeof *text->parts);
    if (!text) {
        free(dumped);
        return NULL;
    }
    text->text = dumped;
    const char *at = dumped, *mark;
    while ((mark = compat_find(dumped, at))) {
        char *end;
        struct compat_bytes bytes = {0};
        const long number = strtol(mark + strlen(COMPAT_MARK), &end, 10);
        text->parts[text->count++] = (struct compat_part){.begin = text->size, .text = at};
        text->size += (uint64_t)(mark - at);
        at = strncmp(end, COMPAT_MARK, strlen(COMPAT_MARK)) != 0 ? end : end + strlen(COMPAT_MARK);
        if (!picture(context, (int)number, &bytes))
            continue;
        text->parts[text->count++] = (struct compat_part){.begin = text->size, .picture = bytes};
        text->size += BASE64_ENCODE_RAW_LENGTH(bytes.size);
    }
    text->parts[text->count++] = (struct compat_part){.begin = text->size, .text = at};
    text->size += size - (size_t)(at - dumped);
    return text;
}

/* Of a request that has made it. */
static bool compat_made(void *context, int number, struct compat_bytes *out)
{
    const struct compat *compat = context;
    struct job *job = number >= 0 && number < compat->count ? compat->pictures[number].job : NULL;
    if (job && job->restoration->output)
        *out = (struct compat_bytes){job->restoration->output, job->restoration->output_bytes, job_hold(job),
                                     compat_release_job};
    return out->data;
}

static ssize_t compat_read(void *context, uint64_t at, char *to, size_t most)
{
    return (ssize_t)compat_text_read(context, at, to, most);
}

static void compat_end(void *context)
{
    compat_text_free(context);
}

enum MHD_Result compat_send_text(struct request *request, enum reply reply, struct compat_text *text)
{
    if (!text)
        return reply_json(request, reply, NULL);
    struct MHD_Response *response =
        MHD_create_response_from_callback(text->size, COMPAT_PIECE, compat_read, text, compat_end);
    if (!response) {
        compat_text_free(text);
        return MHD_NO;
    }
    request->answer_bytes = text->size;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    return reply_send(request, reply, response, "application/json");
}

enum MHD_Result compat_send(struct request *request, enum reply reply, json_t *json)
{
    return compat_send_text(request, reply, compat_text_make(json, compat_made, request->reading));
}
