/* The networks, each recognised by a checkpoint's tensor names and shapes alone, never by the file's name.
 * Thread-safety: an open struct model is immutable and may be shared; sessions are not. */
#ifndef RUNTIME_MODELS_MODEL_H
#define RUNTIME_MODELS_MODEL_H

#include "runtime/session.h"
#include "runtime/weights/weights.h"

#define MODEL_MAX_CLASSES 256 /* of a parser: labels have 8 bits */

enum model_kind { MODEL_DETECTOR, MODEL_FACE, MODEL_PARSER, MODEL_UPSCALER, MODEL_DAMAGE, MODEL_FILLER, MODEL_KINDS };

/* What the tensors do not tell; a field that is 0 or NULL means the reference's value (see models.conf). */
struct model_settings {
    bool has_slope;
    float slope;                /* detector: one LeakyReLU slope for backbone, FPN and SSH */
    float min_sizes[3][2];      /* detector: anchor sizes at strides 8, 16, 32; all 0: {16,32},{64,128},{256,512} */
    enum activation activation; /* detector, and upscaler without PReLU weights: ACTIVATION_RELU or ACTIVATION_LEAKY;
                                   NONE: what the file's metadata say, else the reference's */
    float activation_slope;     /* for ACTIVATION_LEAKY; 0: 0.1 */
    bool has_noise_level, has_jpeg_quality;
    float noise_level;  /* DRUNet, FDnCNN: of the picture, 0..255; 15 where nothing is said */
    float jpeg_quality; /* FBCNN: of the picture, 0..100; where nothing is said the network finds it */
};

/* "relu", "leakyrelu" or "leakyrelu:SLOPE", 0 < SLOPE <= 1, as models.conf and a file's metadata say it. */
bool model_settings_activation(struct model_settings *out, const char *text);

struct model_info;
/* The key, as models.conf has it, of a setting that says something which a network of this kind does not ask for; NULL:
 * there is none. */
const char *model_settings_unused(const struct model_settings *settings, const struct model_info *info);

/* A mean over the whole picture that an upscaler scales channels by: of so many channels, of features of which a side
 * of h px has h*per4/4 + margin. */
#define MODEL_POOLS 4
struct model_pool {
    int channels, per4, margin;
};

struct model_info {
    enum model_kind kind;
    const char *architecture; /* "RRDBNet", "RRDBNet+" (ESRGAN+), "SRVGGNetCompact", "GFPGANv1Clean", "GFPGANv1",
                                 "RestoreFormer", "RestoreFormer++", "CodeFormer", "RetinaFace-resnet50",
                                 "RetinaFace-mobilenet0.25", "ParseNet", "DamageUNet", "BOPBTL-UNet", "FillUNet",
       "MI-GAN", "SPAN", "DnCNN", "FDnCNN", "DRUNet", "FBCNN", "Real-CUGAN", "Real-CUGAN pro", "RealPLKSR",
       "RealPLKSR+DySample" */
    int scale;                /* upscaler: 1..16; else 1 */
    int unshuffle; /* upscaler: the input's sides must be multiples of this (1, 2, 4 or 8); damage detector: 8 or
                      16; filler: 32 */
    int border;   /* upscaler: px around the picture that its definition fills, by reflection about the picture: whoever
                     fills up sides to multiples gives them, too (MODEL_BORDERED), for a picture that was filled up
                     would be reflected about the wrong px. Else 0 */
    bool repeats; /* upscaler: sides are filled up by repeating the last px; else by reflection */
    bool full_body;   /* upscaler: its layers work at the picture's size, whatever the sides are multiples of; else at
                         1/unshuffle */
    int radius;       /* upscaler, damage detector: receptive radius in input px: a tile padded by this is exact */
    bool exact_tiles; /* the same two: true if the radius is small enough for padding (SRVGG), else feather (RRDB) */
    int pool_count;   /* upscaler: the means in pools, which decide each other in turn; see enum model_means */
    struct model_pool pools[MODEL_POOLS];
    int face_size;   /* face network: side of the square it takes, px (512; a small fixture less) */
    int noise_count; /* face network: noise maps (15 at 512 px) */
    bool fidelity;   /* face network: variants of its graph are 0 .. MODEL_FIDELITY, how near it stays to the picture */
    int side;        /* filler: of the square that it takes, px; 0: any */
    int classes;     /* parser: 19; damage detector: 1 + MODEL_DAMAGE_KINDS, or 1: it knows no kinds */
    bool asks_activation; /* its tensors do not tell its activation, so that settings may */
    int context; /* damage detector: channels of its context; 0: it takes none, and the picture whole and reduced */
    int output_count;
    float min_sizes[3][2]; /* detector: the ones in force */
};

/* The source of GFPGAN's noise: session_shape.variant. */
enum model_noise {
    MODEL_NOISE_STORED, /* the checkpoint's buffers noise0… */
    MODEL_NOISE_SEED,   /* Philox from run_options.seed */
    MODEL_NOISE_INPUT   /* inputs 1..noise_count, each {n, 1, s, s}, s = 4, 8, 8, 16, 16, … */
};

/* Where the means of an upscaler with pool_count come from: session_shape.variant. To see a picture in tiles as if it
 * were whole, variants 1, 2 … pool_count sum up over all tiles what the next one is given. */
