/* The log: one event a line on stderr, "2026-01-31T12:00:00.123Z level event key=value ...".
 * Thread-safety: every function may be called from any thread; a line is written whole. */
#ifndef RUNTIME_BASE_LOG_H
#define RUNTIME_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

/* Lines below this level are dropped; LOG_INFO at start. */
void log_set_level(enum log_level level);

/* event: one word with '-'; format: the rest, "key=value key=value". Control characters come out as '?'. */
void log_event(enum log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ms on a clock that never goes back, for events that say how long something took. */
double log_clock_ms(void);

#endif
