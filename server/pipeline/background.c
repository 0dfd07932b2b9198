#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/image/resize.h"
#include "server/pipeline/step.h"

/* Tile edges that are tried in turn when a larger one does not fit the device's memory. */
static const int background_tiles[] = {4096, 3072, 2048, 1536, 1024, 768, 512, 384, 256, 192, 128, 96, 64};

/* bg_tile=auto begins at tiles whose result has at most so many px. On a GPU that keeps what the host needs for a tile
 * under 2 GB. On a CPU large tiles leave the caches: a 12 MP photo through a small RRDBNet x2 took 28 s and 8.0 GB
 * whole, 15 s and 1.5 GB in tiles of 1024 px, on two cores. */
#define BACKGROUND_TILE_RESULT 64e6
#define BACKGROUND_TILE_RESULT_CPU 4.2e6

static double background_most(const struct step *step)
{
    struct device_info info;
    device_info(step->context->device, &info);
    return info.type == DEVICE_CPU || info.type == DEVICE_SOFTWARE ? BACKGROUND_TILE_RESULT_CPU
                                                                   : BACKGROUND_TILE_RESULT;
}

/* The next smaller tile for a picture; tile 0 is the whole. -1: there is none. */
static int background_smaller(int tile, int longest)
{
    int now = tile ? tile : longest;
    for (size_t i = 0; i < sizeof background_tiles / sizeof background_tiles[0]; i++)
        if (background_tiles[i] < now)
            return background_tiles[i];
    return -1;
}

/* The first tile to try. */
static int background_first(const struct step *step, const struct view_u8 *picture)
{
    int longest = picture->width > picture->height ? picture->width : picture->height, tile = 0;
    int asked = step->r->options.bg_tile;
    if (asked >= 0)
        return asked < longest ? asked : 0;
    if (!step->model[ROLE_UPSCALER])
        return 0; /* a resize works row by row */
    double scale = step->model[ROLE_UPSCALER]->info.scale;
    double result = (double)picture->width * picture->height * scale * scale, most = background_most(step);
    while (result > most && background_smaller(tile, longest) > 0) {
        tile = background_smaller(tile, longest);
        result = tile * scale * (tile * scale);
    }
    return tile;
}

/* Where the rows of the network go: into the result, through Lanczos4 where sizes differ. */
struct background_rows {
    struct step *step;
    struct resize_stream *stream; /* NULL: rows have the result's width already */
    float *rows;                  /* TILE_ROWS of the result */
    int y, count;                 /* its first row, how many */
};

static void background_finish(void *context, int item)
{
    const struct background_rows *rows = context;
    int begin, end;
    thread_band(rows->count, item, &begin, &end);
    for (int y = begin; y < end; y++)
        paste_background_row(rows->step, rows->y + y, rows->rows + (size_t)y * 3 * (size_t)rows->step->width);
}

static void background_finish_rows(struct background_rows *rows, int count)
{
    rows->count = count;
    thread_for(thread_bands(count), background_finish, rows);
    rows->y += count;
}

static void background_emit(void *user, const float *from, int count)
{
    struct background_rows *rows = user;
    if (!rows->stream) {
        memcpy(rows->rows, from, (size_t)count * 3 * sizeof(float) * (size_t)rows->step->width);
        background_finish_rows(rows, count);
        return;
    }
    resize_stream_push(rows->stream, from, count);
    for (int got; (got = resize_stream_pull(rows->stream, rows->rows, TILE_ROWS));)
        background_finish_rows(rows, got);
}

static enum error_code background_rows_create(struct background_rows *rows, struct step *step, int width, int height,
                                              struct error *err)
{
    _Static_assert(TILE_ROWS <= RESIZE_ROWS, "a push takes what a tile emits");
    *rows =
        (struct background_rows){.step = step, .rows = mem_alloc((size_t)step->width, 3 * sizeof(float) * TILE_ROWS)};
    if (!rows->rows)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    if (width == step->width && height == step->height)
        return OK;
    return resize_stream_create(&rows->stream, width, height, step->width, step->height, 3, RESIZE_LANCZOS4, err);
}

