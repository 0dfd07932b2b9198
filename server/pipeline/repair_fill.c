/* Fills what the mask shows, window by window of one size. Their cores lie on a grid of the picture; where two meet,
 * they are blended. Or the picture is one window, where that is less. What is seen through damage is not filled
 * (repair_veil.c); what is deep in holes comes from the picture at half its size (repair_inner.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/pull_push.h"
#include "server/pipeline/repair_private.h"

#define FILL_BATCH 8 /* windows that a run has, at most, and that are worked on together: some 20 MB */

#define FILL_DEPTH 40 /* px from what is known: so deep in holes such a network fills (networks_fill.py) */

#define FILL_WHOLE (1 << 20) /* px of a window that is the picture, at most: its tensors take twice a full run's */

/* Windows that are worked on together; while the device has those of one flight, the host prepares the other's. */
struct fill_flight {
    struct fill_window windows[FILL_BATCH];
    int room, count, sent; /* windows: that have memory, that are at work, that the network gets */
    /* of those, and what it gets of each, and what is taken of its result */
    struct raster_source pictures[FILL_BATCH];
    struct raster_points holes[FILL_BATCH], near[FILL_BATCH];
    float *values; /* of the result */
    struct session_shape shape;
    struct run_input input;
    struct run_output output;
    struct run_io run;
    struct plan *plan;        /* the run that is under way; NULL: none */
    struct run_result result; /* of a run that is over; else of none, which has no fault */
};

struct fill {
    struct step *step;
    const struct image *picture;
    struct image *to;              /* which the changes are mixed into first */
    const uint8_t *mask, *unknown; /* what is filled; what the windows do not see */
    struct image *seen, *inner;    /* the picture in which veils are lifted; what is deep in holes is filled; or NULL */
    uint8_t *seen_mask, *marked;   /* `unknown` then */
    struct fill_cut cut, grain;    /* grain: of the windows that it would have if it were not one */
    struct fill_changes changes;
    atomic_bool *used; /* of the cores: which have something to do */
    int needed;        /* of them */
    bool network;      /* it corrects the windows, `batch` at a time */
    bool blank;        /* the network is given nothing in the holes */
    bool applied;      /* the changes are in the restoration's picture */
    double strength;
    struct fill_flight flights[2];
    int flight_count;
    void *memory;               /* of windows, and scratch for those of a flight: one at a time is worked on */
    size_t room;                /* bytes of it */
    int *clamped;               /* columns and rows of a window of which a part lies beyond the picture */
    struct fill_grain grain_of; /* that was measured last */
    int batch;
};

/* As fill_scale. */
static const struct raster_range fill_range = {.unit = 127.5f, .mean = {1, 1, 1}, .deviation = 1, .low = -1, .high = 1};

/* ---- the network ------------------------------------------------------------------------------------------------- */

/* The run of so many of a flight's windows, from `first` on. */
static void fill_describe(struct fill *f, struct fill_flight *flight, int first, int count)
{
    flight->shape = (struct session_shape){.n = count, .h = f->cut.height, .w = f->cut.width};
    flight->input = (struct run_input){.images = flight->pictures + first, .points = flight->holes + first};
    flight->output = (struct run_output){.points = flight->near + first};
    flight->run = repair_io(f->step, ROLE_FILLER, &flight->input, &flight->output);
    flight->run.range = &fill_range;
    f->step->r->damage.filled += (double)count * f->cut.pixels / 1e6;
}

/* A flight that is full goes out as a whole; others, `batch` at a time, the rest by halves of that (few runs, and few
 * shapes), are waited for. */
static enum error_code fill_run(struct fill *f, struct fill_flight *flight, struct error *err)
{
    enum error_code code = step_check(f->step, err);
    flight->result = (struct run_result){.finite = true};
    if (code == OK && flight->sent == f->batch) {
        fill_describe(f, flight, 0, flight->sent);
        code =
            step_submit(f->step, ROLE_FILLER, f->step->r->precision, &flight->shape, &flight->run, &flight->plan, err);
        if (code != OK)
            flight->plan = NULL;
    } else {
        for (int done = 0, many = f->batch; done < flight->sent && code == OK; done += many) {
            while (many > flight->sent - done)
                many /= 2;
            fill_describe(f, flight, done, many);
            code = step_run(f->step, ROLE_FILLER, &flight->shape, &flight->run, NULL, err);
        }
    }
    return code;
}

static enum error_code fill_no_room(struct fill *f, enum error_code code, struct error *err)
{
    return step_too_large(code) ? step_no_room(f->step, ROLE_FILLER, err, "%d windows of %d × %d px", f->batch,
                                               f->cut.width, f->cut.height)
                                : code;
}

