#include "server/pipeline/pipeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "runtime/base/utf8.h"
#include "server/image/codec.h"
#include "server/pipeline/background.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/detect.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/paste.h"
#include "server/pipeline/repair.h"

/* The steps of a picture in order: those from DETECT to BACKGROUND need the device. */
static const struct pipeline_stage {
    enum stage stage;
    enum error_code (*run)(struct step *step, struct error *err);
    bool detection; /* part of a detect_only run */
    bool faces;     /* runs with its neighbours that have this set, for a few faces at a time (STEP_GROUP) */
} pipeline_stages[] = {
    {STAGE_DECODE, decode_step, true, false}, /* on any thread */
    {STAGE_REPAIR, repair_step, true, false},
    {STAGE_REPAIR, tone_step, true, false},     /* more damage is found in the picture as it came */
    {STAGE_DETECT, detect_first, false, false}, /* before the background if that may be turned */
    {STAGE_BACKGROUND, background_begin, false, false},
    {STAGE_DETECT, detect_step, true, false},
    {STAGE_ALIGN, align_step, false, true},
    {STAGE_RESTORE, restore_step, false, true},
    {STAGE_PARSE, parse_step, false, true},
    {STAGE_PARSE, paste_layers, false, true},
    {STAGE_BACKGROUND, background_step, false, false},
    {STAGE_PASTE, paste_step, false, false},
    {STAGE_ENCODE, encode_step, false, false},
};

const char *stage_name(enum stage stage)
{
    static const char *const names[] = {"queue",   "decode", "repair",     "detect", "align",
                                        "restore", "parse",  "background", "paste",  "encode"};
    return (unsigned)stage < STAGE_COUNT ? names[stage] : "done";
}

enum error_code restoration_create(struct restoration **out, struct error *err)
{
    struct restoration *r = *out = mem_calloc(1, sizeof *r);
    if (!r)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    options_init(&r->options);
    r->limits = (struct limits){
        .input_pixels = 64000000, .result_pixels = 400000000, .detect_max_side = 2048, .max_faces = 256};
    return OK;
}

/* Frees what the steps on the device leave, except for the faces' records; none of it may be kept after an attempt. */
static void restoration_free_results(struct restoration *r)
{
    for (int i = 0; i < r->face_count; i++) {
        struct face *f = &r->faces[i];
        image_destroy(&f->crop);
        image_destroy(&f->restoration);
        free(f->crop_float);
        free(f->restoration_float);
        free(f->classes);
        f->crop_float = f->restoration_float = NULL;
        f->classes = NULL;
    }
    if (r->step)
        paste_end(r->step);
    image_destroy(&r->result);
}

static void restoration_free_faces(struct restoration *r)
{
    restoration_free_results(r);
    for (int i = 0; i < r->face_count; i++) {
        free(r->faces[i].crop_file.bytes);
        free(r->faces[i].restoration_file.bytes);
    }
    free(r->faces);
    r->faces = NULL;
    r->face_count = 0;
}

void restoration_drop_pictures(struct restoration *r)
{
    restoration_free_results(r);
    image_destroy(&r->picture);
    deep_destroy(&r->deep);
    image_destroy(&r->mask);
    image_destroy(&r->other);
    r->repaired = r->toned = false;
    free(r->step);
    r->step = NULL;
}

size_t restoration_files(const struct restoration *r)
{
    size_t bytes = r->output_bytes + r->mask_file.size;
    for (int i = 0; i < r->face_count; i++)
        bytes += r->faces[i].crop_file.size + r->faces[i].restoration_file.size;
    return bytes;
}

void restoration_destroy(struct restoration **restoration)
{
    struct restoration *r = *restoration;
    if (!r)
        return;
    restoration_free_faces(r);
    restoration_drop_pictures(r);
    spill_free(r->output);
    free(r->mask_file.bytes);
    free(r);
    *restoration = NULL;
}

void restoration_moved(struct restoration *r)
{
    if (r->moved)
        r->moved(r, r->moved_context);
}

/* The conversions of a format, a line each; it has no %%. */
static void pipeline_conversions(const char *format, char *out, size_t size)
{
    size_t used = 0;
    for (const char *at = format; (at = strchr(at, '%'));) {
        const size_t length = strcspn(at, "dsu") + 1;
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", used ? "\n" : "", (int)length, at);
        at += length;
    }
}

