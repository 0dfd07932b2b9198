#include "server/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "server/http/server.h"
#include "server/pipeline/model_store.h"
#include "server/pipeline/options.h"
#include "server/store/store.h"
#include "server/suggest.h"

enum error_code cli_begin(struct cli *cli, int argc, char **argv, struct config *config, struct error *err)
{
    *cli = (struct cli){.argc = argc, .argv = argv};
    config_init(config);
    const char *file = getenv("RESTORED_CONFIG");
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strncmp(argv[i], "--config=", 9))
            file = argv[i] + 9;
        else if (!strcmp(argv[i], "--config") && i + 1 < argc)
            file = argv[i + 1];
    enum error_code code = config_load_files(config, file && *file ? file : NULL, &cli->files, err);
    if (!code)
        code = config_load_environment(config, environ, err);
    static char *only_help[] = {"--help"};
    for (int i = 0; code && i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-help") || !strcmp(argv[i], "-h")) {
            error_clear(err);
            cli->argc = 1;
            cli->argv = only_help;
            return OK;
        }
    return code;
}

bool cli_next(struct cli *cli, const char *letters)
{
    while (cli->next < cli->argc) {
        const char *argument = cli->argv[cli->next++];
        *cli->name = 0;
        cli->dashed = false;
        cli->value = argument;
        if (cli->only_values || argument[0] != '-' || !argument[1])
            return true;
        if (!strcmp(argument, "--")) {
            cli->only_values = true;
            continue;
        }
        cli->dashed = argument[1] == '-';
        const char *name = argument + 1 + cli->dashed;
        size_t size = strcspn(name, "=");
        cli->value = name[size] ? name + size + 1 : NULL;
        /* "-s2": no option's name goes on with a digit or a path after that letter */
        if (!cli->dashed && size > 1 && strchr(letters, *name) && !strchr("abcdefghijklmnopqrstuvwxyz", name[1])) {
            cli->value = name + 1;
            size = 1;
        }
        size = size < sizeof cli->name ? size : sizeof cli->name - 1;
        for (size_t i = 0; i < size; i++)
            cli->name[i] = name[i] == '-' ? '_' : name[i];
        cli->name[size] = 0;
        return true;
    }
    return false;
}

void cli_letter(struct cli *cli)
{
    static const char *const letters[][2] = {{"i", "input"},   {"o", "output"}, {"v", "version"},
                                             {"s", "upscale"}, {"w", "weight"}, {"h", "help"}};
    if (cli->dashed && options_find(cli->name))
        return;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (!strcmp(cli->name, letters[i][0]))
            strcpy(cli->name, letters[i][1]);
}

enum error_code cli_value(struct cli *cli, const char **value, struct error *err)
{
    if (!cli->value && cli->next < cli->argc)
        cli->value = cli->argv[cli->next++];
    *value = cli->value;
    return cli->value ? OK : error_set(err, ERROR_INVALID, "--%s needs a value", cli->name);
}

/* 1 or 0; -1: it is no boolean. */
static int cli_boolean_of(const char *text)
{
    static const char *const words[] = {"false", "true", "0", "1", "off", "on", "no", "yes"};
    for (int i = 0; i < 8; i++)
        if (!strcasecmp(text, words[i]))
            return i & 1;
    return -1;
}

const char *cli_flag_value(struct cli *cli)
{
    if (!cli->value && cli->next < cli->argc && cli_boolean_of(cli->argv[cli->next]) >= 0)
        cli->value = cli->argv[cli->next++];
    return cli->value ? cli->value : "true";
}

enum error_code cli_flag(struct cli *cli, bool *set, struct error *err)
{
    int value = cli_boolean_of(cli_flag_value(cli));
    if (value < 0)
        return error_set(err, ERROR_INVALID, "--%s: \"%s\" is not true or false", cli->name, cli->value);
    *set = value;
    return OK;
}

static enum error_code cli_unknown(const struct cli *cli, struct error *err)
{
    static const char *const always[] = {"help", "config", "models", NULL};
    char hint[96];
    struct suggest suggest = suggest_for(cli->name);
    for (int i = 0; cli->own && cli->own[i]; i++)
        suggest_offer(&suggest, cli->own[i]);
    for (int i = 0; cli->takes_options && i < option_row_count; i++)
        suggest_offer(&suggest, option_rows[i].name);
    for (int i = 0; always[i]; i++)
        suggest_offer(&suggest, always[i]);
    for (size_t i = 0; config_key(i); i++)
        suggest_offer(&suggest, config_key(i));
    suggest_text(&suggest, "--", hint, sizeof hint);
    return error_set(err, ERROR_INVALID, "unknown option --%s%s", cli->name,
                     *hint ? hint : "; --help lists the options");
}

