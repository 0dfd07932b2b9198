/* What a test asks of a checkpoint that should be refused: the code, and a text of the form "file: entry: reason".
 * A mismatch prints what was got on stderr, so that a test need only assert true. Thread-safety: no shared state. */
#ifndef TESTS_COMMON_REFUSE_H
#define TESTS_COMMON_REFUSE_H

#include <stdbool.h>

#include "runtime/base/error.h"
#include "tests/common/checkpoint_writer.h"

/* Opens the bytes under the name "hostile.bin"; true if they are refused with that code and a text that begins with
 * "hostile.bin: ", names the entry next (NULL: the file has none to name), and has the reason behind it. */
bool refuse(const struct checkpoint_buffer *file, enum error_code code, const char *entry, const char *reason);

/* Whether each of the file's proper beginnings is refused as CORRUPT, or as no checkpoint at all while shorter than
 * magic bytes. */
bool refuse_beginnings(const struct checkpoint_buffer *file, size_t magic);

/* Whether the bytes open and every tensor can be read. */
bool refuse_nothing(const struct checkpoint_buffer *file);

#endif
