/* Fills what the mask shows, window by window of one size. Their cores lie on a grid of the picture; where two meet,
 * they are blended. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "server/pipeline/deep.h"
#include "server/pipeline/repair_private.h"

#define FILL_WINDOW 256 /* px, of a network that takes any */
#define FILL_BATCH 8    /* windows that a run has, at most */
#define FILL_GROUP 16   /* windows that are worked on at a time: enough for many cores, and some 30 MB */

static struct fill_cut fill_cut(int side, int width, int height)
{
    struct fill_cut cut = {.side = side ? side : FILL_WINDOW};
    cut.core = cut.side / 4 * 3;
    cut.blend = cut.core / 12;
    cut.pixels = cut.side * cut.side;
    cut.columns = (width + cut.core - 1) / cut.core;
    cut.rows = (height + cut.core - 1) / cut.core;
    return cut;
}

struct fill {
    struct step *step;
    const struct image *picture;
    const uint8_t *mask;
    struct fill_cut cut;
    struct fill_changes changes;
    bool *used;   /* of the cores: which have something to do */
    bool large;   /* there may be a window that shows little else than a hole */
    bool network; /* it corrects the windows, so many at a time */
    bool blank;   /* the network is given nothing in the holes */
    struct fill_window windows[FILL_GROUP];
    int room, count;           /* of them: how many have memory; how many are at work */
    struct fill_coarse coarse; /* made when it is needed */
    int batch;
    float *in, *out;
};

/* ---- the network ------------------------------------------------------------------------------------------------- */

struct fill_batch {
    struct fill_window **windows;
    const float *out;
    float *in;
};

static void fill_pack(void *context, int item)
{
    const struct fill_batch *batch = context;
    const struct fill_window *w = batch->windows[item];
    const size_t pixels = (size_t)w->cut->pixels;
    const float *restrict rgb = w->rgb;
    float *restrict to = batch->in + (size_t)item * 4 * pixels;
    for (size_t i = 0; i < 3 * pixels; i++)
        to[i] = rgb[i] / 127.5f - 1;
    memcpy(to + 3 * pixels, w->mask, pixels * sizeof *to);
}

static void fill_unpack(void *context, int item)
{
    const struct fill_batch *batch = context;
    const struct fill_window *w = batch->windows[item];
    const size_t samples = 3 * (size_t)w->cut->pixels;
    const float *restrict from = batch->out + (size_t)item * samples;
    float *restrict rgb = w->rgb;
    for (size_t i = 0; i < samples; i++) {
        const float above = from[i] > -1 ? from[i] : -1;
        rgb[i] = ((above < 1 ? above : 1) + 1) * 127.5f;
    }
}

/* Runs the network on so many windows. */
static enum error_code fill_run(struct fill *f, struct fill_window **windows, int count, struct error *err)
{
    const struct session_shape shape = {.n = count, .h = f->cut.side, .w = f->cut.side};
    const struct run_input input = {.planes = f->in};
    const struct run_output output = {.planes = f->out};
    struct fill_batch batch = {windows, f->out, f->in};
    f->step->r->damage.filled += (double)count * f->cut.pixels / 1e6;
    thread_for(count, fill_pack, &batch);
    enum error_code code = repair_network(f->step, ROLE_FILLER, &shape, &input, &output, err);
    if (code == OK)
        thread_for(count, fill_unpack, &batch);
    return code;
}

