#include "server/job/piece.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "server/image/decoder.h"
#include "server/job/job.h"

#define PIECE_THREADS 2
#define PIECES 4          /* decoded results at a time */
#define PIECE_MS 60000    /* after which one that nobody asks about is given up */
#define PIECE_SWEEP_S 5   /* between looks for such */
#define PIECE_WAITING 128 /* questions */
#define PIECE_QUALITY 90  /* of a preview's JPEG */

enum piece_state { PIECE_FREE, PIECE_MAKING, PIECE_READY };

struct piece_view {
    enum piece_state state;
    char id[33], version[80];
    struct spool_file *file;
    struct plane_file planes;
    uint64_t promised; /* bytes of the spool */
    int users;         /* threads that read it */
    double used_ms;
};

struct pieces {
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct spool *spool;
    struct piece_view list[PIECES];
    struct piece_ticket *first, **last;
    int waiting, threads;
    bool making; /* one of the threads decodes: the other is left for those who wait for less */
    bool ended;
    pthread_t thread[PIECE_THREADS];
};

/* ---- decoded results: under the lock ----------------------------------------------------------------------------- */

static void piece_drop(struct pieces *pieces, struct piece_view *view)
{
    plane_file_clear(&view->planes);
    spool_discard(&view->file);
    spool_release(pieces->spool, view->promised);
    *view = (struct piece_view){0};
}

static bool piece_is(const struct piece_view *view, const struct piece_ticket *ticket)
{
    return view->state != PIECE_FREE && !strcmp(view->id, ticket->id) && !strcmp(view->version, ticket->version);
}

static struct piece_view *piece_find(struct pieces *pieces, const struct piece_ticket *ticket)
{
    for (int i = 0; i < PIECES; i++)
        if (piece_is(&pieces->list[i], ticket))
            return &pieces->list[i];
    return NULL;
}

/* A free place, for which the one that was not used for the longest time goes. NULL: all are in use. */
static struct piece_view *piece_place(struct pieces *pieces)
{
    struct piece_view *oldest = NULL;
    for (int i = 0; i < PIECES; i++) {
        struct piece_view *view = &pieces->list[i];
        if (view->state == PIECE_FREE)
            return view;
        if (view->state == PIECE_READY && !view->users && (!oldest || view->used_ms < oldest->used_ms))
            oldest = view;
    }
    if (oldest)
        piece_drop(pieces, oldest);
    return oldest;
}

static void piece_sweep(struct pieces *pieces, double older_than_ms)
{
    for (int i = 0; i < PIECES; i++)
        if (pieces->list[i].state == PIECE_READY && !pieces->list[i].users && pieces->list[i].used_ms <= older_than_ms)
            piece_drop(pieces, &pieces->list[i]);
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static enum error_code piece_check(void *context, struct error *err)
{
    struct pieces *pieces = context;
    pthread_mutex_lock(&pieces->lock);
    const bool ended = pieces->ended;
    pthread_mutex_unlock(&pieces->lock);
    return ended ? error_set(err, ERROR_CANCELLED, "the server ends") : OK;
}

/* The result's bytes in memory, as its file is mapped. */
struct piece_source {
    uint8_t *mapped;
    size_t size;
    struct decoder_job job;
};

static enum error_code piece_map(struct pieces *pieces, const struct piece_ticket *ticket, struct piece_source *out,
                                 struct error *err)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = ticket->offset / page * page;
    out->size = (size_t)(ticket->offset - begin + ticket->size);
    out->mapped = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, ticket->fd, (off_t)begin);
    if (out->mapped == MAP_FAILED)
        return error_set(err, ERROR_NO_MEMORY, "no memory to look at a result");
    out->job = (struct decoder_job){.bytes = out->mapped + (ticket->offset - begin),
                                    .size = (size_t)ticket->size,
                                    .fd = ticket->offset ? -1 : ticket->fd,
                                    .page = 1,
                                    .check = piece_check,
                                    .context = pieces};
    return OK;
}

