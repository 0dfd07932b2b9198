#include "server/http/framing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/header.h"

struct reading {
    struct framing *out;
    int hosts, lengths, encodings;
    const char *line; /* where the next line has to begin; NULL: not looked at */
};

static void wrong(struct framing *out, const char *text)
{
    if (!out->wrong)
        out->wrong = text;
}

static const char torn[] = "the header holds a zero byte, a line that goes on in the next one, or a line that does not "
                           "end with CR LF";

static enum MHD_Result look_at(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
                               const char *value, size_t value_size)
{
    struct reading *reading = context;
    struct framing *out = reading->out;
    (void)kind;
    if (!value) {
        value = name + name_size;
        value_size = 0;
    }
    if (reading->line && name != reading->line)
        wrong(out, torn);
    if (reading->line)
        reading->line = value + value_size + 2;
    if (!header_is_token(name, name_size)) {
        wrong(out, "a header's name holds characters that are not allowed");
    } else if (!header_is_value(value, value_size)) {
        wrong(out, "a header's value holds control characters");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_HOST)) {
        reading->hosts++;
        while (value_size && strchr(" \t", value[value_size - 1]))
            value_size--;
        if (!header_is_host(value, value_size))
            wrong(out, "Host is not a host with or without a port");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        reading->encodings++;
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        reading->lengths++;
        if (header_is_length(value, value_size))
            out->length = strtoull(value, NULL, 10);
        else
            wrong(out, "Content-Length is not a number");
    }
    return MHD_YES;
}

/* Below 1.0, libmicrohttpd cuts a header at zero bytes, takes a bare LF for the end of a line, and adds a continued
 * line to the header's NAME, so that "Content-Lengt: 5", continued by "h", is a Content-Length to it. None of that can
 * be seen in what it hands out; but all of that points into the buffer with the header as it came, in which one thing
 * must follow the other without a gap. */
static bool points_into_buffer(void)
{
    return strverscmp(MHD_get_version(), "1.0") < 0;
}

void framing_look(struct framing_target *out, const char *text)
{
    size_t size = strlen(text);
    *out = (struct framing_target){text, size, header_is_target(text, size)};
}

void framing_read(struct framing *out, struct MHD_Connection *connection, const char *method,
                  const struct framing_target *target, const char *version)
{
    struct reading reading = {.out = out};
    *out = (struct framing){0};
    bool whole = points_into_buffer();
    if (!target->plain)
        wrong(out, "the request's target holds a blank or a control character");
    if (whole) {
        if (target->text != method + strlen(method) + 1 || version != target->text + target->size + 1)
            wrong(out, "the request's first line is not METHOD TARGET VERSION with one blank between them");
        reading.line = version + strlen(version) + 2;
    }
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look_at, &reading);
    const union MHD_ConnectionInfo *size = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (whole && size && reading.line + 2 != method + size->header_size)
        wrong(out, torn);
    if (reading.encodings && reading.lengths)
        wrong(out, "Content-Length and Transfer-Encoding exclude each other");
    if (reading.lengths > 1)
        wrong(out, "there is more than one Content-Length");
    if (reading.encodings > 1)
        wrong(out, "there is more than one Transfer-Encoding");
    if (reading.hosts > 1 || (!reading.hosts && strcmp(version, MHD_HTTP_VERSION_1_0) != 0))
        wrong(out, "there must be one Host");
    out->has_length = reading.lengths > 0;
    out->has_body = reading.encodings || out->length;
}

const char *framing_path(const char *path)
{
    size_t scheme = !strncasecmp(path, "http://", 7) ? 7 : !strncasecmp(path, "https://", 8) ? 8 : 0;
    if (!scheme)
        return path;
    const char *authority = path + scheme;
    size_t size = strcspn(authority, "/");
    if (!header_is_host(authority, size))
        return NULL;
    return authority[size] ? authority + size : "/";
}
