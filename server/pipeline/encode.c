#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/spill.h"
#include "server/image/cmyk.h"
#include "server/image/codec.h"
#include "server/image/exif.h"
#include "server/image/xmp.h"
#include "server/pipeline/blend.h"
#include "server/pipeline/step.h"
#include "server/version.h"

static enum error_code encode_face(const struct image *image, int png_level, struct face_file *out, struct error *err)
{
    struct codec_options options = CODEC_OPTIONS_INIT;
    struct codec_output output = {0};
    options.png_level = png_level;
    enum error_code code = codec_encode(image, IMAGE_PNG, options, &output, err);
    *out = (struct face_file){output.bytes, output.size};
    return code;
}

/* Turns each face's crop and result into files; frees the pictures one by one, so that there is never much of both. */
static enum error_code encode_faces(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = OK;
    for (int i = 0; i < r->face_count && code == OK; i++) {
        struct face *face = &r->faces[i];
        if (!face->crop)
            continue;
        code = step_check(step, err);
        if (code == OK)
            code = encode_face(face->crop, r->options.png_level, &face->crop_file, err);
        if (code == OK && face->restoration)
            code = encode_face(face->restoration, r->options.png_level, &face->restoration_file, err);
        image_destroy(&face->crop);
        image_destroy(&face->restoration);
    }
    return code;
}

static enum error_code encode_mask(struct restoration *r, struct error *err)
{
    enum error_code code = encode_face(r->mask, r->options.png_level, &r->mask_file, err);
    image_destroy(&r->mask);
    return code;
}

/* The mask alone. */
static enum error_code encode_damage(struct restoration *r, struct error *err)
{
    r->out_info.width = r->mask->width;
    r->out_info.height = r->mask->height;
    r->out_info.bits = 8;
    r->out_info.channels = 1;
    r->out_info.format = IMAGE_PNG;
    enum error_code code = encode_mask(r, err);
    r->output = r->mask_file.bytes;
    r->output_bytes = r->out_info.bytes = r->mask_file.size;
    r->mask_file = (struct face_file){0};
    return code;
}

/* A gain map (Ultra HDR) or a short film behind the picture is not in the result, so nothing may announce one. */
static void encode_forget_others(struct restoration *r, struct image_blob *xmp)
{
    static const char *const names[] = {"hdrgm:", "Container:Directory", "GCamera:MotionPhoto", "GCamera:MicroVideo"};
    const size_t size = xmp->size;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        xmp_remove(xmp, names[i]);
    if (xmp->size < size)
        restoration_note(r, "picture-alone",
                         "the file held more than the picture, such as an HDR gain map or a film; the result is the "
                         "picture alone");
}

/* The result's size and resolution into its XMP, where that tells them. */
static enum error_code encode_xmp(struct image *result, struct error *err)
{
    char width[16], height[16], dots[2][32];
    const char *const values[][2] = {{"tiff:Orientation", "1"},        {"tiff:ImageWidth", width},
                                     {"tiff:ImageLength", height},     {"exif:PixelXDimension", width},
                                     {"exif:PixelYDimension", height}, {"tiff:XResolution", dots[0]},
                                     {"tiff:YResolution", dots[1]},    {"tiff:ResolutionUnit", "2"}}; /* inch */
    const bool dense = result->density[0] > 0 && result->density[1] > 0;
    const size_t count = sizeof values / sizeof *values - (dense ? 0 : 3);
    snprintf(width, sizeof width, "%d", result->width);
    snprintf(height, sizeof height, "%d", result->height);
    for (int i = 0; i < 2; i++)
        snprintf(dots[i], sizeof dots[i], "%.0f/10000", fmin(result->density[i] * 10000, UINT32_MAX));
    enum error_code code = OK;
    for (size_t i = 0; code == OK && i < count; i++)
        code = xmp_set(&result->xmp, values[i][0], values[i][1], err);
    return code;
}

/* What is kept of the picture's metadata, with the result's size and resolution. */
static enum error_code encode_metadata(const struct step *step, struct error *err)
{
    const struct restoration *r = step->r;
    struct image *result = r->result;
    const double x = (double)(r->options.aligned ? result->width : step->width) / r->picture->width,
                 y = (double)(r->options.aligned ? result->height : step->height) / r->picture->height;
    struct exif_change change = {.width = result->width,
                                 .height = result->height,
                                 .scale = {x, y},
                                 .software = "restored " RESTORED_VERSION,
                                 .no_gps = r->options.metadata == METADATA_STRIP_GPS};
    enum error_code code = image_copy_metadata(result, r->picture, err);
    result->density[0] *= x;
    result->density[1] *= y;
    const bool strip = r->options.metadata == METADATA_STRIP;
    if (strip) {
        image_strip(result);
        change.software = NULL;
    }
    const bool dense = !codec_is_dense(r->output_format) && result->density[0] > 0; /* has no other place for it */
    if (dense)
        memcpy(change.density, result->density, sizeof change.density);
    if (code == OK && !result->exif.size && (dense || (!strip && !r->options.compat)))
        code = exif_create(&result->exif, err);
    if (code == OK && result->exif.size)
        code = exif_change(&result->exif, &change, err);
    if (strip)
        return code;
    if (code == OK)
        code = encode_xmp(result, err);
    encode_forget_others(step->r, &result->xmp);
    if (change.no_gps)
        xmp_remove(&result->xmp, "exif:GPS");
    return code;
}

/* fit=cover: the middle of the result. */
static void encode_cut(struct restoration *r)
{
    struct size size;
    pipeline_size(r, &size);
    if (!r->options.aligned)
        image_cut(r->result, (size.width - size.kept_width) / 2, (size.height - size.kept_height) / 2, size.kept_width,
                  size.kept_height);
}

/* Bits a sample of a file of CMYK, which is as deep as the input's where the format can be. */
static int encode_ink_bits(const struct restoration *r)
{
    return codec_is_deep(r->output_format) ? cmyk_bits(r->result) : 8;
}

/* Writes the result in the format that was asked for, with the input's metadata. */
enum error_code encode_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    struct codec_options options = {.quality = r->options.quality,
                                    .png_level = r->options.png_level,
                                    .lossless = r->options.lossless,
                                    .progressive = r->options.progressive,
                                    .halved = r->options.compat};
    struct codec_output output = {0};
    free(r->mask_file.bytes);
    r->mask_file = (struct face_file){0};
    if (r->damage_only)
        return encode_damage(r, err);
    encode_cut(r);
    enum error_code code = r->other ? blend_result(r, err) : OK;
    if (code == OK)
        code = encode_metadata(step, err);
    if (code == OK)
        code = codec_encode(r->result, r->output_format, options, &output, err);
    if (code != OK)
        return code;
    restoration_note_image(r, output.notes);
    spill_free(r->output);
    r->output = output.bytes;
    r->output_bytes = output.size;
    r->out_info.width = r->result->width;
    r->out_info.height = r->result->height;
    r->out_info.bits = r->result->cmyk.data ? encode_ink_bits(r) : r->result->bits;
    r->out_info.channels =
        r->result->cmyk.data ? 4 : r->result->channels + (r->result->alpha && r->output_format != IMAGE_JPEG);
    r->out_info.format = r->output_format;
    r->out_info.bytes = output.size;
    if (r->encode_mask && r->mask && r->damage.share > 0)
        code = encode_mask(r, err);
    return code == OK && r->encode_faces ? encode_faces(step, err) : code;
}
