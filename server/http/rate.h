/* How much each client takes a minute: buckets that fill steadily and are emptied by what is taken. A fixed number of
 * them; where there are more clients, those that took least are forgotten first.
 * Thread-safety: every function may be called from any thread, except create and destroy. */
#ifndef SERVER_HTTP_RATE_H
#define SERVER_HTTP_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"

#define RATE_KEY_MAX 64 /* with its final 0 */

struct rate;

enum error_code rate_create(struct rate **out, struct error *err) MUST_CHECK;
void rate_destroy(struct rate **rate);

/* Takes that amount from a client's bucket, which holds what may be taken in a minute. 0: it was taken; else the
 * seconds until it can be. More than a bucket holds is taken from a full one, which is in debt then. An amount of 0
 * asks whether it is out of debt. */
double rate_take(struct rate *rate, const char *key, double amount, double a_minute, int64_t now_ns);

/* Puts back what was taken. */
void rate_give(struct rate *rate, const char *key, double amount, double a_minute, int64_t now_ns);

/* The key of a client's address: an IPv4 address, or the /64 network of an IPv6 address, in which a client chooses its
 * address freely. false: it is this machine, which no limit is for, or not an address. */
bool rate_key(const char *address, char out[RATE_KEY_MAX]);

#endif
