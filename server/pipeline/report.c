#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/pipeline/pipeline.h"

/* None of these figures is known more precisely than to thousandths. */
static json_t *report_real(double value)
{
    return json_real(round(value * 1000) / 1000);
}

/* Of a picture's pixels. */
static json_t *report_share(double value)
{
    return json_real(round(value * 1e6) / 1e6);
}

static json_t *report_name(const char *name)
{
    return *name ? json_string(name) : json_null();
}

/* A face of which less is used is called kept. */
#define REPORT_KEPT 0.05

bool restoration_kept(const struct restoration *r, const struct face *face)
{
    return face->restored &&
           (face->unmasked || (face->weighed && options_weight(&r->options, face->id) < 0 && face->used < REPORT_KEPT));
}

static json_t *report_faces(const struct restoration *r)
{
    json_t *faces = json_array();
    for (int i = 0; i < r->face_count; i++) {
        const struct face *f = &r->faces[i];
        json_t *landmarks = json_array();
        for (int k = 0; k < 5; k++)
            json_array_append_new(
                landmarks, json_pack("[o, o]", report_real(f->landmarks[k][0]), report_real(f->landmarks[k][1])));
        const bool kept = restoration_kept(r, f);
        const char *action = kept ? "kept" : f->restored ? "restored" : "skipped";
        if (r->detect_only) /* what a restoration would do */
            action = f->reason[0] ? "skipped" : "restorable";
        json_t *face =
            json_pack("{s:i, s:[o, o, o, o], s:f, s:o, s:o, s:s, s:o}", "id", f->id, "box", report_real(f->box[0]),
                      report_real(f->box[1]), report_real(f->box[2]), report_real(f->box[3]), "score", f->score,
                      "landmarks", landmarks, "eye_distance", report_real(f->eye_distance), "action", action, "reason",
                      report_name(!kept         ? f->reason
                                  : f->unmasked ? "its mask is empty: the parser found no face in its restoration"
                                                : "its restoration has no better detail"));
        if (!r->detect_only) {
            json_object_set_new(face, "used", f->weighed ? report_real(f->used) : json_null());
            json_object_set_new(face, "change", f->weighed ? report_real(f->change) : json_null());
        }
        json_array_append_new(faces, face);
    }
    return faces;
}

static json_t *report_timings(const struct restoration *r)
{
    json_t *timings = json_object();
    for (int stage = 0; stage < STAGE_COUNT; stage++) {
        if ((r->detect_only && stage > STAGE_DETECT) ||
            (r->damage_only && stage > STAGE_REPAIR && stage != STAGE_ENCODE))
            continue;
        json_object_set_new(timings, stage_name((enum stage)stage), report_real(r->stage_ms[stage]));
    }
    json_object_set_new(timings, "total", report_real(r->total_ms));
    return timings;
}

/* How much of each stage's time its networks took, making their plans included. */
static json_t *report_network_times(const struct restoration *r)
{
    json_t *times = json_object();
    static const enum stage stages[] = {STAGE_REPAIR, STAGE_DETECT, STAGE_RESTORE, STAGE_PARSE, STAGE_BACKGROUND};
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++)
        json_object_set_new(times, stage_name(stages[i]), report_real(r->network_ms[stages[i]]));
    return times;
}

/* Numbers and booleans as such; a seed above 2^53 as text, because few JSON readers keep such a number. */
json_t *restoration_options(const struct options *options)
{
    json_t *out = json_object();
    for (int i = 0; i < option_row_count; i++) {
        const struct option_row *row = &option_rows[i];
        char text[OPTION_TEXT_MAX];
        options_text(options, row->name, text, sizeof text);
        json_t *value = NULL;
        if (strcmp(row->type, "boolean") == 0) {
            value = json_boolean(strcmp(text, "true") == 0);
        } else if (strcmp(row->type, "number") == 0 && strspn(text, "+-.e0123456789") == strlen(text)) {
            value = json_real(options_real(options, row));
        } else if (strcmp(row->type, "integer") == 0 && strspn(text, "-0123456789") == strlen(text)) {
            unsigned long long wide = strtoull(text, NULL, 10);
            if (text[0] == '-' || wide <= 1ull << 53)
                value = json_integer(strtoll(text, NULL, 10));
        }
        json_object_set_new(out, row->name, value ? value : json_string(text));
    }
    return out;
}

static json_t *report_models(const struct restoration *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "damage", report_name(r->model_names[ROLE_DAMAGE]), "fill",
                     report_name(r->model_names[ROLE_FILLER]), "detector", report_name(r->model_names[ROLE_DETECTOR]),
                     "face", report_name(r->model_names[ROLE_FACE]), "parser", report_name(r->model_names[ROLE_PARSER]),
                     "background", report_name(r->model_names[ROLE_UPSCALER]));
}

