#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spill.h"
#include "runtime/base/thread.h"
#include "server/image/bleed.h"
#include "server/image/pixel.h"
#include "server/image/resize.h"
#include "server/pipeline/background.h"
#include "server/pipeline/background_rows.h"
#include "server/pipeline/balance.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/paste.h"
#include "server/pipeline/reference.h"

/* Tile sides to try in turn when a larger one does not fit the device's memory. */
static const int background_tiles[] = {4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256, 192, 128, 96, 64};

/* bg_tile=auto begins with tiles whose result has at most this many px. On a GPU that keeps what the host needs for a
 * tile under 2 GB. On a CPU large tiles leave the caches: a 12 MP photo through a small RRDBNet x2 took 28 s and 8.0 GB
 * whole, 15 s and 1.5 GB in tiles of 1024 px, on two cores. */
#define BACKGROUND_TILE_RESULT 64e6
#define BACKGROUND_TILE_RESULT_CPU 4.2e6

/* The same for strips, whose pixels leave the device in floats: the results of two runs, 144 MB each, lie in host
 * memory, and no row of square tiles need be put together there, which took 540 MB of a result of 45 megapixels. */
#define BACKGROUND_STRIP_RESULT 12e6
#define BACKGROUND_STRIP_LEAST 64

/* The next smaller tile for a picture; tile 0 is the whole picture. -1: there is none. */
static int background_smaller(int tile, int longest)
{
    int now = tile ? tile : longest;
    for (size_t i = 0; i < sizeof background_tiles / sizeof background_tiles[0]; i++)
        if (background_tiles[i] < now)
            return background_tiles[i];
    return -1;
}

int background_tile(int width, int height, int asked, int scale, enum device_type type)
{
    const int longest = width > height ? width : height;
    const double most =
        type == DEVICE_CPU || type == DEVICE_SOFTWARE ? BACKGROUND_TILE_RESULT_CPU : BACKGROUND_TILE_RESULT;
    if (asked >= 0)
        return asked < longest ? asked : 0;
    if (!scale)
        return 0; /* a resize works row by row */
    int tile = 0;
    double result = (double)width * height * scale * scale;
    while (result > most && background_smaller(tile, longest) > 0) {
        tile = background_smaller(tile, longest);
        result = (double)tile * scale * tile * scale;
    }
    return tile;
}

int background_strip(int width, int height, int asked, int scale)
{
    const double row = (double)width * scale * scale, rows = floor(BACKGROUND_STRIP_RESULT / row);
    if (asked >= 0 || rows >= height)
        return 0;
    return rows > BACKGROUND_STRIP_LEAST ? (int)rows : BACKGROUND_STRIP_LEAST;
}

static int background_first(const struct step *step, const struct view_u8 *picture)
{
    struct device_info info = {.type = DEVICE_CPU};
    if (step->context)
        device_info(step->context->device, &info);
    const struct model_entry *model = step->model[ROLE_UPSCALER];
    return background_tile(picture->width, picture->height, step->r->options.bg_tile, model ? model->info.scale : 0,
                           info.type);
}

/* A row of the picture as rows of so many channels begin. alpha: room for a row. */
static void background_read(const struct restoration *r, int y, int channels, float *to, float *alpha)
{
    deep_read(r, y, to);
    if (channels == 3)
        return;
    deep_read_alpha(r, y, alpha);
    for (size_t x = (size_t)r->picture->width; x-- > 0;) {
        const float weight = background_weight(alpha[x]), *from = to + 3 * x;
        const float four[4] = {from[0] * weight, from[1] * weight, from[2] * weight, weight};
        memcpy(to + 4 * x, four, sizeof four);
    }
}

