/* UTF-8 as JSON wants it: no overlong forms, surrogates or cut characters. Also makes foreign names fit for a terminal,
 * a log or JSON.
 * Thread-safety: functions without state. */
#ifndef RUNTIME_BASE_UTF8_H
#define RUNTIME_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The number of bytes of the character at text, 1..4; 0 if there is no valid one. */
size_t utf8_size(const char *text);

/* Whether the whole text is UTF-8. */
bool utf8_valid(const char *text);

/* Copies text, cut between two characters to fit, with '?' for each byte that belongs to no character. Returns out. */
char *utf8_copy(char *out, size_t size, const char *text);

/* Copies text, cut to fit, with "\xNN" for each byte that belongs to no character or to a control character: names that
 * differ stay different. Returns out. */
char *utf8_escape(char *out, size_t size, const char *text);

/* Replaces the same bytes with '?', in place. */
void utf8_clean(char *text);

#endif
