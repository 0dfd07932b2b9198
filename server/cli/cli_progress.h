/* A progress bar on a terminal: faces and tiles, with the time left. Where stderr is no terminal there is none.
 * Thread-safety: begin and end on one thread; a thread of its own draws. */
#ifndef SERVER_CLI_CLI_PROGRESS_H
#define SERVER_CLI_CLI_PROGRESS_H

#include "server/pipeline/pipeline.h"

struct cli_progress;

/* How much of a restoration is done, 0..1: the faces' part and the background's (the larger one, where there is one)
 * make one whole. faces, tiles: done and in all, in all 0 while that is not known. It never falls as long as what is
 * done of both grows. */
double cli_progress_part(enum stage stage, bool background, const int faces[2], const int tiles[2]);

/* NULL where none is shown. */
struct cli_progress *cli_progress_begin(const struct restoration *r, const char *label);

/* Wipes the bar away. NULL-safe. */
void cli_progress_end(struct cli_progress **progress);

#endif
