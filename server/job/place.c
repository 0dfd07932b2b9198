#include "server/job/place.h"

#include <string.h>

/* Puts the job behind all that go before it (queue.h); returns how many these are. */
static size_t place_push(struct place_job *queue, size_t waiting, const struct place_job *job)
{
    uint64_t turn = 0;
    bool found = false;
    for (size_t i = 0; i < waiting; i++) {
        if (queue[i].low != job->low)
            continue;
        if (!found || !strcmp(queue[i].client, job->client))
            turn = queue[i].turn + (!strcmp(queue[i].client, job->client) ? 1 : 0);
        found = true;
    }
    size_t at = 0;
    while (at < waiting && (queue[at].low == job->low ? queue[at].turn <= turn : job->low))
        at++;
    memmove(queue + at + 1, queue + at, (waiting - at) * sizeof *queue);
    queue[at] = *job;
    queue[at].turn = turn;
    return at;
}

struct place place_of(struct place_job *queue, size_t waiting, const struct place_job *coming, size_t count, int room,
                      size_t begun)
{
    struct place place = {0};
    size_t before = 0;
    for (size_t i = 0; i < count; i++, room--) {
        while (room <= 0 && waiting) { /* a job ends, and the first one begins */
            room += begun > 0;
            begun += (size_t)queue->stored - (begun > 0);
            place.jobs++;
            place.seconds += queue->seconds;
            memmove(queue, queue + 1, --waiting * sizeof *queue);
        }
        before = place_push(queue, waiting++, &coming[i]);
    }
    place.jobs += before;
    for (size_t i = 0; i < before; i++)
        place.seconds += queue[i].seconds;
    return place;
}
