/* Jobs and their pictures from one store to another, and whether a store is sound: what `restored store` does.
 *
 * Jobs go in groups. A group's pictures are put at the new place first, then its rows are committed there, and only
 * then is it removed at the old one, pictures first. So a process that is killed at any moment loses nothing: what
 * stands at both places is recognised by its id when the move is repeated, and goes from the old one. Thread-safety:
 * for the main thread. */
#ifndef SERVER_STORE_MOVE_H
#define SERVER_STORE_MOVE_H

#include "server/store/payload.h"
#include "server/store/spool.h"
#include "server/store/store.h"

/* A store and where its pictures are: a spool, or payloads. */
struct move_place {
    struct store *store;
    struct spool *spool;     /* NULL: payload */
    struct payload *payload; /* NULL: spool */
};

struct move_counts {
    uint64_t jobs[STORE_STATES]; /* by their states at the old place */
    uint64_t before;             /* of them, were at the new place already */
    uint64_t keyless;            /* lost their Idempotency-Key: another job at the new place has it */
    uint64_t pictures, bytes;    /* moved, or found there */
    uint64_t missing;            /* pictures that are not there, though a row tells of them */
    uint64_t damaged;            /* rows that cannot be read; they stay where they are */
};

/* Told after each group. */
typedef void move_told_fn(void *context, const struct move_counts *counts);

/* Moves all jobs, `group` at a time. A job that is at work (its lease is not over) waits again at the new place, and
 * that attempt does not count; its worker's result is dropped. Results are kept as long as at the old place. */
enum error_code move_jobs(const struct move_place *from, const struct move_place *to, int group, move_told_fn *told,
                          void *context, struct move_counts *out, struct error *err) MUST_CHECK;

/* Reads every row, and asks for every picture that one tells of. Changes nothing. */
enum error_code move_check(const struct move_place *place, struct move_counts *out, struct error *err) MUST_CHECK;

#endif
