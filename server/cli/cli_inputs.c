#include "server/cli/cli_inputs.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/image/codec.h"

#define INPUTS_STDIN_MAX ((size_t)1 << 30) /* bytes */
#define INPUTS_NAME_MAX 1024

static const char cli_inputs_no_memory[] = "no memory for the list of inputs";

/* plain is taken. */
static enum error_code cli_inputs_append(struct cli_inputs *inputs, const char *path, char *plain, struct error *err)
{
    if (inputs->count == inputs->room) {
        size_t room = inputs->room ? 2 * inputs->room : 16;
        struct cli_input *grown = realloc(inputs->items, room * sizeof *grown);
        if (!grown) {
            free(plain);
            return error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
        }
        inputs->items = grown;
        inputs->room = room;
    }
    struct cli_input *input = &inputs->items[inputs->count++];
    *input = (struct cli_input){.path = strdup(path), .plain = plain};
    return plain && input->path ? OK : error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
}

/* below, '/' and the file's name without its extension. */
static char *cli_inputs_plain(const char *below, const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path, *dot = strrchr(file, '.');
    char *plain;
    int length = (int)(dot && dot != file ? (size_t)(dot - file) : strlen(file));
    return asprintf(&plain, "%s%s%.*s", below, *below ? "/" : "", length, file) < 0 ? NULL : plain;
}

bool cli_inputs_unfinished(const char *name)
{
    static const char *const endings[] = {".part", ".crdownload"}; /* ours and Firefox's, Chrome's */
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t end = strlen(endings[i]);
        if (length > end && !strcmp(name + length - end, endings[i]))
            return true;
    }
    return false;
}

static enum error_code cli_inputs_scan(struct cli_inputs *inputs, const char *folder, const char *below,
                                       struct error *err);

/* One entry of a folder; counts folders that are skipped. */
static enum error_code cli_inputs_scan_entry(struct cli_inputs *inputs, const char *folder, const char *below,
                                             const char *name, size_t *left_out, struct error *err)
{
    char *path, *inner = NULL;
    struct stat status, link;
    const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
    if (asprintf(&path, "%s%s%s", folder, slash, name) < 0)
        return error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
    enum error_code code = OK;
    if (stat(path, &status) || !S_ISDIR(status.st_mode)) {
        if (!cli_inputs_unfinished(name))
            code = cli_inputs_append(inputs, path, cli_inputs_plain(below, path), err);
    } else if (inputs->results.st_nlink && status.st_dev == inputs->results.st_dev &&
               status.st_ino == inputs->results.st_ino) {
        if (inputs->recursive)
            fprintf(stderr, "restored: %s: not searched, because the results go there\n", path);
    } else if (!inputs->recursive || lstat(path, &link) || S_ISLNK(link.st_mode)) {
        ++*left_out;
    } else if (asprintf(&inner, "%s%s%s", below, *below ? "/" : "", name) < 0) {
        inner = NULL;
        code = error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
    } else {
        struct error local = ERROR_INIT;
        code = cli_inputs_scan(inputs, path, inner, &local);
        if (code == ERROR_IO) { /* an unreadable folder does not stop the others */
            code = cli_inputs_append(inputs, path, cli_inputs_plain(below, path), err);
        } else if (code) {
            code = error_set(err, code, "%s", local.text);
        }
    }
    free(inner);
    free(path);
    return code;
}

static enum error_code cli_inputs_scan(struct cli_inputs *inputs, const char *folder, const char *below,
                                       struct error *err)
{
    struct dirent **list;
    int count = scandir(folder, &list, NULL, alphasort);
    if (count < 0)
        return error_set(err, ERROR_IO, "%s: %m", folder);
    enum error_code code = OK;
    size_t left_out = 0;
    for (int i = 0; i < count; i++) {
        if (!code && list[i]->d_name[0] != '.')
            code = cli_inputs_scan_entry(inputs, folder, below, list[i]->d_name, &left_out, err);
        free(list[i]);
    }
    free(list);
    if (!code && left_out)
        fprintf(stderr, "restored: %s: %zu %s skipped%s\n", folder, left_out,
                left_out > 1        ? inputs->recursive ? "links to folders" : "subfolders"
                : inputs->recursive ? "link to a folder"
                                    : "subfolder",
                inputs->recursive ? "" : "; --recursive includes what is in them");
    return code;
}

