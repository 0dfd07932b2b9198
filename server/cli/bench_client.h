/* A small HTTP client that sends one request again and again over one connection, to put load on a server.
 * Thread-safety: one thread a client. */
#ifndef SERVER_CLI_BENCH_CLIENT_H
#define SERVER_CLI_BENCH_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct bench_client;

/* Connects to 127.0.0.1:port. */
enum error_code bench_client_create(struct bench_client **out, int port, struct error *err) MUST_CHECK;
void bench_client_destroy(struct bench_client **client);

/* Sends head ("POST ... \r\n\r\n") and body, and reads the whole answer. faces: from its X-Restored-Faces. ERROR_IO
 * with what the server says, when the status is not 200. */
enum error_code bench_client_post(struct bench_client *client, const char *head, const uint8_t *body, size_t size,
                                  int *faces, struct error *err) MUST_CHECK;

#endif
