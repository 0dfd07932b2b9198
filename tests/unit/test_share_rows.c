/* Tasks of shared tiles as rows of a PostgreSQL: helpers go where tiles are on offer. Skipped where no PostgreSQL is
 * running (tests/postgres.sh). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/listen.h"
#include "server/store/share_rows.h"
#include "server/store/store.h"
#include "tests/common/postgres.h"

#ifndef RESTORED_LIBPQ

int main(void)
{
    printf("skipped: this was built without libpq\n");
    return 0;
}

#else

static struct share_rows *rows;

/* A share_rows_has_fn. */
static bool has(void *context, const char *model)
{
    (void)context;
    return strcmp(model, "other") != 0;
}

static int64_t begin(const char *owner, const char *model)
{
    struct error err = ERROR_INIT;
    int64_t task;
    if (share_rows_begin(rows, owner, owner, "class", model, &task, &err))
        fail_msg("%s", err.text);
    return task;
}

static void offer(int64_t task, int n)
{
    struct error err = ERROR_INIT;
    if (share_rows_offer(rows, task, n, "spec", "input", 5, &err))
        fail_msg("%s", err.text);
}

static int64_t find(void)
{
    struct error err = ERROR_INIT;
    int64_t task;
    char model[256];
    if (share_rows_find(rows, "helper", "class", has, NULL, &task, model, &err))
        fail_msg("%s", err.text);
    return task;
}

static bool claim(int64_t task, bool ahead)
{
    struct error err = ERROR_INIT;
    struct share_tile tile;
    bool found;
    if (share_rows_claim(rows, task, "helper", ahead, &tile, &found, &err))
        fail_msg("%s", err.text);
    free(tile.input);
    return found;
}

static bool is_wanted(int64_t task)
{
    struct error err = ERROR_INIT;
    struct share_look look;
    if (share_rows_look(rows, task, &look, &err))
        fail_msg("%s", err.text);
    return look.wanted;
}

/* A picture without free tiles keeps nobody from another's; where none has any, each is told that they are wanted. */
static void test_find(void **state)
{
    struct error err = ERROR_INIT;
    struct store *store;
    char url[256];
    (void)state;
    if (!postgres_make(url))
        return;
    assert_int_equal(store_open_shared(&store, url, NULL, &err), OK); /* which makes the tables */
    assert_int_equal(share_rows_open(&rows, url, NULL, &err), OK);
    static const char *const alive[] = {"helper", "anna", "ben", "carl"};
    for (size_t i = 0; i < sizeof alive / sizeof *alive; i++)
        assert_int_equal(store_worker(store, alive[i], store_clock(store), "{}", &err), OK);
    assert_int_equal(find(), 0);
    const int64_t other = begin("carl", "other"), first = begin("anna", "model"), second = begin("ben", "model");
    offer(other, 0);
    assert_int_equal(find(), first);
    assert_int_equal(find(), second);
    assert_true(is_wanted(first) && is_wanted(second) && !is_wanted(other));
    offer(first, 0);
    offer(second, 0);
    offer(second, 1);
    assert_int_equal(find(), first);
    assert_true(claim(first, false));
    offer(first, 1);
    assert_false(claim(first, true)); /* another helper would lack it */
    offer(first, 2);
    assert_true(claim(first, true));
    assert_false(claim(first, true));
    assert_true(claim(first, false));
    for (int i = 0; i < 2; i++) { /* the oldest has none that is free */
        assert_int_equal(find(), second);
        assert_true(claim(second, false));
    }
    assert_false(claim(second, false));
    share_rows_close(&rows);
    store_close(&store);
    postgres_remove();
}

/* A listen_fn. */
static void hear(void *context, const char *text)
{
    *(bool *)context |= !strcmp(text, SHARE_CALL);
}

/* A task that begins calls those who may help. */
static void test_call(void **state)
{
    struct error err = ERROR_INIT;
    struct store *store;
    struct listen *listen;
    char url[256];
    bool called = false;
    (void)state;
    if (!postgres_make(url))
        return;
    assert_int_equal(store_open_shared(&store, url, NULL, &err), OK);
    assert_int_equal(share_rows_open(&rows, url, NULL, &err), OK);
    assert_int_equal(listen_open(&listen, url, NULL, &err), OK);
    bool connected = false;
    for (int i = 0; i < 600 && !connected; i++)
        connected = listen_wait(listen, 1000, hear, &called);
    assert_true(connected);
    begin("anna", "model");
    for (int i = 0; i < 600 && !called; i++)
        (void)listen_wait(listen, 1000, hear, &called);
    assert_true(called);
    listen_close(&listen);
    share_rows_close(&rows);
    store_close(&store);
    postgres_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_find), cmocka_unit_test(test_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
