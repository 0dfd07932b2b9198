#include "server/http/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/base64.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define AUTH_FILE_MAX (256 * 1024)
#define AUTH_ENTRIES_MAX 1000
#define AUTH_WORDS_MAX 5
#define AUTH_DIGITS "0123456789"
#define AUTH_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

_Static_assert(AUTH_HASH_SIZE == SHA256_DIGEST_SIZE, "the hash is SHA-256");

struct auth {
    pthread_mutex_t lock;
    char path[1024];
    struct auth_table table; /* under the lock */
    _Atomic uint64_t generation;
};

struct auth_word {
    const char *text;
    size_t size;
};

static void auth_hash(const char *token, size_t size, uint8_t out[AUTH_HASH_SIZE])
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    sha256_update(&hash, size, (const uint8_t *)token);
    sha256_digest(&hash, AUTH_HASH_SIZE, out);
}

static bool auth_only(const struct auth_word *word, const char *allowed)
{
    for (size_t i = 0; i < word->size; i++)
        if (!word->text[i] || !strchr(allowed, word->text[i]))
            return false;
    return true;
}

/* RFC 6750's b64token, so that a header can hold it. */
static bool auth_is_token(const struct auth_word *word)
{
    struct auth_word body = *word;
    while (body.size && body.text[body.size - 1] == '=')
        body.size--;
    return body.size && auth_only(&body, AUTH_LETTERS AUTH_DIGITS "-._~+/");
}

/* "token1" and so on: what lines without a name are called. */
static bool auth_is_reserved(const struct auth_word *word)
{
    const struct auth_word rest = {word->text + 5, word->size - 5};
    return word->size > 5 && !memcmp(word->text, "token", 5) && auth_only(&rest, AUTH_DIGITS);
}

/* A positive number of up to nine digits and a decimal point. */
static bool auth_number(const struct auth_word *word, size_t skip, bool whole, double *out)
{
    char text[16], *end;
    const struct auth_word number = {word->text + skip, word->size - skip};
    if (!number.size || number.size > 9 || !auth_only(&number, whole ? AUTH_DIGITS : AUTH_DIGITS "."))
        return false;
    memcpy(text, number.text, number.size);
    text[number.size] = 0;
    *out = strtod(text, &end);
    return !*end && *out > 0;
}

static bool auth_begins(const struct auth_word *word, const char *with)
{
    return word->size >= strlen(with) && !memcmp(word->text, with, strlen(with));
}

/* The words behind name and token. */
static bool auth_set_right(struct auth_identity *identity, const struct auth_word *word)
{
    double number = 0;
    if (word->size == 5 && auth_begins(word, "admin") && !identity->admin)
        return identity->admin = true;
    if (auth_begins(word, "jobs=") && !identity->jobs && auth_number(word, 5, true, &number)) {
        identity->jobs = (uint32_t)number; /* at most nine digits */
        return true;
    }
    return auth_begins(word, "megapixels=") && identity->megapixels <= 0 &&
           auth_number(word, 11, false, &identity->megapixels);
}

/* Whether the entry fits those before it; NULL: it does. line: the one that it does not fit. */
static const char *auth_conflict(const struct auth_table *table, const struct auth_entry *entry, int *line)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct auth_identity *a = &table->entries[i].identity, *b = &entry->identity;
        *line = table->entries[i].line;
        if (memeql_sec(table->entries[i].hash, entry->hash, AUTH_HASH_SIZE))
            return "the same token stands";
        if (!strcmp(a->name, b->name) && (a->admin != b->admin || a->jobs != b->jobs || a->megapixels < b->megapixels ||
                                          a->megapixels > b->megapixels))
            return "this name has other rights or limits";
    }
    return NULL;
}

