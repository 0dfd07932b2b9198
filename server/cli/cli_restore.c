/* restored restore: files and folders, with the reference's options and its layout of results. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/cli/cli.h"
#include "server/cli/cli_engine.h"
#include "server/cli/cli_output.h"
#include "server/cli/cli_progress.h"
#include "server/http/utf8.h"
#include "server/job/job.h"

struct input {
    char *path;
    char *name; /* of its results: the file's name without extension, made unique in this run */
};

struct run {
    struct config config;
    struct options options;
    const char *output;
    const char *device; /* of --device; "": none */
    bool json, to_file; /* to_file: output is the one file to write */
    struct input *inputs;
    size_t count, room;
    struct model_store *store;
    struct cli_engine engine;
    char cache[1024];
};

/* For the signal handler: the restoration at work, and that it should stop. */
static _Atomic(struct restoration *) restore_running;
static atomic_int restore_stopped;

static void stop(int number)
{
    (void)number;
    atomic_store(&restore_stopped, 1);
    struct restoration *r = atomic_load(&restore_running);
    if (r)
        atomic_store(&r->cancel, 1);
}

static void usage(void)
{
    printf("restored restore INPUT... [-o results] [OPTION]...\n\n"
           "Restores files, or the files of folders. Into the folder of -o go restored_imgs/, restored_faces/,\n"
           "cropped_faces/ and cmp/; with -o NAME.png and one input just that file is written.\n\n"
           "  -i, --input PATH            one more input\n"
           "  -o, --output DIR|FILE       where the results go [results]\n"
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
    printf("\nOptions may be written with one dash, and with - for _. Keys of the configuration are options, too: see\n"
           "restored serve --help.\n");
}

static enum error_code add_input(struct run *run, const char *folder, const char *name, struct error *err)
{
    if (run->count == run->room) {
        size_t room = run->room ? 2 * run->room : 16;
        struct input *grown = realloc(run->inputs, room * sizeof *grown);
        if (!grown)
            return error_set(err, ERROR_NO_MEMORY, "no memory for the list of inputs");
        run->inputs = grown;
        run->room = room;
    }
    struct input *input = &run->inputs[run->count];
    *input = (struct input){NULL, NULL};
    size_t length = folder ? strlen(folder) : 0;
    const char *slash = length && folder[length - 1] != '/' ? "/" : "";
    if (asprintf(&input->path, "%s%s%s", folder ? folder : "", slash, name) < 0)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of inputs");
    run->count++;
    return OK;
}

/* A folder's files in order of their names; hidden ones and subfolders are left alone. What is no readable file (a
 * dangling link, a FIFO) stays in the list and fails in its turn, as a file named on the command line does. */
static enum error_code add_folder(struct run *run, const char *folder, struct error *err)
{
    struct dirent **list;
    int count = scandir(folder, &list, NULL, alphasort);
    if (count < 0)
        return error_set(err, ERROR_IO, "%s: %m", folder);
    enum error_code code = OK;
    size_t before = run->count;
    for (int i = 0; i < count; i++) {
        struct stat status;
        if (!code && list[i]->d_name[0] != '.' && !(code = add_input(run, folder, list[i]->d_name, err)) &&
            !stat(run->inputs[run->count - 1].path, &status) && S_ISDIR(status.st_mode))
            free(run->inputs[--run->count].path);
        free(list[i]);
    }
    free(list);
    if (!code && run->count == before)
        code = error_set(err, ERROR_NOT_FOUND, "%s: there is no file in this folder", folder);
    return code;
}

static enum error_code add_path(struct run *run, const char *path, struct error *err)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode) ? add_folder(run, path, err)
                                                           : add_input(run, NULL, path, err);
}

/* Whether an input before this one has the name already, or a later one will have it by itself. */
static bool name_taken(const struct run *run, size_t index, const char *name)
{
    for (size_t i = 0; i < run->count; i++) {
        char stem[256];
        if (i < index ? !strcmp(run->inputs[i].name, name)
                      : i > index && !strcmp(cli_output_stem(run->inputs[i].path, stem, sizeof stem), name))
            return true;
    }
    return false;
}

