#include "server/job/estimate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/spill.h"
#include "runtime/base/thread.h"
#include "server/image/codec.h"
#include "server/pipeline/background.h"
#include "server/pipeline/background_rows.h"
#include "server/pipeline/repair.h"

#define ESTIMATE_TERMS 8
#define ESTIMATE_FACES 1      /* for a picture of which nothing is known */
#define ESTIMATE_HOLES 0.1    /* of a picture's windows have something to be filled, until some were looked at */
#define ESTIMATE_MOST 4       /* of both: for the upper end */
#define ESTIMATE_MEASURED 0.8 /* of the time must come from measurements */
#define WINDOW_LEAST 64       /* px: windows up to this edge are alike; beyond it, up to twice, four times this, … */
#define WINDOW_SMALL 256      /* larger ones take what a whole picture takes */
#define WINDOW_EDGE 24 /* px: for what comes with each, a window takes as long as one larger by so many columns */

/* The terms of a restoration. */
struct estimate_work {
    struct speed_term terms[ESTIMATE_TERMS];
    enum estimate_group groups[ESTIMATE_TERMS];
    int roles[ESTIMATE_TERMS]; /* -1: no network */
    int count;
    int tiles, width, height;
    uint64_t tile_bytes;
};

/* --- names and guesses ---------------------------------------------------------------------------------------------
 */

/* Distinguishes devices, drivers and kinds of machine; FNV-1a. */
static void estimate_device(const struct device_info *info, char out[24])
{
    const char *const parts[] = {*info->uuid ? info->uuid : info->id, info->name, info->driver};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < 3; i++)
        for (const char *c = parts[i]; c == parts[i] || c[-1]; c++)
            hash = (hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    snprintf(out, 24, "%016llx", (unsigned long long)hash);
}

static double estimate_parameters(const struct model_entry *model)
{
    return (double)model->bytes / (model->starter ? 2 : 4);
}

/* 10^9 multiply-accumulates for a megapixel, or for a face with the face network and the parser; judged only by the
 * file's size, as with the official networks. The starter networks' are those that the trial computes in the same CPU
 * time (restored bench --device cpu): a detector with few channels is slower than the trial with its 64, an upscaler
 * with large maps is quicker. */
static double estimate_gmacs(enum model_role role, const struct model_entry *model)
{
    static const double official[ROLE_COUNT] = {[ROLE_DETECTOR] = 4.5, [ROLE_FACE] = 3.5,  [ROLE_PARSER] = 11,
                                                [ROLE_DAMAGE] = 47,    [ROLE_FILLER] = 25, [ROLE_UPSCALER] = 1000},
                        starter[ROLE_COUNT] = {[ROLE_DETECTOR] = 41, [ROLE_FACE] = 7.5,  [ROLE_PARSER] = 33,
                                               [ROLE_DAMAGE] = 53,   [ROLE_FILLER] = 25, [ROLE_UPSCALER] = 820};
    double millions = estimate_parameters(model) / 1e6;
    if (role == ROLE_UPSCALER) { /* of a U-Net at x1 each level costs the same, and the deepest has the parameters */
        const int folded = model->info.scale == 1 ? model->info.unshuffle : model_folded(&model->info);
        millions /= folded * folded;
    }
    return millions * (model->starter ? starter : official)[role];
}

/* 10^9 multiply-accumulates a second of a core, between what small and large networks reach (docs/performance.md). */
static double estimate_core_guess(const struct device_info *info)
{
    if (strcmp(info->id, "reference") == 0)
        return 0.5;
    return strstr(info->driver, "avx512") ? 130 : strstr(info->driver, "avx2") ? 80 : 25;
}

/* Seconds for 10^9 multiply-accumulates on an unknown device. */
static double estimate_device_guess(const struct device_info *info, enum precision precision)
{
    const double cores = thread_count(), half = precision == PRECISION_FP16 ? 2 : 1;
    switch (info->type) {
    case DEVICE_DISCRETE:
        return 1 / (4000 * half);
    case DEVICE_INTEGRATED:
        return 1 / (400 * half);
    case DEVICE_VIRTUAL:
        return 1 / (2000 * half);
    case DEVICE_SOFTWARE:
        return 1 / (3 * cores);
    case DEVICE_CPU:
        break;
    }
    return 1 / (estimate_core_guess(info) * cores);
}

