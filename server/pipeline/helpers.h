/* Tiles of a large picture's background that other servers may compute, and how they do it. Whoever restores the
 * picture hands out windows of its pixels and takes what the network made of them, in the precision that it would have
 * itself, so that the result has the same bytes. What does not come back it computes itself: nothing here can make a
 * restoration fail.
 * Thread-safety: as step.h; a struct helpers is only read. */
#ifndef SERVER_PIPELINE_HELPERS_H
#define SERVER_PIPELINE_HELPERS_H

#include "server/image/view.h"
#include "server/pipeline/pipeline.h"

#define TILE_ORDER_MOST ((size_t)96 << 20) /* bytes of a window, and of a result: larger tiles are not handed out */

/* One tile. */
struct tile_order {
    int width, height; /* of the window, px of the picture: RGB in rows without gaps */
    int bits;          /* of its samples: 8 or 16 */
    int scale;         /* of the network */
    struct rect done;  /* the rectangle of its result that is wanted, 8-bit RGB; empty: all of it, float32 planes */
};

size_t tile_order_input(const struct tile_order *order); /* bytes; so is this: */
size_t tile_order_output(const struct tile_order *order);

/* Whether a network of that scale may have such an order: it may come from elsewhere. */
bool tile_order_valid(const struct tile_order *order);

/* Computes it. output: tile_order_output bytes. ERROR_DEVICE: the result is not finite, or flat. */
enum error_code tile_order_run(const struct tile_order *order, struct worker_context *context,
                               const struct model_entry *entry, enum precision precision, const void *input,
                               void *output, const struct run_options *options, struct error *err) MUST_CHECK;

/* Where a tile that was handed out is now. */
enum tile_place {
    TILE_OURS, /* nobody has it, and nobody will get it any more */
    TILE_HELD, /* somebody computes it */
    TILE_DONE  /* fetch gives its result */
};

/* Those who help. A task is one picture. */
struct helpers {
    void *user;
    uint64_t pixels; /* of the network's result: smaller pictures are not shared */
    /* Those who have this model, and a device that computes the same. NULL: nobody helps. */
    void *(*begin)(void *user, const struct model_entry *entry, enum precision precision);
    int (*room)(void *task); /* how many more tiles should be handed out now */
    void (*offer)(void *task, int n, const struct tile_order *order, void *input); /* takes the input over: free() */
    enum tile_place (*ask)(void *task, int n);
    int (*take)(void *task); /* takes back the first tile that nobody has; negative: there is none */
    bool (*fetch)(void *task, int n, void *output, size_t bytes);
    void (*drop)(void *task, int n); /* its result is not wanted any more */
    void (*end)(void *task);
};

#endif
