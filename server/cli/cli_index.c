#include "server/cli/cli_index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define INDEX_FIELDS 6
#define INDEX_HEAD                                                                                                     \
    "# restored: which picture each result in this folder came from, so that another picture of the same name does "   \
    "not\n"                                                                                                            \
    "# overwrite it. name, suffix, size and time of the picture, options, path; %XX is a byte.\n"

struct cli_index {
    char *path;
    struct cli_index_entry **entries;
    size_t count, room;
    void *by_result, *by_name, *by_source; /* trees of entries; the latest of equal ones */
};

static int cli_index_compare_result(const void *a, const void *b)
{
    const struct cli_index_entry *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    return names ? names : strcmp(x->suffix, y->suffix);
}

static int cli_index_compare_name(const void *a, const void *b)
{
    return strcmp(((const struct cli_index_entry *)a)->name, ((const struct cli_index_entry *)b)->name);
}

static int cli_index_compare_source(const void *a, const void *b)
{
    return strcmp(((const struct cli_index_entry *)a)->source, ((const struct cli_index_entry *)b)->source);
}

static void cli_index_entry_free(struct cli_index_entry *entry)
{
    if (!entry)
        return;
    free(entry->name);
    free(entry->suffix);
    free(entry->source);
    free(entry->options);
    free(entry);
}

/* Decodes %XX in place; false when the text is malformed. */
static bool cli_index_decode(char *text)
{
    char *to = text;
    for (; *text; text++) {
        unsigned byte;
        int used = 0;
        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        if (sscanf(text + 1, "%2x%n", &byte, &used) != 1 || used != 2 || !byte)
            return false;
        *to++ = (char)byte;
        text += 2;
    }
    *to = 0;
    return true;
}

static void cli_index_encode(FILE *out, const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == '%' || *text == 0x7f)
            fprintf(out, "%%%02x", (unsigned char)*text);
        else
            putc(*text, out);
}

static bool cli_index_put(void **tree, struct cli_index_entry *entry, int (*compare)(const void *, const void *))
{
    void *node = tsearch(entry, tree, compare);
    if (node)
        *(struct cli_index_entry **)node = entry;
    return node;
}

/* Takes the entry. */
static enum error_code cli_index_keep(struct cli_index *index, struct cli_index_entry *entry, struct error *err)
{
    if (index->count == index->room) {
        size_t room = index->room ? 2 * index->room : 64;
        struct cli_index_entry **grown = realloc(index->entries, room * sizeof *grown);
        if (!grown) {
            cli_index_entry_free(entry);
            return error_set(err, ERROR_NO_MEMORY, "no memory for the index of results");
        }
        index->entries = grown;
        index->room = room;
    }
    index->entries[index->count++] = entry;
    if (!cli_index_put(&index->by_result, entry, cli_index_compare_result) ||
        !cli_index_put(&index->by_name, entry, cli_index_compare_name) ||
        !cli_index_put(&index->by_source, entry, cli_index_compare_source))
        return error_set(err, ERROR_NO_MEMORY, "no memory for the index of results");
    return OK;
}

static enum error_code cli_index_copy(struct cli_index *index, const struct cli_index_entry *of, struct error *err)
{
    struct cli_index_entry *entry = mem_calloc(1, sizeof *entry);
    if (!entry)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the index of results");
    *entry = *of;
    entry->name = strdup(of->name);
    entry->suffix = strdup(of->suffix);
    entry->options = strdup(of->options);
    entry->source = strdup(of->source);
    if (!entry->name || !entry->suffix || !entry->options || !entry->source) {
        cli_index_entry_free(entry);
        return error_set(err, ERROR_NO_MEMORY, "no memory for the index of results");
    }
    return cli_index_keep(index, entry, err);
}

