#include "server/pipeline/option_value.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/image/defect.h"
#include "server/pipeline/size.h"

static bool option_value_number(const char *text, double low, double high, double *out)
{
    /* strtod alone would accept "nan", "0x10", " 2" and, in some locales, "1,5". */
    size_t n = strspn(text, "0123456789.");
    if (n == 0 || n > 400 || text[n] != '\0' || !strpbrk(text, "0123456789"))
        return false;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (c == (locale_t)0)
        return false;
    char *end;
    double value = strtod_l(text, &end, c);
    freelocale(c);
    if (*end || !(value >= low && value <= high))
        return false;
    *out = value;
    return true;
}

static bool option_value_digits(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

static bool option_value_integer(const char *text, int low, int high, int *out)
{
    uint64_t value;
    if (!option_value_digits(text, &value) || value > (uint64_t)high || (int)value < low)
        return false;
    *out = (int)value;
    return true;
}

static bool option_value_boolean(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "1", "on", "yes"}, *const no[] = {"false", "0", "off", "no"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* A name that may be used in a message, a report or, as a suffix, in a file's name. */
static bool option_value_name(const char *text, bool slash, char out[OPTION_NAME_MAX])
{
    size_t n = strlen(text);
    if (n >= OPTION_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f || (strchr("/\\", text[i]) && !slash))
            return false;
    memcpy(out, text, n + 1);
    return true;
}

static bool option_value_faces(struct options *options, const char *text)
{
    if (strcmp(text, "all") == 0 || strcmp(text, "none") == 0) {
        options->faces = text[0] == 'a' ? FACES_ALL : FACES_NONE;
        options->face_id_count = 0;
        return true;
    }
    int ids[OPTION_MAX_FACES], count = 0;
    while (count < OPTION_MAX_FACES) {
        char number[16];
        size_t n = strcspn(text, ",");
        if (n >= sizeof number)
            return false;
        memcpy(number, text, n);
        number[n] = '\0';
        if (!option_value_integer(number, 0, 99999, &ids[count]))
            return false;
        for (int i = 0; i < count; i++)
            if (ids[i] == ids[count])
                return false;
        count++;
        if (text[n] == '\0') {
            options->faces = FACES_LISTED;
            options->face_id_count = count;
            memcpy(options->face_ids, ids, sizeof ids[0] * (size_t)count);
            return true;
        }
        text += n + 1;
    }
    return false;
}

static double option_value_round(double share)
{
    return floor(share * 1e4 + 0.5) / 1e4;
}

static bool option_value_share(const char *text, double *out)
{
    *out = -1;
    return strcmp(text, "auto") == 0 || option_value_number(text, 0, 1, out);
}

/* "0.5", "auto", "0:0.5,2:1" or "auto,0:0.5": what faces without a weight of their own get comes first. */
static bool option_value_weights(struct options *options, const char *text)
{
    options->weight = -1;
    options->weight_count = 0;
    for (bool first = true;; first = false) {
        char part[448], *share;
        size_t n = strcspn(text, ",");
        if (n >= sizeof part)
            return false;
        memcpy(part, text, n);
        part[n] = '\0';
        if ((share = strchr(part, ':'))) {
            const int at = options->weight_count++;
            *share++ = '\0';
            if (at == OPTION_MAX_FACES || !option_value_integer(part, 0, 99999, &options->weight_ids[at]) ||
                !option_value_share(share, &options->face_weights[at]))
                return false;
            for (int i = 0; i < at; i++)
                if (options->weight_ids[i] == options->weight_ids[at])
                    return false;
        } else if (!first || !option_value_share(part, &options->weight)) {
            return false;
        }
        if (text[n] == '\0')
            break;
        text += n + 1;
    }
    /* A list is told, and kept in the store, as text, which must hold all of it. */
    if (options->weight_count && options->weight >= 0)
        options->weight = option_value_round(options->weight);
    for (int i = 0; i < options->weight_count; i++)
        if (options->face_weights[i] >= 0)
            options->face_weights[i] = option_value_round(options->face_weights[i]);
    return true;
}

static bool option_value_choice(const struct option_field *field, const char *text, void *out)
{
    for (int i = 0; field->choices[i]; i++) {
        if (strcmp(text, field->choices[i]) == 0) {
            memcpy(out, &i, sizeof i);
            return true;
        }
    }
    return false;
}

bool option_value_read(struct options *o, const struct option_field *field, const char *value)
{
    void *at = (char *)o + field->offset;
    int low = (int)field->low, high = (int)field->high;
    bool flag;
    switch (field->kind) {
    case KIND_NAME:
        return option_value_name(value, false, at);
    case KIND_DEVICE:
        return option_value_name(strcasecmp(value, "auto") ? value : "auto", true, at);
    case KIND_NUMBER:
        return option_value_number(value, field->low, field->high, at);
    case KIND_INTEGER:
        return option_value_integer(value, low, high, at);
    case KIND_BOOLEAN:
        return option_value_boolean(value, at);
    case KIND_AUTO: /* any boolean, or auto */
        if (option_value_boolean(value, &flag))
            value = flag ? "true" : "false";
        __attribute__((fallthrough));
    case KIND_CHOICE:
        return option_value_choice(field, value, at);
    case KIND_FORMAT:
        return option_value_choice(field, !strcmp(value, "jpeg") ? "jpg" : !strcmp(value, "tif") ? "tiff" : value, at);
    case KIND_TILE:
        if (strcmp(value, "auto") != 0)
            return option_value_integer(value, 0, 0, at) || option_value_integer(value, low, high, at);
        o->bg_tile = -1;
        return true;
    case KIND_WEIGHT:
        return option_value_weights(o, value);
    case KIND_SCALE:
        o->upscaled = strcmp(value, "auto") != 0;
        if (o->upscaled)
            return option_value_number(value, field->low, field->high, at);
        o->upscale = 2;
        return true;
    case KIND_SIDE:
        return strcmp(value, "auto") ? option_value_integer(value, low, high, at) : (memset(at, 0, sizeof(int)), true);
    case KIND_SEED:
        o->has_seed = strcmp(value, "none") != 0;
        return !o->has_seed || option_value_digits(value, at);
    case KIND_FACES:
        return option_value_faces(o, value);
    case KIND_DAMAGE:
        return defect_kinds_read(value, &o->repair_kinds);
    }
    return false;
}

/* Puts one of the parts of a weight after those that are there. */
static void option_value_add_weight(char *out, size_t size, int id, double weight)
{
    char number[32] = "auto";
    if (weight >= 0)
        snprintf(number, sizeof number, "%.10g", weight);
    const size_t used = strlen(out);
    if (id < 0)
        snprintf(out + used, size - used, "%s", number);
    else
        snprintf(out + used, size - used, "%s%d:%s", used ? "," : "", id, number);
}

void option_value_text(const struct options *o, const struct option_field *field, char *out, size_t size)
{
    const void *at = (const char *)o + field->offset;
    int integer = 0;
    out[0] = '\0';
    if (field->kind == KIND_INTEGER || field->kind == KIND_CHOICE || field->kind == KIND_FORMAT ||
        field->kind == KIND_AUTO || field->kind == KIND_TILE || field->kind == KIND_SIDE)
        memcpy(&integer, at, sizeof integer);
    switch (field->kind) {
    case KIND_NAME:
    case KIND_DEVICE:
        snprintf(out, size, "%s", (const char *)at);
        break;
    case KIND_NUMBER:
        snprintf(out, size, "%.10g", *(const double *)at);
        break;
    case KIND_WEIGHT:
        option_value_add_weight(out, size, -1, o->weight);
        for (int i = 0; i < o->weight_count; i++)
            option_value_add_weight(out, size, o->weight_ids[i], o->face_weights[i]);
        break;
    case KIND_SCALE:
        snprintf(out, size, size_asked(o) ? "auto" : "%.10g", o->upscale);
        break;
    case KIND_BOOLEAN:
        snprintf(out, size, "%s", *(const bool *)at ? "true" : "false");
        break;
    case KIND_CHOICE:
    case KIND_FORMAT:
    case KIND_AUTO:
        snprintf(out, size, "%s", field->choices[integer]);
        break;
    case KIND_TILE:
    case KIND_SIDE:
    case KIND_INTEGER:
        snprintf(out, size,
                 (field->kind == KIND_TILE && integer < 0) || (field->kind == KIND_SIDE && !integer) ? "auto" : "%d",
                 integer);
        break;
    case KIND_SEED:
        snprintf(out, size, o->has_seed ? "%" PRIu64 : "none", o->seed);
        break;
    case KIND_FACES:
        if (o->faces != FACES_LISTED)
            snprintf(out, size, "%s", o->faces == FACES_ALL ? "all" : "none");
        for (int i = 0, used = 0; i < o->face_id_count && (size_t)used < size; i++)
            used += snprintf(out + used, size - (size_t)used, i ? ",%d" : "%d", o->face_ids[i]);
        break;
    case KIND_DAMAGE:
        if (size >= DEFECT_TEXT_MAX)
            defect_kinds_text(o->repair_kinds, out);
        break;
    }
}
