#include "server/http/multipart.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "server/http/header.h"

/* Where in the body the next byte is. */
enum multipart_state {
    MULTIPART_PREAMBLE,
    MULTIPART_DELIMITER, /* behind one: blanks, then CR LF, or "--" */
    MULTIPART_BLANK,     /* behind blanks there */
    MULTIPART_CR,
    MULTIPART_DASH,
    MULTIPART_HEADER,
    MULTIPART_DATA,
    MULTIPART_EPILOGUE
};

struct multipart {
    const struct multipart_events *events;
    void *context;
    enum multipart_state state;
    int parts;
    size_t matched; /* bytes of the delimiter at the end of the data so far: not passed on yet */
    size_t delimiter_size;
    char delimiter[4 + MULTIPART_BOUNDARY_MAX + 1]; /* CR LF "--" boundary: its only CR is the first byte */
    size_t header_size;
    char header[MULTIPART_HEADER_MAX + 1];
};

/* Removes quotes and escapes in place from a quoted string that begins after its first quote; returns where its last
 * quote was, or NULL without one. curl escapes with a backslash, or, as browsers do, with %22; browsers leave other
 * backslashes unchanged. */
static char *multipart_unquote(char *at)
{
    char *to = at;
    for (; *at != '"'; at++) {
        if (!*at)
            return NULL;
        if (*at == '\\' && (at[1] == '"' || at[1] == '\\')) {
            *to++ = *++at;
        } else if (!strncmp(at, "%22", 3) || !strncasecmp(at, "%0D", 3) || !strncasecmp(at, "%0A", 3)) {
            *to++ = at[1] == '2' ? '"' : at[2] == 'D' || at[2] == 'd' ? '\r' : '\n';
            at += 2;
        } else {
            *to++ = *at;
        }
    }
    *to = 0;
    return at;
}

/* Takes the next "name=value;" from *at. False at the end, or, with *at NULL, when it is malformed. */
static bool multipart_parameter(char **at, char **name, char **value)
{
    char *next = *at + strspn(*at, " \t"), *end;
    if (!*next)
        return false;
    *at = NULL;
    *name = next;
    next += strcspn(next, "=; \t");
    if (*next != '=' || !header_is_token(*name, (size_t)(next - *name)))
        return false;
    *next++ = 0;
    if (*next == '"') {
        *value = next + 1;
        end = multipart_unquote(*value);
        if (!end)
            return false;
        next = end + 1;
    } else {
        *value = next;
        end = next += strcspn(next, "; \t\"");
    }
    next += strspn(next, " \t");
    if (*next && *next != ';')
        return false;
    *at = *next ? next + 1 : next;
    *end = 0;
    return true;
}

/* Where the parameters of "type; name=value" begin; NULL when it is another type. */
static char *multipart_parameters(char *text, const char *type)
{
    const size_t size = strcspn(text, "; \t");
    char *rest = text + size + strspn(text + size, " \t");
    if (size != strlen(type) || strncasecmp(text, type, size) != 0 || (*rest && *rest != ';'))
        return NULL;
    return *rest ? rest + 1 : rest;
}

