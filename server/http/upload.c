#include "server/http/upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "server/http/utf8.h"

#define MAX_OPTIONS 64
#define FORM_BUFFER 32768 /* of the post processor: bounds a part's header */
#define FIRST_ROOM 65536

struct upload {
    struct options options;
    bool detect;
    bool seen[MAX_OPTIONS], seen_async; /* by row of option_rows */
    struct MHD_PostProcessor *form;
    struct error error; /* of a part, inside the post processor's callback */

    uint8_t *picture;
    size_t size, room, limit;
    uint64_t received;
    bool has_picture;
    char file_name[256];

    /* the form field whose bytes are coming in */
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
    if (old->form)
        MHD_destroy_post_processor(old->form);
    free(old->picture);
    free(old);
}

/* Text for a message: cut short, control characters and bytes beyond ASCII replaced, so that JSON takes it. */
static const char *shown(const char *text, char out[64])
{
    size_t n = 0;
    for (; text[n] && n < 60; n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = 0;
    if (text[n])
        strcpy(out + n, "...");
    return out;
}

/* The option of that name; NULL where there is none, and for async, which is none of the pipeline's. */
static const struct option_row *find_option(const struct upload *upload, const char *name)
{
    const struct option_row *row = options_find(name);
    return row && upload->detect && !row->detect ? NULL : row;
}

static bool is_async(const struct upload *upload, const char *name)
{
    return !upload->detect && !strcmp(name, "async");
}

static enum error_code unknown_field(const struct upload *upload, const char *name, bool file, struct error *err)
{
    char known[384] = "", text[64];
    if (file)
        return error_set(err, ERROR_INVALID, "%s: there is no such field; the picture goes in \"image\"",
                         shown(name, text));
    for (int i = 0; i < option_row_count; i++) {
        size_t used = strlen(known);
        if (!upload->detect || option_rows[i].detect)
            snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", option_rows[i].name);
    }
    return error_set(err, ERROR_INVALID, "%s: there is no such field; known are: %s", shown(name, text), known);
}

/* Jobs that are not waited for come later; until then async=true is refused, and false is what is done anyway. */
static enum error_code set_async(const char *value, struct error *err)
{
    static const char *const yes[] = {"true", "1", "on", "yes"}, *const no[] = {"false", "0", "off", "no"};
    char text[64];
    for (int i = 0; i < 4; i++) {
        if (!strcasecmp(value, yes[i]))
            return error_set(err, ERROR_INVALID, "async: \"%s\" is not supported yet; the answer is waited for",
                             shown(value, text));
        if (!strcasecmp(value, no[i]))
            return OK;
    }
    return error_set(err, ERROR_INVALID, "async: \"%s\" is not allowed; allowed is false", shown(value, text));
}

enum error_code upload_field(struct upload *upload, const char *name, const char *value, size_t size, struct error *err)
{
    char text[64];
    bool async = is_async(upload, name);
    const struct option_row *row = async ? NULL : find_option(upload, name);
    if (!async && !row)
        return unknown_field(upload, name, false, err);
    bool *seen = async ? &upload->seen_async : &upload->seen[row - option_rows];
    if (*seen)
        return error_set(err, ERROR_INVALID, "%s: sent more than once; once is allowed", shown(name, text));
    *seen = true;
    if (!size && (async || strcmp(row->name, "suffix") != 0))
        return error_set(err, ERROR_INVALID, "%s: the value is empty; allowed is %s", shown(name, text),
                         async ? "false" : row->allowed);
    if (memchr(value, 0, size))
        return error_set(err, ERROR_INVALID, "%s: the value holds a zero byte", shown(name, text));
    if (!utf8_valid(value)) {
        char sent[64];
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not UTF-8; allowed is %s", shown(name, text),
                         shown(value, sent), async ? "false" : row->allowed);
    }
    return async ? set_async(value, err) : options_set(&upload->options, row->name, value, err);
}

/* Appends to the picture; the room grows with what really comes, not with what was announced. */
static enum error_code append(struct upload *upload, const char *data, size_t size, struct error *err)
{
    if (size > upload->limit - upload->size)
        return error_set(err, ERROR_TOO_LARGE, "the picture is over the limit of %zu bytes", upload->limit);
    if (size > upload->room - upload->size) {
        size_t room = upload->room ? upload->room : FIRST_ROOM;
        while (room - upload->size < size)
            room *= 2; /* size is below the limit, so this ends */
        uint8_t *grown = realloc(upload->picture, room);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "no memory for the picture");
        upload->picture = grown;
        upload->room = room;
    }
    if (size)
        memcpy(upload->picture + upload->size, data, size);
    upload->size += size;
    return OK;
}

/* A field's last byte is known only when the next part begins or the form ends. */
static enum error_code end_field(struct upload *upload, struct error *err)
{
    if (!upload->in_field)
        return OK;
    upload->in_field = false;
    upload->value[upload->value_size] = 0;
    return upload_field(upload, upload->name, upload->value, upload->value_size, err);
}

