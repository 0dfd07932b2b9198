#include "server/http/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/upload.h"
#include "server/image/codec.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/options.h"
#include "server/version.h"

const char *json_kind_name(enum model_kind kind)
{
    static const char *const names[] = {"detector", "face", "parser", "upscaler", "damage", "filler"};
    return names[kind];
}

const char *json_device_type_name(enum device_type type)
{
    static const char *const names[] = {"discrete", "integrated", "virtual", "cpu", "software"};
    return names[type];
}

static json_t *json_text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static json_t *json_device_row(const struct device_status *status, enum precision configured)
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
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:s, s:o, s:s, s:o, s:I, s:I, s:f, s:f, s:o, s:o}",
                     "id", info->id, "uuid", json_text_or_null(info->uuid), "name", info->name, "type",
                     json_device_type_name(info->type), "backend", info->backend, "api_version", info->api_version,
                     "driver", info->driver, "memory", memory, "features", features, "precision", precision,
                     "self_test", self_test, "state", states[status->state], "current_job",
                     json_text_or_null(status->current_job), "jobs_done", (json_int_t)status->jobs_done, "jobs_failed",
                     (json_int_t)status->jobs_failed, "busy_seconds", status->busy_seconds, "utilisation",
                     status->utilisation, "reason", json_text_or_null(status->reason), "remark",
                     json_text_or_null(info->usable ? info->reason : ""));
}

json_t *json_devices(const struct device_status *list, size_t count, enum precision configured)
{
    json_t *rows = json_array();
    const char *chosen = NULL;
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(rows, json_device_row(&list[i], configured));
        if (list[i].is_default)
            chosen = list[i].info.id;
    }
    return json_pack("{s:o, s:o}", "devices", rows, "default", chosen ? json_string(chosen) : json_null());
}

static const char *json_file_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What the file says about itself; null where it says nothing. */
static json_t *json_card_row(const struct model_card *card)
{
    if (!*card->name && !*card->licence && !*card->commit && !*card->data)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o}", "name", json_text_or_null(card->name), "licence",
                     json_text_or_null(card->licence), "commit", json_text_or_null(card->commit), "data",
                     json_text_or_null(card->data));
}

static json_t *json_model_row(const struct model_entry *entry)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:o, s:o, s:o, s:b, s:b, s:b, s:o}", "name", entry->name, "file",
                     json_file_of(entry->shown), "kind", json_kind_name(entry->info.kind), "architecture",
                     entry->info.architecture, "scale", entry->info.scale, "bytes", (json_int_t)entry->bytes, "sha256",
                     json_text_or_null(entry->sha256), "known_as", json_text_or_null(entry->known_as), "licence",
                     json_text_or_null(entry->licence), "non_commercial", licence_non_commercial(entry->licence),
                     "starter", entry->starter, "default", entry->is_default, "card", json_card_row(&entry->card));
}

json_t *json_models(const struct model_store *store, bool near)
{
    json_t *models = json_array(), *missing = json_array(), *unread = json_array();
    model_store_lock(store);
    for (size_t i = 0; i < model_store_count(store); i++) {
        const struct model_entry *entry = model_store_at(store, i);
        const char *why = model_store_unread(entry);
        if (why)
            json_array_append_new(unread, json_pack("{s:s, s:s}", "file", json_file_of(entry->shown), "reason", why));
        else
            json_array_append_new(models, json_model_row(entry));
    }
    const struct model_missing *lacking;
    size_t count = model_store_missing(store, &lacking);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(missing, json_pack("{s:s, s:s, s:o}", "name", lacking[i].name, "file", lacking[i].file,
                                                 "get", json_text_or_null(near ? lacking[i].get : "")));
    model_store_unlock(store);
    return json_pack("{s:o, s:o, s:o}", "models", models, "missing", missing, "unread", unread);
}

json_t *json_typed_default(const struct option_row *row)
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

/* The names of all models that a role can have; *standard: the default's, or null; *licences: those of all. */
static json_t *json_role_names(const struct model_store *store, enum model_kind kind, json_t **standard,
                               json_t **licences)
{
    json_t *names = json_array();
    *standard = NULL;
    *licences = json_array();
    model_store_lock(store);
    for (size_t i = 0; i < model_store_count(store); i++) {
        const struct model_entry *entry = model_store_at(store, i);
        if (!entry->recognised || entry->info.kind != kind)
            continue;
        json_array_append_new(names, json_string(entry->name));
        json_array_append_new(*licences, json_pack("{s:s, s:o, s:b}", "name", entry->name, "licence",
                                                   json_text_or_null(entry->licence), "non_commercial",
                                                   licence_non_commercial(entry->licence)));
        if (entry->is_default && !*standard)
            *standard = json_string(entry->name);
    }
    model_store_unlock(store);
    *standard = *standard ? *standard : json_null();
    return names;
}

