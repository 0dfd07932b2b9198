/* The form of A1111 (stable-diffusion-webui): the part of /sdapi/v1 that restores pictures. Fields, defaults and
 * meaning are those of its modules/api/models.py, modules/postprocessing.py, scripts/postprocessing_upscale.py and
 * modules/upscaler.py. */
#include "server/compat/a1111.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "server/compat/compat.h"
#include "server/compat/intake.h"
#include "server/http/fleet.h"
#include "server/process.h"

#define A1111_RUNS 3 /* of a network on one picture, as its loop has it */

enum a1111_kind { A1111_NONE, A1111_RESIZE, A1111_NETWORK };
struct a1111_upscaler {
    enum a1111_kind kind;
    char name[OPTION_NAME_MAX]; /* of the model */
    int scale;
};

/* A request to extra-single-image or extra-batch-images. */
struct a1111 {
    struct compat base;
    struct intake *intake;
    struct a1111_upscaler upscalers[2];
    struct a1111_size size;
    bool crop;
    double second, gfpgan, codeformer, fidelity;
};

bool a1111_plan(const struct a1111_size *size, int width, int height, int scale, int *out_width, int *out_height,
                int *runs)
{
    const double by = size->to ? fmax((double)size->width / width, (double)size->height / height) : size->by;
    const double wide = floor(width * by / 8) * 8, high = floor(height * by / 8) * 8;
    if (!(wide >= 1 && high >= 1 && wide <= OPTION_SIDE && high <= OPTION_SIDE))
        return false;
    *out_width = (int)wide;
    *out_height = (int)high;
    double made = 1;
    for (*runs = 1; *runs < A1111_RUNS; (*runs)++) {
        made *= scale;
        if (scale == 1 || (width * made >= wide && height * made >= high))
            break;
    }
    return true;
}

/* --- fields --------------------------------------------------------------------------------------------------------
 */

/* A number, or text that is one. */
static enum error_code a1111_number(const json_t *json, const char *name, double initial, double least, double most,
                                    double *out, struct error *err)
{
    const json_t *value = json_object_get(json, name);
    const char *text = json_string_value(value);
    char *end = NULL;
    *out = json_is_number(value) ? json_number_value(value) : text ? strtod(text, &end) : initial;
    if ((value && !json_is_null(value) && !json_is_number(value) && (!text || !*text || *end)) || !(*out >= least) ||
        !(*out <= most))
        return error_set(err, ERROR_INVALID, "%s: it has to be a number from %g to %g", name, least, most);
    return OK;
}

static enum error_code a1111_boolean(const json_t *json, const char *name, bool initial, bool *out, struct error *err)
{
    const json_t *value = json_object_get(json, name);
    *out = json_is_boolean(value) ? json_is_true(value) : initial;
    return !value || json_is_boolean(value) || json_is_null(value)
               ? OK
               : error_set(err, ERROR_INVALID, "%s: it has to be true or false", name);
}

/* The upscaler of either name. */
static enum error_code a1111_upscaler(const struct request *request, const json_t *json, const char *name,
                                      struct a1111_upscaler *out, struct error *err)
{
    const json_t *value = json_object_get(json, name);
    const char *text = json_string_value(value);
    *out = (struct a1111_upscaler){.kind = A1111_NONE};
    if (!value || json_is_null(value) || (text && !strcmp(text, "None")))
        return OK;
    if (text && !strcmp(text, "Lanczos")) {
        *out = (struct a1111_upscaler){A1111_RESIZE, "none", 8};
        return OK;
    }
    const char *ours = text ? a1111_ours(text) : "?";
    json_t *models = compat_models(request);
    const json_t *model = text ? compat_upscaler(models, text) : NULL; /* a file may have one of their names */
    if (!model)
        model = compat_upscaler(models, ours);
    if (model) {
        out->kind = A1111_NETWORK;
        out->scale = (int)json_integer_value(json_object_get(model, "scale"));
        snprintf(out->name, sizeof out->name, "%s", compat_model_text(model, "name"));
    }
    json_decref(models);
    if (out->kind)
        return OK;
    error_set(err, ERROR_INVALID,
              "%s: there is no \"%.60s\" on this server; GET /sdapi/v1/upscalers lists what there is", name,
              text ? text : "?");
    if (text && ours != text)
        error_local(err, "; it comes with: restored models get %s", ours);
    return ERROR_INVALID;
}

