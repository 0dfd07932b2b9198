#include "server/pipeline/options.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "server/image/codec.h"
#include "server/image/defect.h"
#include "server/image/profile.h"
#include "server/pipeline/option_value.h"
#include "server/pipeline/size.h"

const struct option_row option_rows[] = {
    {"version", "string", "", "1, 1.2, 1.3, 1.4, starter, the name of a face model that is installed, or none",
     "the face network; none leaves faces alone; empty: the configured one, else 1.3", false},
    {"upscale", "number", "2", "auto, or 1 to 8",
     "how many times larger the result is; 1 restores only; auto: as width, height and max_side say, else 2", false},
    {"width", "integer", "auto", "auto, or 1 to 500000",
     "width of the result, px; with neither height nor fit its height follows", false},
    {"height", "integer", "auto", "auto, or 1 to 500000", "height of the result, px", false},
    {"max_side", "integer", "auto", "auto, or 1 to 500000", "the longer side of the result, px", false},
    {"fit", "enum", "inside", "inside, cover or fill",
     "with width and height: as large as fits within both (inside), exactly both and what is too much cut off around "
     "(cover), or stretched to both (fill)",
     false},
    {"bg_upsampler", "string", "", "realesrgan, starter, the name of an upscaler that is installed, or none",
     "the network for the whole picture; none: Lanczos4; empty: the configured one, else RealESRGAN_x2plus", false},
    {"bg_tile", "integer", "auto", "auto, 0, or 32 to 4096",
     "edge of the background's tiles, px of the input; auto: the largest that fits the device (compat: 400); 0: no "
     "tiles",
     false},
    {"only_center_face", "boolean", "false", "true or false", "restore only the face nearest to the picture's centre",
     false},
    {"aligned", "boolean", "false", "true or false", "the input is one aligned face; the result is the restored face",
     false},
    {"ext", "enum", "auto", "auto, png, jpg, webp, tiff, avif or jxl", "format of the result; auto: the input's",
     false},
    {"suffix", "string", "", "up to 127 bytes of text without '/', '\\' and control characters",
     "appended to the output file's name", false},
    {"weight", "number", "auto", "auto, or 0 to 1; then or instead, weights of single faces, such as auto,0:0.5,2:1",
     "how much of each restored face is used; auto: all of it, but less where the picture has more detail than the "
     "restoration; 0 leaves the upsampled picture",
     false},
    {"w", "number", "0.5", "0 to 1",
     "CodeFormer: how near faces stay to the picture; 0: as the network imagines them, which looks best where little "
     "is "
     "left of them",
     false},
    {"preserve_color", "boolean", "true", "true or false",
     "faces keep the colours of the picture, so that a black-and-white one is not tinted, and the rest its mean colour",
     false},
    {"seed", "integer", "none", "none, or 0 to 18446744073709551615",
     "none: the checkpoint's stored noise, so that equal inputs give equal bytes; a number: fresh noise", false},
    {"parse", "enum", "auto", "auto, true or false",
     "blend by face parsing (true), by a square mask (false), or depending on what is installed (auto)", false},
    {"faces", "string", "all", "all, none, or ids such as 0,2", "which of the detected faces to restore", false},
    {"min_face", "integer", "0", "0 to 65535",
     "faces whose box is smaller than this are left alone: its longer side, px of the picture; 0: no limit", true},
    {"max_face", "integer", "0", "0 to 65535", "faces whose box is larger than this are left alone; 0: no limit", true},
    {"min_score", "number", "0.97", "0.5 to 1",
     "faces of which the detector is less sure than this are left alone; below 0.97 it finds more faces, and more that "
     "are none",
     true},
    {"auto_rotate", "enum", "off", "off, report or apply",
     "finds faces in a picture that lies on its side or head, and says so (report), or turns the result (apply); "
     "without "
     "effect with compat",
     true},
    {"detector", "string", "", "resnet50, mobilenet0.25, starter, or the name of a detector that is installed",
     "the face detector; empty: the configured one, else resnet50", true},
    {"device", "string", "auto", "auto, or the id, name or UUID of a device", "the device that does the work", true},
    {"precision", "enum", "auto", "auto, fp32 or fp16", "arithmetic of the networks; auto: what the device does best",
     true},
    {"quality", "integer", "95", "1 to 100", "quality of a JPEG, WebP, AVIF or JPEG XL result", false},
    {"lossless", "boolean", "false", "true or false",
     "a WebP or JPEG XL result without any loss; where ext is auto, no JPEG or AVIF", false},
    {"progressive", "boolean", "false", "true or false",
     "a JPEG result shows a coarse picture first while it loads, and is some percent smaller", false},
    {"png_level", "integer", "1", "0 to 9",
     "compression of a PNG result: 1 is quick and best for most photos, 9 tries hardest, 0 is none", false},
    {"compat", "boolean", "false", "true or false", "reproduce the reference implementation, its defects included",
     true},
    {"damaged", "enum", "refuse", "refuse or accept",
     "a file that is damaged or cut short: refuse it, or restore the part that can be read", true},
    {"profile", "enum", "keep", "keep or srgb", "colours of the result: those of the picture's colour profile, or sRGB",
     false},
    {"alpha", "enum", "auto", "auto, resize or network",
     "the result's transparency: resized, or made by the upscaler; auto: resized (compat: by the upscaler)", false},
    {"metadata", "enum", "keep", "keep, strip or strip-gps",
     "EXIF, XMP and IPTC of the picture: kept, left out, or kept without the place", false},
    {"page", "integer", "1", "1 to 9999", "which picture of a file that has several pages or frames", true},
    {"tone", "enum", "off", "off, auto or strong",
     "auto: a faded print gets its blacks, whites and neutral colours back, and sepia its contrast; others stay as "
     "they are; strong: then every picture gets more contrast; without effect with compat",
     true},
    {"repair", "enum", "auto", "auto, true or false",
     "fill scratches, cracks, dust and stains: where the detector is sure (auto), all that it finds (true), or none "
     "(false; compat: always)",
     true},
    {"repair_strength", "number", "1", "0 to 1", "how much of each repaired pixel is used", true},
    {"repair_kinds", "string", "all", "all, none, or some of thin, crack, dust and stain such as thin,dust",
     "which kinds of damage are repaired: thin lines, cracks and tears, dust and spots, stains and folds", true},
    {"mask_kinds", "boolean", "false", "true or false",
     "the mask that comes back tells the kinds by its grays: thin 240, crack 224, dust 208, stain 192; what was sent "
     "255",
     true},
    {"mask_mode", "enum", "replace", "replace, add or remove",
     "what the white of a mask that is sent does: it is filled in place of what is found (replace), as well (add), or "
     "is left alone (remove)",
     true},
    {"damage_detector", "string", "", "starter, the name of a damage detector that is installed, or none",
     "the network that finds damage; empty: the starter model", true},
    {"fill", "string", "", "starter, the name of a filler that is installed, or none",
     "the network that fills damage; empty: the starter model; none: smoothly from what is around", true},
};
const int option_row_count = sizeof option_rows / sizeof option_rows[0];

