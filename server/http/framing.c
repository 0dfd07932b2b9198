#include "server/http/framing.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/http/header.h"

#define FRAMING_ARGUMENTS 256 /* of a query: several times the number of options */
#define FRAMING_STRING(n) #n
#define FRAMING_TEXT(n) FRAMING_STRING(n)

struct reading {
    struct framing *out;
    int hosts, lengths, encodings;
    const char *line; /* where the next line must begin; NULL: not checked */
};

static void framing_wrong(struct framing *out, const char *text)
{
    if (!out->wrong)
        out->wrong = text;
}

static const char torn[] = "the header holds a zero byte, a line that goes on in the next one, or a line that does not "
                           "end with CR LF";

static enum MHD_Result framing_look_at(void *context, enum MHD_ValueKind kind, const char *name, size_t name_size,
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
        framing_wrong(out, torn);
    if (reading->line)
        reading->line = value + value_size + 2;
    if (!header_is_token(name, name_size)) {
        framing_wrong(out, "a header's name holds characters that are not allowed");
    } else if (!header_is_value(value, value_size)) {
        framing_wrong(out, "a header's value holds control characters");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_HOST)) {
        reading->hosts++;
        while (value_size && strchr(" \t", value[value_size - 1]))
            value_size--;
        if (!header_is_host(value, value_size))
            framing_wrong(out, "Host is not a host with or without a port");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        reading->encodings++;
        while (value_size && strchr(" \t", value[value_size - 1]))
            value_size--;
        if (value_size == 7 && !strncasecmp(value, "chunked", 7))
            out->chunked = true;
        else
            framing_wrong(out, "Transfer-Encoding: only chunked is supported");
    } else if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) {
        reading->lengths++;
        if (header_is_length(value, value_size))
            out->length = strtoull(value, NULL, 10);
        else
            framing_wrong(out, "Content-Length is not a number");
    }
    return MHD_YES;
}

/* Below 1.0, libmicrohttpd cuts a header at zero bytes, takes a bare LF for the end of a line, and adds a continued
 * line to the header's NAME, so that "Content-Lengt: 5", continued by "h", is a Content-Length to it. None of that
 * shows in what it hands out; but all of this points into the buffer with the header as received, where one thing must
 * follow the other without a gap. */
static bool framing_in_buffer(void)
{
    return strverscmp(MHD_get_version(), "1.0") < 0;
}

void framing_look(struct framing_target *out, const char *text)
{
    size_t size = strlen(text);
    *out = (struct framing_target){.text = text, .size = size, .plain = header_is_target(text, size)};
    const char *zero = strstr(text, "%00"), *query = strchr(text, '?');
    int arguments = 0;
    out->zero = zero && (!query || zero < query);
    for (const char *at = query; at; at = strchr(at + 1, '&'))
        arguments++;
    out->crowded = arguments > FRAMING_ARGUMENTS;
    /* libmicrohttpd has no memory for that many, and would never answer. Below 1.0 the text is its own buffer, which it
     * is about to parse; this way it finds an empty query */
    if (out->crowded && framing_in_buffer())
        *(char *)(uintptr_t)(query + 1) = 0;
}

void framing_read(struct framing *out, struct MHD_Connection *connection, const char *method,
                  const struct framing_target *target, const char *version)
{
    struct reading reading = {.out = out};
    *out = (struct framing){0};
    bool whole = framing_in_buffer();
    if (target->crowded)
        framing_wrong(out, "the query has more than " FRAMING_TEXT(FRAMING_ARGUMENTS) " arguments");
    if (target->zero)
        framing_wrong(out, "the request's path holds a zero byte");
    if (!target->plain)
        framing_wrong(out, "the request's target holds a blank or a control character");
    if (whole) {
        if (target->text != method + strlen(method) + 1 || version != target->text + target->size + 1)
            framing_wrong(out, "the request's first line is not METHOD TARGET VERSION with one blank between them");
        reading.line = version + strlen(version) + 2;
    }
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, framing_look_at, &reading);
    const union MHD_ConnectionInfo *size = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (whole && size && reading.line + 2 != method + size->header_size)
        framing_wrong(out, torn);
    if (reading.encodings && reading.lengths)
        framing_wrong(out, "Content-Length and Transfer-Encoding exclude each other");
    if (reading.lengths > 1)
        framing_wrong(out, "there is more than one Content-Length");
    if (reading.encodings > 1)
        framing_wrong(out, "there is more than one Transfer-Encoding");
    if (reading.hosts > 1 || (!reading.hosts && strcmp(version, MHD_HTTP_VERSION_1_0) != 0))
        framing_wrong(out, "exactly one Host header is required");
    if (reading.encodings && !strcmp(version, MHD_HTTP_VERSION_1_0))
        framing_wrong(out, "HTTP/1.0 has no Transfer-Encoding");
    out->has_length = reading.lengths > 0;
    out->has_body = reading.encodings || out->length;
}

const char *framing_path(const char *path, char host[FRAMING_HOST_MAX])
{
    size_t scheme = !strncasecmp(path, "http://", 7) ? 7 : !strncasecmp(path, "https://", 8) ? 8 : 0;
    *host = 0;
    if (!scheme)
        return path;
    const char *authority = path + scheme;
    size_t size = strcspn(authority, "/");
    if (!header_is_host(authority, size) || size >= FRAMING_HOST_MAX)
        return NULL;
    memcpy(host, authority, size);
    host[size] = 0;
    return authority[size] ? authority + size : "/";
}