static enum error_code a1111_settings(struct request *request, const json_t *json, struct error *err)
{
    struct a1111 *a1111 = request->reading;
    double mode = 0, width = 0, height = 0;
    enum error_code code = a1111_number(json, "resize_mode", 0, 0, 1, &mode, err);
    if (!code)
        code = a1111_number(json, "upscaling_resize", 2, 0.001, 1000, &a1111->size.by, err);
    if (!code)
        code = a1111_number(json, "upscaling_resize_w", 512, 1, OPTION_SIDE, &width, err);
    if (!code)
        code = a1111_number(json, "upscaling_resize_h", 512, 1, OPTION_SIDE, &height, err);
    if (!code)
        code = a1111_number(json, "extras_upscaler_2_visibility", 0, 0, 1, &a1111->second, err);
    if (!code)
        code = a1111_number(json, "gfpgan_visibility", 0, 0, 1, &a1111->gfpgan, err);
    if (!code)
        code = a1111_number(json, "codeformer_visibility", 0, 0, 1, &a1111->codeformer, err);
    if (!code)
        code = a1111_number(json, "codeformer_weight", 0, 0, 1, &a1111->fidelity, err);
    if (!code)
        code = a1111_boolean(json, "upscaling_crop", true, &a1111->crop, err);
    if (!code)
        code = a1111_upscaler(request, json, "upscaler_1", &a1111->upscalers[0], err);
    if (!code)
        code = a1111_upscaler(request, json, "upscaler_2", &a1111->upscalers[1], err);
    a1111->size.to = mode > 0;
    a1111->size.width = (int)width;
    a1111->size.height = (int)height;
    return code;
}

static enum error_code a1111_add(struct request *request, const json_t *value, const char *name, struct error *err)
{
    struct a1111 *a1111 = request->reading;
    struct compat_picture *picture = compat_add(&a1111->base, request->server->spool, err);
    enum error_code code = picture ? intake_file(a1111->intake, value, name, &picture->body, err) : err->code;
    return code || picture->body.size ? code : error_set(err, ERROR_INVALID, "%s: the picture is empty", name);
}

static bool a1111_is_batch(const struct request *request)
{
    return !strcmp(request->route->path, "/sdapi/v1/extra-batch-images");
}

static enum error_code a1111_prepare(struct request *request, struct error *err)
{
    struct a1111 *a1111 = request->reading;
    json_t *json = NULL;
    enum error_code code = intake_finish(a1111->intake, &json, err);
    if (!code && !json_is_object(json))
        code = error_set(err, ERROR_INVALID, "the body has to be a JSON object");
    if (!code)
        code = a1111_settings(request, json, err);
    const json_t *list = json_object_get(json, "imageList");
    if (!code && !a1111_is_batch(request))
        code = a1111_add(request, json_object_get(json, "image"), "image", err);
    else if (!code && !json_array_size(list))
        code = error_set(err, ERROR_INVALID, "imageList: it has to be a list of pictures");
    for (size_t i = 0; !code && i < json_array_size(list) && a1111_is_batch(request); i++)
        code = a1111_add(request, json_object_get(json_array_get(list, i), "data"), "imageList: data", err);
    json_decref(json);
    return code;
}

/* --- passes --------------------------------------------------------------------------------------------------------
 */

/* A pass that does nothing yet but to write a PNG, as samples_format has it. */
static struct compat_pass *a1111_pass(struct compat_picture *picture, struct error *err)
{
    struct compat_pass *pass = compat_add_pass(picture, err);
    if (!pass)
        return NULL;
    struct options *options = &pass->options;
    snprintf(options->version, sizeof options->version, "none");
    snprintf(options->bg_upsampler, sizeof options->bg_upsampler, "none");
    options->upscale = 1;
    options->faces = FACES_NONE;
    options->repair = REPAIR_FALSE;
    options->ext = FORMAT_PNG;
    return pass;
}

