/* Where the server may be sent by a client: to origins that a setting lists, and never to an address that is not
 * public, whatever its name, unless another setting lists it. The second check is for the moment of the connection, so
 * that a name which changes its address does not get around it. Thread-safety: functions without state. */
#ifndef SERVER_COMPAT_REACH_H
#define SERVER_COMPAT_REACH_H

#include <curl/curl.h>
#include <stdbool.h>

#define REACH_ORIGIN_MAX 320 /* a host has at most 253 characters */

/* scheme://host:port of an http or https URL, as it is written there. False: it is none, or has a user's name, or
 * characters that no URL has. */
bool reach_origin(const char *url, char out[REACH_ORIGIN_MAX]);

/* Whether an address may be connected to: it is public, or one of the list (proxies_check_list). */
struct sockaddr;
bool reach_may_connect(const struct sockaddr *address, const char *listed);

/* What a transfer may connect to, and whether it wanted to connect to others. */
struct reach {
    const char *listed;    /* as above */
    bool refused, allowed; /* addresses so far, by reach_may_connect */
};

/* For every transfer: checks each address at the socket, follows no redirection, uses no proxy of the environment, and
 * nothing but http. `reach` is the caller's, and lasts as long as the transfer. */
void reach_prepare(CURL *curl, struct reach *reach);

#endif
