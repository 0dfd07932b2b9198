/* One restoration from bytes to bytes: decode, repair, detect, align, restore, background, paste, encode, one file a
 * step. pipeline.c holds the ordered array of steps. Thread-safety: a struct restoration belongs to one thread at a
 * time; its progress fields may be read by others. */
#ifndef SERVER_PIPELINE_PIPELINE_H
#define SERVER_PIPELINE_PIPELINE_H

#include <stdatomic.h>

#include "server/image/defect.h"
#include "server/image/image.h"
#include "server/pipeline/model_store.h"
#include "server/pipeline/size.h"

enum stage {
    STAGE_QUEUE, /* waiting, including for the device; the job's owner adds what came before */
    STAGE_DECODE,
    STAGE_REPAIR,
    STAGE_DETECT,
    STAGE_ALIGN,
    STAGE_RESTORE,
    STAGE_PARSE,
    STAGE_BACKGROUND,
    STAGE_PASTE,
    STAGE_ENCODE,
    STAGE_COUNT
};

const char *stage_name(enum stage stage); /* "queue", "decode", ... */

struct limits {
    uint64_t input_pixels, result_pixels; /* 64 MP, 400 MP */
    int detect_max_side;                  /* 2048; 0: none */
    int max_faces;                        /* 256: the largest and surest are taken of more; 0: no limit */
    int batch;                            /* the most pictures that a network gets at once; 0: as suits the device */
};

struct face_file {
    uint8_t *bytes; /* a PNG; NULL: none was made */
    size_t size;
};

struct face {
    int id;                                              /* order of detection, highest score first */
    double box[4], score, landmarks[5][2], eye_distance; /* px of the oriented input */
    bool restored;
    char reason[128];   /* why not, or "" */
    bool unmasked;      /* its mask is empty: nothing of the restoration is in the result */
    bool weighed;       /* the next two are known */
    double used;        /* how much of the restoration is in the result, 0..1: the mean over the face */
    double change;      /* how far the restoration moves from the picture, 0..1 */
    double affine[6];   /* picture -> crop, row-major 2×3 */
    int size;           /* side of the crop and of everything made from it: 512, or what the face network takes */
    struct image *crop; /* size×size, 8 bit RGB; with compat or when faces are kept */
    struct image *restoration; /* the face network's output rounded to 8 bit; NULL when nobody needs it (keep_faces) */
    float *crop_float, *restoration_float; /* the same two before rounding, interleaved RGB 0..255; NULL with compat */
    uint8_t *classes;                      /* size×size ParseNet labels, or NULL for the square mask */
    struct face_file crop_file, restoration_file; /* of crop and restoration, if encode_faces asks for them */
};

struct restoration {
    /* set by the owner before pipeline_run */
    struct options options;
    struct limits limits;
    const uint8_t *input; /* the file's bytes, borrowed */
    size_t input_bytes;
    int input_file;            /* the descriptor, plus 1, of a file that begins with these bytes; 0: none */
    const uint8_t *mask_input; /* a picture that says what is to be filled, borrowed as `input` is; NULL: none */
    size_t mask_bytes;
    const uint8_t *other_input; /* an earlier result of the same size, borrowed; the result is blended with it */
    size_t other_bytes;
    double other_share; /* how much of the result is this restoration's, 0..1 */
    bool mask_clear;    /* a mask with transparency: what is transparent in it is filled */
    bool detect_only;   /* stop after detection (no output) */
    bool damage_only;   /* the output is the mask of what would be repaired */
    bool keep_faces;    /* keep crops and restored faces */
    bool encode_faces;  /* and turn them into files, freeing the pictures */
    bool encode_mask;   /* turn the mask into a file if anything was filled */
    bool elsewhere;     /* its owner cannot run commands here: the notes name none */
    /* Indexed by enum image_format: how much the owner prefers each when the options leave the format open; higher is
     * better. The input's own format is taken unless another one is higher. */
    int format_weight[IMAGE_FORMAT_COUNT];
    atomic_int cancel;   /* set by the owner to stop it */
    int64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    /* Called on the working thread when stage, tiles_done, faces_done or faces_total have changed; must not block.
     * NULL: nobody is told. */
    void (*moved)(struct restoration *r, void *context);
    void *moved_context;

