#include "server/http/mixed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/http/header.h"
#include "server/http/reply.h"
#include "server/image/codec.h"
#include "server/job/record.h"

#define MIXED_HEADER_MAX 2048 /* bytes of a part's header with its final 0 */

struct mixed_part {
    char header[MIXED_HEADER_MAX];
    const void *bytes;
    size_t size;
};

/* All that the response points into. */
struct mixed {
    struct job *job; /* NULL: the pictures are in the file */
    struct file file;
    char *report;
    char boundary[33], end[48];
    struct mixed_part *parts;
    int count;
};

static void mixed_free(void *context)
{
    struct mixed *mixed = context;
    if (!mixed)
        return;
    job_release(&mixed->job);
    file_unmap(&mixed->file);
    free(mixed->report);
    free(mixed->parts);
    free(mixed);
}

/* name: the folder in which the command line writes such a file. face: its id, or -1. */
static void mixed_add(struct mixed *mixed, const void *bytes, size_t size, const char *type, const char *name,
                      const char *disposition, int face)
{
    struct mixed_part *part = &mixed->parts[mixed->count];
    char id[48] = "";
    const char *file = strchr(disposition, ';'); /* after "attachment" */
    if (face >= 0)
        snprintf(id, sizeof id, "X-Restored-Face: %d\r\n", face);
    snprintf(part->header, sizeof part->header,
             "%s--%s\r\nContent-Type: %s\r\nContent-Disposition: attachment; name=\"%s\"%s\r\n%sContent-Length: "
             "%zu\r\n\r\n",
             mixed->count ? "\r\n" : "", mixed->boundary, type, name, file ? file : "", id, size);
    part->bytes = bytes;
    part->size = size;
    mixed->count++;
}

static void mixed_add_faces(struct mixed *mixed, const char *file_name)
{
    const struct restoration *r = mixed->job->restoration;
    for (int i = 0, number = 0; i < r->face_count; i++) {
        const struct face *face = &r->faces[i];
        char text[1024], tail[OPTION_NAME_MAX + 16];
        if (!face->crop_file.bytes)
            continue;
        snprintf(tail, sizeof tail, "%02d", number);
        header_disposition(file_name, tail, "png", text, sizeof text);
        mixed_add(mixed, face->crop_file.bytes, face->crop_file.size, "image/png", "cropped_faces", text, face->id);
        snprintf(tail, sizeof tail, "%02d%s%s", number, *r->options.suffix ? "_" : "", r->options.suffix);
        header_disposition(file_name, tail, "png", text, sizeof text);
        if (face->restoration_file.bytes)
            mixed_add(mixed, face->restoration_file.bytes, face->restoration_file.size, "image/png", "restored_faces",
                      text, face->id);
        number++;
    }
}

/* The parts' headers and bytes in turn, and the end. */
static struct MHD_Response *mixed_send(struct mixed *mixed, uint64_t *bytes)
{
    int count = 2 * mixed->count + 1;
    struct MHD_IoVec *list = mem_alloc((size_t)count, sizeof *list);
    if (!list)
        return NULL;
    for (int i = 0; i < mixed->count; i++) {
        const struct mixed_part *part = &mixed->parts[i];
        list[2 * i] = (struct MHD_IoVec){part->header, strlen(part->header)};
        list[2 * i + 1] = (struct MHD_IoVec){part->bytes, part->size};
    }
    list[count - 1] = (struct MHD_IoVec){mixed->end, strlen(mixed->end)};
    *bytes = 0;
    for (int i = 0; i < count; i++)
        *bytes += list[i].iov_len;
    struct MHD_Response *response = MHD_create_response_from_iovec(list, (unsigned)count, mixed_free, mixed);
    free(list);
    return response;
}

struct MHD_Response *mixed_response(struct job *job, const char *file_name, char type[MIXED_TYPE_MAX], uint64_t *bytes)
{
    const struct restoration *r = job->restoration;
    struct mixed *mixed = mem_calloc(1, sizeof *mixed);
    char text[1024];
    size_t size = 0;
    if (!mixed)
        return NULL;
    mixed->job = job_hold(job);
    mixed->report = reply_dump(restoration_report(r), &size);
    mixed->parts = mem_alloc(3 + 2 * (size_t)r->face_count, sizeof *mixed->parts);
    if (!mixed->report || !mixed->parts) {
        mixed_free(mixed);
        return NULL;
    }
    job_make_id(mixed->boundary); /* 128 random bits: no picture can hold it */
    snprintf(mixed->end, sizeof mixed->end, "\r\n--%s--\r\n", mixed->boundary);
    snprintf(type, MIXED_TYPE_MAX, "multipart/mixed; boundary=%s", mixed->boundary);

