/* Errors as values. A fallible function returns an error_code and takes, last, a struct error that receives the
 * code, a text for the user and a detail for the log. The first failure wins: a later error_set on a struct that
 * already carries a code leaves its texts alone. A NULL struct error is allowed.
 * Thread-safety: a struct error belongs to one thread at a time. */
#ifndef RUNTIME_BASE_ERROR_H
#define RUNTIME_BASE_ERROR_H

#include <stdint.h>

enum error_code {
    OK = 0,
    ERROR_INVALID,         /* an option or argument is wrong */
    ERROR_NOT_FOUND,       /* a file, model or device that was asked for is not there */
    ERROR_UNSUPPORTED,     /* a format or feature that we do not have */
    ERROR_CORRUPT,         /* input that is broken */
    ERROR_TOO_LARGE,       /* over a limit that is set, or that the device has */
    ERROR_NO_MEMORY,       /* host or device memory ran out */
    ERROR_IO,              /* the operating system refused */
    ERROR_DEVICE,          /* the device or its driver failed */
    ERROR_DEVICE_LOST,     /* the device is gone and has to be opened again */
    ERROR_DEVICE_DISABLED, /* the device is there and cannot be used: it lacks something, or failed its self-test */
    ERROR_CANCELLED,       /* the job was cancelled */
    ERROR_TIMEOUT,         /* the job's deadline passed */
    ERROR_STALLED,         /* the job made no progress for too long */
    ERROR_TOO_SLOW,        /* the job would not be done before its deadline */
    ERROR_BUSY,            /* the queue is full, or the server drains */
    ERROR_FULL,            /* the disk, or the space we may use of it */
    ERROR_INTERNAL         /* a bug of ours */
};

struct error {
    enum error_code code;
    char text[640];   /* for the user: says what is wrong and what is allowed or what to do */
    int local;        /* bytes of text before the part that error_local added; 0: none was added */
    char detail[256]; /* for the log */
};

#define ERROR_INIT                                                                                                     \
    {                                                                                                                  \
        0                                                                                                              \
    }

/* Sets code and text (printf form) if err carries no code yet; returns code in any case. Anything but printable UTF-8
 * becomes '?', so that the text may be shown anywhere. */
enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds to the text what is useful only to people at this machine, such as paths and commands. */
void error_local(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copies another error's texts, under a code that may differ, if err carries no code yet; returns code. */
enum error_code error_copy(struct error *err, enum error_code code, const struct error *from);

/* Sets the detail for the log of an error that is already set. */
void error_detail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A count of bytes as texts say it: "512 bytes", "64 MiB (67108864 bytes)". Returns out. */
#define ERROR_BYTES_MAX 48
const char *error_bytes(char out[ERROR_BYTES_MAX], uint64_t bytes);

/* Clears the error, for a caller that has dealt with it. */
void error_clear(struct error *err);

/* The code's name in lower case with '-', such as "too-large"; static storage. */
const char *error_code_name(enum error_code code);

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
