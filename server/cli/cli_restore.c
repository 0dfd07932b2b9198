/* restored restore: files and folders, with the reference's options and its layout of results. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "server/cli/cli.h"
#include "server/cli/cli_engine.h"
#include "server/cli/cli_inputs.h"
#include "server/cli/cli_output.h"
#include "server/cli/cli_progress.h"

#include "server/job/job.h"

enum cli_restore_target { TARGET_FOLDER, TARGET_FILE, TARGET_STDOUT };

/* What became of the inputs. */
enum cli_restore_outcome {
    OUTCOME_RESTORED,
    OUTCOME_FAILED,
    OUTCOME_FOREIGN, /* no picture that we read */
    OUTCOME_THERE,   /* its result existed, with --skip-existing */
    OUTCOME_COUNT
};

struct cli_restore_run {
    struct config config;
    struct options options;
    const char *output;
    const char *device;    /* of --device; "": none */
    const char *mask_path; /* of --mask; NULL: none */
    struct file mask;
    bool json, skip_existing, dry_run, save_mask;
    enum cli_restore_target target;
    FILE *told; /* where reports and the summary go: stderr when the picture goes to stdout */
    const char **paths;
    size_t path_count;
    struct cli_inputs inputs;
    struct cli_index *index; /* of TARGET_FOLDER */
    struct cli_batch batch;
    size_t outcomes[OUTCOME_COUNT];
    char fingerprint[24]; /* of the options, for the index */
    char **notes;         /* those that were printed */
    size_t note_count;
    struct model_store *store;
    struct cli_engine engine;
    char cache[1024];
};

/* For the signal handler: the running restoration, and the request to stop. */
static _Atomic(struct restoration *) cli_restore_running;
static atomic_int cli_restore_stopped;

static void cli_restore_stop(int number)
{
    (void)number;
    atomic_store(&cli_restore_stopped, 1);
    struct restoration *r = atomic_load(&cli_restore_running);
    if (r)
        atomic_store(&r->cancel, 1);
}

static void cli_restore_usage(void)
{
    printf("restored restore INPUT... [-o results] [OPTION]...\n\n"
           "Restores files, or the files of folders. Into the folder of -o go restored_imgs/, restored_faces/,\n"
           "cropped_faces/ and cmp/; with -o NAME.png or NAME.jpg and one input just that file is written. An INPUT of "
           "- is the\n"
           "picture on stdin; -o - writes the result to stdout.\n\n"
           "  -i, --input PATH            one more input\n"
           "  -o, --output DIR|FILE|-     where the results go [results]\n"
           "  --recursive                 include subfolders; the results are in such folders as well\n"
           "  --skip-existing             leave out pictures whose result is newer than they are and was made with the "
           "same\n"
           "                              options\n"
           "  --dry-run                   say what would be done, and do nothing\n"
           "  --mask FILE                 a picture as large as the one input: what is white in it is filled (see "
           "--mask_mode)\n"
           "  --save_mask                 what was filled, white on black, to masks/ in the folder of -o, or to "
           "NAME_mask.png\n"
           "                              beside the file of -o; nothing where nothing was filled\n"
           "  -v, -s, -w                  short for --version, --upscale, --weight\n"
           "  --models DIR                folder of checkpoints\n"
           "  --device ID,ID...           a device (id, UUID or name of restored devices), or several in the order of\n"
           "                              preference: the first that works does all inputs, and the next goes on when\n"
           "                              it is lost; auto: the best there is [auto]\n"
           "  --json                      print the reports, one JSON object a line\n");
    for (int i = 0; i < option_row_count; i++)
        if (strcmp(option_rows[i].name, "device")) /* above: a request names one, here there may be several */
            printf("  --%-25s %s (%s)%s%s%s\n", option_rows[i].name, option_rows[i].help, option_rows[i].allowed,
                   *option_rows[i].initial ? " [" : "", option_rows[i].initial, *option_rows[i].initial ? "]" : "");
    printf(
        "\nOptions may be written with one dash, and with - for _. The configuration's keys are options, too: see\n"
        "restored serve --help. The exit status is 0 if nothing failed (files that are not pictures are skipped),\n"
        "1 if a picture failed, a model or device is missing, or the results cannot be written, 2 if the command was\n"
        "wrong, and 130 after Ctrl-C.\n");
}

