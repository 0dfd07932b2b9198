#include "server/pipeline/model_conf.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/embed.h"
#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"

static bool model_conf_text(char *out, size_t size, const char *value)
{
    if (strlen(value) >= size)
        return false;
    memcpy(out, value, strlen(value) + 1);
    return true;
}

static bool model_conf_flag(bool *out, const char *value)
{
    *out = strcmp(value, "true") == 0;
    return *out || strcmp(value, "false") == 0;
}

static bool model_conf_number(float *out, const char **text)
{
    char *end;
    *out = strtof(*text, &end);
    if (end == *text || !(*out >= 0 && *out < 1e6f))
        return false;
    *text = end;
    return true;
}

static bool model_conf_hash(char out[65], const char *value)
{
    if (strlen(value) != 64 || strspn(value, "0123456789abcdef") != 64)
        return false;
    memcpy(out, value, 65);
    return true;
}

static bool model_conf_role(enum model_kind *out, const char *value)
{
    static const char *const names[] = {
        [MODEL_DETECTOR] = "detector", [MODEL_FACE] = "face",     [MODEL_PARSER] = "parser",
        [MODEL_UPSCALER] = "upscaler", [MODEL_DAMAGE] = "damage", [MODEL_FILLER] = "filler",
    };
    for (int i = 0; i < MODEL_KINDS; i++) {
        if (strcmp(value, names[i]) == 0) {
            *out = (enum model_kind)i;
            return true;
        }
    }
    return false;
}

/* What the tensors do not tell. */
static bool model_conf_setting(struct model_section *s, const char *key, const char *value)
{
    const char *rest = value;
    s->has_settings = true;
    if (strcmp(key, "slope") == 0) {
        s->settings.has_slope = true;
        return model_conf_number(&s->settings.slope, &rest) && !*rest;
    }
    if (strcmp(key, "min_sizes") == 0) {
        for (int i = 0; i < 6; i++)
            if (!model_conf_number(&s->settings.min_sizes[i / 2][i % 2], &rest))
                return false;
        return !*rest;
    }
    if (strcmp(key, "noise_level") == 0) {
        s->settings.has_noise_level = true;
        return model_conf_number(&s->settings.noise_level, &rest) && !*rest && s->settings.noise_level <= 255;
    }
    if (strcmp(key, "jpeg_quality") == 0) {
        s->settings.has_jpeg_quality = true;
        return model_conf_number(&s->settings.jpeg_quality, &rest) && !*rest && s->settings.jpeg_quality <= 100;
    }
    return strcmp(key, "activation") == 0 && model_settings_activation(&s->settings, value);
}

static bool model_conf_set(struct model_section *s, const char *key, const char *value)
{
    if (strcmp(key, "file") == 0)
        return model_conf_text(s->file, sizeof s->file, value);
    if (strcmp(key, "alias") == 0)
        return model_conf_text(s->alias, sizeof s->alias, value);
    if (strcmp(key, "licence") == 0)
        return model_conf_text(s->licence, sizeof s->licence, value);
    if (strcmp(key, "sha256") == 0)
        return model_conf_hash(s->sha256, value);
    if (strcmp(key, "role") == 0)
        return model_conf_role(&s->role, value);
    if (strcmp(key, "default") == 0)
        return model_conf_flag(&s->is_default, value);
    if (strcmp(key, "supported") == 0)
        return model_conf_flag(&s->supported, value);
    if (strcmp(key, "special") == 0)
        return model_conf_flag(&s->special, value);
    if (strcmp(key, "starter") == 0)
        return model_conf_flag(&s->starter, value);
    if (strcmp(key, "url") == 0)
        return (s->downloadable = strncmp(value, "https://", 8) == 0 || strncmp(value, "file://", 7) == 0) &&
               model_conf_text(s->url, sizeof s->url, value);
    if (strcmp(key, "bytes") == 0) {
        char *end;
        s->bytes = strtoull(value, &end, 10);
        return *end == '\0' && s->bytes > 0;
    }
    return model_conf_setting(s, key, value);
}