/* No upscaler: the picture itself, resized. */
static enum error_code background_plain(struct step *step, const struct view_u8 *picture, struct error *err)
{
    struct background_rows rows;
    const bool same = picture->width == step->width && picture->height == step->height;
    const int channels = step->r->picture->alpha && !same ? 4 : 3;
    const size_t n = (size_t)channels * (size_t)picture->width;
    float *row = mem_alloc(n, sizeof(float) * (BACKGROUND_ROWS + 1));
    const struct background_from from = {picture->width, picture->height, channels, false, 0, 0};
    enum error_code code = background_rows_create(&rows, step, &from, err);
    if (code == OK && !row)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK && channels == 4)
        code = image_add_alpha(step->r->result, err);
    for (int y = 0, count; y < picture->height && code == OK; y += count) {
        count = picture->height - y < BACKGROUND_ROWS ? picture->height - y : BACKGROUND_ROWS;
        for (int r = 0; r < count; r++)
            background_read(step->r, y + r, channels, row + (size_t)r * n, row + BACKGROUND_ROWS * n);
        background_emit(&rows, &(struct rect){0, y, picture->width, count}, row);
        code = step_check(step, err);
    }
    background_rows_free(&rows);
    free(row);
    return code;
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

/* The background at work. */
struct background {
    struct step *step;
    int tile;           /* side of its tiles, px of the input; 0: the whole picture */
    int strip;          /* not 0: strips of so many rows in place of tiles */
    bool shrunk;        /* reduced from larger ones, which did not fit */
    bool later;         /* what lies over the result is not known yet */
    struct image *mask; /* the transparency, which takes the picture's place; or NULL */
    struct tile_job *tiles;
    /* When the network's result has another size than the picture's, or its rows are not 8-bit RGB: */
    struct background_rows rows;
    float *band; /* a row of tiles, `width` px wide; in_tiles: what one run makes; in_rows: BACKGROUND_ROWS of either */
    bool in_tiles;      /* each run's pixels are reduced by themselves */
    bool in_rows;       /* tiles hand out BACKGROUND_ROWS at a time */
    struct rect taking; /* the rows that come next */
    int width, height;
};

static void background_close(struct background *b)
{
    tile_end(&b->tiles);
    background_rows_free(&b->rows);
    b->rows = (struct background_rows){0};
    free(b->band);
    b->band = NULL;
}

void background_end(struct step *step)
{
    if (!step->background)
        return;
    background_close(step->background);
    image_destroy(&step->background->mask);
    free(step->background);
    step->background = NULL;
}

static struct raster_target background_in(const struct image *image, const struct rect *rect)
{
    const size_t stride = 3 * (size_t)image->width;
    return (struct raster_target){.form = RASTER_U8,
                                  .data = (uint8_t *)image->pixels + (size_t)rect->y * stride + 3 * (size_t)rect->x,
                                  .stride = stride,
                                  .x = rect->x,
                                  .y = rect->y,
                                  .width = rect->width,
                                  .height = rect->height};
}

/* The band has these rows. */
static void background_take(void *user, int rows)
{
    struct background *b = user;
    b->taking.height = rows;
    background_emit(&b->rows, &b->taking, b->band);
    b->taking.y += rows;
}

/* Into the result, beneath the faces; or into the band. */
static void background_target(void *user, const struct rect *rect, const struct rect *run, struct raster_target *target)
{
    struct background *b = user;
    const struct step *step = b->step;
    *target = background_in(step->r->result, rect);
    if (b->band) {
        const int width = b->in_tiles ? run->width : b->width;
        target->form = RASTER_F32;
        target->data = b->band + 3 * (size_t)(b->in_tiles ? rect->x - run->x : rect->x);
        target->stride = 3 * sizeof(float) * (size_t)width;
        target->take = b->in_rows ? background_take : NULL;
        if (b->in_tiles)
            b->taking = *rect;
        target->user = b;
        target->most = BACKGROUND_ROWS;
        return;
    }
    target->layers = step->layers;
    target->layer_count = step->layer_count;
    target->left = rect->x;
    target->top = rect->y;
}