/* 10^9 multiply-accumulates of any network. */
static struct speed_term estimate_speed_term(const struct device_info *info, enum precision precision)
{
    char device[24];
    struct speed_term term = {.amount = 1, .guess = estimate_device_guess(info, precision)};
    estimate_device(info, device);
    snprintf(term.name, sizeof term.name, "%s any %s", device, precision == PRECISION_FP16 ? "fp16" : "fp32");
    return term;
}

static struct speed_term estimate_network_term(struct speed_table *table, const struct estimate_request *request,
                                               enum model_role role, double amount)
{
    static const char *const kinds[ROLE_COUNT] = {"detect", "face", "parse", "background", "damage", "fill"};
    const struct model_entry *model = request->models[role];
    struct speed_term speed = estimate_speed_term(request->device, request->precision), term = {.amount = amount};
    char device[24];
    speed_read(table, &speed, 1);
    estimate_device(request->device, device);
    snprintf(term.name, sizeof term.name, "%s %s %s%s %llu %s", device, kinds[role],
             request->precision == PRECISION_FP16 ? "fp16" : "fp32", request->r->options.compat ? " compat" : "",
             (unsigned long long)model->bytes, model->name);
    for (char *c = term.name; *c; c++)
        *c = (unsigned char)*c < 0x20 ? '?' : *c;
    term.guess = estimate_gmacs(role, model) * speed.rate;
    return term;
}

/* A background in many small windows: what comes with each of them counts, so windows of about one size have a rate of
 * their own. What it is at first follows from the rate of large ones. */
static struct speed_term estimate_windows_term(struct speed_table *table, const struct estimate_request *request,
                                               double amount, double side)
{
    struct speed_term large = estimate_network_term(table, request, ROLE_UPSCALER, amount), small = large;
    int size = WINDOW_LEAST;
    while (size < side)
        size *= 2;
    if (size > WINDOW_SMALL)
        return large;
    speed_read(table, &large, 1);
    small.guess = large.rate * (1 + WINDOW_EDGE / side);
    snprintf(small.name, sizeof small.name, "windows %d %.170s", size, large.name);
    return small;
}

static struct speed_term estimate_host_term(const char *kind, const char *what, int level, double amount, double guess)
{
    struct speed_term term = {.amount = amount, .guess = guess};
    snprintf(term.name, sizeof term.name, "host %s %s %d %d", kind, what, level, thread_count());
    return term;
}

/* --- the work ------------------------------------------------------------------------------------------------------
 */

static void estimate_add(struct estimate_work *work, enum estimate_group group, int role, struct speed_term term)
{
    work->groups[work->count] = group;
    work->roles[work->count] = role;
    work->terms[work->count++] = term;
}

static void estimate_add_network(struct speed_table *table, struct estimate_work *work,
                                 const struct estimate_request *request, enum estimate_group group,
                                 enum model_role role, double amount)
{
    if (request->models[role])
        estimate_add(work, group, role, estimate_network_term(table, request, role, amount));
}

/* From how many sides auto_rotate looks for faces: one if there are upright ones, else five times. */
#define ESTIMATE_SIDES 2

/* Megapixels that the detector is given. */
static double estimate_detected(const struct restoration *r)
{
    const double longest = fmax(r->in_info.width, r->in_info.height), most = r->limits.detect_max_side;
    const double scale = most > 0 && longest > most ? most / longest : 1;
    return r->in_info.width * scale * r->in_info.height * scale / 1e6;
}

/* Bytes that an upscaler needs for a window of that many px. */
static uint64_t estimate_tile_bytes(const struct estimate_request *request, double px)
{
    const struct model_entry *model = request->models[ROLE_UPSCALER];
    const struct model_info *info = &model->info;
    const bool rrdb = strncmp(info->architecture, "RRDBNet", 7) == 0;
    const double channels = estimate_parameters(model) > 3e6 || !rrdb ? 64 : 32, u = model_folded(info),
                 s = info->scale, element = request->precision == PRECISION_FP16 ? 2 : 4;
    const double body = (rrdb ? 6 : 2) * channels / (u * u), end = rrdb ? 2 * channels * s * s : 6 * s * s;
    return (uint64_t)(px * (body + end) * element);
}

/* An upscaler's result on its way to the picture's, as background.c and the device keep it. */
struct estimate_cut {
    int columns, rows, width, height; /* tiles, and the window of each, px of the picture */
    int right, below;                 /* what neighbours share, px */
};

