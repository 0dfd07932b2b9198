/* restored models: lists which models there are, which are missing and how to get them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/http/json.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/model_store_private.h"

/* What stands in the column of licences, which is as wide as the widest. */
static int cli_models_licence(char *out, size_t size, const struct model_entry *entry)
{
    return snprintf(out, size, "%s%s", *entry->licence ? entry->licence : "-", licence_mark(entry->licence));
}

static void cli_models_print_table(const struct model_store *store)
{
    size_t count = model_store_count(store), shown = 0;
    char licence[128];
    int wide = 12;
    for (size_t i = 0; i < count; i++) {
        const struct model_entry *entry = model_store_at(store, i);
        const int width = model_store_unread(entry) ? 0 : cli_models_licence(licence, sizeof licence, entry);
        wide = width > wide ? width : wide;
    }
    for (size_t i = 0; i < count; i++) {
        const struct model_entry *entry = model_store_at(store, i);
        if (model_store_unread(entry))
            continue;
        if (!shown++)
            printf("%-36s %-9s %-24s %5s %10s  %-64s %-*s %s\n", "NAME", "KIND", "ARCHITECTURE", "SCALE", "BYTES",
                   "SHA-256", wide, "LICENCE", "KNOWN AS");
        cli_models_licence(licence, sizeof licence, entry);
        printf("%-36s %-9s %-24s %5d %10llu  %-64s %-*s %s%s%s\n", entry->name, json_kind_name(entry->info.kind),
               entry->info.architecture, entry->info.scale, (unsigned long long)entry->bytes, entry->sha256, wide,
               licence, *entry->known_as ? entry->known_as : "-", entry->starter ? " (starter)" : "",
               entry->is_default ? " (default)" : "");
    }
    if (!shown)
        printf("No models were found.\n");
    for (size_t i = 0, first = 1; i < count; i++) {
        const char *path = model_store_at(store, i)->shown, *why = model_store_unread(model_store_at(store, i));
        if (!why)
            continue;
        printf("%s  %s: %s\n", first ? "\nFiles not recognised as models, or damaged:\n" : "", path, why);
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
        printf("%s  %-40s get it with: %s\n", i ? "" : "\nOfficial models that are not installed:\n", missing[i].file,
               missing[i].get);
}

int cli_models(int argc, char **argv)
{
    struct config config;
    struct error err = ERROR_INIT;
    bool json;
    if (argc > 0 && !strcmp(argv[0], "get"))
        return cli_models_get(argc - 1, argv + 1);
    if (argc > 0 && !strcmp(argv[0], "add"))
        return cli_models_add(argc - 1, argv + 1);
    if (argc > 0 && !strcmp(argv[0], "publish"))
        return cli_models_publish(argc - 1, argv + 1);
    for (int i = 0; i < argc; i++)
        if (!strcmp(argv[i], "--scan"))
            return cli_models_scan(argc, argv);
    int listed = cli_list(
        argc, argv, "models",
        "restored models [--models DIR] [--json]\nrestored models get NAME...|default|all [--to DIR] [--mirror "
        "DIR|URL]\nrestored models add FILE|URL [--name NAME] [--sha256 HEX] [--licence TEXT] [--to DIR]\n"
        "restored models publish NAME|FILE... [--remove] [--store URI]\n"
        "restored models --scan DIR [--json]\n\n"
        "Lists the models that are installed: file, network, scale, size, SHA-256, licence and official name; and the\n"
        "official ones that are missing. --json: as GET /v1/models. get downloads them; see restored models get "
        "--help.\nadd takes a file of yours; see restored models add --help. publish puts models into a "
        "store that servers share;\nsee restored models publish --help. --scan tells of each file in a folder of "
        "any program, such as ComfyUI's or upscayl's models, whether\n"
        "it is read, and as what.\n",
        &config, &json);
    if (listed >= 0)
        return listed;
    struct model_store *store;
    if (cli_open_store(&store, &config, &err))
        return cli_fail(&err, CLI_FAILED);
    model_store_hash(store);
    if (json) {
        json_t *object = json_models(store, true);
        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        json_decref(object);
        putchar('\n');
    } else {
        cli_models_print_table(store);
    }
    model_store_destroy(&store);
    return CLI_OK;
}
