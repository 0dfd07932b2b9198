/* Means over a whole picture for an upscaler that scales its channels by them (enum model_means), summed up over the
 * picture's tiles: one mean in each pass over all tiles, since each decides what the next one is a mean of.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_POOL_H
#define SERVER_PIPELINE_POOL_H

#include "runtime/backend/backend.h"
#include "runtime/models/model.h"

/* One axis of a tile, px: its window, and the part [from, to) that no other tile has. The first and the last tile also
 * have what features see beyond the picture. */
struct pool_axis {
    int start, window, from, to;
    bool first, last;
};

struct pool;

/* For a picture of these sides, in windows of at most that size, `batch` of them in a run. */
enum error_code pool_create(struct pool **out, const struct model_info *info, int width, int height, int window_width,
                            int window_height, int batch, struct error *err) MUST_CHECK;
void pool_destroy(struct pool **pool);

/* Forgets all means. */
void pool_restart(struct pool *pool);

/* Which graph the next runs need: session_shape.variant. */
int pool_variant(const struct pool *pool);
bool pool_ready(const struct pool *pool); /* all means are known */

/* Tile i of the next run, which the current mean is summed up over. */
void pool_place(struct pool *pool, int i, const struct pool_axis *x, const struct pool_axis *y);

/* Fills in the inputs behind the picture, for n tiles; at most 1 + MODEL_POOLS. They are valid until the next
 * pool_place. */
void pool_inputs(const struct pool *pool, struct run_input *inputs);

/* Where a run's mean goes; slot: 0 .. PLAN_RUNS - 1, of runs under way at the same time. */
float *pool_output(struct pool *pool, int slot);

/* Adds what a run of n tiles left there. */
void pool_add(struct pool *pool, int slot, int n);

/* All tiles have been added: the next mean. */
void pool_next(struct pool *pool);

#endif
