/* The store of jobs: who goes first, leases, fences and attempts, alike in both engines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/store/hook_rows.h"
#include "tests/common/store_case.h"

static void test_turns(void **state)
{
    (void)state;
    static const char *const first[] = {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10"};
    struct store_job low = case_job("z1", "c"), taken;
    low.low = true;
    case_insert(&low);
    for (size_t i = 0; i < 10; i++)
        case_put(first[i], "a");
    case_put("b1", "b");
    assert_true(case_claim(&taken, 5000));
    assert_string_equal(taken.id, "a1");
    store_job_clear(&taken);
    assert_true(case_claim(&taken, 5000));
    assert_string_equal(taken.id, "b1");
    store_job_clear(&taken);
    case_put("b2", "b"); /* its turn is the one that waits first */
    case_put("b3", "b");
    case_put("d1", "d");
    strcpy(low.id, "z2");
    strcpy(low.client, "a"); /* a's normal jobs do not delay its low ones among the low ones */
    case_insert(&low);
    case_expect_order("a2 b2 d1 a3 b3 a4 a5 a6 a7 a8 a9 a10 z1 z2");
}

static void test_life(void **state)
{
    (void)state;
    struct store_job job = case_job("a1", "token t"), other;
    bool held, cancel, found;
    strcpy(job.token, "t");
    strcpy(job.batch, "holiday");
    strcpy(job.name, "photo \"1\".jpg");
    case_insert(&job);
    assert_int_equal(case_state("a1"), STORE_QUEUED);
    assert_true(case_claim(&other, 2000));
    assert_false(case_claim(&job, 2000));
    assert_string_equal(other.name, "photo \"1\".jpg");
    assert_string_equal(other.batch, "holiday");
    assert_string_equal(other.options, "{\"upscale\": 2}");
    assert_true(other.state == STORE_RUNNING && other.attempts == 1 && other.started == 2000 && other.lease == 2100);
    assert_true(other.seconds == 2 && other.megapixels == 1.5 && other.input_bytes == 77 && !other.low);
    FINE(store_renew(case_store, "a1", "me", 1, 2500, &held, &cancel, &case_err));
    assert_true(held && !cancel);
    FINE(store_renew(case_store, "a1", "another", 1, 2500, &held, &cancel, &case_err));
    assert_false(held);
    other.state = STORE_DONE;
    other.finished = 2300;
    other.expires = 9000;
    other.output_bytes = 1234;
    other.report = strdup("{\"faces\": []}");
    other.parts = strdup("[]");
    FINE(store_finish(case_store, &other, "me", &held, &case_err));
    assert_true(held);
    store_job_clear(&other);
    other = case_get("a1");
    assert_string_equal(other.report, "{\"faces\": []}");
    assert_string_equal(other.parts, "[]");
    assert_null(other.error);
    assert_true(other.state == STORE_DONE && other.finished == 2300 && other.output_bytes == 1234);
    assert_true(other.expires == 9000 && other.lease == 0);
    store_job_clear(&other);
    FINE(store_forget(case_store, "a1", &found, &case_err));
    assert_true(found);
    FINE(store_get(case_store, "a1", &other, &found, &case_err));
    assert_false(found);
    FINE(store_forget(case_store, "a1", &found, &case_err));
    assert_false(found);
}

static void test_fence(void **state)
{
    (void)state;
    struct store_job job;
    bool held, cancel, found;
    case_put("a1", "a");
    FINE(store_claim(case_store, "first", 1000, 1100, 9000, 3, &job, &found, NULL, NULL, &case_err));
    assert_true(found && job.attempts == 1);
    store_job_clear(&job);
    FINE(store_claim(case_store, "second", 1099, 1200, 9000, 3, &job, &found, NULL, NULL, &case_err));
    assert_false(found);
    assert_string_equal(job.id, "");
    FINE(store_claim(case_store, "second", 1100, 1200, 9000, 3, &job, &found, NULL, NULL, &case_err));
    assert_true(found && job.attempts == 2 && job.started == 1100);
    store_job_clear(&job);
    FINE(store_renew(case_store, "a1", "first", 1, 5000, &held, &cancel, &case_err));
    assert_false(held);
    assert_int_equal(case_finish("a1", "first", 1, &held), OK);
    assert_false(held);
    assert_int_equal(case_finish("a1", "second", 1, &held), OK); /* an attempt of its own that was given up */
    assert_false(held);
    assert_int_equal(case_state("a1"), STORE_RUNNING);
    job = case_get("a1");
    assert_null(job.report);
    assert_true(job.lease == 1200);
    store_job_clear(&job);
    assert_int_equal(case_finish("a1", "second", 2, &held), OK);
    assert_true(held);
    assert_int_equal(case_finish("a1", "second", 2, &held), OK);
    assert_false(held);
    assert_int_equal(case_finish("b1", "second", 2, &held), OK);
    assert_false(held);
    job = (struct store_job){.id = "a1", .state = STORE_RUNNING};
    assert_int_equal(store_finish(case_store, &job, "second", &held, &case_err), ERROR_INTERNAL);
}

