/* Predictions in cog's form, as webhooks send them too.
 * Thread-safety: functions without state. */
#ifndef SERVER_COMPAT_COG_H
#define SERVER_COMPAT_COG_H

#include "server/compat/compat.h"
#include "server/job/keeper_look.h"

#define COG_LOST (-2)

/* The prediction of that id as JSON, as of this view of its job. fd: of its result, taken over; -1: it is read here,
 * which may wait for a store elsewhere; COG_LOST: it is not there any more. NULL: no memory. */
struct compat_text *cog_prediction(struct keeper *keeper, const char *id, const struct keeper_view *view, int fd);

/* Logs: the notes of a report, a line each; NULL: none. */
json_t *cog_logs(const json_t *notes);

#endif
