/* restored models add: takes a file or a download into the user's folder of models, after a look at what it is. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/utf8.h"
#include "server/cli/cli.h"
#include "server/cli/download.h"
#include "server/http/json.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/model_store_private.h"
#include "server/pipeline/model_trial.h"

struct cli_models_add {
    struct config config;
    const char *source, *name, *sha256, *licence, *activation, *to;
    bool help, remote;
    char given[PATH_MAX];               /* the file's name at its source */
    char called[128];                   /* the model's name */
    const char *ending;                 /* ".pth" and the like, in given */
    char folder[PATH_MAX];              /* of the models */
    char staging[PATH_MAX];             /* .add in it: on the same disk, and not searched for models */
    int lock;                           /* of the staging folder */
    char file[PATH_MAX], bin[PATH_MAX]; /* in it; bin "": there is none */
    char known[64];
    struct model_entry entry; /* of `file` */
    struct model_settings settings;
};

static void cli_models_add_usage(void)
{
    printf(
        "restored models add FILE|URL [--name NAME] [--sha256 HEX] [--licence TEXT] [--to DIR]\n\n"
        "Takes a model of yours into the folder of models: shows its SHA-256, tells which network it is, and runs\n"
        "that once on the CPU, on a tiny picture, to see that what it makes is finite. Only then does the file get\n"
        "its place, and a section in the models.conf of that folder. Of ncnn's NAME.param, NAME.bin is taken too.\n\n"
        "  --name NAME         what options call it [the file's name]\n"
        "  --sha256 HEX        what its SHA-256 must be\n"
        "  --licence TEXT      its licence, where the file does not tell it\n"
        "  --activation TEXT   of an SRVGG without PReLU: relu, leakyrelu or leakyrelu:SLOPE\n"
        "  --to DIR            the folder [models_dir, else $XDG_DATA_HOME/restored/models]\n");
}

/* ---- what is wanted ---- */

/* Whether options or clients mean something else by a name. */
static bool cli_models_add_means(const char *name)
{
    static const char *const taken[] = {"none", "auto", "default", "starter", "lanczos", "restored", "gpt-image-1"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strcasecmp(name, taken[i]))
            return true;
    return !strncasecmp(name, "starter_", 8);
}

/* The file's name in a URL: decoded, unless that would be no name of a file. */
static void cli_models_add_decode(char *name)
{
    char decoded[PATH_MAX], *to = decoded;
    for (const char *at = name; *at; at++) {
        unsigned byte = (unsigned char)*at;
        const bool escaped = *at == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]);
        if (escaped && sscanf(at + 1, "%2x", &byte) == 1)
            at += 2;
        if (byte < ' ' || byte == 0x7f || byte == '/')
            return;
        *to++ = (char)byte;
    }
    *to = 0;
    if (utf8_valid(decoded))
        memcpy(name, decoded, (size_t)(to - decoded) + 1);
}

/* The file's name at its source (of a URL, what stands before '?' and '#'), and the model's. */
static enum error_code cli_models_add_names(struct cli_models_add *add, struct error *err)
{
    const size_t length = add->remote ? strcspn(add->source, "?#") : strlen(add->source);
    const char *from = add->source;
    for (size_t i = 0; i < length; i++)
        if (add->source[i] == '/')
            from = add->source + i + 1;
    snprintf(add->given, sizeof add->given, "%.*s", (int)(add->source + length - from), from);
    if (add->remote)
        cli_models_add_decode(add->given);
    const size_t stem = model_scan_stem(add->given);
    add->ending = add->given + stem;
    const char *other = cli_models_other(add->remote ? add->given : add->source);
    if (!*add->ending && other)
        return error_set(err, ERROR_UNSUPPORTED, "%s: %s", add->given, other);
    if (!*add->ending)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: a model's file ends in .pth, .pt, .ckpt, .safetensors or .param (with its .bin)",
                         add->given);
    if (add->name)
        snprintf(add->called, sizeof add->called, "%s", add->name);
    else
        snprintf(add->called, sizeof add->called, "%.*s", (int)(stem < 127 ? stem : 127), add->given);
    if (!*add->called || *add->called == '.' || strchr(add->called, '/') || strlen(add->called) > 63 ||
        (add->name && strlen(add->name) > 63))
        return error_set(err, ERROR_INVALID,
                         "\"%s\" is no name for a model: up to 63 bytes without / and not beginning with a dot; "
                         "choose another with --name",
                         add->called);
    if (cli_models_add_means(add->called))
        return error_set(err, ERROR_INVALID, "\"%s\" means something else in an option; choose another with --name",
                         add->called);
    return OK;
}

