/* What all steps of one restoration share, and the steps themselves, in order. Each step uses what the steps before it
 * left in the restoration, so a test may put reference values there and run a single step. What a step offers to others
 * is in its own header: detect.h, align.h, tile.h, background.h, paste.h.
 * Thread-safety: as struct restoration, one worker thread. */
#ifndef SERVER_PIPELINE_STEP_H
#define SERVER_PIPELINE_STEP_H

#include "server/image/view.h"
#include "server/pipeline/pipeline.h"

/* Where one face lies in the result. */
struct patch {
    struct rect rect; /* of the result, px; empty: not pasted */
    double matrix[6]; /* crop -> result */
    float *layer;     /* rect.height × rect.width × RGBA to lay over the background, times its alpha; or NULL */
    void *pixels;     /* compat: rect.height × rect.width × RGB before rounding: double with ParseNet, else float */
    size_t element;   /* sizeof one of these samples */
};

struct step {
    struct restoration *r;
    struct worker_context *context; /* NULL in tests that run no network */
    const struct model_entry *model[ROLE_COUNT];
    int width, height;           /* of the result, px */
    struct patch *patches;       /* r->face_count of them, or NULL */
    struct raster_layer *layers; /* the layers of the patches that have one, or NULL */
    int layer_count;
    int first, end;                /* of r->faces: those in work between align_step and paste_layers; end 0: all */
    int layered;                   /* faces whose layers are made */
    struct background *background; /* begun and not over, or NULL */
    bool detected;                 /* by this attempt */
    uint64_t repairing;            /* the number (raster.h) of the picture that is repaired */
    enum stage stage;
    int64_t stage_start;       /* ns */
    double busy_ms, making_ms; /* the device's at the stage's start; since then spent on making plans */
};

/* Gives the steps a device, or takes it away (NULL). */
void step_attach(struct step *step, struct worker_context *context);
/* Closes the running stage's time and begins the next one's. */
void step_enter(struct step *step, enum stage stage);
/* ERROR_CANCELLED or ERROR_TIMEOUT when the owner cancelled or the deadline passed. */
enum error_code step_check(const struct step *step, struct error *err) MUST_CHECK;

/* The session for a role's model, at the restoration's precision. */
enum error_code step_session(struct step *step, enum model_role role, struct session **session,
                             const struct model_info **info, struct error *err) MUST_CHECK;

/* The restoration's precision; but what makes pixels of 16 bits takes fp32, whose steps are finer, if it may choose. */
enum precision step_precision(const struct step *step, enum model_role role);

/* Makes the plan for running a role's network at this shape. NO_MEMORY or TOO_LARGE: there is no room for it even with
 * all other networks removed from the device. */
enum error_code step_prepare(struct step *step, enum model_role role, const struct session_shape *shape,
                             struct error *err) MUST_CHECK;

/* plan_submit for a role's network; makes its plan if there is none. Errors: those of step_prepare and plan_submit. */
enum error_code step_submit(struct step *step, enum model_role role, enum precision precision,
                            const struct session_shape *shape, const struct run_io *run, struct plan **plan,
                            struct error *err) MUST_CHECK;

/* What is wrong with a run's result: "not finite", or "entirely flat" though the input pictures are not (sources NULL:
 * that is not looked for); NULL: nothing. */
const char *step_fault(const struct run_result *result, const struct raster_source *sources,
                       const struct session_shape *shape);

/* Notes and counts that a result is refused and computed again in fp32; if it was in fp32 already, sets the error. */
enum error_code step_refused(struct step *step, enum model_role role, const char *fault, bool again,
                             struct error *err) MUST_CHECK;

/* Refuses the result of a run of step_submit at the job's precision, the shape and the run unchanged, if it is faulty
 * (step_fault): it is computed again. No other run of the network may be under way then: a plan's runs end in the order
 * in which they began. */
enum error_code step_accept(struct step *step, enum model_role role, const struct session_shape *shape,
                            const struct run_io *run, const struct raster_source *sources,
                            const struct run_result *first, struct error *err) MUST_CHECK;

/* Runs a role's network once and waits; a faulty result (step_fault) is refused. */
enum error_code step_run(struct step *step, enum model_role role, const struct session_shape *shape,
                         const struct run_io *run, const struct raster_source *sources, struct error *err) MUST_CHECK;

/* Runs a role's network once on shape->n pictures and waits. outputs: info->output_count of them. A faulty result is
 * refused. */
enum error_code step_network(struct step *step, enum model_role role, const struct session_shape *shape,
                             const struct raster_source *sources, const struct run_output *outputs,
                             uint32_t first_image, struct error *err) MUST_CHECK;

/* Whether networks run on a GPU, and not on the host's cores. */
bool step_on_gpu(const struct step *step);

/* The most pictures that a network gets at once. */
int step_batch(const struct step *step);

/* So many chosen faces at a time are cut out, restored, parsed and made layers of, to bound what they hold: 9 MB each
 * at 512 px. */
#define STEP_GROUP 16
/* Behind the last face in work. */
int step_end(const struct step *step);
/* Those of the faces in work that are `wanted`, from malloc. */
enum error_code step_faces_in_work(const struct step *step, bool (*wanted)(const struct face *face),
                                   struct face ***faces, int *count, struct error *err) MUST_CHECK;

/* Passes the faces to `run` in batches; smaller ones if there is no room. */
#define STEP_BATCH 8
typedef enum error_code step_faces_fn(struct step *step, struct face *const *faces, int count, struct error *err);
enum error_code step_faces(struct step *step, enum model_role role, struct face *const *faces, int count,
                           step_faces_fn *run, struct error *err) MUST_CHECK;

/* True for the two codes that a smaller shape may solve. */
bool step_too_large(enum error_code code);

/* When no smaller shape is left: turns err, which has such a code, into an error for the user. what: "a face of 512 ×
 * 512 px". */
enum error_code step_no_room(const struct step *step, enum model_role role, struct error *err, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

enum error_code decode_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code tone_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code repair_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code detect_first(struct step *step, struct error *err) MUST_CHECK; /* detect_step, if it must be first */
enum error_code detect_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code align_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code restore_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code parse_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code background_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code paste_step(struct step *step, struct error *err) MUST_CHECK;
enum error_code encode_step(struct step *step, struct error *err) MUST_CHECK;

#endif
