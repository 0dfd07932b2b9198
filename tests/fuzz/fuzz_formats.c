/* fuzz_codec for the formats that are read by further libraries, which are slower: with a corpus of its own. */
#include "tests/fuzz/fuzz_codec.c"