void options_init(struct options *options)
{
    *options = (struct options){.upscale = 2,
                                .bg_tile = -1,
                                .weight = -1,
                                .w = 0.5,
                                .min_score = OPTION_SURE_SCORE,
                                .quality = 95,
                                .png_level = CODEC_PNG_LEVEL,
                                .page = 1,
                                .preserve_color = true,
                                .repair_strength = 1,
                                .repair_kinds = DEFECT_ALL};
    snprintf(options->device, sizeof options->device, "auto");
}

static bool options_same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '-' ? '_' : *a) != *b)
            return false;
    return *a == *b;
}

const struct option_row *options_find(const char *name)
{
    for (int i = 0; i < option_row_count; i++)
        if (options_same_name(name, option_rows[i].name))
            return &option_rows[i];
    return NULL;
}

static const char *const options_formats[] = {"auto", "png", "jpg", "webp", "tiff", "avif", "jxl", NULL};
static const char *const options_autos[] = {"auto", "true", "false", NULL};
static const char *const options_damages[] = {"refuse", "accept", NULL};
static const char *const options_alphas[] = {"auto", "resize", "network", NULL};
static const char *const options_metadatas[] = {"keep", "strip", "strip-gps", NULL};
static const char *const options_fits[] = {"inside", "cover", "fill", NULL};
static const char *const options_profiles[] = {"keep", "srgb", NULL};
static const char *const options_rotates[] = {"off", "report", "apply", NULL};
static const char *const options_tones[] = {"off", "auto", "strong", NULL};
static const char *const options_mask_modes[] = {"replace", "add", "remove", NULL};
static const char *const options_precisions[] = {"auto", "fp32", "fp16", NULL};

