/* A folder and those below it, watched by inotify: gives the files that are there and those that come, each when it has
 * been written completely.
 * Thread-safety: for one thread. */
#ifndef SERVER_CLI_WATCH_FOLDER_H
#define SERVER_CLI_WATCH_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/base/error.h"

struct watch_settings {
    double settle; /* seconds for which a file's size and time must stay the same before it is given */
    double rescan; /* seconds between looks through all folders, where the system does not report changes; 0: none */
    struct stat results; /* a folder that is left out; st_nlink 0: there is none */
    int stop;            /* a descriptor: watch_next ends when it can be read */
    /* Whether a file is to be given at all, asked when it is found and again before it is given. */
    bool (*wanted)(const char *path, const struct stat *status, void *user);
    void *user;
};

struct watch_file {
    const char *path;  /* the folder as it was given, and what is below it */
    const char *below; /* the folders between, without the file; "": none */
};

struct watch;

/* Looks through the folder and begins to watch. Hidden files and folders and links to folders are left out, and so,
 * with a line on stderr, are folders more than 100 deep. ERROR_IO: it cannot be read, or the system allows no more
 * watches. */
enum error_code watch_create(struct watch **out, const char *folder, const struct watch_settings *settings,
                             struct error *err) MUST_CHECK;
void watch_destroy(struct watch **watch);

/* Waits for the next file; *file is valid until the next call. ERROR_CANCELLED: `stop` can be read. ERROR_IO: the
 * folder is gone. */
enum error_code watch_next(struct watch *watch, struct watch_file *file, struct error *err) MUST_CHECK;

/* Gives the file that watch_next gave last once more, after that many seconds. */
enum error_code watch_again(struct watch *watch, double seconds, struct error *err) MUST_CHECK;

size_t watch_waiting(const struct watch *watch); /* how many files were found and not given yet */

#endif
