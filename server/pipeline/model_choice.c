#include "server/pipeline/model_choice.h"

#include <stdio.h>
#include <string.h>

#include "server/pipeline/licence.h"

static const struct choice_role {
    const char *option, *what, *article;
} choice_roles[ROLE_COUNT] = {
    [ROLE_DETECTOR] = {"detector", "detector", "a"},
    [ROLE_FACE] = {"version", "face network", "a"},
    [ROLE_PARSER] = {"parser", "face parser", "a"},
    [ROLE_UPSCALER] = {"bg_upsampler", "upscaler", "an"},
    [ROLE_DAMAGE] = {"damage_detector", "damage detector", "a"},
    [ROLE_FILLER] = {"fill", "filler of damage", "a"},
};
_Static_assert((int)ROLE_DETECTOR == MODEL_DETECTOR && (int)ROLE_FACE == MODEL_FACE &&
                   (int)ROLE_PARSER == MODEL_PARSER && (int)ROLE_UPSCALER == MODEL_UPSCALER &&
                   (int)ROLE_DAMAGE == MODEL_DAMAGE && (int)ROLE_FILLER == MODEL_FILLER &&
                   (int)ROLE_COUNT == MODEL_KINDS,
               "a role is filled by the kind of the same number");

const char *model_choice_option(enum model_role role)
{
    return choice_roles[role].option;
}

void model_choice_get(const struct model_section *section, char *out, size_t size)
{
    snprintf(out, size, "restored models get %s", section->is_default ? "default" : section->name);
}

struct store_file *model_choice_file(const struct model_store *store, const struct model_section *section)
{
    for (size_t i = 0; i < store->list.count; i++)
        if (store->list.files[i]->section == section)
            return store->list.files[i];
    return NULL;
}

/* "FILE was looked for in A, B and with subfolders; get it with: restored models get default" */
static enum error_code choice_not_there(const struct model_store *store, enum error_code code, const char *what,
                                        const char *name, const struct model_section *section, struct error *err)
{
    char where[320] = "", file[192], get[128] = "restored models get default";
    for (int i = 0; i < store->path_count; i++)
        snprintf(where + strlen(where), sizeof where - strlen(where), "%s%s", i ? ", " : "", store->paths[i]);
    if (section) {
        snprintf(file, sizeof file, "%s%s", section->file, strstr(section->file, ".param") ? " (with its .bin)" : "");
        model_choice_get(section, get, sizeof get);
    } else {
        snprintf(file, sizeof file, "%.*s.pth (or .pt, .ckpt, .safetensors, .param with its .bin)",
                 (int)model_scan_stem(name), name);
    }
    if (err && err->code)
        return code; /* the first failure wins */
    error_set(err, code, "%s", what);
    if (section && !section->downloadable && !section->starter)
        error_local(err,
                    "; %s was looked for in %s and their subfolders; it is not downloaded: put your own file there",
                    file, where);
    else
        error_local(err, "; %s was looked for in %s and their subfolders; %s: %s", file, where,
                    section && section->downloadable ? "get it with" : "the official models come with", get);
    return code;
}

/* The usable models of a role, with commas; the first of them, or NULL: there is none. */
static const struct model_entry *choice_names(const struct model_store *store, enum model_role role, char *names,
                                              size_t size)
{
    const struct model_entry *first = NULL;
    size_t used = 0;
    *names = '\0';
    for (size_t i = 0; i < store->list.count && used < size; i++) {
        const struct model_entry *e = &store->list.files[i]->entry;
        if (!e->recognised || (int)e->info.kind != (int)role || (e->starter && !store->starters))
            continue;
        first = first ? first : e;
        used += (size_t)snprintf(names + used, size - used, "%s%s%s", used ? ", " : "", e->name,
                                 licence_non_commercial(e->licence) ? " (non-commercial)" : "");
    }
    return first;
}

static const char *choice_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The folder is for people at this machine. */
static enum error_code choice_broken(const struct model_entry *e, enum error_code code, const char *what,
                                     const char *name, struct error *err)
{
    char reason[sizeof e->reason + 64];
    const struct choice_role *is = e->recognised ? &choice_roles[e->info.kind] : NULL;
    snprintf(reason, sizeof reason, "%s%s%s%s", is ? "it is " : e->reason, is ? is->article : "", is ? " " : "",
             is ? is->what : "");
    error_set(err, code, "%s: %s cannot be used: %s: %s", what, name, choice_base(e->shown), reason);
    error_local(err, " (%s)", e->shown);
    return code;
}