static void background_rows_free(struct background_rows *rows)
{
    resize_stream_destroy(&rows->stream);
    free(rows->rows);
}

/* No upscaler: the picture itself, resized. */
static enum error_code background_plain(struct step *step, const struct view_u8 *picture, struct error *err)
{
    struct background_rows rows;
    size_t n = 3 * (size_t)picture->width;
    float *row = mem_alloc(n, sizeof(float) * TILE_ROWS);
    enum error_code code = background_rows_create(&rows, step, picture->width, picture->height, err);
    if (code == OK && !row)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (int y = 0, count; y < picture->height && code == OK; y += count) {
        count = picture->height - y < TILE_ROWS ? picture->height - y : TILE_ROWS;
        for (int r = 0; r < count; r++)
            for (size_t i = 0; i < n; i++)
                row[(size_t)r * n + i] = picture->data[(size_t)(y + r) * picture->stride + i];
        background_emit(&rows, row, count);
        code = step_check(step, err);
    }
    background_rows_free(&rows);
    free(row);
    return code;
}

static enum error_code background_network(struct step *step, const struct view_u8 *picture, int tile, struct error *err)
{
    struct background_rows rows;
    struct session *session;
    const struct model_info *info;
    enum error_code code = step_session(step, ROLE_UPSCALER, &session, &info, err);
    if (code != OK)
        return code;
    code = background_rows_create(&rows, step, picture->width * info->scale, picture->height * info->scale, err);
    if (code == OK)
        code = tile_run(step, picture, tile, background_emit, &rows, err);
    background_rows_free(&rows);
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
        code = tile_run_compat(step, picture, cut, &large, err);
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

static enum error_code background_once(struct step *step, const struct view_u8 *picture, int tile, struct error *err)
{
    struct restoration *r = step->r;
    if (r->options.compat) {
        struct tile_compat cut = {.tile = tile, .tile_pad = 10};
        image_destroy(&r->result);
        return background_compat(step, picture, &cut, r->options.upscale, &r->result, err);
    }
    enum error_code code = OK;
    if (!r->result)
        code = image_create(&r->result, step->width, step->height, 3, 8, false, err);
    if (code != OK)
        return code;
    return step->model[ROLE_UPSCALER] ? background_network(step, picture, tile, err)
                                      : background_plain(step, picture, err);
}

static enum error_code background_alpha(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    if (!r->picture->alpha)
        return OK;
    enum error_code code = image_add_alpha(r->result, err);
    if (code != OK)
        return code;
    struct view_u8 to = image_alpha_view(r->result), from = image_alpha_view(r->picture);
    return resize_smooth_u8(&to, &from, RESIZE_LANCZOS4, err);
}

/* The whole picture at its final size, without the faces. Memory that does not suffice makes the tiles smaller. */
enum error_code background_step(struct step *step, struct error *err)
{
    struct restoration *r = step->r;
    if (r->options.aligned)
        return OK;
    struct view_u8 picture = image_view(r->picture);
    int longest = picture.width > picture.height ? picture.width : picture.height;
    int asked = r->options.bg_tile, tile = background_first(step, &picture);
    bool shrunk = false;
    enum error_code code = paste_prepare(step, err);
    if (code == OK)
        code = background_once(step, &picture, tile, err);
    while (step_too_large(code) && step->model[ROLE_UPSCALER]) {
        int smaller = background_smaller(tile, longest);
        if (smaller < 0)
            return step_no_room(step, ROLE_UPSCALER, err, tile ? "even a tile of %d px" : "even the picture of %d px",
                                tile ? tile : longest);
        error_clear(err);
        tile = smaller;
        r->shrinks++;
        shrunk = true;
        code = background_once(step, &picture, tile, err);
    }
    if (code == OK && asked < 0 && shrunk)
        restoration_note(r, "the background does not fit the device's memory at once; tiles of %d px were used", tile);
    if (code == OK && asked >= 0 && tile && tile != asked)
        restoration_note(r, "bg_tile=%d does not fit the device's memory; tiles of %d px were used", asked, tile);
    return code == OK ? background_alpha(step, err) : code;
}
