/* The log: one event a line on stderr, "2026-01-31T12:00:00.123Z level event key=value ...".
 * Thread-safety: every function may be called from any thread; a line is written whole. */
#ifndef RUNTIME_BASE_LOG_H
#define RUNTIME_BASE_LOG_H

/* LOG_ALWAYS: what the operator has just asked for; written as info, whatever the level. */
enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_ALWAYS };

/* Lines below this level are dropped; LOG_INFO at start. */
void log_set_level(enum log_level level);

/* A double quote in text that log_event gets as an argument and that is to stay one. */
#define LOG_QUOTE "\1"

/* event: one word with '-'; format: the rest, "key=value key=value". Values that may hold
 * spaces stand in the format's own double quotes; double quotes inside values come out as single ones, and control
 * characters as '?'. */
void log_event(enum log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Milliseconds on a clock that never goes back, for events that say how long something took. */
double log_clock_ms(void);

#endif
