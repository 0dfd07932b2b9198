/* What the steps of one restoration share, and the steps themselves, in their order. Each takes what the steps before
 * it left in the restoration, so that a test may put reference values there and run one step alone.
 * Thread-safety: as struct restoration, one worker thread. */
#ifndef SERVER_PIPELINE_STEP_H
#define SERVER_PIPELINE_STEP_H

#include "server/image/view.h"
#include "server/pipeline/pipeline.h"

/* Where one face lies in the result. */
struct patch {
    struct rect rect; /* of the result, px; empty: not pasted */
    double matrix[6]; /* crop -> result */
    float *layer;     /* rect.height × rect.width × RGBA that lies over the background, times its alpha; or NULL */
    void *pixels;     /* compat: rect.height × rect.width × RGB before rounding: double with ParseNet, else float */
    size_t element;   /* sizeof one of these samples */
};

struct step {
    struct restoration *r;
    struct worker_context *context; /* NULL in tests that run no network */
    const struct model_entry *model[ROLE_COUNT];
    int width, height;           /* of the result, px */
    struct patch *patches;       /* r->face_count of them, or NULL */
    struct raster_layer *layers; /* those of the patches that have one, or NULL */
    int layer_count;
    struct background *background; /* begun and not over, or NULL */
    enum stage stage;
    int64_t stage_start;       /* ns */
    double busy_ms, making_ms; /* the device's at the stage's start; spent on making plans since */
};

/* Gives the steps a device, or takes it from them (NULL). */
void step_attach(struct step *step, struct worker_context *context);
/* Closes the running stage's time and begins the next one's. */
void step_enter(struct step *step, enum stage stage);
/* ERROR_CANCELLED or ERROR_TIMEOUT when the owner cancelled or the deadline passed. */
enum error_code step_check(const struct step *step, struct error *err) MUST_CHECK;

/* The session for a role's model, at the restoration's precision. */
enum error_code step_session(struct step *step, enum model_role role, struct session **session,
                             const struct model_info **info, struct error *err) MUST_CHECK;

/* Makes the plan for running a role's network at this shape. NO_MEMORY or TOO_LARGE: there is no room for it, though
 * all other networks were taken off the device. */
enum error_code step_prepare(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct error *err) MUST_CHECK;

/* plan_submit of a role's network, its plan made where there is none. Errors are those of step_prepare and of
 * plan_submit. */
enum error_code step_submit(struct step *step, enum model_role role, enum precision precision,
                            const struct session_shape *shape, const struct run_io *run, struct plan **plan,
                            struct error *err) MUST_CHECK;

/* What of a run's result is wrong: "not finite", or "entirely flat" though the pictures that went in are not; NULL: it
 * is sound. */
const char *step_fault(const struct run_result *result, const struct raster_source *sources,
                       const struct session_shape *shape);

/* Notes and counts that a result is refused and computed again in fp32; where it was, the error. */
enum error_code step_refused(struct step *step, enum model_role role, const char *fault, bool again,
                             struct error *err) MUST_CHECK;

/* Runs a role's network once on shape->n pictures and waits. outputs: info->output_count of them. A result at fault is
 * refused. */
enum error_code step_network(struct step *step, enum model_role role, const struct session_shape *shape,
                             const struct raster_source *sources, const struct run_output *outputs,
                             uint32_t first_image, struct error *err) MUST_CHECK;

/* How many pictures a network gets at once, at most. */
int step_batch(const struct step *step);

/* Gives the faces to `run` in batches, smaller ones where there is no room. */
#define STEP_BATCH 8
typedef enum error_code step_faces_fn(struct step *step, struct face *const *faces, int count, struct error *err);
enum error_code step_faces(struct step *step, enum model_role role, struct face *const *faces, int count,
                           step_faces_fn *run, struct error *err) MUST_CHECK;

/* True for the two codes that a smaller shape may cure. */
bool step_too_large(enum error_code code);

