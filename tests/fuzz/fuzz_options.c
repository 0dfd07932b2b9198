/* Any "name=value" lines as the fields of a request: refused with the name of the field, or taken; and what was taken
 * is stored as a job's text and read again without a change. Also: any bytes as that text. */
#include <stdlib.h>
#include <string.h>

#include "server/http/upload.h"
#include "server/job/record.h"
#include "tests/fuzz/exercise.h"

static void check_round_trip(const struct options *options)
{
    struct error err = ERROR_INIT;
    struct restoration *r = NULL, *again = NULL;
    const struct limits limits = {0};
    if (restoration_create(&r, &err))
        abort();
    r->options = *options;
    char *text = record_options(r);
    if (!text || record_restoration(text, &limits, &again, &err))
        abort();
    char *second = record_options(again);
    if (!second || strcmp(text, second) != 0 || again->options.weight != options->weight ||
        again->options.upscale != options->upscale)
        abort();
    free(text);
    free(second);
    restoration_destroy(&r);
    restoration_destroy(&again);
}

static void check_text(const char *text)
{
    struct error err = ERROR_INIT, reason = ERROR_INIT;
    struct restoration *r = NULL;
    const struct limits limits = {0};
    bool decoded;
    if (record_restoration(text, &limits, &r, &err) != err.code || !r != (err.code != OK))
        abort();
    restoration_destroy(&r);
    record_read_error(text, &reason, &decoded);
    if (!reason.code || !*reason.text)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1), *at = copy, *line;
    struct upload *upload = NULL;
    struct error err = ERROR_INIT;
    if (!copy || upload_create(&upload, size && data[0] == 'd', 1000, &err))
        abort();
    memcpy(copy, data, size);
    copy[size] = 0;
    check_text(copy);
    while ((line = strsep(&at, "\n")) && !err.code) {
        char *value = strchr(line, '=');
        if (value)
            *value++ = 0;
        if (upload_field(upload, line, value ? value : "", value ? strlen(value) : 0, &err) != err.code ||
            (err.code && !*err.text))
            abort();
    }
    if (!err.code && !options_check(upload_options(upload), &err)) {
        check_round_trip(upload_options(upload));
        exercise_opened++;
    }
    if (*upload_batch(upload) && !upload_is_batch(upload_batch(upload)))
        abort();
    upload_destroy(&upload);
    free(copy);
    return 0;
}
