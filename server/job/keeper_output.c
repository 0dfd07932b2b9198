#include "server/job/keeper_output.h"

#include <stdlib.h>

#include "server/job/record.h"

enum error_code keeper_output_keep(struct spool *spool, const struct job *job, struct store_job *row, struct error *err)
{
    struct spool_file *file = NULL;
    enum error_code code = OK;
    free(row->report);
    row->report = record_report(job->restoration);
    if (job->restoration->output)
        code = spool_create(spool, &file, err);
    if (file) {
        code = record_output(job, file, &row->parts, err);
        row->output_bytes = spool_size(file);
        if (!code)
            code = spool_keep(spool, &file, row->id, SPOOL_OUTPUT, err);
    }
    spool_discard(&file);
    if (code) {
        free(row->parts);
        row->parts = NULL;
    }
    return code;
}