/* All windows at work, f->batch at a time, the rest by halves of that: few runs, and few shapes. */
static enum error_code fill_correct(struct fill *f, struct error *err)
{
    struct fill_window *windows[FILL_GROUP];
    enum error_code code = OK;
    int count = 0;
    for (int i = 0; i < f->count; i++)
        if (!f->windows[i].plain)
            windows[count++] = &f->windows[i];
    for (int done = 0, many = f->batch; done < count && code == OK; done += many) {
        while (many > count - done)
            many /= 2;
        code = fill_run(f, windows + done, many, err);
    }
    if (step_too_large(code))
        code = step_no_room(f->step, ROLE_FILLER, err, "%d windows of %d px", f->batch, f->cut.side);
    return code;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void fill_read_item(void *context, int item)
{
    struct fill *f = context;
    fill_read(&f->windows[item]);
}

static void fill_prepare_item(void *context, int item)
{
    struct fill *f = context;
    struct fill_window *w = &f->windows[item];
    fill_prepare(w, w->empty ? &f->coarse : NULL, f->blank);
}

static void fill_roughen_item(void *context, int item)
{
    struct fill *f = context;
    fill_roughen(&f->windows[item]);
}

static int fill_begin(const struct fill_cut *cut, int core, int length)
{
    const int most = length - cut->side, at = core * cut->core - (cut->side - cut->core) / 2;
    return at < most && at > 0 ? at : most > 0 && at > 0 ? most : 0;
}

static enum error_code fill_group(struct fill *f, struct error *err)
{
    bool coarse = false;
    enum error_code code = OK;
    thread_for(f->count, fill_read_item, f);
    for (int i = 0; i < f->count; i++) {
        struct fill_window *w = &f->windows[i];
        w->empty = w->empty && f->large;
        w->plain = w->empty || !f->network;
        coarse = coarse || w->empty;
    }
    if (coarse && !f->coarse.rgb)
        code = fill_make_coarse(&f->coarse, f->picture, f->mask, err);
    if (code != OK)
        return code;
    thread_for(f->count, fill_prepare_item, f);
    code = f->network ? fill_correct(f, err) : OK;
    if (code != OK)
        return code;
    thread_for(f->count, fill_roughen_item, f);
    for (int i = 0; i < f->count; i++)
        fill_changes_add(&f->changes, &f->windows[i]);
    return step_check(f->step, err);
}

/* The windows in the order of the grid, a group at a time. */
static enum error_code fill_windows(struct fill *f, struct error *err)
{
    const int cores = f->cut.rows * f->cut.columns;
    enum error_code code = OK;
    f->count = 0;
    for (int i = 0; i < cores && code == OK; i++) {
        if (!f->used[i])
            continue;
        struct fill_window *w = &f->windows[f->count++];
        w->picture = f->picture;
        w->mask_of = f->mask;
        w->row = i / f->cut.columns;
        w->column = i % f->cut.columns;
        w->x = fill_begin(&f->cut, w->column, f->picture->width);
        w->y = fill_begin(&f->cut, w->row, f->picture->height);
        if (f->count < f->room)
            continue;
        code = fill_group(f, err);
        f->count = 0;
    }
    return code == OK && f->count ? fill_group(f, err) : code;
}

static enum error_code fill_create(struct fill *f, struct error *err)
{
    const size_t pixels = (size_t)f->cut.pixels, cores = (size_t)f->cut.rows * (size_t)f->cut.columns;
    enum error_code code = fill_changes_create(&f->changes, f->mask, f->picture->width, f->picture->height, err);
    if (code != OK)
        return code;
    int needed = 0;
    f->used = mem_calloc(cores, sizeof *f->used);
    if (f->used)
        fill_changes_used(&f->changes, &f->cut, f->used);
    for (size_t i = 0; i < cores && f->used; i++)
        needed += f->used[i];
    bool room = f->used != NULL;
    if (f->network) {
        f->in = mem_alloc((size_t)f->batch * pixels, 4 * sizeof *f->in);
        f->out = mem_alloc((size_t)f->batch * pixels, 3 * sizeof *f->out);
        room = room && f->in && f->out;
    }
    while (room && f->room < FILL_GROUP && f->room < needed)
        room = fill_window_create(&f->windows[f->room++], &f->cut);
    return room ? OK : error_set(err, ERROR_NO_MEMORY, "out of memory for the repair");
}

static void fill_free(struct fill *f)
{
    for (int i = 0; i < f->room; i++)
        fill_window_free(&f->windows[i]);
    fill_changes_free(&f->changes);
    free(f->used);
    free(f->in);
    free(f->out);
    free(f->coarse.rgb);
}

double repair_fill_most(int width, int height, const struct model_info *info)
{
    const struct fill_cut cut = fill_cut(info->side, width, height);
    return (double)cut.columns * cut.rows * cut.pixels / 1e6;
}

enum error_code repair_fill(struct step *step, const uint8_t *mask, double strength, struct error *err)
{
    struct restoration *r = step->r;
    struct image *picture = r->deep && r->deep->pixels ? r->deep->pixels : r->picture;
    const struct model_entry *filler = step->model[ROLE_FILLER];
    struct fill f = {.step = step,
                     .picture = picture,
                     .mask = mask,
                     .cut = fill_cut(filler ? filler->info.side : 0, picture->width, picture->height),
                     .blank = filler && filler->info.side,
                     .network = filler != NULL};
    f.batch = f.network ? step_batch(step) : 0;
    f.batch = f.batch < FILL_BATCH ? f.batch : FILL_BATCH;
    r->damage.filled = 0;
    enum error_code code = fill_create(&f, err);
    f.large = (double)f.changes.holes > (1 - FILL_KNOWN) * f.cut.core * f.cut.core / 2;
    if (code == OK)
        code = fill_windows(&f, err);
    if (code == OK)
        fill_changes_apply(&f.changes, r->picture, NULL, strength);
    if (code == OK && picture != r->picture)
        fill_changes_apply(&f.changes, picture, NULL, strength);
    if (code == OK && r->deep && r->deep->source)
        fill_changes_apply(&f.changes, r->deep->source, r->deep->colour, strength);
    fill_free(&f);
    return code;
}
