/* What a client may ask for, and what is stored of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/compat/hooks.h"
#include "server/compat/reach.h"
#include "server/http/site.h"

enum error_code hooks_read(const struct config *config, const json_t *json, struct hook *out, struct error *err)
{
    const json_t *url = json_object_get(json, "webhook"), *filter = json_object_get(json, "webhook_events_filter");
    const json_t *event;
    char origin[REACH_ORIGIN_MAX];
    size_t i;
    *out = (struct hook){.start = !json_is_array(filter), .end = !json_is_array(filter)};
    if (filter && !json_is_null(filter) && !json_is_array(filter))
        return error_set(err, ERROR_INVALID, "webhook_events_filter: it has to be a list");
    json_array_foreach(filter, i, event)
    {
        const char *name = json_string_value(event);
        if (!name ||
            (strcmp(name, "start") && strcmp(name, "output") && strcmp(name, "logs") && strcmp(name, "completed")))
            return error_set(err, ERROR_INVALID,
                             "webhook_events_filter: \"%.40s\" is not allowed; allowed are start, output, logs and "
                             "completed",
                             name ? name : "?");
        out->start = out->start || !strcmp(name, "start");
        out->end = out->end || !strcmp(name, "output") || !strcmp(name, "completed"); /* the output comes at the end */
    }
    if (!url || json_is_null(url))
        return OK;
    if (!json_is_string(url) || json_string_length(url) >= sizeof out->url ||
        !reach_origin(json_string_value(url), origin))
        return error_set(err, ERROR_INVALID, "webhook: it has to be an http or https URL, without a user's name");
    if (!site_is_listed_origin(origin, config->webhook_origins))
        return error_set(err, ERROR_INVALID, "webhook: %.100s is not one of the server's webhook_origins", origin);
    snprintf(out->url, sizeof out->url, "%s", json_string_value(url));
    return OK;
}

void hooks_trace(struct hook_trace *out, const char *parent, const char *state)
{
    *out = (struct hook_trace){0};
    if (!parent || strlen(parent) >= sizeof out->parent) /* without it the other means nothing */
        return;
    strcpy(out->parent, parent);
    if (state && strlen(state) < sizeof out->state)
        strcpy(out->state, state);
}

char *hooks_text(const struct hook *hook, const char *prediction)
{
    json_t *json =
        json_pack("{s:s, s:s, s:b, s:b, s:s, s:s}", "url", hook->url, "prediction", prediction, "start", hook->start,
                  "end", hook->end, "traceparent", hook->trace.parent, "tracestate", hook->trace.state);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static void hooks_copy(char *to, size_t size, const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    snprintf(to, size, "%s", text ? text : "");
}

void hooks_parse(const char *text, struct hook *out, char prediction[HOOKS_ID_MAX])
{
    json_t *json = json_loads(text, 0, NULL);
    *out = (struct hook){.start = json_is_true(json_object_get(json, "start")),
                         .end = json_is_true(json_object_get(json, "end"))};
    hooks_copy(out->url, sizeof out->url, json, "url");
    hooks_copy(prediction, HOOKS_ID_MAX, json, "prediction");
    hooks_copy(out->trace.parent, sizeof out->trace.parent, json, "traceparent");
    hooks_copy(out->trace.state, sizeof out->trace.state, json, "tracestate");
    json_decref(json);
}