/* Whether the name ends as that of a picture that we cannot write. */
static bool cli_restore_cannot_write(const char *ext)
{
    static const char *const others[] = {"bmp", "gif", "heic", "heif", "jp2", "j2k",  "jxr", "ico",
                                         "psd", "xcf", "pdf",  "svg",  "eps", "tga",  "ppm", "pgm",
                                         "pnm", "exr", "hdr",  "qoi",  "dng", "apng", "raw"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcasecmp(ext, others[i]))
            return true;
    return false;
}

/* -o NAME.png with one input is a file whose extension is the format; - is stdout. */
static enum error_code cli_restore_choose_target(struct cli_restore_run *run, struct error *err)
{
    struct stat status;
    const char *dot = strrchr(run->output, '.');
    static const char *const known[][2] = {{"png", "png"},   {"jpg", "jpg"},   {"jpeg", "jpg"}, {"jpe", "jpg"},
                                           {"jfif", "jpg"},  {"webp", "webp"}, {"tif", "tiff"}, {"tiff", "tiff"},
                                           {"avif", "avif"}, {"jxl", "jxl"}};
    const char *format = NULL;
    const bool to_stdout = !strcmp(run->output, "-");
    for (size_t i = 0; dot && i < sizeof known / sizeof *known; i++)
        if (!strcasecmp(dot + 1, known[i][0]))
            format = known[i][1];
    if (!to_stdout && !stat(run->output, &status) && S_ISDIR(status.st_mode))
        return OK;
    if (dot && cli_restore_cannot_write(dot + 1))
        return error_set(err, ERROR_INVALID,
                         "-o %s: %s cannot be written, only png, jpg, webp, tiff, avif and jxl; if it is to be a "
                         "folder, end its name with /",
                         run->output, dot + 1);
    if (!to_stdout && !format)
        return OK;
    if (run->path_count != 1)
        return error_set(err, ERROR_INVALID, "-o %s names one file, but there are %zu inputs; name a folder",
                         run->output, run->path_count);
    if (!stat(run->paths[0], &status) && S_ISDIR(status.st_mode))
        return error_set(err, ERROR_INVALID, "-o %s names one file, but %s is a folder; name a folder", run->output,
                         run->paths[0]);
    run->target = to_stdout ? TARGET_STDOUT : TARGET_FILE;
    if (to_stdout) {
        run->told = stderr;
        return isatty(STDOUT_FILENO) && !run->dry_run
                   ? error_set(err, ERROR_INVALID,
                               "-o - would write a picture to the terminal; send stdout to a file "
                               "or a program")
                   : OK;
    }
    struct options wanted = run->options;
    enum error_code code = options_set(&wanted, "ext", format, err);
    if (!code && run->options.ext != FORMAT_AUTO && run->options.ext != wanted.ext)
        code = error_set(err, ERROR_INVALID, "-o %s and --ext do not agree on the format", run->output);
    run->options = wanted;
    return code;
}

/* ---- what is said ---- */

/* The text with options as they are written here: "damaged=accept" becomes "--damaged accept". */
static const char *cli_restore_words(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (const char *p = text; *p && used + 1 < size;) {
        const size_t length = strspn(p, "abcdefghijklmnopqrstuvwxyz_");
        char name[64] = "";
        if (length && length < sizeof name && p[length] == '=' && (p == text || p[-1] == ' '))
            memcpy(name, p, length);
        if (*name && options_find(name)) {
            used += (size_t)snprintf(out + used, size - used, "--%s ", name);
            p += length + 1;
        } else {
            out[used++] = *p++;
        }
    }
    out[used < size ? used : size - 1] = 0;
    return out;
}

static int cli_restore_fail(const struct error *err, int status)
{
    char words[2 * sizeof err->text];
    fprintf(stderr, "restored: %s\n", cli_restore_words(words, sizeof words, err->text));
    return status;
}

static void cli_restore_print_failure(const struct cli_restore_run *run, const char *path, enum error_code code,
                                      const char *text)
{
    char words[2 * sizeof((struct error *)0)->text];
    if (!run->json) {
        const bool named = !strncmp(text, path, strlen(path)); /* the system's errors begin with the path */
        fprintf(stderr, "restored: %s%s%s%s\n", named ? "" : path, named ? "" : ": ",
                code == ERROR_UNSUPPORTED ? "skipped: " : "",
                named ? text : cli_restore_words(words, sizeof words, text));
        return;
    }
    char file[4096], copy[sizeof((struct error *)0)->text];
    json_t *line = json_pack("{s:s, s:{s:s, s:s}}", "file", utf8_copy(file, sizeof file, path),
                             code == ERROR_UNSUPPORTED ? "skipped" : "error", "code", error_code_name(code), "text",
                             utf8_copy(copy, sizeof copy, cli_restore_words(words, sizeof words, text)));
    json_dumpf(line, run->told, JSON_COMPACT | JSON_REAL_PRECISION(10));
    json_decref(line);
    putc('\n', run->told);
}

