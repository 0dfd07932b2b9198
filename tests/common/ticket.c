#include "tests/common/ticket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/job/record.h"
#include "tests/common/shared.h"

struct keeper_ticket *ticket_make(uint32_t most, void (*done)(void *context))
{
    struct error err = ERROR_INIT;
    struct restoration *r;
    struct file file;
    char picture[512];
    struct keeper_ticket *ticket = calloc(1, sizeof *ticket);
    assert_non_null(ticket);
    snprintf(picture, sizeof picture, "%s/none.png", shared_fixtures());
    if (restoration_create(&r, &err) || options_set(&r->options, "version", "none", &err) ||
        options_set(&r->options, "bg_upsampler", "none", &err) || file_map(&file, picture, &err) ||
        body_append(&ticket->body, file.data, file.size, &err))
        fail_msg("%s", err.text);
    file_unmap(&file);
    ticket->done = done;
    ticket->most = most;
    ticket->job.options = record_options(r);
    restoration_destroy(&r);
    job_make_id(ticket->job.id);
    ticket->job.created = job_clock();
    return ticket;
}

void ticket_free(struct keeper_ticket *ticket)
{
    keeper_ticket_clear(ticket);
    free(ticket);
}
