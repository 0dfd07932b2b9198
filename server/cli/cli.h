/* What the subcommands share: reading arguments, the configuration, and how an error ends a command.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_H
#define SERVER_CLI_CLI_H

#include "server/config.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 }; /* exit statuses */

/* Walks through arguments: "--name value", "--name=value", "-name value", "-x value", "-xvalue", and those without a
 * dash; after "--" all are the latter. */
struct cli {
    int argc;
    char **argv;
    int next;
    bool only_values; /* "--" was seen */
    /* of the current argument: */
    char name[64];     /* without dashes, '-' as '_'; "" for one without a dash */
    const char *value; /* after '=', or the argument without a dash; NULL: none yet */
};

/* The subcommands: argv begins after the subcommand's name. They return the exit status. */
int cli_serve(int argc, char **argv);
int cli_restore(int argc, char **argv);
int cli_devices(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_models(int argc, char **argv);
int cli_bench(int argc, char **argv);
int cli_healthcheck(int argc, char **argv);

/* Begins: the configuration's defaults, then the file of --config if there is one, then the environment. */
enum error_code cli_begin(struct cli *cli, int argc, char **argv, struct config *config, struct error *err) MUST_CHECK;

/* The next argument; false after the last. letters: which single letters are options that may have their value right
 * behind them ("-s2"). */
bool cli_next(struct cli *cli, const char *letters);

/* The option's value: what came with '=', else the next argument. ERROR_INVALID when there is none. */
enum error_code cli_value(struct cli *cli, const char **value, struct error *err) MUST_CHECK;

/* The value of the option, which is a flag: what came with '=', else the next argument where that is a boolean (true,
 * false, 1, 0, on, off, yes, no), else "true". */
const char *cli_flag_value(struct cli *cli);

/* Whether the current option, a flag, is set: alone, or with a value that is true. */
enum error_code cli_flag(struct cli *cli, bool *set, struct error *err) MUST_CHECK;

/* Takes the current option as a key of the configuration (--models is models_dir, --config is done already).
 * ERROR_INVALID for an unknown option names it. */
enum error_code cli_config(struct cli *cli, struct config *config, struct error *err) MUST_CHECK;

/* Begins a subcommand that lists something and takes --json and keys of the configuration alone. -1: go on, *json says
 * how; else the exit status: its help was printed, or an error. */
int cli_list(int argc, char **argv, const char *command, const char *help, struct config *config, bool *json);

/* Prints "restored: text" to stderr, and returns the status. */
int cli_fail(const struct error *err, int status);

/* The devices as a server sees them that starts now, chosen among by the configuration. tests: of device_list's first
 * test_count devices, in its order. *list is the caller's to free(). */
struct device_status;
struct selftest;
enum error_code cli_devices_read(const struct config *config, const struct selftest *tests, size_t test_count,
                                 struct device_status **list, size_t *count, struct error *err) MUST_CHECK;

/* The model store that the configuration asks for. */
struct model_store;
enum error_code cli_open_store(struct model_store **out, const struct config *config, struct error *err) MUST_CHECK;

#endif
