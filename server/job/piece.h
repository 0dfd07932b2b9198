/* Results that are looked at in pieces: small previews, and parts at full size, for clients that cannot hold a whole
 * picture of hundreds of megapixels. The first question about a result has it decoded, once, into a file of the spool
 * without a name (by another process, decoder.h); answers come from its rows. A few results are kept like this, for as
 * long as they are asked for. Threads of its own do the work, so that none of HTTP's does.
 * Thread-safety: every function may be called from any thread, except pieces_create and pieces_destroy. */
#ifndef SERVER_JOB_PIECE_H
#define SERVER_JOB_PIECE_H

#include "server/image/codec.h"
#include "server/store/spool.h"

#define PIECE_PREVIEW_LEAST 16 /* px of a preview's longest side */
#define PIECE_PREVIEW_MOST 4096
#define PIECE_PIXELS (1 << 22) /* the most of a piece */

struct pieces;

/* One question. It belongs to the pieces from pieces_ask until done is called, on a thread of theirs. */
struct piece_ticket {
    char id[33];           /* the job's */
    char version[80];      /* of its result: what was decoded for another one is not used */
    int fd;                /* the result's file, closed by the pieces */
    uint64_t offset, size; /* of the result in it */
    int preview;           /* the longest side of a preview; 0: a piece, as follows */
    int x, y, width, height;
    void (*done)(void *context);
    bool (*gone)(void *context); /* whether nobody waits for the answer any more; called under a lock */
    void *context;

    /* the answer */
    struct error err; /* ERROR_INVALID: the piece is not in the picture; ERROR_FULL: the spool has no room for the
                       * decoded picture; ERROR_CANCELLED: gone, or the server ends; errors of decoder.h */
    struct codec_output picture; /* the ticket's owner frees its bytes */
    enum image_format format;    /* JPEG or, of pieces and of pictures with transparency, PNG */

    struct piece_ticket *next; /* of piece.c */
};

enum error_code pieces_create(struct pieces **out, struct spool *spool, struct error *err) MUST_CHECK;

/* false: too many wait already, or it has ended; the ticket stays the caller's, its file open. */
bool pieces_ask(struct pieces *pieces, struct piece_ticket *ticket);

/* Answers all that wait, with ERROR_CANCELLED, and those that come later not at all. NULL-safe. */
void pieces_end(struct pieces *pieces);
void pieces_destroy(struct pieces **pieces);

#endif
