/* The log: one event a line on stderr. As text: "2026-01-31T12:00:00.123Z level event key=value key=\"other value\"";
 * as JSON: {"time":"2026-01-31T12:00:00.123Z","level":"info","event":"start","key":1,"other":"text"}. Both are UTF-8
 * whatever they are given, and no value can end a line or begin another key.
 * Thread-safety: every function may be called from any thread; a line is written whole. A struct log_line belongs to
 * one thread. */
#ifndef RUNTIME_BASE_LOG_H
#define RUNTIME_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

/* LOG_ALWAYS: what the operator has just asked for; written as info, whatever the level. */
enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_ALWAYS };
enum log_format { LOG_TEXT, LOG_JSON };

/* Lines below this level are dropped; LOG_INFO at start. */
void log_set_level(enum log_level level);
/* LOG_TEXT at start. */
void log_set_format(enum log_format format);

/* event: one word with '-'; format: the rest, "key=value key=value", with printf's conversions (of those %a, %n, %m, L
 * and wide characters are left out). A value that has spaces in the format itself stands in double quotes there. A
 * value that is one conversion of a number, and not quoted, is a number in JSON, one that stands as true or false in
 * the format a boolean; all others are texts. */
void log_event(enum log_level level, const char *event, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same in parts, for events whose keys are not always the same: log_begin, log_add for some pairs, log_end. What is
 * too long for a line is cut between two characters, or left out. */
struct log_line {
    char text[4096]; /* PIPE_BUF: a pipe takes so much at once */
    size_t used;
    bool dropped; /* below the level */
    enum log_format format;
};
void log_begin(struct log_line *line, enum log_level level, const char *event);
void log_add(struct log_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_end(struct log_line *line);

/* Milliseconds on a clock that never goes back, for events that say how long something took. */
double log_clock_ms(void);

#endif
