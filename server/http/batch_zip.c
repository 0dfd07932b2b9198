#include "server/http/batch_zip.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/http/header.h"
#include "server/http/job_json.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/job/record.h"

#define BLOCK 65536

struct batch_zip {
    struct request *request;
    struct keeper *keeper;
    struct store_job coming; /* whose result is being fetched from where servers share them; the connection waits */
    bool waits;
    char (*ids)[33];
    size_t count, room;
    size_t next;   /* ids before it are sent; they go from the last to the first */
    json_t *names; /* those in use */
    struct archive *archive;
    int fd; /* of the picture that is being sent; -1: none */
    uint64_t at, left;
    bool closed, failed;
    uint8_t *made; /* of the archive, not sent yet */
    size_t made_size, made_sent, made_room;
};

static void batch_zip_free(void *context)
{
    struct batch_zip *zip = context;
    if (zip->archive)
        archive_write_free(zip->archive); /* may write its end once more */
    if (zip->fd >= 0)
        close(zip->fd);
    store_job_clear(&zip->coming);
    json_decref(zip->names);
    free(zip->ids);
    free(zip->made);
    free(zip);
}

static void batch_zip_add(void *context, const struct store_job *job)
{
    struct batch_zip *zip = context;
    if (zip->count == zip->room) {
        const size_t room = zip->room ? 2 * zip->room : 64;
        void *grown = realloc(zip->ids, room * sizeof *zip->ids);
        zip->failed |= !grown;
        if (!grown)
            return;
        zip->ids = grown;
        zip->room = room;
    }
    if (job->output_bytes)
        memcpy(zip->ids[zip->count++], job->id, sizeof job->id);
}

/* libarchive has made these bytes. */
static la_ssize_t batch_zip_made(struct archive *archive, void *context, const void *bytes, size_t size)
{
    struct batch_zip *zip = context;
    if (size > zip->made_room - zip->made_size) {
        const size_t room = 2 * (zip->made_size + size);
        uint8_t *grown = realloc(zip->made, room);
        if (!grown) {
            archive_set_error(archive, ENOMEM, "no memory");
            return -1;
        }
        zip->made = grown;
        zip->made_room = room;
    }
    memcpy(zip->made + zip->made_size, bytes, size);
    zip->made_size += size;
    return (la_ssize_t)size;
}

/* A name in lower case, ASCII alone: file systems of Windows and macOS take names that differ in no other way for one.
 */
static const char *batch_zip_folded(const char *name, char out[HEADER_FILE_MAX + 16])
{
    size_t n = 0;
    for (; name[n] && n < HEADER_FILE_MAX + 15; n++)
        out[n] = name[n] >= 'A' && name[n] <= 'Z' ? (char)(name[n] | 0x20) : name[n];
    out[n] = 0;
    return out;
}

/* A name that is not in use: "photo.jpg", "photo (2).jpg", ... */
static void batch_zip_name(struct batch_zip *zip, const char *wanted, char out[HEADER_FILE_MAX + 16])
{
    char key[HEADER_FILE_MAX + 16];
    const char *dot = strrchr(wanted, '.');
    const int stem = (int)(dot ? dot - wanted : (ptrdiff_t)strlen(wanted));
    json_int_t number = json_integer_value(json_object_get(zip->names, batch_zip_folded(wanted, key))) + 1;
    snprintf(out, HEADER_FILE_MAX + 16, "%s", wanted);
    for (; number > 1; number++) {
        snprintf(out, HEADER_FILE_MAX + 16, "%.*s (%d)%s", stem, wanted, (int)number, dot ? dot : "");
        if (!json_object_get(zip->names, batch_zip_folded(out, key)))
            break;
    }
    json_object_set_new(zip->names, batch_zip_folded(wanted, key), json_integer(number));
    if (strcmp(out, wanted) != 0)
        json_object_set_new(zip->names, batch_zip_folded(out, key), json_integer(1));
}

/* A result that is not there any more is left out. False ends the download, which the client sees: one that cannot be
 * read now is not left out. */
static bool batch_zip_without(const char *id, const struct error *err)
{
    if (err->code != ERROR_NOT_FOUND)
        log_event(LOG_WARN, "archive", "job=%s text=\"%s\"", id, err->text);
    return err->code == ERROR_NOT_FOUND;
}

/* Begins the entry of a job, whose result can be read. */
static bool batch_zip_begin(struct batch_zip *zip, const struct store_job *row, const struct record_part *part)
{
    char suffix[OPTION_NAME_MAX], wanted[HEADER_FILE_MAX], name[HEADER_FILE_MAX + 16];
    zip->at = part->offset;
    zip->left = part->size;
    job_json_suffix(row, suffix);
    header_file_name(row->name, suffix, part->extension, wanted);
    batch_zip_name(zip, wanted, name);
    struct archive_entry *entry = archive_entry_new2(zip->archive);
    archive_entry_set_pathname_utf8(entry, name);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)zip->left);
    archive_entry_set_mtime(entry, row->finished / 1000, 0);
    const bool good = archive_write_header(zip->archive, entry) >= ARCHIVE_WARN;
    archive_entry_free(entry);
    return good;
}

/* The next job's result comes: from the spool at once, else on the threads that carry pictures, while the connection
 * waits and holds none of HTTP's. */
