#include "server/cli/cli_output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/spill.h"
#include "runtime/base/utf8.h"
#include "server/image/codec.h"

#define OUTPUT_PATH 4096 /* bytes */
#define OUTPUT_PIECE ((size_t)16 << 20)

static const char *cli_output_last(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The result's extension: the input's own spelling (jpeg, JPG) if the format is the same and was not asked for, as in
 * the reference. */
static const char *cli_output_extension(const struct options *options, enum image_format format, const char *input)
{
    const char *dot = strrchr(cli_output_last(input), '.'), *own = dot ? dot + 1 : "";
    return !options_format(options) && codec_of_extension(own) == format ? own : codec_extension(format);
}

/* FOLDER/PART/NAME[_NUMBER][_SUFFIX].EXTENSION; number below 0: none. */
static enum error_code cli_output_place(char *out, size_t size, const char *folder, const char *part, const char *name,
                                        int number, const char *suffix, const char *ext, struct error *err)
{
    char digits[16] = "";
    if (number >= 0)
        snprintf(digits, sizeof digits, "_%02d", number);
    const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
    int n =
        snprintf(out, size, "%s%s%s/%s%s%s%s.%s", folder, slash, part, name, digits, *suffix ? "_" : "", suffix, ext);
    return n > 0 && (size_t)n < size ? OK : error_set(err, ERROR_INVALID, "the path below %s is too long", folder);
}

enum error_code cli_output_path(char *out, size_t size, const char *folder, const char *name,
                                const struct options *options, enum image_format format, const char *input,
                                struct error *err)
{
    return options->aligned
               ? cli_output_place(out, size, folder, "restored_faces", name, 0, options->suffix, "png", err)
               : cli_output_place(out, size, folder, "restored_imgs", name, -1, options->suffix,
                                  cli_output_extension(options, format, input), err);
}

bool cli_output_taken(const char *folder, const char *name, const struct options *options)
{
    static const char *const extensions[] = {"png", "jpg", "jpeg", "jpe", "jfif", "PNG", "JPG", "JPEG"};
    char path[OUTPUT_PATH];
    if (!cli_output_place(path, sizeof path, folder, "cropped_faces", name, 0, "", "png", NULL) && !access(path, F_OK))
        return true;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (!cli_output_place(path, sizeof path, folder, "restored_imgs", name, -1, options->suffix, extensions[i],
                              NULL) &&
            !access(path, F_OK))
            return true;
    return false;
}

/* ---- before any work ---- */

/* Creates the folder and a file in it, which is removed again. */
static enum error_code cli_output_try(const char *folder, struct error *err)
{
    char path[OUTPUT_PATH];
    struct error local = ERROR_INIT;
    if (file_make_folders(folder, 0777, &local))
        return error_set(err, ERROR_IO, "the results cannot be written: %s", local.text);
    if (snprintf(path, sizeof path, "%s/.restored-%ld.part", folder, (long)getpid()) >= (int)sizeof path)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool bad = fd < 0 || write(fd, "restored", 8) != 8;
    if (fd >= 0 && close(fd))
        bad = true;
    enum error_code code = bad ? error_set(err, ERROR_IO, "the results cannot be written to %s: %m", folder) : OK;
    if (fd >= 0)
        unlink(path);
    return code;
}

enum error_code cli_output_check(const char *path, bool is_file, const struct options *options, struct error *err)
{
    static const char *const parts[] = {"", "/restored_imgs", "/restored_faces", "/cropped_faces", "/cmp"};
    char folder[OUTPUT_PATH];
    if (strlen(path) + 32 > sizeof folder)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", path);
    if (is_file) {
        const int length = (int)(cli_output_last(path) - path);
        snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? path : ".");
        const enum error_code code = cli_output_try(folder, err);
        spill_into(folder);
        return code;
    }
    enum error_code code = OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !code; i++) {
        snprintf(folder, sizeof folder, "%s%s", path, parts[i]);
        /* folders for faces are created with the first face, but must be writable if they exist */
        if (i == 0 || (i == 1 && !options->aligned) || !access(folder, F_OK))
            code = cli_output_try(folder, err);
    }
    spill_into(path);
    return code;
}