static void pipeline_note(struct restoration *r, const char *code, const char *note, const char *values)
{
    const int at = r->note_count;
    for (int i = 0; i < at; i++)
        if (strcmp(r->notes[i], note) == 0)
            return;
    if (at == (int)(sizeof r->notes / sizeof r->notes[0]))
        return;
    r->note_codes[at] = code;
    snprintf(r->notes[at], sizeof r->notes[at], "%s", note);
    snprintf(r->note_values[at], sizeof r->note_values[at], "%s", values);
    r->note_count++;
}

void restoration_note(struct restoration *r, const char *code, const char *format, ...)
{
    char note[sizeof r->notes[0]], values[sizeof r->note_values[0]], conversions[64] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(note, sizeof note, format, args);
    va_end(args);
    pipeline_conversions(format, conversions, sizeof conversions);
    va_start(args, format);
    vsnprintf(values, sizeof values, conversions, args);
    va_end(args);
    pipeline_note(r, code, note, values);
}

void restoration_note_image(struct restoration *r, unsigned notes)
{
    for (unsigned bit = 0; bit < IMAGE_NOTE_COUNT; bit++)
        if (notes & (1u << bit))
            pipeline_note(r, image_note_code(1u << bit), image_note_text(1u << bit), "");
}

/* Whether version is none, by the option or by the configuration. */
static bool pipeline_without_faces(const struct restoration *r, const struct model_store *store)
{
    const struct model_entry *face = NULL;
    struct error ignored = ERROR_INIT;
    if (*r->options.version)
        return strcmp(r->options.version, "none") == 0;
    return model_store_resolve(store, ROLE_FACE, NULL, &face, &ignored) == OK && !face;
}

/* Whether each model that an option names is there, whether it is used or not. */
static enum error_code pipeline_check_names(const struct options *o, const struct model_store *store, struct error *err)
{
    const struct {
        enum model_role role;
        const char *name;
    } named[] = {{ROLE_DETECTOR, o->detector},
                 {ROLE_FACE, o->version},
                 {ROLE_UPSCALER, o->bg_upsampler},
                 {ROLE_DAMAGE, o->damage_detector},
                 {ROLE_FILLER, o->fill}};
    const struct model_entry *entry;
    enum error_code code = OK;
    for (size_t i = 0; i < sizeof named / sizeof *named && !code; i++)
        if (*named[i].name)
            code = model_store_resolve(store, named[i].role, named[i].name, &entry, err);
    return code;
}

