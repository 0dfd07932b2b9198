/* restored watch: restores what appears in a folder. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/cli/cli_restore_run.h"
#include "server/cli/watch_folder.h"

#define WATCH_FAILED ".restored-failed"
#define WATCH_RETRY_SECONDS 60 /* after a failure that is not the file's fault */

/* The folders in OUT. */
static const char *const watch_parts[] = {"restored_imgs", "restored_faces", "cropped_faces", "cmp", "masks"};

struct cli_watch {
    struct cli_restore_run run;
    struct watch_settings settings;
    struct cli_index *failed; /* files that cannot be read, as they are now */
    size_t left_out;          /* of those that are there at the start */
};

static void cli_watch_usage(void)
{
    printf(
        "restored watch IN OUT [OPTION]...\n\n"
        "Restores the pictures of the folder IN and its subfolders, and then what appears there, until it is\n"
        "stopped. A file is read when it has been written completely. The results go to OUT as those of restored\n"
        "restore. What was restored is left out, also after a restart, until it or the options change; so is a file\n"
        "that cannot be read, which is reported once. After kill -9 there are no half results, and the next start\n"
        "goes on.\n\n"
        "  --settle SECONDS            how long a file must stay the same before it is read [1]\n"
        "  --rescan SECONDS            look through all of IN this often, for network shares, whose changes the\n"
        "                              system may not report; 0: never [0]\n"
        "  --save_mask                 what was filled, white on black, to masks/ in OUT\n"
        "  -v, -s, -w                  short for --version, --upscale, --weight\n"
        "  --models DIR                folder of checkpoints\n"
        "  --device ID,ID...           a device, or several in the order of preference, as for restored restore "
        "[auto]\n"
        "  --json                      print the reports, one JSON object a line\n");
    cli_restore_print_options();
    printf(
        "\nOptions may be written with one dash, and with - for _. The configuration's keys are options, too: see\n"
        "restored serve --help. SIGTERM and Ctrl-C end it with the exit status 0; what is in progress is begun anew\n"
        "by the next start. The status is 1 if a model or device is missing, the results cannot be written or IN is\n"
        "gone, and 2 if the command was wrong.\n");
}

/* ---- what is done ---- */

static bool cli_watch_listed(const struct cli_watch *watch, const struct cli_index *index, const char *source,
                             uint64_t size, int64_t mtime_ns)
{
    const struct cli_index_entry *entry = cli_index_of_source(index, source);
    return entry && entry->size == size && entry->mtime_ns == mtime_ns &&
           !strcmp(entry->options, watch->run.fingerprint) && !strcmp(entry->suffix, watch->run.options.suffix);
}

static bool cli_watch_wanted(const char *path, const struct stat *status, void *user)
{
    struct cli_watch *watch = user;
    const int64_t mtime = cli_inputs_changed(status);
    if (cli_inputs_unfinished(path))
        return false;
    char *source = cli_inputs_source(path);
    const bool done = source && cli_watch_listed(watch, watch->run.index, source, (uint64_t)status->st_size, mtime);
    const bool bad = source && cli_watch_listed(watch, watch->failed, source, (uint64_t)status->st_size, mtime);
    watch->left_out += bad;
    free(source);
    return !done && !bad;
}

/* Whether the same file would fail again. */
static bool cli_watch_is_final(enum error_code code)
{
    return code == ERROR_CORRUPT || code == ERROR_UNSUPPORTED || code == ERROR_INVALID || code == ERROR_TOO_LARGE;
}

/* Notes a file that cannot be read; what failed for another reason is tried again later. */
static enum error_code cli_watch_failed(struct cli_watch *watch, struct watch *folder, const struct cli_input *input,
                                        struct error *err)
{
    struct cli_restore_run *run = &watch->run;
    struct stat status;
    if (!input->code && !cli_watch_is_final(run->failed))
        return watch_again(folder, WATCH_RETRY_SECONDS, err);
    const bool known = input->mtime_ns;       /* as it was read: what is there by now may be good */
    if (!known && stat(input->path, &status)) /* it is gone */
        return OK;
    const struct cli_index_entry entry = {.name = run->failure,
                                          .suffix = run->options.suffix,
                                          .source = input->source,
                                          .options = run->fingerprint,
                                          .size = known ? input->size : (uint64_t)status.st_size,
                                          .mtime_ns = known ? input->mtime_ns : cli_inputs_changed(&status)};
    return cli_index_add(watch->failed, &entry, err);
}