void cli_output_size(char out[CLI_OUTPUT_SIZE], double bytes)
{
    const bool small = bytes < 1e6;
    snprintf(out, CLI_OUTPUT_SIZE, "%.0f %s", small ? ceil(bytes / 1e3) : bytes / 1e6, small ? "kB" : "MB");
}

void cli_output_warn_space(const char *folder, double bytes)
{
    struct statvfs disk;
    if (statvfs(folder, &disk))
        return;
    const double left = (double)disk.f_bavail * (double)disk.f_frsize;
    char there[CLI_OUTPUT_SIZE], needed[CLI_OUTPUT_SIZE];
    cli_output_size(there, left);
    cli_output_size(needed, bytes);
    if (left < bytes)
        fprintf(stderr, "restored: %s has %s free; the results may need about %s\n", folder, there, needed);
}

/* ---- writing ---- */

static bool cli_output_same(const char *path, const char *other)
{
    struct stat a, b;
    return !stat(path, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static enum error_code cli_output_write(const char *path, const void *data, size_t bytes, const char *input,
                                        struct error *err)
{
    char folder[OUTPUT_PATH];
    if (cli_output_same(path, input))
        return error_set(err, ERROR_INVALID, "the result would overwrite the input; choose another place with -o");
    snprintf(folder, sizeof folder, "%.*s", (int)(cli_output_last(path) - path), path);
    enum error_code code = *folder ? file_make_folders(folder, 0777, err) : OK;
    return code ? code : file_write(path, data, bytes, err);
}

enum error_code cli_output_file(const struct restoration *r, const char *input, const char *path, struct error *err)
{
    return cli_output_write(path, r->output, r->output_bytes, input, err);
}

enum error_code cli_output_mask(const struct restoration *r, const char *input, const char *sent, const char *folder,
                                const char *name, struct error *err)
{
    char path[OUTPUT_PATH];
    const char *dot = strrchr(name, '.');
    enum error_code code = OK;
    if (folder)
        code = cli_output_place(path, sizeof path, folder, "masks", name, -1, "", "png", err);
    else if (snprintf(path, sizeof path, "%.*s_mask.png", (int)(dot ? dot - name : (long)strlen(name)), name) >=
             (int)sizeof path)
        code = error_set(err, ERROR_INVALID, "the path of %s is too long", name);
    if (code || r->mask_file.bytes)
        return code ? code : cli_output_write(path, r->mask_file.bytes, r->mask_file.size, input, err);
    const bool kept = cli_output_same(path, input) || (sent && cli_output_same(path, sent));
    if (!kept && unlink(path) && errno != ENOENT && errno != ENOTDIR)
        return error_set(err, ERROR_IO, "%s, the mask of an earlier result, cannot be removed: %m", path);
    return OK;
}

enum error_code cli_output_stdout(const struct restoration *r, struct error *err)
{
    bool done = true;
    for (size_t at = 0, count; at < r->output_bytes && done; at += count) {
        count = r->output_bytes - at < OUTPUT_PIECE ? r->output_bytes - at : OUTPUT_PIECE;
        done = fwrite(r->output + at, 1, count, stdout) == count;
        spill_passed(r->output + at, count);
    }
    return done && !fflush(stdout) ? OK : error_set(err, ERROR_IO, "stdout: %m");
}

static enum error_code cli_output_png(const struct image *image, const char *folder, const char *part, const char *name,
                                      int number, const char *suffix, const char *input, struct error *err)
{
    char path[OUTPUT_PATH];
    struct codec_output png = {0};
    struct codec_options options = CODEC_OPTIONS_INIT;
    enum error_code code = cli_output_place(path, sizeof path, folder, part, name, number, suffix, "png", err);
    if (!code)
        code = codec_encode(image, IMAGE_PNG, options, &png, err);
    if (!code)
        code = cli_output_write(path, png.bytes, png.size, input, err);
    free(png.bytes);
    return code;
}

/* Two pictures of the same size side by side. */
static enum error_code cli_output_side_by_side(struct image **out, const struct image *left, const struct image *right,
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

static enum error_code cli_output_face(const struct restoration *r, const struct face *face, int number,
                                       const char *input, const char *name, const char *folder, struct error *err)
{
    struct image *both = NULL;
    enum error_code code = OK;
    if (face->restoration) {
        code = cli_output_png(face->restoration, folder, "restored_faces", name, number, r->options.suffix, input, err);
        if (!code)
            code = cli_output_side_by_side(&both, face->crop, face->restoration, err);
        if (!code)
            code = cli_output_png(both, folder, "cmp", name, number, "", input, err);
    }
    if (!code)
        code = cli_output_png(face->crop, folder, "cropped_faces", name, number, "", input, err);
    image_destroy(&both);
    return code;
}

enum error_code cli_output_folder(const struct restoration *r, const char *input, const char *name, const char *folder,
                                  const char *path, struct error *err)
{
    enum error_code code = r->options.aligned ? OK : cli_output_write(path, r->output, r->output_bytes, input, err);
    struct error local = ERROR_INIT;
    for (int i = 0, number = 0; !code && i < r->face_count; i++)
        if (r->faces[i].crop && (code = cli_output_face(r, &r->faces[i], number++, input, name, folder, &local)))
            error_set(err, code, r->options.aligned ? "%s" : "%s (the picture itself was written: %s)", local.text,
                      path);
    return code;
}

void cli_output_names(FILE *out, const char *input, const char *written)
{
    char from[4 * PATH_MAX], to[4 * PATH_MAX];
    fprintf(out, "%s -> %s", utf8_escape(from, sizeof from, input), utf8_escape(to, sizeof to, written));
}

/* ", 3 pieces of damage repaired, the mask filled", or less of it. */
static void cli_output_damage(FILE *out, const struct restoration *r)
{
    int defects = 0;
    if (!(r->damage.share > 0) || !(r->options.repair_strength > 0))
        return;
    for (int k = 0; k < DEFECT_KINDS; k++)
        defects += r->damage.defects[k];
    if (defects)
        fprintf(out, ", %d piece%s of damage repaired", defects, defects == 1 ? "" : "s");
    if (r->damage.given)
        fprintf(out, ", the mask filled");
}

void cli_output_line(FILE *out, const struct restoration *r, const char *input, const char *written, double seconds)
{
    int restored = 0, kept = 0;
    char stay[64] = "";
    for (int i = 0; i < r->face_count; i++) {
        const bool stays = restoration_kept(r, &r->faces[i]);
        kept += stays;
        restored += r->faces[i].restored && !stays;
    }
    if (kept)
        snprintf(stay, sizeof stay, ", %d kept as %s", kept, kept == 1 ? "it came" : "they came");
    cli_output_names(out, input, written);
    fprintf(out, "  %dx%d -> %dx%d, %d of %d faces restored%s", r->in_info.width, r->in_info.height, r->out_info.width,
            r->out_info.height, restored, r->face_count, stay);
    cli_output_damage(out, r);
    fprintf(out, ", %.1f s on %s\n", seconds, r->device);
}

void cli_output_json(FILE *out, const struct restoration *r, const char *input, const char *written)
{
    json_t *report = restoration_report(r);
    char text[4096]; /* a path need not be UTF-8 */
    json_object_set_new(report, "file", json_string(utf8_copy(text, sizeof text, input)));
    json_object_set_new(report, "written", json_string(utf8_copy(text, sizeof text, written)));
    json_dumpf(report, out, JSON_COMPACT | JSON_REAL_PRECISION(10));
    putc('\n', out);
    json_decref(report);
}