/* Bytes of what overlapping tiles have added up: the CPU keeps what is still added to, others a row of tiles. */
static double estimate_sums(const struct estimate_request *request, const struct estimate_cut *cut)
{
    const struct model_info *info = &request->models[ROLE_UPSCALER]->info;
    const double wide = request->r->in_info.width, px = 3 * sizeof(float) * (double)info->scale * info->scale;
    if (info->exact_tiles || cut->columns * cut->rows == 1)
        return 0;
    return px * (request->device->type == DEVICE_CPU ? wide * cut->below + (double)cut->right * cut->height
                                                     : wide * cut->height);
}

/* Whether the network's pixels go through a resize, or are kept in floats. */
static bool estimate_floats(const struct estimate_request *request)
{
    const struct restoration *r = request->r;
    const int scale = request->models[ROLE_UPSCALER]->info.scale;
    struct size size;
    pipeline_size(r, &size);
    return size.width != (double)r->in_info.width * scale || size.height != (double)r->in_info.height * scale ||
           r->in_info.bits > 8;
}

/* Bytes of what is in floats on its way. */
static double estimate_resized(const struct estimate_request *request, const struct estimate_cut *cut)
{
    const struct restoration *r = request->r;
    const int scale = request->models[ROLE_UPSCALER]->info.scale;
    const double wide = (double)r->in_info.width * scale, high = (double)r->in_info.height * scale,
                 rows = (double)cut->height * scale;
    struct size size;
    pipeline_size(r, &size);
    if (!estimate_floats(request))
        return 0;
    const bool smaller = size.width <= wide && size.height <= high && (size.width < wide || size.height < high);
    const bool alone = cut->columns > 1 && smaller; /* each tile is reduced by itself */
    const bool few = cut->columns == 1 || (alone && !request->device->asynchronous);
    const double band = (alone ? (double)cut->width * scale : wide) * (few ? BACKGROUND_ROWS : rows);
    return 3 * sizeof(float) *
           (band + (double)size.width * BACKGROUND_ROWS + (alone ? size.width * rows * size.height / high : 0));
}

/* What Real-CUGAN computes for a picture in tiles, in parts of one pass: its means take 0.08, 0.40, 0.61 and 0.78. */
#define ESTIMATE_MEANS 2.87

/* The upscaler's tiles, as background.c will cut them, and what it takes for them. */
static struct speed_term estimate_tiles(struct speed_table *table, struct estimate_work *work,
                                        const struct estimate_request *request)
{
    const struct restoration *r = request->r;
    const struct model_info *info = &request->models[ROLE_UPSCALER]->info;
    const int asked = r->options.compat && r->options.bg_tile < 0 ? 400 : r->options.bg_tile;
    const int tile = background_tile(r->in_info.width, r->in_info.height, asked, info->scale, request->device->type);
    const bool floats = request->device->asynchronous && !r->options.compat && estimate_floats(request);
    const int strip = floats ? background_strip(r->in_info.width, r->in_info.height, asked, info->scale) : 0;
    const int across = strip ? 0 : tile, down = strip ? strip : tile;
    struct estimate_cut cut;
    tile_windows(r->in_info.width, across, info, &cut.columns, &cut.width);
    tile_windows(r->in_info.height, down, info, &cut.rows, &cut.height);
    cut.right = tile_shared(r->in_info.width, across, info);
    cut.below = tile_shared(r->in_info.height, down, info);
    const double window = (double)cut.width * cut.height;
    work->tiles = cut.columns * cut.rows;
    work->tile_bytes = estimate_tile_bytes(request, window);
    if (!r->options.compat)
        work->tile_bytes += (uint64_t)(estimate_sums(request, &cut) + estimate_resized(request, &cut));
    const bool means = work->tiles > 1 && info->pool_count && !r->options.compat;
    const double amount = work->tiles * window / 1e6 * (means ? ESTIMATE_MEANS : 1);
    return work->tiles > 1 ? estimate_windows_term(table, request, amount, sqrt(window))
                           : estimate_network_term(table, request, ROLE_UPSCALER, amount);
}

static void estimate_add_faces(struct speed_table *table, struct estimate_work *work,
                               const struct estimate_request *request, double faces)
{
    if (!request->models[ROLE_FACE] || request->r->options.faces == FACES_NONE || request->r->detect_only)
        return;
    estimate_add_network(table, work, request, GROUP_FACES, ROLE_FACE, faces);
    estimate_add_network(table, work, request, GROUP_PARSE, ROLE_PARSER, faces);
}