/* Notes are printed when they are first made; most are the same for every picture. */
static void cli_restore_print_notes(struct cli_restore_run *run, const struct restoration *r)
{
    for (int i = 0; i < r->note_count; i++) {
        char words[1024];
        bool known = false;
        for (size_t k = 0; k < run->note_count && !known; k++)
            known = !strcmp(run->notes[k], r->notes[i]);
        if (known)
            continue;
        fprintf(run->told, "  note: %s\n", cli_restore_words(words, sizeof words, r->notes[i]));
        char **grown = realloc(run->notes, (run->note_count + 1) * sizeof *grown);
        if (!grown)
            continue;
        run->notes = grown;
        if ((run->notes[run->note_count] = strdup(r->notes[i])))
            run->note_count++;
    }
}

/* "9 restored, 1 failed, 4 skipped (not pictures)" */
static void cli_restore_print_summary(const struct cli_restore_run *run)
{
    static const char *const words[OUTCOME_COUNT] = {[OUTCOME_RESTORED] = "%zu restored",
                                                     [OUTCOME_FAILED] = ", %zu failed",
                                                     [OUTCOME_FOREIGN] = ", %zu skipped (not pictures)",
                                                     [OUTCOME_THERE] = ", %zu skipped (restored before)"};
    size_t done = 0;
    FILE *out = run->json ? stderr : run->told;
    if (run->inputs.count < 2 && !atomic_load(&cli_restore_stopped))
        return;
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        done += run->outcomes[i];
        if (i == OUTCOME_RESTORED || run->outcomes[i])
            fprintf(out, i == OUTCOME_RESTORED && run->dry_run ? "%zu would be restored" : words[i], run->outcomes[i]);
    }
    if (done < run->inputs.count)
        fprintf(out, ", %zu not done", run->inputs.count - done);
    fprintf(out, "%s\n", atomic_load(&cli_restore_stopped) ? "; stopped" : "");
}

/* ---- one input ---- */

static enum error_code cli_restore_path(const struct cli_restore_run *run, const struct cli_input *input, char *out,
                                        size_t size, struct error *err)
{
    if (run->target == TARGET_FOLDER)
        return cli_output_path(out, size, run->output, input->name, &run->options, input->format, input->path, err);
    snprintf(out, size, "%s", run->output);
    return OK;
}

/* Whether the result exists and was made from this picture in its present state with these options, as far as we can
 * know. */
static bool cli_restore_is_there(const struct cli_restore_run *run, const struct cli_input *input)
{
    char path[4096];
    struct stat status;
    if (run->target == TARGET_STDOUT || !input->mtime_ns || cli_restore_path(run, input, path, sizeof path, NULL) ||
        stat(path, &status))
        return false;
    const int64_t made = (int64_t)status.st_mtim.tv_sec * 1000000000 + status.st_mtim.tv_nsec;
    const struct cli_index_entry *entry = cli_index_find(run->index, input->name, run->options.suffix);
    if (!entry)
        return made >= input->mtime_ns;
    return entry->size == input->size && !strcmp(entry->options, run->fingerprint) &&
           (entry->mtime_ns == input->mtime_ns || made >= input->mtime_ns);
}

static enum error_code cli_restore_write(struct cli_restore_run *run, const struct cli_input *input,
                                         const struct restoration *r, const char *path, struct error *err)
{
    enum error_code code = OK;
    if (run->target == TARGET_STDOUT)
        return cli_output_stdout(r, err);
    if (run->save_mask && r->mask_file.bytes)
        code = cli_output_mask(r, input->path, run->target == TARGET_FOLDER ? run->output : NULL,
                               run->target == TARGET_FOLDER ? input->name : path, err);
    if (code || run->target == TARGET_FILE)
        return code ? code : cli_output_file(r, input->path, path, err);
    code = cli_output_folder(r, input->path, input->name, run->output, path, err);
    struct cli_index_entry entry = {.name = input->name,
                                    .suffix = (char *)(uintptr_t)run->options.suffix,
                                    .source = input->source,
                                    .options = run->fingerprint,
                                    .size = input->size,
                                    .mtime_ns = input->mtime_ns};
    return code ? code : cli_index_add(run->index, &entry, err);
}