/* Where no smaller shape is left: makes err, which is of such a code, the user's. what: "a face of 512 × 512 px". */
enum error_code step_no_room(const struct step *step, enum model_role role, struct error *err, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

enum error_code decode_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code detect_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code align_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code restore_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code parse_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code background_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code paste_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code encode_step(struct step *step, struct error *err) MUST_CHECK;

/* Marks every face that the options leave out, with the reason. Part of detect_step. */
enum error_code detect_choose(struct step *step, struct error *err) MUST_CHECK;

/* The side of the face network's square, px; 512 without one. */
enum error_code align_face_size(struct step *step, int *size, struct error *err) MUST_CHECK;

/* The crop of a face whose affine and size are set. Part of align_step. */
enum error_code align_warp(const struct restoration *r, struct face *face, struct error *err) MUST_CHECK;

/* Places the chosen faces in the result and, but for compat, makes of them the layers that the background is given as
 * it is rounded, unless that was done: while the device is at work on it. */
enum error_code paste_layers(struct step *step, struct error *err) MUST_CHECK;
/* Takes both away. */
void paste_end(struct step *step);
/* A row of the unrounded background (width × RGB), which is changed, with the layers over it and rounded into
 * r->result. Several threads may do rows of their own. */
void paste_background_row(struct step *step, int y, float *row);
/* ParseNet's labels -> opacity 0..1, size×size. */
enum error_code paste_parse_mask(const uint8_t *classes, int size, double *mask, struct error *err) MUST_CHECK;
/* The square mask in a patch's rectangle: eroded (e) and its blurred core (soft); both hold rect.width × rect.height.
 */
enum error_code paste_square_mask(const struct step *step, const struct patch *patch, int size, float *eroded,
                                  float *soft, struct error *err) MUST_CHECK;

/* How Real-ESRGAN's own command cuts a picture; sizes in px of the input. */
struct tile_compat {
    int tile; /* 0: whole */
    int tile_pad, pre_pad;
};

/* Where the upscaler's result goes, rectangle by rectangle in the order of rows, each pixel once. */
struct tile_sink {
    void *user;
    /* Where the pixels of this rectangle of the result go; its place is the result's. */
    void (*target)(void *user, const struct rect *rect, struct raster_target *target);
    void (*filled)(void *user, const struct rect *rect);     /* they have them; may be NULL */
    enum error_code (*again)(void *user, struct error *err); /* all rectangles come once more; may be NULL */
    bool later;                                              /* that is unknown until tile_show */
};

/* An upscaler at work on a picture: tiles of `core` px (0: whole) with exact or feathered seams, clamped to 0..255, as
 * many at a time as the device likes. TOO_LARGE or NO_MEMORY, then or later: end it and try a smaller core. */
struct tile_job;
enum error_code tile_begin(struct tile_job **out, struct step *step, const struct view_u8 *picture, int core,
                           const struct tile_sink *sink, struct error *err) MUST_CHECK;
/* The same as the reference does it. */
enum error_code tile_begin_compat(struct tile_job **out, struct step *step, const struct view_u8 *picture,
                                  const struct tile_compat *cut, const struct tile_sink *sink,
                                  struct error *err) MUST_CHECK;

/* The height of the highest rectangle. */
int tile_rows(const struct tile_job *job);

/* The sink knows its targets, if it did not before. */
enum error_code tile_show(struct tile_job *job, struct error *err) MUST_CHECK;
/* Takes over what is done and keeps the device busy with what is not. Where targets are known it waits until no more
 * than `left` runs are under way and none is to be sent: 0: to the end; negative: not at all. */
enum error_code tile_advance(struct tile_job *job, int left, struct error *err) MUST_CHECK;
/* NULL-safe; what is on the device is given up. */
void tile_end(struct tile_job **job);

/* Begins background_step where the device works beside us, so that it computes while faces are looked for and cut out
 * and between their networks' runs, which go first. What lies over the result is known when they are done. */
enum error_code background_begin(struct step *step, struct error *err) MUST_CHECK;
/* Gives up what was begun of the background; background_step begins it again. */
void background_end(struct step *step);

/* Upscales by the reference's whole way, Lanczos4 to the final size included. */
enum error_code background_compat(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                  double outscale, struct image **out, struct error *err) MUST_CHECK;

#endif
