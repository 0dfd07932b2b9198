/* The results of a batch as one ZIP file, made while it is sent: stored, not deflated, since pictures are compressed.
 * Thread-safety: functions without state; the response belongs to libmicrohttpd. */
#ifndef SERVER_HTTP_BATCH_ZIP_H
#define SERVER_HTTP_BATCH_ZIP_H

#include <microhttpd.h>

#include "server/http/request.h"

/* The results of all jobs of the batch that are done now, the oldest first, under the names that each would be saved
 * by; "photo (2).jpg" where a name repeats. token NULL: of any. In memory are the jobs' ids and names and one block of
 * a picture. NULL with ERROR_NOT_FOUND: there is none; ERROR_NO_MEMORY, and the errors of store_list. A file that
 * vanishes on the way is left out. While a result comes from where servers share them, the connection is suspended. */
struct MHD_Response *batch_zip_response(struct request *request, const char *batch, const char *token,
                                        struct error *err);

#endif
