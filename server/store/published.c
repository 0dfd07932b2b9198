#include "server/store/published.h"

#include <stdio.h>

#include "server/store/query.h"

enum error_code published_each(struct store *store, published_fn *each, void *context, struct error *err)
{
    if (store_look(store, err))
        return ERROR_IO;
    struct query query = query_start(&store->read, STORE_PUBLISHED, err, "");
    while (query_row(&query)) {
        const struct published model = {.name = query_text(&query, 0),
                                        .sha256 = query_text(&query, 1),
                                        .bytes = query_size(&query, 2),
                                        .about = query_text(&query, 3)};
        each(context, &model);
    }
    const enum error_code code = query_end(&query);
    pthread_mutex_unlock(&store->lock);
    return code;
}

enum error_code published_put(struct store *store, const struct published *model, struct error *err)
{
    struct query query = query_start(&store->write, STORE_PUBLISH, err, "ttit", model->name, model->sha256,
                                     (int64_t)model->bytes, model->about);
    return query_end(&query);
}

enum error_code published_remove(struct store *store, const char *name, bool *found, struct error *err)
{
    struct query query = query_start(&store->write, STORE_UNPUBLISH, err, "t", name);
    const enum error_code code = query_end(&query);
    *found = !code && store->engine->changes(&store->write) > 0;
    return code;
}

void published_payload(char out[PAYLOAD_NAME_MAX], const char *sha256)
{
    snprintf(out, PAYLOAD_NAME_MAX, "models/%.64s", sha256);
}
