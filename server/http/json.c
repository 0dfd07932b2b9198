#include "server/http/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/image/codec.h"
#include "server/pipeline/options.h"
#include "server/version.h"

const char *json_kind_name(enum model_kind kind)
{
    static const char *const names[] = {"detector", "face", "parser", "upscaler"};
    return names[kind];
}

const char *json_device_type_name(enum device_type type)
{
    static const char *const names[] = {"discrete", "integrated", "virtual", "cpu", "software"};
    return names[type];
}

static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static json_t *device_row(const struct device_status *status, enum precision configured)
{
    static const char *const states[] = {"idle", "busy", "lost", "disabled"};
    const struct device_info *info = &status->info;
    /* as pipeline_precision has it */
    const bool set = configured == PRECISION_FP32 || (configured == PRECISION_FP16 && info->fp16);
    const enum precision used = set ? configured : info->preferred;
    const char *why = set ? "set by the configuration" : info->precision_reason;
    char precision[128];
    snprintf(precision, sizeof precision, "%s%s%s%s", used == PRECISION_FP16 ? "fp16" : "fp32", *why ? " (" : "", why,
             *why ? ")" : "");
    json_t *memory = json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)info->memory_total, "budget",
                               (json_int_t)info->memory_budget, "used", (json_int_t)info->memory_driver, "peak",
                               (json_int_t)info->memory_peak);
    json_t *features =
        json_pack("{s:b, s:b, s:b, s:i}", "fp16", info->fp16, "cooperative_matrix", info->cooperative_matrix, "int8",
                  info->int8, "subgroup_size", (int)info->subgroup_size);
    const struct selftest *test = &status->test;
    const struct selftest_figure *figure = used == PRECISION_FP16 ? &test->fp16 : &test->fp32;
    const bool ran = test->fp32.state != SELFTEST_NOT_RUN;
    json_t *self_test = json_pack("{s:s, s:o, s:o}", "state", selftest_state_name(test->fp32.state), "max_error",
                                  ran && isfinite(figure->max_error) ? json_real(figure->max_error) : json_null(), "ms",
                                  ran ? json_real(test->ms) : json_null());
    return json_pack(
        "{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:o, s:s, s:o, s:I, s:I, s:f, s:f, s:o, s:o}", "id",
        info->id, "uuid", text_or_null(info->uuid), "name", info->name, "type", json_device_type_name(info->type),
        "backend", info->backend, "api_version", info->api_version, "driver", info->driver, "memory", memory,
        "features", features, "precision", precision, "self_test", self_test, "state", states[status->state],
        "current_job", text_or_null(status->current_job), "jobs_done", (json_int_t)status->jobs_done, "jobs_failed",
        (json_int_t)status->jobs_failed, "busy_seconds", status->busy_seconds, "utilisation", status->utilisation,
        "reason", text_or_null(status->reason), "remark", text_or_null(info->usable ? info->reason : ""));
}

json_t *json_devices(const struct device_status *list, size_t count, enum precision configured)
{
    json_t *rows = json_array();
    const char *chosen = NULL;
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(rows, device_row(&list[i], configured));
        if (list[i].is_default)
            chosen = list[i].info.id;
    }
    return json_pack("{s:o, s:o}", "devices", rows, "default", chosen ? json_string(chosen) : json_null());
}

static const char *file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What the file says of itself; null where that is nothing. */
static json_t *card_row(const struct model_card *card)
{
    if (!*card->name && !*card->licence && !*card->commit && !*card->data)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "name", text_or_null(card->name), "licence", text_or_null(card->licence),
                     "commit", text_or_null(card->commit), "data", text_or_null(card->data));
}

json_t *json_models(const struct model_store *store)
{
    json_t *models = json_array(), *missing = json_array();
    for (size_t i = 0; i < model_store_count(store); i++) {
        const struct model_entry *entry = model_store_at(store, i);
        if (!entry->recognised)
            continue;
        json_array_append_new(
            models, json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:b, s:b, s:o}", "name", entry->name,
                              "file", file_of(entry->path), "kind", json_kind_name(entry->info.kind), "architecture",
                              entry->info.architecture, "scale", entry->info.scale, "bytes", (json_int_t)entry->bytes,
                              "sha256", text_or_null(entry->sha256), "known_as", text_or_null(entry->known_as),
                              "licence", text_or_null(entry->licence), "starter", entry->starter, "default",
                              entry->is_default, "card", card_row(&entry->card)));
    }
    const struct model_missing *lacking;
    size_t count = model_store_missing(store, &lacking);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(missing, json_pack("{s:s, s:s, s:s}", "name", lacking[i].name, "file", lacking[i].file,
                                                 "get", lacking[i].get));
    return json_pack("{s:o, s:o}", "models", models, "missing", missing);
}

/* An option's default in the type that it has; text such as "auto" stays text. */
static json_t *typed(const struct option_row *row)
{
    char *end;
    if (!*row->initial)
        return json_null();
    if (!strcmp(row->type, "boolean"))
        return json_boolean(!strcmp(row->initial, "true"));
    if (!strcmp(row->type, "integer")) {
        long long value = strtoll(row->initial, &end, 10);
        if (!*end)
            return json_integer(value);
    } else if (!strcmp(row->type, "number")) {
        double value = strtod(row->initial, &end);
        if (!*end)
            return json_real(value);
    }
    return json_string(row->initial);
}

json_t *json_capabilities(const struct config *config)
{
    json_t *options = json_array();
    for (int i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        json_array_append_new(options, json_pack("{s:s, s:s, s:o, s:s, s:s}", "name", row->name, "type", row->type,
                                                 "default", typed(row), "allowed", row->allowed, "help", row->help));
    }
    json_t *in = json_array(), *out = json_array();
    static const enum image_format formats[] = {IMAGE_JPEG, IMAGE_PNG, IMAGE_WEBP};
    for (int i = 0; i < 3; i++)
        if (codec_max_side(formats[i]) > 0) { /* what we write we also read */
            json_array_append_new(in, json_string(image_format_name(formats[i])));
            json_array_append_new(out, json_string(image_format_name(formats[i])));
        }
    json_t *limits = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "body_bytes", (json_int_t)config->body_limit,
        "header_bytes", (json_int_t)config->header_limit, "input_pixels", (json_int_t)config->input_pixels,
        "result_pixels", (json_int_t)config->result_pixels, "queue", (json_int_t)config->queue, "connections",
        (json_int_t)config->connections, "connections_per_address", (json_int_t)config->connections_per_address,
        "idle_seconds", (json_int_t)config->idle_seconds, "request_seconds", (json_int_t)config->request_seconds,
        "job_seconds", (json_int_t)config->job_seconds);
    return json_pack("{s:s, s:o, s:{s:o, s:o}, s:o}", "version", RESTORED_VERSION, "options", options, "formats", "in",
                     in, "out", out, "limits", limits);
}
