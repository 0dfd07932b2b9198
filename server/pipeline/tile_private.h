/* Shared by tile.c, tile_cut.c and tile_share.c.
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_TILE_PRIVATE_H
#define SERVER_PIPELINE_TILE_PRIVATE_H

#include "server/pipeline/tile.h"

/* One axis of a padded picture: where each of its px comes from. */
struct tile_axis {
    int length; /* with padding */
    int *from;  /* indices into the picture: of the px from -border to length + border, which the network is given */
};

/* One axis cut into windows of one size, so that all tiles share a plan, and each window's weight at each px of the
 * result. The weights of all windows sum to 1 at each px: exact seams have weights 0 and 1 only. */
struct tile_cut {
    int count, window, core;
    int *start;    /* of each window, px of the input */
    float *weight; /* count × window*scale */
};

/* A tile in progress: a window of the padded picture, and the rectangle of the result that it completes. */
struct tile {
    int x, y, width, height;
    struct rect done;
    int column, row; /* of the cut */
};

struct tile_flight {
    struct plan *plan;
    int first, count; /* of the tiles */
    struct raster_source sources[STEP_BATCH];
    struct session_shape shape;
    bool pooled; /* its result is a mean */
    int slot;    /* of pool.h */
};

struct tile_job {
    struct step *step;
    const struct model_info *info;
    struct view_u8 picture;
    const uint16_t *deep; /* its samples, or NULL */
    struct tile_sink sink;
    struct tile_axis ax, ay;
    struct tile_cut cx, cy; /* empty in the reference's way */
    struct canvas *canvas;  /* where seams are feathered */
    struct tile *tiles;
    struct pool *pool; /* where means of the whole picture are wanted, or NULL */
    int count, next;
    int batch, ahead; /* tiles of a run, runs under way: at most */
    struct tile_flight flights[PLAN_RUNS];
    int flying;
    enum precision precision;
    bool second;              /* everything is done again, in fp32 */
    bool asked;               /* whether somebody helps is known */
    struct tile_share *share; /* or NULL */
};

int tile_up(int value, int multiple);

/* Adds pre px by reflection, then fills up to a multiple of unshuffle, and adds the border, in the network's own way.
 */
enum error_code tile_axis_create(struct tile_axis *axis, int n, int pre, const struct model_info *info,
                                 struct error *err) MUST_CHECK;

enum error_code tile_cut_create(struct tile_cut *cut, int length, int core, const struct model_info *info,
                                struct error *err) MUST_CHECK;
void tile_cut_free(struct tile_cut *cut);

/* Of window i: its weights along the axis, window*scale of them. */
const float *tile_weights(const struct tile_cut *cut, int i, int scale);
/* The first px of the result that window i adds to: the px before it are complete with the earlier windows. At most
 * `limit`, the result's size. */
int tile_reaches(const struct tile_cut *cut, int i, int scale, int limit);

/* What the tile is cut from, and where the rectangle that it completes goes; target NULL: unknown. */
void tile_describe(const struct tile_job *job, const struct tile *t, const struct rect *run,
                   struct raster_source *source, struct run_image *image, struct raster_target *target);

/* Sends the next tiles to the device. */
enum error_code tile_submit(struct tile_job *job, struct error *err) MUST_CHECK;

/* So many tiles more are there; and all pixels of this rectangle. */
void tile_made(struct tile_job *job, int tiles);
void tile_filled(struct tile_job *job, const struct rect *done);

/* Lets others help with the tiles that are left, if they may; else job->share stays NULL. */
void tile_share_begin(struct tile_job *job);
/* One step forward: the next tile is there, or on the device, or one after it is made, or some ms have passed. */
enum error_code tile_share_next(struct tile_job *job, struct error *err) MUST_CHECK;
/* NULL-safe. */
void tile_share_end(struct tile_share **share);

#endif
