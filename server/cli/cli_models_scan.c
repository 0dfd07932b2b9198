/* restored models --scan DIR: of each file of a folder, of whatever program, whether it is read. Unlike the search for
 * installed models it has no limits, and of files with one name it shows all: nothing is left out. */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/utf8.h"
#include "runtime/models/model.h"
#include "server/cli/cli.h"
#include "server/http/json.h"
#include "server/pipeline/licence.h"
#include "server/pipeline/model_store_private.h"

struct models_scan {
    size_t read, count;
    bool failed;  /* a part of the folder could not be looked at */
    json_t *rows; /* NULL: lines are printed */
};

/* What files that are never read are, by their endings. */
static const struct {
    const char *ending, *what;
} scan_others[] = {
    {".onnx", "a network as ONNX, a format that is not read; its author's .pth or .safetensors may be"},
    {".pkl", "a pickled program, which could run anything; such files are not read"},
    {".pickle", "a pickled program, which could run anything; such files are not read"},
    {".gguf", "a language or image generator's weights (GGUF), not read: no network that restores is published so"},
    {".ggml", "a language or image generator's weights (GGML), not read: no network that restores is published so"},
    {".h5", "weights of Keras, a format that is not read"},
    {".keras", "a network of Keras, a format that is not read"},
    {".pb", "a network of TensorFlow, a format that is not read"},
    {".tflite", "a network of TensorFlow Lite, a format that is not read"},
    {".mlmodel", "a network of Core ML, a format that is not read"},
    {".mat", "a file of MATLAB, a format that is not read"},
    {".engine", "a network compiled by TensorRT for one GPU, not read"},
    {".mnn", "a network of MNN, a format that is not read"},
};

static bool scan_ends(const char *name, const char *ending)
{
    const size_t n = strlen(name), e = strlen(ending);
    return n > e && !strcasecmp(name + n - e, ending);
}

/* A .bin beside its .param is a part of that; of others, what it may be. NULL: nothing is to be said. */
static const char *scan_bin(const char *path)
{
    static const char *const params[] = {".param", ".PARAM", ".Param"};
    char beside[PATH_MAX];
    const size_t stem = strlen(path) - strlen(".bin");
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        if (snprintf(beside, sizeof beside, "%.*s%s", (int)stem, path, params[i]) < (int)sizeof beside &&
            !access(beside, F_OK))
            return NULL;
    }
    return "weights without the .param beside them that says what they are, or of another program; not read";
}

const char *cli_models_other(const char *path)
{
    if (scan_ends(path, ".bin"))
        return scan_bin(path);
    for (size_t i = 0; i < sizeof scan_others / sizeof *scan_others; i++)
        if (scan_ends(path, scan_others[i].ending))
            return scan_others[i].what;
    return NULL;
}

/* model: what the file is read as; NULL: it is not, for that reason. */
static void scan_tell(struct models_scan *scan, const char *shown, const struct model *model, const char *reason)
{
    const struct model_info *info = model ? model_info(model) : NULL;
    char licence[64] = "";
    if (model)
        snprintf(licence, sizeof licence, "%s", licence_of_network(info->architecture));
    if (model && !*licence)
        licence_told(model_weights(model), licence, sizeof licence);
    const bool bound = licence_non_commercial(licence);
    scan->count++;
    scan->read += info != NULL;
    if (!scan->rows && info) {
        printf("%s: %s, %s", shown, json_kind_name(info->kind), info->architecture);
        if (info->kind == MODEL_UPSCALER)
            printf(" ×%d", info->scale);
        puts(bound ? " (non-commercial)" : "");
    } else if (!scan->rows) {
        printf("%s: %s\n", shown, reason);
    } else if (info) {
        json_array_append_new(scan->rows, json_pack("{s:s, s:b, s:s, s:s, s:i, s:s?, s:b}", "file", shown, "read", 1, "kind",
                                                    json_kind_name(info->kind), "architecture", info->architecture,
                                                    "scale", info->scale, "licence",
                                                    *licence ? licence : NULL, "non_commercial", bound));
    } else {
        json_array_append_new(scan->rows, json_pack("{s:s, s:b, s:s}", "file", shown, "read", 0, "reason", reason));
    }
}

