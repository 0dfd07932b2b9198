/* Room for a request's body beside all the others: until there is room, the connection is suspended and its body is not
 * read.
 * Thread-safety: as struct request. */
#ifndef SERVER_HTTP_ROOM_H
#define SERVER_HTTP_ROOM_H

#include "server/http/request.h"

/* For a request whose body of up to that many bytes is about to be read, and for which up to `more` may be fetched:
 * goes on, suspends the connection, or answers 429 (503 while the server drains). */
enum MHD_Result room_make(struct request *request, uint64_t length, uint64_t more);

/* For a suspended request, when it is resumed: goes on, or answers the same. */
enum MHD_Result room_resumed(struct request *request);

/* The body has arrived and this much of it is kept; and: it has been freed. */
void room_shrink(struct request *request, uint64_t length);
void room_leave(struct request *request);

#endif
