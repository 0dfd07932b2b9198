/* Who asks: the tokens of auth_token_file, and the name, rights and limits of each. Only hashes of tokens are kept.
 * Thread-safety: every function may be called from any thread, except create and destroy; a table belongs to one. */
#ifndef SERVER_HTTP_AUTH_H
#define SERVER_HTTP_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define AUTH_NAME_MAX 64   /* with its final 0 */
#define AUTH_TOKEN_MIN 16  /* characters */
#define AUTH_TOKEN_MAX 256 /* the same */
#define AUTH_HASH_SIZE 32

/* Who a request is from; a copy, so that it stays what it is when the file is read again. */
struct auth_identity {
    char name[AUTH_NAME_MAX]; /* "": anonymous */
    bool admin;               /* sees the jobs of all; so does everybody where there are no tokens */
    bool anonymous;           /* no token was asked for */
    uint32_t jobs;            /* that may wait at once; 0: no limit of its own */
    double megapixels;        /* of pictures a minute; 0: no limit of its own */
};

/* What a file of tokens says, line by line. */
struct auth_table {
    struct auth_entry {
        uint8_t hash[AUTH_HASH_SIZE]; /* SHA-256 of the token */
        struct auth_identity identity;
        int line;
    } * entries;
    size_t count;
    int unnamed; /* of them: lines that are a token alone */
};

/* Reads `NAME TOKEN [admin] [jobs=N] [megapixels=N]` lines, or lines that are a token alone. ERROR_INVALID names path
 * and line, and never shows what may be a token. On failure the table is empty. */
enum error_code auth_parse(struct auth_table *out, const char *text, size_t size, const char *path,
                           struct error *err) MUST_CHECK;
void auth_table_free(struct auth_table *table);

/* The entry of a token, NULL if there is none. All entries are compared, each in constant time. */
const struct auth_entry *auth_table_find(const struct auth_table *table, const char *token, size_t size);

struct auth;

/* path "": there are no tokens, and everybody may do everything. ERROR_IO, ERROR_NOT_FOUND and ERROR_INVALID (what the
 * file says, or that others than its owner and group may read it) name the file. */
enum error_code auth_create(struct auth **out, const char *path, struct error *err) MUST_CHECK;
void auth_destroy(struct auth **auth);

/* Reads the file again. After an error the old tokens stay. */
enum error_code auth_reload(struct auth *auth, struct error *err) MUST_CHECK;

/* Grows each time the tokens have been read. */
uint64_t auth_generation(const struct auth *auth);

/* How many tokens there are; 0: none are asked for. */
size_t auth_count(struct auth *auth);

enum auth_verdict { AUTH_GOOD, AUTH_MISSING, AUTH_WRONG };

/* Whom an Authorization header (NULL: none was sent) makes its sender. AUTH_GOOD and anonymous if there are no tokens.
 */
enum auth_verdict auth_check(struct auth *auth, const char *authorization, struct auth_identity *out);

/* The same header for a client that sends HTTP Basic (RFC 7617): the password is the token, and the user's name is not
 * looked at. false: it is not that. */
bool auth_from_basic(const char *authorization, char out[AUTH_TOKEN_MAX + 16]);

/* Somebody who needs no token here. all: and may do everything. */
struct auth_identity auth_anonymous(bool all);

#endif
