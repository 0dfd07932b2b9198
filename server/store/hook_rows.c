#include "server/store/hook_rows.h"

#include "server/store/query.h"

enum error_code hook_rows_add(struct store *store, const char *job, const char *about, const char *owner, int64_t lease,
                              struct error *err)
{
    struct query query = query_start(&store->write, STORE_HOOK_ADD, err, "ttti", job, about, owner, lease);
    return query_end(&query);
}

enum error_code hook_rows_done(struct store *store, const char *owner, const char *jobs, struct error *err)
{
    struct query query = query_start(&store->write, STORE_HOOK_DONE, err, "tt", owner, jobs);
    return query_end(&query);
}

enum error_code hook_rows_told(struct store *store, const char *owner, const char *jobs, struct error *err)
{
    struct query query = query_start(&store->write, STORE_HOOK_TOLD, err, "tt", owner, jobs);
    return query_end(&query);
}

enum error_code hook_rows_renew(struct store *store, const char *owner, int64_t lease, struct error *err)
{
    struct query query = query_start(&store->write, STORE_HOOK_LEASE, err, "ti", owner, lease);
    return query_end(&query);
}

enum error_code hook_rows_take(struct store *store, const char *owner, int64_t now, int64_t lease, int most,
                               hook_rows_fn *each, void *context, struct error *err)
{
    char id[33];
    struct query query = query_start(&store->write, STORE_HOOK_TAKE, err, "tiii", owner, lease,
                                     !store->shared        ? INT64_MAX
                                     : store->leave_leases ? 0
                                                           : now,
                                     (int64_t)most);
    while (query_row(&query))
        if (query_id(&query, 0, id))
            each(context, id, query_text(&query, 1));
    return query_end(&query);
}