/* The passes of one upscaler: all but the last by its own scale, the last to the size. */
static enum error_code a1111_upscale(const struct a1111 *a1111, const struct a1111_upscaler *upscaler, bool again,
                                     struct compat_picture *picture, const struct restoration *r, struct error *err)
{
    int width, height, runs;
    if (!a1111_plan(&a1111->size, r->in_info.width, r->in_info.height, upscaler->scale, &width, &height, &runs))
        return error_set(err, ERROR_INVALID,
                         "upscaling_resize: of a picture of %d × %d pixels nothing would be left, or "
                         "too much",
                         r->in_info.width, r->in_info.height);
    const bool crops = a1111->size.to && a1111->crop;
    for (int i = 0; i < runs; i++) {
        struct compat_pass *pass = a1111_pass(picture, err);
        if (!pass)
            return err->code;
        struct options *options = &pass->options;
        pass->again = again && !i;
        snprintf(options->bg_upsampler, sizeof options->bg_upsampler, "%s", upscaler->name);
        options->upscale = upscaler->scale;
        if (i < runs - 1)
            continue;
        options->upscale = 2; /* its default, which the size replaces */
        options->width = crops ? a1111->size.width : width;
        options->height = crops ? a1111->size.height : height;
        options->fit = crops ? FIT_COVER : FIT_FILL;
    }
    return OK;
}

/* Faces of the picture as it is by then: in the last pass if that has none yet, else in one of their own. */
static enum error_code a1111_faces(struct compat_picture *picture, const char *version, double visibility,
                                   struct error *err)
{
    struct compat_pass *pass = picture->pass_count ? &picture->passes[picture->pass_count - 1] : NULL;
    if (!pass || pass->options.faces != FACES_NONE || pass->blend > 0)
        pass = a1111_pass(picture, err);
    if (!pass)
        return err->code;
    snprintf(pass->options.version, sizeof pass->options.version, "%s", version);
    pass->options.faces = FACES_ALL;
    pass->options.weight = visibility;
    return OK;
}

/* Whether there is a face model: CodeFormer, or another; its name into out, if that is not NULL. */
static bool a1111_restores(const struct request *request, bool codeformer, char *out)
{
    json_t *models = compat_models(request), *model;
    bool found = false;
    size_t i;
    json_array_foreach(models, i, model)
    {
        if (found || !compat_model_is(model, "face") ||
            !strcmp(compat_model_text(model, "architecture"), "CodeFormer") != codeformer)
            continue;
        found = true;
        if (out)
            snprintf(out, OPTION_NAME_MAX, "%s", compat_model_text(model, "name"));
    }
    json_decref(models);
    return found;
}

static enum error_code a1111_codeformer(const struct request *request, struct compat_picture *picture,
                                        struct error *err)
{
    const struct a1111 *a1111 = request->reading;
    char fidelity[32], name[OPTION_NAME_MAX];
    if (!a1111_restores(request, true, name))
        return error_set(err, ERROR_INVALID, "codeformer_visibility: there is no CodeFormer on this server");
    enum error_code code = a1111_faces(picture, name, a1111->codeformer, err);
    snprintf(fidelity, sizeof fidelity, "%.4f", a1111->fidelity);
    if (!code && options_find("w"))
        code = options_set(&picture->passes[picture->pass_count - 1].options, "w", fidelity, err);
    return code;
}

