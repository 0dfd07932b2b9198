/* A picture's tiles shared with helpers. They are put together here in their order, wherever they were made; while the
 * next one is still at work elsewhere, later ones are made here and kept. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "server/pipeline/helpers.h"
#include "server/pipeline/tile_private.h"

#define SHARE_TILES 4                       /* fewer are not worth it */
#define SHARE_KEPT_MOST ((size_t)256 << 20) /* bytes of results made ahead of their turn */
#define SHARE_LOOK_MS 20
#define SHARE_PATIENCE_MS                                                                                              \
    1000 /* with nothing else to do a tile is waited for so long, and twice the time of our own                        \
          */

/* A result whose turn has not come. */
struct share_kept {
    struct share_kept *next;
    int tile;
    uint8_t bytes[];
};

enum share_form { FORM_NONE, FORM_U8, FORM_PLANES };

struct tile_share {
    const struct helpers *helpers;
    const struct model_entry *entry;
    void *task;
    int offered;   /* tiles before this were handed out, or made here */
    uint8_t *form; /* enum share_form of each tile that was handed out or is kept; 0: it is to be made in its turn */
    struct share_kept *kept;
    size_t kept_bytes;
    double tile_ms, waited_ms; /* the longest of our own tiles; the wait for the one whose turn it is */
    struct share_times {       /* of all of it, for whoever looks for what limits */
        int made, ahead, received;
        double made_ms, ahead_ms, offer_ms, put_ms, idle_ms; /* offer: copying windows; put: results */
    } times;
};

/* The time since `begin`, ms, onto a sum. */
static double share_time(double *sum, double begin)
{
    const double ms = log_clock_ms() - begin;
    *sum += ms;
    return ms;
}

/* Whether faces lie over this target. */
static bool share_covered(const struct raster_target *target)
{
    for (int i = 0; i < target->layer_count; i++) {
        const struct raster_layer *layer = &target->layers[i];
        if (layer->x < target->left + target->width && layer->x + layer->width > target->left &&
            layer->y < target->top + target->height && layer->y + layer->height > target->top)
            return true;
    }
    return false;
}

/* Bytes suffice where nothing more is done to the tile's pixels. */
static enum share_form share_form_of(const struct tile_job *job, int n)
{
    struct raster_source source;
    struct run_image image;
    struct raster_target target;
    if (job->canvas)
        return FORM_PLANES;
    tile_describe(job, &job->tiles[n], &job->tiles[n].done, &source, &image, &target);
    return image.target_count && target.form == RASTER_U8 && !share_covered(&target) ? FORM_U8 : FORM_PLANES;
}

static struct tile_order share_order(const struct tile_job *job, int n, enum share_form form)
{
    const struct tile *t = &job->tiles[n];
    const int s = job->info->scale;
    struct tile_order order = {t->width, t->height, job->deep ? 16 : 8, s, {0}};
    if (form == FORM_U8)
        order.done = (struct rect){t->done.x - t->x * s, t->done.y - t->y * s, t->done.width, t->done.height};
    return order;
}

/* The tile's window of the padded picture; free(). NULL: out of memory. */
static void *share_window(const struct tile_job *job, int n, const struct tile_order *order)
{
    const struct tile *t = &job->tiles[n];
    const size_t pixel = order->bits == 16 ? 6 : 3, row = pixel * (size_t)t->width;
    const size_t stride = job->deep ? 6 * (size_t)job->picture.width : job->picture.stride;
    const uint8_t *from = job->deep ? (const uint8_t *)job->deep : job->picture.data;
    const int *columns = job->ax.from + t->x;
    int run = 1; /* the first px that lie side by side in the picture, too: all but those beyond its edge */
    while (run < t->width && columns[run] == columns[0] + run)
        run++;
    uint8_t *window = mem_alloc((size_t)t->height, row);
    for (int y = 0; window && y < t->height; y++) {
        const uint8_t *line = from + (size_t)job->ay.from[t->y + y] * stride;
        memcpy(window + (size_t)y * row, line + (size_t)columns[0] * pixel, (size_t)run * pixel);
        for (int x = run; x < t->width; x++)
            memcpy(window + (size_t)y * row + (size_t)x * pixel, line + (size_t)columns[x] * pixel, pixel);
    }
    return window;
}

