/* A stored prediction as JSON: its result is read from the file where the job's results lie. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/compat/cog.h"
#include "server/http/job_json.h"
#include "server/job/record.h"

/* The file of a stored result, mapped. */
struct cog_file {
    struct file map;
    uint64_t offset, size;
};

static void cog_release(void *owner)
{
    struct cog_file *file = owner;
    file_unmap(&file->map);
    free(file);
}

static bool cog_stored(void *context, int number, struct compat_bytes *out)
{
    struct cog_file **file = context;
    if (number || !*file)
        return false;
    *out = (struct compat_bytes){(*file)->map.data + (*file)->offset, (size_t)(*file)->size, *file, cog_release};
    *file = NULL;
    return true;
}

/* Opens a job's result, of which fd is the file if somebody has fetched it; type: its media type. NULL: it is not
 * there. */
static struct cog_file *cog_open(struct keeper *keeper, const struct store_job *row, int fd, char type[64])
{
    struct error ignored = ERROR_INIT;
    uint64_t bytes;
    struct record_part part;
    struct cog_file *file = record_part(row->parts, "result", -1, &part) ? mem_calloc(1, sizeof *file) : NULL;
    if (file && fd == -1)
        (void)!depot_get_output(keeper_depot(keeper), row->id, row->attempts, &fd, &bytes, &ignored);
    if (file && fd >= 0) {
        file->offset = part.offset;
        file->size = part.size;
        snprintf(type, 64, "%s", part.type);
        if (file_map_descriptor(&file->map, fd, "a result", &ignored) || file->size > file->map.size ||
            file->offset > file->map.size - file->size || !file->size)
            file->size = 0;
    }
    if (fd >= 0)
        close(fd);
    if (file && !file->size) {
        cog_release(file);
        file = NULL;
    }
    return file;
}

json_t *cog_logs(const json_t *notes)
{
    json_t *logs = json_string("");
    const json_t *note;
    size_t i;
    json_array_foreach(notes, i, note)
    {
        json_t *longer = json_sprintf("%s%s\n", json_string_value(logs), json_string_value(note));
        json_decref(logs);
        logs = longer;
    }
    return logs;
}

static const char *cog_status(const struct keeper_view *view)
{
    static const char *const names[] = {[STORE_QUEUED] = "starting",
                                        [STORE_RUNNING] = "processing",
                                        [STORE_DONE] = "succeeded",
                                        [STORE_FAILED] = "failed",
                                        [STORE_CANCELLED] = "canceled"};
    return view->job.state == STORE_DONE && view->waits.code ? "processing" : names[view->job.state];
}

struct compat_text *cog_prediction(struct keeper *keeper, const char *id, const struct keeper_view *view, int fd)
{
    const struct store_job *row = &view->job;
    char type[64] = "", before[96] = "";
    const char *status = cog_status(view);
    struct cog_file *file = !strcmp(status, "succeeded") ? cog_open(keeper, row, fd, type) : NULL;
    json_t *error = json_null();
    if (!strcmp(status, "failed") && row->error) {
        struct error err = ERROR_INIT;
        bool decoded;
        record_read_error(row->error, &err, &decoded);
        json_decref(error);
        error = json_string(err.text);
    }
    if (!strcmp(status, "succeeded") && !file) {
        status = "failed";
        json_decref(error);
        error = json_string("the result is lost: its file is not in the spool any more");
    }
    snprintf(before, sizeof before, "data:%s;base64,", type);
    json_t *report = row->report ? json_loads(row->report, 0, NULL) : NULL;
    const double seconds = row->started && row->finished ? (double)(row->finished - row->started) / 1e3 : 0;
    json_t *json = json_pack("{s:s, s:s, s:o, s:o, s:o, s:{s:f}, s:o, s:o, s:o}", "id", id, "status", status, "output",
                             file ? compat_mark(0, before) : json_null(), "error", error, "logs",
                             cog_logs(json_object_get(report, "notes")), "metrics", "predict_time", seconds,
                             "created_at", job_json_time(row->created), "started_at", job_json_time(row->started),
                             "completed_at", job_json_time(row->finished));
    json_decref(report);
    struct compat_text *text = compat_text_make(json, cog_stored, &file);
    if (file)
        cog_release(file);
    return text;
}