static void test_attempts(void **state)
{
    (void)state;
    struct store_job job;
    case_put("a1", "a");
    case_put("a2", "a");
    for (int attempt = 1; attempt <= 3; attempt++) { /* the same one, in its place before the other */
        assert_true(case_claim(&job, attempt * 1000));
        assert_string_equal(job.id, "a1");
        assert_int_equal(job.attempts, attempt);
        store_job_clear(&job);
    }
    assert_true(case_claim(&job, 4000));
    assert_string_equal(job.id, "a2");
    store_job_clear(&job);
    job = case_get("a1");
    assert_true(job.state == STORE_FAILED && job.finished == 4000 && job.expires == 5000 && job.attempts == 3);
    assert_non_null(strstr(job.error, "\"code\": \"internal\""));
    assert_non_null(strstr(job.error, "3 times"));
    store_job_clear(&job);
}

static void test_recover(void **state)
{
    (void)state;
    enum store_state before;
    struct store_job job;
    bool found;
    case_put("a1", "a");
    case_put("a2", "a");
    case_put("a3", "a");
    case_put("b1", "b");
    for (int i = 0; i < 3; i++) { /* a1, b1, a2 */
        assert_true(case_claim(&job, 2000));
        store_job_clear(&job);
    }
    FINE(store_cancel(case_store, "b1", 2000, 9000, &before, &found, &case_err));
    assert_true(found && before == STORE_RUNNING);
    store_close(&case_store);
    FINE(case_open());
    FINE(store_recover(case_store, 2050, 7000, 3, &case_err)); /* leases that are not over count no more */
    job = case_get("b1");
    assert_true(job.state == STORE_CANCELLED && job.finished == 2050 && job.expires == 7000 && !job.cancel);
    assert_null(job.error);
    store_job_clear(&job);
    job = case_get("a2");
    assert_true(job.state == STORE_QUEUED && job.started == 0 && job.attempts == 1 && job.lease == 0);
    store_job_clear(&job);
    case_put("b2", "b");
    case_expect_order("a1 b2 a2 a3");
    FINE(store_recover(case_store, 6000, 7000, 2, &case_err));
    job = case_get("a1");
    assert_true(job.state == STORE_FAILED && job.attempts == 2 && job.finished == 6000 && job.expires == 7000);
    assert_non_null(strstr(job.error, "2 times"));
    store_job_clear(&job);
    case_expect_order("b2 a3");
}

/* Where nothing waits, a new job does not get in front of those at work, should they have to wait again. */
static void test_give_back(void **state)
{
    (void)state;
    static const char *const ids[] = {"a1", "a2", "a3"};
    enum store_state before;
    struct store_job job;
    bool found;
    for (int i = 0; i < 3; i++)
        case_put(ids[i], "a");
    for (int i = 0; i < 3; i++) {
        assert_true(case_claim(&job, 2000));
        store_job_clear(&job);
    }
    case_put("b1", "b");
    FINE(store_give_back(case_store, "a3", "me", 2, &case_err)); /* another attempt's */
    assert_int_equal(case_state("a3"), STORE_RUNNING);
    FINE(store_give_back(case_store, "a3", "me", 1, &case_err));
    job = case_get("a3");
    assert_true(job.state == STORE_QUEUED && job.attempts == 0 && job.started == 0 && job.lease == 0);
    store_job_clear(&job);
    FINE(store_cancel(case_store, "a1", 2000, 9000, &before, &found, &case_err));
    FINE(store_give_back(case_store, "a1", "me", 1, &case_err));
    assert_true(case_claim(&job, 2050)); /* the leases of the others go on */
    assert_string_equal(job.id, "a3");
    store_job_clear(&job);
    assert_int_equal(case_state("a1"), STORE_CANCELLED);
    assert_int_equal(case_state("a2"), STORE_RUNNING);
    assert_true(case_claim(&job, 2050));
    assert_string_equal(job.id, "b1");
    store_job_clear(&job);
}

static void test_cancel(void **state)
{
    (void)state;
    enum store_state before;
    struct store_job job;
    bool found, held, cancel;
    case_put("a1", "a");
    case_put("a2", "a");
    assert_true(case_claim(&job, 2000));
    store_job_clear(&job);
    FINE(store_cancel(case_store, "a2", 2001, 9000, &before, &found, &case_err));
    assert_true(found && before == STORE_QUEUED);
    job = case_get("a2");
    assert_true(job.state == STORE_CANCELLED && job.finished == 2001 && job.expires == 9000 && !job.cancel);
    store_job_clear(&job);
    FINE(store_cancel(case_store, "a2", 2002, 9999, &before, &found, &case_err));
    assert_true(found && before == STORE_CANCELLED);
    job = case_get("a2");
    assert_true(job.expires == 9000);
    store_job_clear(&job);
    FINE(store_forget(case_store, "a1", &found, &case_err)); /* it has not ended */
    assert_false(found);
    FINE(store_cancel(case_store, "a1", 2002, 9000, &before, &found, &case_err));
    assert_true(found && before == STORE_RUNNING);
    job = case_get("a1");
    assert_true(job.state == STORE_RUNNING && job.cancel);
    store_job_clear(&job);
    FINE(store_renew(case_store, "a1", "me", 1, 3000, &held, &cancel, &case_err));
    assert_true(held && cancel);
    FINE(store_cancel(case_store, "b1", 2002, 9000, &before, &found, &case_err));
    assert_false(found);
}

