#include "server/cli/models_fetch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/cli/download.h"
#include "server/http/json.h"
#include "server/pipeline/model_store_private.h"
#include "server/pipeline/model_trial.h"

static bool fetch_pair(const struct model_section *section)
{
    return !strcmp(section->file + model_scan_stem(section->file), ".param");
}

bool models_fetch_apart(const struct model_section *section)
{
    return !*section->sha256 || fetch_pair(section);
}

/* A file's name, or an address, with its last ".param" as ".bin". */
static void fetch_bin(char *out, size_t size, const char *param)
{
    snprintf(out, size, "%.*s.bin", (int)(strlen(param) - strlen(".param")), param);
}

/* The SHA-256 of the file in the folder, and of its .bin. */
static bool fetch_hash(const struct model_section *section, const char *folder, char hex[65])
{
    static const atomic_bool never;
    static struct model_entry entry; /* large */
    const int n = snprintf(entry.path, sizeof entry.path, "%s/%s", folder, section->file);
    return n < (int)sizeof entry.path && model_scan_hash(&entry, &never, hex);
}

bool models_fetch_is_there(const struct model_section *section, const char *folder)
{
    char hex[65];
    return fetch_pair(section) && fetch_hash(section, folder, hex) && !strcmp(hex, section->sha256);
}

static enum error_code fetch_file(const char *url, const char *mirror, const char *staging, const char *file,
                                  struct error *err)
{
    char from[PATH_MAX];
    snprintf(from, sizeof from, "%s", url);
    enum error_code code = mirror ? download_mirror_url(from, sizeof from, mirror, file, err) : OK;
    struct download download = {.url = from,
                                .any_http = mirror,
                                .offline = DOWNLOAD_OFFLINE,
                                .folder = staging,
                                .file = file,
                                .sha256 = ""};
    return code ? code : download_get(&download, err);
}

/* Opens the file as it would be for work, and runs the network once. */
static enum error_code fetch_try(const struct model_section *section, const char *path, struct error *err)
{
    struct model *model;
    struct error why = ERROR_INIT;
    int side = 0;
    enum error_code code = model_open(&model, path, &section->settings, &why);
    if (!code) {
        printf("%s: %s, %s\n", section->file, json_kind_name(model_info(model)->kind), model_info(model)->architecture);
        fflush(stdout);
        code = model_trial(model, &side, &why);
        model_close(&model);
    }
    const size_t length = strncmp(why.text, path, strlen(path)) ? 0 : strlen(path) + strlen(": ");
    return code ? error_set(err, code, "what was downloaded is not taken: %s", why.text + length) : OK;
}

/* Whether what is in the staging folder may be used. */
static enum error_code fetch_check(const struct model_section *section, const char *staging, char hex[65],
                                   struct error *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", staging, section->file) >= (int)sizeof path ||
        !fetch_hash(section, staging, hex))
        return error_set(err, ERROR_IO, "%s cannot be read in %s", section->file, staging);
    if (!*section->sha256)
        return fetch_try(section, path, err);
    return strcmp(hex, section->sha256)
               ? error_set(err, ERROR_CORRUPT, "the content differs from what was published: its SHA-256 is %s", hex)
               : OK;
}

/* The last name is the one that is looked for: then all is there. On failure all are removed. */
static enum error_code fetch_keep(const char *const *files, const char *staging, const char *folder,
                                  enum error_code code, struct error *err)
{
    char from[PATH_MAX], to[PATH_MAX];
    for (int i = 1; i >= 0; i--) {
        if (!files[i])
            continue;
        if ((snprintf(from, sizeof from, "%s/%s", staging, files[i]) >= (int)sizeof from ||
             snprintf(to, sizeof to, "%s/%s", folder, files[i]) >= (int)sizeof to) &&
            !code)
            code = error_set(err, ERROR_INVALID, "the path of %s is too long", folder);
        if (!code && rename(from, to))
            code = error_set(err, ERROR_IO, "%s: %m", to);
        if (code)
            unlink(from);
    }
    return code;
}

enum error_code models_fetch(const struct model_section *section, const char *mirror, const char *folder,
                             struct error *err)
{
    char staging[PATH_MAX], bin[sizeof section->file], bin_url[sizeof section->url], hex[65] = "";
    const bool pair = fetch_pair(section);
    const char *const files[2] = {section->file, pair ? bin : NULL};
    if (snprintf(staging, sizeof staging, "%s/.get", folder) >= (int)sizeof staging)
        return error_set(err, ERROR_INVALID, "the path of %s is too long", folder);
    enum error_code code = fetch_file(section->url, mirror, staging, section->file, err);
    if (pair) {
        fetch_bin(bin, sizeof bin, section->file);
        fetch_bin(bin_url, sizeof bin_url, section->url);
        if (!code)
            code = fetch_file(bin_url, mirror, staging, bin, err);
    }
    if (!code)
        code = fetch_keep(files, staging, folder, fetch_check(section, staging, hex, err), err);
    rmdir(staging); /* unless a download is to go on */
    if (code)
        return code;
    if (*section->sha256)
        printf("%s: verified, in %s\n", section->file, folder);
    else
        printf("%s: in %s; no SHA-256 is published for it: it was opened, and tried on a tiny picture; its own is %s\n",
               section->file, folder, hex);
    return OK;
}
