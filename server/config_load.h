/* Where the configuration comes from: files, then the environment.
 * Thread-safety: any thread, each on a struct of its own. */
#ifndef SERVER_CONFIG_LOAD_H
#define SERVER_CONFIG_LOAD_H

#include "server/config.h"

#ifndef RESTORED_SYSCONFDIR /* the Makefile's SYSCONFDIR */
#define RESTORED_SYSCONFDIR "/etc"
#endif

/* The files that were looked for, in the order of reading. */
struct config_files {
    struct {
        char path[1024];
        bool read; /* false: it does not exist */
    } file[2];
    int count;
};

/* Reads `key = value` lines; '#' begins a comment. The error names the file and the line. */
enum error_code config_load(struct config *config, const char *path, struct error *err) MUST_CHECK;

/* Reads the file of that name, which must exist. With NULL, reads SYSCONFDIR/restored/restored.conf and then
 * $XDG_CONFIG_HOME/restored/restored.conf (else ~/.config/restored/restored.conf), as far as they exist. */
enum error_code config_load_files(struct config *config, const char *path, struct config_files *files,
                                  struct error *err) MUST_CHECK;

/* Takes RESTORED_KEY for every key from environ ("NAME=value" strings, NULL at the end). Any other RESTORED_ name is
 * ERROR_INVALID, and the text says which key may have been meant. Ignored are RESTORED_CONFIG, which the command line
 * reads; what tests use; and the variables that Kubernetes sets for a service whose name begins with "restored"
 * (RESTORED_SERVICE_HOST, RESTORED_PORT=tcp://… and so on). */
enum error_code config_load_environment(struct config *config, char *const *environment, struct error *err) MUST_CHECK;

#endif
