/* restored models publish: puts models into the store that servers share, for workers with models_from = store. */
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/http/json.h"
#include "server/job/supply.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/model_store_private.h"

#define NAMES_MOST 256

struct cli_models_publish {
    struct config config;
    const char *names[NAMES_MOST];
    int count;
    bool remove, help;
    struct store *store;
    struct payload *payload;
};

static void cli_models_publish_usage(void)
{
    printf("restored models publish NAME|FILE... [--remove] [--store URI] [--KEY VALUE]...\n\n"
           "Puts models, each with its SHA-256, licence and settings, into the store that servers share; workers with\n"
           "models_from = store fetch those that jobs need. NAME: of a model that is installed here; FILE: any other,\n"
           "with a / in it. A model of the same name is replaced. Without names: lists what is published.\n\n"
           "  --remove            takes models of these names out of the store; workers keep what they have\n"
           "  --store URI         the store: postgresql://… [the setting store]\n"
           "  --KEY VALUE         every key of the configuration, such as --payload or --store_password_file\n");
}

/* ---- which file ---- */

/* Opens the models among which this one is: those of a file's folder, or those that are installed here. */
static enum error_code cli_models_publish_open(const struct cli_models_publish *self, const char *name,
                                               struct model_store **models, struct error *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(name, '/');
    if (!slash)
        return cli_open_store(models, &self->config, err);
    if (snprintf(folder, sizeof folder, "%.*s", slash == name ? 1 : (int)(slash - name), name) >= (int)sizeof folder)
        return error_set(err, ERROR_INVALID, "the path %s is too long", name);
    return model_store_create(models, folder, &(struct model_defaults){0}, err);
}

struct cli_models_publish_name {
    const char *wanted;
    bool found;
    json_t *names;
};

/* A model_name_fn. */
static void cli_models_publish_name(void *context, const char *name)
{
    struct cli_models_publish_name *look = context;
    look->found |= look->wanted && !strcmp(name, look->wanted);
    if (look->names)
        json_array_append_new(look->names, json_string(name));
}

static const struct model_entry *cli_models_publish_find(const struct model_store *models, const char *name)
{
    const bool path = strchr(name, '/') != NULL;
    for (size_t i = 0; i < model_store_count(models); i++) {
        const struct model_entry *entry = model_store_at(models, i);
        struct cli_models_publish_name look = {.wanted = name};
        if (!path)
            model_store_names(models, entry, cli_models_publish_name, &look);
        if (path ? !strcmp(entry->path, name) : look.found)
            return entry;
    }
    return NULL;
}

/* ---- what is said of it ---- */

static json_t *cli_models_publish_row(const struct model_store *models, const struct model_entry *entry)
{
    json_t *all = json_models(models, false), *row, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(all, "models"), i, row)
    {
        if (!strcmp(json_string_value(json_object_get(row, "name")), entry->name))
            found = json_incref(row);
    }
    json_decref(all);
    json_object_set_new(found, "default", json_false()); /* that is each worker's */
    return found;
}

