/* What a job that is done has made: into the spool and into its row.
 * Thread-safety: as record_output. */
#ifndef SERVER_JOB_KEEPER_OUTPUT_H
#define SERVER_JOB_KEEPER_OUTPUT_H

#include "server/job/job.h"
#include "server/store/spool.h"
#include "server/store/store.h"

/* Sets report, parts and output_bytes of the row. Errors: those of record_output and spool_keep; the row has no parts
 * then. */
enum error_code keeper_output_keep(struct spool *spool, const struct job *job, struct store_job *row,
                                   struct error *err) MUST_CHECK;

#endif
