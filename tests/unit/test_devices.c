/* Which devices jobs run on, of machines made up here; and what the table says of their work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "server/job/devices.h"

static struct device_info device(const char *id, const char *name, enum device_type type)
{
    struct device_info info = {.type = type, .usable = true};
    snprintf(info.id, sizeof info.id, "%s", id);
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.uuid, sizeof info.uuid, "00000000-0000-0000-0000-%012x",
             (unsigned)(strlen(name) * 100 + (unsigned char)id[strlen(id) - 1]));
    return info;
}

static struct devices *machine(const struct device_info *list, size_t count, const char *wanted)
{
    struct devices *devices;
    struct error err = ERROR_INIT;
    assert_int_equal(devices_create(&devices, list, count, &err), OK);
    if (devices_choose(devices, wanted, &err))
        fail_msg("%s", err.text);
    return devices;
}

/* A rack: four GPUs of one kind, an integrated one, the CPU, llvmpipe; in the order of device_list. */
enum { GPU0, GPU1, GPU2, GPU3, INTEGRATED, CPU, SOFTWARE, RACK };

static void rack(struct device_info list[RACK])
{
    for (int i = 0; i < 4; i++) {
        char id[32];
        snprintf(id, sizeof id, "vulkan:%d", i);
        list[i] = device(id, "Big GPU", DEVICE_DISCRETE);
    }
    list[INTEGRATED] = device("vulkan:4", "Little GPU", DEVICE_INTEGRATED);
    list[CPU] = device("cpu", "Processor", DEVICE_CPU);
    list[SOFTWARE] = device("vulkan:5", "llvmpipe (LLVM 15.0.6, 256 bits)", DEVICE_SOFTWARE);
}

static void fail_test(struct devices *devices, int number)
{
    const struct selftest test = {.fp32 = {.state = SELFTEST_FAILED, .max_error = 0.5, .reason = "1+2 is 4"}};
    devices_tested(devices, number, &test);
}

static void lose(struct devices *devices, int number)
{
    devices_down(devices, number, NULL, "it fell off the bus");
}

static struct device_status *read_all(struct devices *devices)
{
    struct device_status *list;
    struct error err = ERROR_INIT;
    size_t count;
    assert_int_equal(devices_read(devices, &list, &count, &err), OK);
    return list;
}

static void test_auto(void **state)
{
    (void)state;
    struct device_info list[RACK];
    rack(list);
    struct devices *devices = machine(list, RACK, "auto");
    assert_int_equal(devices_route(devices, 0), 0xf); /* every discrete one */
    devices_destroy(&devices);

    list[GPU1].usable = false;
    devices = machine(list, RACK, "AUTO");
    assert_int_equal(devices_route(devices, 0), 0xd);
    devices_destroy(&devices);

    devices = machine(list + INTEGRATED, 3, ""); /* no discrete one */
    assert_int_equal(devices_route(devices, 0), 1);
    devices_destroy(&devices);
    devices = machine(list + CPU, 2, "auto"); /* no GPU */
    assert_int_equal(devices_route(devices, 0), 1);
    devices_destroy(&devices);
    devices = machine(list + SOFTWARE, 1, "auto"); /* software never by itself */
    assert_int_equal(devices_route(devices, 0), 0);
    devices_destroy(&devices);
    devices = machine(list, 0, "auto");
    assert_int_equal(devices_route(devices, 0), 0);
    devices_destroy(&devices);
}

