/* The certificate and key of the HTTPS server. New connections get those that were read last.
 * Thread-safety: every function may be called from any thread, except create and destroy. One struct tls a process. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/error.h"

/* TLS 1.2 and 1.3, with what GnuTLS holds to be good of them. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

struct tls;

/* Reads both files (PEM; the certificate with those that lead to its issuer). *out is NULL with OK if both paths are
 * "". ERROR_INVALID: only one of them is set, or they do not belong together; ERROR_IO, ERROR_NOT_FOUND, ERROR_INVALID:
 * what is wrong with a file. */
enum error_code tls_create(struct tls **out, const char *certificate, const char *key, struct error *err) MUST_CHECK;
/* There may be no connections. */
void tls_destroy(struct tls **tls);

/* Reads the files again. After an error the old ones stay. NULL-safe. */
enum error_code tls_reload(struct tls *tls, struct error *err) MUST_CHECK;

/* For MHD_OPTION_HTTPS_CERT_CALLBACK. */
void *tls_callback(void);

/* Sends bytes on a connection's session (MHD_CONNECTION_INFO_GNUTLS_SESSION) by the thread that handles it; false: not
 * all of them could be sent at once. */
bool tls_send(void *session, const void *data, size_t size);

#endif