/* The models that the options ask for. NULL when none is needed or, for parser and upscaler, when there is none. */
static enum error_code pipeline_models(const struct restoration *r, const struct model_store *store,
                                       const struct model_entry *model[ROLE_COUNT], struct error *err)
{
    const struct options *o = &r->options;
    memset(model, 0, sizeof model[0] * ROLE_COUNT);
    if (!store) /* another server has them, and will say what is missing */
        return OK;
    enum error_code code = pipeline_check_names(o, store, err);
    if (code)
        return code;
    bool faces = strcmp(o->version, "none") != 0 && o->faces != FACES_NONE;
    const bool replaced = r->mask_bytes && o->mask_mode == MASK_REPLACE; /* what was sent is all */
    const bool finds = !o->compat && o->repair != REPAIR_FALSE && !replaced && o->repair_strength > 0;
    if (finds)
        code = model_store_resolve(store, ROLE_DAMAGE, o->damage_detector, &model[ROLE_DAMAGE], err);
    if (code == OK && r->damage_only && finds && strcmp(o->damage_detector, "none") == 0)
        return error_set(err, ERROR_INVALID, "damage_detector: none finds nothing");
    if (code == OK && r->damage_only && finds && !model[ROLE_DAMAGE]) /* says what is missing */
        return model_store_resolve(store, ROLE_DAMAGE, "starter", &model[ROLE_DAMAGE], err);
    if (code != OK || r->damage_only)
        return code;
    if (model[ROLE_DAMAGE] || (r->mask_bytes && o->repair_strength > 0))
        code = model_store_resolve(store, ROLE_FILLER, o->fill, &model[ROLE_FILLER], err);
    if (code != OK)
        return code;
    if (r->detect_only)
        return model_store_resolve(store, ROLE_DETECTOR, o->detector, &model[ROLE_DETECTOR], err);
    if (o->faces == FACES_NONE && (*o->detector || !pipeline_without_faces(r, store))) {
        /* a detector would still say which faces there are, but nothing depends on it */
        struct error ignored = ERROR_INIT;
        code = model_store_resolve(store, ROLE_DETECTOR, o->detector, &model[ROLE_DETECTOR],
                                   *o->detector ? err : &ignored);
        code = *o->detector ? code : OK;
    }
    if (code == OK && faces)
        code = model_store_resolve(store, ROLE_FACE, o->version, &model[ROLE_FACE], err);
    faces = model[ROLE_FACE] != NULL; /* the configured default may be none */
    if (code == OK && !faces && o->aligned)
        return error_set(err, ERROR_INVALID, "aligned: true needs a face network, but version is none");
    if (code == OK && faces && !o->aligned)
        code = model_store_resolve(store, ROLE_DETECTOR, o->detector, &model[ROLE_DETECTOR], err);
    if (code == OK && o->auto_rotate != ROTATE_OFF && !o->compat && !o->aligned)
        code = model_store_resolve(store, ROLE_DETECTOR, o->detector, &model[ROLE_DETECTOR], err);
    if (code == OK && faces && !o->aligned && o->parse != PARSE_FALSE)
        code = model_store_resolve(store, ROLE_PARSER, NULL, &model[ROLE_PARSER], err);
    if (code == OK && faces && !o->aligned && o->parse == PARSE_TRUE && !model[ROLE_PARSER])
        return model_store_resolve(store, ROLE_PARSER, "parsenet", &model[ROLE_PARSER], err); /* says what is missing */
    if (code == OK && !o->aligned)
        code = model_store_resolve(store, ROLE_UPSCALER, o->bg_upsampler, &model[ROLE_UPSCALER], err);
    return code;
}

enum error_code pipeline_check_models(const struct restoration *r, const struct model_store *store, struct error *err)
{
    const struct model_entry *model[ROLE_COUNT];
    return pipeline_models(r, store, model, err);
}

/* The options say which models these are. */
static void pipeline_name_models(struct restoration *r, const struct model_entry *const model[ROLE_COUNT])
{
    struct options *o = &r->options;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (model[role])
            snprintf(r->model_names[role], sizeof r->model_names[role], "%s", model[role]->name);
    snprintf(o->version, sizeof o->version, "%s", model[ROLE_FACE] ? r->model_names[ROLE_FACE] : "none");
    snprintf(o->bg_upsampler, sizeof o->bg_upsampler, "%s",
             model[ROLE_UPSCALER] ? r->model_names[ROLE_UPSCALER] : "none");
    snprintf(o->damage_detector, sizeof o->damage_detector, "%s",
             model[ROLE_DAMAGE] ? r->model_names[ROLE_DAMAGE] : "none");
    snprintf(o->fill, sizeof o->fill, "%s", model[ROLE_FILLER] ? r->model_names[ROLE_FILLER] : "none");
    if (model[ROLE_DETECTOR])
        snprintf(o->detector, sizeof o->detector, "%s", r->model_names[ROLE_DETECTOR]);
    if (o->compat && o->bg_tile < 0)
        o->bg_tile = 400; /* the reference's */
}

enum error_code pipeline_resolve(struct restoration *r, const struct model_store *store, struct error *err)
{
    const struct model_entry *model[ROLE_COUNT];
    const enum error_code code = pipeline_models(r, store, model, err);
    if (!code)
        pipeline_name_models(r, model);
    return code;
}

/* The result's format for a picture in this format. */
static enum image_format pipeline_format(const struct restoration *r, enum image_format input)
{
    enum image_format best = options_result_format(&r->options, input, r->in_info.channels % 2 == 0);
    if (options_format(&r->options))
        return best;
    for (int format = IMAGE_JPEG; format < IMAGE_FORMAT_COUNT; format++)
        if (r->format_weight[format] > r->format_weight[best] &&
            (!r->options.lossless || codec_is_lossless((enum image_format)format)))
            best = (enum image_format)format;
    return best;
}