/* Puts a result where it belongs: its turn has come. false: it is of no use. */
static bool share_put(struct tile_job *job, const void *bytes)
{
    const struct tile *t = &job->tiles[job->next];
    struct raster_source source;
    struct run_image image;
    struct raster_target target;
    tile_describe(job, t, &t->done, &source, &image, &target);
    if (job->share->form[job->next] == FORM_U8) {
        const size_t row = 3 * (size_t)t->done.width;
        for (int y = 0; y < t->done.height; y++)
            memcpy((uint8_t *)target.data + (size_t)y * target.stride, (const uint8_t *)bytes + (size_t)y * row, row);
    } else {
        const int s = job->info->scale;
        const size_t values = 3 * (size_t)(t->width * s) * (size_t)(t->height * s);
        const struct run_output output = {.images = &image, .canvas = job->canvas};
        const struct run_io run = {.outputs = &output, .range = model_range(MODEL_UPSCALER)};
        struct run_result result;
        if (!raster_finite(bytes, values))
            return false;
        plan_put(&run, t->height * s, t->width * s, bytes, &result);
    }
    job->next++;
    job->share->waited_ms = 0;
    atomic_fetch_add(&job->step->r->progress, 1);
    tile_made(job, 1);
    tile_filled(job, &t->done);
    return true;
}

/* Hands out as many more tiles as are wanted. */
static void share_offer(struct tile_job *job)
{
    struct tile_share *share = job->share;
    const double begin = log_clock_ms();
    if (share->offered <= job->next)
        share->offered = job->next + 1;
    for (int room = share->helpers->room(share->task); room > 0 && share->offered < job->count; room--) {
        const int n = share->offered;
        const enum share_form form = share_form_of(job, n);
        const struct tile_order order = share_order(job, n, form);
        void *window = share_window(job, n, &order);
        if (!window)
            break;
        share->helpers->offer(share->task, n, &order, window);
        share->form[n] = (uint8_t)form;
        share->offered++;
    }
    share_time(&share->times.offer_ms, begin);
}

/* Makes a tile ahead of its turn. What goes wrong will go wrong again in its turn, and be reported. */
static void share_make(struct tile_job *job, int n)
{
    struct tile_share *share = job->share;
    const enum share_form form = share_form_of(job, n);
    const struct tile_order order = share_order(job, n, form);
    const size_t bytes = tile_order_output(&order);
    const struct run_options options = {.cancel = &job->step->r->cancel, .progress = &job->step->r->progress};
    const double begin = log_clock_ms();
    struct error ignored = ERROR_INIT;
    struct share_kept *kept = mem_alloc(1, sizeof *kept + bytes);
    void *window = kept ? share_window(job, n, &order) : NULL;
    share->form[n] = FORM_NONE;
    if (!window || tile_order_run(&order, job->step->context, share->entry, job->precision, window, kept->bytes,
                                  &options, &ignored)) {
        free(kept);
    } else {
        kept->tile = n;
        kept->next = share->kept;
        share->kept = kept;
        share->kept_bytes += bytes;
        share->form[n] = (uint8_t)form;
    }
    free(window);
    const double ms = share_time(&share->times.ahead_ms, begin);
    share->times.ahead++;
    share->tile_ms = ms > share->tile_ms ? ms : share->tile_ms;
}

/* The next tile is at work elsewhere: makes another one, or waits. */
static enum error_code share_meanwhile(struct tile_job *job, struct error *err)
{
    struct tile_share *share = job->share;
    int n = share->kept_bytes < SHARE_KEPT_MOST ? share->helpers->take(share->task) : -1;
    if (n < 0 && share->kept_bytes < SHARE_KEPT_MOST && share->offered < job->count)
        n = share->offered++;
    if (n > job->next && n < job->count) {
        share_make(job, n);
        return OK;
    }
    if (share->waited_ms > SHARE_PATIENCE_MS + 2 * share->tile_ms) {
        share->helpers->drop(share->task, job->next);
        share->form[job->next] = FORM_NONE;
        share->waited_ms = 0;
        return tile_submit(job, err);
    }
    const double begin = log_clock_ms();
    nanosleep(&(struct timespec){.tv_nsec = SHARE_LOOK_MS * 1000000L}, NULL);
    share_time(&share->times.idle_ms, begin);
    share->waited_ms += SHARE_LOOK_MS;
    return OK;
}

