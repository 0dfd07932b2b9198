/* Which picture each result in a folder came from: the folder's file .restored-index, to which every run adds a line
 * for each picture that it restored. With it, another picture of the same name does not overwrite the results of an
 * earlier one, and --skip-existing knows what a result was made from. Losing the index loses only that.
 * Thread-safety: for the main thread; several processes may add lines to one index. */
#ifndef SERVER_CLI_CLI_INDEX_H
#define SERVER_CLI_CLI_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define CLI_INDEX_NAME ".restored-index"

struct cli_index_entry {
    char *name, *suffix; /* of the results */
    char *source;        /* the picture's absolute path */
    char *options;       /* a fingerprint of what it was restored with */
    uint64_t size;       /* of the picture's file at that time */
    int64_t mtime_ns;
};

struct cli_index;

/* Reads the folder's index of that file name; an empty one where there is none. Lines that cannot be parsed are
 * ignored. */
enum error_code cli_index_open(struct cli_index **out, const char *folder, const char *file,
                               struct error *err) MUST_CHECK;
void cli_index_close(struct cli_index **index);

/* The latest entry of that name and suffix (suffix NULL: of any), or of that source; NULL: none. index may be NULL. */
const struct cli_index_entry *cli_index_find(const struct cli_index *index, const char *name, const char *suffix);
const struct cli_index_entry *cli_index_of_source(const struct cli_index *index, const char *source);

/* Adds the entry, and a line to the file. */
enum error_code cli_index_add(struct cli_index *index, const struct cli_index_entry *entry,
                              struct error *err) MUST_CHECK;

#endif