enum error_code cli_config(struct cli *cli, struct config *config, struct error *err)
{
    const char *value;
    struct error local = ERROR_INIT;
    if (!strcmp(cli->name, "config"))
        return cli_value(cli, &value, err);
    const char *key = !strcmp(cli->name, "models") ? "models_dir" : cli->name;
    char source[80];
    snprintf(source, sizeof source, "flag --%s", cli->name);
    /* an unknown option must not be reported as a missing value */
    struct config probe = *config;
    if (config_set(&probe, key, "", source, &local) == ERROR_NOT_FOUND)
        return cli_unknown(cli, err);
    enum error_code code = cli_value(cli, &value, err);
    return code ? code : config_set(config, key, value, source, err);
}

int cli_fail(const struct error *err, int status)
{
    fprintf(stderr, "restored: %s\n", err->text);
    return status;
}

/* Whether SIGTERM or SIGINT is pending, when the server has blocked them. */
static bool cli_interrupted(void)
{
    sigset_t waiting;
    return sigpending(&waiting) == 0 && (sigismember(&waiting, SIGTERM) == 1 || sigismember(&waiting, SIGINT) == 1);
}

enum error_code cli_open_store(struct model_store **out, const struct config *config, struct error *err)
{
    struct model_defaults defaults = {.starters = config->starter_models ? embed_starters() : NULL,
                                      .cancelled = cli_interrupted};
    char folder[1100];
    if (config_models_cache(config, folder, sizeof folder))
        defaults.fetched = folder;
    if (*config->default_detector)
        defaults.name[ROLE_DETECTOR] = config->default_detector;
    if (*config->default_version)
        defaults.name[ROLE_FACE] = config->default_version;
    if (*config->default_parser)
        defaults.name[ROLE_PARSER] = config->default_parser;
    if (*config->default_bg_upsampler)
        defaults.name[ROLE_UPSCALER] = config->default_bg_upsampler;
    if (*config->models_dir && access(config->models_dir, R_OK | X_OK))
        log_event(LOG_WARN, "no-folder", "models_dir=\"%s\" text=\"%s\"", config->models_dir, strerror(errno));
    return model_store_create(out, *config->models_dir ? config->models_dir : NULL, &defaults, err);
}

int cli_list(int argc, char **argv, const char *command, const char *help, struct config *config, bool *json)
{
    struct cli cli;
    struct error err = ERROR_INIT;
    bool wants_help = false;
    static const char *const own[] = {"json", NULL};
    *json = false;
    enum error_code code = cli_begin(&cli, argc, argv, config, &err);
    cli.own = own;
    while (!code && cli_next(&cli, "")) {
        if (!*cli.name)
            code = error_set(&err, ERROR_INVALID, "%s takes no \"%s\"", command, cli.value);
        else if (!strcmp(cli.name, "help") || !strcmp(cli.name, "h"))
            code = cli_flag(&cli, &wants_help, &err);
        else if (!strcmp(cli.name, "json"))
            code = cli_flag(&cli, json, &err);
        else
            code = cli_config(&cli, config, &err);
    }
    if (wants_help) {
        fputs(help, stdout);
        return CLI_OK;
    }
    if (code)
        return cli_fail(&err, CLI_USAGE);
    config_apply_log(config, LOG_WARN);
    return -1;
}

enum error_code cli_check_config(const struct config *config, struct error *err)
{
    const bool shared = store_is_shared(config->store);
    if (!shared && strcmp(config->store, "sqlite") != 0)
        return error_set(err, ERROR_INVALID, "store = \"%.40s…\" is neither sqlite nor postgresql://…", config->store);
    if (!shared && config->role != SERVE_BOTH)
        return error_set(err, ERROR_INVALID, "role = front and role = worker need store = postgresql://…");
    if (!shared && config->models_from == MODELS_FROM_STORE)
        return error_set(err, ERROR_INVALID, "models_from = store needs store = postgresql://…");
    if (config->role == SERVE_WORKER && !*config->metrics_listen)
        return error_set(err, ERROR_INVALID,
                         "role = worker needs metrics_listen: the address for its health and metrics");
    return server_check_config(config, err);
}