/* Upscaler 1, blended with upscaler 2, then GFPGAN, then CodeFormer. */
static enum error_code a1111_make_passes(struct request *request, struct compat_picture *picture,
                                         const struct restoration *r, struct error *err)
{
    const struct a1111 *a1111 = request->reading;
    const struct a1111_upscaler *first = &a1111->upscalers[0], *second = &a1111->upscalers[1];
    const bool both = first->kind && second->kind && a1111->second > 0;
    enum error_code code = OK;
    if (first->kind)
        code = a1111_upscale(a1111, first, false, picture, r, err);
    if (!code && both)
        code = a1111_upscale(a1111, second, true, picture, r, err);
    if (!code && both)
        picture->passes[picture->pass_count - 1].blend = a1111->second;
    if (!code && a1111->gfpgan > 0)
        code = a1111_faces(picture, "", a1111->gfpgan, err);
    if (!code && a1111->codeformer > 0)
        code = a1111_codeformer(request, picture, err);
    if (!code && !picture->pass_count && !a1111_pass(picture, err))
        code = err->code;
    return code;
}

/* --- extra-single-image, extra-batch-images ------------------------------------------------------------------------
 */

static enum error_code a1111_feed(void *context, const char *data, size_t size, struct error *err)
{
    return intake_feed(((struct a1111 *)context)->intake, data, size, err);
}

static void a1111_destroy(void *context)
{
    struct a1111 *a1111 = context;
    compat_clear(&a1111->base);
    intake_destroy(&a1111->intake);
    free(a1111);
}

static const struct request_reader a1111_reader = {a1111_feed, a1111_destroy, REPLY_UNPROCESSABLE};

static const char *a1111_shown(const struct a1111_upscaler *upscaler)
{
    return upscaler->kind == A1111_RESIZE ? "Lanczos" : upscaler->name;
}

/* A text for people, which names files of theirs, as HTML. */
static char *a1111_escape(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (*out = 0; *text && used + 6 < size; text++) {
        const char *instead = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : NULL;
        used += (size_t)snprintf(out + used, size - used, instead ? "%s" : "%.1s", instead ? instead : text);
    }
    return out;
}

/* What was done, for people, in the same words as there; then the notes of our own reports. */
static json_t *a1111_info(const struct a1111 *a1111)
{
    char text[1024] = ""; /* a note has 199 bytes, and five for each of them at most */
    const struct a1111_upscaler *first = &a1111->upscalers[0], *second = &a1111->upscalers[1];
    size_t used = 0;
    if (first->kind && a1111->size.to)
        used += (size_t)snprintf(text, sizeof text, "<p>Postprocess upscale to: %dx%d</p>", a1111->size.width,
                                 a1111->size.height);
    else if (first->kind)
        used += (size_t)snprintf(text, sizeof text, "<p>Postprocess upscale by: %g</p>", a1111->size.by);
    if (first->kind)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "<p>Postprocess upscaler: %s</p>", a1111_shown(first));
    if (first->kind && second->kind && a1111->second > 0)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "<p>Postprocess upscaler 2: %s</p>", a1111_shown(second));
    if (a1111->gfpgan > 0)
        used += (size_t)snprintf(text + used, sizeof text - used, "<p>GFPGAN visibility: %g</p>", a1111->gfpgan);
    if (a1111->codeformer > 0)
        snprintf(text + used, sizeof text - used, "<p>CodeFormer visibility: %g</p>", a1111->codeformer);
    json_t *info = json_string(text);
    const json_t *note;
    size_t i;
    json_array_foreach(a1111->base.notes, i, note)
    {
        json_t *longer = json_sprintf("%s<p>%s</p>", json_string_value(info),
                                      a1111_escape(text, sizeof text, json_string_value(note)));
        json_decref(info);
        info = longer;
    }
    return info;
}

static enum MHD_Result a1111_done(struct request *request)
{
    struct a1111 *a1111 = request->reading;
    json_t *images = json_array();
    if (!a1111_is_batch(request) && a1111->base.at < 1) { /* interrupted */
        struct error err = ERROR_INIT;
        json_decref(images);
        error_set(&err, ERROR_CANCELLED, "the work was interrupted");
        return reply_problem(request, REPLY_CONFLICT, &err, NULL, NULL, NULL);
    }
    for (int i = 0; i < a1111->base.at; i++)
        json_array_append_new(images, compat_mark(i, ""));
    if (a1111_is_batch(request))
        return compat_send(request, REPLY_OK,
                           json_pack("{s:o, s:o}", "html_info", a1111_info(a1111), "images", images));
    json_t *image = json_incref(json_array_get(images, 0));
    json_decref(images);
    return compat_send(request, REPLY_OK, json_pack("{s:o, s:o}", "html_info", a1111_info(a1111), "image", image));
}