static enum error_code auth_parse_words(struct auth_table *table, const struct auth_word *words, int count, int line,
                                        const char *path, struct error *err)
{
    struct auth_entry entry = {.line = line};
    struct auth_identity *identity = &entry.identity;
    const bool named = count > 1;
    const struct auth_word *token = &words[named];
    int other = 0;
    if (named && (words[0].size >= AUTH_NAME_MAX || !auth_only(&words[0], AUTH_LETTERS AUTH_DIGITS "._-")))
        return error_set(err, ERROR_INVALID,
                         "%s:%d: a token's name has at most %d letters, digits and . _ -; a line is NAME TOKEN [admin] "
                         "[jobs=N] [megapixels=N]",
                         path, line, AUTH_NAME_MAX - 1);
    if (named && auth_is_reserved(&words[0]))
        return error_set(err, ERROR_INVALID, "%s:%d: token1, token2 ... are the names of tokens without one", path,
                         line);
    if (token->size < AUTH_TOKEN_MIN || token->size > AUTH_TOKEN_MAX)
        return error_set(err, ERROR_INVALID, "%s:%d: the token has %zu characters; %d to %d are allowed", path, line,
                         token->size, AUTH_TOKEN_MIN, AUTH_TOKEN_MAX);
    if (!auth_is_token(token))
        return error_set(err, ERROR_INVALID,
                         "%s:%d: the token holds other characters than letters, digits and - . _ ~ + / (and = at its "
                         "end)",
                         path, line);
    if (named)
        memcpy(identity->name, words[0].text, words[0].size);
    else
        snprintf(identity->name, sizeof identity->name, "token%d", ++table->unnamed);
    for (int i = 2; i < count; i++)
        if (!auth_set_right(identity, &words[i]))
            return error_set(err, ERROR_INVALID,
                             "%s:%d: word %d is none of admin, jobs=N and megapixels=N (numbers above 0), or stands "
                             "there twice",
                             path, line, i + 1);
    auth_hash(token->text, token->size, entry.hash);
    const char *conflict = auth_conflict(table, &entry, &other);
    if (conflict)
        return error_set(err, ERROR_INVALID, "%s:%d: %s in line %d", path, line, conflict, other);
    if (table->count == AUTH_ENTRIES_MAX)
        return error_set(err, ERROR_INVALID, "%s:%d: there are more than %d tokens", path, line, AUTH_ENTRIES_MAX);
    table->entries[table->count++] = entry;
    return OK;
}

static enum error_code auth_parse_line(struct auth_table *table, const char *text, size_t size, int line,
                                       const char *path, struct error *err)
{
    static const char blanks[] = " \t\r\v\f";
    struct auth_word words[AUTH_WORDS_MAX];
    int count = 0;
    if (memchr(text, 0, size))
        return error_set(err, ERROR_INVALID, "%s:%d: the line holds a zero byte", path, line);
    for (size_t at = 0;;) {
        while (at < size && strchr(blanks, text[at]))
            at++;
        if (at == size || text[at] == '#')
            break;
        const size_t begin = at;
        while (at < size && !strchr(blanks, text[at]))
            at++;
        if (count == AUTH_WORDS_MAX)
            return error_set(err, ERROR_INVALID,
                             "%s:%d: there are too many words; a line is NAME TOKEN [admin] [jobs=N] [megapixels=N]",
                             path, line);
        words[count++] = (struct auth_word){text + begin, at - begin};
    }
    return count ? auth_parse_words(table, words, count, line, path, err) : OK;
}

enum error_code auth_parse(struct auth_table *out, const char *text, size_t size, const char *path, struct error *err)
{
    *out = (struct auth_table){.entries = mem_calloc(AUTH_ENTRIES_MAX, sizeof *out->entries)};
    if (!out->entries)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the tokens");
    enum error_code code = OK;
    int line = 1;
    for (size_t at = 0; !code && at < size; line++) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - (text + at)) : size - at;
        code = auth_parse_line(out, text + at, length, line, path, err);
        at += length + 1;
    }
    if (!code && !out->count)
        code = error_set(err, ERROR_INVALID, "%s: there is no token in it, so that nobody could use the server", path);
    if (code)
        auth_table_free(out);
    return code;
}

void auth_table_free(struct auth_table *table)
{
    free(table->entries);
    *table = (struct auth_table){0};
}

const struct auth_entry *auth_table_find(const struct auth_table *table, const char *token, size_t size)
{
    const struct auth_entry *found = NULL;
    uint8_t hash[AUTH_HASH_SIZE];
    auth_hash(token, size, hash);
    for (size_t i = 0; i < table->count; i++)
        if (memeql_sec(table->entries[i].hash, hash, AUTH_HASH_SIZE))
            found = &table->entries[i];
    return found;
}

