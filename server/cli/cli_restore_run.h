/* What restored restore and restored watch share: their arguments, and what is done with one picture.
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_RESTORE_RUN_H
#define SERVER_CLI_CLI_RESTORE_RUN_H

#include <stdatomic.h>
#include <stdio.h>

#include "runtime/base/file.h"
#include "server/cli/cli.h"
#include "server/cli/cli_engine.h"
#include "server/cli/cli_inputs.h"
#include "server/cli/cli_progress.h"

enum cli_restore_target { TARGET_FOLDER, TARGET_FILE, TARGET_STDOUT };

/* What became of the inputs. */
enum cli_restore_outcome {
    OUTCOME_RESTORED,
    OUTCOME_FAILED,
    OUTCOME_FOREIGN, /* no picture that we read */
    OUTCOME_THERE,   /* its result existed, with --skip-existing */
    OUTCOME_COUNT
};

struct cli_restore_run {
    struct config config;
    struct options options;
    const char *output;
    const char *device;    /* of --device; "": none */
    const char *mask_path; /* of --mask; NULL: none */
    struct file mask;
    bool json, skip_existing, dry_run, save_mask;
    enum cli_restore_target target;
    FILE *told; /* where reports and the summary go: stderr when the picture goes to stdout */
    const char **paths;
    size_t path_count;
    struct cli_inputs inputs;
    struct cli_index *index; /* of TARGET_FOLDER */
    struct cli_batch batch;
    size_t outcomes[OUTCOME_COUNT];
    enum error_code failed; /* why the latest one failed */
    char failure[sizeof((struct error *)0)->text];
    char fingerprint[24]; /* of the options, for the index */
    char **notes;         /* those that were printed */
    size_t note_count;
    struct model_store *store;
    struct cli_engine engine;
    char cache[1024];
};
/* Set by SIGINT and SIGTERM after cli_restore_catch; the running restoration is cancelled, too. stop: a descriptor of
 * eventfd that becomes readable, or -1. */
extern atomic_int cli_restore_stopped;
void cli_restore_catch(int stop);

/* Takes one argument: of this command, of the options or of the configuration. paths has room for all arguments. */
enum error_code cli_restore_take(struct cli_restore_run *run, struct cli *cli, bool *help,
                                 struct error *err) MUST_CHECK;
void cli_restore_print_options(void); /* the rows of --help for the options of a request */

/* Opens the folder of the results: checks that it can be written, reads its index; for TARGET_FILE the first alone. */
enum error_code cli_restore_open_output(struct cli_restore_run *run, struct error *err) MUST_CHECK;
/* The models and the device. */
enum error_code cli_restore_open_engine(struct cli_restore_run *run, struct error *err) MUST_CHECK;

bool cli_restore_is_there(const struct cli_restore_run *run, const struct cli_input *input);
bool cli_restore_taken(const char *name, void *run);

/* Restores an input, writes its results, and says so; a failure is printed and kept in run->failed. */
enum cli_restore_outcome cli_restore_one(struct cli_restore_run *run, const struct cli_input *input);

/* An error with options as they are written on the command line, on stderr. Returns the status. */
int cli_restore_fail(const struct error *err, int status);

void cli_restore_free(struct cli_restore_run *run);

#endif
