#include "server/job/keeper_output.h"

#include <stdlib.h>

#include "server/job/record.h"

enum error_code keeper_output_keep(struct spool *spool, const struct job *job, bool brief, struct store_job *row,
                                   struct error *err)
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
            code = brief ? spool_lay(spool, &file, row->id, SPOOL_OUTPUT, err)
                         : spool_keep(spool, &file, row->id, SPOOL_OUTPUT, err);
    }
    spool_discard(&file);
    if (code) {
        free(row->parts);
        row->parts = NULL;
    }
    return code;
}

/* Photographs take half a byte a pixel at the usual quality, and two thirds of their samples where nothing may be lost;
 * noise takes more, and so does a PNG that is not compressed. Faces are small beside them. */
uint64_t keeper_output_estimate(const struct restoration *r)
{
    int width = r->in_info.width, height = r->in_info.height;
    const enum image_format format = r->output_format;
    const bool lossless = format == IMAGE_PNG || format == IMAGE_TIFF || r->options.lossless;
    if (r->detect_only)
        return 0;
    if (!r->damage_only && !r->options.aligned) {
        struct size size;
        pipeline_size(r, &size);
        width = size.kept_width;
        height = size.kept_height;
    }
    const uint64_t pixels = (uint64_t)width * (uint64_t)height;
    const uint64_t channels = r->in_info.channels > 3 ? 4 : 3, bytes = r->in_info.bits > 8 ? 2 : 1;
    const unsigned thirds = format == IMAGE_PNG && !r->options.png_level ? 3 : 2;
    return r->damage_only ? pixels / 8 : lossless ? pixels * channels * bytes * thirds / 3 : pixels / 2;
}
