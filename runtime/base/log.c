#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/utf8.h"

static atomic_int log_minimum = LOG_INFO, log_chosen = LOG_TEXT;

/* So that a function can take arguments from a list that its caller goes on with. */
struct log_args {
    va_list list;
};

/* A key or a value as it is made, before it is quoted. */
struct log_piece {
    char text[2048];
    size_t used;
};

void log_set_level(enum log_level level)
{
    atomic_store(&log_minimum, (int)level);
}

void log_set_format(enum log_format format)
{
    atomic_store(&log_chosen, (int)format);
}

/* --- what a line is made of --- */

#define LOG_END 4 /* room that stays for what ends a line: a quote, a brace, the newline */

static bool log_put(struct log_line *line, const char *bytes, size_t size)
{
    if (line->used + size + LOG_END > sizeof line->text)
        return false;
    memcpy(line->text + line->used, bytes, size);
    line->used += size;
    return true;
}

/* Text between double quotes, or as it stands. */
static void log_put_text(struct log_line *line, const char *text, bool quoted)
{
    const bool json = line->format == LOG_JSON;
    bool room = !quoted || log_put(line, "\"", 1);
    const bool closed = room && quoted;
    while (*text && room) {
        const unsigned char c = (unsigned char)*text;
        const size_t width = utf8_size(text);
        char escape[8];
        if (width && c >= 0x20 && c != 0x7f && c != '"' && (c != '\\' || !json)) {
            room = log_put(line, text, width);
        } else if (json) {
            const int size = c == '"' || c == '\\' ? snprintf(escape, sizeof escape, "\\%c", c)
                                                   : snprintf(escape, sizeof escape, "\\u%04x", width ? c : 0xfffdu);
            room = log_put(line, escape, (size_t)size);
        } else {
            room = log_put(line, c == '"' ? "'" : "?", 1);
        }
        text += width ? width : 1;
    }
    if (closed)
        line->text[line->used++] = '"'; /* LOG_END has room for it */
}

/* One pair. It is left out when not even its key fits. */
static void log_put_pair(struct log_line *line, const char *key, const char *value, bool quoted, bool typed)
{
    if (line->used + strlen(key) + 64 > sizeof line->text)
        return;
    if (line->format == LOG_JSON) {
        log_put(line, ",", 1);
        log_put_text(line, key, true);
        log_put(line, ":", 1);
        log_put_text(line, value, !typed || strpbrk(value, "in")); /* "inf" and "nan" are no JSON */
    } else {
        log_put(line, " ", 1);
        log_put_text(line, key, false);
        log_put(line, "=", 1);
        log_put_text(line, value, quoted || strpbrk(value, " \""));
    }
}

/* --- printf --- */

static void log_piece_add(struct log_piece *piece, const char *text, size_t size)
{
    const size_t room = sizeof piece->text - 1 - piece->used;
    size = size < room ? size : room;
    memcpy(piece->text + piece->used, text, size);
    piece->used += size;
    piece->text[piece->used] = 0;
}

/* Reads flags, width and precision after '%' into spec, with numbers in place of '*'; returns what follows. */
static const char *log_read_spec(const char *at, char *spec, size_t size, struct log_args *args)
{
    size_t used = 0;
    spec[used++] = '%';
    for (; *at && strchr("-+ #0123456789.*", *at) && used + 12 < size; at++)
        if (*at == '*')
            used += (size_t)snprintf(spec + used, size - used, "%d", va_arg(args->list, int));
        else
            spec[used++] = *at;
    spec[used] = 0;
    return at;
}

static intmax_t log_read_signed(const char *length, struct log_args *args)
{
    return !strncmp(length, "ll", 2) ? va_arg(args->list, long long)
           : *length == 'l'          ? va_arg(args->list, long)
           : *length == 'z'          ? (intmax_t)va_arg(args->list, ssize_t)
           : *length == 'j'          ? va_arg(args->list, intmax_t)
                                     : va_arg(args->list, int);
}

static uintmax_t log_read_unsigned(const char *length, struct log_args *args)
{
    return !strncmp(length, "ll", 2) ? va_arg(args->list, unsigned long long)
           : *length == 'l'          ? va_arg(args->list, unsigned long)
           : *length == 'z'          ? va_arg(args->list, size_t)
           : *length == 'j'          ? va_arg(args->list, uintmax_t)
                                     : va_arg(args->list, unsigned);
}