enum model_means {
    MODEL_MEANS_OWN, /* of what it is given */
    /* k = 1 … pool_count. Inputs: the picture; means 1 … k-1, each {n, channels, 1, 1}; a map {n, 1, h, w} of pool k's
     * features, 1 or 0. Output {n, channels, 1, 1}: the mean of the features times the map.
     * pool_count + 1. Inputs: the picture, all means; output: the picture. */
    MODEL_MEANS_FIRST
};
#define MODEL_BORDERED 16 /* added to these: the picture comes with info.border px more on each side */

#define MODEL_FIDELITY 1000 /* session_shape.variant where CodeFormer's w is 1 */

/* What a damage detector's graph is: session_shape.variant. */
enum model_damage {
    MODEL_DAMAGE_TILE,    /* see model_output_shape */
    MODEL_DAMAGE_CONTEXT, /* of the whole picture, at most MODEL_DAMAGE_SIDE px a side */
    MODEL_DAMAGE_WHOLE    /* both: the picture in one tile, and its context */
};
#define MODEL_DAMAGE_KINDS 4 /* thin line, crack or tear, dust or spot, stain or fold */
#define MODEL_DAMAGE_SIDE 256

struct model;

/* How many times smaller than the picture an upscaler's body is. */
static inline int model_folded(const struct model_info *info)
{
    return info->full_body ? 1 : info->unshuffle;
}

/* Relates 8-bit RGB samples to the values that networks of this kind take and give. */
const struct raster_range *model_range(enum model_kind kind);

/* Opens a checkpoint and recognises its network. settings may be NULL. Errors: those of weights_open; UNSUPPORTED when
 * it is not a network that we know (the text says which tensors it begins with); CORRUPT when tensors are missing or
 * have inconsistent shapes (the text names the tensor). */
enum error_code model_open(struct model **out, const char *path, const struct model_settings *settings,
                           struct error *err) MUST_CHECK;
/* The same for a checkpoint in memory, borrowed until model_close; name stands for the path in errors. */
enum error_code model_open_memory(struct model **out, const char *name, const void *data, size_t size,
                                  const struct model_settings *settings, struct error *err) MUST_CHECK;
void model_close(struct model **model);

/* Recognises a checkpoint by tensor names and shapes only. path is for errors. */
enum error_code model_probe(struct model_info *out, const struct weights *weights, const char *path,
                            struct error *err) MUST_CHECK;

const struct model_info *model_info(const struct model *model);
const struct weights *model_weights(const struct model *model);

/* Shape {n, c, h, w} of output `index` for a run at this shape.
 * upscaler: input {n, 3, h, w} RGB 0..1; output {n, 3, h*scale, w*scale}. h and w must be multiples of unshuffle. For
 * variants see enum model_means.
 * face: input {n, 3, s, s} RGB -1..1, s = face_size; output the same shape.
 * parser: input {n, 3, h, w} RGB -1..1 (h, w multiples of 16); outputs: logits {n, classes, h, w}, image {n, 3, h, w}.
 * detector: input {n, 3, h, w} BGR minus (104, 117, 123); output k: stride 8<<k, {n, 32, ceil(h/s), ceil(w/s)},
 * channels [anchor][2] class logits (0..3), [anchor][4] box (4..11), [anchor][10] landmarks (12..31).
 * damage detector: a tile {n, 3, h, w} RGB -0.5..0.5 and the context there {n, context, h/8, w/8}, h and w multiples of
 * 8; output {n, 5, h, w}: logits of damage and of its kinds. Context: {n, 3, h, w}; output {n, context, ceil(h/4),
 * ceil(w/4)}, to be enlarged bilinearly (as torch without align_corners) to one value a cell of 8×8 px of the picture,
 * whose sides are filled up to multiples of 8. Both in one: the picture {n, 3, h, w} and the same reduced, {n, 3, h',
 * w'} of model_damage_reduced; output as a tile's.
 * damage detector without context: the picture {n, 3, h, w} RGB -0.5..0.5, its shorter side MODEL_DAMAGE_SIDE px, h and
 * w multiples of unshuffle; output {n, classes, h, w}: logits. filler: input {n, 4, h, w} RGB -1..1, its holes filled
 * by something near (0 where info.side is set), and 1 in holes, 0 elsewhere (h, w multiples of unshuffle, or
 * info.side); output {n, 3, h, w} RGB -1..1, of which holes and what is near them have a meaning. */
void model_output_shape(const struct model *model, const struct session_shape *shape, int index, int out_nchw[4]);

/* The sides of the picture of which a damage detector's context is made. */
void model_damage_reduced(int h, int w, int *reduced_h, int *reduced_w);

/* The network's nodes at this shape, for callers that make plans without a session. */
enum error_code model_graph(const struct model *model, const struct session_shape *shape, struct graph **out,
                            struct error *err) MUST_CHECK;

/* Shapes that together contain nearly every kind of layer that pictures will need, the most usual one first; NULL after
 * the last. For session_warm: layers are of one kind if their numbers of pixels are similar (vk_tune.h). The detector's
 * shapes are pictures of up to 2048 px, the upscaler's are tiles; faces come one at a time or several at once, with
 * either noise. */
const struct session_shape *model_usual_shape(const struct model_info *info, int index, struct session_shape *out);

/* A session for the network on a device, in that precision. The model must outlive it. */
enum error_code model_session(struct session **out, const struct model *model, struct device *device,
                              enum precision precision, struct error *err) MUST_CHECK;

/* Frees what the device packed for this model; its sessions there must be destroyed. */
void model_forget(const struct model *model, struct device *device);

#endif
