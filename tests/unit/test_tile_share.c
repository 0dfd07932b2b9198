/* A picture's tiles shared with helpers that do whatever they like: the bytes of one that nobody helps with, and
 * nothing is lost when it ends early. A second engine of this thread is the helper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/fault.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "server/job/engine.h"
#include "tests/common/models.h"
#include "tests/common/picture.h"
#include "tests/common/restoration.h"

#define TILES 32

static struct model_store *store;
static struct engine *owner, *other;
static struct file input;

/* A tile that was handed out; held: somebody has taken it. */
struct handed {
    bool here, held;
    struct tile_order order;
    void *input;
};

enum manner { RANDOM, LATE, NOBODY, BROKEN, CANCELS };

static struct fake {
    enum manner manner;
    unsigned random;
    const struct model_entry *entry;
    enum precision precision;
    struct restoration *r;
    struct handed tiles[TILES];
    int begun, ended, offered, fetched, taken, dropped;
} fake;

static unsigned chance(unsigned of)
{
    return picture_random(&fake.random) % of;
}

static void forget(int n)
{
    free(fake.tiles[n].input);
    fake.tiles[n] = (struct handed){0};
}

static void *fake_begin(void *user, const struct model_entry *entry, enum precision precision)
{
    fake.entry = entry;
    fake.precision = precision;
    fake.begun++;
    return user;
}

static int fake_room(void *task)
{
    (void)task;
    return fake.manner == RANDOM ? (int)chance(4) : TILES;
}

static void fake_offer(void *task, int n, const struct tile_order *order, void *bytes)
{
    (void)task;
    assert_in_range(n, 0, TILES - 1);
    assert_false(fake.tiles[n].here);
    assert_true(tile_order_valid(order));
    if (fake.manner == RANDOM && !chance(8)) { /* it is lost */
        free(bytes);
        return;
    }
    fake.tiles[n] = (struct handed){.here = true, .held = chance(3) > 0, .order = *order, .input = bytes};
    fake.offered++;
}

static enum tile_place fake_ask(void *task, int n)
{
    (void)task;
    if (!fake.tiles[n].here)
        return TILE_OURS;
    if (fake.manner == CANCELS)
        atomic_store(&fake.r->cancel, 1);
    if (fake.manner == CANCELS || (fake.manner == LATE && n == 1))
        return TILE_HELD;
    if (fake.manner == NOBODY || (fake.manner == RANDOM && !fake.tiles[n].held)) { /* nobody took it */
        forget(n);
        return TILE_OURS;
    }
    return fake.manner == RANDOM && chance(2) ? TILE_HELD : TILE_DONE;
}

static int fake_take(void *task)
{
    (void)task;
    for (int n = 0; n < TILES; n++)
        if (fake.tiles[n].here && !fake.tiles[n].held) {
            forget(n);
            fake.taken++;
            return n;
        }
    return -1;
}

static bool fake_fetch(void *task, int n, void *output, size_t bytes)
{
    struct error err = ERROR_INIT;
    struct handed *tile = &fake.tiles[n];
    (void)task;
    assert_true(tile->here);
    assert_int_equal(bytes, tile_order_output(&tile->order));
    if (fake.manner == BROKEN) {
        memset(output, 0xff, bytes); /* NaN in planes */
        return !tile->order.done.width;
    }
    if (engine_help(other, &tile->order, fake.entry, fake.precision, tile->input, output, NULL, &err))
        fail_msg("%s", err.text);
    forget(n);
    fake.fetched++;
    return true;
}

static void fake_drop(void *task, int n)
{
    (void)task;
    forget(n);
    fake.dropped++;
}

static void fake_end(void *task)
{
    (void)task;
    for (int n = 0; n < TILES; n++)
        forget(n);
    fake.ended++;
}

static const struct helpers helpers = {.user = &fake,
                                       .pixels = 1,
                                       .begin = fake_begin,
                                       .room = fake_room,
                                       .offer = fake_offer,
                                       .ask = fake_ask,
                                       .take = fake_take,
                                       .fetch = fake_fetch,
                                       .drop = fake_drop,
                                       .end = fake_end};