static enum error_code cli_restore_bytes(struct cli_restore_run *run, const struct cli_input *input,
                                         const struct file *file, struct restoration *r, const char *path,
                                         struct error *err)
{
    r->options = run->options;
    r->limits = (struct limits){.input_pixels = run->config.input_pixels,
                                .result_pixels = run->config.result_pixels,
                                .detect_max_side = (int)run->config.detect_max_side,
                                .max_faces = (int)run->config.max_faces};
    r->input = file->data;
    r->input_bytes = file->size;
    r->mask_input = run->mask.data;
    r->mask_bytes = run->mask.size;
    r->encode_mask = run->save_mask;
    r->keep_faces = run->target == TARGET_FOLDER;
    if (!file->size)
        return error_set(err, ERROR_CORRUPT, "the file is empty");
    atomic_store(&cli_restore_running, r);
    if (atomic_load(&cli_restore_stopped))
        atomic_store(&r->cancel, 1);
    struct cli_progress *progress = cli_progress_begin(r, input->path, &run->batch);
    enum error_code code = cli_engine_run(&run->engine, r, err);
    cli_progress_end(&progress);
    atomic_store(&cli_restore_running, NULL);
    return code ? code : cli_restore_write(run, input, r, path, err);
}

static enum error_code cli_restore_input(struct cli_restore_run *run, const struct cli_input *input, struct error *err)
{
    struct file file = {.data = input->bytes, .size = (size_t)input->size};
    struct restoration *r = NULL;
    char path[4096];
    int64_t started = job_now();
    enum error_code code = input->bytes ? OK : file_map(&file, input->path, err);
    if (!code)
        code = cli_restore_path(run, input, path, sizeof path, err);
    if (!code)
        code = restoration_create(&r, err);
    if (!code)
        code = cli_restore_bytes(run, input, &file, r, path, err);
    const double seconds = (double)(job_now() - started) / 1e9;
    if (!code) {
        run->batch.done += input->megapixels;
        run->batch.seconds += seconds;
    }
    if (!code && run->json) {
        cli_output_json(run->told, r, input->path, path);
    } else if (!code) {
        cli_output_line(run->told, r, input->path, path, seconds);
        cli_restore_print_notes(run, r);
    }
    fflush(stdout);
    restoration_destroy(&r);
    if (!input->bytes)
        file_unmap(&file);
    return code;
}

static enum cli_restore_outcome cli_restore_one(struct cli_restore_run *run, const struct cli_input *input)
{
    char path[4096];
    struct error err = ERROR_INIT;
    enum error_code code = input->code;
    if (code) {
        /* a file given as the only input must be a picture: somebody expects its result */
        if (code == ERROR_UNSUPPORTED && (run->target != TARGET_FOLDER || input->bytes))
            code = ERROR_INVALID;
        cli_restore_print_failure(run, input->path, code, input->reason);
        return code == ERROR_UNSUPPORTED ? OUTCOME_FOREIGN : OUTCOME_FAILED;
    }
    if (run->skip_existing && cli_restore_is_there(run, input))
        return OUTCOME_THERE;
    run->batch.number++;
    run->batch.megapixels = input->megapixels;
    run->batch.left -= input->megapixels;
    code = run->dry_run ? cli_restore_path(run, input, path, sizeof path, &err) : cli_restore_input(run, input, &err);
    if (!code && run->dry_run)
        fprintf(run->told, "%s -> %s\n", input->path, path);
    if (code && !(code == ERROR_CANCELLED && atomic_load(&cli_restore_stopped)))
        cli_restore_print_failure(run, input->path, code == ERROR_UNSUPPORTED ? ERROR_INVALID : code, err.text);
    return code ? OUTCOME_FAILED : OUTCOME_RESTORED;
}

/* ---- the run ---- */

static bool cli_restore_taken(const char *name, void *user)
{
    const struct cli_restore_run *run = user;
    return run->target == TARGET_FOLDER && cli_output_taken(run->output, name, &run->options);
}

