/* An upscaler on a picture of any size: cut into tiles, run on the device, put together. There are two ways to cut:
 * ours, with invisible seams, and Real-ESRGAN's (compat).
 * Thread-safety: as step.h. */
#ifndef SERVER_PIPELINE_TILE_H
#define SERVER_PIPELINE_TILE_H

#include "server/pipeline/step.h"

/* How Real-ESRGAN's own command cuts a picture; sizes in px of the input. */
struct tile_compat {
    int tile; /* 0: whole */
    int tile_pad, pre_pad;
};

/* Where the upscaler's result goes, rectangle by rectangle in row order, each pixel once. Some that lie side by side
 * come in one run of the device. */
struct tile_sink {
    void *user;
    /* Where the pixels of this rectangle go, which is given in the result's coordinates; run: all that come with it. */
    void (*target)(void *user, const struct rect *rect, const struct rect *run, struct raster_target *target);
    void (*filled)(void *user, const struct rect *run);      /* all of a run have their pixels now; may be NULL */
    enum error_code (*again)(void *user, struct error *err); /* all rectangles will come once more; may be NULL */
    bool later;                                              /* the targets are unknown until tile_show */
    bool even; /* a result may be the same everywhere though its source is not, as that of nearly full opacity */
};

/* Starts an upscaler on a picture: tiles of `core` px (0: whole) with exact or feathered seams, clamped to 0..255, as
 * many at a time as suits the device. A network that scales channels by means over the picture (enum model_means) goes
 * through all tiles once more for each mean, so that none has means of its own. After TOO_LARGE or NO_MEMORY, here or
 * later: end it and try a smaller core. */
struct tile_job;
enum error_code tile_begin(struct tile_job **out, struct step *step, const struct view_u8 *picture, int core,
                           const struct tile_sink *sink, struct error *err) MUST_CHECK;
/* In strips as wide as the picture, of `core` rows. */
enum error_code tile_begin_strips(struct tile_job **out, struct step *step, const struct view_u8 *picture, int core,
                                  const struct tile_sink *sink, struct error *err) MUST_CHECK;
/* The same as the reference does it. */
enum error_code tile_begin_compat(struct tile_job **out, struct step *step, const struct view_u8 *picture,
                                  const struct tile_compat *cut, const struct tile_sink *sink,
                                  struct error *err) MUST_CHECK;

/* How tile_begin cuts a side of `length` px: into how many windows, and of how many px each. */
void tile_windows(int length, int core, const struct model_info *info, int *count, int *window);
/* How many px two neighbours of these share at most; 0: there is one. */
int tile_shared(int length, int core, const struct model_info *info);

/* The height of the highest rectangle; the width of the widest run. */
int tile_rows(const struct tile_job *job);
int tile_columns(const struct tile_job *job);

/* Whether rectangles are as wide as the result. */
bool tile_wide(const struct tile_job *job);

/* The picture has these samples of 16 bits instead, in rows without gaps. To be called before the first run. */
void tile_deepen(struct tile_job *job, const uint16_t *samples);

/* The sink knows its targets now, if it did not before. */
enum error_code tile_show(struct tile_job *job, struct error *err) MUST_CHECK;
/* Collects finished runs and keeps the device busy with the rest. If the targets are known it waits until at most
 * `left` runs are under way and none remains to be sent (0: to the end; negative: not at all). */
enum error_code tile_advance(struct tile_job *job, int left, struct error *err) MUST_CHECK;
/* NULL-safe; runs on the device are discarded. */
void tile_end(struct tile_job **job);

#endif