void pipeline_size(const struct restoration *r, struct size *size)
{
    const bool side = atomic_load(&r->turned) % 2;
    size_of(&r->options, side ? r->in_info.height : r->in_info.width, side ? r->in_info.width : r->in_info.height,
            size);
}

enum error_code pipeline_check_size(struct restoration *r, const struct model_store *store,
                                    const struct model_entry *model[ROLE_COUNT], struct error *err)
{
    const int input_width = r->in_info.width, input_height = r->in_info.height;
    enum error_code code = options_check(&r->options, err);
    if (code != OK)
        return code;
    r->output_format = r->damage_only ? IMAGE_PNG : pipeline_format(r, r->in_info.format);
    uint64_t pixels = (uint64_t)input_width * (uint64_t)input_height;
    if (r->limits.input_pixels && pixels > r->limits.input_pixels)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %d × %d = %.1f megapixels; at most %.1f are taken",
                         input_width, input_height, (double)pixels / 1e6, (double)r->limits.input_pixels / 1e6);
    if (input_width > PIPELINE_SIDE || input_height > PIPELINE_SIDE)
        return error_set(err, ERROR_TOO_LARGE, "the picture has %d × %d pixels; at most %d a side are taken",
                         input_width, input_height, PIPELINE_SIDE);
    if (!r->detect_only && !r->damage_only && !r->options.aligned) {
        const char *smaller = size_asked(&r->options) ? "size" : "upscale";
        int longest = codec_max_side(r->output_format);
        struct size size;
        longest = longest < PIPELINE_SIDE ? longest : PIPELINE_SIDE;
        pipeline_size(r, &size);
        uint64_t result = (uint64_t)size.width * (uint64_t)size.height;
        if (r->limits.result_pixels && result > r->limits.result_pixels)
            return error_set(err, ERROR_TOO_LARGE,
                             "the result would have %d × %d = %.1f megapixels%s; at most %.1f are made: choose a "
                             "smaller %s",
                             size.width, size.height, (double)result / 1e6,
                             size.width > size.kept_width || size.height > size.kept_height ? " before it is cut" : "",
                             (double)r->limits.result_pixels / 1e6, smaller);
        const uint64_t kept = (uint64_t)size.kept_width * (uint64_t)size.kept_height;
        const uint64_t most = codec_max_pixels(r->output_format);
        if (most && kept > most)
            return error_set(err, ERROR_TOO_LARGE,
                             "the result would have %.1f megapixels, but the largest %s that is written has %.0f: "
                             "choose png or a smaller %s",
                             (double)kept / 1e6, image_format_name(r->output_format), (double)most / 1e6, smaller);
        if (size.width > PIPELINE_SIDE || size.height > PIPELINE_SIDE || size.kept_width > longest ||
            size.kept_height > longest)
            return error_set(err, ERROR_TOO_LARGE,
                             "the result would be %d × %d, but the longest side of a %s is %d: choose png or a smaller "
                             "%s",
                             size.kept_width, size.kept_height, image_format_name(r->output_format), longest, smaller);
    }
    code = pipeline_models(r, store, model, err);
    r->faceless = store && !r->detect_only && !model[ROLE_FACE];
    return code;
}

enum error_code pipeline_check(struct restoration *r, const struct model_store *store, struct error *err)
{
    struct codec_info info;
    const struct model_entry *model[ROLE_COUNT];
    enum error_code code = options_check(&r->options, err);
    if (code == OK && r->mask_bytes && r->options.compat)
        return error_set(err, ERROR_INVALID, "mask: compat repairs nothing, so there is nothing to do with a mask");
    if (code == OK)
        code = codec_probe_page(r->input, r->input_bytes, r->options.page, &info, err);
    if (code != OK)
        return code;
    r->in_info.width = info.width;
    r->in_info.height = info.height;
    r->in_info.bits = info.bits;
    r->in_info.channels = info.channels;
    r->in_info.format = info.format;
    r->in_info.bytes = r->input_bytes;
    r->in_info.pages = info.pages;
    return pipeline_check_size(r, store, model, err);
}

enum error_code pipeline_check_mask(const struct restoration *r, int width, int height, struct error *err)
{
    if (width == r->in_info.width && height == r->in_info.height)
        return OK;
    return error_set(err, ERROR_INVALID, "mask: it has %d × %d pixels, but the picture %d × %d", width, height,
                     r->in_info.width, r->in_info.height);
}