static void test_named(void **state)
{
    (void)state;
    struct device_info list[RACK];
    rack(list);
    const struct {
        const char *wanted, *order; /* the table's: those that are named come first, the others stay as they were */
        uint32_t chosen;
    } cases[] = {{"vulkan:2", "2013 4c5", 1},
                 {"CPU", "c0123 45", 1},
                 {"little", "4 0123c5", 1},
                 {"Big GPU", "0123 4c5", 1}, /* exact: the first */
                 {list[GPU3].uuid, "3012 4c5", 1},
                 {"cpu, vulkan:1", "c1 02345", 3},
                 {"vulkan:1,cpu,vulkan:0", "1c0 2345", 7},
                 {"vulkan:3,little,vulkan:3,vulkan:1", "341 02c5", 7},
                 {"vulkan:5,vulkan:5,", "5 01234c", 1},
                 {"llvmpipe (LLVM 15.0.6, 256 bits)", "501234c", 1}, /* a name with a comma */
                 {"llvmpipe", "501234c", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct devices *devices = machine(list, RACK, cases[i].wanted);
        assert_int_equal(devices_chosen(devices, 0), cases[i].chosen);
        assert_int_equal(devices_route(devices, 0), cases[i].chosen);
        int number = 0;
        for (const char *id = cases[i].order; *id; id++)
            if (*id != ' ') {
                const char *is = devices_id(devices, number++);
                assert_int_equal(!strcmp(is, "cpu") ? 'c' : is[strlen(is) - 1], *id);
            }
        assert_int_equal(number, RACK);
        struct device_status *status = read_all(devices);
        for (int k = 0; k < RACK; k++)
            assert_int_equal(status[k].is_default, k == 0);
        free(status);
        devices_destroy(&devices);
    }
    const char *const wrong[][2] = {
        {"nope",
         "device: \"nope\" is none of the devices; there are: vulkan:0, vulkan:1, vulkan:2, vulkan:3, vulkan:4, "
         "cpu, vulkan:5"},
        {"gpu", "device: \"gpu\" fits several devices; there are: "},
        {"0", "device: \"0\" is none of the devices; "}, /* though "llvmpipe (LLVM 15.0.6..." has one */
        {"15", "device: \"15\" is none of the devices; "},
        {"l", "device: \"l\" is none of the devices; "},
        {"cpu,nope", "device: \"nope\" is none"},
        {"vulkan:0,auto", "device: \"auto\" cannot be part of a list"},
        {",,", "names no device"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct devices *devices;
        struct error err = ERROR_INIT;
        assert_int_equal(devices_create(&devices, list, RACK, &err), OK);
        assert_int_equal(devices_choose(devices, wrong[i][0], &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, wrong[i][1]));
        devices_destroy(&devices);
    }
}

/* Where no GPU is listed, the error says who knows why. */
static void test_hint(void **state)
{
    (void)state;
    struct device_info list[RACK];
    rack(list);
    for (int first = INTEGRATED; first <= CPU; first++) {
        struct devices *devices = machine(list + first, (size_t)(RACK - first), "auto");
        struct error err = ERROR_INIT;
        int number;
        assert_int_equal(devices_find(devices, "vulkan:0", &number, &err), ERROR_INVALID);
        assert_string_equal(err.text, first == CPU
                                          ? "device: \"vulkan:0\" is none of the devices; there are: cpu, vulkan:5; "
                                            "restored doctor says why a GPU is missing"
                                          : "device: \"vulkan:0\" is none of the devices; there are: vulkan:4, cpu, "
                                            "vulkan:5");
        error_clear(&err);
        assert_int_equal(devices_find(devices, "cpu,vulkan:5", &number, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "\"cpu,vulkan:5\" is a list, and a request takes one device; there are: "));
        devices_destroy(&devices);
    }
}

static void test_find(void **state)
{
    (void)state;
    struct device_info list[RACK];
    struct error err = ERROR_INIT;
    int number;
    rack(list);
    list[GPU1].usable = false;
    snprintf(list[GPU1].reason, sizeof list[GPU1].reason, "it has no compute queue");
    struct devices *devices = machine(list, RACK, "auto");
    assert_int_equal(devices_find(devices, "processor", &number, &err), OK);
    assert_int_equal(number, CPU);
    assert_int_equal(devices_find(devices, "reference", &number, &err), ERROR_INVALID);
    error_clear(&err);
    assert_int_equal(devices_find(devices, "vulkan:1", &number, &err), ERROR_DEVICE_DISABLED);
    assert_string_equal(err.text, "device: \"vulkan:1\" cannot be used: it has no compute queue");
    error_clear(&err);
    fail_test(devices, CPU);
    assert_int_equal(devices_find(devices, "cpu", &number, &err), ERROR_DEVICE_DISABLED);
    assert_string_equal(err.text, "device: \"cpu\" cannot be used: 1+2 is 4");
    error_clear(&err);
    lose(devices, GPU2); /* it may come back */
    assert_int_equal(devices_find(devices, "vulkan:2", &number, &err), OK);
    devices_destroy(&devices);
}

/* Where a job goes that was lost: the others that are chosen, then the next in the order, software never. */
static void test_route(void **state)
{
    (void)state;
    struct device_info list[RACK];
    rack(list);
    enum { FIRST, SECOND, OTHER, NEXT }; /* vulkan:3, vulkan:0, vulkan:1, vulkan:2 */
    struct devices *devices = machine(list, RACK, "vulkan:3,vulkan:0");
    assert_int_equal(devices_route(devices, 0), 1 << FIRST | 1 << SECOND);
    assert_int_equal(devices_route(devices, 1 << FIRST), 1 << SECOND);
    assert_int_equal(devices_route(devices, 1 << FIRST | 1 << SECOND), 1 << OTHER);
    assert_int_equal(devices_route(devices, 0x1f), 1 << CPU);
    assert_int_equal(devices_route(devices, 0x3f), 0);

    lose(devices, FIRST); /* the other one works */
    assert_int_equal(devices_route(devices, 0), 1 << FIRST | 1 << SECOND);
    lose(devices, SECOND); /* none works: the next in the order does it, or whoever comes back first */
    assert_int_equal(devices_route(devices, 0), 1 << FIRST | 1 << SECOND | 1 << OTHER);
    fail_test(devices, OTHER);
    assert_int_equal(devices_route(devices, 0), 1 << FIRST | 1 << SECOND | 1 << NEXT);
    devices_destroy(&devices);

    devices = machine(list, RACK, "auto");
    for (int i = GPU0; i <= GPU3; i++)
        fail_test(devices, i);
    assert_int_equal(devices_route(devices, 0), 1 << INTEGRATED);
    fail_test(devices, INTEGRATED);
    assert_int_equal(devices_route(devices, 0), 1 << CPU);
    fail_test(devices, CPU);
    assert_int_equal(devices_route(devices, 0), 0);
    devices_destroy(&devices);

    devices = machine(list, RACK, "vulkan:5"); /* software that was asked for */
    assert_string_equal(devices_id(devices, 0), "vulkan:5");
    assert_int_equal(devices_route(devices, 0), 1);
    assert_int_equal(devices_route(devices, 1), 1 << 1); /* vulkan:0 */
    devices_destroy(&devices);
}

static void test_reasons(void **state)
{
    (void)state;
    struct device_info list[RACK];
    rack(list);
    list[GPU3].usable = false;
    snprintf(list[GPU3].reason, sizeof list[GPU3].reason, "it has no compute queue");
    struct devices *devices = machine(list, RACK, "auto");
    lose(devices, GPU0);
    fail_test(devices, GPU1);
    struct device_status *status = read_all(devices);
    const struct {
        enum device_state state;
        const char *reason;
    } want[RACK] = {
        [GPU0] = {DEVICE_LOST, "it fell off the bus"},
        [GPU1] = {DEVICE_DISABLED, "1+2 is 4"},
        [GPU2] = {DEVICE_IDLE, ""},
        [GPU3] = {DEVICE_DISABLED, "it has no compute queue"},
        [INTEGRATED] = {DEVICE_IDLE, "jobs that name no device run on vulkan:2"},
        [CPU] = {DEVICE_IDLE, "jobs that name no device run on vulkan:2"},
        [SOFTWARE] = {DEVICE_IDLE, "software Vulkan is used only if a request or the key device names it"},
    };
    for (int i = 0; i < RACK; i++) {
        assert_int_equal(status[i].state, want[i].state);
        assert_string_equal(status[i].reason, want[i].reason);
        assert_int_equal(status[i].is_default, i == GPU2); /* GPU0 is chosen, too, but it does not work */
        assert_false(status[i].open);
    }
    assert_int_equal(status[GPU1].test.fp32.state, SELFTEST_FAILED);
    assert_int_equal(status[GPU2].test.fp32.state, SELFTEST_NOT_RUN);
    free(status);
    devices_destroy(&devices);
}

static void pause_ms(long ms)
{
    const struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

/* Two jobs at once are one span of work, and a device at work is so far busy, too. */
static void test_busy(void **state)
{
    (void)state;
    struct device_info list[RACK];
    rack(list);
    struct devices *devices = machine(list, RACK, "auto");
    const int64_t began = job_now();
    devices_begin(devices, GPU1, "first");
    pause_ms(30);
    devices_begin(devices, GPU1, "second");
    pause_ms(30);
    struct device_status *status = read_all(devices);
    assert_int_equal(status[GPU1].state, DEVICE_BUSY);
    assert_string_equal(status[GPU1].current_job, "first");
    assert_true(status[GPU1].busy_seconds >= 0.06);
    assert_int_equal(status[GPU1].jobs_done, 0);
    free(status);
    devices_end(devices, GPU1, "first", JOB_DONE);
    status = read_all(devices);
    assert_string_equal(status[GPU1].current_job, "second");
    free(status);
    pause_ms(30);
    devices_end(devices, GPU1, "second", JOB_FAILED);
    const double span = (double)(job_now() - began) / 1e9;
    pause_ms(30);
    const int64_t third = job_now();
    devices_begin(devices, GPU1, "third");
    devices_end(devices, GPU1, "third", JOB_CANCELLED);
    const double worked = span + (double)(job_now() - third) / 1e9; /* without the pause between */
    devices_count_lost(devices, GPU1, 2);
    status = read_all(devices);
    assert_int_equal(status[GPU1].state, DEVICE_IDLE);
    assert_string_equal(status[GPU1].current_job, "");
    assert_int_equal(status[GPU1].jobs_done, 1);
    assert_int_equal(status[GPU1].jobs_failed, 1);
    assert_int_equal(status[GPU1].lost, 2);
    assert_true(status[GPU1].busy_seconds >= 0.09 && status[GPU1].busy_seconds <= worked + 1e-6);
    assert_float_equal(status[GPU1].utilisation, status[GPU1].busy_seconds / 60, 1e-6);
    assert_int_equal(status[GPU0].jobs_done, 0);
    assert_float_equal(status[GPU0].busy_seconds, 0, 0);
    free(status);
    devices_destroy(&devices);
}

/* More devices than the table has room for: the first of them are there, the last one whole. */
static void test_many(void **state)
{
    (void)state;
    struct device_info list[DEVICES_MAX + 8];
    struct error err = ERROR_INIT;
    int found;
    for (int i = 0; i < DEVICES_MAX + 8; i++) {
        char id[32], name[32];
        snprintf(id, sizeof id, "vulkan:%d", i);
        snprintf(name, sizeof name, "GPU number %d.", i);
        list[i] = device(id, name, DEVICE_DISCRETE);
    }
    struct devices *devices = machine(list, DEVICES_MAX + 8, "auto");
    assert_true(devices_route(devices, 0) == UINT32_MAX);
    assert_int_equal(devices_find(devices, "number 31.", &found, &err), OK);
    assert_int_equal(found, DEVICES_MAX - 1);
    assert_string_equal(devices_id(devices, found), "vulkan:31");
    assert_int_equal(devices_find(devices, "number 32.", &found, &err), ERROR_INVALID);
    devices_destroy(&devices);
    devices = machine(list, DEVICES_MAX, "vulkan:31");
    assert_string_equal(devices_id(devices, 0), "vulkan:31");
    assert_true(devices_route(devices, 0) == 1);
    devices_destroy(&devices);
    devices = machine(list, 2, "auto");
    error_clear(&err);
    assert_int_equal(devices_find(devices, "number 2.", &found, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "there are: vulkan:0, vulkan:1"));
    devices_destroy(&devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto), cmocka_unit_test(test_hint),  cmocka_unit_test(test_named),
        cmocka_unit_test(test_find), cmocka_unit_test(test_route), cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_busy), cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
