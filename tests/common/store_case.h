/* A store of jobs for a case of the store's tests, of either engine, and small words for what they do with it.
 * Thread-safety: one thread, but for the store itself. */
#ifndef TESTS_COMMON_STORE_CASE_H
#define TESTS_COMMON_STORE_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/store/store.h"

extern char case_folder[64], case_path[96];
extern char case_url[256]; /* of a database; "": the engine is SQLite */
extern struct store *case_store;
extern struct error case_err;

#define FINE(call) assert_int_equal((case_err = (struct error)ERROR_INIT, (call)), OK)

/* SQLite, in a file of its own; and PostgreSQL, for what both engines do alike. */
int case_setup(void **state);
int case_teardown(void **state);
int case_setup_postgres(void **state);
int case_teardown_postgres(void **state);
/* Runs these, each with a store of SQLite; both: and then with one of PostgreSQL, if there is one. How many failed. */
struct CMUnitTest;
int case_run(const struct CMUnitTest *tests, size_t count, bool both);
/* The files of SQLite's. */
void case_remove_files(void);
/* The same store once more. */
enum error_code case_open(void);

struct store_job case_job(const char *id, const char *client);
void case_insert(const struct store_job *job);
void case_put(const char *id, const char *client);
/* By the owner "me"; false: there is none. */
bool case_claim(struct store_job *out, int64_t now);
enum error_code case_finish(const char *id, const char *owner, int attempts, bool *held);
struct store_job case_get(const char *id);
enum store_state case_state(const char *id);

/* Claims everything and compares the order, "a1 b1 …". */
void case_expect_order(const char *expected);
void case_expect_queued(uint64_t expected);

/* SQL on the file or the database, past the store; the first value of its last row. */
int64_t case_sql(const char *text);

/* Whoever asks for rows and does not look at them. */
void case_ignore_job(void *context, const struct store_job *job);
void case_ignore_id(void *context, const char *id);

#endif
