/* "Did you mean": the known name that is nearest to a mistyped one. Candidates are offered one by one; '-' and '_', and
 * upper and lower case, count as equal.
 * Thread-safety: a struct suggest belongs to one thread; the functions have no state. */
#ifndef SERVER_SUGGEST_H
#define SERVER_SUGGEST_H

#include <stddef.h>

struct suggest {
    const char *word;
    const char *best; /* the nearest so far, borrowed; NULL: none is near enough */
    int distance;     /* edits between the two */
};

struct suggest suggest_for(const char *word);

/* Takes the candidate if it is nearer than those before it and needs at most one edit (a letter added, dropped,
 * changed, or swapped with the next) for every three letters. */
void suggest_offer(struct suggest *suggest, const char *candidate);

/* "; did you mean BEFOREname?", or "" if no name is near. Returns out. */
const char *suggest_text(const struct suggest *suggest, const char *before, char *out, size_t size);

#endif