static enum error_code cli_index_line(struct cli_index *index, char *line, struct error *err)
{
    char *field[INDEX_FIELDS], *rest = line, *end;
    line[strcspn(line, "\n")] = 0;
    for (int i = 0; i < INDEX_FIELDS; i++)
        if (!(field[i] = strsep(&rest, "\t")) || !cli_index_decode(field[i]))
            return OK;
    const struct cli_index_entry entry = {.name = field[0],
                                          .suffix = field[1],
                                          .size = strtoull(field[2], &end, 10),
                                          .mtime_ns = strtoll(field[3], NULL, 10),
                                          .options = field[4],
                                          .source = field[5]};
    return cli_index_copy(index, &entry, err);
}

enum error_code cli_index_open(struct cli_index **out, const char *folder, const char *name, struct error *err)
{
    struct cli_index *index = *out = mem_calloc(1, sizeof *index);
    if (!index || asprintf(&index->path, "%s/%s", folder, name) < 0) {
        free(index);
        *out = NULL;
        return error_set(err, ERROR_NO_MEMORY, "no memory for the index of results");
    }
    FILE *file = fopen(index->path, "re");
    enum error_code code = OK;
    if (!file && errno != ENOENT)
        code = error_set(err, ERROR_IO, "%s: %m", index->path);
    char *line = NULL;
    size_t room = 0;
    while (!code && file && getline(&line, &room, file) >= 0)
        if (*line != '#')
            code = cli_index_line(index, line, err);
    free(line);
    if (file)
        fclose(file);
    if (code)
        cli_index_close(out);
    return code;
}

static void cli_index_keep_nothing(void *node)
{
    (void)node;
}

void cli_index_close(struct cli_index **index)
{
    struct cli_index *old = *index;
    *index = NULL;
    if (!old)
        return;
    tdestroy(old->by_result, cli_index_keep_nothing);
    tdestroy(old->by_name, cli_index_keep_nothing);
    tdestroy(old->by_source, cli_index_keep_nothing);
    for (size_t i = 0; i < old->count; i++)
        cli_index_entry_free(old->entries[i]);
    free(old->entries);
    free(old->path);
    free(old);
}

static const struct cli_index_entry *cli_index_get(void *const *tree, const struct cli_index_entry *like,
                                                   int (*compare)(const void *, const void *))
{
    const void *node = tfind(like, tree, compare);
    return node ? *(struct cli_index_entry *const *)node : NULL;
}

const struct cli_index_entry *cli_index_find(const struct cli_index *index, const char *name, const char *suffix)
{
    const struct cli_index_entry like = {.name = (char *)(uintptr_t)name, .suffix = (char *)(uintptr_t)suffix};
    if (!index)
        return NULL;
    return suffix ? cli_index_get(&index->by_result, &like, cli_index_compare_result)
                  : cli_index_get(&index->by_name, &like, cli_index_compare_name);
}

const struct cli_index_entry *cli_index_of_source(const struct cli_index *index, const char *source)
{
    const struct cli_index_entry like = {.source = (char *)(uintptr_t)source};
    return index ? cli_index_get(&index->by_source, &like, cli_index_compare_source) : NULL;
}

enum error_code cli_index_add(struct cli_index *index, const struct cli_index_entry *entry, struct error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the index of results");
    const bool fresh = access(index->path, F_OK) != 0;
    if (fresh)
        fputs(INDEX_HEAD, out);
    cli_index_encode(out, entry->name);
    putc('\t', out);
    cli_index_encode(out, entry->suffix);
    fprintf(out, "\t%" PRIu64 "\t%" PRId64 "\t%s\t", entry->size, entry->mtime_ns, entry->options);
    cli_index_encode(out, entry->source);
    putc('\n', out);
    enum error_code code = fclose(out) ? error_set(err, ERROR_NO_MEMORY, "no memory for the index of results") : OK;
    /* one write, so that lines of several processes do not mix */
    int fd = code ? -1 : open(index->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (!code && (fd < 0 || write(fd, text, size) != (ssize_t)size))
        code = error_set(err, ERROR_IO, "%s: %m", index->path);
    if (fd >= 0)
        close(fd);
    free(text);
    return code ? code : cli_index_copy(index, entry, err);
}
