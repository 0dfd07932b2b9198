/* Any text as the target of a request: its path leads to a route or to none, its query is split and decoded as
 * libmicrohttpd does it and taken or refused; and the same query as a form's body has the same outcome. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/header.h"
#include "server/http/router.h"
#include "server/http/upload.h"
#include "tests/fuzz/exercise.h"

#define FORM "application/x-www-form-urlencoded"
#define BODY_MAX 16000 /* less than what is taken as a form */

/* Whether the path of this target leads anywhere. */
static bool find_route(char *target)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "DELETE", "PUT"};
    char host[FRAMING_HOST_MAX], allowed[ROUTER_ALLOWED_MAX];
    bool any = false;
    MHD_http_unescape(target);
    const char *path = framing_path(target, host);
    if (!path)
        return false;
    if (strlen(host) >= sizeof host || (*host && !header_is_host(host, strlen(host))))
        abort();
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct router_parts parts = {{0}, {0}};
        const struct route *route = router_find(path, methods[i], &parts, allowed);
        if (!memchr(allowed, 0, sizeof allowed) || strchr(parts.id, '/') || strchr(parts.number, '/') ||
            (route && !strstr(allowed, methods[i])))
            abort();
        any = any || route;
    }
    return any;
}

/* Gives the arguments of a query to the upload; the text is decoded in place. */
static enum error_code take_query(struct upload *upload, char *query, struct error *err)
{
    enum error_code code = OK;
    for (char *at = query, *next; code == OK && at && *at; at = next) {
        next = strchr(at, '&');
        if (next)
            *next++ = 0;
        char *value = strchr(at, '=');
        if (value)
            *value++ = 0;
        for (char *c = at; *c; c++)
            *c = *c == '+' ? ' ' : *c;
        for (char *c = value; c && *c; c++)
            *c = *c == '+' ? ' ' : *c;
        const size_t name_size = MHD_http_unescape(at), size = value ? MHD_http_unescape(value) : 0;
        code = upload_argument(upload, at, name_size, value, size, err);
    }
    return code;
}

/* Whether each "%" has its two digits; of others libmicrohttpd makes something of its own. */
static bool is_clear(const char *query)
{
    for (const char *at = strchr(query, '%'); at; at = strchr(at + 1, '%'))
        if (!isxdigit((unsigned char)at[1]) || !isxdigit((unsigned char)at[2]))
            return false;
    return true;
}

/* Whether the query is all that an estimate needs. */
static bool check_query(char *query)
{
    struct error err = ERROR_INIT, form_err = ERROR_INIT;
    struct upload *upload, *form;
    const size_t size = strlen(query);
    const bool clear = size < BODY_MAX && is_clear(query);
    if (upload_create(&upload, false, BODY_MAX, &err) || upload_create(&form, false, BODY_MAX, &err))
        abort();
    upload_take_size(upload);
    upload_take_size(form);
    if (clear && size &&
        (upload_begin(form, FORM, size, &form_err) || upload_feed(form, query, size, &form_err) ||
         upload_finish(form, &form_err)) != (form_err.code != OK))
        abort();
    if (!take_query(upload, query, &err) && !upload_begin(upload, NULL, 0, &err) &&
        upload_finish(upload, &err) != err.code)
        abort();
    if ((err.code && !*err.text) ||
        (clear && size && (err.code != form_err.code || strcmp(err.text, form_err.text) != 0)))
        abort();
    if (upload_size(upload)->width < 0 || upload_size(upload)->height < 0 || (!err.code && !upload_size(upload)->width))
        abort();
    upload_destroy(&upload);
    upload_destroy(&form);
    return err.code == OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct framing_target target;
    if (!size || memchr(data, 0, size))
        return 0;
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    framing_look(&target, text);
    if (target.size != size || (target.plain && strcspn(text, " \t\r\n\177") != strlen(text)))
        abort();
    char *query = strchr(text, '?');
    if (query)
        *query++ = 0;
    const bool taken = query && check_query(query);
    exercise_opened += find_route(text) && taken;
    free(text);
    return 0;
}
