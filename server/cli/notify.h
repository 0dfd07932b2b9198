/* What a service manager is told (sd_notify's protocol: a datagram to the socket of $NOTIFY_SOCKET), and its watchdog.
 * Where there is no such manager all of this does nothing.
 * Thread-safety: notify_send from any thread; the rest for the main thread. */
#ifndef SERVER_CLI_NOTIFY_H
#define SERVER_CLI_NOTIFY_H

#include <stdbool.h>

/* Sends lines such as "READY=1". A manager that does not listen is passed over. */
void notify_send(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What must hold for the watchdog to be told that all is well; it returns within that time. */
typedef bool notify_check(const void *subject, int milliseconds);

/* If $WATCHDOG_USEC asks for it, starts a thread that tells the watchdog at least that often, as long as check holds.
 * NULL: it does not, or the thread could not be started (which is logged). */
struct notify_watch;
struct notify_watch *notify_watch(notify_check *check, const void *subject);
/* Ends the thread. NULL is allowed. */
void notify_unwatch(struct notify_watch **watch);

#endif
