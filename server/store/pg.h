/* A connection to PostgreSQL by libpq, for the store's engine and the payloads in rows. No call waits long for a server
 * that does not answer: connecting ends after PG_CONNECT_SECONDS a host, a statement is cancelled after PG_ANSWER_MS,
 * and a connection without acknowledgements breaks after PG_DEAD_MS. The server, in turn, ends a transaction from which
 * it has heard nothing for PG_IDLE_MS: what is locked there, such as a claimed job, would wait for TCP to notice.
 * Thread-safety: a connection belongs to one thread at a time. */
#ifndef SERVER_STORE_PG_H
#define SERVER_STORE_PG_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

#define PG_CONNECT_SECONDS 3
#define PG_ANSWER_MS 10000
#define PG_DEAD_MS 8000
#define PG_IDLE_MS "30000"

/* Whether this program was built with libpq; if not, the error says so. */
enum error_code pg_available(struct error *err) MUST_CHECK;

#ifdef RESTORED_LIBPQ
#include <libpq-fe.h>

/* Connects. where: a URI, with everything that libpq understands in it (several hosts, target_session_attrs, sslmode,
 * sslrootcert …). password_file: its first line is the password; "" or NULL: none. ERROR_INVALID: the settings are
 * wrong; ERROR_IO: no connection. No error has the password. */
enum error_code pg_connect(PGconn **out, const char *where, const char *password_file, struct error *err) MUST_CHECK;

/* Whether an idle connection still is one, as far as this side has heard. */
bool pg_alive(PGconn *db);

/* The error of a result (NULL: of the connection). ERROR_IO: the connection or the server is gone, or refuses now;
 * ERROR_FULL: its disk is full; ERROR_NO_MEMORY; ERROR_CORRUPT: its tables are not what they should be. */
enum error_code pg_failed(PGconn *db, const PGresult *result, struct error *err);

/* The result of what was sent, after PG_ANSWER_MS that of its cancellation; NULL: the connection is of no use any more.
 * PQclear. */
PGresult *pg_receive(PGconn *db);
/* The next one of several, which waits as long; NULL: there is none, or the connection is of no use any more. */
PGresult *pg_next(PGconn *db);

/* A statement with text parameters (values may be NULL), whose rows, if any, go to *out (NULL: nowhere). */
enum error_code pg_do(PGconn *db, const char *sql, int count, const char *const *values, PGresult **out,
                      struct error *err) MUST_CHECK;

/* Commits. One that no standby has confirmed, because synchronous replication did not answer, is ERROR_IO: a fail-over
 * may lose it. */
enum error_code pg_commit(PGconn *db, struct error *err) MUST_CHECK;
#endif

#endif
