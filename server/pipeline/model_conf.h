/* Reads config/models.conf: what is known about each official checkpoint, and the settings that its tensors do not
 * tell. The keys are described at the head of that file.
 * Thread-safety: functions without state. */
#ifndef SERVER_PIPELINE_MODEL_CONF_H
#define SERVER_PIPELINE_MODEL_CONF_H

#include "runtime/models/model.h"

struct model_section {
    char name[64], file[72], alias[64], licence[64];
    char url[192];   /* where its authors publish it; "": nowhere */
    char sha256[65]; /* lower case hexadecimal, or "" */
    uint64_t bytes;  /* 0: not said */
    enum model_kind role;
    bool downloadable; /* it has a url: an official file */
    bool starter;      /* comes with the program: a default where there is no official file, unless it is special */
    bool special;      /* for drawings or for speed */
    bool is_default, supported;
    bool has_settings;
    struct model_settings settings;
};

/* *sections is the caller's to free(). ERROR_INVALID names the line. */
enum error_code model_conf_parse(const char *text, size_t size, struct model_section **sections, size_t *count,
                                 struct error *err) MUST_CHECK;

/* The same for a models.conf of a user, whose sections, [NAME] or [model NAME], have settings, `licence`, and, for
 * people, `sha256` and `source` (in url). With ERROR_INVALID, too, *sections has all that is understood: a line that is
 * not is left out, and all that stands under such a heading. Sections of one name are one. */
enum error_code model_conf_own(const char *text, size_t size, struct model_section **sections, size_t *count,
                               struct error *err) MUST_CHECK;
/* Sets what a user's sections say of the model of that name. Returns whether they say anything. */
bool model_conf_overlay(struct model_settings *settings, const struct model_section *sections, size_t count,
                        const char *name);
/* The lines that say these settings in a models.conf: free(). "": nothing; NULL: memory is out. */
char *model_conf_lines(const struct model_settings *settings);
/* The first section of that name; NULL: there is none. */
const struct model_section *model_conf_find(const struct model_section *sections, size_t count, const char *name);
bool model_conf_same(const struct model_settings *a, const struct model_settings *b);

/* The embedded config/models.conf. */
enum error_code model_conf_load(struct model_section **sections, size_t *count, struct error *err) MUST_CHECK;

/* Whether an option may name the section this way: by its name or one of its aliases. */
bool model_conf_called(const struct model_section *section, const char *name);

#endif