static enum error_code begin_part(struct upload *upload, const char *name, const char *file_name, const char *encoding,
                                  struct error *err)
{
    char text[64];
    enum error_code code = end_field(upload, err);
    if (code)
        return code;
    if (!name || !*name)
        return error_set(err, ERROR_INVALID, "a part of the form has no name");
    if (encoding && strcasecmp(encoding, "binary") != 0 && strcasecmp(encoding, "8bit") != 0 &&
        strcasecmp(encoding, "7bit") != 0)
        return error_set(err, ERROR_INVALID, "%s: Content-Transfer-Encoding is not supported in a form",
                         shown(name, text));
    if (!strcmp(name, "image")) {
        if (upload->has_picture)
            return error_set(err, ERROR_INVALID, "image: sent more than once; send one picture a request");
        upload->has_picture = true;
        snprintf(upload->file_name, sizeof upload->file_name, "%s", file_name ? file_name : "");
        return OK;
    }
    /* by its name at once, however long its value is; no name of an option is longer than upload->name */
    if (!is_async(upload, name) && !find_option(upload, name))
        return unknown_field(upload, name, file_name != NULL, err);
    upload->in_field = true;
    upload->value_size = 0;
    snprintf(upload->name, sizeof upload->name, "%s", name);
    return OK;
}

enum error_code upload_part(struct upload *upload, const char *name, const char *file_name, const char *encoding,
                            const char *data, uint64_t offset, size_t size, struct error *err)
{
    enum error_code code = OK;
    char text[64];
    bool image = name && !strcmp(name, "image");
    /* The post processor may give a part's beginning twice, the first time without bytes; a part that has had none yet
     * is the same one still. */
    bool same = image ? upload->has_picture && !upload->size && !upload->in_field
                      : upload->in_field && name && !strcmp(name, upload->name) && !upload->value_size;
    if (offset == 0 && !same)
        code = begin_part(upload, name, file_name, encoding, err);
    if (code || image)
        return code ? code : append(upload, data, size, err);
    if (size >= sizeof upload->value - upload->value_size)
        return error_set(err, ERROR_INVALID, "%s: the value is longer than %d bytes", shown(upload->name, text),
                         UPLOAD_VALUE_MAX - 1);
    if (size)
        memcpy(upload->value + upload->value_size, data, size);
    upload->value_size += size;
    return OK;
}

static enum MHD_Result take_part(void *context, enum MHD_ValueKind kind, const char *name, const char *file_name,
                                 const char *content_type, const char *encoding, const char *data, uint64_t offset,
                                 size_t size)
{
    struct upload *upload = context;
    (void)kind, (void)content_type;
    return upload_part(upload, name, file_name, encoding, data, offset, size, &upload->error) ? MHD_NO : MHD_YES;
}

enum error_code upload_begin(struct upload *upload, struct MHD_Connection *connection, const char *content_type,
                             size_t expected, struct error *err)
{
    static const char form[] = "multipart/form-data";
    if (!content_type || strncasecmp(content_type, "multipart/", 10) != 0) {
        if (!expected)
            return error_set(err, ERROR_INVALID,
                             "the body is empty; send a picture, or a form with the file part \"image\"");
        upload->has_picture = true;
        return OK;
    }
    if (strncasecmp(content_type, form, sizeof form - 1) != 0)
        return error_set(err, ERROR_UNSUPPORTED, "of the multipart types only multipart/form-data is taken");
    upload->form = MHD_create_post_processor(connection, FORM_BUFFER, take_part, upload);
    if (!upload->form)
        return error_set(err, ERROR_INVALID,
                         "multipart/form-data needs a boundary of two characters or more in the Content-Type");
    return OK;
}

enum error_code upload_feed(struct upload *upload, const char *data, size_t size, struct error *err)
{
    upload->received += size;
    if (upload->received > upload->limit)
        return error_set(err, ERROR_TOO_LARGE, "the body is over the limit of %zu bytes", upload->limit);
    if (!upload->form)
        return append(upload, data, size, err);
    if (MHD_post_process(upload->form, data, size) == MHD_YES && !upload->error.code)
        return OK;
    if (upload->error.code)
        return error_set(err, upload->error.code, "%s", upload->error.text);
    return error_set(err, ERROR_INVALID, "the form is not valid multipart/form-data");
}

enum error_code upload_finish(struct upload *upload, struct error *err)
{
    if (upload->form) {
        enum MHD_Result whole = MHD_destroy_post_processor(upload->form);
        upload->form = NULL;
        if (upload->error.code)
            return error_set(err, upload->error.code, "%s", upload->error.text);
        if (whole != MHD_YES)
            return error_set(err, ERROR_INVALID, "the form is cut off: its last boundary is missing");
    }
    enum error_code code = end_field(upload, err);
    if (code)
        return code;
    if (!upload->has_picture)
        return error_set(err, ERROR_INVALID,
                         "image: there is no picture in the form; send it as the file part \"image\"");
    if (!upload->size)
        return error_set(err, ERROR_INVALID, "image: the picture is empty");
    return options_check(&upload->options, err);
}

struct options *upload_options(struct upload *upload)
{
    return &upload->options;
}

const char *upload_file_name(const struct upload *upload)
{
    return upload->file_name;
}

uint64_t upload_received(const struct upload *upload)
{
    return upload->received;
}

uint8_t *upload_take(struct upload *upload, size_t *size)
{
    uint8_t *picture = upload->picture;
    *size = upload->size;
    upload->picture = NULL;
    upload->size = upload->room = 0;
    return picture;
}