/* The next tile, if it was kept. */
static bool share_put_kept(struct tile_job *job)
{
    struct tile_share *share = job->share;
    struct share_kept **at = &share->kept;
    while (*at && (*at)->tile != job->next)
        at = &(*at)->next;
    struct share_kept *kept = *at;
    if (!kept)
        return false;
    const struct tile_order order = share_order(job, job->next, share->form[job->next]);
    const bool put = share_put(job, kept->bytes);
    *at = kept->next;
    share->kept_bytes -= tile_order_output(&order);
    free(kept);
    return put;
}

/* The next tile, from whoever made it. */
static bool share_put_theirs(struct tile_job *job)
{
    struct tile_share *share = job->share;
    const struct tile_order order = share_order(job, job->next, share->form[job->next]);
    const size_t bytes = tile_order_output(&order);
    const double begin = log_clock_ms();
    void *output = mem_alloc(bytes, 1);
    const bool put = output && share->helpers->fetch(share->task, job->next, output, bytes) && share_put(job, output);
    job->step->r->shared += put;
    share->times.received += put;
    free(output);
    share_time(&share->times.put_ms, begin);
    return put;
}

enum error_code tile_share_next(struct tile_job *job, struct error *err)
{
    struct tile_share *share = job->share;
    share_offer(job);
    if (share_put_kept(job))
        return OK;
    if (share->form[job->next]) {
        const enum tile_place place = share->helpers->ask(share->task, job->next);
        if (place == TILE_HELD)
            return share_meanwhile(job, err);
        if (place == TILE_DONE && share_put_theirs(job))
            return OK;
        share->form[job->next] = FORM_NONE;
    }
    share->waited_ms = 0;
    const double begin = log_clock_ms();
    const enum error_code code = tile_submit(job, err);
    const double ms = share_time(&share->times.made_ms, begin);
    share->times.made++;
    share->tile_ms = ms > share->tile_ms ? ms : share->tile_ms;
    return code;
}

void tile_share_begin(struct tile_job *job)
{
    const struct helpers *helpers = job->step->context->helpers;
    const uint64_t s = (uint64_t)job->info->scale;
    struct device_info device;
    device_info(job->step->context->device, &device);
    if (!helpers || device.asynchronous || job->batch > 1 || job->pool || job->info->border || !job->cx.count ||
        job->sink.even || job->second || job->count - job->next < SHARE_TILES ||
        (uint64_t)job->picture.width * (uint64_t)job->picture.height * s * s < helpers->pixels)
        return;
    const struct tile_order whole = share_order(job, job->next, FORM_PLANES);
    struct tile_share *share = tile_order_valid(&whole) ? mem_calloc(1, sizeof *share) : NULL;
    if (!share)
        return;
    share->helpers = helpers;
    share->entry = job->step->model[ROLE_UPSCALER];
    share->form = mem_calloc((size_t)job->count, 1);
    share->task = share->form ? helpers->begin(helpers->user, share->entry, job->precision) : NULL;
    job->share = share;
    if (!share->task)
        tile_share_end(&job->share);
}

void tile_share_end(struct tile_share **share)
{
    struct tile_share *old = *share;
    *share = NULL;
    if (!old)
        return;
    const struct share_times *t = &old->times;
    log_event(LOG_DEBUG, "share-times",
              "made=%d made_ms=%.0f ahead=%d ahead_ms=%.0f received=%d put_ms=%.0f offer_ms=%.0f idle_ms=%.0f", t->made,
              t->made_ms, t->ahead, t->ahead_ms, t->received, t->put_ms, t->offer_ms, t->idle_ms);
    if (old->task)
        old->helpers->end(old->task);
    for (struct share_kept *kept = old->kept, *next; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
    free(old->form);
    free(old);
}