static enum error_code cli_models_add_check(struct cli_models_add *add, struct error *err)
{
    if (!add->source)
        return error_set(err, ERROR_INVALID, "restored models add FILE|URL: name the file");
    add->remote = strstr(add->source, "://") != NULL;
    if (add->sha256 && (strlen(add->sha256) != 64 || strspn(add->sha256, "0123456789abcdefABCDEF") != 64))
        return error_set(err, ERROR_INVALID, "--sha256: 64 hexadecimal digits");
    if (add->activation && !model_settings_activation(&add->settings, add->activation))
        return error_set(err, ERROR_INVALID, "--activation: relu, leakyrelu or leakyrelu:SLOPE, with SLOPE up to 1");
    if (add->licence && strpbrk(add->licence, "\r\n"))
        return error_set(err, ERROR_INVALID, "--licence: one line");
    if (add->licence && strlen(add->licence) >= sizeof((struct model_section *)0)->licence)
        return error_set(err, ERROR_INVALID, "--licence: up to %zu bytes, but it has %zu",
                         sizeof((struct model_section *)0)->licence - 1, strlen(add->licence));
    enum error_code code = cli_models_folder(add->to, &add->config, add->folder, err);
    return code ? code : cli_models_add_names(add, err);
}

/* ---- the staging folder ---- */

/* Removes what an earlier run left there, but for downloads that may go on. */
static void cli_models_add_sweep(const struct cli_models_add *add)
{
    DIR *folder = opendir(add->staging);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        const size_t length = strlen(entry->d_name);
        const bool part = length > 5 && !strcmp(entry->d_name + length - 5, ".part");
        if (*entry->d_name != '.' && (!part || file_is_left(entry->d_name)))
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
}