static enum error_code cli_watch_one(struct cli_watch *watch, struct watch *folder, const struct watch_file *file,
                                     struct error *err)
{
    struct cli_restore_run *run = &watch->run;
    struct cli_inputs inputs = {0};
    enum error_code code = cli_inputs_add_file(&inputs, file->path, file->below, err);
    if (!code)
        code = cli_inputs_look(&inputs, err);
    if (!code)
        code = cli_inputs_name(&inputs, run->index, cli_restore_taken, run, err);
    run->batch = (struct cli_batch){.count = 1 + watch_waiting(folder)};
    if (!code && cli_restore_one(run, &inputs.items[0]) != OUTCOME_RESTORED && !atomic_load(&cli_restore_stopped))
        code = cli_watch_failed(watch, folder, &inputs.items[0], err);
    cli_inputs_free(&inputs);
    return code;
}

/* ---- the start ---- */

/* Removes what a process that was killed left half written. */
static void cli_watch_sweep(const char *path, int depth)
{
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char inner[PATH_MAX];
        if (*entry->d_name == '.' || snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) >= (int)sizeof inner)
            continue;
        if (entry->d_type == DT_DIR && depth < 64)
            cli_watch_sweep(inner, depth + 1);
        if (file_is_left(entry->d_name))
            unlink(inner);
    }
    if (folder)
        closedir(folder);
}

/* The results must not be what is watched. */
static enum error_code cli_watch_apart(const char *in, const char *out, struct error *err)
{
    char path[PATH_MAX + 32], *from = realpath(in, NULL), *to = realpath(out, NULL);
    enum error_code code = from ? OK : error_set(err, ERROR_NOT_FOUND, "%s: %m", in);
    bool within = from && to && !strcmp(from, to);
    for (size_t i = 0; from && to && i < sizeof watch_parts / sizeof *watch_parts; i++) {
        const size_t length = (size_t)snprintf(path, sizeof path, "%s/%s", to, watch_parts[i]);
        within = within || (!strncmp(from, path, length) && (!from[length] || from[length] == '/'));
    }
    if (!code && within)
        code = error_set(err, ERROR_INVALID,
                         "the results in %s would be watched as pictures of %s; name another OUT", out, in);
    free(from);
    free(to);
    return code;
}

static enum error_code cli_watch_open(struct cli_watch *watch, struct error *err)
{
    struct cli_restore_run *run = &watch->run;
    char path[PATH_MAX];
    enum error_code code = cli_restore_open_output(run, err);
    if (!code)
        code = cli_watch_apart(run->paths[0], run->output, err);
    for (size_t i = 0; !code && i < sizeof watch_parts / sizeof *watch_parts; i++)
        if (snprintf(path, sizeof path, "%s/%s", run->output, watch_parts[i]) < (int)sizeof path)
            cli_watch_sweep(path, 0);
    if (!code)
        code = cli_index_open(&watch->failed, run->output, WATCH_FAILED, err);
    if (!code)
        code = cli_restore_open_engine(run, err);
    if (!code && stat(run->output, &watch->settings.results))
        code = error_set(err, ERROR_IO, "%s: %m", run->output);
    return code;
}

