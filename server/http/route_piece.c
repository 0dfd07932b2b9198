#include "server/http/route_piece.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/http/route_jobs.h"
#include "server/http/router.h"
#include "server/job/piece.h"

static const char *route_piece_argument(const struct request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

bool route_piece_wanted(const struct request *request)
{
    return route_piece_argument(request, "preview") || route_piece_argument(request, "region");
}

/* Whole numbers with commas between; whether there are so many and nothing else. */
static bool route_piece_numbers(const char *text, int *out, int count)
{
    for (int i = 0; i < count; i++) {
        char *end;
        const long value = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
        if (value < 0 || value > INT_MAX || *end != (i + 1 < count ? ',' : '\0'))
            return false;
        out[i] = (int)value;
        text = end + 1;
    }
    return true;
}

static enum error_code route_piece_read(const struct request *request, struct piece_ticket *ticket, struct error *err)
{
    const char *preview = route_piece_argument(request, "preview"), *region = route_piece_argument(request, "region");
    int part[4];
    if (preview && region)
        return error_set(err, ERROR_INVALID, "region: a preview has no regions; one of the two is allowed");
    if (preview && (!route_piece_numbers(preview, &ticket->preview, 1) || ticket->preview < PIECE_PREVIEW_LEAST ||
                    ticket->preview > PIECE_PREVIEW_MOST))
        return error_set(err, ERROR_INVALID, "preview: \"%.60s\" is not allowed; allowed: %d to %d", preview,
                         PIECE_PREVIEW_LEAST, PIECE_PREVIEW_MOST);
    if (preview)
        return OK;
    if (!route_piece_numbers(region, part, 4) || !part[2] || !part[3] ||
        (uint64_t)part[2] * (uint64_t)part[3] > PIECE_PIXELS)
        return error_set(err, ERROR_INVALID,
                         "region: \"%.60s\" is not allowed; allowed: X,Y,WIDTH,HEIGHT in pixels, at most %d of them",
                         region, PIECE_PIXELS);
    ticket->x = part[0];
    ticket->y = part[1];
    ticket->width = part[2];
    ticket->height = part[3];
    return OK;
}

/* The result's own, and what is seen of it. */
static void route_piece_etag(const struct piece_ticket *ticket, char *out, size_t size)
{
    if (ticket->preview)
        snprintf(out, size, "\"%s-%d\"", ticket->version, ticket->preview);
    else
        snprintf(out, size, "\"%s-%d,%d,%d,%d\"", ticket->version, ticket->x, ticket->y, ticket->width, ticket->height);
}

static enum MHD_Result route_piece_send(struct request *request, enum reply reply, struct MHD_Response *response,
                                        const char *etag, const char *type)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
    return reply_send(request, reply, response, type);
}

static void route_piece_done(void *context)
{
    MHD_resume_connection(((struct request *)context)->connection);
}

/* A browser that wants no answer any more closes its direction first. */
static bool route_piece_gone(void *context)
{
    return connection_left(((struct request *)context)->link, 1);
}

enum MHD_Result route_piece_ask(struct request *request, const struct route_piece_source *source)
{
    struct error err = ERROR_INIT;
    char etag[160];
    const char *known = router_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH), *version = source->etag;
    struct piece_ticket *ticket = mem_calloc(1, sizeof *ticket);
    if (!ticket)
        error_set(&err, ERROR_NO_MEMORY, "no memory for a part of a result");
    if (!ticket || route_piece_read(request, ticket, &err)) {
        close(source->fd);
        free(ticket);
        return route_jobs_fail(request, reply_for(err.code), &err);
    }
    version = version ? version + strspn(version, "\"") : "";
    snprintf(ticket->id, sizeof ticket->id, "%s", source->id);
    snprintf(ticket->version, sizeof ticket->version, "%.*s", (int)strcspn(version, "\""), version);
    route_piece_etag(ticket, etag, sizeof etag);
    if (source->etag && known && strstr(known, etag)) {
        close(source->fd);
        free(ticket);
        return route_piece_send(request, REPLY_NOT_MODIFIED,
                                MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT), etag, NULL);
    }
    ticket->fd = source->fd;
    ticket->offset = source->offset;
    ticket->size = source->size;
    ticket->done = route_piece_done;
    ticket->gone = route_piece_gone;
    ticket->context = request;
    request->piece = ticket;
    connection_holding(request->link);
    MHD_suspend_connection(request->connection);
    if (pieces_ask(request->server->pieces, ticket))
        return MHD_YES;
    close(ticket->fd);
    error_set(&ticket->err, ERROR_BUSY, "too many ask for parts of results just now");
    MHD_resume_connection(request->connection);
    return MHD_YES;
}

enum MHD_Result route_piece_answer(struct request *request)
{
    struct piece_ticket *ticket = request->piece;
    struct codec_output *picture = &ticket->picture;
    struct error err = ticket->err;
    char etag[160];
    connection_sending(request->link);
    if (err.code == ERROR_BUSY || err.code == ERROR_CANCELLED)
        return reply_problem(request, REPLY_UNAVAILABLE, &err, NULL, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (err.code)
        return route_jobs_fail(request, reply_for(err.code), &err);
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(picture->size, picture->bytes, spill_free);
    if (!response)
        return MHD_NO;
    request->answer_bytes = picture->size;
    *picture = (struct codec_output){0};
    route_piece_etag(ticket, etag, sizeof etag);
    return route_piece_send(request, REPLY_OK, response, etag, codec_media_type(ticket->format));
}

void route_piece_forget(struct request *request)
{
    if (request->piece)
        spill_free(request->piece->picture.bytes);
    free(request->piece);
    request->piece = NULL;
}
