#include "server/http/header.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/utf8.h"
#include "server/image/defect.h"

/* Bytes of a file name's stem and of the suffix option; with the extension it stays under the usual 255. */
#define STEM_MAX 120
#define SUFFIX_MAX 127

/* For X-Restored-Notes: room for the text that says how many are missing, and bytes of one note before it is
 * escaped. */
#define NOTES_REST 64
#define NOTE_MAX 512

static bool header_is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool header_is_request_id(const char *text)
{
    size_t n = 0;
    for (; text[n]; n++)
        if (n >= 64 || (!header_is_alnum(text[n]) && text[n] != '_' && text[n] != '-'))
            return false;
    return n > 0;
}

bool header_is_token(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!header_is_alnum(text[i]) && (!text[i] || !strchr("!#$%&'*+-.^_`|~", text[i])))
            return false;
    return size > 0;
}

bool header_is_value(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (((unsigned char)text[i] < 0x20 && text[i] != '\t') || text[i] == 0x7f)
            return false;
    return true;
}

bool header_is_target(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] <= 0x20 || text[i] == 0x7f)
            return false;
    return size > 0;
}

#define DIGITS "0123456789"
#define HEX DIGITS "abcdefABCDEF"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool header_is_host(const char *text, size_t size)
{
    size_t n = 0;
    if (*text == '[') {
        n = 1 + strspn(text + 1, HEX ":.");
        if (n < 3 || text[n++] != ']')
            return false;
    } else {
        n = strspn(text, LETTERS DIGITS "-._~!$&'()*+,;=%");
    }
    if (n && text[n] == ':')
        n += 1 + strspn(text + n + 1, DIGITS);
    return n && n == size;
}

bool header_is_length(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return size > 0 && size < 20;
}

/* How well a range such as "image/png", "image/ *" (without the blank) or the full wildcard fits: 3, 2, 1, or 0. */
static int header_range_fit(const char *range, size_t size, const char *type)
{
    size_t major = (size_t)(strchr(type, '/') - type) + 1;
    if (size == strlen(type) && !strncasecmp(range, type, size))
        return 3;
    if (size == major + 1 && range[major] == '*' && !strncasecmp(range, type, major))
        return 2;
    return size == 3 && !strncmp(range, "*/*", 3);
}

/* The q parameter of "range;q=0.5;...", in thousandths. Anything odd counts as 1, but for ".5": RFC 9110 wants the 0,
 * and many clients leave it out. */
static int header_quality_of(const char *parameters, const char *end)
{
    for (const char *at = parameters; at < end; at++) {
        if (*at != ';')
            continue;
        at++;
        while (at < end && isspace((unsigned char)*at))
            at++;
        if (end - at < 3 || (at[0] != 'q' && at[0] != 'Q') || at[1] != '=') {
            at--;
            continue;
        }
        if (at[2] != '0' && (at[2] != '.' || !isdigit((unsigned char)at[3])))
            return 1000;
        at += at[2] == '.' ? 2 : 3;
        int q = 0, unit = 100;
        if (*at == '.')
            for (at++; at < end && *at >= '0' && *at <= '9' && unit; at++, unit /= 10)
                q += (*at - '0') * unit;
        return q;
    }
    return 1000;
}

int header_accept(const char *accept, const char *type, bool *named)
{
    int best = 0, result = 0;
    if (named)
        *named = false;
    if (!accept || !accept[strspn(accept, " \t")])
        return 1000;
    while (*accept) {
        accept += strspn(accept, ", \t");
        const char *end = accept + strcspn(accept, ",");
        size_t size = strcspn(accept, ";, \t");
        int fits = header_range_fit(accept, size, type);
        if (fits > best) {
            best = fits;
            result = header_quality_of(accept + size, end);
        }
        accept = end;
    }
    if (named)
        *named = best > 1;
    return result;
}

int header_accept_coding(const char *accept, const char *coding)
{
    int result = 0;
    for (bool named = false; accept && *accept && !named; accept += strcspn(accept, ",")) {
        accept += strspn(accept, ", \t");
        const size_t size = strcspn(accept, ";, \t");
        named = size == strlen(coding) && !strncasecmp(accept, coding, size);
        if (named || (size == 1 && *accept == '*'))
            result = header_quality_of(accept + size, accept + strcspn(accept, ","));
    }
    return result;
}

/* Copies what a file name may contain: no control characters (C0, DEL, C1), quotes, path parts, or characters that some
 * file system forbids. */
