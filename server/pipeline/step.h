/* What the steps of one restoration share, and the steps themselves, in their order. Each takes what the steps before
 * it left in the restoration, so that a test may put reference values there and run one step alone.
 * Thread-safety: as struct restoration, one worker thread. */
#ifndef SERVER_PIPELINE_STEP_H
#define SERVER_PIPELINE_STEP_H

#include "server/image/view.h"
#include "server/pipeline/pipeline.h"

/* The result under one face before it is rounded to 8 bit: what the background leaves there and the faces change. */
struct patch {
    struct rect rect; /* of the result, px */
    double matrix[6]; /* crop -> result */
    void *pixels; /* rect.height × rect.width × RGB: double for compat's ParseNet blend, else float; NULL: not pasted */
    size_t element; /* sizeof one sample */
};

struct step {
    struct restoration *r;
    struct worker_context *context; /* NULL in tests that run no network */
    const struct model_entry *model[ROLE_COUNT];
    int width, height;     /* of the result, px */
    struct patch *patches; /* r->face_count of them, or NULL */
    enum stage stage;
    int64_t stage_start; /* ns */
};

/* Closes the running stage's time and begins the next one's. */
void step_enter(struct step *step, enum stage stage);
/* ERROR_CANCELLED or ERROR_TIMEOUT when the owner cancelled or the deadline passed. */
enum error_code step_check(const struct step *step, struct error *err) MUST_CHECK;

/* The session for a role's model, at the restoration's precision. */
enum error_code step_session(struct step *step, enum model_role role, struct session **session,
                             const struct model_info **info, struct error *err) MUST_CHECK;

struct step_tensor {
    float *data;
    size_t count;
};

/* Makes the plan for running a role's network at this shape. NO_MEMORY or TOO_LARGE: there is no room for it, though
 * all other networks were taken off the device. */
enum error_code step_prepare(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct error *err) MUST_CHECK;

/* Runs a role's network once (one input). Errors are those of step_prepare and of running. A result that is not finite,
 * or flat while the input is not, is redone in fp32 and counted in fallbacks; ERROR_DEVICE that names the stage when
 * that does not help. */
enum error_code step_network(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct step_tensor input, const struct step_tensor *outputs, int output_count,
                             uint32_t first_image, struct error *err) MUST_CHECK;

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

/* Places the patches: called before the background is made, which fills them in the default mode. */
enum error_code paste_prepare(struct step *step, struct error *err) MUST_CHECK;
/* A row of the unrounded background (width × RGB), clamped to 0..255 on its way, into the patches and, rounded, into
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

/* The upscaler on a whole picture as the reference does it, rounded to 8 bit: width*scale × height*scale. */
enum error_code tile_run_compat(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                struct image **out, struct error *err) MUST_CHECK;

/* The upscaler in tiles of `core` px (0: whole) with exact or feathered seams: emits height*scale rows of width*scale
 * RGB, clamped to 0..255, in order and up to TILE_ROWS at a time. TOO_LARGE or NO_MEMORY: try a smaller core, all rows
 * come again. */
#define TILE_ROWS 128
typedef void tile_emit_fn(void *user, const float *rows, int count);
enum error_code tile_run(struct step *step, const struct view_u8 *picture, int core, tile_emit_fn *emit, void *user,
                         struct error *err) MUST_CHECK;

/* Upscales by the reference's whole way, Lanczos4 to the final size included. */
enum error_code background_compat(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                  double outscale, struct image **out, struct error *err) MUST_CHECK;

#endif
