/* A progress bar on a terminal: tiles and faces, with the time left. Where stderr is no terminal there is none.
 * Thread-safety: begin and end on one thread; a thread of its own draws. */
#ifndef SERVER_CLI_CLI_PROGRESS_H
#define SERVER_CLI_CLI_PROGRESS_H

#include "server/pipeline/pipeline.h"

struct cli_progress;

/* NULL where none is shown. */
struct cli_progress *cli_progress_begin(const struct restoration *r, const char *label);

/* Wipes the bar away. NULL-safe. */
void cli_progress_end(struct cli_progress **progress);

#endif
