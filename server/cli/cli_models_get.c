/* restored models get: downloads official checkpoints to where the program finds them. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "server/cli/cli.h"
#include "server/cli/download.h"
#include "server/cli/models_fetch.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/model_conf.h"
#include "server/suggest.h"

struct cli_models_get {
    struct config config;
    const char *to, *mirror, *list;
    const char *names[64];
    size_t name_count;
    struct model_section *sections;
    size_t section_count;
    bool help;
};

static void cli_models_get_usage(void)
{
    printf("restored models get NAME...|default|all [--to DIR] [--mirror DIR|URL]\n\n"
           "Downloads official models, each verified by its SHA-256 before it is used; one for which none is\n"
           "published is opened, and run on a tiny picture, before it is used. An interrupted download continues\n"
           "where it stopped. NAME is a model's name or what an option calls it, such as 1.4; default: the models\n"
           "used by default; all: every one.\n\n"
           "  --to DIR            the folder [models_dir, else $XDG_DATA_HOME/restored/models]\n"
           "  --mirror DIR|URL    a folder or URL that holds the files, instead of where their authors publish them\n"
           "  --list FILE         another list of models, in the form of the program's own (config/models.conf)\n");
}

static bool cli_models_get_takes(const struct model_section *section)
{
    return *section->url && section->supported;
}

/* Why a known model is not downloaded. */
static enum error_code cli_models_get_refused(const struct model_section *section, struct error *err)
{
    if (section->starter)
        return error_set(err, ERROR_INVALID, "%s is inside the program", section->name);
    if (!section->supported)
        return error_set(err, ERROR_INVALID, "%s is not supported yet", section->name);
    if (licence_non_commercial(section->licence))
        return error_set(err, ERROR_INVALID,
                         "%s is not downloaded: its licence (%s) forbids commercial use, so whether you may use it is "
                         "for you to say; get %s from its authors and take it with restored models add",
                         section->name, section->licence, section->file);
    return error_set(
        err, ERROR_INVALID,
        "%s is not downloaded: its authors do not publish the file by itself; get %s from them and take it "
        "with restored models add",
        section->name, section->file);
}

/* The official model of that name; if there is none, the error lists the names. */
static enum error_code cli_models_get_check(const struct cli_models_get *get, const char *name, struct error *err)
{
    char list[400] = "", hint[96];
    struct suggest suggest = suggest_for(name);
    if (!strcmp(name, "default") || !strcmp(name, "all"))
        return OK;
    for (size_t i = 0; i < get->section_count; i++) {
        const struct model_section *section = &get->sections[i];
        const bool named = model_conf_called(section, name);
        if (named && cli_models_get_takes(section))
            return OK;
        if (named)
            return cli_models_get_refused(section, err);
        if (!cli_models_get_takes(section))
            continue;
        suggest_offer(&suggest, section->name);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", section->name);
    }
    suggest_text(&suggest, "", hint, sizeof hint);
    return error_set(err, ERROR_INVALID, "there is no model \"%s\" to download%s; there are default, all, %s", name,
                     hint, list);
}

static bool cli_models_get_wanted(const struct cli_models_get *get, const struct model_section *section)
{
    for (size_t i = 0; i < get->name_count && cli_models_get_takes(section); i++)
        if (!strcmp(get->names[i], "all") || (!strcmp(get->names[i], "default") && section->is_default) ||
            model_conf_called(section, get->names[i]))
            return true;
    return false;
}

enum error_code cli_models_folder(const char *to, const struct config *config, char out[PATH_MAX], struct error *err)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (to || *config->models_dir)
        snprintf(out, PATH_MAX, "%s", to ? to : config->models_dir);
    else if (data && *data == '/') /* the XDG rule: a relative path is ignored */
        snprintf(out, PATH_MAX, "%s/restored/models", data);
    else if (home && *home == '/')
        snprintf(out, PATH_MAX, "%s/.local/share/restored/models", home);
    else
        return error_set(err, ERROR_INVALID, "neither XDG_DATA_HOME nor HOME is set; name a folder with --to");
    return OK;
}