    /* progress, readable from other threads while it runs */
    atomic_int stage, tiles_done, tiles_total, faces_done, faces_total;
    atomic_uint entered;  /* the stages that the present attempt has entered: a bit (1 << stage) each */
    atomic_uint progress; /* grows with each piece of work, also inside a network's run */
    atomic_bool making;   /* a model is being loaded, or a plan made: one piece of work, which may take minutes */

    /* results */
    struct step *step;     /* the steps' own, passed between them */
    bool decoded;          /* the picture could be read */
    bool faceless;         /* no faces will be restored */
    struct image *picture; /* decoded, oriented, repaired, toned, 8-bit RGB */
    struct deep *deep;     /* what it has beyond that, or NULL: see deep.h */
    struct image *mask;    /* 8-bit gray: at first the one that was sent, then what was filled: white; or NULL */
    struct image *other;   /* decoded from other_input; or NULL */
    bool repaired;         /* the picture and the mask are as the step left them */
    bool toned;            /* the picture is as the step of its tone left it */
    struct {
        bool looked;               /* a detector has looked */
        double share;              /* of the picture that was filled */
        int defects[DEFECT_KINDS]; /* that were found, by kind, and their shares */
        double shares[DEFECT_KINDS];
        bool given;    /* some of it is from the mask that was sent */
        bool sent;     /* there was such a mask, if only a black one */
        double filled; /* megapixels of windows that the filler's network was given */
    } damage;
    struct {
        bool asked;                /* somebody has looked; the rest is known */
        bool monochrome;           /* gray, or a toned print, which keeps its tone */
        double strength;           /* of the correction, 0..1 */
        double change;             /* levels of 255, the mean */
        double black[3], white[3]; /* what was found */
    } tone;
    atomic_int turned; /* by so many quarters clockwise, all the pictures here */
    struct {
        bool looked;
        int degrees; /* clockwise, until the faces are upright: 0, 90, 180 or 270 */
    } rotation;
    struct face_file mask_file; /* the mask as a PNG; NULL: nothing was filled */
    struct image *result;       /* before encoding; with options.aligned: the restored face */
    uint8_t *output;            /* encoded; spill_free() */
    size_t output_bytes;
    enum image_format output_format;
    struct {
        int width, height, bits, channels;
        enum image_format format;
        uint64_t bytes;
        int pages; /* of the input: 1; more; 0: several, not counted */
    } in_info, out_info;
    struct face *faces;
    int face_count;
    char model_names[ROLE_COUNT][128]; /* "" where none was used */
    char device[32];
    enum precision precision; /* used */
    double stage_ms[STAGE_COUNT], total_ms;
    double network_ms[STAGE_COUNT]; /* of stage_ms: while the device works on networks or plans are being made */
    double making_ms[STAGE_COUNT];  /* of stage_ms: loading models and making plans, which is done once */
    int tiles, shared;              /* of the background; of these, computed by other servers */
    int fallbacks;                  /* results redone in fp32 because they were flat or not finite */
    int shrinks; /* times a tile or picture was made smaller because it did not fit the device's memory */
    char notes[16][200];
    const char *note_codes[16]; /* what each of them is called, and the values in it, one a line */
    char note_values[16][160];
    int note_count;
};

/* The longest side of a picture and a result, px: steps have some hundred rows at once in floats. */
#define PIPELINE_SIDE OPTION_SIDE

/* A zeroed restoration with default options and limits. */
enum error_code restoration_create(struct restoration **out, struct error *err) MUST_CHECK;
void restoration_destroy(struct restoration **restoration);
/* Frees all pictures except the encoded output; the report's facts stay. */
void restoration_drop_pictures(struct restoration *r);
/* The bytes of all its files: the encoded output, and the faces' if encode_faces asks for them. */
size_t restoration_files(const struct restoration *r);
/* Its progress has changed: tells whoever asked for that. */
void restoration_moved(struct restoration *r);
/* Something that the user may want to know, once: a sentence (printf form, of %d, %u, %s and the like), and its code,
 * which does not change: those who say it in another language know it by that. "": it is not known. */
