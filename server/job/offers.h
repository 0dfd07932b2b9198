/* Which models which servers of a shared store have, and which of them a job waits for. Thread-safety: functions
 * without state. */
#ifndef SERVER_JOB_OFFERS_H
#define SERVER_JOB_OFFERS_H

#include <jansson.h>

#include "server/pipeline/model_store.h"

/* Every text that a job's needs (record_needs) may have and this server can do: a JSON array, for store_offer; free().
 * NULL: memory is out. */
char *offers_own(const struct model_store *models);

/* Those of all servers that take jobs and were seen within so many seconds, from the array of cluster_servers: an array
 * with one array of texts a server; null where an older version does not tell. The caller's. */
json_t *offers_of(const json_t *servers, double seen_seconds);

/* Those of a job's needs that no server has; all of them, if each is somewhere and no server has all. Empty: some
 * server can do it. offered: of offers_of. The caller's. */
json_t *offers_lacking(const json_t *offered, const json_t *needs);

#endif