/* filled: megapixels that the filler is given. */
static void estimate_measure(struct speed_table *table, struct estimate_work *work,
                             const struct estimate_request *request, double faces, double filled)
{
    const struct restoration *r = request->r;
    const double megapixels = (double)r->in_info.width * r->in_info.height / 1e6;
    const bool png = r->output_format == IMAGE_PNG, scans = r->output_format == IMAGE_JPEG && r->options.progressive;
    *work = (struct estimate_work){0};
    estimate_add(work, GROUP_DECODE, -1,
                 estimate_host_term("decode", image_format_name(r->in_info.format), 0, megapixels, 0.02));
    estimate_add_network(table, work, request, GROUP_REPAIR, ROLE_DAMAGE, megapixels);
    estimate_add_network(table, work, request, GROUP_REPAIR, ROLE_FILLER, filled);
    if (!r->options.aligned)
        estimate_add_network(table, work, request, GROUP_DETECT, ROLE_DETECTOR,
                             estimate_detected(r) * (r->options.auto_rotate != ROTATE_OFF ? ESTIMATE_SIDES : 1));
    estimate_add_faces(table, work, request, faces);
    if (r->detect_only || r->damage_only)
        return;
    struct size size;
    pipeline_size(r, &size);
    work->width = size.kept_width;
    work->height = size.kept_height;
    if (r->options.aligned) {
        work->width = work->height = request->models[ROLE_FACE] ? request->models[ROLE_FACE]->info.face_size : 512;
    } else if (request->models[ROLE_UPSCALER]) {
        estimate_add(work, GROUP_BACKGROUND, ROLE_UPSCALER, estimate_tiles(table, work, request));
    } else {
        estimate_add(work, GROUP_BACKGROUND, -1,
                     estimate_host_term("resize", r->options.compat ? "exact" : "stream", 0,
                                        (double)work->width * work->height / 1e6, 0.05));
    }
    estimate_add(work, GROUP_ENCODE, -1,
                 estimate_host_term("encode", image_format_name(r->output_format), png ? r->options.png_level : scans,
                                    (double)work->width * work->height / 1e6,
                                    r->output_format == IMAGE_AVIF  ? 0.5
                                    : r->output_format == IMAGE_JXL ? 0.2
                                    : r->output_format > IMAGE_PNG  ? 0.1
                                    : scans                         ? 0.03 /* on one core */
                                    : !png                          ? 0.01
                                    : r->options.png_level < 6      ? 0.05
                                                                    : 0.2));
}

/* --- what follows --------------------------------------------------------------------------------------------------
 */

uint64_t estimate_picture_bytes(int width, int height, int channels, int bits, const struct options *options)
{
    struct size size;
    size_of(options, width, height, &size);
    const double pixels = (double)width * height, result = (double)size.width * size.height;
    const enum image_format format = options_format(options);
    const int sample = bits > 8 && (!format || codec_is_deep(format)) ? 2 : 1;   /* of the result */
    const double decoded = pixels * (bits > 8 ? 3 : 1) * (channels > 3 ? 4 : 3); /* 16 bits beside 8 */
    const double encoded = result * (format == IMAGE_JPEG ? 1 : 3) * sample;
    const double scans =
        format == IMAGE_JPEG && options->progressive && result <= CODEC_PROGRESSIVE_MOST ? 6 * result : 0;
    const double canvas = result * (channels == 2 || channels > 3 ? 4 : 3) * sample;
    const double made =
        options->aligned ? 8e6 : (double)(spill_share((uint64_t)canvas) + spill_share((uint64_t)encoded));
    return (uint64_t)(decoded + made + scans);
}

/* The rest of the host's and the device's: networks take turns. */
static uint64_t estimate_memory(const struct estimate_work *work, const struct estimate_request *request)
{
    const struct restoration *r = request->r;
    const double element = request->precision == PRECISION_FP16 ? 2 : 4;
    double face = 0, weights = 0;
    for (int role = 0; role < ROLE_COUNT; role++)
        if (request->models[role])
            weights += estimate_parameters(request->models[role]) * element;
    if (request->models[ROLE_FACE] && request->faces != 0 && r->options.faces != FACES_NONE)
        face = estimate_parameters(request->models[ROLE_FACE]) > 2e7 ? 512 * 512 * 64 * 4 * element
                                                                     : 512 * 512 * 16 * 4 * element;
    const double detector = request->models[ROLE_DETECTOR] ? estimate_detected(r) * 1e6 * 16 * element : 0;
    return estimate_picture_bytes(r->in_info.width, r->in_info.height, r->in_info.channels, r->in_info.bits,
                                  &r->options) +
           (uint64_t)(weights + fmax(fmax(face, detector), (double)work->tile_bytes));
}

