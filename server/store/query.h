/* A statement of the store at work, and what its rows hold. Nothing that a row says is believed: it may be damaged.
 * Thread-safety: as the side that it works on. */
#ifndef SERVER_STORE_QUERY_H
#define SERVER_STORE_QUERY_H

#include "server/store/store_private.h"

/* A statement at work: query_start, query_row until it is false, query_end. */
struct query {
    struct side *side;
    void *work; /* the engine's */
    int at;     /* the row, where the engine has all of them */
    bool done;  /* it has had its last row; another step would carry it out once more */
    enum error_code code;
    struct error *err;
};

/* types: a letter for each of $1, $2 …: t text or NULL, b 32 bytes or NULL, i int64_t, d double. The values must stay
 * until the end. */
struct query query_start(struct side *side, enum store_statement which, struct error *err, const char *types, ...);
/* The next row; false: there is none, or it failed. */
bool query_row(struct query *query);
/* A statement that writes has been carried out only when it was asked for all its rows, so this does. */
enum error_code query_end(struct query *query);

/* --- a row: the values of its columns ------------------------------------------------------------------------------
 */

int64_t query_integer(const struct query *query, int column);
/* "" for NULL. */
const char *query_text(const struct query *query, int column);
/* A copy; NULL for NULL. */
char *query_copy(struct query *query, int column);
/* Ids name files, so one from a damaged store must not be anything else. */
bool query_id_sane(const char *id);
/* An id, "" for one that is damaged; false: it is. */
bool query_id(const struct query *query, int column, char id[33]);
/* Finite and not negative; else 0. */
double query_double(const struct query *query, int column);
uint64_t query_size(const struct query *query, int column);
/* A row of STORE_SQL_COLUMNS, to be cleared also after a failure; false: it is damaged. */
bool query_job(struct query *query, struct store_job *job);

#endif
