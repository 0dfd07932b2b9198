#include "server/job/offers.h"

#include <string.h>

#include "server/job/record.h"

/* A model_name_fn. */
static void offers_add(void *context, const char *name)
{
    json_array_append_new(context, json_string(name));
}

char *offers_own(const struct model_store *models)
{
    json_t *list = json_array();
    json_array_append_new(list, json_string("starter"));
    json_array_append_new(list, json_string(RECORD_BLENDS));
    for (int i = 0; i < option_row_count; i++)
        if (record_is_newer(option_rows[i].name))
            json_array_append_new(list, json_sprintf(RECORD_OPTION, option_rows[i].name));
    model_store_lock(models);
    for (size_t i = 0; i < model_store_count(models); i++) {
        const struct model_entry *entry = model_store_at(models, i);
        if (entry->recognised)
            model_store_names(models, entry, offers_add, list);
    }
    model_store_unlock(models);
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

json_t *offers_of(const json_t *servers, double seen_seconds)
{
    json_t *all = json_array(), *offers;
    const json_t *server;
    size_t i;
    json_array_foreach(servers, i, server)
    {
        if (!json_is_true(json_object_get(server, "works")) ||
            json_number_value(json_object_get(server, "seen_seconds")) >= seen_seconds)
            continue;
        offers = json_object_get(server, "offers");
        json_array_append(all, json_is_array(offers) ? offers : json_null());
    }
    return all;
}

static bool offers_has(const json_t *offers, const json_t *need)
{
    const json_t *text;
    size_t i;
    json_array_foreach(offers, i, text) if (json_equal(text, need)) return true;
    return json_is_null(offers);
}

json_t *offers_lacking(const json_t *offered, const json_t *needs)
{
    json_t *lacking = json_array(), *need;
    const json_t *offers;
    size_t i, k;
    bool able = false;
    json_array_foreach(offered, i, offers)
    {
        bool all = true;
        json_array_foreach(needs, k, need) all = all && offers_has(offers, need);
        able = able || all;
    }
    json_array_foreach(needs, k, need)
    {
        bool found = false;
        json_array_foreach(offered, i, offers) found = found || offers_has(offers, need);
        if (!found)
            json_array_append(lacking, need);
    }
    if (!able && !json_array_size(lacking))
        json_array_extend(lacking, (json_t *)needs);
    return lacking;
}
