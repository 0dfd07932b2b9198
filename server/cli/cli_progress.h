/* A progress line on a terminal: which picture is in progress, how much of it is done, and the time left. It is never
 * wider than the terminal, even after a resize. There is none when stderr is not a terminal.
 * Thread-safety: begin and end on one thread; a separate thread draws. */
#ifndef SERVER_CLI_CLI_PROGRESS_H
#define SERVER_CLI_CLI_PROGRESS_H

#include "server/pipeline/pipeline.h"

struct cli_progress;

/* The pictures of a run, and how long the finished ones took. */
struct cli_batch {
    size_t number, count; /* the current one, from 1; of how many */
    double megapixels;    /* of the current one */
    double left;          /* megapixels of those after it */
    double done, seconds; /* megapixels of those that are done, and the time that they took */
};

/* What a line shows. */
struct cli_progress_view {
    const char *name; /* of the picture's file; need not be UTF-8 */
    size_t number, count;
    const char *stage;
    double part;              /* 0..1 */
    int faces[2], tiles[2];   /* done and in all */
    double seconds, all_left; /* left for this picture, and for all of them; below 0: not known yet */
};

/* How much of a restoration is done, 0..1: the faces' part plus the background's (the larger part, if there is a
 * background). faces, tiles: done and total, total 0 while unknown. It never falls as long as both done numbers
 * grow. */
double cli_progress_part(enum stage stage, bool background, const int faces[2], const int tiles[2]);

/* The seconds left for the whole batch, judging by the time per megapixel of its finished pictures or, while there are
 * none, by the current one: `part` of it is done after `elapsed` seconds. Below 0: not known yet. */
double cli_progress_left(const struct cli_batch *batch, double elapsed, double part);

/* The line, at most `columns` columns wide; the name is shortened in its middle, then other parts are dropped. Returns
 * out. */
const char *cli_progress_line(char *out, size_t size, int columns, const struct cli_progress_view *view);

/* The columns that the text takes on a terminal. */
int cli_progress_width(const char *text);

/* NULL where none is shown. r, label and batch are borrowed. */
struct cli_progress *cli_progress_begin(const struct restoration *r, const char *label, const struct cli_batch *batch);

/* Erases the line. NULL-safe. */
void cli_progress_end(struct cli_progress **progress);

#endif