static enum MHD_Result a1111_begin(struct request *request)
{
    struct a1111 *a1111 = mem_calloc(1, sizeof *a1111);
    struct error err = ERROR_INIT;
    if (!a1111)
        return MHD_NO;
    a1111->base.prepare = a1111_prepare;
    a1111->base.plan = a1111_make_passes;
    a1111->base.answer = a1111_done;
    a1111->base.field = "imageList";
    if (!intake_create(&a1111->intake, request->server->spool, request->server->config->body_limit, &err))
        return compat_begin(request, &a1111_reader, a1111);
    a1111_destroy(a1111);
    return reply_problem(request, reply_for(err.code), &err, NULL, NULL, NULL);
}

/* --- what it is at -------------------------------------------------------------------------------------------------
 */

static enum MHD_Result a1111_progress(struct request *request)
{
    struct compat_state state = {.seconds_left = 0};
    const bool busy =
        fleet_is_shared(request) ? compat_front_look(request, &state) : compat_look(request, NULL, &state);
    json_t *more =
        json_pack("{s:b, s:b, s:b, s:s, s:i, s:s, s:i, s:i, s:i}", "skipped", 0, "interrupted", 0,
                  "stopping_generation", 0, "job", busy ? "extras" : "", "job_count", busy ? state.pictures : 0,
                  "job_timestamp", "0", "job_no", busy ? state.at : 0, "sampling_step", 0, "sampling_steps", 0);
    return reply_json(request, REPLY_OK,
                      json_pack("{s:f, s:f, s:o, s:n, s:n}", "progress", busy ? state.progress : 0.0, "eta_relative",
                                busy && state.seconds_left > 0 ? state.seconds_left : 0.0, "state", more,
                                "current_image", "textinfo"));
}

static enum MHD_Result a1111_interrupt(struct request *request)
{
    compat_cancel(request, NULL);
    return reply_json(request, REPLY_OK, json_object());
}

/* What a client may ask of the settings there. */
static json_t *a1111_settings_now(const struct request *request)
{
    return json_pack("{s:s, s:s, s:b, s:s, s:s, s:n}", "samples_format", "png", "sd_model_checkpoint", "restored",
                     "face_restoration", 0, "face_restoration_model",
                     a1111_restores(request, false, NULL) || !a1111_restores(request, true, NULL) ? "GFPGAN"
                                                                                                  : "CodeFormer",
                     "upscaler_for_img2img", "None", "outdir_extras_samples");
}

static enum MHD_Result a1111_options(struct request *request)
{
    return reply_json(request, REPLY_OK, a1111_settings_now(request));
}

/* Its body is small. */
static enum MHD_Result a1111_begin_small(struct request *request)
{
    struct a1111 *a1111 = mem_calloc(1, sizeof *a1111);
    struct error err = ERROR_INIT;
    if (!a1111)
        return MHD_NO;
    request->reader = &a1111_reader;
    request->reading = a1111;
    if (!intake_create(&a1111->intake, NULL, INTAKE_REST, &err))
        return MHD_YES;
    return reply_problem(request, reply_for(err.code), &err, NULL, NULL, NULL);
}