static enum error_code auth_read(struct auth_table *out, const char *path, struct error *err)
{
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO,
                         "auth_token_file: %s: %m", path);
    enum error_code code = OK;
    char *text = NULL;
    size_t size = 0;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode))
        code = error_set(err, ERROR_IO, "auth_token_file: %s is not a file", path);
    else if (status.st_mode & S_IRWXO)
        code = error_set(err, ERROR_INVALID,
                         "auth_token_file: everybody on this machine may open %s; take that away with: chmod o= %s",
                         path, path);
    else if (status.st_size > AUTH_FILE_MAX)
        code = error_set(err, ERROR_INVALID, "auth_token_file: %s is larger than %d KiB", path, AUTH_FILE_MAX / 1024);
    else if (!(text = mem_alloc(AUTH_FILE_MAX, 1)))
        code = error_set(err, ERROR_NO_MEMORY, "no memory for the tokens");
    for (ssize_t n = 1; !code && n && size < AUTH_FILE_MAX; size += (size_t)n)
        if ((n = read(fd, text + size, AUTH_FILE_MAX - size)) < 0) {
            code = error_set(err, ERROR_IO, "auth_token_file: %s: %m", path);
            n = 0;
        }
    close(fd);
    if (!code)
        code = auth_parse(out, text, size, path, err);
    if (text)
        explicit_bzero(text, AUTH_FILE_MAX);
    free(text);
    return code;
}

enum error_code auth_reload(struct auth *auth, struct error *err)
{
    struct auth_table next = {0}, old;
    enum error_code code = *auth->path ? auth_read(&next, auth->path, err) : OK;
    if (code)
        return code;
    pthread_mutex_lock(&auth->lock);
    old = auth->table;
    auth->table = next;
    atomic_fetch_add(&auth->generation, 1);
    pthread_mutex_unlock(&auth->lock);
    auth_table_free(&old);
    return OK;
}

enum error_code auth_create(struct auth **out, const char *path, struct error *err)
{
    struct auth *auth = *out = mem_calloc(1, sizeof *auth);
    if (!auth)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the tokens");
    pthread_mutex_init(&auth->lock, NULL);
    snprintf(auth->path, sizeof auth->path, "%s", path);
    enum error_code code = auth_reload(auth, err);
    if (code)
        auth_destroy(out);
    return code;
}

void auth_destroy(struct auth **auth)
{
    struct auth *old = *auth;
    *auth = NULL;
    if (!old)
        return;
    auth_table_free(&old->table);
    pthread_mutex_destroy(&old->lock);
    free(old);
}

uint64_t auth_generation(const struct auth *auth)
{
    return atomic_load(&auth->generation);
}

size_t auth_count(struct auth *auth)
{
    pthread_mutex_lock(&auth->lock);
    const size_t count = auth->table.count;
    pthread_mutex_unlock(&auth->lock);
    return count;
}

bool auth_from_basic(const char *authorization, char out[AUTH_TOKEN_MAX + 16])
{
    uint8_t pair[BASE64_DECODE_LENGTH(1024) + 1];
    struct base64_decode_ctx decoder;
    size_t size = sizeof pair;
    if (!authorization || strncasecmp(authorization, "Basic ", 6) != 0 || strlen(authorization) > 1024)
        return false;
    authorization += 6 + strspn(authorization + 6, " ");
    base64_decode_init(&decoder);
    const bool good = base64_decode_update(&decoder, &size, pair, strlen(authorization), authorization) &&
                      base64_decode_final(&decoder);
    const uint8_t *colon = good ? memchr(pair, ':', size) : NULL;
    const size_t length = colon ? size - (size_t)(colon + 1 - pair) : 0;
    const bool fits = colon && length <= AUTH_TOKEN_MAX;
    if (fits)
        snprintf(out, AUTH_TOKEN_MAX + 16, "Bearer %.*s", (int)length, (const char *)colon + 1);
    explicit_bzero(pair, sizeof pair);
    return fits;
}

struct auth_identity auth_anonymous(bool all)
{
    return (struct auth_identity){.admin = all, .anonymous = true};
}

enum auth_verdict auth_check(struct auth *auth, const char *authorization, struct auth_identity *out)
{
    enum auth_verdict verdict = AUTH_GOOD;
    pthread_mutex_lock(&auth->lock);
    if (!auth->table.count) {
        *out = auth_anonymous(true);
    } else if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0) {
        verdict = AUTH_MISSING;
    } else {
        authorization += 7 + strspn(authorization + 7, " ");
        const size_t size = strcspn(authorization, " \t");
        const struct auth_entry *entry =
            size <= AUTH_TOKEN_MAX ? auth_table_find(&auth->table, authorization, size) : NULL;
        if (entry)
            *out = entry->identity;
        else
            verdict = AUTH_WRONG;
    }
    pthread_mutex_unlock(&auth->lock);
    return verdict;
}