/* Two inputs a.jpg and a.png, or from two folders, would write the same files: the later one becomes a_2. */
static enum error_code name_inputs(struct run *run, struct error *err)
{
    for (size_t i = 0; i < run->count; i++) {
        char stem[256], name[272];
        snprintf(name, sizeof name, "%s", cli_output_stem(run->inputs[i].path, stem, sizeof stem));
        bool repeated = false;
        for (size_t k = 0; k < i && !repeated; k++)
            repeated = !strcmp(run->inputs[k].name, name);
        for (int number = 2; repeated && (number == 2 || name_taken(run, i, name)); number++)
            snprintf(name, sizeof name, "%s_%d", stem, number);
        if (repeated)
            fprintf(stderr, "restored: %s: an input before it is also named \"%s\"; its results are named \"%s\"\n",
                    run->inputs[i].path, stem, name);
        run->inputs[i].name = strdup(name);
        if (!run->inputs[i].name)
            return error_set(err, ERROR_NO_MEMORY, "no memory for the list of inputs");
    }
    return OK;
}

/* -o NAME.png with one input is a file, and its extension the format. */
static enum error_code choose_output(struct run *run, struct error *err)
{
    struct stat status;
    const char *dot = strrchr(run->output, '.');
    static const char *const known[][2] = {{"png", "png"}, {"jpg", "jpg"}, {"jpeg", "jpg"}, {"webp", "webp"}};
    const char *format = NULL;
    for (int i = 0; dot && i < 4; i++)
        if (!strcasecmp(dot + 1, known[i][0]))
            format = known[i][1];
    if (!format || (!stat(run->output, &status) && S_ISDIR(status.st_mode)))
        return OK;
    if (run->count != 1)
        return error_set(err, ERROR_INVALID, "-o %s names one file, but there are %zu inputs; name a folder",
                         run->output, run->count);
    struct options wanted = run->options;
    enum error_code code = options_set(&wanted, "ext", format, err);
    if (!code && run->options.ext != FORMAT_AUTO && run->options.ext != wanted.ext)
        code = error_set(err, ERROR_INVALID, "-o %s and --ext do not agree on the format", run->output);
    run->options = wanted;
    run->to_file = true;
    return code;
}

static enum error_code restore_bytes(struct run *run, const struct input *input, const struct file *file,
                                     struct restoration *r, char *written, size_t size, struct error *err)
{
    r->options = run->options;
    r->limits = (struct limits){.input_pixels = run->config.input_pixels,
                                .result_pixels = run->config.result_pixels,
                                .detect_max_side = (int)run->config.detect_max_side};
    r->input = file->data;
    r->input_bytes = file->size;
    r->keep_faces = !run->to_file;
    if (!file->size)
        return error_set(err, ERROR_UNSUPPORTED, "the file is empty");
    atomic_store(&restore_running, r);
    if (atomic_load(&restore_stopped))
        atomic_store(&r->cancel, 1);
    struct cli_progress *progress = cli_progress_begin(r, input->path);
    enum error_code code = cli_engine_run(&run->engine, r, err);
    cli_progress_end(&progress);
    atomic_store(&restore_running, NULL);
    if (code)
        return code;
    return run->to_file ? cli_output_file(r, input->path, run->output, written, size, err)
                        : cli_output_folder(r, input->path, input->name, run->output, written, size, err);
}

