/* What the database does for whoever shares a picture, while he computes: windows go on offer as they are wanted, and
 * results come, over a connection of their own, on a thread of their own.
 * Thread-safety: every function belongs to the one thread that restores the picture. */
#ifndef SERVER_JOB_SHARE_DESK_H
#define SERVER_JOB_SHARE_DESK_H

#include "server/store/share_rows.h"

struct share_desk;

/* rows: a connection for what cannot wait; borrowed. */
enum error_code share_desk_create(struct share_desk **out, const char *where, const char *password_file,
                                  struct share_rows *rows, struct error *err) MUST_CHECK;
void share_desk_destroy(struct share_desk **desk); /* NULL-safe */

/* A task has begun, or ends: then its windows and results are dropped. */
void share_desk_open(struct share_desk *desk, int64_t task);
void share_desk_close(struct share_desk *desk);
/* True once the database did not answer, or has lost the task: nobody helps any more. */
bool share_desk_broken(struct share_desk *desk, struct error *why);

/* How many more windows should lie here. */
int share_desk_room(struct share_desk *desk);
/* Takes over the window (of free()). result: bytes of its result. */
void share_desk_put(struct share_desk *desk, int n, const char *spec, void *window, size_t size, size_t result);

enum desk_place { DESK_NOWHERE, DESK_ELSEWHERE, DESK_HERE };
/* Where tile n is. What nobody has begun is taken back, so it is nowhere then. */
enum desk_place share_desk_ask(struct share_desk *desk, int n);
/* Takes back the first tile that nobody has begun; negative: there is none. */
int share_desk_take(struct share_desk *desk);
/* Its result, if it is here. */
bool share_desk_fetch(struct share_desk *desk, int n, void *output, size_t size);
/* It is not wanted any more, whoever has it. */
void share_desk_drop(struct share_desk *desk, int n);

#endif