json_t *json_word(const char *word)
{
    return strspn(word, "0123456789") == strlen(word) ? json_integer(atoi(word)) : json_string(word);
}

static json_t *json_option(const struct option_row *row, const struct model_store *store,
                           const struct device_status *devices, size_t device_count)
{
    static const struct {
        const char *option;
        enum model_kind kind;
        bool none;
    } roles[] = {
        {"version", MODEL_FACE, true},       {"bg_upsampler", MODEL_UPSCALER, true},
        {"detector", MODEL_DETECTOR, false}, {"damage_detector", MODEL_DAMAGE, true},
        {"fill", MODEL_FILLER, true},
    };
    json_t *out = json_pack("{s:s, s:s, s:o, s:s, s:s}", "name", row->name, "type", row->type, "default",
                            json_typed_default(row), "allowed", row->allowed, "help", row->help);
    struct option_bounds bounds;
    options_bounds(row, &bounds);
    if (bounds.number) {
        const bool whole = !strcmp(row->type, "integer");
        json_object_set_new(out, "minimum",
                            whole ? json_integer((json_int_t)bounds.minimum) : json_real(bounds.minimum));
        json_object_set_new(out, "maximum",
                            whole ? json_integer((json_int_t)bounds.maximum) : json_real(bounds.maximum));
    }
    json_t *values = NULL;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(row->name, roles[i].option)) {
            json_t *standard, *licences;
            values = json_role_names(store, roles[i].kind, &standard, &licences);
            json_object_set_new(out, "models", licences);
            if (roles[i].none)
                json_array_append_new(values, json_string("none"));
            json_object_set_new(out, "default", standard);
        }
    if (!values && bounds.words[0])
        values = json_array();
    for (size_t i = 0; i < sizeof bounds.words / sizeof *bounds.words && bounds.words[i]; i++)
        json_array_append_new(values, json_word(bounds.words[i]));
    if (!strcmp(row->name, "device"))
        for (size_t i = 0; i < device_count; i++)
            json_array_append_new(values, json_string(devices[i].info.id));
    if (values)
        json_object_set_new(out, "values", values);
    if (bounds.pattern)
        json_object_set_new(out, "pattern", json_string(bounds.pattern));
    if (!strcmp(row->name, "suffix"))
        json_object_set_new(out, "max_bytes", json_integer(OPTION_NAME_MAX - 1));
    return out;
}

json_t *json_limits(const struct config *config)
{
    const struct {
        const char *name;
        uint64_t value;
    } bounds[] = {
        {"body_bytes", config->body_limit},       {"header_bytes", config->header_limit},
        {"input_pixels", config->input_pixels},   {"result_pixels", config->result_pixels},
        {"max_faces", config->max_faces},         {"queue", config->queue},
        {"connections", config->connections},     {"connections_per_address", config->connections_per_address},
        {"idle_seconds", config->idle_seconds},   {"request_seconds", config->request_seconds},
        {"job_seconds", config->job_seconds},     {"stall_seconds", config->stall_seconds},
        {"async_queue", config->async_queue},     {"result_seconds", config->result_ttl},
        {"spool_bytes", config->spool_max_bytes},
    };
    json_t *limits = json_object();
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        json_object_set_new(limits, bounds[i].name, json_integer((json_int_t)bounds[i].value));
    return limits;
}

json_t *json_capabilities(const struct config *config, const struct model_store *store,
                          const struct device_status *devices, size_t device_count)
{
    json_t *options = json_array();
    for (int i = 0; i < option_row_count; i++)
        json_array_append_new(options, json_option(&option_rows[i], store, devices, device_count));
    json_t *fields = json_array();
    for (int i = 0; i < upload_answer_count; i++) {
        const struct upload_row *row = &upload_answers[i];
        json_t *none = !strcmp(row->type, "boolean") ? json_false()
                       : row->initial                ? json_string(row->initial)
                                                     : json_null();
        json_array_append_new(fields, json_pack("{s:s, s:s, s:o, s:s, s:s, s:b}", "name", row->name, "type", row->type,
                                                "default", none, "allowed", row->allowed, "help", row->help, "detect",
                                                row->detect));
    }
    json_t *answers = json_pack("[s, s, s]", "picture", "application/json", "multipart/mixed");
    json_t *in = json_array(), *out = json_array(), *missing = json_array();
    for (enum image_format format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++) {
        if (codec_reads(format))
            json_array_append_new(in, json_string(image_format_name(format)));
        if (codec_max_side(format) > 0)
            json_array_append_new(out, json_string(image_format_name(format)));
        if (codec_missing(format))
            json_array_append_new(missing, json_string(image_format_name(format)));
    }
    return json_pack("{s:s, s:o, s:o, s:{s:o, s:o, s:o, s:o}, s:o}", "version", RESTORED_VERSION, "options", options,
                     "fields", fields, "formats", "in", in, "out", out, "missing", missing, "answers", answers,
                     "limits", json_limits(config));
}