/* The same order as option_rows. */
#define AT(field) offsetof(struct options, field)
static const struct option_field option_fields[] = {
    {KIND_NAME, AT(version), 0, 0, NULL},
    {KIND_SCALE, AT(upscale), 1, 8, NULL},
    {KIND_SIDE, AT(width), 1, OPTION_SIDE, NULL},
    {KIND_SIDE, AT(height), 1, OPTION_SIDE, NULL},
    {KIND_SIDE, AT(max_side), 1, OPTION_SIDE, NULL},
    {KIND_CHOICE, AT(fit), 0, 0, options_fits},
    {KIND_NAME, AT(bg_upsampler), 0, 0, NULL},
    {KIND_TILE, AT(bg_tile), 32, 4096, NULL},
    {KIND_BOOLEAN, AT(only_center_face), 0, 0, NULL},
    {KIND_BOOLEAN, AT(aligned), 0, 0, NULL},
    {KIND_FORMAT, AT(ext), 0, 0, options_formats},
    {KIND_NAME, AT(suffix), 0, 0, NULL},
    {KIND_WEIGHT, AT(weight), 0, 1, NULL},
    {KIND_NUMBER, AT(w), 0, 1, NULL},
    {KIND_BOOLEAN, AT(preserve_color), 0, 0, NULL},
    {KIND_SEED, AT(seed), 0, 0, NULL},
    {KIND_AUTO, AT(parse), 0, 0, options_autos},
    {KIND_FACES, AT(faces), 0, 0, NULL},
    {KIND_INTEGER, AT(min_face), 0, 65535, NULL},
    {KIND_INTEGER, AT(max_face), 0, 65535, NULL},
    {KIND_NUMBER, AT(min_score), OPTION_LEAST_SCORE, 1, NULL},
    {KIND_CHOICE, AT(auto_rotate), 0, 0, options_rotates},
    {KIND_NAME, AT(detector), 0, 0, NULL},
    {KIND_DEVICE, AT(device), 0, 0, NULL},
    {KIND_CHOICE, AT(precision), 0, 0, options_precisions},
    {KIND_INTEGER, AT(quality), 1, 100, NULL},
    {KIND_BOOLEAN, AT(lossless), 0, 0, NULL},
    {KIND_BOOLEAN, AT(progressive), 0, 0, NULL},
    {KIND_INTEGER, AT(png_level), 0, 9, NULL},
    {KIND_BOOLEAN, AT(compat), 0, 0, NULL},
    {KIND_CHOICE, AT(damaged), 0, 0, options_damages},
    {KIND_CHOICE, AT(profile), 0, 0, options_profiles},
    {KIND_CHOICE, AT(alpha), 0, 0, options_alphas},
    {KIND_CHOICE, AT(metadata), 0, 0, options_metadatas},
    {KIND_INTEGER, AT(page), 1, CODEC_PAGES, NULL},
    {KIND_CHOICE, AT(tone), 0, 0, options_tones},
    {KIND_AUTO, AT(repair), 0, 0, options_autos},
    {KIND_NUMBER, AT(repair_strength), 0, 1, NULL},
    {KIND_DAMAGE, AT(repair_kinds), 0, 0, NULL},
    {KIND_BOOLEAN, AT(mask_kinds), 0, 0, NULL},
    {KIND_CHOICE, AT(mask_mode), 0, 0, options_mask_modes},
    {KIND_NAME, AT(damage_detector), 0, 0, NULL},
    {KIND_NAME, AT(fill), 0, 0, NULL},
};
#undef AT
_Static_assert(sizeof option_fields / sizeof option_fields[0] == sizeof option_rows / sizeof option_rows[0],
               "one field a row");