static enum error_code choice_by_name(const struct model_store *store, enum model_role role, const char *label,
                                      const char *wanted, enum error_code not_there, const struct model_entry **entry,
                                      struct error *err)
{
    char name[128], what[640], names[320];
    snprintf(name, sizeof name, "%.*s", (int)model_scan_stem(wanted), wanted);
    const struct store_file *file = NULL;
    const struct model_section *section = NULL;
    for (size_t i = 0; i < store->list.count && !file; i++)
        if (strcmp(store->list.files[i]->entry.name, name) == 0)
            file = store->list.files[i];
    /* "starter" stands for one model of each role */
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < store->section_count && !file && !section; i++)
            if (model_conf_called(&store->sections[i], name) && (pass || (int)store->sections[i].role == (int)role))
                section = &store->sections[i];
    if (section)
        file = model_choice_file(store, section);
    if (file && file->section)
        section = file->section;
    if (section && !section->supported)
        return error_set(err, not_there, "%s: %s (%s) is not supported yet", label, wanted, section->file);
    if (section && !file && (int)section->role != (int)role)
        return error_set(err, not_there, "%s: %s is not %s %s", label, section->name, choice_roles[role].article,
                         choice_roles[role].what);
    if (!file) {
        const bool others = !section && choice_names(store, role, names, sizeof names);
        const char *there = !others ? "" : strchr(names, ',') ? "; there are " : "; there is ";
        snprintf(what, sizeof what, "%s: %.255s is not installed%s%s", label, wanted, there, others ? names : "");
        return choice_not_there(store, not_there, what, name, section, err);
    }
    if (!file->entry.recognised)
        return choice_broken(&file->entry, not_there, label, wanted, err);
    const struct choice_role *other = &choice_roles[file->entry.info.kind];
    if ((int)file->entry.info.kind != (int)role)
        return error_set(err, not_there, "%s: %s is not %s %s but %s %s", label, wanted, choice_roles[role].article,
                         choice_roles[role].what, other->article, other->what);
    *entry = &file->entry;
    return OK;
}

/* The official default, the other official files, the starter models, the special official files, in the order of
 * models.conf. */
static const struct model_entry *choice_default(const struct model_store *store, enum model_role role,
                                                const struct model_entry **broken)
{
    for (int rank = 0; rank < 4; rank++) {
        for (size_t i = 0; i < store->section_count; i++) {
            const struct model_section *s = &store->sections[i];
            int own = s->is_default ? 0 : s->starter && store->starters ? 2 : !s->downloadable ? 4 : s->special ? 3 : 1;
            const struct store_file *file =
                own == rank && (int)s->role == (int)role && s->supported ? model_choice_file(store, s) : NULL;
            if (file && file->entry.fetched) /* for jobs that name it */
                continue;
            if (file && file->entry.recognised && (int)file->entry.info.kind == (int)role)
                return &file->entry;
            if (file && !*broken)
                *broken = &file->entry;
        }
    }
    return NULL;
}

/* For files that are there under other names: how to choose one. */
static enum error_code choice_offer(const struct model_store *store, enum model_role role, struct error *err)
{
    char names[320];
    const struct model_entry *first = choice_names(store, role, names, sizeof names);
    if (!first)
        return OK;
    return error_set(err, ERROR_NOT_FOUND,
                     "no official %s is installed, and none was chosen; there %s %s: choose one with %s=%s, "
                     "or set default_%s=%s in the configuration",
                     choice_roles[role].what, strchr(names, ',') ? "are" : "is", names, choice_roles[role].option,
                     first->name, choice_roles[role].option, first->name);
}

enum error_code model_choice(const struct model_store *store, enum model_role role, const char *wanted,
                             const struct model_entry **entry, struct error *err)
{
    *entry = NULL;
    bool optional = role != ROLE_DETECTOR && role != ROLE_FACE;
    const char *configured = store->default_name[role];
    if (wanted && *wanted) {
        if (strcmp(wanted, "none") != 0)
            return choice_by_name(store, role, choice_roles[role].option, wanted, ERROR_INVALID, entry, err);
        if (role == ROLE_DETECTOR)
            return error_set(err, ERROR_INVALID, "detector: none is not allowed; version=none leaves faces alone");
        return OK;
    }
    if (*configured) {
        char label[64];
        snprintf(label, sizeof label, "default_%s", choice_roles[role].option);
        if (strcmp(configured, "none") != 0 || role == ROLE_DETECTOR)
            return choice_by_name(store, role, label, configured, ERROR_NOT_FOUND, entry, err);
        return OK;
    }
    const struct model_entry *broken = NULL;
    *entry = choice_default(store, role, &broken);
    if (*entry || optional)
        return OK;
    char what[64];
    if (broken) {
        snprintf(what, sizeof what, "there is no %s", choice_roles[role].what);
        return choice_broken(broken, ERROR_NOT_FOUND, what, choice_base(broken->shown), err);
    }
    if (choice_offer(store, role, err) != OK)
        return ERROR_NOT_FOUND;
    const struct model_section *official = NULL;
    for (size_t i = 0; i < store->section_count && !official; i++)
        if (store->sections[i].is_default && (int)store->sections[i].role == (int)role)
            official = &store->sections[i];
    snprintf(what, sizeof what, "no %s is installed", choice_roles[role].what);
    return choice_not_there(store, ERROR_NOT_FOUND, what, "", official, err);
}