static enum error_code cli_models_get_one(const struct cli_models_get *get, const struct model_section *section,
                                          const char *folder, struct error *err)
{
    char url[PATH_MAX];
    snprintf(url, sizeof url, "%s", section->url);
    enum error_code code = get->mirror ? download_mirror_url(url, sizeof url, get->mirror, section->file, err) : OK;
    if (code)
        return code;
    struct download download = {.url = url,
                                .any_http = get->mirror,
                                .offline = DOWNLOAD_OFFLINE,
                                .folder = folder,
                                .file = section->file,
                                .sha256 = section->sha256,
                                .bytes = section->bytes};
    const bool apart = models_fetch_apart(section);
    if (apart ? models_fetch_is_there(section, folder) : download_is_there(&download)) {
        printf("%s: already there\n", section->file);
        return OK;
    }
    printf("%s: downloading from %s%s%s%s\n", section->file, url, *section->licence ? "; licence: " : "",
           section->licence, licence_mark(section->licence));
    fflush(stdout);
    if (apart)
        return models_fetch(section, get->mirror, folder, err);
    if ((code = download_get(&download, err)))
        return code;
    printf("%s: verified, in %s\n", section->file, folder);
    return OK;
}

static enum error_code cli_models_get_load(struct cli_models_get *get, struct error *err)
{
    struct file file;
    if (!get->list)
        return model_conf_load(&get->sections, &get->section_count, err);
    enum error_code code = file_map(&file, get->list, err);
    if (code)
        return code;
    code = model_conf_parse((const char *)file.data, file.size, &get->sections, &get->section_count, err);
    file_unmap(&file);
    return code;
}

static int cli_models_get_all(struct cli_models_get *get)
{
    char folder[PATH_MAX];
    struct error err = ERROR_INIT;
    enum error_code code = cli_models_get_load(get, &err);
    for (size_t i = 0; i < get->name_count && !code; i++)
        code = cli_models_get_check(get, get->names[i], &err);
    if (!code)
        code = cli_models_folder(get->to, &get->config, folder, &err);
    if (code)
        return cli_fail(&err, CLI_USAGE);
    size_t failed = 0;
    for (size_t i = 0; i < get->section_count; i++) {
        struct error local = ERROR_INIT;
        const struct model_section *section = &get->sections[i];
        if (!cli_models_get_wanted(get, section) || !cli_models_get_one(get, section, folder, &local))
            continue;
        fprintf(stderr, "restored: %s: %s\n", section->file, local.text);
        failed++;
    }
    if (failed)
        fprintf(stderr, "restored: %zu %s not there yet\n", failed, failed == 1 ? "model is" : "models are");
    return failed ? CLI_FAILED : CLI_OK;
}

static enum error_code cli_models_get_take(struct cli_models_get *get, struct cli *cli, struct error *err)
{
    if (!*cli->name) {
        if (get->name_count == sizeof get->names / sizeof *get->names)
            return error_set(err, ERROR_INVALID, "these are too many names; all stands for every model");
        get->names[get->name_count++] = cli->value;
        return OK;
    }
    if (!strcmp(cli->name, "help") || !strcmp(cli->name, "h"))
        return cli_flag(cli, &get->help, err);
    if (!strcmp(cli->name, "to"))
        return cli_value(cli, &get->to, err);
    if (!strcmp(cli->name, "mirror"))
        return cli_value(cli, &get->mirror, err);
    if (!strcmp(cli->name, "list"))
        return cli_value(cli, &get->list, err);
    return cli_config(cli, &get->config, err);
}

int cli_models_get(int argc, char **argv)
{
    struct cli_models_get get = {0};
    struct cli cli;
    struct error err = ERROR_INIT;
    static const char *const own[] = {"to", "mirror", "list", NULL};
    enum error_code code = cli_begin(&cli, argc, argv, &get.config, &err);
    cli.own = own;
    while (!code && !get.help && cli_next(&cli, ""))
        code = cli_models_get_take(&get, &cli, &err);
    if (get.help) {
        cli_models_get_usage();
        return CLI_OK;
    }
    if (!code && !get.name_count)
        code = error_set(&err, ERROR_INVALID, "restored models get NAME...: name the models, or say default or all");
    const int status = code ? cli_fail(&err, CLI_USAGE) : cli_models_get_all(&get);
    free(get.sections);
    return status;
}
