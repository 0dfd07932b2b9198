/* fuzz_codec for the formats that are read by further libraries, which are slower: with a corpus of its own. */
#include "tests/fuzz/fuzz_codec.c"

/* libheif and dav1d lose some memory when they refuse a picture. A server does not notice, because the process that
 * decodes ends with its picture. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libheif\nleak:libdav1d\nleak:libde265\nleak:libaom\nleak:libstdc++\n";
}
