/* An option's value from text, and as text.
 * Thread-safety: functions without state. */
#ifndef SERVER_PIPELINE_OPTION_VALUE_H
#define SERVER_PIPELINE_OPTION_VALUE_H

#include <stdbool.h>
#include <stddef.h>

#include "server/pipeline/options.h"

/* How an option is kept in struct options. */
enum option_kind {
    KIND_NAME,   /* char[OPTION_NAME_MAX] */
    KIND_DEVICE, /* the same; '/' is allowed */
    KIND_NUMBER,
    KIND_INTEGER,
    KIND_BOOLEAN,
    KIND_CHOICE, /* an enum, index into choices */
    KIND_FORMAT, /* the same; jpeg and tif are names, too */
    KIND_AUTO,   /* an enum: auto, true or false */
    KIND_TILE,
    KIND_WEIGHT, /* a double for all faces, and lists for single ones */
    KIND_SCALE,  /* a number, or auto */
    KIND_SIDE,   /* an integer, or auto: 0 */
    KIND_SEED,
    KIND_FACES,
    KIND_DAMAGE /* a set of kinds of damage */
};

struct option_field {
    enum option_kind kind;
    size_t offset; /* in struct options */
    double low, high;
    const char *const *choices; /* of an enum; NULL after the last */
};

/* Sets the field from text; false: it is not allowed, and what the field has then is undefined. */
bool option_value_read(struct options *options, const struct option_field *field, const char *text);

/* The field's value, as option_value_read takes it. */
void option_value_text(const struct options *options, const struct option_field *field, char *out, size_t size);

#endif