/* A job that waits, or is still that attempt of its owner, becomes another owner's who has its result. */
static void test_adopt(void **state)
{
    struct store_job job;
    bool held, found;
    int attempts;
    enum store_state before;
    (void)state;
    case_put("a1", "a");
    FINE(store_adopt(case_store, "none", "old", 1, "new", 9000, &attempts, &held, &case_err));
    assert_false(held);
    for (int i = 0; i < 2; i++) { /* it waits; then whoever had no answer asks again */
        FINE(store_adopt(case_store, "a1", "old", 3, "new", 9000, &attempts, &held, &case_err));
        assert_true(held);
        assert_int_equal(attempts, 1);
    }
    FINE(store_adopt(case_store, "a1", "old", 1, "other", 9000, &attempts, &held, &case_err));
    assert_false(held);
    FINE(store_adopt(case_store, "a1", "new", 2, "other", 9000, &attempts, &held, &case_err));
    assert_false(held);
    FINE(store_adopt(case_store, "a1", "new", 1, "other", 9000, &attempts, &held, &case_err));
    assert_true(held);
    job = case_get("a1");
    assert_string_equal(job.owner, "other");
    assert_int_equal(job.lease, 9000);
    store_job_clear(&job);
    FINE(store_cancel(case_store, "a1", 2000, 9000, &before, &found, &case_err));
    FINE(store_adopt(case_store, "a1", "other", 1, "new", 9000, &attempts, &held, &case_err));
    assert_false(held); /* it is to stop */
}

struct case_hooks {
    int count;
    char last[100];
};

static void case_hook(void *context, const char *job, const char *about)
{
    struct case_hooks *hooks = context;
    hooks->count++;
    snprintf(hooks->last, sizeof hooks->last, "%s %s", job, about);
}

/* A webhook is one server's until its lease is over; then another's, once. In a store of one server, its next start's.
 */
static void test_hooks(void **state)
{
    struct case_hooks taken = {0}, again = {0};
    (void)state;
    FINE(hook_rows_add(case_store, "a1", "{\"x\":\"\\\"start\\\":true\",\"start\":true}", "first", 1000, &case_err));
    FINE(hook_rows_add(case_store, "a1", "{2}", "other", 5000, &case_err)); /* the same request again */
    FINE(hook_rows_renew(case_store, "first", 2000, &case_err));
    FINE(hook_rows_told(case_store, "other", "[\"a1\"]", &case_err));
    FINE(hook_rows_told(case_store, "first", "[\"b1\"]", &case_err));
    FINE(hook_rows_take(case_store, "first", 9000, 9000, 10, case_hook, &again, &case_err));
    if (store_shared(case_store))
        FINE(hook_rows_take(case_store, "second", 1999, 9000, 10, case_hook, &again, &case_err));
    assert_int_equal(again.count, 0);
    FINE(hook_rows_take(case_store, "second", 2000, 9000, 0, case_hook, &again, &case_err));
    assert_int_equal(again.count, 0);
    FINE(hook_rows_take(case_store, "second", 2000, 9000, 10, case_hook, &taken, &case_err));
    assert_int_equal(taken.count, 1);
    assert_string_equal(taken.last, "a1 {\"x\":\"\\\"start\\\":true\",\"start\":true}");
    FINE(hook_rows_told(case_store, "second", "[\"b1\", \"a1\"]", &case_err));
    FINE(hook_rows_renew(case_store, "first", 0, &case_err)); /* it comes late, and has none any more */
    FINE(hook_rows_done(case_store, "first", "[\"a1\"]", &case_err));
    if (store_shared(case_store))
        FINE(hook_rows_take(case_store, "third", 8999, 9000, 10, case_hook, &again, &case_err));
    assert_int_equal(again.count, 0);
    FINE(hook_rows_take(case_store, "third", 9000, 9000, 10, case_hook, &taken, &case_err));
    assert_string_equal(taken.last, "a1 {\"x\":\"\\\"start\\\":true\",\"start\":false}");
    FINE(hook_rows_take(case_store, "second", 9000, 9000, 10, case_hook, &taken, &case_err));
    FINE(hook_rows_done(case_store, "second", "[\"b1\", \"a1\"]", &case_err));
    FINE(hook_rows_take(case_store, "third", 9999, 9999, 10, case_hook, &again, &case_err));
    assert_int_equal(again.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),    cmocka_unit_test(test_life),    cmocka_unit_test(test_fence),
        cmocka_unit_test(test_attempts), cmocka_unit_test(test_recover), cmocka_unit_test(test_give_back),
        cmocka_unit_test(test_cancel),   cmocka_unit_test(test_adopt),   cmocka_unit_test(test_hooks),
    };
    return case_run(tests, sizeof tests / sizeof *tests, true);
}
