/* Where tests find their material: the shared one, ../shared beside the repository or $RESTORED_SHARED, which a user's
 * clone lacks, and our own.
 * Thread-safety: shared_path's result is overwritten by the eighth call after it. */
#ifndef TESTS_COMMON_SHARED_H
#define TESTS_COMMON_SHARED_H

#include <stdbool.h>

/* True if the shared material is there. */
bool shared_present(void);

/* The folder of our own fixtures: $RESTORED_FIXTURES or build/fixtures. */
const char *shared_fixtures(void);

/* The path of a file in the shared material, from a printf form such as "golden/%s". */
const char *shared_path(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
