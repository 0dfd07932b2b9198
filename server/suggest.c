#include "server/suggest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define SUGGEST_MAX 48 /* bytes of a name; longer ones are never near */

struct suggest suggest_for(const char *word)
{
    return (struct suggest){.word = word, .distance = INT_MAX};
}

static char suggest_plain(char c)
{
    return c == '-' ? '_' : (char)tolower((unsigned char)c);
}

static int suggest_least(int a, int b)
{
    return a < b ? a : b;
}

/* The number of edits from a to b: the Damerau-Levenshtein distance, with no letter edited twice. */
static int suggest_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    int rows[3][SUGGEST_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_size; j++)
        last[j] = (int)j;
    for (size_t i = 1; i <= a_size; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= b_size; j++) {
            const char x = suggest_plain(a[i - 1]), y = suggest_plain(b[j - 1]);
            row[j] = suggest_least(last[j - 1] + (x != y), 1 + suggest_least(last[j], row[j - 1]));
            if (i > 1 && j > 1 && x == suggest_plain(b[j - 2]) && y == suggest_plain(a[i - 2]))
                row[j] = suggest_least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[b_size];
}

void suggest_offer(struct suggest *suggest, const char *candidate)
{
    size_t a = strlen(suggest->word), b = strlen(candidate);
    if (a > SUGGEST_MAX || b > SUGGEST_MAX)
        return;
    int distance = suggest_distance(suggest->word, a, candidate, b);
    if (distance < suggest->distance && distance <= (int)(a > b ? a : b) / 3) {
        suggest->best = candidate;
        suggest->distance = distance;
    }
}

const char *suggest_text(const struct suggest *suggest, const char *before, char *out, size_t size)
{
    *out = 0;
    if (suggest->best)
        snprintf(out, size, "; did you mean %s%s?", before, suggest->best);
    return out;
}