/* The boundary of a Content-Type, into the delimiter. */
static enum error_code multipart_boundary(struct multipart *m, const char *content_type, struct error *err)
{
    char *at, *name, *value, *boundary = NULL;
    if (strlen(content_type) > MULTIPART_HEADER_MAX)
        return error_set(err, ERROR_INVALID, "the Content-Type is longer than %d bytes", MULTIPART_HEADER_MAX);
    strcpy(m->header, content_type);
    at = multipart_parameters(m->header, "multipart/form-data");
    while (at && multipart_parameter(&at, &name, &value)) {
        if (strcasecmp(name, "boundary") != 0)
            continue;
        if (boundary)
            return error_set(err, ERROR_INVALID, "the Content-Type has more than one boundary");
        boundary = value;
    }
    if (!at)
        return error_set(err, ERROR_INVALID, "the Content-Type is not \"multipart/form-data; boundary=...\"");
    const size_t size = boundary ? strlen(boundary) : 0;
    if (!size || size > MULTIPART_BOUNDARY_MAX || boundary[size - 1] == ' ' ||
        strspn(boundary, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'()+_,-./:=? ") != size)
        return error_set(err, ERROR_INVALID,
                         "multipart/form-data needs a boundary in the Content-Type: 1 to %d letters, digits and "
                         "characters of '()+_,-./:=?",
                         MULTIPART_BOUNDARY_MAX);
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, size);
    m->delimiter_size = size + 4;
    return OK;
}

enum error_code multipart_create(struct multipart **out, const char *content_type,
                                 const struct multipart_events *events, void *context, struct error *err)
{
    struct multipart *m = mem_calloc(1, sizeof *m);
    if (!m)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a form");
    enum error_code code = multipart_boundary(m, content_type, err);
    if (code) {
        free(m);
        return code;
    }
    m->events = events;
    m->context = context;
    m->matched = 2; /* the first delimiter may be the very beginning of the body */
    *out = m;
    return OK;
}

void multipart_destroy(struct multipart **multipart)
{
    free(*multipart);
    *multipart = NULL;
}

/* The parameters of Content-Disposition; filename* is for other media (RFC 7578 4.2). */
static enum error_code multipart_disposition(struct multipart_part *part, char *value, struct error *err)
{
    char *name, *text, *at = multipart_parameters(value, "form-data");
    if (!at)
        return error_set(err, ERROR_INVALID, "a part's Content-Disposition is not form-data");
    while (multipart_parameter(&at, &name, &text)) {
        const char **to = !strcasecmp(name, "name")       ? &part->name
                          : !strcasecmp(name, "filename") ? &part->file_name
                                                          : NULL;
        if (to && *to)
            return error_set(err, ERROR_INVALID, "a part's Content-Disposition has more than one %s", name);
        if (to)
            *to = text;
    }
    return at ? OK : error_set(err, ERROR_INVALID, "a part's Content-Disposition is not understood");
}

/* One line of a part's header; *disposed: whether there was a Content-Disposition. */
static enum error_code multipart_line(struct multipart_part *part, char *line, size_t size, bool *disposed,
                                      struct error *err)
{
    char *value = memchr(line, ':', size);
    if (!value || !header_is_token(line, (size_t)(value - line)))
        return error_set(err, ERROR_INVALID, "a line in the header of a part is not \"Name: value\"");
    *value++ = 0;
    if (!header_is_value(value, size - (size_t)(value - line)))
        return error_set(err, ERROR_INVALID, "the header of a part holds control characters");
    line[size] = 0;
    value += strspn(value, " \t");
    for (char *end = line + size; end > value && (end[-1] == ' ' || end[-1] == '\t'); end--)
        end[-1] = 0;
    if (!strcasecmp(line, "Content-Disposition")) {
        if (*disposed)
            return error_set(err, ERROR_INVALID, "a part has more than one Content-Disposition");
        *disposed = true;
        return multipart_disposition(part, value, err);
    }
    if (!strcasecmp(line, "Content-Type") && !strncasecmp(value, "multipart/", 10))
        return error_set(err, ERROR_INVALID, "a part of the form is multipart itself; send each file as its own part");
    if (!strcasecmp(line, "Content-Transfer-Encoding"))
        part->encoding = value;
    return OK;
}

/* Takes bytes up to the end of a line into the header; after the empty line the part begins. */
static enum error_code multipart_header(struct multipart *m, const char *data, size_t size, size_t *taken,
                                        struct error *err)
{
    const char *newline = memchr(data, '\n', size);
    *taken = newline ? (size_t)(newline - data) + 1 : size;
    if (*taken > MULTIPART_HEADER_MAX - m->header_size)
        return error_set(err, ERROR_INVALID, "the header of a part is longer than %d bytes", MULTIPART_HEADER_MAX);
    memcpy(m->header + m->header_size, data, *taken);
    m->header_size += *taken;
    if (!newline)
        return OK;
    if (m->header_size < 2 || m->header[m->header_size - 2] != '\r')
        return error_set(err, ERROR_INVALID, "a line in the header of a part does not end with CR LF");
    if (m->header_size > 2 && (m->header_size < 4 || memcmp(m->header + m->header_size - 4, "\r\n", 2) != 0))
        return OK;
    struct multipart_part part = {0};
    bool disposed = false;
    for (char *line = m->header, *end; line < m->header + m->header_size - 2; line = end + 2) {
        end = (char *)memchr(line, '\n', MULTIPART_HEADER_MAX) - 1; /* each line has its CR LF */
        enum error_code code = multipart_line(&part, line, (size_t)(end - line), &disposed, err);
        if (code)
            return code;
    }
    m->state = MULTIPART_DATA;
    return m->events->begin(m->context, &part, err);
}

static enum error_code multipart_pass(struct multipart *m, const char *data, size_t size, struct error *err)
{
    return m->state == MULTIPART_DATA && size ? m->events->data(m->context, data, size, err) : OK;
}

/* Passes on what comes before the next delimiter. A delimiter has only one CR, so only the last CR can begin one that
 * is cut off by the end of the data, and no other one begins inside a failed match. */
static enum error_code multipart_data(struct multipart *m, const char *data, size_t size, size_t *taken,
                                      struct error *err)
{
    enum error_code code = OK;
    if (m->matched) {
        const size_t left = m->delimiter_size - m->matched, n = size < left ? size : left;
        if (!memcmp(data, m->delimiter + m->matched, n)) {
            m->matched += n;
            *taken = n;
        } else {
            code = multipart_pass(m, m->delimiter, m->matched, err);
            m->matched = *taken = 0;
            return code;
        }
    } else {
        const char *found = memmem(data, size, m->delimiter, m->delimiter_size);
        const size_t tail = size < m->delimiter_size ? size : m->delimiter_size - 1;
        const char *cr = found ? NULL : memrchr(data + size - tail, '\r', tail);
        if (cr && memcmp(cr, m->delimiter, (size_t)(data + size - cr)) != 0)
            cr = NULL;
        m->matched = found ? m->delimiter_size : cr ? (size_t)(data + size - cr) : 0;
        *taken = found ? (size_t)(found - data) + m->delimiter_size : size;
        code = multipart_pass(m, data, *taken - m->matched, err);
    }
    if (code || m->matched < m->delimiter_size)
        return code;
    m->matched = 0;
    code = m->state == MULTIPART_DATA ? m->events->end(m->context, err) : OK;
    m->state = MULTIPART_DELIMITER;
    return code;
}

/* A byte between a delimiter and what follows its line. */
static enum error_code multipart_delimiter(struct multipart *m, char c, struct error *err)
{
    if ((c == ' ' || c == '\t') && m->state <= MULTIPART_BLANK) {
        m->state = MULTIPART_BLANK;
    } else if (c == '\r' && m->state <= MULTIPART_BLANK) {
        m->state = MULTIPART_CR;
    } else if (c == '-' && m->state == MULTIPART_DELIMITER) {
        m->state = MULTIPART_DASH;
    } else if (c == '-' && m->state == MULTIPART_DASH) {
        m->state = MULTIPART_EPILOGUE;
    } else if (c == '\n' && m->state == MULTIPART_CR) {
        if (++m->parts > MULTIPART_PARTS)
            return error_set(err, ERROR_INVALID, "the form has more than %d parts", MULTIPART_PARTS);
        m->state = MULTIPART_HEADER;
        m->header_size = 0;
    } else {
        return error_set(err, ERROR_INVALID, "a boundary of the form is followed neither by a new line nor by \"--\"");
    }
    return OK;
}

enum error_code multipart_feed(struct multipart *m, const char *data, size_t size, struct error *err)
{
    while (size && m->state != MULTIPART_EPILOGUE) {
        enum error_code code;
        size_t taken = 1;
        if (m->state == MULTIPART_PREAMBLE || m->state == MULTIPART_DATA)
            code = multipart_data(m, data, size, &taken, err);
        else if (m->state == MULTIPART_HEADER)
            code = multipart_header(m, data, size, &taken, err);
        else
            code = multipart_delimiter(m, *data, err);
        if (code)
            return code;
        data += taken;
        size -= taken;
    }
    return OK;
}

enum error_code multipart_finish(const struct multipart *m, struct error *err)
{
    if (m->state == MULTIPART_EPILOGUE)
        return OK;
    if (m->state == MULTIPART_PREAMBLE)
        return error_set(err, ERROR_INVALID, "the boundary that the Content-Type names is not in the form");
    return error_set(err, ERROR_INVALID, "the form is cut off: its last boundary is missing");
}