static enum error_code cli_models_add_stage(struct cli_models_add *add, struct error *err)
{
    if (snprintf(add->staging, sizeof add->staging, "%s/.add", add->folder) >= (int)sizeof add->staging)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", add->folder);
    enum error_code code = file_make_folders(add->staging, 0777, err);
    if (code)
        return code;
    add->lock = open(add->staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (add->lock < 0)
        return error_set(err, ERROR_IO, "%s: %m", add->staging);
    if (flock(add->lock, LOCK_EX | LOCK_NB))
        return error_set(err, ERROR_BUSY, "another restored models add is at work in %s", add->folder);
    cli_models_add_sweep(add);
    return OK;
}

/* A name of its own for each source, so that a download never goes on with another's beginning. */
static enum error_code cli_models_add_place(const struct cli_models_add *add, const char *from, const char *ending,
                                            char name[64], char path[PATH_MAX], struct error *err)
{
    struct sha256_ctx hash;
    uint8_t digest[8];
    sha256_init(&hash);
    sha256_update(&hash, strlen(from), (const uint8_t *)from);
    sha256_digest(&hash, sizeof digest, digest);
    for (int i = 0; i < 8; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    snprintf(name + 16, 64 - 16, "%s", ending);
    return snprintf(path, PATH_MAX, "%s/%s", add->staging, name) < PATH_MAX
               ? OK
               : error_set(err, ERROR_INVALID, "the path of %s is too long", add->folder);
}

/* Copies or downloads to the staging folder. */
static enum error_code cli_models_add_fetch(const struct cli_models_add *add, const char *from, const char *ending,
                                            char path[PATH_MAX], struct error *err)
{
    char name[64];
    struct file file;
    enum error_code code = cli_models_add_place(add, add->source, ending, name, path, err);
    if (code)
        return code;
    if (add->remote) {
        struct download download = {.url = from,
                                    .any_http = true,
                                    .offline = "restored models add FILE takes a copy of the file",
                                    .folder = add->staging,
                                    .file = name,
                                    .sha256 = ""};
        char shown[PATH_MAX];
        download_shown(shown, sizeof shown, from);
        printf("downloading from %s\n", shown);
        fflush(stdout);
        return download_get(&download, err);
    }
    if ((code = file_map(&file, from, err)))
        return code;
    code = file_write(path, file.data, file.size, err);
    if (!code && file_changed(&file))
        code = error_set(err, ERROR_IO, "%s: the file changed while it was read; try again", from);
    file_unmap(&file);
    return code;
}

static enum error_code cli_models_add_fetch_all(struct cli_models_add *add, struct error *err)
{
    char from[PATH_MAX];
    enum error_code code = cli_models_add_fetch(add, add->source, add->ending, add->file, err);
    if (code || strcasecmp(add->ending, ".param"))
        return code;
    /* ".bin" in place of ".param", before what follows it in a URL */
    const size_t length = add->remote ? strcspn(add->source, "?#") : strlen(add->source);
    if (snprintf(from, sizeof from, "%.*s.bin%s", (int)(length - strlen(".param")), add->source,
                 add->source + length) >= (int)sizeof from)
        return error_set(err, ERROR_INVALID, "the path is too long");
    return cli_models_add_fetch(add, from, ".bin", add->bin, err);
}

/* ---- the look at it ---- */

static enum error_code cli_models_add_hash(struct cli_models_add *add, struct error *err)
{
    static const atomic_bool never;
    struct model_section *sections = NULL;
    size_t count = 0;
    struct model_entry *entry = &add->entry;
    const bool fits = strlen(add->file) < sizeof entry->path;
    memcpy(entry->path, add->file, fits ? strlen(add->file) + 1 : 0);
    if (!fits || !model_scan_hash(entry, &never, entry->sha256))
        return error_set(err, ERROR_IO, "%s cannot be read", add->file);
    printf("%s: SHA-256 %s\n", add->given, entry->sha256);
    if (add->sha256 && strcasecmp(add->sha256, entry->sha256))
        return error_set(err, ERROR_CORRUPT, "%s is another file: its SHA-256 should be %s", add->given, add->sha256);
    enum error_code code = model_conf_load(&sections, &count, err);
    for (size_t i = 0; i < count && !code; i++)
        if (!strcmp(sections[i].sha256, entry->sha256)) {
            snprintf(add->known, sizeof add->known, "%s", sections[i].name);
            snprintf(entry->licence, sizeof entry->licence, "%s", sections[i].licence);
            if (!add->activation)
                add->settings = sections[i].settings;
        }
    free(sections);
    return code;
}

/* Opens a file, which the option --activation must be for; an error that begins with its path gets the name that the
 * user knows. */
static enum error_code cli_models_add_open(const struct cli_models_add *add, const char *path, struct model **model,
                                           struct error *err)
{
    struct error why = ERROR_INIT;
    const size_t length = strlen(path);
    const enum error_code code = model_open(model, path, &add->settings, &why);
    if (code && !strncmp(why.text, path, length))
        return error_set(err, code, "%s%s", add->given, why.text + length);
    if (code)
        return error_copy(err, code, &why);
    const struct model_info *info = model_info(*model);
    if (!add->activation || !model_settings_unused(&add->settings, info))
        return OK;
    error_set(err, ERROR_INVALID, "--activation: this %s has none to be set; leave the option out", info->architecture);
    model_close(model);
    return ERROR_INVALID;
}

static enum error_code cli_models_add_try(struct cli_models_add *add, struct error *err)
{
    struct model *model;
    struct error why = ERROR_INIT;
    int side = 0;
    enum error_code code = cli_models_add_open(add, add->file, &model, err);
    if (code)
        return code;
    const struct model_info *info = model_info(model);
    const char *network = licence_of_network(info->architecture);
    add->entry.info = *info;
    if (add->licence)
        snprintf(add->entry.licence, sizeof add->entry.licence, "%s", add->licence);
    else if (*network)
        snprintf(add->entry.licence, sizeof add->entry.licence, "%s", network);
    else if (!*add->entry.licence)
        licence_told(model_weights(model), add->entry.licence, sizeof add->entry.licence);
    printf("%s: %s, %s", add->called, json_kind_name(info->kind), info->architecture);
    if (info->kind == MODEL_UPSCALER)
        printf(" ×%d", info->scale);
    printf("%s%s\n", *add->known ? "; it is " : "", add->known);
    fflush(stdout);
    if (!(code = model_trial(model, &side, &why)))
        printf("%s: what it makes of %dx%d px is finite\n", add->called, side, side);
    else
        error_set(err, code, "%s: %s", add->given, why.text);
    model_close(&model);
    return code;
}

/* ---- its place ---- */

static enum error_code cli_models_add_target(const struct cli_models_add *add, const char *ending, char path[PATH_MAX],
                                             struct error *err)
{
    if (snprintf(path, PATH_MAX, "%s/%s%s", add->folder, add->called, ending) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", add->folder);
    return OK;
}

/* Whether a model of that name is in the folder, under any ending. */
static enum error_code cli_models_add_is_free(const struct cli_models_add *add, struct error *err)
{
    static const char *const endings[] = {".pth", ".pt", ".ckpt", ".safetensors", ".param", ".bin"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        enum error_code code = cli_models_add_target(add, endings[i], path, err);
        if (code)
            return code;
        if (!access(path, F_OK))
            return error_set(err, ERROR_INVALID, "%s is there already; remove it, or choose another name with --name",
                             path);
    }
    return OK;
}

/* Maps the models.conf of the folder, where there is one: it must be understood, and say nothing of that model. */
static enum error_code cli_models_add_conf(const struct cli_models_add *add, char path[PATH_MAX], struct file *file,
                                           struct error *err)
{
    struct model_section *sections = NULL;
    size_t count = 0;
    struct error why = ERROR_INIT;
    *file = (struct file){0};
    if (snprintf(path, PATH_MAX, "%s/models.conf", add->folder) >= PATH_MAX)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", add->folder);
    enum error_code code = file_map(file, path, &why);
    if (code)
        return code == ERROR_NOT_FOUND ? OK : error_copy(err, code, &why);
    if ((code = model_conf_own((const char *)file->data, file->size, &sections, &count, &why)))
        error_set(err, code, "%s: %s; mend it first", add->folder, why.text);
    else if (model_conf_find(sections, count, add->called))
        code = error_set(err, ERROR_INVALID, "%s has a section [%s] already; remove it, or choose another --name", path,
                         add->called);
    free(sections);
    if (code)
        file_unmap(file);
    return code;
}

/* The models.conf of the folder, with a section more. */
static enum error_code cli_models_add_section(const struct cli_models_add *add, struct error *err)
{
    char path[PATH_MAX], source[PATH_MAX], *text = NULL;
    struct file file;
    struct model_section *sections = NULL;
    size_t count = 0, size = 0;
    struct error why = ERROR_INIT;
    enum error_code code = cli_models_add_conf(add, path, &file, err);
    if (code)
        return code;
    const char *old = file.data ? (const char *)file.data : "";
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        file_unmap(&file);
        return error_set(err, ERROR_NO_MEMORY, "no memory for models.conf");
    }
    fprintf(out, "%.*s%s[model %s]\nsha256 = %s\n", (int)file.size, old,
            file.size && old[file.size - 1] != '\n' ? "\n" : "", add->called, add->entry.sha256);
    if (add->remote)
        download_shown(source, sizeof source, add->source);
    else
        snprintf(source, sizeof source, "%s", add->source);
    if (strlen(source) < sizeof sections->url && !strpbrk(source, "\r\n"))
        fprintf(out, "source = %s\n", source);
    if (*add->entry.licence)
        fprintf(out, "licence = %s\n", add->entry.licence);
    if (add->activation)
        fprintf(out, "activation = %s\n", add->activation);
    fclose(out);
    if (model_conf_own(text, size, &sections, &count, &why) || !count ||
        strcmp(sections[count - 1].name, add->called) != 0)
        code = error_set(err, ERROR_INVALID, "models.conf cannot hold a section for \"%s\"; choose another --name",
                         add->called);
    if (!code)
        code = file_write(path, text, size, err);
    free(sections);
    free(text);
    file_unmap(&file);
    return code;
}

/* The section first: without its file it means nothing, while a file would be read without its settings. */
static enum error_code cli_models_add_keep(const struct cli_models_add *add, struct error *err)
{
    char path[PATH_MAX], bin[PATH_MAX];
    enum error_code code = cli_models_add_section(add, err);
    if (!code)
        code = cli_models_add_target(add, add->ending, path, err);
    if (!code)
        code = cli_models_add_target(add, ".bin", bin, err);
    if (!code && *add->bin && rename(add->bin, bin))
        code = error_set(err, ERROR_IO, "%s: %m", bin);
    if (!code && rename(add->file, path))
        code = error_set(err, ERROR_IO, "%s: %m", path);
    const int folder = code ? -1 : open(add->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return code;
}

static void cli_models_add_tell(const struct cli_models_add *add)
{
    static const char *const options[MODEL_KINDS] = {[MODEL_DETECTOR] = "detector",
                                                     [MODEL_FACE] = "version",
                                                     [MODEL_PARSER] = "default_parser",
                                                     [MODEL_UPSCALER] = "bg_upsampler"};
    const char *licence = add->entry.licence, *option = options[add->entry.info.kind];
    if (*licence)
        printf("%s: licence: %s%s\n", add->called, licence, licence_mark(licence));
    else
        printf("%s: the file does not tell its licence; look where it comes from, and say it with --licence\n",
               add->called);
    printf("%s: added to %s", add->called, add->folder);
    if (option)
        printf("; choose it with --%s %s", option, add->called);
    putchar('\n');
}

/* Before gigabytes are copied: whether a file here is a model at all. With --sha256 what matters first is whether it is
 * the right one. */
static enum error_code cli_models_add_glance(const struct cli_models_add *add, struct error *err)
{
    struct model *model;
    if (add->remote || add->sha256)
        return OK;
    const enum error_code code = cli_models_add_open(add, add->source, &model, err);
    if (!code)
        model_close(&model);
    return code;
}

static enum error_code cli_models_add_all(struct cli_models_add *add, struct error *err)
{
    char path[PATH_MAX];
    struct file conf;
    enum error_code code = cli_models_add_glance(add, err);
    if (!code)
        code = cli_models_add_stage(add, err);
    if (!code)
        code = cli_models_add_is_free(add, err);
    if (!code && !(code = cli_models_add_conf(add, path, &conf, err))) /* before the work; it is read again behind it */
        file_unmap(&conf);
    if (!code)
        code = cli_models_add_fetch_all(add, err);
    if (!code)
        code = cli_models_add_hash(add, err);
    if (!code)
        code = cli_models_add_try(add, err);
    if (!code)
        code = cli_models_add_keep(add, err);
    if (!code)
        cli_models_add_tell(add);
    if (add->lock < 0)
        return code;
    if (code != ERROR_BUSY)
        cli_models_add_sweep(add);
    rmdir(add->staging); /* unless a download is to go on */
    close(add->lock);
    return code;
}

static enum error_code cli_models_add_take(struct cli_models_add *add, struct cli *cli, struct error *err)
{
    const struct {
        const char *name, **value;
    } own[] = {{"name", &add->name},
               {"sha256", &add->sha256},
               {"licence", &add->licence},
               {"to", &add->to},
               {"activation", &add->activation}};
    if (!*cli->name) {
        if (add->source)
            return error_set(err, ERROR_INVALID, "restored models add takes one file, but there is \"%s\", too",
                             cli->value);
        add->source = cli->value;
        return OK;
    }
    if (!strcmp(cli->name, "help") || !strcmp(cli->name, "h"))
        return cli_flag(cli, &add->help, err);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(cli->name, own[i].name))
            return cli_value(cli, own[i].value, err);
    return cli_config(cli, &add->config, err);
}

int cli_models_add(int argc, char **argv)
{
    static struct cli_models_add add = {.lock = -1}; /* some PATH_MAX large */
    struct cli cli;
    struct error err = ERROR_INIT;
    static const char *const own[] = {"name", "sha256", "licence", "activation", "to", NULL};
    enum error_code code = cli_begin(&cli, argc, argv, &add.config, &err);
    cli.own = own;
    while (!code && !add.help && cli_next(&cli, ""))
        code = cli_models_add_take(&add, &cli, &err);
    if (add.help) {
        cli_models_add_usage();
        return CLI_OK;
    }
    if (code || cli_models_add_check(&add, &err))
        return cli_fail(&err, CLI_USAGE);
    return cli_models_add_all(&add, &err) ? cli_fail(&err, CLI_FAILED) : CLI_OK;
}