/* A user's section: settings, and where the file is from, and on what terms. */
static bool model_conf_own_set(struct model_section *s, const char *key, const char *value)
{
    if (strcasecmp(key, "licence") == 0 || strcasecmp(key, "license") == 0)
        return model_conf_text(s->licence, sizeof s->licence, value);
    if (strcmp(key, "sha256") == 0)
        return model_conf_hash(s->sha256, value);
    if (strcmp(key, "source") == 0)
        return model_conf_text(s->url, sizeof s->url, value);
    return model_conf_setting(s, key, value);
}

static char *model_conf_trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    return text;
}

/* [NAME] or [model NAME] */
static const char *model_conf_name(const char *text)
{
    return strncmp(text, "model ", 6) == 0 ? text + 6 + strspn(text + 6, " ") : text;
}

/* What is read so far: sections, with room for one more, and the one that lines belong to (NULL: none). */
struct model_conf_reading {
    struct model_section *sections, *current;
    size_t count;
    bool own; /* a user's */
};

static struct model_section *model_conf_of(const struct model_conf_reading *r, const char *name)
{
    for (size_t i = 0; i < r->count && r->own; i++)
        if (strcmp(r->sections[i].name, name) == 0)
            return &r->sections[i];
    return NULL;
}

/* Makes the section of a heading the current one. */
static bool model_conf_heading(struct model_conf_reading *r, char *line)
{
    struct model_section made = {.supported = true};
    const size_t n = strlen(line);
    r->current = NULL;
    if (n < 3 || line[n - 1] != ']')
        return false;
    line[n - 1] = '\0';
    if (!model_conf_text(made.name, sizeof made.name, model_conf_name(line + 1)))
        return false;
    r->current = model_conf_of(r, made.name);
    if (!r->current) {
        r->current = &r->sections[r->count++];
        *r->current = made;
    }
    return true;
}

static bool model_conf_line(struct model_conf_reading *r, char *line)
{
    char *equals = strchr(line, '=');
    if (!*line || *line == '#')
        return true;
    if (*line == '[')
        return model_conf_heading(r, line);
    if (!equals || !r->current)
        return false;
    *equals = '\0';
    struct model_section with = *r->current;
    if (!(r->own ? model_conf_own_set : model_conf_set)(&with, model_conf_trim(line), model_conf_trim(equals + 1)))
        return false;
    *r->current = with;
    return true;
}

/* What is said of a line that is not understood: its beginning, as it is in the file. */
static enum error_code model_conf_bad(const char *text, size_t length, size_t number, struct error *err)
{
    char line[512], shown[64];
    snprintf(line, sizeof line, "%.*s", (int)(length < sizeof line ? length : sizeof line - 1), text);
    if (err && err->code)
        error_local(err, "; nor line %zu", number);
    return error_set(err, ERROR_INVALID, "models.conf, line %zu: not understood: %s", number,
                     utf8_escape(shown, sizeof shown, model_conf_trim(line)));
}

#define MODEL_CONF_MARK "\xef\xbb\xbf" /* which some editors begin a file with */

static enum error_code model_conf_read(const char *text, size_t size, bool own, struct model_section **sections,
                                       size_t *count, struct error *err)
{
    enum error_code code = OK;
    struct model_conf_reading r = {.own = own};
    bool passed_over = false; /* what stands under a heading that is not understood */
    size_t room = 0;
    if (size >= 3 && !memcmp(text, MODEL_CONF_MARK, 3)) {
        text += 3;
        size -= 3;
    }
    for (size_t i = 0; i < size; i++)
        room += text[i] == '[';
    *count = 0;
    *sections = r.sections = mem_calloc(room, sizeof **sections);
    if (!*sections)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for models.conf");
    for (size_t at = 0, number = 1; at < size; number++) {
        const char *begin = text + at, *end = memchr(begin, '\n', size - at);
        const size_t length = end ? (size_t)(end - begin) : size - at;
        char line[512];
        const bool fits = length < sizeof line;
        at += length + 1;
        snprintf(line, sizeof line, "%.*s", (int)(fits ? length : sizeof line - 1), begin);
        char *whole = model_conf_trim(line);
        passed_over = passed_over && *whole != '[';
        if (passed_over || (fits && model_conf_line(&r, whole)))
            continue;
        code = model_conf_bad(begin, length, number, err);
        passed_over = strcspn(whole, "[") < strcspn(whole, "="); /* a heading */
    }
    *count = r.count;
    return code;
}

