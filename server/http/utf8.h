/* UTF-8 as JSON wants it: no overlong forms, surrogates or cut characters.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_UTF8_H
#define SERVER_HTTP_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at text, 1..4; 0 if there is none. */
size_t utf8_size(const char *text);

/* Whether the whole text is UTF-8. */
bool utf8_valid(const char *text);

/* Copies text, cut to fit between two characters, with '?' for each byte that is not of one. Returns out. */
char *utf8_copy(char *out, size_t size, const char *text);

#endif