/* A run's pixels, or a row of tiles, are passed on when they are complete. */
static void background_filled(void *user, const struct rect *run)
{
    struct background *b = user;
    const bool last = run->x + run->width == b->width;
    const int width = b->in_tiles ? run->width : b->width;
    if (!b->band && last)
        image_passed(b->step->r->result, run->y, run->y + run->height);
    if (!b->band || b->in_rows || (!last && !b->in_tiles))
        return;
    for (int y = 0, count; y < run->height; y += count) {
        count = run->height - y < BACKGROUND_ROWS ? run->height - y : BACKGROUND_ROWS;
        const struct rect some = {run->x, run->y + y, run->width, count};
        background_emit(&b->rows, &some, b->band + (size_t)y * 3 * (size_t)width);
    }
}

static enum error_code background_make_rows(struct background *b, struct error *err)
{
    b->taking = (struct rect){0, 0, b->width, 0};
    const struct background_from from = {
        b->width, b->height, 3, b->mask != NULL, b->in_tiles ? tile_columns(b->tiles) : 0, tile_rows(b->tiles)};
    return background_rows_create(&b->rows, b->step, &from, err);
}

static enum error_code background_again(void *user, struct error *err)
{
    struct background *b = user;
    if (!b->band)
        return OK;
    background_rows_free(&b->rows);
    return background_make_rows(b, err);
}

static enum error_code background_cut(struct background *b, const struct view_u8 *picture, const struct tile_sink *sink,
                                      struct error *err)
{
    return b->strip ? tile_begin_strips(&b->tiles, b->step, picture, b->strip, sink, err)
                    : tile_begin(&b->tiles, b->step, picture, b->tile, sink, err);
}

/* Begins again, in strips or in tiles of b->tile. */
static enum error_code background_open(struct background *b, const struct view_u8 *picture, struct error *err)
{
    struct step *step = b->step;
    struct device_info info;
    const int scale = step->model[ROLE_UPSCALER]->info.scale;
    const struct tile_sink sink = {b,        background_target, background_filled, background_again,
                                   b->later, b->mask != NULL};
    const struct image *deep = step->r->deep ? step->r->deep->pixels : NULL;
    if (b->mask)
        deep = b->mask->bits == 16 ? b->mask : NULL;
    background_close(b);
    b->width = picture->width * scale;
    b->height = picture->height * scale;
    device_info(step->context->device, &info);
    const bool floats = b->width != step->width || b->height != step->height || step->r->deep || b->mask;
    b->strip = floats && info.asynchronous && !b->shrunk
                   ? background_strip(picture->width, picture->height, step->r->options.bg_tile, scale)
                   : 0;
    enum error_code code = background_cut(b, picture, &sink, err);
    if (code != OK)
        return code;
    if (deep)
        tile_deepen(b->tiles, deep->pixels);
    if (!floats)
        return OK;
    b->in_tiles = !tile_wide(b->tiles) && step->width <= b->width && step->height <= b->height &&
                  (step->width < b->width || step->height < b->height);
    b->in_rows = tile_wide(b->tiles) || (b->in_tiles && !info.asynchronous);
    b->band = mem_alloc((size_t)(b->in_tiles ? tile_columns(b->tiles) : b->width) *
                            (size_t)(b->in_rows ? BACKGROUND_ROWS : tile_rows(b->tiles)),
                        3 * sizeof(float));
    if (!b->band)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a tile");
    return background_make_rows(b, err);
}

/* ---- the reference's way ----------------------------------------------------------------------------------------- */

static void background_into(void *user, const struct rect *rect, const struct rect *run, struct raster_target *target)
{
    (void)run;
    *target = background_in(user, rect);
}

/* The network's result at its own size. */
static enum error_code background_large(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                        struct image **out, struct error *err)
{
    struct tile_job *job = NULL;
    const int scale = step->model[ROLE_UPSCALER]->info.scale;
    enum error_code code = image_create(out, picture->width * scale, picture->height * scale, 3, 8, false, err);
    if (code == OK) {
        const struct tile_sink sink = {*out, background_into, NULL, NULL, false, false};
        code = tile_begin_compat(&job, step, picture, cut, &sink, err);
    }
    if (code == OK)
        code = tile_advance(job, 0, err);
    tile_end(&job);
    if (code != OK)
        image_destroy(out);
    return code;
}