    header_disposition(file_name, NULL, "json", text, sizeof text);
    mixed_add(mixed, mixed->report, size, "application/json", "report", text, -1);
    header_disposition(file_name, r->damage_only ? "mask" : r->options.suffix, codec_extension(r->output_format), text,
                       sizeof text);
    mixed_add(mixed, r->output, r->output_bytes, codec_media_type(r->output_format),
              r->damage_only ? "masks" : "restored_imgs", text, -1);
    if (r->mask_file.bytes) {
        header_disposition(file_name, "mask", "png", text, sizeof text);
        mixed_add(mixed, r->mask_file.bytes, r->mask_file.size, "image/png", "masks", text, -1);
    }
    mixed_add_faces(mixed, file_name);
    struct MHD_Response *response = mixed_send(mixed, bytes);
    if (!response)
        mixed_free(mixed);
    return response;
}

/* A part of the file. damage: the result is a mask. False: it lies elsewhere. */
static bool mixed_add_stored(struct mixed *mixed, const struct record_part *part, bool damage, const char *file_name,
                             const char *suffix)
{
    static const char *const kinds[][2] = {
        {"result", "restored_imgs"}, {"mask", "masks"}, {"crop", "cropped_faces"}, {"restored", "restored_faces"}};
    char text[1024], tail[OPTION_NAME_MAX + 16];
    int k = 0;
    while (k < 4 && strcmp(kinds[k][0], part->kind) != 0)
        k++;
    if (k == 4 || part->offset > mixed->file.size || part->size > mixed->file.size - part->offset)
        return false;
    if (k == 0)
        snprintf(tail, sizeof tail, "%s", suffix);
    else if (k == 1)
        snprintf(tail, sizeof tail, "mask");
    else
        snprintf(tail, sizeof tail, "%02d%s%s", part->number, k == 3 && *suffix ? "_" : "", k == 3 ? suffix : "");
    header_disposition(file_name, tail, part->extension, text, sizeof text);
    mixed_add(mixed, mixed->file.data + part->offset, (size_t)part->size, part->type,
              k == 0 && damage ? "masks" : kinds[k][1], text, part->face);
    return true;
}

struct MHD_Response *mixed_stored(int fd, json_t *report, const char *parts, const char *file_name, const char *suffix,
                                  char type[MIXED_TYPE_MAX], uint64_t *bytes, struct error *err)
{
    struct mixed *mixed = mem_calloc(1, sizeof *mixed);
    struct MHD_Response *response = NULL;
    struct record_part *list;
    char text[1024];
    size_t size = 0;
    const size_t count = record_parts(parts, &list);
    bool whole = mixed && !file_map_descriptor(&mixed->file, fd, "a file of the spool", err);
    if (whole) {
        mixed->report = reply_dump(json_incref(report), &size);
        mixed->parts = mem_alloc(1 + count, sizeof *mixed->parts);
        whole = mixed->report && mixed->parts;
    }
    if (whole) {
        job_make_id(mixed->boundary);
        snprintf(mixed->end, sizeof mixed->end, "\r\n--%s--\r\n", mixed->boundary);
        snprintf(type, MIXED_TYPE_MAX, "multipart/mixed; boundary=%s", mixed->boundary);
        header_disposition(file_name, NULL, "json", text, sizeof text);
        mixed_add(mixed, mixed->report, size, "application/json", "report", text, -1);
    }
    for (size_t i = 0; i < count && whole; i++)
        whole = mixed_add_stored(mixed, &list[i], !json_object_get(report, "output"), file_name, suffix);
    free(list);
    if (whole)
        response = mixed_send(mixed, bytes);
    if (!response) {
        mixed_free(mixed);
        error_set(err, ERROR_INTERNAL, "the result of this job is damaged, or there is no memory to send it");
    }
    return response;
}
