/* restored restore: files and folders, with the reference's options and its layout of results. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/cli/cli_output.h"
#include "server/cli/cli_restore_run.h"

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
           "                              beside the file of -o; none where nothing was filled: one of\n"
           "                              an earlier run is removed there\n"
           "  -v, -s, -w                  short for --version, --upscale, --weight\n"
           "  --models DIR                folder of checkpoints\n"
           "  --device ID,ID...           a device (id, UUID or name of restored devices), or several in the order of\n"
           "                              preference: the first that works does all inputs, and the next goes on when\n"
           "                              it is lost; auto: the best there is [auto]\n"
           "  --json                      print the reports, one JSON object a line\n");
    cli_restore_print_options();
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
        const bool png = options_result_format(&run->options, input->format, input->alpha) == IMAGE_PNG;
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
    if (run->mask_path && !run->mask.size)
        return error_set(err, ERROR_INVALID, "--mask %s: the file is empty", run->mask_path);
    if (run->target == TARGET_FOLDER && stat(run->output, &run->inputs.results))
        run->inputs.results = (struct stat){0};
    for (size_t i = 0; i < run->path_count; i++)
        if (cli_inputs_add(&run->inputs, run->paths[i], err))
            return err->code;
    return OK;
}

static enum error_code cli_restore_open(struct cli_restore_run *run, struct error *err)
{
    if (cli_restore_open_output(run, err) || cli_inputs_look(&run->inputs, err) ||
        cli_inputs_name(&run->inputs, run->index, cli_restore_taken, run, err))
        return err->code;
    cli_restore_count(run);
    return run->dry_run || !run->batch.count ? OK : cli_restore_open_engine(run, err);
}

static int cli_restore_all(struct cli_restore_run *run)
{
    struct error err = ERROR_INIT;
    cli_restore_catch(-1);
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
