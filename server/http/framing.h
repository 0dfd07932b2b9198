/* Where a request begins and ends, and for whom it is: what two parsers could read differently is refused.
 * libmicrohttpd is lenient here. Its strict mode (MHD_OPTION_STRICT_FOR_CLIENT) adds two checks alone, of blanks in the
 * target and of a missing Host, both of which are here, and its own answer to the latter has its header twice (0.9.75).
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_FRAMING_H
#define SERVER_HTTP_FRAMING_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

/* A request's target as it came, in libmicrohttpd's buffer. */
struct framing_target {
    const char *text;
    size_t size;
    bool plain; /* no blanks or control characters */
};

struct framing {
    const char *wrong; /* why the request is refused; NULL: it is not */
    bool has_body;     /* one is announced */
    bool has_length;
    uint64_t length; /* Content-Length */
};

/* Looks at the target before libmicrohttpd takes it apart (MHD_OPTION_URI_LOG_CALLBACK). */
void framing_look(struct framing_target *out, const char *text);

/* Reads method, target, version and headers at the first call for a request. */
void framing_read(struct framing *out, struct MHD_Connection *connection, const char *method,
                  const struct framing_target *target, const char *version);

/* The path of a target in absolute form ("http://host/path", RFC 9112 3.2.2), and of others the path as it is; NULL
 * when its authority is no host. */
const char *framing_path(const char *path);

#endif