/* Opens it as it would be for work: all tensors must be there, and fit. */
static void scan_checkpoint(struct models_scan *scan, const char *path, const char *shown)
{
    struct error err = ERROR_INIT;
    struct model *model;
    if (!model_open(&model, path, NULL, &err)) {
        scan_tell(scan, shown, model, NULL);
        model_close(&model);
        return;
    }
    const size_t n = strlen(path);
    const bool named = !strncmp(err.text, path, n) && !strncmp(err.text + n, ": ", 2); /* most are */
    char reason[2 * sizeof err.text], whole[sizeof reason + 16];
    utf8_escape(reason, sizeof reason, err.text + (named ? n + 2 : 0));
    snprintf(whole, sizeof whole, "%s%s", named ? "" : "not read: ", reason);
    scan_tell(scan, shown, NULL, whole);
}

static void scan_file(struct models_scan *scan, const FTSENT *entry)
{
    char shown[4 * PATH_MAX];
    utf8_escape(shown, sizeof shown, entry->fts_path);
    const bool checkpoint = entry->fts_name[model_scan_stem(entry->fts_name)];
    const char *other = checkpoint ? NULL : cli_models_other(entry->fts_path);
    if (checkpoint && entry->fts_info == FTS_F)
        scan_checkpoint(scan, entry->fts_path, shown);
    else if (checkpoint || other)
        scan_tell(scan, shown, NULL, other ? other : "not read: a link that leads nowhere, or no plain file");
}

/* Own files go before those of subfolders. */
static int scan_order(const FTSENT **a, const FTSENT **b)
{
    const bool first = (*a)->fts_info == FTS_D, second = (*b)->fts_info == FTS_D;
    return first != second ? first - second : strcmp((*a)->fts_name, (*b)->fts_name);
}

static void scan_entry(struct models_scan *scan, FTS *walk, FTSENT *entry)
{
    char shown[4 * PATH_MAX];
    if (entry->fts_level > 0 && entry->fts_name[0] == '.') { /* hidden */
        fts_set(walk, entry, FTS_SKIP);
        return;
    }
    switch (entry->fts_info) {
    case FTS_F:
    case FTS_DEFAULT:
    case FTS_SLNONE:
        scan_file(scan, entry);
        break;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        utf8_escape(shown, sizeof shown, entry->fts_path);
        fflush(stdout);
        fprintf(stderr, "restored: %s: %s\n", shown, strerror(entry->fts_errno));
        scan->failed = true;
        break;
    default: /* folders; one that leads back to itself was there already */
        break;
    }
}

/* All that stands behind "models": --scan, its folder, and perhaps --json, in any order. */
static enum error_code scan_take(int argc, char **argv, const char **folder, bool *json, struct error *err)
{
    struct stat st = {0};
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            *json = true;
        else if (strcmp(argv[i], "--scan") != 0 && (*folder || argv[i][0] == '-'))
            return error_set(err, ERROR_INVALID, "restored models --scan DIR [--json]: one folder, and not \"%s\"",
                             argv[i]);
        else if (strcmp(argv[i], "--scan") != 0)
            *folder = argv[i];
    }
    if (!*folder)
        return error_set(err, ERROR_INVALID, "restored models --scan DIR [--json]: one folder");
    const bool there = stat(*folder, &st) == 0;
    if (there && S_ISDIR(st.st_mode))
        return OK;
    return error_set(err, ERROR_NOT_FOUND, "%s: %s; --scan takes a folder", *folder,
                     there ? "not a folder" : strerror(errno));
}

int cli_models_scan(int argc, char **argv)
{
    struct error err = ERROR_INIT;
    struct models_scan scan = {0};
    const char *folder = NULL;
    bool json = false;
    const enum error_code code = scan_take(argc, argv, &folder, &json, &err);
    if (code)
        return cli_fail(&err, code == ERROR_INVALID ? CLI_USAGE : CLI_FAILED);
    scan.rows = json ? json_array() : NULL;
    char *const paths[] = {(char *)(uintptr_t)folder, NULL};
    FTS *walk = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, scan_order);
    errno = 0;
    for (FTSENT *entry; walk && (entry = fts_read(walk));)
        scan_entry(&scan, walk, entry);
    if (!walk || errno) {
        error_set(&err, ERROR_IO, "%s: %s", folder, strerror(errno));
        json_decref(scan.rows);
        return cli_fail(&err, CLI_FAILED);
    }
    fts_close(walk);
    if (json) {
        json_dumpf(scan.rows, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        printf("%zu of %zu files are read\n", scan.read, scan.count);
    }
    json_decref(scan.rows);
    return scan.failed ? CLI_FAILED : CLI_OK;
}
