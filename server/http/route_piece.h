/* A result in pieces: GET /v1/jobs/{id}/result with ?preview=N or ?region=X,Y,WIDTH,HEIGHT.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROUTE_PIECE_H
#define SERVER_HTTP_ROUTE_PIECE_H

#include "server/http/request.h"

/* Whether the request asks for less than the whole picture. */
bool route_piece_wanted(const struct request *request);

/* Where a job's result lies, and its ETag (NULL: none). */
struct route_piece_source {
    const char *id, *etag;
    int fd; /* taken over */
    uint64_t offset, size;
};

/* The connection is suspended, and answered by route_piece_answer; or it is answered at once. */
enum MHD_Result route_piece_ask(struct request *request, const struct route_piece_source *source);
enum MHD_Result route_piece_answer(struct request *request);

/* The request is over. */
void route_piece_forget(struct request *request);

#endif