enum error_code cli_inputs_add(struct cli_inputs *inputs, const char *path, struct error *err)
{
    struct stat status;
    size_t before = inputs->count;
    if (!strcmp(path, "-")) {
        for (size_t i = 0; i < inputs->count; i++)
            if (!strcmp(inputs->items[i].path, "-"))
                return error_set(err, ERROR_INVALID, "only one input can be - (stdin)");
        return cli_inputs_append(inputs, path, strdup("stdin"), err);
    }
    if (stat(path, &status) || !S_ISDIR(status.st_mode))
        return cli_inputs_append(inputs, path, cli_inputs_plain("", path), err);
    enum error_code code = cli_inputs_scan(inputs, path, "", err);
    if (!code && inputs->count == before)
        code = error_set(err, ERROR_NOT_FOUND, "%s: there is no file in this folder", path);
    return code;
}

enum error_code cli_inputs_add_file(struct cli_inputs *inputs, const char *path, const char *below, struct error *err)
{
    return cli_inputs_append(inputs, path, cli_inputs_plain(below, path), err);
}

/* ---- what they are ---- */

static enum error_code cli_inputs_read_stdin(struct cli_input *input, struct error *err)
{
    size_t room = 0, used = 0;
    ssize_t n = 1;
    while (n > 0) {
        if (used == room) {
            room = room ? 2 * room : 1 << 16;
            uint8_t *grown = room > INPUTS_STDIN_MAX ? NULL : realloc(input->bytes, room);
            if (!grown)
                return error_set(err, ERROR_TOO_LARGE, "stdin: more than %zu MiB came, or there is no memory for it",
                                 used >> 20);
            input->bytes = grown;
        }
        n = read(STDIN_FILENO, input->bytes + used, room - used);
        used += n > 0 ? (size_t)n : 0;
    }
    if (n < 0)
        return error_set(err, errno == EINTR ? ERROR_CANCELLED : ERROR_IO, "stdin: %m");
    input->size = used;
    return OK;
}

int64_t cli_inputs_changed(const struct stat *status)
{
    return (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec;
}

static enum error_code cli_inputs_look_at(struct cli_input *input, struct error *err)
{
    struct file file = {0};
    struct stat status;
    struct codec_info info;
    enum error_code code;
    if (!strcmp(input->path, "-")) {
        if ((code = cli_inputs_read_stdin(input, err)))
            return code;
        file = (struct file){.data = input->bytes, .size = (size_t)input->size};
    } else {
        if (stat(input->path, &status) == 0 && S_ISDIR(status.st_mode))
            return error_set(err, ERROR_IO, "this folder cannot be read");
        if ((code = file_map(&file, input->path, err)))
            return code == ERROR_NOT_FOUND ? ERROR_IO : code;
        input->size = file.size;
        input->mtime_ns = stat(input->path, &status) ? 0 : cli_inputs_changed(&status);
    }
    code =
        file.size ? codec_probe(file.data, file.size, &info, err) : error_set(err, ERROR_CORRUPT, "the file is empty");
    if (!code) {
        input->format = info.format;
        input->alpha = info.channels % 2 == 0;
        input->megapixels = (double)info.width * info.height / 1e6;
        input->width = info.width;
        input->height = info.height;
    }
    if (!input->bytes)
        file_unmap(&file);
    return code;
}

char *cli_inputs_source(const char *path)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."), *out;
    char *real = folder && strcmp(path, "-") ? realpath(folder, NULL) : NULL;
    if (!real || asprintf(&out, "%s/%s", real, file) < 0)
        out = strdup(path);
    free(folder);
    free(real);
    return out;
}

enum error_code cli_inputs_look(struct cli_inputs *inputs, struct error *err)
{
    for (size_t i = 0; i < inputs->count; i++) {
        struct cli_input *input = &inputs->items[i];
        struct error local = ERROR_INIT;
        input->source = cli_inputs_source(input->path);
        input->code = cli_inputs_look_at(input, &local);
        if (input->code)
            input->reason = strdup(local.text);
        if (!input->source || (input->code && !input->reason))
            return error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
    }
    return OK;
}

/* ---- what their results are called ---- */

static int cli_inputs_compare_name(const void *a, const void *b)
{
    return strcmp(((const struct cli_input *)a)->name, ((const struct cli_input *)b)->name);
}

static int cli_inputs_compare_source(const void *a, const void *b)
{
    return strcmp(((const struct cli_input *)a)->source, ((const struct cli_input *)b)->source);
}

/* Trees borrow what they hold. */
static void cli_inputs_keep(void *input)
{
    (void)input;
}

struct cli_inputs_names {
    void *names; /* the inputs that have one, by name */
    const struct cli_index *index;
    bool (*taken)(const char *name, void *user);
    void *user;
};

/* Whether the entry is about this picture, which may have been moved together with its results. */
static bool cli_inputs_same(const struct cli_index_entry *entry, const struct cli_input *input)
{
    const char *a = strrchr(entry->source, '/'), *b = strrchr(input->source, '/');
    if (!input->mtime_ns) /* stdin is a different picture each time */
        return false;
    return !strcmp(entry->source, input->source) ||
           (a && b && !strcmp(a, b) && entry->size == input->size && entry->mtime_ns == input->mtime_ns);
}

