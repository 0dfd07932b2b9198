/* Tiles that servers with one PostgreSQL compute for each other, as rows: a task is one picture of one server, its
 * tiles wait for helpers, are held by one, or are done. They are worth nothing beyond their job, so the tables are
 * unlogged: a crash of the database empties them, and whoever shares computes the rest itself.
 *
 * A server is alive as long as the table of servers says so (store_worker); what a dead one holds is offered again.
 * Thread-safety: a struct share_rows belongs to one thread at a time. Every function but the first connects if need be,
 * and may fail with ERROR_IO; ERROR_NOT_FOUND: the task is gone. */
#ifndef SERVER_STORE_SHARE_ROWS_H
#define SERVER_STORE_SHARE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define SHARE_ROWS_MOST 256 /* tiles of a task at a time, at most */

enum share_state { SHARE_OFFERED, SHARE_HELD, SHARE_DONE, SHARE_FAILED };

struct share_rows;

enum error_code share_rows_open(struct share_rows **out, const char *where, const char *password_file,
                                struct error *err) MUST_CHECK;
void share_rows_close(struct share_rows **rows); /* NULL-safe */

/* --- whose picture it is -------------------------------------------------------------------------------------------
 */

#define SHARE_CALL "share" /* what all who listen (listen.h) are told when a task begins */

/* A task for helpers of this class (whose devices compute the same) that have this model. Earlier tasks of the job, and
 * those of servers that are gone, are removed. */
enum error_code share_rows_begin(struct share_rows *rows, const char *owner, const char *job, const char *class,
                                 const char *model, int64_t *task, struct error *err) MUST_CHECK;
/* This owner's task of the job, whatever its number: whoever had no answer to the beginning does not know it. */
enum error_code share_rows_end(struct share_rows *rows, const char *owner, const char *job,
                               struct error *err) MUST_CHECK;

struct share_look {
    bool wanted; /* somebody has asked for tiles lately */
    int count;
    struct share_look_tile {
        int n;
        enum share_state state;
    } tiles[SHARE_ROWS_MOST];
};
/* How it stands. Tiles of helpers that are gone are offered again first. */
enum error_code share_rows_look(struct share_rows *rows, int64_t task, struct share_look *out,
                                struct error *err) MUST_CHECK;

/* spec: a text of the caller's. */
enum error_code share_rows_offer(struct share_rows *rows, int64_t task, int n, const char *spec, const void *input,
                                 size_t size, struct error *err) MUST_CHECK;

/* Takes back tile n, or, n negative, the first one that is offered; not one that is held or done. *n negative: nothing
 * was taken. */
enum error_code share_rows_withdraw(struct share_rows *rows, int64_t task, int *n, struct error *err) MUST_CHECK;

/* The result of a tile that is done, which is removed. *out: free(). ERROR_CORRUPT: there is none. */
enum error_code share_rows_fetch(struct share_rows *rows, int64_t task, int n, void **out, size_t *size,
                                 struct error *err) MUST_CHECK;
/* Removes it, whoever holds it. */
enum error_code share_rows_drop(struct share_rows *rows, int64_t task, int n, struct error *err) MUST_CHECK;

/* --- who helps -----------------------------------------------------------------------------------------------------
 */

/* Whether somebody helps with this model. */
typedef bool share_rows_has_fn(void *context, const char *model);
/* A task of another server, which is told that tiles are wanted: one with tiles on offer before others, and of these
 * the one that was told so longest ago, so that helpers spread over the pictures. *task 0: there is none. */
enum error_code share_rows_find(struct share_rows *rows, const char *owner, const char *class, share_rows_has_fn *has,
                                void *context, int64_t *task, char model[256], struct error *err) MUST_CHECK;

struct share_tile {
    int64_t task;
    int n;
    char spec[160];
    void *input; /* free() */
    size_t size;
};
/* Its first tile that is offered becomes this helper's, and its owner is told that tiles are wanted. ahead: only where
 * more are on offer than there are helpers at work, so that none of them lacks it. *found false: none is. */
enum error_code share_rows_claim(struct share_rows *rows, int64_t task, const char *helper, bool ahead,
                                 struct share_tile *out, bool *found, struct error *err) MUST_CHECK;
/* Its result. *held false: nobody wants it any more. */
enum error_code share_rows_deliver(struct share_rows *rows, const struct share_tile *tile, const char *helper,
                                   const void *output, size_t size, bool *held, struct error *err) MUST_CHECK;
/* It is offered again; failed: its owner must compute it. */
enum error_code share_rows_return(struct share_rows *rows, const struct share_tile *tile, const char *helper,
                                  bool failed, struct error *err) MUST_CHECK;

#endif
