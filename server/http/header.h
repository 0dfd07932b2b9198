/* Header values, received and sent: request ids, what a client accepts, file names. Pure functions of text.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_HEADER_H
#define SERVER_HTTP_HEADER_H

#include <stdbool.h>
#include <stddef.h>

#define HEADER_NOTES_MAX 2048 /* bytes of X-Restored-Notes */
#define HEADER_DAMAGE_MAX 80  /* of X-Restored-Damage, with its final 0 */

/* Matches ^[A-Za-z0-9_-]{1,64}$. */
bool header_is_request_id(const char *text);

/* A header's name as RFC 9110 allows it (a token). libmicrohttpd accepts "Content-Length " with a blank. */
bool header_is_token(const char *text, size_t size);

/* A header's value: no control characters except the tab (RFC 9110 5.5). */
bool header_is_value(const char *text, size_t size);

/* A request's target: not empty, no blanks or control characters. Bytes beyond ASCII are allowed. */
bool header_is_target(const char *text, size_t size);

/* A name, an IPv4 address or an IPv6 address in brackets, perhaps with a port (RFC 3986 3.2.2); only the characters are
 * checked. The text ends with a 0, a blank or a slash behind the size. */
bool header_is_host(const char *text, size_t size);

/* Digits only: no sign, blank or list. */
bool header_is_length(const char *text, size_t size);

/* The quality, 0..1000, that an Accept header gives a media type, by its most specific range; a missing or empty header
 * accepts all. named (may be NULL): whether a range other than the wildcard for everything names it. */
int header_accept(const char *accept, const char *type, bool *named);

/* The same of an Accept-Encoding header for a coding; without one no coding is wanted. */
int header_accept_coding(const char *accept, const char *coding);

/* The name of a result's file, made from the client's file name: its last path part without extension, "_suffix" if
 * there is one, ".extension". Control characters, quotes, path parts and what file systems forbid are removed. name
 * NULL or empty: "restored". */
#define HEADER_FILE_MAX 264
void header_file_name(const char *name, const char *suffix, const char *extension, char out[HEADER_FILE_MAX]);

/* "attachment; filename=...; filename*=UTF-8''..." with that name; the plain form is ASCII. */
void header_disposition(const char *name, const char *suffix, const char *extension, char *out, size_t size);

/* A JSON array of texts, in ASCII, of at most HEADER_NOTES_MAX bytes: only whole texts and, if not all fit, a last one
 * that says how many are missing. Bytes that are not UTF-8 become '?'. */
void header_notes(const char *const *notes, int count, char out[HEADER_NOTES_MAX + 1]);

/* How many defects of each kind (defect.h) were found: "thin=2, crack=0, …". */
void header_damage(const int *counts, char out[HEADER_DAMAGE_MAX]);

#endif
