/* The pictures given to restored restore: files, the files of folders, and stdin; what each one is by its header, and
 * the names of the results, unique within a run and across all runs into one folder (cli_index.h).
 * Thread-safety: for the main thread. */
#ifndef SERVER_CLI_CLI_INPUTS_H
#define SERVER_CLI_CLI_INPUTS_H

#include <sys/stat.h>

#include "server/cli/cli_index.h"
#include "server/image/image.h"

struct cli_input {
    char *path;     /* "-": stdin */
    char *plain;    /* the name its results would have without conflicts: the folders below the one that was named (with
                       --recursive), and the file's name without extension */
    char *name;     /* made unique */
    char *source;   /* the file's absolute path, as the index has it */
    uint8_t *bytes; /* all of stdin's bytes; else NULL */
    uint64_t size;  /* bytes */
    int64_t mtime_ns; /* when it was last changed; 0: not known */
    enum image_format format;
    bool alpha;           /* parts of it may be transparent */
    double megapixels;    /* 0: not known */
    int width, height;    /* the same */
    enum error_code code; /* why it cannot be restored; UNSUPPORTED: not a picture that we read */
    char *reason;
};

struct cli_inputs {
    struct cli_input *items;
    size_t count, room;
    bool recursive;      /* take the folders of folders */
    struct stat results; /* the folder of the results, which is skipped; st_nlink 0: there is none */
};

/* Whether a file of that name (or path) is not whole yet: this program and browsers give it its own name then. */
bool cli_inputs_unfinished(const char *name);

/* A file's absolute path, as the index has it: a link counts as a separate file. NULL: no memory. */
char *cli_inputs_source(const char *path);

/* When it was last changed, in ns. */
int64_t cli_inputs_changed(const struct stat *status);

/* Adds a file, a folder's files in the order of their names, or "-". Hidden and unfinished files are skipped; folders
 * in a folder are reported and skipped without `recursive`, links to folders always. Something that is not a readable
 * file (a dangling link, a FIFO) stays in the list and fails in its turn. ERROR_IO, ERROR_NOT_FOUND: the folder cannot
 * be read or is empty. */
enum error_code cli_inputs_add(struct cli_inputs *inputs, const char *path, struct error *err) MUST_CHECK;

/* Adds one file, whose results lie in the folders `below`; "": in none. */
enum error_code cli_inputs_add_file(struct cli_inputs *inputs, const char *path, const char *below,
                                    struct error *err) MUST_CHECK;

/* Reads all headers (and stdin): size, time, format, megapixels, or why not. */
enum error_code cli_inputs_look(struct cli_inputs *inputs, struct error *err) MUST_CHECK;

/* Gives each its name. Inputs such as a.jpg and a.png, or files of the same name in two folders, would write the same
 * files, and so would an input whose name was used for another picture in an earlier run: the later one becomes a_2,
 * and a line on stderr says so. taken: whether the folder has results of that name. A file that was given twice is
 * dropped. */
enum error_code cli_inputs_name(struct cli_inputs *inputs, const struct cli_index *index,
                                bool (*taken)(const char *name, void *user), void *user, struct error *err) MUST_CHECK;

void cli_inputs_free(struct cli_inputs *inputs);

#endif
