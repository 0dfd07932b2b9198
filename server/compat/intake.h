/* A JSON body with pictures in it. Its long texts are files in base64, with or without "data:TYPE;base64," before them:
 * they are decoded as they come in, into bodies of their own, and [N] stands in the JSON in place of the N-th. What
 * remains is small, and jansson reads it. Nothing grows with what a client sends but the files and that rest, and both
 * have limits. Thread-safety: an intake belongs to one thread at a time. */
#ifndef SERVER_COMPAT_INTAKE_H
#define SERVER_COMPAT_INTAKE_H

#include <jansson.h>

#include "server/job/body.h"

#define INTAKE_TEXT 512                /* bytes of a text in JSON; a longer one is a file */
#define INTAKE_ADDRESS 4096            /* the same of one that begins like an http address */
#define INTAKE_REST ((size_t)64 << 10) /* bytes of the JSON without its files */
#define INTAKE_DEPTH 16                /* objects and arrays within each other */
#define INTAKE_FILES 64
#define INTAKE_HEAD 256 /* characters before the comma of a data URI */

struct intake;

/* limit: bytes of the body. Files go into the spool (NULL: into memory) when they are large. */
enum error_code intake_create(struct intake **out, struct spool *spool, uint64_t limit, struct error *err) MUST_CHECK;
void intake_destroy(struct intake **intake);

/* The next bytes. ERROR_TOO_LARGE past a limit; ERROR_INVALID, which names the field, for a text that is no base64;
 * those of body_append. */
enum error_code intake_feed(struct intake *intake, const char *data, size_t size, struct error *err) MUST_CHECK;

/* The body is over: its JSON, a new reference. An empty body, or one of blanks, is an empty object. ERROR_INVALID says
 * where it is wrong. */
enum error_code intake_finish(struct intake *intake, json_t **out, struct error *err) MUST_CHECK;

/* The file that a value of that JSON stands for, which the caller clears; each can be taken once. A short text is
 * decoded here. ERROR_INVALID: it is no file; the error begins with its name. */
enum error_code intake_file(struct intake *intake, const json_t *value, const char *name, struct body *out,
                            struct error *err) MUST_CHECK;

/* Whether a text, of which these are the first bytes or all, is meant as an http address. */
bool intake_is_address(const char *text, size_t size);

#endif
