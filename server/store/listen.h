/* What servers that share a store tell each other (store_notify). A text may get lost while there is no connection, so
 * it only says that it is worth looking at the store now. Thread-safety: one thread listens; any may call listen_wake.
 */
#ifndef SERVER_STORE_LISTEN_H
#define SERVER_STORE_LISTEN_H

#include <stdbool.h>

#include "runtime/base/error.h"

struct listen;

/* Connects at the first listen_wait. */
enum error_code listen_open(struct listen **out, const char *where, const char *password_file,
                            struct error *err) MUST_CHECK;
void listen_close(struct listen **listen);

typedef void listen_fn(void *context, const char *text);
/* Waits until there are texts, listen_wake is called, or the time is over, and tells them. True: a connection was made,
 * so texts from before are lost. Without a connection it waits for a second at most, and tries again. */
bool listen_wait(struct listen *listen, int milliseconds, listen_fn *each, void *context);
void listen_wake(struct listen *listen);

#endif
