/* Bodies that other programs' clients send: JSON with files in base64. Whatever comes is refused or read, in pieces of
 * any size with the same outcome, and what is read as a file is what another decoder of the same text makes of it. A
 * webhook that is taken, and an address that is fetched from, lead where the operator's list says, as curl understands
 * their URLs. */
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/compat/compat.h"
#include "server/compat/fetch.h"
#include "server/compat/hooks.h"
#include "server/compat/intake.h"
#include "tests/fuzz/exercise.h"

#define FUZZ_ORIGIN "https://h.example:8443"

/* Where curl would go. */
static void fuzz_place(const char *address)
{
    char *host = NULL, *port = NULL;
    CURLU *url = curl_url();
    if (url && !curl_url_set(url, CURLUPART_URL, address, 0)) /* else nothing is sent */
        if (curl_url_get(url, CURLUPART_HOST, &host, 0) || curl_url_get(url, CURLUPART_PORT, &port, 0) ||
            strcmp(host, "h.example") != 0 || strcmp(port, "8443") != 0)
            abort();
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(url);
}

static void fuzz_hook(const json_t *json)
{
    static struct config config = {.webhook_origins = FUZZ_ORIGIN, .fetch_origins = FUZZ_ORIGIN};
    const char *address = json_string_value(json_object_get(json, "webhook"));
    struct hook hook;
    struct error ignored = ERROR_INIT;
    if (!hooks_read(&config, json, &hook, &ignored) && *hook.url)
        fuzz_place(hook.url);
    error_clear(&ignored);
    if (address && !fetch_check(&config, address, &ignored))
        fuzz_place(address);
}

/* The outcome of a body that comes in pieces of that size; what it is, in a few bytes. */
static uint64_t fuzz_read(const uint8_t *data, size_t size, size_t piece, bool *opened)
{
    struct intake *intake;
    struct error err = ERROR_INIT;
    json_t *json = NULL;
    uint64_t hash = 14695981039346656037u;
    if (intake_create(&intake, NULL, 1 << 20, &err))
        abort();
    enum error_code code = OK;
    for (size_t at = 0; at < size && !code; at += piece)
        code = intake_feed(intake, (const char *)data + at, size - at < piece ? size - at : piece, &err);
    if (!code)
        code = intake_finish(intake, &json, &err);
    if (!code != !err.code)
        abort();
    for (json_int_t file = -1; !code && file <= INTAKE_FILES; file++) {
        struct body body;
        json_t *value = json_pack("[I]", file);
        struct error local = ERROR_INIT;
        if (!intake_file(intake, value, "image", &body, &local)) {
            char text[64];
            if (!body.size || file < 0 || file == INTAKE_FILES || body.size > size)
                abort();
            for (size_t i = 0; i < body.size; i++)
                hash = (hash ^ body.data[i]) * 1099511628211u;
            for (uint64_t at = 0; at < 70; at += 7) /* as it would go out again */
                (void)!compat_encode(body.data, body.size, at, text, sizeof text);
            body_clear(&body);
        }
        json_decref(value);
    }
    if (!code)
        fuzz_hook(json);
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    for (size_t i = 0; text && text[i]; i++)
        hash = (hash ^ (uint8_t)text[i]) * 1099511628211u;
    free(text);
    json_decref(json);
    intake_destroy(&intake);
    *opened = code == OK;
    return hash + (uint64_t)code;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 16)
        return 0;
    bool opened, again;
    const uint64_t whole = fuzz_read(data, size, size + 1, &opened);
    if (fuzz_read(data, size, 1, &again) != whole || fuzz_read(data, size, 7, &again) != whole)
        abort();
    exercise_opened += opened;
    return 0;
}