/* The settings are the operator's: one that would change is refused by its name. */
static enum MHD_Result a1111_set_options(struct request *request)
{
    struct a1111 *a1111 = request->reading;
    struct error err = ERROR_INIT;
    json_t *json = NULL, *now = a1111_settings_now(request), *value;
    const char *name;
    if (!intake_finish(a1111->intake, &json, &err) && !json_is_object(json))
        error_set(&err, ERROR_INVALID, "the body has to be a JSON object");
    json_object_foreach(json, name, value) if (!err.code && !json_equal(json_object_get(now, name), value)) error_set(
        &err, ERROR_INVALID, "%.60s: this server's settings are its operator's, and no client changes them", name);
    json_decref(json);
    json_decref(now);
    return err.code ? reply_problem(request, REPLY_UNPROCESSABLE, &err, NULL, NULL, NULL)
                    : reply_json(request, REPLY_OK, json_object());
}

static enum MHD_Result a1111_memory(struct request *request)
{
    const uint64_t used = process_read().resident,
                   most = inflight_capacity(worker_pool_inflight(request->server->pool));
    struct device_status *list = NULL;
    size_t count = 0;
    json_t *cuda = NULL;
    if (!devices_read(worker_pool_devices(request->server->pool), &list, &count, NULL))
        for (size_t i = 0; i < count && !cuda; i++)
            if (list[i].is_default && list[i].info.type != DEVICE_CPU && list[i].info.memory_total)
                cuda =
                    json_pack("{s:{s:I, s:I, s:I}}", "system", "free",
                              (json_int_t)(list[i].info.memory_total - list[i].info.memory_driver), "used",
                              (json_int_t)list[i].info.memory_driver, "total", (json_int_t)list[i].info.memory_total);
    free(list);
    return reply_json(request, REPLY_OK,
                      json_pack("{s:{s:I, s:I, s:I}, s:o}", "ram", "free", (json_int_t)(most > used ? most - used : 0),
                                "used", (json_int_t)used, "total", (json_int_t)(most > used ? most : used), "cuda",
                                cuda ? cuda : json_pack("{s:s}", "error", "unavailable")));
}

/* --- the form of its answers ---------------------------------------------------------------------------------------
 */

static json_t *a1111_problem(const struct request *request, enum reply reply, const struct error *err)
{
    char text[sizeof err->text];
    reply_sentence(text, request, err);
    return json_pack("{s:s, s:s, s:s, s:s}", "error", "HTTPException", "detail", text, "body", "", "errors",
                     reply_code(reply, err));
}

static const struct route a1111_routes[] = {
    {"/sdapi/v1/extra-single-image", ROUTE_POST, a1111_begin, compat_answer, ROUTE_GUARDED, ""},
    {"/sdapi/v1/extra-batch-images", ROUTE_POST, a1111_begin, compat_answer, ROUTE_GUARDED, ""},
    {"/sdapi/v1/upscalers", ROUTE_GET, NULL, a1111_upscalers, ROUTE_GUARDED, ""},
    {"/sdapi/v1/face-restorers", ROUTE_GET, NULL, a1111_face_restorers, ROUTE_GUARDED, ""},
    {"/sdapi/v1/realesrgan-models", ROUTE_GET, NULL, a1111_realesrgan_models, ROUTE_GUARDED, ""},
    {"/sdapi/v1/progress", ROUTE_GET, NULL, a1111_progress, ROUTE_GUARDED, "skip_current_image"},
    {"/sdapi/v1/interrupt", ROUTE_POST, a1111_begin_small, a1111_interrupt, ROUTE_GUARDED, ""},
    {"/sdapi/v1/options", ROUTE_GET, NULL, a1111_options, ROUTE_GUARDED, ""},
    {"/sdapi/v1/options", ROUTE_POST, a1111_begin_small, a1111_set_options, ROUTE_GUARDED, ""},
    {"/sdapi/v1/memory", ROUTE_GET, NULL, a1111_memory, ROUTE_GUARDED, ""},
    {0},
};

const struct dialect a1111_dialect = {.name = "a1111",
                                      .paths = "/sdapi/",
                                      .routes = a1111_routes,
                                      .elsewhere = "pictures are restored at POST /sdapi/v1/extra-single-image",
                                      .problem = a1111_problem,
                                      .challenge = "Basic realm=\"restored\", charset=\"UTF-8\"",
                                      .openapi = "a1111.json"};