/* FNV-1a of everything that the result depends on, except the models' files. */
static void cli_restore_fingerprint(struct cli_restore_run *run)
{
    const char *more[] = {run->config.default_version, run->config.default_bg_upsampler, run->config.default_detector,
                          run->config.default_parser};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < run->mask.size; i++)
        hash = (hash ^ run->mask.data[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < option_row_count + 4; i++) {
        char text[OPTION_TEXT_MAX];
        if (i >= option_row_count)
            snprintf(text, sizeof text, "%s", more[i - option_row_count]);
        else if (strcmp(option_rows[i].name, "device"))
            options_text(&run->options, option_rows[i].name, text, sizeof text);
        else
            *text = 0;
        for (const char *p = text;; p++) {
            hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
            if (!*p)
                break;
        }
    }
    snprintf(run->fingerprint, sizeof run->fingerprint, "%016" PRIx64, hash);
}

/* What there is to do, and what the progress line needs to know about it. */
static void cli_restore_count(struct cli_restore_run *run)
{
    double bytes = 0;
    for (size_t i = 0; i < run->inputs.count; i++) {
        const struct cli_input *input = &run->inputs.items[i];
        if (input->code || (run->skip_existing && cli_restore_is_there(run, input)))
            continue;
        run->batch.count++;
        run->batch.left += input->megapixels;
        /* of a photo a PNG of 8 bits takes some 1.5 bytes a pixel, and a JPEG a third of that */
        const bool png =
            run->options.ext == FORMAT_PNG || (run->options.ext == FORMAT_AUTO && input->format == IMAGE_PNG);
        struct size size;
        size_of(&run->options, input->width, input->height, &size);
        bytes += (double)size.kept_width * size.kept_height * (png ? 1.5 : 0.5);
    }
    if (run->target == TARGET_FOLDER && !run->dry_run)
        cli_output_warn_space(run->output, bytes);
}

/* Checks everything that can go wrong before work begins. */
static enum error_code cli_restore_prepare(struct cli_restore_run *run, struct error *err)
{
    if (!run->path_count)
        return error_set(err, ERROR_INVALID, "there is no input; restored restore --help says how it is used");
    if (!*run->output)
        return error_set(err, ERROR_INVALID, "-o names neither a folder nor a file");
    if (cli_restore_choose_target(run, err) || options_check(&run->options, err))
        return err->code;
    if (run->save_mask && run->target == TARGET_STDOUT)
        return error_set(err, ERROR_INVALID, "--save_mask needs a folder or a file of -o to save it beside");
    struct stat first;
    if (run->mask_path && (run->path_count != 1 || (!stat(run->paths[0], &first) && S_ISDIR(first.st_mode))))
        return error_set(err, ERROR_INVALID, "--mask is for one picture, but there are more inputs");
    if (run->mask_path && file_map(&run->mask, run->mask_path, err))
        return err->code;
    if (run->target == TARGET_FOLDER && stat(run->output, &run->inputs.results))
        run->inputs.results = (struct stat){0};
    for (size_t i = 0; i < run->path_count; i++)
        if (cli_inputs_add(&run->inputs, run->paths[i], err))
            return err->code;
    return OK;
}

static enum error_code cli_restore_open(struct cli_restore_run *run, struct error *err)
{
    const bool named = *run->device && strcasecmp(run->device, "auto") != 0;
    const char *which = named ? run->device : run->config.device;
    struct restoration like = {.options = run->options, .mask_bytes = run->mask.size};
    if (!run->dry_run && run->target != TARGET_STDOUT &&
        cli_output_check(run->output, run->target == TARGET_FILE, &run->options, err))
        return err->code;
    if (run->target == TARGET_FOLDER && cli_index_open(&run->index, run->output, err))
        return err->code;
    if (cli_inputs_look(&run->inputs, err) || cli_inputs_name(&run->inputs, run->index, cli_restore_taken, run, err))
        return err->code;
    cli_restore_fingerprint(run);
    cli_restore_count(run);
    if (run->dry_run || !run->batch.count)
        return OK;
    if (cli_open_store(&run->store, &run->config, err) || pipeline_check_models(&like, run->store, err))
        return err->code;
    return cli_engine_open(&run->engine, which, config_cache_dir(&run->config, run->cache, sizeof run->cache),
                           run->config.precision, run->config.memory, run->store, err);
}

