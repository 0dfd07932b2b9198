#include "server/cli/cli_output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "runtime/base/file.h"
#include "server/http/utf8.h"
#include "server/image/codec.h"

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *cli_output_stem(const char *path, char *out, size_t size)
{
    snprintf(out, size, "%s", last_part(path));
    char *dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = 0;
    return out;
}

/* The result's extension: the input's own spelling (jpeg, JPG) where that is of the result's format, as the reference
 * keeps it. */
static const char *extension(const struct restoration *r, const char *input)
{
    static const char *const jpeg[] = {"jpg", "jpeg", "jpe", "jfif"};
    const char *dot = strrchr(last_part(input), '.'), *own = dot ? dot + 1 : "";
    if (r->output_format == IMAGE_JPEG && r->options.ext == FORMAT_AUTO)
        for (int i = 0; i < 4; i++)
            if (!strcasecmp(own, jpeg[i]))
                return own;
    if (r->output_format == IMAGE_PNG && r->options.ext == FORMAT_AUTO && !strcasecmp(own, "png"))
        return own;
    return codec_extension(r->output_format);
}

static enum error_code write_new(const char *path, const void *data, size_t bytes, const char *input, struct error *err)
{
    struct stat a, b;
    if (!stat(path, &a) && !stat(input, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return error_set(err, ERROR_INVALID, "the result would overwrite the input; choose another place with -o");
    return file_write(path, data, bytes, err);
}

enum error_code cli_output_file(const struct restoration *r, const char *input, const char *path, char *written,
                                size_t size, struct error *err)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%.*s", (int)(last_part(path) - path), path);
    enum error_code code = *folder ? file_make_folders(folder, err) : OK;
    if (!code)
        code = write_new(path, r->output, r->output_bytes, input, err);
    snprintf(written, size, "%s", path);
    return code;
}

/* FOLDER/PART/NAME.EXTENSION; makes the folder. */
static enum error_code place(char *out, size_t size, const char *folder, const char *part, const char *name,
                             const char *ext, struct error *err)
{
    int n = snprintf(out, size, "%s/%s", folder, part);
    enum error_code code = n > 0 && (size_t)n < size ? file_make_folders(out, err) : ERROR_INVALID;
    if (!code) {
        int m = snprintf(out + n, size - (size_t)n, "/%s.%s", name, ext);
        code = m > 0 && (size_t)(n + m) < size ? OK : ERROR_INVALID;
    }
    return code ? error_set(err, code, "the path below %s is too long", folder) : OK;
}

static enum error_code write_png(const struct image *image, const char *folder, const char *part, const char *name,
                                 const char *input, char *path, size_t size, struct error *err)
{
    struct codec_output png = {0};
    struct codec_options options = CODEC_OPTIONS_INIT;
    enum error_code code = place(path, size, folder, part, name, "png", err);
    if (!code)
        code = codec_encode(image, IMAGE_PNG, options, &png, err);
    if (!code)
        code = write_new(path, png.bytes, png.size, input, err);
    free(png.bytes);
    return code;
}

/* Two pictures of one size side by side. */
static enum error_code side_by_side(struct image **out, const struct image *left, const struct image *right,
                                    struct error *err)
{
    enum error_code code = image_create(out, left->width + right->width, left->height, 3, 8, false, err);
    size_t row = (size_t)left->width * 3;
    for (int y = 0; !code && y < left->height; y++) {
        uint8_t *to = (uint8_t *)(*out)->pixels + (size_t)y * 2 * row;
        memcpy(to, (const uint8_t *)left->pixels + (size_t)y * row, row);
        memcpy(to + row, (const uint8_t *)right->pixels + (size_t)y * row, row);
    }
    return code;
}

static enum error_code write_face(const struct restoration *r, const struct face *face, int number, const char *input,
                                  const char *name, const char *folder, char *path, size_t size, struct error *err)
{
    char plain[320], full[512];
    struct image *both = NULL;
    snprintf(plain, sizeof plain, "%s_%02d", name, number);
    snprintf(full, sizeof full, "%s%s%s", plain, *r->options.suffix ? "_" : "", r->options.suffix);
    enum error_code code = write_png(face->crop, folder, "cropped_faces", plain, input, path, size, err);
    if (!code && face->restoration) {
        code = side_by_side(&both, face->crop, face->restoration, err);
        if (!code)
            code = write_png(both, folder, "cmp", plain, input, path, size, err);
        if (!code)
            code = write_png(face->restoration, folder, "restored_faces", full, input, path, size, err);
    }
    image_destroy(&both);
    return code;
}

enum error_code cli_output_folder(const struct restoration *r, const char *input, const char *name, const char *folder,
                                  char *written, size_t size, struct error *err)
{
    enum error_code code = OK;
    char full[512], scratch[1200];
    for (int i = 0, number = 0; !code && i < r->face_count; i++)
        if (r->faces[i].crop) {
            code = write_face(r, &r->faces[i], number++, input, name, folder, scratch, sizeof scratch, err);
            snprintf(written, size, "%s", scratch);
        }
    if (code || r->options.aligned)
        return code;
    snprintf(full, sizeof full, "%s%s%s", name, *r->options.suffix ? "_" : "", r->options.suffix);
    code = place(written, size, folder, "restored_imgs", full, extension(r, input), err);
    return code ? code : write_new(written, r->output, r->output_bytes, input, err);
}

void cli_output_line(const struct restoration *r, const char *input, const char *written, double seconds)
{
    int restored = 0;
    for (int i = 0; i < r->face_count; i++)
        restored += r->faces[i].restored;
    printf("%s -> %s  %dx%d -> %dx%d, %d of %d faces restored, %.1f s on %s\n", input, written, r->in_info.width,
           r->in_info.height, r->out_info.width, r->out_info.height, restored, r->face_count, seconds, r->device);
    for (int i = 0; i < r->note_count; i++)
        printf("  note: %s\n", r->notes[i]);
}

void cli_output_json(const struct restoration *r, const char *input, const char *written)
{
    json_t *report = restoration_report(r);
    char text[4096]; /* a path need not be UTF-8 */
    json_object_set_new(report, "file", json_string(utf8_copy(text, sizeof text, input)));
    json_object_set_new(report, "written", json_string(utf8_copy(text, sizeof text, written)));
    json_dumpf(report, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(report);
}
