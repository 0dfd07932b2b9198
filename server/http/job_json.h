/* Jobs as JSON: for /v1/jobs, /v1/jobs/ID and the answer to an asynchronous request.
 * Thread-safety: functions without state. */
#ifndef SERVER_HTTP_JOB_JSON_H
#define SERVER_HTTP_JOB_JSON_H

#include <jansson.h>

#include "server/http/request.h"
#include "server/job/keeper_look.h"

/* A job with everything that is known of it; a new reference, NULL when memory runs out. */
json_t *job_json(const struct request *request, const struct keeper_view *view);

/* A row of a list: without report, position and progress. */
json_t *job_json_row(const struct store_job *row);

/* Whether the page has made this name of a batch. */
bool job_json_is_page(const char *batch);

/* The suffix of its result's file name, "" if there is none. A result in a batch of the page always has one, so that it
 * can be saved beside its picture. */
#define JOB_JSON_TAIL_MAX (OPTION_NAME_MAX + 16)
void job_json_suffix(const struct store_job *row, char out[OPTION_NAME_MAX]);

/* A time in milliseconds since 1970 as RFC 3339 in UTC, or null for 0. */
json_t *job_json_time(int64_t milliseconds);
/* The other way; -1: it is no such time. */
int64_t job_json_read_time(const char *text);

/* To thousandths. */
double job_json_round(double value);

/* The stage of a running job, else null: also when all stages are over and its result is being stored. */
json_t *job_json_stage(bool running, int stage);

/* "queued", "running", ... */
const char *job_json_state(enum store_state state);

#endif
