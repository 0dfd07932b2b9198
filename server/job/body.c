#include "server/job/body.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/file.h"

#define BODY_ROOM 65536 /* at first */

/* Its bytes so far move to a file. */
static enum error_code body_spill(struct body *body, struct spool *spool, struct error *err)
{
    struct spool_file *file;
    enum error_code code = spool_create(spool, &file, err);
    if (!code)
        code = spool_write(file, body->data, body->size, err);
    if (code) {
        spool_discard(&file);
        return code;
    }
    free(body->data);
    body->data = NULL;
    body->room = 0;
    body->file = file;
    return OK;
}

static enum error_code body_grow(struct body *body, size_t size, struct error *err)
{
    size_t room = body->room ? body->room : BODY_ROOM;
    while (room - body->size < size)
        if (__builtin_mul_overflow(room, 2, &room))
            return error_set(err, ERROR_NO_MEMORY, "no memory for the picture");
    uint8_t *grown = realloc(body->data, room);
    if (!grown)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the picture");
    body->data = grown;
    body->room = room;
    return OK;
}

enum error_code body_append(struct body *body, const void *data, size_t size, struct error *err)
{
    enum error_code code = OK;
    if (!size)
        return OK;
    if (!body->file && body->spool && (body->size > BODY_MEMORY || size > BODY_MEMORY - body->size))
        code = body_spill(body, body->spool, err);
    else if (!body->file && size > body->room - body->size)
        code = body_grow(body, size, err);
    if (!code && body->file)
        code = spool_write(body->file, data, size, err);
    else if (!code)
        memcpy(body->data + body->size, data, size);
    if (!code)
        body->size += size;
    return code;
}

enum error_code body_read(struct body *body, struct restoration *r, body_reader *reader,
                          const struct model_store *store, struct error *err)
{
    const int fd = body->file ? spool_descriptor(body->file) : body->kept - 1;
    struct file map = {0};
    struct error local = ERROR_INIT;
    enum error_code code = OK;
    if (fd >= 0 && (code = file_map_descriptor(&map, fd, "a file of the spool", err)))
        return code;
    r->input = fd >= 0 ? map.data : body->data;
    if (r->mask_bytes > body->size || r->other_bytes > body->size - r->mask_bytes) {
        file_unmap(&map);
        return error_set(err, ERROR_CORRUPT, "a picture and its mask cannot be told apart");
    }
    r->input_bytes = body->size - r->mask_bytes - r->other_bytes;
    r->mask_input = r->mask_bytes ? r->input + r->input_bytes : NULL;
    r->other_input = r->other_bytes ? r->input + r->input_bytes + r->mask_bytes : NULL;
    r->input_file = fd + 1;
    code = reader(r, store, &local);
    r->input = r->mask_input = r->other_input = NULL;
    r->input_file = 0;
    if (file_changed(&map)) /* the disk failed: whatever was read, some of it were zeros */
        code = error_set(err, ERROR_IO, "a file of the spool could not be read");
    else if (code)
        error_copy(err, code, &local);
    file_unmap(&map);
    return code;
}

enum error_code body_copy(struct body *to, const struct body *from, struct error *err)
{
    const int fd = from->file ? spool_descriptor(from->file) : from->kept - 1;
    struct file map = {0};
    enum error_code code = OK;
    if (fd >= 0 && (code = file_map_descriptor(&map, fd, "a file of the spool", err)))
        return code;
    code = body_append(to, fd >= 0 ? map.data : from->data, from->size, err);
    if (file_changed(&map))
        code = error_set(err, ERROR_IO, "a file of the spool could not be read");
    file_unmap(&map);
    return code;
}

enum error_code body_to_file(struct body *body, struct spool *spool, struct error *err)
{
    return body->file ? OK : body_spill(body, spool, err);
}

enum error_code body_keep(struct body *body, struct spool *spool, const char *id, struct error *err)
{
    enum error_code code = body_to_file(body, spool, err);
    if (!code)
        code = spool_place(spool, &body->file, id, SPOOL_INPUT, err);
    if (!code)
        body_clear(body);
    return code;
}

enum error_code body_kept(struct body *out, struct spool *spool, const char *id, struct error *err)
{
    uint64_t size;
    int fd;
    *out = (struct body){0};
    const enum error_code code = spool_read(spool, id, SPOOL_INPUT, &fd, &size, err);
    if (!code)
        *out = (struct body){.kept = fd + 1, .size = (size_t)size};
    return code;
}

void body_clear(struct body *body)
{
    free(body->data);
    spool_discard(&body->file);
    if (body->kept)
        close(body->kept - 1);
    *body = (struct body){.spool = body->spool};
}
