/* Whether a request's Host is one of the server's own names, and whether a web page of another site sent it. Without
 * the first check, a page whose name points at this machine (DNS rebinding) could read and use the server; without the
 * second, any page that somebody visits could. Pure functions of text.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_SITE_H
#define SERVER_HTTP_SITE_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

/* Whether allowed_hosts is a list of names, "*.NAME" or "*"; ERROR_INVALID names the bad entry. */
enum error_code site_check_list(const char *allowed, struct error *err) MUST_CHECK;

/* Whether cors_origins is a list of origins as browsers send them (https://photos.example.com, http://nas:8080),
 * without patterns; ERROR_INVALID names the bad entry. And whether an Origin is one of a list. */
enum error_code site_check_origins(const char *origins, struct error *err) MUST_CHECK;
bool site_is_listed_origin(const char *origin, const char *origins);

/* Whether `listen` is an address that only this machine can reach. */
bool site_is_local(const char *listen);

/* Whether a Host (with or without a port; NULL: none was sent) is ours. Always ours: localhost, 127.0.0.0/8, [::1], the
 * host of `listen`, and what allowed_hosts lists. If `listen` is not a loopback address, also every name that public
 * DNS cannot point here: IP addresses, names without a dot, those under .local and .internal, and the machine's own.
 * address: accept IP addresses in any case, for probes, which often come through something that listens elsewhere. */
bool site_host_is_ours(const char *host, const char *allowed, const char *listen, bool address);

/* What a browser says about the origin of a request; NULL for a header that was not sent. */
struct site_request {
    const char *origin, *fetch_site, *fetch_mode, *fetch_dest;
    const char *host, *forwarded_host;
};

/* Whether a page of another site sent it. Sec-Fetch-Site, which no page can set, decides. If a browser does not send
 * that, Origin must be the requested host, or the first in X-Forwarded-Host, which no page can send to another site
 * without asking first. Origin "null" is another site. Without any of these the client is not a browser. */
bool site_is_foreign(const struct site_request *request);

/* The same for routes that change nothing and that a person may reach by following a link. */
bool site_is_foreign_read(const struct site_request *request);

#endif
