/* The options of one restoration: one table of names, types, defaults and limits that the command line, HTTP and
 * /v1/capabilities share.
 * Thread-safety: constant data and functions without state. */
#ifndef SERVER_PIPELINE_OPTIONS_H
#define SERVER_PIPELINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/backend/backend.h"
#include "server/image/image.h"

#define OPTION_NAME_MAX 128 /* bytes of a model's name, a device's name or a suffix, with its final 0 */
#define OPTION_MAX_FACES 64
#define OPTION_SIDE 500000   /* px of a result */
#define OPTION_TEXT_MAX 2048 /* bytes of any value as text, with its final 0 */
/* A face's score from which on detectors are believed unless min_score says otherwise. */
#define OPTION_SURE_SCORE 0.97
#define OPTION_LEAST_SCORE 0.5

enum option_format { FORMAT_AUTO, FORMAT_PNG, FORMAT_JPEG, FORMAT_WEBP, FORMAT_TIFF, FORMAT_AVIF, FORMAT_JXL };
enum option_parse { PARSE_AUTO, PARSE_TRUE, PARSE_FALSE };
enum option_repair { REPAIR_AUTO, REPAIR_TRUE, REPAIR_FALSE };
enum option_mask_mode { MASK_REPLACE, MASK_ADD, MASK_REMOVE };
enum option_damaged { DAMAGED_REFUSE, DAMAGED_ACCEPT };
enum option_profile { PROFILE_KEEP, PROFILE_SRGB };
enum option_alpha { ALPHA_AUTO, ALPHA_RESIZE, ALPHA_NETWORK };
enum option_metadata { METADATA_KEEP, METADATA_STRIP, METADATA_STRIP_GPS };
enum option_fit { FIT_INSIDE, FIT_COVER, FIT_FILL };
enum option_rotate { ROTATE_OFF, ROTATE_REPORT, ROTATE_APPLY };
enum option_tone { TONE_OFF, TONE_AUTO, TONE_STRONG };
enum option_faces { FACES_ALL, FACES_NONE, FACES_LISTED };

struct options {
    char version[OPTION_NAME_MAX]; /* "" until resolved: the configured or official default */
    char bg_upsampler[OPTION_NAME_MAX];
    char detector[OPTION_NAME_MAX];
    char device[OPTION_NAME_MAX];
    char suffix[OPTION_NAME_MAX];
    double upscale;              /* 1..8 */
    bool upscaled;               /* it was given */
    int width, height, max_side; /* of the result, px; 0: not given */
    enum option_fit fit;
    int bg_tile; /* input px; 0: no tiling; -1: auto */
    bool only_center_face, aligned, compat;
    enum option_format ext;
    double weight;                                  /* 0..1; -1: auto */
    double w;                                       /* 0..1, of CodeFormer */
    int weight_ids[OPTION_MAX_FACES], weight_count; /* faces with a weight of their own */
    double face_weights[OPTION_MAX_FACES];          /* theirs, as weight */
    bool has_seed;
    uint64_t seed;
    enum option_parse parse;
    enum option_faces faces;
    int face_ids[OPTION_MAX_FACES], face_id_count;
    int min_face, max_face; /* px; 0: no limit */
    double min_score;       /* OPTION_LEAST_SCORE..1 */
    enum precision precision;
    enum option_damaged damaged;
    enum option_profile profile;
    enum option_metadata metadata;
    enum option_alpha alpha;
    bool lossless, progressive, preserve_color;
    int quality;   /* 1..100 */
    int png_level; /* 0..9 */
    int page;      /* 1..CODEC_PAGES: which picture of the file */
    enum option_rotate auto_rotate;
    enum option_tone tone;
    enum option_repair repair;
    double repair_strength; /* 0..1 */
    unsigned repair_kinds;  /* which are filled: a bit each, as in defect.h */
    bool mask_kinds;        /* masks tell the kinds, by their grays */
    enum option_mask_mode mask_mode;
    char damage_detector[OPTION_NAME_MAX], fill[OPTION_NAME_MAX]; /* "": the default; resolved: "none": none is used */
};

struct option_row {
    const char *name;
    const char *type;    /* "number", "integer", "boolean", "string", "enum" */
    const char *initial; /* default as text; "" for none */
    const char *allowed; /* for people: "1 to 8" */
    const char *help;
    bool detect; /* POST /v1/detect takes it too */
};

/* What a value may be, for programs: one of words, or a number within the bounds. */
struct option_bounds {
    bool number;             /* minimum and maximum apply */
    double minimum, maximum; /* of a seed 2^53 - 1, above which JSON's numbers are not exact */
    const char *words[9];    /* NULL after the last */
    const char *pattern;     /* a regular expression of what else it may be; NULL: none */
};

extern const struct option_row option_rows[];
extern const int option_row_count;

void options_init(struct options *options);

/* Sets one option from text. ERROR_INVALID names the field, what was sent and what is allowed. '-' and '_' count as
 * equal. */
enum error_code options_set(struct options *options, const char *name, const char *value, struct error *err) MUST_CHECK;

/* Checks that involve several options. Call it once, after the last options_set. */
enum error_code options_check(const struct options *options, struct error *err) MUST_CHECK;

/* The format that ext names; IMAGE_NONE for auto. */
enum image_format options_format(const struct options *options);

/* The result's format for a picture in this format, with transparency or without, where the client prefers none. */
enum image_format options_result_format(const struct options *options, enum image_format input, bool alpha);

/* The row of that name, or NULL. */
const struct option_row *options_find(const char *name);

/* What the value of a row may be. */
void options_bounds(const struct option_row *row, struct option_bounds *out);

/* The weight of a face: 0..1; -1: auto. */
double options_weight(const struct options *options, int id);

/* The value of a row whose type is number; of weight the one for all faces. */
double options_real(const struct options *options, const struct option_row *row);

/* The current value as text, as the report shows it. */
void options_text(const struct options *options, const char *name, char *out, int out_size);

#endif