/* Room in the spool for a picture's samples; for that, results that nobody looks at just now go. */
static enum error_code piece_promise(struct pieces *pieces, struct piece_view *view, const struct codec_info *info,
                                     struct error *err)
{
    const int colours = info->channels - info->alpha;
    const uint64_t planes = (colours < 3 ? 1 : 3) + (info->alpha ? 1 : 0);
    const uint64_t bytes = (uint64_t)info->width * (uint64_t)info->height * (uint64_t)(info->bits / 8) * planes;
    enum error_code code = spool_promise(pieces->spool, bytes, err);
    if (code == ERROR_FULL) {
        pthread_mutex_lock(&pieces->lock);
        piece_sweep(pieces, log_clock_ms());
        pthread_mutex_unlock(&pieces->lock);
        error_clear(err);
        code = spool_promise(pieces->spool, bytes, err);
    }
    view->promised = code ? 0 : bytes;
    return code;
}

/* The view is this thread's until it is ready. reduced: as in struct decoder_job. */
static enum error_code piece_make(struct pieces *pieces, struct piece_view *view, const struct piece_ticket *ticket,
                                  int reduced, struct error *err)
{
    struct codec_info info;
    struct piece_source source;
    enum error_code code = piece_map(pieces, ticket, &source, err);
    if (code)
        return code;
    source.job.reduced = reduced;
    code = codec_probe(source.job.bytes, source.job.size, &info, err);
    if (!code) {
        info.width = (info.width + reduced - 1) / reduced;
        info.height = (info.height + reduced - 1) / reduced;
        code = piece_promise(pieces, view, &info, err);
    }
    if (!code)
        code = spool_create(pieces->spool, &view->file, err);
    if (!code)
        code = decoder_decode_into(&source.job, spool_descriptor(view->file), &view->planes, err);
    munmap(source.mapped, source.size);
    return code;
}

static enum error_code piece_answer(const struct piece_view *view, struct piece_ticket *ticket, struct error *err)
{
    struct image *image = NULL;
    struct codec_options options = CODEC_OPTIONS_INIT;
    options.quality = PIECE_QUALITY;
    enum error_code code = ticket->preview ? plane_file_reduce(&view->planes, ticket->preview, &image, err)
                                           : plane_file_cut(&view->planes, ticket->x, ticket->y, ticket->width,
                                                            ticket->height, &image, err);
    if (code)
        return code;
    ticket->format = ticket->preview && !image->alpha ? IMAGE_JPEG : IMAGE_PNG;
    code = codec_encode(image, ticket->format, options, &ticket->picture, err);
    image_destroy(&image);
    return code;
}

/* By how much a result that nobody has decoded yet can be read reduced for this preview; 1: by nothing. */
static int piece_reduction(struct pieces *pieces, const struct piece_ticket *ticket)
{
    struct codec_info info;
    struct piece_source source;
    struct error ignored = ERROR_INIT; /* whoever decodes it meets it */
    if (!ticket->preview || piece_map(pieces, ticket, &source, &ignored))
        return 1;
    const bool known = !codec_probe(source.job.bytes, source.job.size, &info, &ignored);
    munmap(source.mapped, source.size);
    return known ? codec_reduction(&info, ticket->preview) : 1;
}

/* A preview at once, of pixels that are good for nothing else. */
static void piece_serve_reduced(struct pieces *pieces, struct piece_ticket *ticket, int reduced)
{
    struct piece_view view = {0};
    if (!piece_make(pieces, &view, ticket, reduced, &ticket->err))
        (void)!piece_answer(&view, ticket, &ticket->err);
    piece_drop(pieces, &view);
}

