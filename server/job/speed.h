/* How fast this machine is: the time that a unit of each kind of work takes on each device, learned from finished jobs
 * and kept in a file between starts. The kinds and their units are defined in estimate.c.
 * Thread-safety: every function may be called from any thread, except speed_open and speed_close. */
#ifndef SERVER_JOB_SPEED_H
#define SERVER_JOB_SPEED_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

#define SPEED_NAME_MAX 192

/* A part of some work: `amount` units of one kind, on one device. */
struct speed_term {
    char name[SPEED_NAME_MAX]; /* device and kind; no control characters */
    double amount;
    double guess;  /* seconds a unit, used while nothing is known */
    double rate;   /* seconds a unit: what is known, else the guess */
    double spread; /* jobs were off by this factor, both ways */
    bool known;
};

struct speed_table;

/* Reads what was learned before; a file that is damaged, too long or of another version is ignored. folder NULL:
 * nothing is kept. ERROR_NO_MEMORY. */
enum error_code speed_open(struct speed_table **out, const char *folder, struct error *err) MUST_CHECK;
/* Saves it. NULL-safe. */
void speed_close(struct speed_table **table);

/* Fills in rate, spread and known of each term. */
void speed_read(struct speed_table *table, struct speed_term *terms, int count);

/* Work of these terms took `seconds`. Known rates move towards that, those with the largest share the most; unknown
 * ones get what the others leave. */
void speed_learn(struct speed_table *table, struct speed_term *terms, int count, double seconds);

/* The mean of something that is no speed but is learned as well, over the last jobs: the guess while nothing is known,
 * and then as if one job had been like that. The name is as a term's. */
double speed_mean(struct speed_table *table, const char *name, double guess);
void speed_learn_mean(struct speed_table *table, const char *name, double guess, double value);

/* Writes the file if anything was learned since the last time; without `now`, at most once a minute. */
void speed_save(struct speed_table *table, bool now);

#endif