enum error_code background_compat(struct step *step, const struct view_u8 *picture, const struct tile_compat *cut,
                                  double outscale, struct image **out, struct error *err)
{
    struct image *large = NULL;
    struct view_u8 from = *picture;
    int width = (int)(picture->width * outscale), height = (int)(picture->height * outscale);
    enum error_code code = OK;
    *out = NULL;
    if (step->model[ROLE_UPSCALER]) {
        code = background_large(step, picture, cut, &large, err);
        if (code != OK)
            return code;
        if (large->width == width && large->height == height) {
            *out = large;
            return OK;
        }
        from = image_view(large);
    }
    code = image_create(out, width, height, 3, 8, false, err);
    if (code == OK) {
        struct view_u8 to = image_view(*out);
        code = resize_lanczos4_exact(&to, &from, err);
    }
    image_destroy(&large);
    if (code != OK)
        image_destroy(out);
    return code;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* With tiles of b->tile; left: as tile_advance. */
static enum error_code background_once(struct background *b, const struct view_u8 *picture, int left, struct error *err)
{
    struct step *step = b->step;
    struct restoration *r = step->r;
    if (r->options.compat) {
        struct tile_compat cut = {.tile = b->tile, .tile_pad = 10};
        image_destroy(&r->result);
        if (r->deep || r->picture->alpha)
            return reference_upscale(step, &cut, r->options.upscale, r->options.alpha != ALPHA_RESIZE, &r->result, err);
        return background_compat(step, picture, &cut, r->options.upscale, &r->result, err);
    }
    enum error_code code = OK;
    if (!r->result)
        code = deep_result(r, step->width, step->height, err);
    if (code == OK && !step->model[ROLE_UPSCALER])
        return background_plain(step, picture, err);
    if (code == OK && !b->tiles)
        code = background_open(b, picture, err);
    if (code == OK && !b->later)
        code = tile_show(b->tiles, err);
    return code == OK ? tile_advance(b->tiles, left, err) : code;
}

static enum error_code background_create(struct step *step, bool later, struct error *err)
{
    const struct view_u8 picture = image_view(step->r->picture);
    struct background *b = step->background = mem_calloc(1, sizeof *b);
    if (!b)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    b->step = step;
    b->tile = background_first(step, &picture);
    b->later = later;
    return OK;
}

/* The network sees what lies beneath full transparency. */
static enum error_code background_bleed(struct step *step, struct error *err)
{
    struct image *deep = step->r->deep ? step->r->deep->pixels : NULL;
    if (!step->model[ROLE_UPSCALER] || step->r->options.compat)
        return OK;
    enum error_code code = bleed_colours(step->r->picture, err);
    return code == OK && deep ? bleed_colours(deep, err) : code;
}

static enum error_code background_prepare(struct step *step, bool later, struct error *err)
{
    enum error_code code = background_bleed(step, err);
    return code == OK ? background_create(step, later, err) : code;
}

/* The same, but begins it if necessary. Makes the tiles smaller when memory does not suffice. */
static enum error_code background_work(struct step *step, int left, struct error *err)
{
    struct restoration *r = step->r;
    enum error_code code = step->background ? OK : background_prepare(step, false, err);
    if (code != OK)
        return code;
    struct background *b = step->background;
    const struct image *from = b->mask ? b->mask : r->picture;
    const struct view_u8 picture = {from->pixels, from->width, from->height, 3, 3 * (size_t)from->width};
    const int longest = picture.width > picture.height ? picture.width : picture.height;
    code = background_once(b, &picture, left, err);
    while (step_too_large(code) && step->model[ROLE_UPSCALER]) {
        const int side = b->strip ? (int)sqrt((double)b->strip * picture.width) : b->tile;
        int smaller = background_smaller(side, longest);
        if (smaller < 0)
            return step_no_room(step, ROLE_UPSCALER, err,
                                b->tile ? "even a tile of %d px" : "even the picture of %d px",
                                b->tile ? b->tile : longest);
        error_clear(err);
        background_close(b);
        b->tile = smaller;
        b->shrunk = true;
        r->shrinks++;
        code = background_once(b, &picture, left, err);
    }
    return code;
}

/* Alpha is a plane of its own, here in the result already. */
static enum error_code background_alpha_resized(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    const int width = r->picture->width, height = r->picture->height;
    struct resize_stream *stream = NULL;
    enum error_code code = OK;
    float *in = mem_alloc((size_t)width + (size_t)r->result->width, sizeof(float)), *out = in + width;
    if (code == OK && !in)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (code == OK)
        code =
            resize_stream_create(&stream, width, height, r->result->width, r->result->height, 1, RESIZE_LANCZOS4, err);
    for (int y = 0, to = 0; y < height && code == OK; y++) {
        deep_read_alpha(r, y, in);
        resize_stream_push(stream, in, 1);
        for (; resize_stream_pull(stream, out, 1); to++) {
            pixel_clamp(out, (size_t)r->result->width);
            deep_alpha_row(r, to, out);
        }
    }
    resize_stream_destroy(&stream);
    free(in);
    return code;
}

/* By the upscaler, as a gray picture. tile: what fitted the picture. */
static enum error_code background_alpha_made(struct step *step, int tile, struct error *err)
{
    enum error_code code = background_create(step, false, err);
    if (code == OK)
        code = reference_mask(step->r, &step->background->mask, err);
    if (code == OK) {
        step->background->tile = tile;
        code = background_work(step, 0, err);
    }
    background_end(step);
    return code;
}

/* Where no network made the colours it came with them, if it was resized at all. */
static enum error_code background_alpha(struct step *step, int tile, struct error *err)
{
    struct restoration *r = step->r;
    if (!r->picture->alpha || r->result->alpha)
        return OK;
    enum error_code code = image_add_alpha(r->result, err);
    if (code != OK)
        return code;
    return step->model[ROLE_UPSCALER] && r->options.alpha == ALPHA_NETWORK ? background_alpha_made(step, tile, err)
                                                                           : background_alpha_resized(step, err);
}

/* Whether the device computes it while we do something else. */
static bool background_beside(const struct step *step)
{
    struct device_info info = {.asynchronous = false};
    if (step->context)
        device_info(step->context->device, &info);
    return info.asynchronous && step->model[ROLE_UPSCALER] && !step->r->options.aligned && !step->r->options.compat;
}

enum error_code background_begin(struct step *step, struct error *err)
{
    const struct view_u8 picture = image_view(step->r->picture);
    if (!background_beside(step) || step->background)
        return OK;
    enum error_code code = background_prepare(step, true, err);
    if (code == OK)
        code = background_once(step->background, &picture, -1, err);
    if (step_too_large(code)) { /* background_step will find what there is room for */
        error_clear(err);
        background_end(step);
        return OK;
    }
    if (code == OK && !step->r->deep && !spill_is(step->r->result->pixels))
        mem_touch(step->r->result->pixels, 3 * (size_t)step->width * (size_t)step->height);
    return code;
}

/* The whole picture at its final size; compat: without the faces. */
enum error_code background_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    if (r->options.aligned)
        return OK;
    enum error_code code = paste_layers(step, err);
    if (step->background)
        step->background->later = false;
    if (code == OK && background_beside(step) && step->context->spare) {
        code = background_work(step, 1, err);
        if (code == OK)
            step->context->spare(step->context->user);
    }
    if (code == OK)
        code = background_work(step, 0, err);
    const int asked = r->options.bg_tile, tile = code == OK ? step->background->tile : 0;
    const bool shrunk = code == OK && step->background->shrunk;
    background_end(step);
    if (code == OK && asked < 0 && shrunk)
        restoration_note(r, "background-tiles",
                         "the background does not fit the device's memory at once; tiles of %d px were used", tile);
    if (code == OK && asked >= 0 && tile && tile != asked)
        restoration_note(r, "tile-shrunk", "bg_tile=%d does not fit the device's memory; tiles of %d px were used",
                         asked, tile);
    if (code == OK && r->options.preserve_color && !r->options.compat && step->model[ROLE_UPSCALER])
        code = balance_result(step, err);
    return code == OK ? background_alpha(step, tile, err) : code;
}