/* The text of one conversion, which begins after '%'. Returns what follows it; *number: whether it is one. */
static const char *log_convert(struct log_piece *piece, const char *at, struct log_args *args, bool *number)
{
    char spec[48], text[2048];
    const char *length = log_read_spec(at, spec, sizeof spec, args);
    at = length + strspn(length, "hljz");
    const char type = *at ? *at++ : '%';
    *number = strchr("diufFgGeE", type);
    const size_t used = strlen(spec);
    snprintf(spec + used, sizeof spec - used, "%s%c", strchr("diuxXo", type) ? "j" : "", type);
    if (type == 's')
        snprintf(text, sizeof text, spec, va_arg(args->list, const char *));
    else if (type == 'd' || type == 'i')
        snprintf(text, sizeof text, spec, log_read_signed(length, args));
    else if (strchr("uxXo", type))
        snprintf(text, sizeof text, spec, log_read_unsigned(length, args));
    else if (strchr("fFgGeE", type))
        snprintf(text, sizeof text, spec, va_arg(args->list, double));
    else if (type == 'c')
        snprintf(text, sizeof text, spec, va_arg(args->list, int));
    else if (type == 'p')
        snprintf(text, sizeof text, spec, va_arg(args->list, void *));
    else
        snprintf(text, sizeof text, "%%");
    log_piece_add(piece, text, strlen(text));
    return at;
}

/* Makes a piece of the format up to the character `until`. *typed: it is one conversion of a number, or stands as true
 * or false in the format itself. */
static const char *log_make(struct log_piece *piece, const char *at, char until, struct log_args *args, bool *typed)
{
    int parts = 0, conversions = 0;
    bool numeric = false;
    for (piece->used = 0, *piece->text = 0; *at && *at != until; parts++)
        if (*at == '%') {
            at = log_convert(piece, at + 1, args, &numeric);
            conversions++;
        } else {
            log_piece_add(piece, at++, 1);
            numeric = false;
        }
    *typed = conversions ? parts == 1 && numeric : !strcmp(piece->text, "true") || !strcmp(piece->text, "false");
    return at;
}

static void log_add_list(struct log_line *line, const char *at, struct log_args *args)
{
    struct log_piece key, value;
    bool typed;
    while (*(at += strspn(at, " "))) {
        at = log_make(&key, at, '=', args, &typed);
        at += *at == '=';
        const bool quoted = *at == '"';
        at = log_make(&value, at + quoted, quoted ? '"' : ' ', args, &typed);
        at += quoted && *at;
        log_put_pair(line, key.text, value.text, quoted, typed && !quoted);
    }
}

/* --- events --- */

void log_begin(struct log_line *line, enum log_level level, const char *event)
{
    static const char *const names[] = {"debug", "info", "warn", "error", "info"};
    line->used = 0;
    line->dropped = (int)level < atomic_load(&log_minimum);
    line->format = (enum log_format)atomic_load(&log_chosen);
    if (line->dropped)
        return;
    struct timespec now;
    struct tm utc;
    char time[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%S", &utc);
    const int used = snprintf(line->text, sizeof line->text,
                              line->format == LOG_JSON ? "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"event\":\"%.64s\""
                                                       : "%s.%03ldZ %s %.64s",
                              time, now.tv_nsec / 1000000, names[level], event);
    line->used = used > 0 ? (size_t)used : 0;
}

void log_add(struct log_line *line, const char *format, ...)
{
    struct log_args args;
    if (line->dropped)
        return;
    va_start(args.list, format);
    log_add_list(line, format, &args);
    va_end(args.list);
}

void log_end(struct log_line *line)
{
    if (line->dropped)
        return;
    if (line->format == LOG_JSON)
        line->text[line->used++] = '}';
    line->text[line->used++] = '\n';
    ssize_t written = write(STDERR_FILENO, line->text, line->used);
    (void)written; /* there is nowhere to report that the log failed */
}

void log_event(enum log_level level, const char *event, const char *format, ...)
{
    struct log_line line;
    struct log_args args;
    log_begin(&line, level, event);
    if (line.dropped)
        return;
    va_start(args.list, format);
    log_add_list(&line, format, &args);
    va_end(args.list);
    log_end(&line);
}

double log_clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