static int cli_restore_all(struct cli_restore_run *run)
{
    struct error err = ERROR_INIT;
    struct sigaction action = {.sa_handler = cli_restore_stop, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    enum error_code code = cli_restore_open(run, &err);
    if (code && !atomic_load(&cli_restore_stopped))
        return cli_restore_fail(&err, CLI_FAILED);
    for (size_t i = 0; i < run->inputs.count && !code && !atomic_load(&cli_restore_stopped); i++) {
        enum cli_restore_outcome outcome = cli_restore_one(run, &run->inputs.items[i]);
        if (outcome != OUTCOME_FAILED || !atomic_load(&cli_restore_stopped))
            run->outcomes[outcome]++;
    }
    cli_restore_print_summary(run);
    return atomic_load(&cli_restore_stopped) ? 128 + SIGINT : run->outcomes[OUTCOME_FAILED] ? CLI_FAILED : CLI_OK;
}

static enum error_code cli_restore_add_path(struct cli_restore_run *run, const char *path)
{
    run->paths[run->path_count++] = path; /* there is room for all arguments */
    return OK;
}

/* One argument: of this command, of the options or of the configuration. */
static enum error_code cli_restore_take(struct cli_restore_run *run, struct cli *cli, bool *help, struct error *err)
{
    static const char *const letters[][2] = {{"i", "input"},   {"o", "output"}, {"v", "version"},
                                             {"s", "upscale"}, {"w", "weight"}, {"h", "help"}};
    for (int i = 0; i < 6; i++)
        if (!strcmp(cli->name, letters[i][0]))
            strcpy(cli->name, letters[i][1]);
    const struct {
        const char *name;
        bool *set;
    } flags[] = {{"help", help},
                 {"json", &run->json},
                 {"recursive", &run->inputs.recursive},
                 {"skip_existing", &run->skip_existing},
                 {"dry_run", &run->dry_run},
                 {"save_mask", &run->save_mask}};
    const char *value;
    enum error_code code;
    if (!*cli->name)
        return cli_restore_add_path(run, cli->value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (!strcmp(cli->name, flags[i].name))
            return cli_flag(cli, flags[i].set, err);
    if (!strcmp(cli->name, "input"))
        return (code = cli_value(cli, &value, err)) ? code : cli_restore_add_path(run, value);
    if (!strcmp(cli->name, "output"))
        return cli_value(cli, &run->output, err);
    if (!strcmp(cli->name, "mask"))
        return cli_value(cli, &run->mask_path, err);
    const struct option_row *row = options_find(cli->name);
    if (!row)
        return cli_config(cli, &run->config, err);
    if (!strcmp(row->type, "boolean"))
        return options_set(&run->options, row->name, cli_flag_value(cli), err);
    if ((code = cli_value(cli, &value, err)))
        return code;
    if (!utf8_valid(value)) /* the report is JSON */
        return error_set(err, ERROR_INVALID, "%s: the value is not UTF-8; allowed: %s", row->name, row->allowed);
    if (!strcmp(row->name, "device")) {
        run->device = value;
        if (strchr(value, ',')) /* several; a request names one */
            return OK;
    }
    return options_set(&run->options, row->name, value, err);
}

static void cli_restore_free(struct cli_restore_run *run)
{
    cli_engine_close(&run->engine);
    model_store_destroy(&run->store);
    cli_index_close(&run->index);
    cli_inputs_free(&run->inputs);
    file_unmap(&run->mask);
    for (size_t i = 0; i < run->note_count; i++)
        free(run->notes[i]);
    free(run->notes);
    free(run->paths);
}

int cli_restore(int argc, char **argv)
{
    struct cli_restore_run run = {.output = "results", .device = "", .told = stdout};
    struct cli cli;
    struct error err = ERROR_INIT;
    bool help = false;
    static const char *const own[] = {"input",   "output", "json",      "recursive", "skip_existing",
                                      "dry_run", "mask",   "save_mask", NULL};
    options_init(&run.options);
    enum error_code code = cli_begin(&cli, argc, argv, &run.config, &err);
    cli.own = own;
    cli.takes_options = true;
    run.paths = mem_calloc((size_t)argc + 1, sizeof *run.paths);
    if (!code && !run.paths)
        code = error_set(&err, ERROR_NO_MEMORY, "no memory for the list of inputs");
    while (!code && !help && cli_next(&cli, "iovsw"))
        code = cli_restore_take(&run, &cli, &help, &err);
    int status = CLI_OK;
    if (help) {
        cli_restore_usage();
    } else if (code || cli_restore_prepare(&run, &err)) {
        status = cli_restore_fail(&err, CLI_USAGE);
    } else {
        config_apply_log(&run.config, LOG_WARN);
        config_apply(&run.config);
        status = cli_restore_all(&run);
    }
    cli_restore_free(&run);
    return status;
}
