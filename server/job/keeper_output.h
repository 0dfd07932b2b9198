/* What a job that is done has made: into the spool and into its row.
 * Thread-safety: as record_output. */
#ifndef SERVER_JOB_KEEPER_OUTPUT_H
#define SERVER_JOB_KEEPER_OUTPUT_H

#include "server/job/job.h"
#include "server/store/spool.h"
#include "server/store/store.h"

/* Sets report, parts and output_bytes of the row. brief: it goes on to the payloads, so nothing waits for the disk.
 * Errors: those of record_output and spool_keep; the row has no parts then. */
enum error_code keeper_output_keep(struct spool *spool, const struct job *job, bool brief, struct store_job *row,
                                   struct error *err) MUST_CHECK;

/* About how many bytes that will be, before it begins: pipeline_check has seen it. */
uint64_t keeper_output_estimate(const struct restoration *r);

#endif
