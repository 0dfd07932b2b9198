#include "server/http/job_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/job/record.h"

const char *job_json_state(enum store_state state)
{
    static const char *const names[STORE_STATES] = {"queued", "running", "done", "failed", "cancelled"};
    return names[state];
}

json_t *job_json_time(int64_t milliseconds)
{
    char text[64];
    struct tm utc;
    const time_t seconds = (time_t)(milliseconds / 1000);
    if (!milliseconds || !gmtime_r(&seconds, &utc))
        return json_null();
    const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, sizeof text - n, ".%03dZ", (int)(milliseconds % 1000));
    return json_string(text);
}

int64_t job_json_read_time(const char *text)
{
    struct tm utc = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    int64_t fraction = 0, zone = 0;
    if (!rest)
        return -1;
    if (*rest == '.') {
        int64_t unit = 100;
        const char *first = ++rest;
        for (; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            fraction += (*rest - '0') * unit;
        if (rest == first)
            return -1;
    }
    if (*rest == '+' || *rest == '-') {
        int hours, minutes, size = 0;
        if (sscanf(rest + 1, "%2d:%2d%n", &hours, &minutes, &size) != 2 || size != 5)
            return -1;
        zone = (*rest == '-' ? -60 : 60) * (hours * 60 + minutes);
        rest += 6;
    } else if (*rest == 'Z' || *rest == 'z') {
        rest++;
    } else {
        return -1;
    }
    return *rest ? -1 : ((int64_t)timegm(&utc) - zone) * 1000 + fraction;
}

static json_t *job_json_text(const char *text)
{
    return *text ? json_string(text) : json_null();
}

double job_json_round(double value)
{
    return round(value * 1000) / 1000;
}

static void job_json_link(json_t *links, const char *name, const char *id, const char *tail)
{
    char path[128];
    snprintf(path, sizeof path, "/v1/jobs/%s%s", id, tail);
    json_object_set_new(links, name, json_string(path));
}

json_t *job_json_row(const struct store_job *row)
{
    json_t *json = json_pack("{s:s, s:s, s:o, s:o, s:s, s:i, s:f, s:o, s:o, s:o, s:o, s:{}}", "id", row->id, "state",
                             job_json_state(row->state), "batch", job_json_text(row->batch), "token",
                             job_json_text(row->token), "priority", row->low ? "low" : "normal", "attempts",
                             row->attempts, "megapixels", job_json_round(row->megapixels), "created",
                             job_json_time(row->created), "started", job_json_time(row->started), "finished",
                             job_json_time(row->finished), "expires", job_json_time(row->expires), "links");
    job_json_link(json_object_get(json, "links"), "self", row->id, "");
    if (row->state == STORE_DONE && row->output_bytes) /* a file of pictures begins with the result */
        job_json_link(json_object_get(json, "links"), "result", row->id, "/result");
    return json;
}

/* Of the mask and the faces that it made. */
static void job_json_add_parts(json_t *links, const struct store_job *row)
{
    struct record_part *parts;
    json_t *faces = json_array();
    const size_t count = record_parts(row->parts, &parts);
    for (size_t i = 0; i < count && row->output_bytes; i++) {
        const struct record_part *part = &parts[i];
        char path[160];
        if (!strcmp(part->kind, "mask"))
            job_json_link(links, "mask", row->id, "/mask");
        if (part->face < 0)
            continue;
        snprintf(path, sizeof path, "/v1/jobs/%s/faces/%d?kind=%s", row->id, part->face, part->kind);
        json_array_append_new(faces, json_pack("{s:i, s:s, s:s}", "id", part->face, "kind", part->kind, "href", path));
    }
    if (json_array_size(faces))
        json_object_set(links, "faces", faces);
    json_decref(faces);
    free(parts);
}

/* What was asked for. */
static json_t *job_json_options(const struct store_job *row)
{
    json_t *json = row->options ? json_loads(row->options, 0, NULL) : NULL;
    json_t *options = json_incref(json_object_get(json, "options"));
    json_decref(json);
    return options ? options : json_null();
}

bool job_json_is_page(const char *batch)
{
    static const char page[] = "page-";
    const size_t prefix = sizeof page - 1;
    return !strncmp(batch, page, prefix) && strspn(batch + prefix, "0123456789abcdef") == 32 && !batch[prefix + 32];
}

void job_json_suffix(const struct store_job *row, char out[OPTION_NAME_MAX])
{
    json_t *asked = row->options ? json_loads(row->options, 0, NULL) : NULL;
    const char *suffix = json_string_value(json_object_get(json_object_get(asked, "options"), "suffix"));
    if (json_is_true(json_object_get(asked, "damage")))
        suffix = "mask";
    else if (!suffix || !*suffix)
        suffix = job_json_is_page(row->batch) ? "restored" : "";
    snprintf(out, OPTION_NAME_MAX, "%s", suffix);
    json_decref(asked);
}

/* What it will do, with the models as they are now. */
static json_t *job_json_resolved(const struct store_job *row, const struct model_store *store)
{
    struct error ignored = ERROR_INIT; /* a model is gone: the job will meet it */
    struct restoration *r = NULL;
    json_t *json =
        !record_restoration(row->options, &(struct limits){0}, &r, &ignored) && !pipeline_resolve(r, store, &ignored)
            ? restoration_options(&r->options)
            : job_json_options(row);
    restoration_destroy(&r);
    return json;
}

json_t *job_json_stage(bool running, int stage)
{
    return running && stage < STAGE_COUNT ? json_string(stage_name((enum stage)stage)) : json_null();
}

/* How many tiles and faces are done: of a job at work it is counted, and its report has it when it is done. How far one
 * came that has failed or was cancelled is not kept. */
static void job_json_add_counts(json_t *json, const struct keeper_view *view, const json_t *report)
{
    struct keeper_view end = *view;
    const bool unknown = view->job.state == STORE_FAILED || view->job.state == STORE_CANCELLED;
    const json_t *face, *tiles = json_object_get(report, "tiles"); /* a detection has none */
    if (tiles) {
        const json_t *faces = json_object_get(report, "faces");
        size_t i;
        end.tiles_done = end.tiles_total = (int)json_integer_value(tiles);
        json_array_foreach(faces, i, face)
        {
            const char *action = json_string_value(json_object_get(face, "action"));
            end.faces_total += action && strcmp(action, "skipped") != 0;
        }
        end.faces_done = end.faces_total;
    }
    const struct {
        const char *name;
        int count;
    } counts[] = {{"tiles_done", end.tiles_done},
                  {"tiles_total", end.tiles_total},
                  {"faces_done", end.faces_done},
                  {"faces_total", end.faces_total}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(json, counts[i].name, unknown ? json_null() : json_integer(counts[i].count));
}

/* What no server is there for, of a job that waits in a shared store; else null. */
static json_t *job_json_waiting_for(struct cluster *cluster, const struct store_job *row)
{
    struct error ignored = ERROR_INIT; /* the job will meet it */
    struct restoration *r = NULL;
    char reason[128 + 3 * OPTION_NAME_MAX] = "";
    bool anybody;
    char *text = record_restoration(row->options, &(struct limits){0}, &r, &ignored) ? NULL : record_needs(r);
    json_t *needs = text ? json_loads(text, 0, NULL) : NULL;
    json_t *lacking = cluster_lacking(cluster, needs, &anybody), *models = json_array(), *name, *json = json_null();
    size_t i;
    json_array_foreach(lacking, i, name) if (*json_string_value(name) != '#') /* what its version can do */
        json_array_append(models, name);
    if (!anybody)
        snprintf(reason, sizeof reason, "no server that takes jobs is connected");
    else if (json_array_size(models) == 1)
        snprintf(reason, sizeof reason, "no server has the model %s", json_string_value(json_array_get(models, 0)));
    else if (json_array_size(models))
        snprintf(reason, sizeof reason, "no server has all of these models");
    else if (json_array_size(lacking))
        snprintf(reason, sizeof reason, "no server is of a version that can do it");
    if (*reason)
        json = json_pack("{s:O, s:s}", "models", models, "reason", reason);
    json_decref(models);
    json_decref(lacking);
    json_decref(needs);
    free(text);
    restoration_destroy(&r);
    return json;
}

json_t *job_json(const struct request *request, const struct keeper_view *view)
{
    struct cluster *cluster = keeper_cluster(request->server->keeper);
    const struct store_job *row = &view->job;
    json_t *json = job_json_row(row), *links = json_object_get(json, "links");
    const bool queued = row->state == STORE_QUEUED, ended = row->state > STORE_RUNNING;
    job_json_add_parts(links, row);
    json_object_set_new(json, "progress", json_real(row->state == STORE_DONE ? 1 : job_json_round(view->progress)));
    json_object_set_new(json, "position", queued ? json_integer((json_int_t)view->position) : json_null());
    json_object_set_new(json, "waiting_for", queued && cluster ? job_json_waiting_for(cluster, row) : json_null());
    json_object_set_new(json, "eta_seconds",
                        ended || view->left < 0 ? json_null() : json_real(job_json_round(view->left)));
    json_object_set_new(json, "stage", job_json_stage(view->running, view->stage));
    json_t *report = row->report ? json_loads(row->report, 0, NULL) : NULL;
    job_json_add_counts(json, view, report);
    const bool told = json_object_get(report, "options"); /* what it did */
    json_object_set_new(json, "options", told ? json_null() : job_json_resolved(row, request->server->store));
    json_object_set_new(json, "error", json_null());
    if (report)
        json_object_update(json, report);
    json_decref(report);
    struct error err = view->waits;
    const bool waits = err.code;
    if (waits || (row->error && row->state == STORE_FAILED)) {
        bool decoded = true;
        char path[64];
        if (!waits)
            record_read_error(row->error, &err, &decoded);
        snprintf(path, sizeof path, "/v1/jobs/%s", row->id);
        json_object_set_new(json, "error", reply_problem_json(request, reply_for_job(err.code, decoded), &err, path));
    }
    return json;
}
