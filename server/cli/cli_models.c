/* restored models: what is found and what each is, what is missing and how to get it. */
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/http/json.h"

static void print_table(const struct model_store *store)
{
    size_t count = model_store_count(store), shown = 0;
    for (size_t i = 0; i < count; i++) {
        const struct model_entry *entry = model_store_at(store, i);
        if (!entry->recognised)
            continue;
        if (!shown++)
            printf("%-36s %-9s %-24s %5s %10s  %-64s %-12s %s\n", "NAME", "KIND", "ARCHITECTURE", "SCALE", "BYTES",
                   "SHA-256", "LICENCE", "KNOWN AS");
        printf("%-36s %-9s %-24s %5d %10llu  %-64s %-12s %s%s%s\n", entry->name, json_kind_name(entry->info.kind),
               entry->info.architecture, entry->info.scale, (unsigned long long)entry->bytes, entry->sha256,
               *entry->licence ? entry->licence : "-", *entry->known_as ? entry->known_as : "-",
               entry->starter ? " (starter)" : "", entry->is_default ? " (default)" : "");
    }
    if (!shown)
        printf("No models were found.\n");
    for (size_t i = 0, first = 1; i < count; i++) {
        const struct model_entry *entry = model_store_at(store, i);
        if (entry->recognised)
            continue;
        printf("%s  %s: %s\n", first ? "\nNot models of ours:\n" : "", entry->path, entry->reason);
        first = 0;
    }
    for (size_t i = 0, first = 1; i < count; i++) {
        const struct model_entry *entry = model_store_at(store, i);
        const struct model_card *card = &entry->card;
        if (!*card->name && !*card->commit && !*card->data)
            continue;
        printf("%s  %s: %s%s%s%s%s\n", first ? "\nWhat the files say of themselves:\n" : "", entry->name, card->name,
               *card->data ? "; data: " : "", card->data, *card->commit ? "; trained by commit " : "", card->commit);
        first = 0;
    }
    const struct model_missing *missing;
    size_t lacking = model_store_missing(store, &missing);
    for (size_t i = 0; i < lacking; i++)
        printf("%s  %-40s get it with: %s\n", i ? "" : "\nOfficial models that are not here:\n", missing[i].file,
               missing[i].get);
}

int cli_models(int argc, char **argv)
{
    struct config config;
    struct error err = ERROR_INIT;
    bool json;
    int listed = cli_list(
        argc, argv, "models",
        "restored models [--models DIR] [--json]\n\nLists the models found: file, network, scale, size, "
        "SHA-256,\nlicence, the official name; and the official ones that are missing. --json: as GET /v1/models.\n",
        &config, &json);
    if (listed >= 0)
        return listed;
    struct model_store *store;
    if (cli_open_store(&store, &config, &err))
        return cli_fail(&err, CLI_FAILED);
    model_store_hash(store);
    if (json) {
        json_t *object = json_models(store);
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        json_decref(object);
        putchar('\n');
    } else {
        print_table(store);
    }
    model_store_destroy(&store);
    return CLI_OK;
}
