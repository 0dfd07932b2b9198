/* Memory that processes which read pictures share with this one, one file a picture. Taking its pages from the system
 * costs more than all the rest of such a process, so a file is used again: after its picture is gone and its process
 * has ended, it is overwritten with zeros, on a thread of its own. What was not used for two seconds is given back.
 * Thread-safety: all functions may be called from any thread. */
#ifndef SERVER_IMAGE_PLANE_ROOM_H
#define SERVER_IMAGE_PLANE_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct plane_room {
    int fd;         /* it cannot become shorter under our eyes (F_SEAL_SHRINK) */
    uint8_t *data;  /* its first bytes, which are there and zero; NULL: not mapped */
    uint64_t bytes; /* of these, whole pages */
};

/* A file for that many bytes, a number of whole pages; 0: for no known number. NULL: there is no memory. A new one has
 * no data before plane_room_fill, so that its process can begin. */
struct plane_room *plane_room_take(uint64_t bytes);
void plane_room_fill(struct plane_room *room);

/* Nobody will use its data. What others have mapped of the file stays. */
void plane_room_drop(struct plane_room *room);

/* A picture has so many planes in its data. Passes on the socket to the process that has the file, too; when that has
 * ended, the other end is closed. */
void plane_room_hold(struct plane_room *room, int planes, int socket);

/* A plane of a picture is no longer used. false: it is not in a room. */
bool plane_room_leave(const void *plane);

/* How many bytes are kept for pictures to come, for tests. */
uint64_t plane_room_kept(void);

#endif