static void print_failure(const struct run *run, const char *path, const struct error *err)
{
    if (!run->json) {
        fprintf(stderr, "restored: %s: %s\n", path, err->text);
        return;
    }
    char file[4096], text[sizeof err->text];
    json_t *line = json_pack("{s:s, s:{s:s, s:s}}", "file", utf8_copy(file, sizeof file, path), "error", "code",
                             error_code_name(err->code), "text", utf8_copy(text, sizeof text, err->text));
    json_dumpf(line, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
    json_decref(line);
    putchar('\n');
}

static enum error_code restore_one(struct run *run, const struct input *input, struct error *err)
{
    struct file file = {0};
    struct restoration *r = NULL;
    char written[1200] = "";
    int64_t started = job_now();
    enum error_code code = file_map(&file, input->path, err);
    if (code) {
        /* the text names the path already */
        if (!run->json)
            fprintf(stderr, "restored: %s\n", err->text);
        else
            print_failure(run, input->path, err);
        return code == ERROR_NOT_FOUND ? ERROR_IO : code; /* NOT_FOUND below means: no models */
    }
    code = restoration_create(&r, err);
    if (!code)
        code = restore_bytes(run, input, &file, r, written, sizeof written, err);
    if (code)
        print_failure(run, input->path, err);
    else if (run->json)
        cli_output_json(r, input->path, written);
    else
        cli_output_line(r, input->path, written, (double)(job_now() - started) / 1e9);
    fflush(stdout);
    restoration_destroy(&r);
    file_unmap(&file);
    return code;
}

/* One argument of ours, of the options or of the configuration. */
static enum error_code take(struct run *run, struct cli *cli, bool *help, struct error *err)
{
    static const char *const letters[][2] = {{"i", "input"},   {"o", "output"}, {"v", "version"},
                                             {"s", "upscale"}, {"w", "weight"}, {"h", "help"}};
    for (int i = 0; i < 6; i++)
        if (!strcmp(cli->name, letters[i][0]))
            strcpy(cli->name, letters[i][1]);
    const char *value;
    enum error_code code;
    if (!*cli->name)
        return add_path(run, cli->value, err);
    if (!strcmp(cli->name, "help"))
        return cli_flag(cli, help, err);
    if (!strcmp(cli->name, "json"))
        return cli_flag(cli, &run->json, err);
    if (!strcmp(cli->name, "input"))
        return (code = cli_value(cli, &value, err)) ? code : add_path(run, value, err);
    if (!strcmp(cli->name, "output"))
        return cli_value(cli, &run->output, err);
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

static enum error_code prepare(struct run *run, struct error *err)
{
    if (!run->count)
        return error_set(err, ERROR_INVALID, "there is no input; restored restore --help says how it is used");
    if (!*run->output)
        return error_set(err, ERROR_INVALID, "-o names no folder and no file");
    if (choose_output(run, err) || options_check(&run->options, err) || name_inputs(run, err))
        return err->code;
    return OK;
}

static int restore(struct run *run)
{
    struct error err = ERROR_INIT;
    const bool named = *run->device && strcasecmp(run->device, "auto") != 0;
    const char *which = named ? run->device : run->config.device;
    if (cli_open_store(&run->store, &run->config, &err) ||
        cli_engine_open(&run->engine, which, config_cache_dir(&run->config, run->cache, sizeof run->cache),
                        run->config.precision, run->store, &err))
        return cli_fail(&err, CLI_FAILED);
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int status = CLI_OK;
    for (size_t i = 0; i < run->count && !atomic_load(&restore_stopped); i++) {
        struct error local = ERROR_INIT;
        enum error_code code = restore_one(run, &run->inputs[i], &local);
        if (code)
            status = CLI_FAILED;
        if (code == ERROR_NOT_FOUND) /* no model for it, and so for none */
            break;
    }
    return atomic_load(&restore_stopped) ? 128 + SIGINT : status;
}

int cli_restore(int argc, char **argv)
{
    struct run run = {.output = "results", .device = ""};
    struct cli cli;
    struct error err = ERROR_INIT;
    bool help = false;
    options_init(&run.options);
    enum error_code code = cli_begin(&cli, argc, argv, &run.config, &err);
    while (!code && !help && cli_next(&cli, "iovsw"))
        code = take(&run, &cli, &help, &err);
    int status = CLI_OK;
    if (help) {
        usage();
    } else if (code || prepare(&run, &err)) {
        status = cli_fail(&err, CLI_USAGE);
    } else {
        log_set_level(run.config.log_level > LOG_WARN ? run.config.log_level : LOG_WARN);
        device_set_cpu_threads((int)run.config.cpu_threads);
        status = restore(&run);
    }
    cli_engine_close(&run.engine);
    model_store_destroy(&run.store);
    for (size_t i = 0; i < run.count; i++) {
        free(run.inputs[i].path);
        free(run.inputs[i].name);
    }
    free(run.inputs);
    return status;
}