/* As job/supply.h has it. */
static char *cli_models_publish_about(const struct model_store *models, const struct model_entry *entry)
{
    struct cli_models_publish_name look = {.names = json_array()};
    model_store_names(models, entry, cli_models_publish_name, &look);
    char *lines = model_conf_lines(model_store_settings(entry));
    json_t *about =
        json_pack("{s:s, s:o, s:s, s:s, s:o}", "file", strrchr(entry->path, '/') + 1, "names", look.names, "licence",
                  entry->licence, "settings", lines ? lines : "", "model", cli_models_publish_row(models, entry));
    char *text = lines && about ? json_dumps(about, JSON_COMPACT | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(about);
    free(lines);
    return text;
}

/* ---- putting and removing ---- */

/* What an older row of this name had, unless another row has it too. */
static char *cli_models_publish_unused(struct cli_models_publish *self, const char *name, const char *sha256)
{
    struct error ignored = ERROR_INIT;
    json_t *list = supply_published(self->store, &ignored), *row;
    char *old = NULL;
    size_t i;
    json_array_foreach(list, i, row) if (!strcmp(json_string_value(json_object_get(row, "name")), name) &&
                                         strcmp(json_string_value(json_object_get(row, "sha256")), sha256) != 0) old =
        strdup(json_string_value(json_object_get(row, "sha256")));
    json_array_foreach(list, i, row) if (old && strcmp(json_string_value(json_object_get(row, "name")), name) != 0 &&
                                         !strcmp(json_string_value(json_object_get(row, "sha256")), old))
    {
        free(old);
        old = NULL;
    }
    json_decref(list);
    return old;
}

/* After the row: a file that no row tells of any more. */
static void cli_models_publish_drop(struct cli_models_publish *self, const char *sha256)
{
    char name[PAYLOAD_NAME_MAX];
    struct error err = ERROR_INIT;
    if (!sha256)
        return;
    published_payload(name, sha256);
    if (self->payload->engine->remove(self->payload, name, &err))
        fprintf(stderr, "restored: %s stays where the files are: %s\n", name, err.text);
}

static enum error_code cli_models_publish_put(struct cli_models_publish *self, const struct model_store *models,
                                              const struct model_entry *entry, struct error *err)
{
    char payload[PAYLOAD_NAME_MAX];
    struct stat st;
    const int fd = open(entry->path, O_RDONLY | O_CLOEXEC);
    char *about = cli_models_publish_about(models, entry);
    published_payload(payload, entry->sha256);
    enum error_code code = OK;
    if (fd < 0 || fstat(fd, &st) != 0)
        code = error_set(err, ERROR_IO, "%s: %m", entry->shown);
    else if (!about)
        code = error_set(err, ERROR_NO_MEMORY, "no memory for %s", entry->name);
    else
        code = self->payload->engine->put(self->payload, payload, fd, (uint64_t)st.st_size, err);
    if (!code) {
        char *old = cli_models_publish_unused(self, entry->name, entry->sha256);
        code = published_put(
            self->store,
            &(struct published){
                .name = entry->name, .sha256 = entry->sha256, .bytes = (uint64_t)st.st_size, .about = about},
            err);
        if (!code)
            cli_models_publish_drop(self, old);
        free(old);
    }
    if (fd >= 0)
        close(fd);
    free(about);
    return code;
}

static enum error_code cli_models_publish_one(struct cli_models_publish *self, const char *name, struct error *err)
{
    struct model_store *models = NULL;
    enum error_code code = cli_models_publish_open(self, name, &models, err);
    if (code)
        return code;
    const struct model_entry *entry = cli_models_publish_find(models, name);
    if (!entry)
        code = error_set(err, ERROR_NOT_FOUND, "%s: there is no such model; restored models lists them", name);
    else if (!entry->recognised)
        code = error_set(err, ERROR_UNSUPPORTED, "%s: %s", entry->shown, entry->reason);
    else if (entry->content)
        code = error_set(err, ERROR_INVALID, "%s is part of the program, so every worker has it", name);
    else
        code = supply_check_file(strrchr(entry->path, '/') + 1, err);
    if (!code && !model_store_hash_entry(models, entry))
        code = error_set(err, ERROR_IO, "%s cannot be read", entry->shown);
    if (!code)
        code = cli_models_publish_put(self, models, entry, err);
    if (!code)
        printf("%s: published, SHA-256 %s; licence: %s%s\n", entry->name, entry->sha256,
               *entry->licence ? entry->licence : "unknown",
               licence_mark(entry->licence));
    model_store_destroy(&models);
    return code;
}

static enum error_code cli_models_publish_remove(struct cli_models_publish *self, const char *name, struct error *err)
{
    bool found = false;
    char *old = cli_models_publish_unused(self, name, "");
    enum error_code code = published_remove(self->store, name, &found, err);
    if (!code && !found)
        code = error_set(err, ERROR_NOT_FOUND, "no model is published under the name %s", name);
    if (!code)
        cli_models_publish_drop(self, old);
    free(old);
    if (!code)
        printf("%s: not published any more\n", name);
    return code;
}

static enum error_code cli_models_publish_list(struct cli_models_publish *self, struct error *err)
{
    json_t *list = supply_published(self->store, err), *row;
    size_t i;
    json_array_foreach(list, i, row)
    {
        const char *licence = json_string_value(json_object_get(json_object_get(row, "about"), "licence"));
        printf("%-36s %12lld  %s  %s\n", json_string_value(json_object_get(row, "name")),
               (long long)json_integer_value(json_object_get(row, "bytes")),
               json_string_value(json_object_get(row, "sha256")), licence && *licence ? licence : "-");
    }
    json_decref(list);
    return err->code;
}

/* ---- the command ---- */

static enum error_code cli_models_publish_all(struct cli_models_publish *self, struct error *err)
{
    const struct config *config = &self->config;
    const struct payload_settings payload = {.where = strcmp(config->payload, "spool") ? config->payload : "auto",
                                             .store = config->store,
                                             .password_file = config->store_password_file};
    enum error_code code = store_open_shared(&self->store, config->store, config->store_password_file, err);
    if (!code)
        code = payload_open(&self->payload, &payload, err);
    for (int i = 0; i < self->count && !code; i++)
        code = (self->remove ? cli_models_publish_remove : cli_models_publish_one)(self, self->names[i], err);
    if (!code && !self->count)
        code = cli_models_publish_list(self, err);
    payload_close(&self->payload);
    store_close(&self->store);
    return code;
}

static enum error_code cli_models_publish_take(struct cli_models_publish *self, struct cli *cli, struct error *err)
{
    if (!*cli->name) {
        if (self->count == NAMES_MOST)
            return error_set(err, ERROR_INVALID, "these are too many names; at most %d at a time", NAMES_MOST);
        self->names[self->count++] = cli->value;
        return OK;
    }
    if (!strcmp(cli->name, "help") || !strcmp(cli->name, "h"))
        return cli_flag(cli, &self->help, err);
    if (!strcmp(cli->name, "remove"))
        return cli_flag(cli, &self->remove, err);
    return cli_config(cli, &self->config, err);
}

int cli_models_publish(int argc, char **argv)
{
    static struct cli_models_publish self;
    struct cli cli;
    struct error err = ERROR_INIT;
    static const char *const own[] = {"remove", NULL};
    enum error_code code = cli_begin(&cli, argc, argv, &self.config, &err);
    cli.own = own;
    while (!code && !self.help && cli_next(&cli, ""))
        code = cli_models_publish_take(&self, &cli, &err);
    if (self.help) {
        cli_models_publish_usage();
        return CLI_OK;
    }
    if (!code && self.remove && !self.count)
        code = error_set(&err, ERROR_INVALID, "restored models publish --remove NAME...: name the models");
    if (!code && !store_is_shared(self.config.store))
        code = error_set(&err, ERROR_INVALID,
                         "models are published in a store that servers share: --store postgresql://…");
    if (code)
        return cli_fail(&err, CLI_USAGE);
    config_apply_log(&self.config, LOG_WARN);
    return cli_models_publish_all(&self, &err) ? cli_fail(&err, CLI_FAILED) : CLI_OK;
}
