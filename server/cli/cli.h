/* What the subcommands share: reading arguments and the configuration, and ending a command with an error.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_H
#define SERVER_CLI_CLI_H

#include <limits.h>

#include "server/config_load.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit statuses */

/* Walks through arguments: "--name value", "--name=value", "-name value", "-x value", "-xvalue", and those without a
 * dash; after "--" all arguments are of the last kind. */
struct cli {
    int argc;
    char **argv;
    int next;
    bool only_values; /* "--" was seen */
    struct config_files files;
    /* for "did you mean": the subcommand's own options, NULL at the end (or NULL), and whether it takes option_rows */
    const char *const *own;
    bool takes_options;
    /* of the current argument: */
    char name[64];     /* without dashes, '-' as '_'; "" for one without a dash */
    bool dashed;       /* it began with two: --w is an option of its own, -w is short for another */
    const char *value; /* after '=', or the argument without a dash; NULL: none yet */
};

/* The subcommands: argv begins after the subcommand's name. They return the exit status. */
int cli_serve(int argc, char **argv);
int cli_restore(int argc, char **argv);
int cli_watch(int argc, char **argv);
int cli_mcp(int argc, char **argv);
int cli_devices(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_models(int argc, char **argv);
int cli_models_get(int argc, char **argv);     /* after "models get" */
int cli_models_add(int argc, char **argv);     /* after "models add" */
int cli_models_scan(int argc, char **argv);    /* after "models", with --scan */
int cli_models_publish(int argc, char **argv); /* after "models publish" */
/* What a file is that has no checkpoint's ending, and is not read; NULL: no model, or a .bin beside its .param. */
const char *cli_models_other(const char *path);
int cli_store(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_healthcheck(int argc, char **argv);

/* Begins with the configuration's defaults, then the file of --config, else that of RESTORED_CONFIG, else the files of
 * config_load_files, then the environment. If one of them is wrong and --help is among the arguments, it becomes the
 * only one, so that help is shown whatever the configuration holds. */
enum error_code cli_begin(struct cli *cli, int argc, char **argv, struct config *config, struct error *err) MUST_CHECK;

/* The next argument; false after the last. letters: the single-letter options that may have their value right behind
 * them ("-s2"). */
bool cli_next(struct cli *cli, const char *letters);

/* A letter gets the name that it stands for: i, o, v, s, w, h; unless it has two dashes and is the name of an option.
 */
void cli_letter(struct cli *cli);

/* The option's value: the text after '=', else the next argument. ERROR_INVALID when there is none. */
enum error_code cli_value(struct cli *cli, const char **value, struct error *err) MUST_CHECK;

/* The value of an option that is a flag: the text after '=', else the next argument if that is a boolean (true, false,
 * 1, 0, on, off, yes, no), else "true". */
const char *cli_flag_value(struct cli *cli);

/* Whether the current option, a flag, is set: alone, or with a value that is true. */
enum error_code cli_flag(struct cli *cli, bool *set, struct error *err) MUST_CHECK;

/* Takes the current option as a configuration key (--models is models_dir; --config has been handled already).
 * ERROR_INVALID for an unknown option names it and the one that was probably meant. */
enum error_code cli_config(struct cli *cli, struct config *config, struct error *err) MUST_CHECK;

/* Begins a subcommand that lists something and takes only --json and configuration keys. -1: go on, *json says how;
 * else the exit status: its help or an error was printed. */
int cli_list(int argc, char **argv, const char *command, const char *help, struct config *config, bool *json);

/* Prints "restored: text" to stderr, and returns the status. */
int cli_fail(const struct error *err, int status);

/* The devices as a server that starts now would see them, with the configuration's choice. tests: results of
 * device_list's first test_count devices, in its order. *list is the caller's to free(). */
struct device_status;
struct selftest;
enum error_code cli_devices_read(const struct config *config, const struct selftest *tests, size_t test_count,
                                 struct device_status **list, size_t *count, struct error *err) MUST_CHECK;

/* The folder that models are put into: `to` if it is not NULL, else models_dir, else the user's. ERROR_INVALID: there
 * is no home folder. */
enum error_code cli_models_folder(const char *to, const struct config *config, char out[PATH_MAX],
                                  struct error *err) MUST_CHECK;

/* Whether a server accepts the configuration: what of store, role and the rest goes together, and as
 * server_check_config. */
enum error_code cli_check_config(const struct config *config, struct error *err) MUST_CHECK;

/* The model store of the configuration. */
struct model_store;
enum error_code cli_open_store(struct model_store **out, const struct config *config, struct error *err) MUST_CHECK;

#endif