/* Whether no other input has the name and no other picture's results do. */
static bool cli_inputs_free_name(const struct cli_inputs_names *names, const struct cli_input *input, const char *name)
{
    const struct cli_input like = {.name = (char *)(uintptr_t)name};
    const struct cli_index_entry *entry = cli_index_find(names->index, name, NULL);
    return !tfind(&like, &names->names, cli_inputs_compare_name) &&
           ((entry && cli_inputs_same(entry, input)) || !names->taken(name, names->user));
}

static enum error_code cli_inputs_claim(struct cli_inputs_names *names, struct cli_input *input, const char *name,
                                        struct error *err)
{
    input->name = strdup(name);
    return input->name && tsearch(input, &names->names, cli_inputs_compare_name)
               ? OK
               : error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
}

/* "a" or "a_2" for a picture whose plain name is a. */
static bool cli_inputs_is_numbered(const char *name, const char *plain)
{
    size_t length = strlen(plain);
    if (strncmp(name, plain, length) != 0)
        return false;
    return !name[length] ||
           (name[length] == '_' && name[length + 1] && !name[length + 1 + strspn(name + length + 1, "0123456789")]);
}

static enum error_code cli_inputs_number(struct cli_inputs_names *names, struct cli_input *input, struct error *err)
{
    char name[INPUTS_NAME_MAX + 16];
    const struct cli_input like = {.name = input->plain};
    const struct cli_index_entry *entry = cli_index_find(names->index, input->plain, NULL);
    int number = 2;
    do
        snprintf(name, sizeof name, "%.*s_%d", INPUTS_NAME_MAX, input->plain, number++);
    while (!cli_inputs_free_name(names, input, name));
    if (tfind(&like, &names->names, cli_inputs_compare_name))
        fprintf(stderr,
                "restored: %s: an earlier input is also named \"%s\"; the results of this one are named "
                "\"%s\"\n",
                input->path, input->plain, name);
    else
        fprintf(stderr, "restored: %s: there are results named \"%s\" already, of %s; its own are named \"%s\"\n",
                input->path, input->plain, entry ? entry->source : "another picture or an unknown one", name);
    return cli_inputs_claim(names, input, name, err);
}

static void cli_inputs_drop(struct cli_input *input)
{
    free(input->path);
    free(input->plain);
    free(input->name);
    free(input->source);
    free(input->bytes);
    free(input->reason);
}

static enum error_code cli_inputs_drop_repeated(struct cli_inputs *inputs, struct error *err)
{
    void *sources = NULL;
    size_t count = 0;
    enum error_code code = OK;
    for (size_t i = 0; i < inputs->count; i++) {
        struct cli_input *input = &inputs->items[i];
        if (!code && tfind(input, &sources, cli_inputs_compare_source)) {
            fprintf(stderr, "restored: %s: this file was given twice; it is restored once\n", input->path);
            cli_inputs_drop(input);
            continue;
        }
        if (i != count)
            inputs->items[count] = *input;
        if (!code && !tsearch(&inputs->items[count], &sources, cli_inputs_compare_source))
            code = error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
        count++;
    }
    tdestroy(sources, cli_inputs_keep);
    inputs->count = count;
    return code;
}

enum error_code cli_inputs_name(struct cli_inputs *inputs, const struct cli_index *index,
                                bool (*taken)(const char *name, void *user), void *user, struct error *err)
{
    struct cli_inputs_names names = {NULL, index, taken, user};
    enum error_code code = cli_inputs_drop_repeated(inputs, err);
    /* Tries the name it had before, then its own name if that is free, then numbers. */
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < inputs->count && !code; i++) {
            struct cli_input *input = &inputs->items[i];
            if (input->name || (input->code && pass < 2))
                continue;
            if (input->code) { /* nothing will be written */
                if (!(input->name = strdup(input->plain)))
                    code = error_set(err, ERROR_NO_MEMORY, "%s", cli_inputs_no_memory);
                continue;
            }
            const struct cli_index_entry *before = pass ? NULL : cli_index_of_source(index, input->source);
            const char *name = pass ? input->plain : before ? before->name : NULL;
            if (pass == 2)
                code = cli_inputs_number(&names, input, err);
            else if (name && cli_inputs_is_numbered(name, input->plain) && cli_inputs_free_name(&names, input, name))
                code = cli_inputs_claim(&names, input, name, err);
        }
    tdestroy(names.names, cli_inputs_keep);
    return code;
}

void cli_inputs_free(struct cli_inputs *inputs)
{
    for (size_t i = 0; i < inputs->count; i++)
        cli_inputs_drop(&inputs->items[i]);
    free(inputs->items);
    *inputs = (struct cli_inputs){0};
}
