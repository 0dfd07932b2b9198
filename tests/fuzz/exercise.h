/* What every fuzzer has: its entry and a count; and what those of a checkpoint reader do with their input.
 * Thread-safety: one thread. */
#ifndef TESTS_FUZZ_EXERCISE_H
#define TESTS_FUZZ_EXERCISE_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry, one a fuzzer. Always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Opens the bytes; if they open, looks up and reads the tensors, of large ones not all. Stops the program if a
 * refusal is not told as it should be. */
void exercise(const uint8_t *data, size_t size);

/* How many inputs have opened so far. */
extern size_t exercise_opened;

#endif
