#include "server/job/record.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/image/codec.h"

static char *record_text(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

/* The options that every server with a shared store knows. */
static const char *const record_known[] = {"version",
                                           "upscale",
                                           "width",
                                           "height",
                                           "max_side",
                                           "fit",
                                           "bg_upsampler",
                                           "bg_tile",
                                           "only_center_face",
                                           "aligned",
                                           "ext",
                                           "suffix",
                                           "weight",
                                           "w",
                                           "preserve_color",
                                           "seed",
                                           "parse",
                                           "faces",
                                           "min_face",
                                           "max_face",
                                           "min_score",
                                           "auto_rotate",
                                           "detector",
                                           "device",
                                           "precision",
                                           "quality",
                                           "lossless",
                                           "png_level",
                                           "compat",
                                           "damaged",
                                           "profile",
                                           "alpha",
                                           "metadata",
                                           "page",
                                           "tone",
                                           "repair",
                                           "repair_strength",
                                           "mask_mode",
                                           "damage_detector",
                                           "fill"};

bool record_is_newer(const char *name)
{
    bool known = false;
    for (size_t k = 0; k < sizeof record_known / sizeof *record_known && !known; k++)
        known = !strcmp(record_known[k], name);
    return !known;
}

static bool record_at_default(const struct options *options, const char *name)
{
    struct options initial;
    char text[OPTION_TEXT_MAX], usual[OPTION_TEXT_MAX];
    options_init(&initial);
    options_text(options, name, text, sizeof text);
    options_text(&initial, name, usual, sizeof usual);
    return !strcmp(text, usual);
}

/* Options that came later are told only where they are not at their default: an older worker, which may be at work
 * during a roll-out, knows nothing of them, and does what they mean by default. */
static json_t *record_all_options(const struct options *options)
{
    json_t *json = restoration_options(options);
    for (int i = 0; i < option_row_count; i++)
        if (record_is_newer(option_rows[i].name) && record_at_default(options, option_rows[i].name))
            json_object_del(json, option_rows[i].name);
    return json;
}

char *record_options(const struct restoration *r)
{
    json_t *weights = json_array();
    for (int i = 0; i < IMAGE_FORMAT_COUNT; i++)
        json_array_append_new(weights, json_integer(r->format_weight[i]));
    json_t *json = json_pack("{s:b, s:b, s:b, s:I, s:b, s:o, s:o}", "detect", r->detect_only, "damage", r->damage_only,
                             "faces_out", r->keep_faces, "mask_bytes", (json_int_t)r->mask_bytes, "elsewhere",
                             r->elsewhere, "weights", weights, "options", record_all_options(&r->options));
    if (r->mask_clear)
        json_object_set_new(json, "mask_clear", json_true());
    if (r->other_bytes) {
        json_object_set_new(json, "other_bytes", json_integer((json_int_t)r->other_bytes));
        json_object_set_new(json, "other_share", json_real(r->other_share));
    }
    return record_text(json);
}

char *record_needs(const struct restoration *r)
{
    const struct options *o = &r->options;
    const char *const names[] = {o->version, o->bg_upsampler, o->detector, o->damage_detector, o->fill};
    json_t *needs = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (*names[i] && strcmp(names[i], "none") != 0)
            json_array_append_new(needs, json_stringn(names[i], model_store_stem(names[i])));
    if (r->other_bytes || r->mask_clear)
        json_array_append_new(needs, json_string(RECORD_BLENDS));
    for (int i = 0; i < option_row_count; i++)
        if (record_is_newer(option_rows[i].name) && !record_at_default(o, option_rows[i].name))
            json_array_append_new(needs, json_sprintf(RECORD_OPTION, option_rows[i].name));
    if (json_array_size(needs))
        return record_text(needs);
    json_decref(needs);
    return NULL;
}

static enum error_code record_set_options(struct restoration *r, json_t *options, struct error *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(options, name, value)
    {
        char number[400] = ""; /* options take no exponents, and the smallest double begins with 323 zeros */
        const char *text = json_string_value(value);
        if (json_is_real(value))
            snprintf(number, sizeof number, "%.341f", json_real_value(value));
        else if (json_is_integer(value))
            snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        else if (json_is_boolean(value))
            snprintf(number, sizeof number, "%s", json_is_true(value) ? "true" : "false");
        text = text ? text : number;
        enum error_code code = *text ? options_set(&r->options, name, text, err) : OK; /* "": left open */
        if (code)
            return code;
    }
    return OK;
}

enum error_code record_restoration(const char *text, const struct limits *limits, struct restoration **out,
                                   struct error *err)
{
    int detect = 0, damage = 0, faces_out = 0, elsewhere = 0;
    json_int_t mask_bytes = 0;
    json_t *weights = NULL, *options = NULL, *json = text ? json_loads(text, 0, NULL) : NULL;
    struct restoration *r = NULL;
    *out = NULL;
    enum error_code code = restoration_create(&r, err);
    if (!code && (!json || json_unpack(json, "{s:b, s?b, s:b, s?I, s:b, s:o, s:o}", "detect", &detect, "damage",
                                       &damage, "faces_out", &faces_out, "mask_bytes", &mask_bytes, "elsewhere",
                                       &elsewhere, "weights", &weights, "options", &options)))
        code = error_set(err, ERROR_CORRUPT, "what the job asks for cannot be read");
    if (!code)
        code = record_set_options(r, options, err);
    if (code) {
        restoration_destroy(&r);
        json_decref(json);
        return code;
    }
    r->limits = *limits;
    r->detect_only = detect;
    r->damage_only = damage;
    r->mask_bytes = mask_bytes > 0 ? (size_t)mask_bytes : 0;
    r->mask_clear = json_is_true(json_object_get(json, "mask_clear"));
    if (json_integer_value(json_object_get(json, "other_bytes")) > 0)
        r->other_bytes = (size_t)json_integer_value(json_object_get(json, "other_bytes"));
    r->other_share = json_number_value(json_object_get(json, "other_share"));
    r->encode_mask = true;
    r->keep_faces = r->encode_faces = faces_out;
    r->elsewhere = elsewhere;
    for (int i = 0; i < IMAGE_FORMAT_COUNT; i++)
        r->format_weight[i] = (int)json_integer_value(json_array_get(weights, (size_t)i));
    json_decref(json);
    *out = r;
    return OK;
}

char *record_report(const struct restoration *r)
{
    return record_text(restoration_report(r));
}

char *record_error(const struct error *err, bool decoded)
{
    return record_text(
        json_pack("{s:s, s:s, s:b}", "code", error_code_name(err->code), "text", err->text, "decoded", decoded));
}

void record_read_error(const char *text, struct error *err, bool *decoded)
{
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    const char *name = json_string_value(json_object_get(json, "code"));
    const char *sentence = json_string_value(json_object_get(json, "text"));
    enum error_code code = OK;
    for (int i = OK + 1; name && i <= ERROR_INTERNAL; i++)
        if (!strcmp(error_code_name((enum error_code)i), name))
            code = (enum error_code)i;
    *decoded = json_is_true(json_object_get(json, "decoded"));
    error_set(err, code ? code : ERROR_INTERNAL, "%s", sentence ? sentence : "the reason was lost");
    json_decref(json);
}

/* What record_output is writing. */
struct record_file {
    struct spool_file *file;
    json_t *parts;
};

static enum error_code record_add(struct record_file *out, const char *kind, const struct face *face, int number,
                                  const char *type, const char *extension, const void *bytes, size_t size,
                                  const char *etag, struct error *err)
{
    json_t *part = json_pack("{s:s, s:s, s:s, s:I, s:I}", "kind", kind, "type", type, "extension", extension, "offset",
                             (json_int_t)spool_size(out->file), "size", (json_int_t)size);
    if (face) {
        json_object_set_new(part, "face", json_integer(face->id));
        json_object_set_new(part, "number", json_integer(number));
    }
    if (etag)
        json_object_set_new(part, "etag", json_string(etag));
    if (!part || json_array_append_new(out->parts, part))
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of a job's pictures");
    return spool_write(out->file, bytes, size, err);
}

enum error_code record_output(const struct job *job, struct spool_file *file, char **parts, struct error *err)
{
    const struct restoration *r = job->restoration;
    struct record_file out = {file, json_array()};
    enum error_code code = OK;
    if (r->output)
        code = record_add(&out, "result", NULL, 0, codec_media_type(r->output_format),
                          codec_extension(r->output_format), r->output, r->output_bytes, job->etag, err);
    if (r->mask_file.bytes && !code)
        code = record_add(&out, "mask", NULL, 0, "image/png", "png", r->mask_file.bytes, r->mask_file.size, NULL, err);
    for (int i = 0, number = 0; i < r->face_count && !code; i++) {
        const struct face *face = &r->faces[i];
        if (!face->crop_file.bytes)
            continue;
        code = record_add(&out, "crop", face, number, "image/png", "png", face->crop_file.bytes, face->crop_file.size,
                          NULL, err);
        if (!code && face->restoration_file.bytes)
            code = record_add(&out, "restored", face, number, "image/png", "png", face->restoration_file.bytes,
                              face->restoration_file.size, NULL, err);
        number++;
    }
    *parts = record_text(out.parts);
    if (!code && !*parts)
        code = error_set(err, ERROR_NO_MEMORY, "no memory for the list of a job's pictures");
    if (code) {
        free(*parts);
        *parts = NULL;
    }
    return code;
}

/* False: the entry is none of record_add's. */
static bool record_read_part(const json_t *json, struct record_part *out)
{
    const char *kind = json_string_value(json_object_get(json, "kind"));
    const char *type = json_string_value(json_object_get(json, "type"));
    const char *extension = json_string_value(json_object_get(json, "extension"));
    const char *etag = json_string_value(json_object_get(json, "etag"));
    const json_t *face = json_object_get(json, "face"), *number = json_object_get(json, "number");
    const json_int_t offset = json_integer_value(json_object_get(json, "offset"));
    const json_int_t size = json_integer_value(json_object_get(json, "size"));
    if (!kind || !type || !extension || offset < 0 || size < 0)
        return false;
    *out = (struct record_part){.face = face ? (int)json_integer_value(face) : -1,
                                .number = number ? (int)json_integer_value(number) : -1,
                                .offset = (uint64_t)offset,
                                .size = (uint64_t)size};
    snprintf(out->kind, sizeof out->kind, "%s", kind);
    snprintf(out->type, sizeof out->type, "%s", type);
    snprintf(out->extension, sizeof out->extension, "%s", extension);
    snprintf(out->etag, sizeof out->etag, "%s", etag ? etag : "");
    return true;
}

size_t record_parts(const char *text, struct record_part **out)
{
    json_t *parts = text ? json_loads(text, 0, NULL) : NULL, *part;
    size_t count = json_array_size(parts), i;
    *out = count ? mem_calloc(count, sizeof **out) : NULL;
    bool whole = *out;
    json_array_foreach(parts, i, part) whole = whole && record_read_part(part, *out + i);
    json_decref(parts);
    if (whole)
        return count;
    free(*out);
    *out = NULL;
    return 0;
}

bool record_part(const char *text, const char *kind, int face, struct record_part *out)
{
    struct record_part *parts;
    const size_t count = record_parts(text, &parts);
    size_t i = 0;
    while (i < count && (strcmp(parts[i].kind, kind) != 0 || (face >= 0 && parts[i].face != face)))
        i++;
    const bool found = i < count;
    if (found)
        *out = parts[i];
    free(parts);
    return found;
}