enum error_code model_conf_parse(const char *text, size_t size, struct model_section **sections, size_t *count,
                                 struct error *err)
{
    const enum error_code code = model_conf_read(text, size, false, sections, count, err);
    if (code) {
        free(*sections);
        *sections = NULL;
        *count = 0;
    }
    return code;
}

enum error_code model_conf_own(const char *text, size_t size, struct model_section **sections, size_t *count,
                               struct error *err)
{
    return model_conf_read(text, size, true, sections, count, err);
}

char *model_conf_lines(const struct model_settings *settings)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    if (settings->has_slope)
        fprintf(out, "slope = %.9g\n", (double)settings->slope);
    if (settings->min_sizes[0][0] > 0) {
        fputs("min_sizes =", out);
        for (int i = 0; i < 6; i++)
            fprintf(out, " %.9g", (double)settings->min_sizes[i / 2][i % 2]);
        fputc('\n', out);
    }
    if (settings->activation == ACTIVATION_RELU)
        fputs("activation = relu\n", out);
    else if (settings->activation == ACTIVATION_LEAKY && settings->activation_slope > 0)
        fprintf(out, "activation = leakyrelu:%.9f\n", (double)settings->activation_slope);
    else if (settings->activation == ACTIVATION_LEAKY)
        fputs("activation = leakyrelu\n", out);
    if (settings->has_noise_level)
        fprintf(out, "noise_level = %.9g\n", (double)settings->noise_level);
    if (settings->has_jpeg_quality)
        fprintf(out, "jpeg_quality = %.9g\n", (double)settings->jpeg_quality);
    if (!fclose(out))
        return text;
    free(text);
    return NULL;
}

bool model_conf_overlay(struct model_settings *settings, const struct model_section *sections, size_t count,
                        const char *name)
{
    bool found = false;
    for (size_t i = count; i-- > 0;) { /* the first one wins */
        const struct model_settings *own = &sections[i].settings;
        if (!sections[i].has_settings || strcmp(sections[i].name, name) != 0)
            continue;
        found = true;
        if (own->has_slope) {
            settings->has_slope = true;
            settings->slope = own->slope;
        }
        if (own->min_sizes[0][0] > 0)
            memcpy(settings->min_sizes, own->min_sizes, sizeof settings->min_sizes);
        if (own->activation != ACTIVATION_NONE) {
            settings->activation = own->activation;
            settings->activation_slope = own->activation_slope;
        }
        if (own->has_noise_level) {
            settings->has_noise_level = true;
            settings->noise_level = own->noise_level;
        }
        if (own->has_jpeg_quality) {
            settings->has_jpeg_quality = true;
            settings->jpeg_quality = own->jpeg_quality;
        }
    }
    return found;
}

const struct model_section *model_conf_find(const struct model_section *sections, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(sections[i].name, name) == 0)
            return &sections[i];
    return NULL;
}

bool model_conf_same(const struct model_settings *a, const struct model_settings *b)
{
    return a->has_slope == b->has_slope && a->slope == b->slope &&
           memcmp(a->min_sizes, b->min_sizes, sizeof a->min_sizes) == 0 && a->activation == b->activation &&
           a->activation_slope == b->activation_slope && a->has_noise_level == b->has_noise_level &&
           a->noise_level == b->noise_level && a->has_jpeg_quality == b->has_jpeg_quality &&
           a->jpeg_quality == b->jpeg_quality;
}

enum error_code model_conf_load(struct model_section **sections, size_t *count, struct error *err)
{
    size_t size;
    const uint8_t *text = embed_find("models.conf", &size);
    if (!text)
        return error_set(err, ERROR_INTERNAL, "models.conf is not embedded");
    return model_conf_parse((const char *)text, size, sections, count, err);
}

bool model_conf_called(const struct model_section *section, const char *name)
{
    if (strcmp(section->name, name) == 0)
        return true;
    size_t n = strlen(name);
    for (const char *p = section->alias; n > 0 && *p;) {
        size_t length = strcspn(p, " ");
        if (length == n && memcmp(p, name, n) == 0)
            return true;
        p += length + strspn(p + length, " ");
    }
    return false;
}