/* ---- a flight ---------------------------------------------------------------------------------------------------- */

/* What threads share: bands of windows, or blocks of them. */
struct fill_work {
    struct fill *f;
    struct fill_flight *flight;
    int parts; /* of a window */
};

static struct fill_window *fill_window_of(const struct fill_work *work, int item)
{
    return &work->flight->windows[item / work->parts];
}

static int fill_row_of(const struct fill_work *work, int item)
{
    return item % work->parts * PULL_BAND;
}

static void fill_bands(struct fill *f, struct fill_flight *flight, thread_item_fn *fn)
{
    struct fill_work work = {f, flight, fill_window_bands(&f->cut)};
    thread_for(flight->count * work.parts, fn, &work);
}

static void fill_blocks(struct fill *f, struct fill_flight *flight, thread_item_fn *fn)
{
    struct fill_work work = {f, flight, fill_window_blocks(&f->cut)};
    thread_for(flight->count * work.parts, fn, &work);
}

static void fill_each(struct fill *f, struct fill_flight *flight, thread_item_fn *fn)
{
    struct fill_work work = {f, flight, 1};
    thread_for(flight->count, fn, &work);
}

/* Whether a window is filled smoothly at first. */
static bool fill_is_smooth(const struct fill *f, const struct fill_window *w)
{
    return w->plain || !f->blank;
}

static void fill_plain_item(void *context, int item)
{
    struct fill_window *w = fill_window_of(context, item);
    w->plain = w->plain || fill_is_known(w);
}

static void fill_read_item(void *context, int item)
{
    const struct fill_work *work = context;
    struct fill_window *w = fill_window_of(work, item);
    fill_read(w, fill_row_of(work, item), fill_is_smooth(work->f, w));
}

static void fill_count_item(void *context, int item)
{
    const struct fill_work *work = context;
    struct fill_window *w = fill_window_of(work, item);
    fill_count(w, fill_is_smooth(work->f, w));
}

static void fill_spread_item(void *context, int item)
{
    const struct fill_work *work = context;
    const struct fill_window *w = fill_window_of(work, item);
    if (fill_is_smooth(work->f, w))
        fill_spread(w, fill_row_of(work, item));
}

static void fill_list_item(void *context, int item)
{
    const struct fill_work *work = context;
    struct fill_window *w = fill_window_of(work, item);
    fill_list(w, fill_row_of(work, item), fill_is_smooth(work->f, w));
}

static void fill_holes_item(void *context, int item)
{
    const struct fill_work *work = context;
    fill_holes(fill_window_of(work, item), fill_row_of(work, item), work->f->blank);
}

static void fill_smooth_item(void *context, int item)
{
    struct fill_window *w = fill_window_of(context, item);
    if (w->plain)
        fill_smooth(w);
}

static void fill_grain_item(void *context, int item)
{
    const struct fill_work *work = context;
    fill_grain(fill_window_of(work, item), item % work->parts);
}

static void fill_take_item(void *context, int item)
{
    const struct fill_work *work = context;
    struct fill_window *w = fill_window_of(work, item);
    if (!w->plain)
        fill_take(w, fill_row_of(work, item));
}

static void fill_lack_item(void *context, int item)
{
    const struct fill_work *work = context;
    fill_lack(fill_window_of(work, item), item % work->parts);
}

/* All that is done with windows before the network gets them. */
static void fill_prepare(struct fill *f, struct fill_flight *flight)
{
    bool plain = false, smooth = false;
    for (int i = 0; i < flight->count; i++) {
        plain = plain || flight->windows[i].plain;
        smooth = smooth || fill_is_smooth(f, &flight->windows[i]);
        fill_begin(&flight->windows[i]);
    }
    fill_bands(f, flight, fill_read_item);
    fill_each(f, flight, fill_count_item);
    if (smooth)
        fill_bands(f, flight, fill_spread_item);
    fill_bands(f, flight, fill_list_item);
    for (int i = 0; i < flight->count; i++)
        fill_count_near(&flight->windows[i]);
    fill_bands(f, flight, fill_holes_item);
    if (plain)
        fill_each(f, flight, fill_smooth_item);
}

/* What the network gets of a flight's windows, and where its results go: the picture, and what holes are filled with,
 * so that little has to be sent. */