/* Notes which starter models are used, because they do less than the official ones. */
static void pipeline_note_starters(struct step *step)
{
    static const char *const names[ROLE_COUNT] = {
        [ROLE_DETECTOR] = "detector", [ROLE_FACE] = "face", [ROLE_PARSER] = "parser", [ROLE_UPSCALER] = "background"};
    char list[64] = "";
    for (int role = 0; role < ROLE_COUNT; role++)
        if (names[role] && step->model[role] && step->model[role]->starter) /* there are no others that find damage */
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", names[role]);
    if (*list)
        restoration_note(step->r, "starter-models",
                         step->r->elsewhere ? "small starter models were used (%s); the official ones restore better"
                                            : "small starter models were used (%s); the official ones restore better: "
                                              "restored models get default",
                         list);
}

static void pipeline_note_licences(struct step *step)
{
    model_store_lock(step->context->store);
    for (int role = 0; role < ROLE_COUNT; role++) {
        const struct model_entry *model = step->model[role];
        char name[96];
        if (model && licence_non_commercial(model->licence))
            restoration_note(step->r, "non-commercial", "%s is not for commercial use (licence: %s)",
                             utf8_copy(name, sizeof name, model->name), model->licence);
    }
    model_store_unlock(step->context->store);
}

enum precision pipeline_precision_on(const struct device_info *device, enum precision configured, enum precision asked)
{
    if (asked != PRECISION_AUTO)
        return asked;
    if (configured == PRECISION_FP32 || (configured == PRECISION_FP16 && device->fp16))
        return configured;
    return device->preferred;
}

enum precision pipeline_precision(const struct worker_context *context, enum precision asked)
{
    struct device_info device;
    device_info(context->device, &device);
    return pipeline_precision_on(&device, context->precision, asked);
}

/* What the report shows as resolved. */
static void pipeline_resolved(struct step *step)
{
    struct restoration *r = step->r;
    struct device_info device;
    pipeline_name_models(r, step->model);
    device_info(step->context->device, &device);
    snprintf(r->device, sizeof r->device, "%s", device.id);
    r->precision = pipeline_precision(step->context, r->options.precision);
}

/* Runs the steps first .. last. The time until the next ones begin counts as waiting. */
static enum error_code pipeline_steps(struct step *step, enum stage first, enum stage last, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = OK;
    int count = (int)(sizeof pipeline_stages / sizeof pipeline_stages[0]);
    for (int i = 0; i < count && code == OK; i++) {
        const struct pipeline_stage *stage = &pipeline_stages[i];
        if (stage->stage < first || stage->stage > last || (r->detect_only && !stage->detection) ||
            (r->damage_only && stage->stage != STAGE_DECODE && stage->stage != STAGE_REPAIR &&
             stage->stage != STAGE_ENCODE))
            continue;
        step_enter(step, stage->stage);
        code = step_check(step, err);
        if (code == OK)
            code = stage->run(step, err);
        if (stage->faces && !stage[1].faces && step_end(step) < r->face_count)
            while (stage->faces) /* again for the next faces */
                stage = &pipeline_stages[--i];
    }
    step_enter(step, STAGE_QUEUE);
    r->total_ms = 0;
    for (int stage = STAGE_DECODE; stage < STAGE_COUNT; stage++)
        r->total_ms += r->stage_ms[stage];
    return code;
}

enum error_code pipeline_begin(struct restoration *r, const struct model_store *store, struct error *err)
{
    restoration_free_faces(r); /* of an earlier attempt */
    restoration_drop_pictures(r);
    memset(r->stage_ms, 0, sizeof r->stage_ms);
    atomic_store(&r->entered, 0);
    r->decoded = false;
    r->rotation.looked = false;
    atomic_store(&r->turned, 0);
    enum error_code code = pipeline_check(r, store, err);
    if (code != OK)
        return code;
    struct step *step = r->step = mem_calloc(1, sizeof *step);
    if (!step)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    step->r = r;
    struct size size;
    pipeline_size(r, &size);
    step->width = size.width;
    step->height = size.height;
    code = pipeline_steps(step, STAGE_DECODE, STAGE_DECODE, err);
    r->decoded = code == OK;
    return code;
}