static int open_all(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    log_set_level(LOG_ERROR);
    store = models_of_fixtures();
    if (engine_create(&owner, "cpu", NULL, store, NULL, &err) || engine_create(&other, "cpu", NULL, store, NULL, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    engine_destroy(&owner);
    engine_destroy(&other);
    file_unmap(&input);
    model_store_destroy(&store);
    return 0;
}

/* options: name, value, ..., NULL */
static struct restoration *run(const char *picture, const char *const *options, const struct helpers *who,
                               enum error_code expected)
{
    struct error err = ERROR_INIT;
    struct restoration *r = restoration_of(&input, picture, options);
    fake.r = r;
    engine_set_helpers(owner, who);
    const enum error_code code = engine_run(owner, r, &err);
    if (code != expected)
        fail_msg("%s: %s", picture, err.text);
    return r;
}

/* With helpers of that manner; the same is made of it as without. */
static void check(const char *picture, const char *const *options, enum manner manner, unsigned seed,
                  const struct restoration *wanted)
{
    fake = (struct fake){.manner = manner, .random = seed};
    struct restoration *got = run(picture, options, &helpers, OK);
    assert_int_equal(fake.begun, 1);
    assert_int_equal(fake.ended, 1);
    assert_true(manner == RANDOM || fake.offered > 0);
    assert_int_equal(got->shared, fake.fetched);
    assert_int_equal(atomic_load(&got->tiles_done), got->tiles);
    assert_int_equal(got->output_bytes, wanted->output_bytes);
    assert_memory_equal(got->output, wanted->output, wanted->output_bytes);
    restoration_destroy(&got);
}

static const char *const ways[][2][13] = {
    {{"two.png"}, {"version", "none", "bg_upsampler", "srvgg_x2", "bg_tile", "64"}},                   /* bytes */
    {{"two.png"}, {"version", "face_64", "bg_upsampler", "srvgg_x2", "bg_tile", "64", "weight", "1"}}, /* faces over */
    {{"two.png"}, {"version", "none", "bg_upsampler", "upscaler", "bg_tile", "64"}},                   /* blended */
    {{"deep.png"}, {"version", "none", "bg_upsampler", "srvgg_x2", "bg_tile", "32", "upscale", "1"}},  /* resized */
    {{"two.png"}, {"version", "none", "bg_upsampler", "srvgg_x2", "bg_tile", "64", "upscale", "3"}},
};

static void any_order_gives_the_same_bytes(void **state)
{
    (void)state;
    const unsigned seeds = getenv("RESTORED_FULL") ? 40 : 1; /* the long form (make check-long) */
    int fetched = 0, taken = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct restoration *wanted = run(ways[i][0][0], ways[i][1], NULL, OK);
        for (unsigned seed = 1; seed <= seeds; seed++) {
            check(ways[i][0][0], ways[i][1], RANDOM, seed + 100 * (unsigned)i, wanted);
            fetched += fake.fetched;
            taken += fake.taken;
        }
        restoration_destroy(&wanted);
    }
    assert_true(fetched > 0 && taken > 0);
}

/* One tile is never brought back: it is not waited for longer than for some of our own. */
static void who_takes_too_long_is_not_waited_for(void **state)
{
    (void)state;
    struct restoration *wanted = run(ways[0][0][0], ways[0][1], NULL, OK);
    check(ways[0][0][0], ways[0][1], LATE, 1, wanted);
    assert_int_equal(fake.dropped, 1);
    restoration_destroy(&wanted);
}

/* Results of no use: everything is made here. */
static void no_help_is_no_harm(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i += 2) {
        struct restoration *wanted = run(ways[i][0][0], ways[i][1], NULL, OK);
        check(ways[i][0][0], ways[i][1], BROKEN, 1, wanted);
        assert_int_equal(fake.fetched, 0);
        restoration_destroy(&wanted);
    }
}

/* Everything once more in fp32, which nobody helps with. */
static void a_refused_result_ends_the_sharing(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct restoration *wanted = run(ways[2][0][0], ways[2][1], NULL, OK);
    engine_destroy(&owner);
    if (fault_set("nan@run:2,plan=upscaler", &err) || engine_create(&owner, "cpu", NULL, store, NULL, &err))
        fail_msg("%s", err.text);
    check(ways[2][0][0], ways[2][1], NOBODY, 1, wanted);
    assert_int_equal(fault_injected(), 1);
    assert_int_equal(fault_set(NULL, &err), OK);
    restoration_destroy(&wanted);
}

/* While tiles are out, and others are kept for later. */
static void it_ends_when_it_is_cancelled(void **state)
{
    (void)state;
    fake = (struct fake){.manner = CANCELS, .random = 1};
    struct restoration *r = run(ways[2][0][0], ways[2][1], &helpers, ERROR_CANCELLED);
    assert_true(fake.offered > 0);
    assert_int_equal(fake.begun, fake.ended);
    restoration_destroy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_same_bytes),
        cmocka_unit_test(who_takes_too_long_is_not_waited_for),
        cmocka_unit_test(no_help_is_no_harm),
        cmocka_unit_test(a_refused_result_ends_the_sharing),
        cmocka_unit_test(it_ends_when_it_is_cancelled),
    };
    return cmocka_run_group_tests_name("shared tiles", tests, open_all, close_all);
}
