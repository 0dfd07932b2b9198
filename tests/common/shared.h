/* The shared test material, ../shared beside the repository or $RESTORED_SHARED; a user's clone has none.
 * Thread-safety: shared_path's result is overwritten by the eighth call after it. */
#ifndef TESTS_COMMON_SHARED_H
#define TESTS_COMMON_SHARED_H

#include <stdbool.h>

/* True if it is there. */
bool shared_present(void);

/* The path of a file in it, from a printf form such as "golden/%s". */
const char *shared_path(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
