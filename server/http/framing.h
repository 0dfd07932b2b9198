/* Where a request begins and ends, and whom it is for: refuses what two parsers could read differently. libmicrohttpd
 * is lenient here. Its strict mode (MHD_OPTION_STRICT_FOR_CLIENT) adds only two checks, for blanks in the target and
 * for a missing Host. Both are made here, and its own answer to a missing Host has its header twice (0.9.75).
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_FRAMING_H
#define SERVER_HTTP_FRAMING_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

/* A request's target as received, in libmicrohttpd's buffer. */
struct framing_target {
    const char *text;
    size_t size;
    bool zero, crowded; /* a percent-encoded zero byte in the path; more arguments than allowed */
    bool plain;         /* no blanks or control characters */
};

struct framing {
    const char *wrong; /* why the request is refused; NULL: it is not */
    bool has_body;     /* one is announced */
    bool has_length, chunked;
    uint64_t length; /* Content-Length */
};

/* Examines the target before libmicrohttpd parses it (MHD_OPTION_URI_LOG_CALLBACK). */
void framing_look(struct framing_target *out, const char *text);

/* Checks method, target, version and headers at the first call for a request. */
void framing_read(struct framing *out, struct MHD_Connection *connection, const char *method,
                  const struct framing_target *target, const char *version);

/* The path of a target in absolute form ("http://host/path", RFC 9112 3.2.2), and its host, which counts instead of the
 * header Host; of others the path as it is, and "". NULL when its authority is not a host. */
#define FRAMING_HOST_MAX 280
const char *framing_path(const char *path, char host[FRAMING_HOST_MAX]);

#endif