/* null: nobody has looked, and there was no mask. */
static json_t *report_damage(const struct restoration *r)
{
    if (!r->damage.looked && !r->damage.sent)
        return json_null();
    json_t *list = json_object();
    for (int k = 0; k < DEFECT_KINDS; k++)
        json_object_set_new(
            list, defect_names[k],
            json_pack("{s:i, s:o}", "count", r->damage.defects[k], "share", report_share(r->damage.shares[k])));
    return json_pack("{s:o, s:b, s:o}", "share", report_share(r->damage.share), "mask", r->damage.given, "kinds", list);
}

/* null: nobody has asked. */
static json_t *report_tone(const struct restoration *r)
{
    const double *black = r->tone.black, *white = r->tone.white;
    if (!r->tone.asked)
        return json_null();
    return json_pack("{s:o, s:o, s:b, s:[o, o, o], s:[o, o, o]}", "strength", report_real(r->tone.strength), "change",
                     report_real(r->tone.change), "monochrome", r->tone.monochrome, "black", report_real(black[0]),
                     report_real(black[1]), report_real(black[2]), "white", report_real(white[0]),
                     report_real(white[1]), report_real(white[2]));
}

/* null: nobody has asked. */
static json_t *report_rotation(const struct restoration *r)
{
    if (!r->rotation.looked)
        return json_null();
    return json_pack("{s:i, s:b}", "degrees", r->rotation.degrees, "applied", atomic_load(&r->turned) != 0);
}

static json_t *report_notes(const struct restoration *r)
{
    json_t *notes = json_array();
    for (int i = 0; i < r->note_count; i++)
        json_array_append_new(notes, json_string(r->notes[i]));
    return notes;
}

/* What each note is called, and its values. */
static json_t *report_note_codes(const struct restoration *r)
{
    json_t *codes = json_array();
    for (int i = 0; i < r->note_count; i++) {
        json_t *values = json_array();
        for (const char *at = r->note_values[i]; *at;) {
            const size_t size = strcspn(at, "\n");
            json_array_append_new(values, json_stringn(at, size));
            at += size + (at[size] != 0);
        }
        json_array_append_new(codes, json_pack("{s:s, s:o}", "code", r->note_codes[i], "values", values));
    }
    return codes;
}

struct json_t *restoration_report(const struct restoration *r)
{
    if (r->damage_only)
        return json_pack("{s:i, s:i, s:o, s:{s:o}, s:o, s:o, s:o}", "width", r->in_info.width, "height",
                         r->in_info.height, "damage", report_damage(r), "models", "damage",
                         report_name(r->model_names[ROLE_DAMAGE]), "timings_ms", report_timings(r), "notes",
                         report_notes(r), "note_codes", report_note_codes(r));
    if (r->detect_only) {
        json_t *models = json_pack("{s:o}", "detector", report_name(r->model_names[ROLE_DETECTOR]));
        json_t *report = json_pack("{s:i, s:i, s:o, s:o, s:o}", "width", r->in_info.width, "height", r->in_info.height,
                                   "faces", report_faces(r), "models", models, "timings_ms", report_timings(r));
        if (r->rotation.looked)
            json_object_set_new(report, "rotation", report_rotation(r));
        return report;
    }
    const bool side = atomic_load(&r->turned) % 2;
    json_t *input =
        json_pack("{s:i, s:i, s:s, s:i, s:i, s:I}", "width", side ? r->in_info.height : r->in_info.width, "height",
                  side ? r->in_info.width : r->in_info.height, "format", image_format_name(r->in_info.format), "bits",
                  r->in_info.bits, "channels", r->in_info.channels, "bytes", (json_int_t)r->in_info.bytes);
    json_t *output = json_null();
    if (r->output)
        output = json_pack("{s:i, s:i, s:s, s:i, s:i, s:I}", "width", r->out_info.width, "height", r->out_info.height,
                           "format", image_format_name(r->out_info.format), "bits", r->out_info.bits, "channels",
                           r->out_info.channels, "bytes", (json_int_t)r->out_info.bytes);
    return json_pack("{s:o, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o}", "input", input,
                     "output", output, "options", restoration_options(&r->options), "models", report_models(r),
                     "device", r->device, "precision", r->precision == PRECISION_FP16 ? "fp16" : "fp32", "damage",
                     report_damage(r), "faces", report_faces(r), "timings_ms", report_timings(r), "network_ms",
                     report_network_times(r), "tiles", r->tiles, "notes", report_notes(r), "note_codes",
                     report_note_codes(r), "tone", report_tone(r), "rotation", report_rotation(r));
}
