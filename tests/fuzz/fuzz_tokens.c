/* Any bytes as a file of tokens: refused with a line, or a table in which everybody has a name and one set of rights,
 * and no hash stands twice; and the same bytes as a header find nobody that they should not. */
#include <stdlib.h>
#include <string.h>

#include "server/http/auth.h"
#include "tests/fuzz/exercise.h"

static void check(const struct auth_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct auth_identity *a = &table->entries[i].identity;
        if (!*a->name || !memchr(a->name, 0, sizeof a->name) || a->anonymous || a->megapixels < 0)
            abort();
        for (size_t j = 0; j < i; j++) {
            const struct auth_identity *b = &table->entries[j].identity;
            if (!memcmp(table->entries[i].hash, table->entries[j].hash, AUTH_HASH_SIZE))
                abort();
            if (!strcmp(a->name, b->name) && (a->admin != b->admin || a->jobs != b->jobs))
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct auth_table table;
    struct error err = ERROR_INIT;
    const enum error_code code = auth_parse(&table, (const char *)data, size, "tokens", &err);
    if (code != err.code || (code && (!err.text[0] || table.entries || table.count)) || (!code && !table.count))
        abort();
    if (code)
        return 0;
    check(&table);
    if (auth_table_find(&table, (const char *)data, size) && (size < AUTH_TOKEN_MIN || size > AUTH_TOKEN_MAX))
        abort();
    auth_table_free(&table);
    exercise_opened++;
    return 0;
}