/* Megapixels of windows that the filler is given if there is something to be filled everywhere; 0: there is no filler.
 */
static double estimate_windows(const struct estimate_request *request)
{
    const struct model_entry *filler = request->models[ROLE_FILLER];
    return filler ? repair_fill_most(request->r->in_info.width, request->r->in_info.height, &filler->info) : 0;
}

/* Which part of these windows is filled, on average: of the pictures that people send here, on any device. */
static const char estimate_holes[] = "windows with holes";

void estimate_predict(struct speed_table *table, const struct estimate_request *request, struct estimate *out)
{
    struct estimate_work work;
    double known = 0;
    const bool counted = request->faces >= 0;
    const double filled = estimate_windows(request) * speed_mean(table, estimate_holes, ESTIMATE_HOLES);
    estimate_measure(table, &work, request, counted ? request->faces : ESTIMATE_FACES, filled);
    speed_read(table, work.terms, work.count);
    *out = (struct estimate){.tiles = work.tiles,
                             .width = work.width,
                             .height = work.height,
                             .device = -1,
                             .faces = counted ? request->faces : ESTIMATE_FACES,
                             .memory = estimate_memory(&work, request)};
    for (int i = 0; i < work.count; i++) {
        const struct speed_term *term = &work.terms[i];
        const double seconds = term->amount * term->rate;
        const bool guessed = work.roles[i] == ROLE_FILLER ||
                             (!counted && (work.groups[i] == GROUP_FACES || work.groups[i] == GROUP_PARSE));
        out->seconds += seconds;
        out->groups[work.groups[i]] += seconds;
        out->low += guessed ? 0 : seconds / term->spread;
        out->high += seconds * term->spread * (guessed ? ESTIMATE_MOST : 1);
        known += term->known ? seconds : 0;
        if (work.groups[i] != GROUP_DECODE && work.groups[i] != GROUP_ENCODE)
            out->device_seconds += seconds;
    }
    out->measured = known >= ESTIMATE_MEASURED * out->seconds;
}

static double estimate_share(int done, int total)
{
    return total > 0 && done > 0 ? fmin((double)done / total, 1) : 0;
}

double estimate_progress(const struct estimate *estimate, const struct restoration *r, double elapsed, double *left)
{
    static const double unknown[GROUP_COUNT] = {
        [GROUP_REPAIR] = 1, [GROUP_DETECT] = 1, [GROUP_FACES] = 2, [GROUP_BACKGROUND] = 6, [GROUP_ENCODE] = 1};
    const bool predicted = estimate->seconds > 0;
    const double *groups = predicted ? estimate->groups : unknown, guessed = predicted ? estimate->faces : 1;
    const unsigned entered = atomic_load(&r->entered);
    const int faces = atomic_load(&r->faces_total);
    const bool networks_over = entered >> STAGE_PASTE & 1,
               detected =
                   networks_over || ((entered >> STAGE_DETECT & 1) && atomic_load(&r->stage) != (int)STAGE_DETECT);
    double done[GROUP_COUNT] = {0}, whole = 0, over = 0;
    done[GROUP_REPAIR] = networks_over || entered >> STAGE_DETECT & 1;
    done[GROUP_DETECT] = detected;
    done[GROUP_FACES] = done[GROUP_PARSE] = estimate_share(atomic_load(&r->faces_done), faces);
    done[GROUP_BACKGROUND] = estimate_share(atomic_load(&r->tiles_done), atomic_load(&r->tiles_total));
    for (int group = GROUP_REPAIR; group < GROUP_COUNT; group++) { /* it was decoded before it began there */
        const bool by_face = group == GROUP_FACES || group == GROUP_PARSE;
        const double weight = groups[group] * (by_face && detected && guessed > 0 ? faces / guessed : 1);
        whole += weight;
        over += weight * (networks_over && group != GROUP_ENCODE ? 1 : done[group]);
    }
    const double part = whole > 0 ? over / whole : 0;
    *left = predicted ? (1 - part) * ((1 - part) * whole + elapsed) : -1;
    return part;
}

