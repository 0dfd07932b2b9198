/* Events as the texts that servers send each other. Thread-safety: functions without state. */
#ifndef SERVER_JOB_CLUSTER_EVENT_H
#define SERVER_JOB_CLUSTER_EVENT_H

#include "server/job/events.h"

void cluster_event_write(const struct event *event, const char *owner, char *out, size_t size);
/* False: it is this owner's own, or no event that this version understands. */
bool cluster_event_read(const char *text, const char *owner, struct event *out);

/* How far a job is, as its row in the store has it. False: it says nothing. */
void cluster_event_progress(const struct event *event, char *out, size_t size);
bool cluster_event_read_progress(const char *text, struct event *out);

#endif
