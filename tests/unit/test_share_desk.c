/* Whoever shares a picture and two who help, each with a thread that talks to the database: every tile is made once,
 * its result is that of whoever made it, and no row stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef RESTORED_LIBPQ

int main(void)
{
    puts("[  SKIPPED ] shared tiles: this program was built without libpq");
    return 0;
}

#else

#include <pthread.h>

#include "server/job/share_ahead.h"
#include "server/job/share_desk.h"
#include "server/store/store.h"
#include "tests/common/postgres.h"

#define TILES 40
#define SIZE 5000 /* bytes of a window and of its result */

static char url[256];
static int64_t task;
static atomic_int over;
static _Atomic uint64_t given;

static void fill(uint8_t bytes[SIZE], int n, int add)
{
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 7 + n + add);
}

struct helper {
    const char *name;
    pthread_t thread;
    int made;
    struct error err;
};

/* Adds 1 to each byte of every tile that it gets; the first one it gives back. */
static void *help(void *argument)
{
    struct helper *helper = argument;
    struct share_ahead *ahead = NULL;
    struct share_rows *rows = NULL;
    if (!share_rows_open(&rows, url, NULL, &helper->err) &&
        !share_ahead_create(&ahead, url, NULL, helper->name, &given, &helper->err))
        while (!atomic_load(&over) && !helper->err.code) {
            struct share_tile tile = {0};
            bool broken = false, found = share_ahead_take(ahead, &tile, &broken);
            if (broken || (!found && share_rows_claim(rows, task, helper->name, false, &tile, &found, &helper->err)))
                break;
            if (!found) {
                usleep(2000);
                continue;
            }
            share_ahead_fetch(ahead, task);
            uint8_t *output = malloc(SIZE);
            for (size_t i = 0; output && i < tile.size; i++)
                output[i] = (uint8_t)(((uint8_t *)tile.input)[i] + 1);
            if (helper->made++ || !output) {
                share_ahead_deliver(ahead, &tile, output, SIZE);
            } else { /* it has a job of its own */
                share_ahead_leave(ahead);
                (void)!share_rows_return(rows, &tile, helper->name, false, &helper->err);
                free(output);
            }
            free(tile.input);
        }
    share_ahead_destroy(&ahead);
    share_rows_close(&rows);
    return NULL;
}

static void put(struct share_desk *desk, int n)
{
    uint8_t *window = malloc(SIZE);
    assert_non_null(window);
    fill(window, n, 0);
    share_desk_put(desk, n, "spec", window, SIZE, SIZE);
}

static void test_all_of_them(void **state)
{
    struct error err = ERROR_INIT;
    struct store *store;
    struct share_rows *rows;
    struct share_desk *desk;
    struct helper helpers[] = {{.name = "ben"}, {.name = "carl"}};
    (void)state;
    if (!postgres_make(url))
        return;
    assert_int_equal(store_open_shared(&store, url, NULL, &err), OK);
    assert_int_equal(store_worker(store, "anna", store_clock(store), "{}", &err), OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(store_worker(store, helpers[i].name, store_clock(store), "{}", &err), OK);
    assert_int_equal(share_rows_open(&rows, url, NULL, &err), OK);
    assert_int_equal(share_rows_begin(rows, "anna", "job", "class", "model", &task, &err), OK);
    assert_int_equal(share_desk_create(&desk, url, NULL, rows, &err), OK);
    share_desk_open(desk, task);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&helpers[i].thread, NULL, help, &helpers[i]), 0);

    int offered = 0, theirs = 0;
    bool ours[TILES] = {false};
    for (int n = 0; n < TILES;) {
        for (int room = share_desk_room(desk); room > 0 && offered < TILES; room--)
            put(desk, offered++);
        if (n == 0 && atomic_load(&given) < 4) { /* else all would be ours before anybody helps */
            usleep(1000);
            continue;
        }
        const enum desk_place place = ours[n] ? DESK_NOWHERE : share_desk_ask(desk, n);
        if (place == DESK_HERE) {
            uint8_t bytes[SIZE], wanted[SIZE];
            fill(wanted, n, 1);
            assert_true(share_desk_fetch(desk, n, bytes, SIZE));
            assert_false(share_desk_fetch(desk, n, bytes, SIZE));
            assert_memory_equal(bytes, wanted, SIZE);
            theirs++;
        }
        const int more = place == DESK_ELSEWHERE && n % 8 == 7 ? share_desk_take(desk) : -1;
        if (more >= 0) {
            assert_in_range(more, n, offered - 1); /* n itself, where a helper has just given it back */
            assert_false(ours[more]);
            ours[more] = true;
        }
        if (place == DESK_ELSEWHERE)
            usleep(1000);
        else
            n++;
    }
    struct error why = ERROR_INIT;
    assert_in_range(theirs, 4, TILES);
    assert_int_equal(postgres_sql("SELECT count(*) FROM shared_tiles_1"), 0);
    assert_false(share_desk_broken(desk, &why));
    share_desk_close(desk);
    assert_int_equal(share_rows_end(rows, "anna", "job", &err), OK);
    share_desk_open(desk, task); /* which is gone */
    while (!share_desk_broken(desk, &why))
        usleep(1000);
    assert_int_equal(share_desk_ask(desk, 0), DESK_NOWHERE);
    atomic_store(&over, 1);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(helpers[i].thread, NULL);
        assert_int_equal(helpers[i].err.code, OK);
    }
    share_desk_destroy(&desk);
    share_rows_close(&rows);
    store_close(&store);
    postgres_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_of_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
