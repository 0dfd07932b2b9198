/* Where a request comes from when there are proxies in between: which proxies are trusted, and the address that they
 * pass on. Pure functions of text.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_PROXIES_H
#define SERVER_HTTP_PROXIES_H

#include <netinet/in.h>
#include <stdbool.h>

#include "runtime/base/error.h"

/* Whether trusted_proxies is a comma-separated list of addresses and ranges (10.0.0.0/8, ::1); ERROR_INVALID names the
 * bad entry. */
enum error_code proxies_check_list(const char *trusted, struct error *err) MUST_CHECK;

/* An address as the other functions take it: IPv4 in its mapped form; all zeros for any other family. */
struct sockaddr;
struct in6_addr proxies_address(const struct sockaddr *address);

/* Whether an address is in such a list. */
bool proxies_is_listed(const char *list, const struct in6_addr *address);

/* The client's address as text: peer (the socket's address) if that is not trusted; else the last address in
 * X-Forwarded-For (or Forwarded, if that is NULL) that is not trusted. Anything there that is not an address ends the
 * search: then the result is the last proxy before it. */
void proxies_client(const char *trusted, const struct in6_addr *peer, const char *x_forwarded_for,
                    const char *forwarded, char out[INET6_ADDRSTRLEN]);

#endif
