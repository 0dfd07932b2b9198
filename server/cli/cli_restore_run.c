#include "server/cli/cli_restore_run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "server/cli/cli_output.h"
#include "server/image/codec.h"
#include "server/job/job.h"

/* For the signal handler: the running restoration, and the request to stop. */
static _Atomic(struct restoration *) cli_restore_running;
atomic_int cli_restore_stopped;
static atomic_int cli_restore_stop_fd = -1;

static void cli_restore_stop(int number)
{
    const uint64_t one = 1;
    const int fd = atomic_load(&cli_restore_stop_fd);
    const int before = errno;
    (void)number;
    atomic_store(&cli_restore_stopped, 1);
    struct restoration *r = atomic_load(&cli_restore_running);
    if (r)
        atomic_store(&r->cancel, 1);
    if (fd >= 0 && write(fd, &one, sizeof one) < 0)
        atomic_store(&cli_restore_stopped, 1);
    errno = before;
}

void cli_restore_catch(int stop)
{
    struct sigaction action = {.sa_handler = cli_restore_stop, .sa_flags = (int)SA_RESETHAND};
    atomic_store(&cli_restore_stop_fd, stop);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
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

int cli_restore_fail(const struct error *err, int status)
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
        char shown[4 * PATH_MAX];
        fprintf(stderr, "restored: %s%s%s%s\n", named ? "" : utf8_escape(shown, sizeof shown, path), named ? "" : ": ",
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
/* ---- one input ---- */

static enum error_code cli_restore_path(const struct cli_restore_run *run, const struct cli_input *input, char *out,
                                        size_t size, struct error *err)
{
    const enum image_format format = options_result_format(&run->options, input->format, input->alpha);
    if (run->target == TARGET_FOLDER)
        return cli_output_path(out, size, run->output, input->name, &run->options, format, input->path, err);
    snprintf(out, size, "%s", run->output);
    return OK;
}

/* Whether the result exists and was made from this picture in its present state with these options, as far as we can
 * know. */
bool cli_restore_is_there(const struct cli_restore_run *run, const struct cli_input *input)
{
    char path[4096];
    struct stat status;
    if (run->target == TARGET_STDOUT || !input->mtime_ns || cli_restore_path(run, input, path, sizeof path, NULL) ||
        stat(path, &status))
        return false;
    const int64_t made = cli_inputs_changed(&status);
    const struct cli_index_entry *entry = cli_index_find(run->index, input->name, run->options.suffix);
    if (!entry)
        return made >= input->mtime_ns;
    return entry->size == input->size && !strcmp(entry->options, run->fingerprint) &&
           (entry->mtime_ns == input->mtime_ns || made >= input->mtime_ns);
}

/* After the result, so that none lies beside the result before. */
static enum error_code cli_restore_write_mask(const struct cli_restore_run *run, const struct cli_input *input,
                                              const struct restoration *r, const char *path, struct error *err)
{
    const bool folder = run->target == TARGET_FOLDER;
    struct error local = ERROR_INIT;
    if (!run->save_mask || !cli_output_mask(r, input->path, run->mask_path, folder ? run->output : NULL,
                                            folder ? input->name : path, &local))
        return OK;
    return error_set(err, local.code, "%s (the picture itself was written: %s)", local.text, path);
}

static enum error_code cli_restore_write(struct cli_restore_run *run, const struct cli_input *input,
                                         const struct restoration *r, const char *path, struct error *err)
{
    enum error_code code = OK;
    if (run->target == TARGET_STDOUT)
        return cli_output_stdout(r, err);
    if (run->target == TARGET_FILE) {
        code = cli_output_file(r, input->path, path, err);
        return code ? code : cli_restore_write_mask(run, input, r, path, err);
    }
    struct cli_index_entry entry = {.name = input->name,
                                    .suffix = (char *)(uintptr_t)run->options.suffix,
                                    .source = input->source,
                                    .options = run->fingerprint,
                                    .size = input->size,
                                    .mtime_ns = input->mtime_ns};
    const struct cli_index_entry *before = cli_index_find(run->index, entry.name, entry.suffix);
    struct cli_index_entry begun = entry;
    begun.size = 0;
    begun.mtime_ns = 0;
    /* whoever is killed between the first result and the last line finds its own name again */
    code = before && !strcmp(before->source, entry.source) ? OK : cli_index_add(run->index, &begun, err);
    if (!code)
        code = cli_output_folder(r, input->path, input->name, run->output, path, err);
    if (!code)
        code = cli_restore_write_mask(run, input, r, path, err);
    return code ? code : cli_index_add(run->index, &entry, err);
}

/* What a restoration is asked for. */
static enum error_code cli_restore_ask(const struct cli_restore_run *run, const struct file *file,
                                       struct restoration *r, struct error *err)
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
    return file->size ? OK : error_set(err, ERROR_CORRUPT, "the file is empty");
}

/* Whether a restoration would be refused, as far as the headers tell; nothing is restored. */
static enum error_code cli_restore_check(const struct cli_restore_run *run, const struct cli_input *input,
                                         struct error *err)
{
    struct file file = {.data = input->bytes, .size = (size_t)input->size};
    struct restoration *r = NULL;
    struct codec_info mask;
    struct error local = ERROR_INIT;
    enum error_code code = input->bytes ? OK : file_map(&file, input->path, err);
    if (!code)
        code = restoration_create(&r, err);
    if (!code)
        code = cli_restore_ask(run, &file, r, err);
    if (!code)
        code = pipeline_check(r, NULL, err);
    if (!code && run->mask.size && codec_probe(run->mask.data, run->mask.size, &mask, &local))
        code = error_set(err, local.code, "mask: %s", local.text);
    else if (!code && run->mask.size)
        code = pipeline_check_mask(r, mask.width, mask.height, err);
    restoration_destroy(&r);
    if (!input->bytes)
        file_unmap(&file);
    return code;
}

static enum error_code cli_restore_bytes(struct cli_restore_run *run, const struct cli_input *input,
                                         const struct file *file, struct restoration *r, const char *path,
                                         struct error *err)
{
    enum error_code code = cli_restore_ask(run, file, r, err);
    if (code)
        return code;
    atomic_store(&cli_restore_running, r);
    if (atomic_load(&cli_restore_stopped))
        atomic_store(&r->cancel, 1);
    struct cli_progress *progress = cli_progress_begin(r, input->path, &run->batch);
    code = cli_engine_run(&run->engine, r, err);
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

enum cli_restore_outcome cli_restore_one(struct cli_restore_run *run, const struct cli_input *input)
{
    char path[4096];
    struct error err = ERROR_INIT;
    enum error_code code = input->code;
    if (code) {
        /* a file given as the only input must be a picture: somebody expects its result */
        if (code == ERROR_UNSUPPORTED && (run->target != TARGET_FOLDER || input->bytes))
            code = ERROR_INVALID;
        run->failed = code;
        snprintf(run->failure, sizeof run->failure, "%s", input->reason);
        cli_restore_print_failure(run, input->path, code, input->reason);
        return code == ERROR_UNSUPPORTED ? OUTCOME_FOREIGN : OUTCOME_FAILED;
    }
    if (run->skip_existing && cli_restore_is_there(run, input))
        return OUTCOME_THERE;
    run->batch.number++;
    run->batch.megapixels = input->megapixels;
    run->batch.left -= input->megapixels;
    if (!run->dry_run)
        code = cli_restore_input(run, input, &err);
    else if (!(code = cli_restore_check(run, input, &err)))
        code = cli_restore_path(run, input, path, sizeof path, &err);
    if (!code && run->dry_run) {
        cli_output_names(run->told, input->path, path);
        putc('\n', run->told);
    }
    run->failed = code;
    snprintf(run->failure, sizeof run->failure, "%s", err.text);
    if (code && !(code == ERROR_CANCELLED && atomic_load(&cli_restore_stopped)))
        cli_restore_print_failure(run, input->path, code == ERROR_UNSUPPORTED ? ERROR_INVALID : code, err.text);
    return code ? OUTCOME_FAILED : OUTCOME_RESTORED;
}
/* ---- the run ---- */

bool cli_restore_taken(const char *name, void *user)
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

enum error_code cli_restore_open_output(struct cli_restore_run *run, struct error *err)
{
    if (!run->dry_run && run->target != TARGET_STDOUT &&
        cli_output_check(run->output, run->target == TARGET_FILE, &run->options, err))
        return err->code;
    cli_restore_fingerprint(run);
    return run->target == TARGET_FOLDER ? cli_index_open(&run->index, run->output, CLI_INDEX_NAME, err) : OK;
}

enum error_code cli_restore_open_engine(struct cli_restore_run *run, struct error *err)
{
    const bool named = *run->device && strcasecmp(run->device, "auto") != 0;
    const char *which = named ? run->device : run->config.device;
    struct restoration like = {.options = run->options, .mask_bytes = run->mask.size};
    if (cli_open_store(&run->store, &run->config, err) || pipeline_check_models(&like, run->store, err))
        return err->code;
    return cli_engine_open(&run->engine, which, config_cache_dir(&run->config, run->cache, sizeof run->cache),
                           run->config.precision, run->config.memory, run->store, err);
}

/* ---- arguments ---- */

void cli_restore_print_options(void)
{
    for (int i = 0; i < option_row_count; i++)
        if (strcmp(option_rows[i].name, "device")) /* above: a request names one, here there may be several */
            printf("  --%-25s %s (%s)%s%s%s\n", option_rows[i].name, option_rows[i].help, option_rows[i].allowed,
                   *option_rows[i].initial ? " [" : "", option_rows[i].initial, *option_rows[i].initial ? "]" : "");
}

static enum error_code cli_restore_add_path(struct cli_restore_run *run, const char *path)
{
    run->paths[run->path_count++] = path; /* there is room for all arguments */
    return OK;
}

enum error_code cli_restore_take(struct cli_restore_run *run, struct cli *cli, bool *help, struct error *err)
{
    cli_letter(cli);
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
    if (!strcmp(cli->name, "mask")) {
        code = cli_value(cli, &run->mask_path, err);
        const char *path = code ? "" : run->mask_path;
        const bool option = *path == '-' && access(path, F_OK); /* the value was forgotten */
        return *path && !option ? code : error_set(err, ERROR_INVALID, "--mask needs a value: a file");
    }
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

void cli_restore_free(struct cli_restore_run *run)
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