/* If a network's own speed is known, so is the device's. */
static void estimate_learn_device(struct speed_table *table, const struct estimate_request *request,
                                  enum model_role role, const struct speed_term *term)
{
    struct speed_term speed = estimate_speed_term(request->device, request->precision);
    if (!term->known || !(term->amount > 0))
        return;
    speed.amount = term->amount * estimate_gmacs(role, request->models[role]);
    speed_learn(table, &speed, 1, term->amount * term->rate);
}

bool estimate_knows(struct speed_table *table, const struct device_info *device, enum precision precision)
{
    struct speed_term speed = estimate_speed_term(device, precision);
    speed_read(table, &speed, 1);
    return speed.known;
}

void estimate_seed(struct speed_table *table, const struct device_info *device, enum precision precision, double gmacs,
                   double seconds)
{
    struct speed_term speed = estimate_speed_term(device, precision);
    speed.amount = gmacs;
    speed_learn(table, &speed, 1, seconds);
}

/* Seconds of a group's stages, without what is done once. */
static double estimate_spent(const struct restoration *r, enum stage first, enum stage last)
{
    double ms = 0;
    for (int stage = (int)first; stage <= (int)last; stage++)
        ms += fmax(0, r->stage_ms[stage] - r->making_ms[stage]);
    return ms / 1e3;
}

static void estimate_learn_groups(struct speed_table *table, struct estimate_work *work, enum estimate_group first,
                                  enum estimate_group last, double seconds)
{
    int begin = 0, end;
    while (begin < work->count && work->groups[begin] < first)
        begin++;
    for (end = begin; end < work->count && work->groups[end] <= last; end++)
        ;
    if (end > begin)
        speed_learn(table, work->terms + begin, end - begin, seconds);
}

/* From the network that took most. */
static void estimate_learn_largest(struct speed_table *table, const struct estimate_request *request,
                                   const struct estimate_work *work)
{
    int largest = -1;
    for (int i = 0; i < work->count; i++) {
        const struct speed_term *term = &work->terms[i];
        if (work->roles[i] >= 0 &&
            (largest < 0 || term->amount * term->rate > work->terms[largest].amount * work->terms[largest].rate))
            largest = i;
    }
    if (largest >= 0)
        estimate_learn_device(table, request, (enum model_role)work->roles[largest], &work->terms[largest]);
}

void estimate_learn(struct speed_table *table, const struct estimate_request *request)
{
    static const struct {
        enum estimate_group group;
        enum stage first, last;
    } stages[] = {{GROUP_REPAIR, STAGE_REPAIR, STAGE_REPAIR},
                  {GROUP_DETECT, STAGE_DETECT, STAGE_DETECT},
                  {GROUP_FACES, STAGE_ALIGN, STAGE_RESTORE},
                  {GROUP_PARSE, STAGE_PARSE, STAGE_PARSE},
                  {GROUP_BACKGROUND, STAGE_BACKGROUND, STAGE_BACKGROUND}};
    const struct restoration *r = request->r;
    struct estimate_work work;
    if (r->fallbacks || r->shrinks || r->shared)
        return;
    const double windows = estimate_windows(request);
    if (windows > 0)
        speed_learn_mean(table, estimate_holes, ESTIMATE_HOLES, fmin(r->damage.filled / windows, 1));
    estimate_measure(table, &work, request, request->faces, r->damage.filled);
    estimate_learn_groups(table, &work, GROUP_DECODE, GROUP_DECODE, estimate_spent(r, STAGE_DECODE, STAGE_DECODE));
    if (request->device->asynchronous)
        estimate_learn_groups(table, &work, GROUP_REPAIR, GROUP_BACKGROUND,
                              estimate_spent(r, STAGE_REPAIR, STAGE_BACKGROUND));
    for (size_t i = 0; i < sizeof stages / sizeof *stages && !request->device->asynchronous; i++)
        estimate_learn_groups(table, &work, stages[i].group, stages[i].group,
                              estimate_spent(r, stages[i].first, stages[i].last));
    if (!r->detect_only && !r->damage_only)
        estimate_learn_groups(table, &work, GROUP_ENCODE, GROUP_ENCODE, estimate_spent(r, STAGE_PASTE, STAGE_ENCODE));
    estimate_learn_largest(table, request, &work);
}