static int cli_watch_run(struct cli_watch *watch)
{
    struct cli_restore_run *run = &watch->run;
    struct error err = ERROR_INIT;
    struct watch *folder = NULL;
    struct watch_file file;
    watch->settings.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->settings.wanted = cli_watch_wanted;
    watch->settings.user = watch;
    cli_restore_catch(watch->settings.stop);
    enum error_code code = watch->settings.stop < 0 ? error_set(&err, ERROR_IO, "eventfd: %m") : OK;
    if (!code)
        code = cli_watch_open(watch, &err);
    if (!code)
        code = watch_create(&folder, run->paths[0], &watch->settings, &err);
    if (!code) {
        FILE *out = run->json ? stderr : run->told;
        fprintf(out, "watching %s; %zu waiting", run->paths[0], watch_waiting(folder));
        if (watch->left_out)
            fprintf(out, ", %zu left out that could not be read (%s/%s)", watch->left_out, run->output, WATCH_FAILED);
        putc('\n', out);
        fflush(out);
    }
    while (!code && !(code = watch_next(folder, &file, &err)))
        code = cli_watch_one(watch, folder, &file, &err);
    watch_destroy(&folder);
    if (watch->settings.stop >= 0)
        close(watch->settings.stop);
    if (atomic_load(&cli_restore_stopped)) {
        fprintf(run->json ? stderr : run->told, "stopped\n");
        return CLI_OK;
    }
    return cli_restore_fail(&err, CLI_FAILED);
}

/* ---- arguments ---- */

static enum error_code cli_watch_seconds(struct cli *cli, double *out, struct error *err)
{
    const char *value;
    char *end;
    enum error_code code = cli_value(cli, &value, err);
    if (code)
        return code;
    *out = strtod(value, &end);
    return *end || end == value || !(*out >= 0 && *out <= 86400)
               ? error_set(err, ERROR_INVALID, "--%s: \"%s\" is not a number of seconds from 0 to 86400", cli->name,
                           value)
               : OK;
}

static enum error_code cli_watch_take(struct cli_watch *watch, struct cli *cli, bool *help, struct error *err)
{
    static const char *const others[] = {"input", "i", "output", "o", "mask", "dry_run", "recursive", "skip_existing"};
    if (!strcmp(cli->name, "settle"))
        return cli_watch_seconds(cli, &watch->settings.settle, err);
    if (!strcmp(cli->name, "rescan"))
        return cli_watch_seconds(cli, &watch->settings.rescan, err);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(cli->name, others[i]))
            return error_set(err, ERROR_INVALID, "--%s is for restored restore; restored watch takes IN and OUT",
                             cli->name);
    return cli_restore_take(&watch->run, cli, help, err);
}

static enum error_code cli_watch_check(struct cli_watch *watch, struct error *err)
{
    struct stat status;
    struct cli_restore_run *run = &watch->run;
    if (run->path_count != 2)
        return error_set(err, ERROR_INVALID,
                         "restored watch IN OUT: name the folder of the pictures and that of the "
                         "results");
    run->output = run->paths[1];
    if (stat(run->paths[0], &status) || !S_ISDIR(status.st_mode))
        return error_set(err, ERROR_INVALID, "%s: there is no such folder", run->paths[0]);
    if (!*run->output)
        return error_set(err, ERROR_INVALID, "OUT names no folder");
    if (!stat(run->output, &status) && cli_watch_apart(run->paths[0], run->output, err))
        return err->code;
    return options_check(&run->options, err);
}

int cli_watch(int argc, char **argv)
{
    struct cli_watch watch = {.run = {.device = "", .told = stdout}, .settings = {.settle = 1}};
    struct cli cli;
    struct error err = ERROR_INIT;
    bool help = false;
    int status = CLI_OK;
    static const char *const own[] = {"json", "save_mask", "settle", "rescan", NULL};
    options_init(&watch.run.options);
    enum error_code code = cli_begin(&cli, argc, argv, &watch.run.config, &err);
    cli.own = own;
    cli.takes_options = true;
    watch.run.paths = mem_calloc((size_t)argc + 1, sizeof *watch.run.paths);
    if (!code && !watch.run.paths)
        code = error_set(&err, ERROR_NO_MEMORY, "no memory for the list of inputs");
    while (!code && !help && cli_next(&cli, "vsw"))
        code = cli_watch_take(&watch, &cli, &help, &err);
    if (help) {
        cli_watch_usage();
    } else if (code || cli_watch_check(&watch, &err)) {
        status = cli_restore_fail(&err, CLI_USAGE);
    } else {
        config_apply_log(&watch.run.config, LOG_WARN);
        config_apply(&watch.run.config);
        status = cli_watch_run(&watch);
    }
    cli_index_close(&watch.failed);
    cli_restore_free(&watch.run);
    return status;
}
