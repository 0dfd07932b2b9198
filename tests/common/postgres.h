/* A database of a test's own, in the PostgreSQL that tests/postgres.sh has started. Thread-safety: one thread. */
#ifndef TESTS_COMMON_POSTGRES_H
#define TESTS_COMMON_POSTGRES_H

#include <stdbool.h>

/* Makes an empty one and gives its URL; false: there is no PostgreSQL, and the test says that it was skipped. */
bool postgres_make(char url[256]);
/* Removes it. */
void postgres_remove(void);

/* A statement there, past everything; the first value as a number, -1: none. */
long long postgres_sql(const char *text);

#endif