static bool batch_zip_open(struct batch_zip *zip, struct store_job *row)
{
    struct error err = ERROR_INIT;
    struct record_part part;
    uint64_t bytes;
    if (!record_part(row->parts, "result", -1, &part))
        return true;
    if (!keeper_depot(zip->keeper)->payload)
        return depot_get_output(keeper_depot(zip->keeper), row->id, row->attempts, &zip->fd, &bytes, &err)
                   ? batch_zip_without(row->id, &err)
                   : batch_zip_begin(zip, row, &part);
    zip->coming = *row;
    *row = (struct store_job){0};
    zip->waits = true;
    return route_jobs_fetch(zip->request, &zip->coming) == MHD_YES;
}

/* It has come, or why it has not. */
static bool batch_zip_take(struct batch_zip *zip)
{
    struct keeper_ticket *ticket = zip->request->ticket;
    const struct error err = ticket->err;
    struct record_part part;
    zip->waits = false;
    zip->fd = ticket->fd;
    ticket->fd = -1;
    route_jobs_forget(zip->request);
    connection_sending(zip->request->link);
    const bool good =
        err.code ? batch_zip_without(zip->coming.id, &err)
                 : record_part(zip->coming.parts, "result", -1, &part) && batch_zip_begin(zip, &zip->coming, &part);
    store_job_clear(&zip->coming);
    return good;
}

/* A block more of the picture at hand. */
static bool batch_zip_copy(struct batch_zip *zip)
{
    uint8_t block[BLOCK];
    const size_t want = zip->left < sizeof block ? (size_t)zip->left : sizeof block;
    ssize_t n;
    do
        n = want ? pread(zip->fd, block, want, (off_t)zip->at) : 0;
    while (n < 0 && errno == EINTR);
    if (n < 0 || (want && !n) || (n && archive_write_data(zip->archive, block, (size_t)n) != n))
        return false;
    zip->at += (uint64_t)n;
    zip->left -= (uint64_t)n;
    if (zip->left)
        return true;
    close(zip->fd);
    zip->fd = -1;
    return archive_write_finish_entry(zip->archive) >= ARCHIVE_WARN;
}

/* Makes more of the archive. */
static bool batch_zip_step(struct batch_zip *zip)
{
    struct store_job row;
    struct error ignored = ERROR_INIT;
    bool found = false;
    if (zip->waits)
        return batch_zip_take(zip);
    if (zip->fd >= 0)
        return batch_zip_copy(zip);
    if (zip->next == zip->count) {
        zip->closed = true;
        return archive_write_close(zip->archive) >= ARCHIVE_WARN;
    }
    const char *id = zip->ids[zip->count - ++zip->next];
    if (store_get(keeper_store(zip->keeper), id, &row, &found, &ignored))
        return false;
    const bool good = !found || batch_zip_open(zip, &row);
    store_job_clear(&row);
    return good;
}

/* libmicrohttpd wants more to send. */
static ssize_t batch_zip_read(void *context, uint64_t position, char *out, size_t most)
{
    struct batch_zip *zip = context;
    (void)position;
    while (zip->made_sent == zip->made_size) {
        zip->made_sent = zip->made_size = 0;
        if (zip->closed)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (!batch_zip_step(zip))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (zip->waits)
            return 0;
    }
    const size_t left = zip->made_size - zip->made_sent, size = left < most ? left : most;
    memcpy(out, zip->made + zip->made_sent, size);
    zip->made_sent += size;
    return (ssize_t)size;
}

static enum error_code batch_zip_collect(struct batch_zip *zip, const char *batch, const char *token, struct error *err)
{
    struct store_filter filter = {.token = token, .batch = batch, .states = 1u << STORE_DONE, .limit = 1000};
    bool more = true;
    while (more) {
        enum error_code code = store_list(keeper_store(zip->keeper), &filter, batch_zip_add, zip, &more, err);
        if (code)
            return code;
        if (more && zip->count)
            memcpy(filter.after, zip->ids[zip->count - 1], sizeof filter.after);
        else
            more = false;
    }
    if (zip->failed)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of results");
    return zip->count ? OK : error_set(err, ERROR_NOT_FOUND, "no job of this batch has a result");
}

struct MHD_Response *batch_zip_response(struct request *request, const char *batch, const char *token,
                                        struct error *err)
{
    struct batch_zip *zip = mem_calloc(1, sizeof *zip);
    if (!zip) {
        error_set(err, ERROR_NO_MEMORY, "no memory for an archive");
        return NULL;
    }
    zip->request = request;
    zip->keeper = request->server->keeper;
    zip->fd = -1;
    if (batch_zip_collect(zip, batch, token, err)) {
        batch_zip_free(zip);
        return NULL;
    }
    zip->names = json_object();
    zip->archive = archive_write_new();
    struct MHD_Response *response = NULL;
    if (zip->names && zip->archive && archive_write_set_format_zip(zip->archive) == ARCHIVE_OK &&
        archive_write_set_options(zip->archive, "zip:compression=store,zip:hdrcharset=UTF-8") >= ARCHIVE_WARN &&
        archive_write_set_bytes_per_block(zip->archive, 0) == ARCHIVE_OK &&
        archive_write_open2(zip->archive, zip, NULL, batch_zip_made, NULL, NULL) == ARCHIVE_OK)
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, batch_zip_read, zip, batch_zip_free);
    if (!response) {
        error_set(err, ERROR_NO_MEMORY, "an archive could not be begun");
        batch_zip_free(zip);
    }
    return response;
}