static enum error_code fill_pack(struct fill *f, struct fill_flight *flight, struct error *err)
{
    const struct image *picture = f->picture;
    const size_t px = 3 * (size_t)picture->bits / 8;
    size_t count = 0;
    flight->sent = 0;
    for (int i = 0; i < flight->count; i++)
        count += flight->windows[i].plain ? 0 : (size_t)flight->windows[i].near_count;
    flight->values = mem_alloc(count, 3 * sizeof *flight->values);
    if (!flight->values)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
    float *values = flight->values;
    for (int i = 0; i < flight->count; i++) {
        struct fill_window *w = &flight->windows[i];
        if (w->plain)
            continue;
        const size_t at = (size_t)w->y * (size_t)picture->width + (size_t)w->x;
        flight->pictures[flight->sent] =
            (struct raster_source){.form = picture->bits == 16 ? RASTER_U16 : RASTER_U8,
                                   .data = (const char *)picture->pixels + px * at,
                                   .stride = px * (size_t)picture->width,
                                   .columns = picture->width < f->cut.width ? f->clamped : NULL,
                                   .rows = picture->height < f->cut.height ? f->clamped + f->cut.width : NULL,
                                   .number = picture == f->step->r->picture ? f->step->repairing : 0};
        flight->holes[flight->sent] = (struct raster_points){w->holes, w->hole_count, w->rgb, NULL};
        flight->near[flight->sent++] = (struct raster_points){w->near, w->near_count, NULL, values};
        w->result = values;
        values += 3 * (size_t)w->near_count;
    }
    return OK;
}

/* Prepares a flight's windows and sends them to the device. */
static enum error_code fill_start(struct fill *f, struct fill_flight *flight, struct error *err)
{
    enum error_code code = OK;
    for (int i = 0; i < flight->count; i++)
        flight->windows[i].plain = !f->network;
    if (f->seen || f->inner)
        fill_each(f, flight, fill_plain_item);
    fill_prepare(f, flight);
    if (f->network)
        code = fill_pack(f, flight, err);
    if (code == OK && flight->sent)
        code = fill_run(f, flight, err);
    if (code == OK && !f->changes.list) /* from here on the device may be at work */
        code = fill_changes_create(&f->changes, f->mask, f->picture->width, f->picture->height, err);
    if (code == OK) {
        fill_blocks(f, flight, fill_grain_item);
        fill_grain_known(flight->windows, flight->count, &f->grain_of);
    }
    return code;
}

static enum error_code fill_wait(struct fill_flight *flight, struct error *err)
{
    struct plan *plan = flight->plan;
    flight->plan = NULL;
    return plan ? plan_wait(plan, &flight->result, err) : OK;
}

/* Waits for a flight's windows; if they are refused, for the other flight's, too: see step_accept. */
static enum error_code fill_collect(struct fill *f, struct fill_flight *flight, struct error *err)
{
    enum error_code code = fill_wait(flight, err);
    if (!flight->sent || code != OK)
        return code;
    const bool fine = !step_fault(&flight->result, NULL, &flight->shape);
    for (int i = 0; i < f->flight_count && code == OK && !fine; i++)
        code = fill_wait(&f->flights[i], err);
    return code == OK ? step_accept(f->step, ROLE_FILLER, &flight->shape, &flight->run, NULL, &flight->result, err)
                      : code;
}

/* Whether there is a hole that may lack grain. */
static bool fill_any_grain(const struct fill_flight *flight)
{
    bool any = false;
    for (int i = 0; i < flight->count; i++)
        for (int k = 0; k < fill_window_blocks(flight->windows[i].cut); k++)
            any = any || flight->windows[i].grain[k].deviation > 0;
    return any;
}