/* Everything before the first step on the device. */
static enum error_code pipeline_attach(struct restoration *r, struct worker_context *context, struct error *err)
{
    struct step *step = r->step;
    const bool wants_upscaler = strcmp(r->options.bg_upsampler, "none") != 0;
    restoration_free_faces(r); /* of an attempt before */
    memset(r->stage_ms + STAGE_REPAIR, 0, sizeof r->stage_ms[0] * (STAGE_PASTE - STAGE_REPAIR));
    memset(r->network_ms, 0, sizeof r->network_ms);
    memset(r->making_ms, 0, sizeof r->making_ms);
    atomic_store(&r->entered, 0);
    enum error_code code = pipeline_models(r, context->store, step->model, err);
    if (code != OK)
        return code;
    step->first = step->end = 0;
    step->detected = false;
    step_attach(step, context);
    pipeline_resolved(step);
    pipeline_note_starters(step);
    pipeline_note_licences(step);
    const bool alone = r->detect_only || r->damage_only; /* nothing is enlarged */
    if (wants_upscaler && !step->model[ROLE_UPSCALER] && !r->options.aligned && !alone)
        restoration_note(r, "no-upscaler", "no upscaler is installed: the background was resized with Lanczos4");
    return OK;
}

enum error_code pipeline_compute(struct restoration *r, struct worker_context *context, struct error *err)
{
    struct step *step = r->step;
    enum error_code code = OK;
    context->current = r;
    if (context->ahead == r) {
        context->ahead = NULL;
        step_attach(step, context);
    } else {
        model_set_drop_replaced(context->models);
        code = pipeline_attach(r, context, err);
    }
    if (code == OK)
        code = pipeline_steps(step, STAGE_REPAIR, STAGE_BACKGROUND, err);
    context->current = NULL;
    background_end(step);
    step_attach(step, NULL); /* somebody else has the device now */
    return code;
}

/* Whether `current` can wait for the repair of r: it had one of its own, of a picture that was not much smaller. */
static bool pipeline_repair_is_short(const struct restoration *r, const struct restoration *current)
{
    return current && current->damage.looked &&
           (double)r->in_info.width * r->in_info.height <= 2.0 * current->in_info.width * current->in_info.height;
}

void pipeline_ahead(struct restoration *r, struct worker_context *context)
{
    struct error err = ERROR_INIT;
    struct step *step = r->step;
    struct restoration *current = context->current;
    if (r->detect_only || r->damage_only || context->ahead || pipeline_attach(r, context, &err) != OK)
        return;
    if (detect_turns(step) || (repair_wanted(step) && !pipeline_repair_is_short(r, current))) {
        step_attach(step, NULL); /* the background is that of the repaired picture */
        return;
    }
    context->ahead = r;
    enum error_code code = pipeline_steps(step, STAGE_REPAIR, STAGE_REPAIR, &err);
    step_enter(step, STAGE_BACKGROUND);
    if (code != OK || step_check(step, &err) != OK || background_begin(step, &err) != OK)
        pipeline_forget(context);
    step_enter(step, STAGE_QUEUE);
    /* The time of the repair is the current one's, which waits for it. */
    if (current)
        current->step->making_ms += r->making_ms[STAGE_REPAIR];
    r->stage_ms[STAGE_REPAIR] = r->network_ms[STAGE_REPAIR] = r->making_ms[STAGE_REPAIR] = 0;
}

void pipeline_forget(struct worker_context *context)
{
    if (!context->ahead)
        return;
    background_end(context->ahead->step);
    step_attach(context->ahead->step, NULL);
    context->ahead = NULL;
}

enum error_code pipeline_end(struct restoration *r, struct error *err)
{
    enum error_code code = pipeline_steps(r->step, STAGE_PASTE, STAGE_ENCODE, err);
    atomic_store(&r->stage, (int)STAGE_COUNT);
    return code;
}

enum error_code pipeline_run(struct restoration *r, struct worker_context *context, struct error *err)
{
    enum error_code code = pipeline_begin(r, context->store, err);
    if (code == OK)
        code = pipeline_compute(r, context, err);
    return code == OK ? pipeline_end(r, err) : code;
}