void restoration_note(struct restoration *r, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for all bits of an image's notes. */
void restoration_note_image(struct restoration *r, unsigned notes);

struct helpers;

/* What a worker owns: a device and its models. */
struct worker_context {
    struct device *device;
    struct model_store *store;
    struct model_set *models;
    enum precision precision; /* if a restoration leaves it open and the device has it; AUTO: what the device prefers */
    void (*spare)(void *user); /* called when all of a restoration's work is on the device; may be NULL */
    void *user;
    const struct helpers *helpers; /* who may compute tiles of large pictures, too; or NULL: see helpers.h */
    struct restoration *current;   /* the pipeline's: the one in pipeline_compute; or NULL */
    struct restoration *ahead;     /* the pipeline's: begun by pipeline_ahead and not used yet; or NULL */
};

/* The precision that a restoration gets when it asks for this one. */
enum precision pipeline_precision(const struct worker_context *context, enum precision asked);
/* The same before the device is open. configured: as context->precision. */
enum precision pipeline_precision_on(const struct device_info *device, enum precision configured, enum precision asked);

/* The steps before, on and after the device; each part may run on another thread, and the pictures in between stay in
 * memory. begin: checks as pipeline_check and decodes. compute: runs the networks; may be run again after a failure,
 * even on another device. end: pastes and encodes. On failure err says why; the restoration keeps what it has (faces,
 * times). */
enum error_code pipeline_begin(struct restoration *r, const struct model_store *store, struct error *err) MUST_CHECK;
enum error_code pipeline_compute(struct restoration *r, struct worker_context *context, struct error *err) MUST_CHECK;
enum error_code pipeline_end(struct restoration *r, struct error *err) MUST_CHECK;

/* Repairs the next restoration's picture, which has been decoded, and sends the device as much as possible of its
 * background, before the current one is over (called from `spare`), so that the device does not idle; does nothing
 * where that is impossible, or the current one would wait long for it. pipeline_compute with the same context continues
 * from there; otherwise pipeline_forget must be called before the restoration, or the context's device or models, are
 * destroyed. */
void pipeline_ahead(struct restoration *r, struct worker_context *context);
/* Gives up what was begun ahead, if anything. */
void pipeline_forget(struct worker_context *context);

/* All three. */
enum error_code pipeline_run(struct restoration *r, struct worker_context *context, struct error *err) MUST_CHECK;

/* Checked before queueing, from the header alone: UNSUPPORTED, CORRUPT, TOO_LARGE (pixels, or a result too large for
 * the format), or INVALID for an option that this picture or installation cannot serve (unknown model, a page that is
 * not there). Fills in_info. */
enum error_code pipeline_check(struct restoration *r, const struct model_store *store, struct error *err) MUST_CHECK;

/* Whether a mask of that size fits the picture: in_info's width and height are those of the upright picture. INVALID. */
enum error_code pipeline_check_mask(const struct restoration *r, int width, int height, struct error *err) MUST_CHECK;

/* pipeline_check without a picture: the owner has set in_info's width, height and format. model: those that the options ask
 * for; NULL where none is needed. */
enum error_code pipeline_check_size(struct restoration *r, const struct model_store *store,
                                    const struct model_entry *model[ROLE_COUNT], struct error *err) MUST_CHECK;

/* The result's size. */
void pipeline_size(const struct restoration *r, struct size *size);

/* Puts the names of the models that the options ask for into them, and what else the report tells of them; no model is
 * loaded. Errors as pipeline_check; then nothing has changed. */
enum error_code pipeline_resolve(struct restoration *r, const struct model_store *store, struct error *err) MUST_CHECK;

/* Whether the models that the options ask for are installed, whatever the picture; errors as pipeline_check. */
enum error_code pipeline_check_models(const struct restoration *r, const struct model_store *store,
                                      struct error *err) MUST_CHECK;

/* The report as api.md has it ("application/json" of POST /v1/restore), for detect_only that of POST /v1/detect; a new
 * jansson reference, NULL when memory is out. */
struct json_t;
struct json_t *restoration_report(const struct restoration *r);
/* Whether the face stays as it came, since its restoration is no better or its mask is empty. */
bool restoration_kept(const struct restoration *r, const struct face *face);
/* Its options alone, in the same form. */
struct json_t *restoration_options(const struct options *options);

#endif
