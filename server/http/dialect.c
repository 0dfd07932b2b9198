#include "server/http/dialect.h"

#include <stdio.h>
#include <string.h>

/* The next of some words with commas or blanks between; its size, 0 after the last. */
static size_t dialect_word(const char **at)
{
    *at += strspn(*at, ", ");
    return strcspn(*at, ", ");
}

bool dialect_on(const struct dialect *dialect, const char *compat)
{
    for (size_t size; (size = dialect_word(&compat)); compat += size)
        if (size == strlen(dialect->name) && !memcmp(compat, dialect->name, size))
            return true;
    return false;
}

static bool dialect_has(const struct dialect *dialect, const char *path)
{
    const char *at = dialect->paths;
    for (size_t size; (size = dialect_word(&at)); at += size)
        if (*at == '=' ? strlen(path) == size - 1 && !memcmp(path, at + 1, size - 1) : !strncmp(path, at, size))
            return true;
    return false;
}

const struct dialect *dialect_of(const char *path, const char *compat)
{
    for (const struct dialect *const *row = dialects; *row; row++)
        if (dialect_has(*row, path) && dialect_on(*row, compat))
            return *row;
    return NULL;
}

const struct dialect *dialect_shared(const char *path, const char *compat)
{
    for (const struct dialect *const *row = dialects; *row; row++)
        if ((*row)->shared && !strcmp(path, (*row)->shared) && dialect_on(*row, compat))
            return *row;
    return NULL;
}

enum error_code dialect_check(const char *compat, struct error *err)
{
    char known[128] = "";
    int words = 0;
    bool none = false;
    const char *at = compat;
    for (const struct dialect *const *row = dialects; *row; row++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "", (*row)->name);
    for (size_t size; (size = dialect_word(&at)); at += size, words++) {
        const struct dialect *const *known_one = dialects;
        const bool is_none = size == 4 && !memcmp(at, "none", 4);
        while (*known_one && (strlen((*known_one)->name) != size || memcmp((*known_one)->name, at, size) != 0))
            known_one++;
        none = none || is_none;
        if (!*known_one && !is_none)
            return error_set(err, ERROR_INVALID, "compat: there is no \"%.*s\"; allowed is none, or some of %s",
                             (int)(size < 40 ? size : 40), at, known);
    }
    return words && (!none || words == 1)
               ? OK
               : error_set(err, ERROR_INVALID, "compat: \"%.60s\" is not none alone, or some of %s", compat, known);
}