static size_t header_clean_name(const char *text, char *out, size_t room)
{
    size_t used = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        size_t size = utf8_size((const char *)at);
        bool bad = !size || *at < 0x20 || *at == 0x7f || (size == 2 && at[0] == 0xc2 && at[1] < 0xa0) ||
                   (size == 1 && strchr("\"'`/\\<>:|?*;", *at));
        if (!bad) {
            if (used + size >= room)
                break;
            memcpy(out + used, at, size);
            used += size;
        }
        at += size ? size : 1;
    }
    out[used] = 0;
    return used;
}

void header_file_name(const char *name, const char *suffix, const char *extension, char out[HEADER_FILE_MAX])
{
    char stem[STEM_MAX + 1], tail[SUFFIX_MAX + 1];
    const char *base = name ? name : "";
    for (const char *at = base; *at; at++)
        if (*at == '/' || *at == '\\')
            base = at + 1;
    header_clean_name(base, stem, sizeof stem);
    const size_t dots = strspn(stem, ". "); /* no hidden file */
    memmove(stem, stem + dots, strlen(stem + dots) + 1);
    char *dot = strrchr(stem, '.');
    if (dot)
        *dot = 0;
    for (size_t n = strlen(stem); n && (stem[n - 1] == ' ' || stem[n - 1] == '.'); n--)
        stem[n - 1] = 0;
    header_clean_name(suffix ? suffix : "", tail, sizeof tail);
    snprintf(out, HEADER_FILE_MAX, "%s%s%s.%.8s", *stem ? stem : "restored", *tail ? "_" : "", tail, extension);
}

void header_disposition(const char *name, const char *suffix, const char *extension, char *out, size_t size)
{
    char full[HEADER_FILE_MAX], plain[sizeof full];
    header_file_name(name, suffix, extension, full);
    size_t used = 0;
    for (const char *at = full; *at; at += utf8_size(at))
        plain[used++] = utf8_size(at) == 1 ? *at : '_';
    plain[used] = 0;
    int n = snprintf(out, size, "attachment; filename=\"%s\"", plain);
    if (n < 0 || (size_t)n >= size || !strcmp(plain, full))
        return;
    /* ext-value of RFC 8187: attr-char unchanged, the rest percent-encoded */
    used = (size_t)n;
    char encoded[3 * sizeof full];
    size_t length = 0;
    for (const unsigned char *at = (const unsigned char *)full; *at; at++)
        if (*at < 0x80 && (header_is_alnum((char)*at) || strchr("!#$&+-.^_`|~", *at)))
            encoded[length++] = (char)*at;
        else
            length += (size_t)sprintf(encoded + length, "%%%02X", *at);
    encoded[length] = 0;
    if (used + length + 18 < size)
        sprintf(out + used, "; filename*=UTF-8''%s", encoded);
}

void header_notes(const char *const *notes, int count, char out[HEADER_NOTES_MAX + 1])
{
    size_t used = 1;
    int taken = 0;
    out[0] = '[';
    for (; taken < count; taken++) {
        char text[NOTE_MAX], escaped[6 * NOTE_MAX + 2]; /* \u and four digits for each byte at most, and the quotes */
        json_t *note = json_string(utf8_copy(text, sizeof text, notes[taken]));
        size_t size = json_dumpb(note, escaped, sizeof escaped, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
        json_decref(note);
        const size_t rest = taken + 1 < count ? NOTES_REST : 1; /* the last one is followed only by the bracket */
        if (!size || size > sizeof escaped || used + size + 2 + rest > HEADER_NOTES_MAX)
            break;
        used += (size_t)sprintf(out + used, "%s%.*s", taken ? ", " : "", (int)size, escaped);
    }
    if (taken < count)
        used += (size_t)sprintf(out + used, "%s\"... and %d more\"", taken ? ", " : "", count - taken);
    strcpy(out + used, "]");
    for (char *c = out; *c; c++)
        if (*c == 0x7f) /* JSON lets it be, a header does not */
            *c = '?';
}

void header_damage(const int *counts, char out[HEADER_DAMAGE_MAX])
{
    size_t used = 0;
    for (int k = 0; k < DEFECT_KINDS; k++)
        used += (size_t)snprintf(out + used, HEADER_DAMAGE_MAX - used, "%s%s=%d", k ? ", " : "", defect_names[k],
                                 counts[k]);
}