/* Waits for them, and adds what came of them to the changes. */
static enum error_code fill_finish(struct fill *f, struct fill_flight *flight, struct error *err)
{
    enum error_code code = fill_collect(f, flight, err);
    if (code == OK)
        code = step_check(f->step, err);
    if (code != OK)
        return code;
    if (flight->sent)
        fill_bands(f, flight, fill_take_item);
    if (fill_any_grain(flight))
        fill_blocks(f, flight, fill_lack_item);
    f->applied = flight->count == f->needed; /* no other window is to see the picture as it was */
    fill_changes_add(&f->changes, flight->windows, flight->count, f->applied ? f->to : NULL, f->strength);
    free(flight->values);
    flight->values = NULL;
    flight->count = flight->sent = 0;
    return OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Sends a flight, and finishes the one before it, which is the next. */
static enum error_code fill_send(struct fill *f, struct fill_flight **now, struct error *err)
{
    struct fill_flight *other = &f->flights[f->flight_count > 1 && *now == f->flights];
    enum error_code code = fill_start(f, *now, err);
    if (code == OK && other->count)
        code = fill_finish(f, other, err);
    *now = other;
    return code;
}

/* The windows in the order of the grid, a flight at a time. */
static enum error_code fill_windows(struct fill *f, struct error *err)
{
    const int cores = f->cut.rows * f->cut.columns;
    struct fill_flight *now = f->flights;
    enum error_code code = OK;
    for (int i = 0; i < cores && code == OK; i++) {
        if (!f->used[i])
            continue;
        struct fill_window *w = &now->windows[now->count++];
        w->picture = f->picture;
        w->mask_of = f->unknown;
        w->row = i / f->cut.columns;
        w->column = i % f->cut.columns;
        w->x = fill_begin_at(w->column, f->cut.core_width, f->cut.width, f->picture->width);
        w->y = fill_begin_at(w->row, f->cut.core_height, f->cut.height, f->picture->height);
        if (now->count == now->room)
            code = fill_send(f, &now, err);
    }
    if (code == OK && now->count)
        code = fill_send(f, &now, err);
    for (int i = 0; i < f->flight_count && code == OK; i++)
        if (f->flights[i].count)
            code = fill_finish(f, &f->flights[i], err);
    return code;
}

/* Memory for the windows. */
static bool fill_room(struct fill *f)
{
    const size_t bytes = fill_window_bytes(&f->cut), scratch = fill_scratch_bytes(&f->cut);
    const int most = f->flight_count * FILL_BATCH, many = f->needed < most ? f->needed : most,
              abreast = f->needed < FILL_BATCH ? f->needed : FILL_BATCH;
    f->room = (size_t)many * bytes + (size_t)abreast * scratch;
    f->memory = repair_take_room(f->step, &f->room);
    f->clamped = mem_alloc((size_t)f->cut.width + (size_t)f->cut.height, sizeof *f->clamped);
    if (!f->memory || !f->clamped)
        return false;
    char *at = f->memory, *own = at + (size_t)many * bytes;
    for (int i = 0; i < many; i++) {
        struct fill_flight *flight = &f->flights[i / FILL_BATCH];
        fill_window_place(&flight->windows[flight->room], &f->cut, at + (size_t)i * bytes,
                          own + (size_t)flight->room * scratch);
        flight->room++;
    }
    for (int i = 0; i < f->cut.width; i++)
        f->clamped[i] = i < f->picture->width ? i : f->picture->width - 1;
    for (int i = 0; i < f->cut.height; i++)
        f->clamped[f->cut.width + i] = i < f->picture->height ? i : f->picture->height - 1;
    return true;
}

/* Which windows a picture has. */
static enum error_code fill_create(struct fill *f, struct error *err)
{
    const size_t cores = (size_t)f->cut.rows * (size_t)f->cut.columns;
    f->used = mem_calloc(cores, sizeof *f->used);
    if (!f->used)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
    fill_look(f->mask, f->picture->width, f->picture->height, &f->cut, f->used);
    for (size_t i = 0; i < cores; i++)
        f->needed += f->used[i];
    return OK;
}

/* What a flight has, and the memory of all. */
static void fill_free_flights(struct fill *f)
{
    for (int i = 0; i < f->flight_count; i++) {
        struct fill_flight *flight = &f->flights[i];
        struct error ignored = ERROR_INIT;
        struct run_result result;
        if (flight->plan && plan_wait(flight->plan, &result, &ignored)) /* it writes into the flight's memory */
            error_clear(&ignored);
        free(flight->values);
        *flight = (struct fill_flight){0};
    }
    free(f->clamped);
    repair_keep_room(f->step, f->memory, f->room);
    f->memory = NULL;
    f->clamped = NULL;
}

static void fill_free(struct fill *f)
{
    fill_changes_free(&f->changes);
    free(f->used);
    image_destroy(&f->inner);
    image_destroy(&f->seen);
    free(f->marked);
    free(f->seen_mask);
}

/* As the picture is cut. */
static enum error_code fill_all(struct fill *f, struct error *err)
{
    f->flight_count = f->needed > FILL_BATCH && f->batch == FILL_BATCH ? 2 : 1; /* others are waited for at once */
    enum error_code code = fill_room(f) ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
    if (code == OK)
        code = fill_windows(f, err);
    fill_free_flights(f);
    return code;
}

/* The picture as one window, where those that it needs have as many pixels or more. Returns whether it is. */
static bool fill_one(struct fill *f, const struct model_info *info)
{
    const struct fill_cut whole = fill_cut_whole(info->unshuffle, f->picture->width, f->picture->height, &f->grain);
    if (info->side || whole.pixels > FILL_WHOLE || whole.pixels > (double)f->needed * f->cut.pixels)
        return false;
    f->grain = f->cut;
    f->cut = whole;
    return true;
}

double repair_fill_most(int width, int height, const struct model_info *info)
{
    const struct fill_cut cut = fill_cut(info->side, width, height);
    return (double)cut.columns * cut.rows * cut.pixels / 1e6;
}

/* In one window, if there is room; else in those that it was cut into. */
static enum error_code fill_as_one(struct fill *f, bool *done, struct error *err)
{
    struct fill_cut cut = f->cut;
    atomic_bool one = true;
    const int needed = f->needed, batch = f->batch;
    const double filled = f->step->r->damage.filled;
    *done = fill_one(f, &f->step->model[ROLE_FILLER]->info);
    if (!*done)
        return OK;
    f->needed = f->batch = 1;
    atomic_bool *used = f->used;
    f->used = &one;
    enum error_code code = fill_all(f, err);
    f->used = used;
    if (!step_too_large(code))
        return code;
    error_clear(err);
    f->step->r->shrinks++;
    f->step->r->damage.filled = filled;
    *done = false;
    f->cut = cut;
    f->needed = needed;
    f->batch = batch;
    return OK;
}

static enum error_code fill_picture(struct fill *f, struct error *err);

/* Fills what is deep in holes, if anything is. */
static enum error_code fill_deep(struct fill *f, int side, struct error *err)
{
    enum error_code code = fill_inner_find(f->unknown, f->picture->width, f->picture->height,
                                           side ? side / 4 : FILL_DEPTH, &f->marked, err);
    if (code != OK || !f->marked)
        return code;
    struct image *half = NULL;
    uint8_t *mask = NULL;
    code = fill_inner_halve(f->picture, f->unknown, &half, &mask, err);
    struct fill smaller = {.step = f->step, .network = f->network, .blank = f->blank, .batch = f->batch, .strength = 1};
    smaller.picture = smaller.to = half;
    smaller.mask = smaller.unknown = mask;
    if (code == OK)
        code = fill_picture(&smaller, err);
    if (code == OK)
        code = fill_inner_take(f->picture, f->marked, half, &f->inner, err);
    fill_free(&smaller);
    image_destroy(&half);
    free(mask);
    if (code == OK) {
        f->picture = f->inner;
        f->unknown = f->marked;
    }
    return code;
}

/* Computes the changes, and mixes them into the picture that they are for. */
static enum error_code fill_picture(struct fill *f, struct error *err)
{
    const struct model_entry *filler = f->step->model[ROLE_FILLER];
    const int side = filler ? filler->info.side : 0;
    bool done = false;
    enum error_code code = fill_deep(f, side, err);
    f->cut = fill_cut(side, f->picture->width, f->picture->height);
    if (code == OK)
        code = fill_create(f, err);
    if (code == OK && f->network)
        code = fill_as_one(f, &done, err);
    if (code == OK && !done)
        code = fill_no_room(f, fill_all(f, err), err);
    if (code == OK && !f->applied)
        fill_changes_apply(&f->changes, f->to, NULL, f->strength);
    return code;
}

enum error_code repair_fill(struct step *step, const uint8_t *mask, const uint8_t *unknown, double strength,
                            struct error *err)
{
    struct restoration *r = step->r;
    struct image *picture = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    const struct model_entry *filler = step->model[ROLE_FILLER];
    struct fill f = {.step = step,
                     .picture = picture,
                     .to = r->picture,
                     .mask = mask,
                     .unknown = unknown ? unknown : mask,
                     .network = filler != NULL,
                     .blank = filler && filler->info.side,
                     .strength = strength};
    f.batch = f.network ? step_batch(step) : 0;
    f.batch = f.batch < FILL_BATCH ? f.batch : FILL_BATCH;
    r->damage.filled = 0;
    enum error_code code = fill_veils(picture, f.mask, f.unknown, &f.seen, &f.seen_mask, err);
    if (code == OK && f.seen) {
        f.picture = f.seen;
        f.unknown = f.seen_mask;
    }
    if (code == OK)
        code = fill_picture(&f, err);
    if (code == OK && picture != r->picture)
        fill_changes_apply(&f.changes, picture, NULL, strength);
    if (code == OK && r->deep && r->deep->source)
        fill_changes_apply(&f.changes, r->deep->source, r->deep->colour, strength);
    fill_free(&f);
    return code;
}