/* What was sent, short and printable, for a message. */
static void options_shown(char out[64], const char *text)
{
    size_t n = strlen(text);
    snprintf(out, 64, n < 60 ? "%s" : "%.56s...", text);
    for (char *p = out; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

enum error_code options_set(struct options *options, const char *name, const char *value, struct error *err)
{
    char shown[64];
    const struct option_row *row = options_find(name);
    if (!row) {
        char list[480] = "";
        for (int i = 0; i < option_row_count; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", option_rows[i].name);
        options_shown(shown, name);
        return error_set(err, ERROR_INVALID, "%s: there is no such option; there are %s", shown, list);
    }
    if (!*value && strcmp(row->name, "suffix") != 0)
        return error_set(err, ERROR_INVALID, "%s: the value is empty; allowed: %s", row->name, row->allowed);
    if (!strcmp(row->name, "suffix") && strlen(value) >= OPTION_NAME_MAX)
        return error_set(err, ERROR_INVALID, "suffix: the value has %zu bytes; allowed: %s", strlen(value),
                         row->allowed);
    struct options changed = *options; /* a refused value changes nothing */
    if (!option_value_read(&changed, &option_fields[row - option_rows], value)) {
        options_shown(shown, value);
        return error_set(err, ERROR_INVALID, "%s: \"%s\" is not allowed; allowed: %s", row->name, shown, row->allowed);
    }
    *options = changed;
    return OK;
}

enum image_format options_format(const struct options *options)
{
    static const enum image_format formats[] = {
        [FORMAT_AUTO] = IMAGE_NONE, [FORMAT_PNG] = IMAGE_PNG,   [FORMAT_JPEG] = IMAGE_JPEG, [FORMAT_WEBP] = IMAGE_WEBP,
        [FORMAT_TIFF] = IMAGE_TIFF, [FORMAT_AVIF] = IMAGE_AVIF, [FORMAT_JXL] = IMAGE_JXL};
    return formats[options->ext];
}

enum image_format options_result_format(const struct options *options, enum image_format input, bool alpha)
{
    const enum image_format named = options_format(options), own = codec_result_format(input, alpha);
    if (named)
        return named;
    return options->lossless && !codec_is_lossless(own) ? IMAGE_PNG : own;
}

enum error_code options_check(const struct options *options, struct error *err)
{
    const enum image_format format = options_format(options);
    if (format && codec_max_side(format) == 0)
        return error_set(err, ERROR_INVALID, "ext: %s cannot be written, because this build was made without %s",
                         options_formats[options->ext], codec_missing(format));
    if (options->lossless && format && !codec_is_lossless(format))
        return error_set(err, ERROR_INVALID,
                         "lossless: a result in %s cannot be without loss; choose png, webp, tiff or jxl",
                         options_formats[options->ext]);
    if (options->profile == PROFILE_SRGB && !profile_known())
        return error_set(err, ERROR_INVALID, "profile: srgb cannot be made, because this build was made without lcms2");
    if (options->max_face && options->max_face < options->min_face)
        return error_set(err, ERROR_INVALID, "max_face: no face is at least %d px (min_face) and at most %d px",
                         options->min_face, options->max_face);
    if (options->only_center_face && options->faces == FACES_LISTED)
        return error_set(err, ERROR_INVALID, "faces: a list of ids cannot be combined with only_center_face=true");
    if (options->aligned && strcmp(options->version, "none") == 0)
        return error_set(err, ERROR_INVALID, "aligned: true needs a face network, but version is none");
    if (options->aligned && (options->faces != FACES_ALL || options->only_center_face))
        return error_set(err, ERROR_INVALID,
                         "aligned: true means one face, so it cannot be combined with faces or only_center_face");
    return size_check(options, err);
}

/* A kind of damage, also in capitals: JSON Schema has no flag for that. */
#define OPTIONS_KIND                                                                                                   \
    "([Tt][Hh][Ii][Nn]|[Cc][Rr][Aa][Cc][Kk]|[Dd][Uu][Ss][Tt]|[Ss][Tt][Aa][Ii][Nn])"

void options_bounds(const struct option_row *row, struct option_bounds *out)
{
    const struct option_field *field = &option_fields[row - option_rows];
    const enum option_kind kind = field->kind;
    *out = (struct option_bounds){.number = kind == KIND_NUMBER || kind == KIND_INTEGER || kind == KIND_TILE ||
                                            kind == KIND_WEIGHT || kind == KIND_SCALE || kind == KIND_SIDE ||
                                            kind == KIND_SEED,
                                  .minimum = field->low,
                                  .maximum = kind == KIND_SEED ? 0x1fffffffffffff : field->high};
    if (kind == KIND_FACES)
        out->pattern = "^[0-9]+(,[0-9]+)*$";
    else if (kind == KIND_DAMAGE)
        out->pattern = "^([Aa][Ll][Ll]|[Nn][Oo][Nn][Ee]|" OPTIONS_KIND "(," OPTIONS_KIND ")*)$";
    else if (kind == KIND_WEIGHT)
        out->pattern = "^((auto|[0-9.]+),)?[0-9]+:(auto|[0-9.]+)(,[0-9]+:(auto|[0-9.]+))*$";
    else if (!strcmp(row->name, "suffix"))
        out->pattern = "^[^/\\\\\\x00-\\x1f\\x7f]*$";
    int count = 0;
    if (kind == KIND_TILE)
        out->words[count++] = "0";
    if (kind == KIND_TILE || kind == KIND_WEIGHT || kind == KIND_SCALE || kind == KIND_SIDE || kind == KIND_DEVICE)
        out->words[count++] = "auto";
    if (kind == KIND_SEED)
        out->words[count++] = "none";
    if (kind == KIND_FACES || kind == KIND_DAMAGE) {
        out->words[count++] = "all";
        out->words[count++] = "none";
    }
    for (int i = 0; field->choices && field->choices[i]; i++)
        if (kind != KIND_FORMAT || i == FORMAT_AUTO ||
            codec_max_side(options_format(&(struct options){.ext = (enum option_format)i})) > 0) /* in this build */
            out->words[count++] = field->choices[i];
}

double options_weight(const struct options *options, int id)
{
    for (int i = 0; i < options->weight_count; i++)
        if (options->weight_ids[i] == id)
            return options->face_weights[i];
    return options->weight;
}

double options_real(const struct options *options, const struct option_row *row)
{
    return *(const double *)((const char *)options + option_fields[row - option_rows].offset);
}

void options_text(const struct options *options, const char *name, char *out, int out_size)
{
    const struct option_row *row = options_find(name);
    if (row)
        option_value_text(options, &option_fields[row - option_rows], out, (size_t)out_size);
    else
        out[0] = '\0';
}