/* Under the lock, which is given up meanwhile: has the result decoded if need be, and answers. */
static void piece_serve(struct pieces *pieces, struct piece_view *view, struct piece_ticket *ticket)
{
    struct error *err = &ticket->err;
    enum error_code code = OK;
    if (view->state == PIECE_FREE) {
        const int reduced = piece_reduction(pieces, ticket);
        if (reduced > 1) {
            pthread_mutex_unlock(&pieces->lock);
            piece_serve_reduced(pieces, ticket, reduced);
            pthread_mutex_lock(&pieces->lock);
            return;
        }
        view->state = PIECE_MAKING;
        memcpy(view->id, ticket->id, sizeof view->id);
        memcpy(view->version, ticket->version, sizeof view->version);
        pieces->making = true;
        pthread_mutex_unlock(&pieces->lock);
        code = piece_make(pieces, view, ticket, 1, err);
        pthread_mutex_lock(&pieces->lock);
        pieces->making = false;
        if (code)
            piece_drop(pieces, view);
        else
            view->state = PIECE_READY;
        pthread_cond_broadcast(&pieces->news);
    }
    if (code)
        return;
    view->users++;
    pthread_mutex_unlock(&pieces->lock);
    code = piece_answer(view, ticket, err);
    pthread_mutex_lock(&pieces->lock);
    view->users--;
    view->used_ms = log_clock_ms();
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Under the lock: the first question that can be worked at now, and its view; NULL: there is none. */
static struct piece_ticket *piece_next(struct pieces *pieces, struct piece_view **view)
{
    for (struct piece_ticket **at = &pieces->first; *at; at = &(*at)->next) {
        struct piece_ticket *ticket = *at;
        const bool gone = pieces->ended || ticket->gone(ticket->context);
        struct piece_view *found = gone ? NULL : piece_find(pieces, ticket);
        if (!gone && (found ? found->state == PIECE_MAKING : pieces->making || !(found = piece_place(pieces))))
            continue;
        *at = ticket->next;
        if (!*at)
            pieces->last = at;
        pieces->waiting--;
        *view = found;
        return ticket;
    }
    return NULL;
}

static void *piece_thread(void *context)
{
    struct pieces *pieces = context;
    pthread_mutex_lock(&pieces->lock);
    for (;;) {
        struct piece_view *view;
        struct piece_ticket *ticket = piece_next(pieces, &view);
        if (ticket) {
            if (view)
                piece_serve(pieces, view, ticket);
            else
                error_set(&ticket->err, ERROR_CANCELLED, "nobody waits for this any more");
            close(ticket->fd);
            pthread_mutex_unlock(&pieces->lock);
            ticket->done(ticket->context);
            pthread_mutex_lock(&pieces->lock);
            continue;
        }
        if (pieces->ended)
            break;
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += PIECE_SWEEP_S;
        pthread_cond_timedwait(&pieces->news, &pieces->lock, &until);
        piece_sweep(pieces, log_clock_ms() - PIECE_MS);
    }
    pthread_mutex_unlock(&pieces->lock);
    return NULL;
}

enum error_code pieces_create(struct pieces **out, struct spool *spool, struct error *err)
{
    struct pieces *pieces = *out = mem_calloc(1, sizeof *pieces);
    if (!pieces)
        return error_set(err, ERROR_NO_MEMORY, "no memory for pieces of results");
    pieces->spool = spool;
    pieces->last = &pieces->first;
    pthread_mutex_init(&pieces->lock, NULL);
    job_condition(&pieces->news);
    while (pieces->threads < PIECE_THREADS &&
           !pthread_create(&pieces->thread[pieces->threads], NULL, piece_thread, pieces))
        pieces->threads++;
    if (pieces->threads == PIECE_THREADS)
        return OK;
    pieces_destroy(out);
    return error_set(err, ERROR_NO_MEMORY, "no threads for pieces of results");
}

bool pieces_ask(struct pieces *pieces, struct piece_ticket *ticket)
{
    pthread_mutex_lock(&pieces->lock);
    const bool taken = !pieces->ended && pieces->waiting < PIECE_WAITING;
    if (taken) {
        ticket->next = NULL;
        *pieces->last = ticket;
        pieces->last = &ticket->next;
        pieces->waiting++;
        pthread_cond_signal(&pieces->news);
    }
    pthread_mutex_unlock(&pieces->lock);
    return taken;
}

void pieces_end(struct pieces *pieces)
{
    if (!pieces)
        return;
    pthread_mutex_lock(&pieces->lock);
    pieces->ended = true;
    pthread_cond_broadcast(&pieces->news);
    pthread_mutex_unlock(&pieces->lock);
    while (pieces->threads > 0)
        pthread_join(pieces->thread[--pieces->threads], NULL);
}

void pieces_destroy(struct pieces **pieces)
{
    struct pieces *old = *pieces;
    *pieces = NULL;
    if (!old)
        return;
    pieces_end(old);
    for (int i = 0; i < PIECES; i++)
        if (old->list[i].state != PIECE_FREE)
            piece_drop(old, &old->list[i]);
    pthread_cond_destroy(&old->news);
    pthread_mutex_destroy(&old->lock);
    free(old);
}
