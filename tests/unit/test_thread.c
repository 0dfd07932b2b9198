/* Loops that the cores share, and what relies on them: a PNG's bytes do not depend on the number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <unistd.h>
#include <zlib.h>

#include "runtime/base/thread.h"
#include "server/image/pixel.h"
#include "server/image/png_data.h"
#include "tests/common/picture.h"

static void count_item(void *context, int item)
{
    ((int *)context)[item]++;
}

static void every_item_is_done_once(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 7, 1000}, counts[] = {0, 1, 3, 500};
    for (int t = 0; t < 4; t++)
        for (int c = 0; c < 4; c++) {
            int seen[500] = {0};
            thread_set_count(threads[t]);
            if (c % 2)
                thread_keep_awake(true);
            thread_for(counts[c], count_item, seen);
            if (c % 2)
                thread_keep_awake(false);
            for (int i = 0; i < 500; i++)
                assert_int_equal(seen[i], i < counts[c]);
        }
    thread_set_count(0);
    assert_true(thread_count() >= 1);
}

enum { OUTER = 20, INNER = 30, CALLERS = 4, ROUNDS = 40 };

struct nest {
    int cells[OUTER][INNER], outer;
};

static void nest_inner(void *context, int item)
{
    struct nest *nest = context;
    nest->cells[nest->outer][item] += item;
}

static void nest_outer(void *context, int item)
{
    struct nest *nest = context, part = {.outer = item};
    thread_for(INNER, nest_inner, &part);
    memcpy(nest->cells[item], part.cells[item], sizeof part.cells[item]);
}

/* Items that wait for each other, until so many are there or the time is over. */
struct together {
    pthread_mutex_t lock;
    pthread_cond_t come;
    int want, ms, now, most;
};
#define TOGETHER(...)                                                                                                  \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, __VA_ARGS__, 0, 0                                         \
    }

static void meet(void *context, int item)
{
    struct together *together = context;
    struct timespec until;
    (void)item;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += together->ms / 1000;
    until.tv_nsec += together->ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&together->lock);
    if (++together->now > together->most)
        together->most = together->now;
    pthread_cond_broadcast(&together->come);
    while (together->most < together->want && !pthread_cond_timedwait(&together->come, &together->lock, &until))
        ;
    together->now--;
    pthread_mutex_unlock(&together->lock);
}

/* The inner loop begins while the outer one lasts: who has the other item stays until then. */
static void meet_within(void *context, int item)
{
    struct together *together = context;
    if (item == 0)
        thread_for(8, meet, context);
    for (bool begun = false; !begun; sched_yield()) {
        pthread_mutex_lock(&together->lock);
        begun = together->most > 0;
        pthread_mutex_unlock(&together->lock);
    }
}

/* One loop has all threads; of two that run at once the second has half of them. */
static void loops_share_the_threads(void **state)
{
    (void)state;
    struct together alone = TOGETHER(4, 20000), second = TOGETHER(3, 30);
    thread_set_count(4);
    thread_for(8, meet, &alone);
    assert_int_equal(alone.most, 4);
    thread_for(2, meet_within, &second);
    assert_true(second.most <= 2);
    thread_set_count(0);
}

/* How often the process's threads, but for the caller, have gone to sleep: the sum, and of how many. */
static long sleeps(int *threads)
{
    long sum = 0, count;
    char path[300], line[100];
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    assert_non_null(tasks);
    for (*threads = 0; (entry = readdir(tasks));) {
        if (atol(entry->d_name) <= 0 || atol(entry->d_name) == getpid())
            continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        while (fgets(line, sizeof line, file))
            if (sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1) {
                sum += count;
                ++*threads;
            }
        fclose(file);
    }
    closedir(tasks);
    return sum;
}

/* Without a loop: each wakes, looks for one, and sleeps again. */
static void all_wake_before_the_first_loop(void **state)
{
    (void)state;
    struct together all = TOGETHER(8, 20000);
    const struct timespec ms = {0, 1000000};
    int threads;
    thread_set_count(8);
    thread_for(8, meet, &all);
    assert_int_equal(all.most, 8);
    long before = sleeps(&threads), now;
    assert_true(threads >= 7);
    for (int quiet = 0, i = 0; quiet < 100 && i < 2000; i++, before = now) { /* until all sleep, but perhaps a tool's */
        nanosleep(&ms, NULL);
        now = sleeps(&threads);
        quiet = now == before ? quiet + 1 : 0;
    }
    thread_keep_awake(true);
    for (int i = 0; i < 5000 && sleeps(&threads) < before + threads; i++)
        nanosleep(&ms, NULL);
    thread_keep_awake(false);
    assert_true(sleeps(&threads) >= before + threads);
    thread_set_count(0);
}

/* Not at all; while many threads are kept awake, for 2 ms. */
static void who_waits_looks_for_a_while(void **state)
{
    (void)state;
    struct timespec begun, over;
    int64_t until = 0;
    assert_false(thread_look_again(&until));
    thread_keep_awake(true);
    thread_set_count(7);
    assert_false(thread_look_again(&until));
    thread_set_count(8);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (thread_look_again(&until))
        ;
    clock_gettime(CLOCK_MONOTONIC, &over);
    thread_keep_awake(false);
    thread_set_count(0);
    assert_true((over.tv_sec - begun.tv_sec) * 1000000000 + over.tv_nsec - begun.tv_nsec >= 2000000);
}

static void *call_loops(void *context)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct nest nest = {0};
        thread_for(OUTER, nest_outer, &nest);
        for (int i = 0; i < OUTER * INNER; i++)
            *(bool *)context = *(bool *)context && nest.cells[i / INNER][i % INNER] == i % INNER;
    }
    return NULL;
}

/* Loops in loops, of several callers; ThreadSanitizer runs this, too. */
static void loops_run_beside_and_within_each_other(void **state)
{
    (void)state;
    pthread_t threads[CALLERS];
    bool right[CALLERS] = {true, true, true, true};
    thread_set_count(3);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_loops, &right[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(right[i]);
    }
    thread_set_count(0);
}

static void bands_cover_all_rows(void **state)
{
    (void)state;
    for (int rows = 0; rows < 100; rows++) {
        int next = 0, begin, end;
        for (int i = 0; i < thread_bands(rows); i++) {
            thread_band(rows, i, &begin, &end);
            assert_int_equal(begin, next);
            assert_true(end > begin);
            next = end;
        }
        assert_int_equal(next, rows);
    }
}

static void rounding_is_to_the_nearest_and_even(void **state)
{
    (void)state;
    const float in[] = {0, 0.49f, 0.5f, 1.5f, 2.5f, 254.5f, 254.51f, 255};
    const uint8_t expected[] = {0, 0, 0, 2, 2, 254, 255, 255};
    uint8_t out[8];
    pixel_round(out, in, 8);
    assert_memory_equal(out, expected, 8);
    float wild[] = {-3, 300, 7.25f};
    pixel_clamp(wild, 3);
    assert_true(wild[0] == 0 && wild[1] == 255 && wild[2] == 7.25f);
}

/* ---- the data of a PNG ---- */
struct stream {
    uint8_t *bytes;
    size_t size;
    int writes, fail_at; /* fail_at: the write that is refused, 0: none */
};

static bool keep(void *user, const uint8_t *bytes, size_t size)
{
    struct stream *s = user;
    if (++s->writes == s->fail_at)
        return false;
    s->bytes = realloc(s->bytes, s->size + size);
    memcpy(s->bytes + s->size, bytes, size);
    s->size += size;
    return true;
}

struct source {
    size_t stride;
    const uint8_t *rows;
};

static void give_row(const void *context, int y, uint8_t *line)
{
    const struct source *source = context;
    memcpy(line, source->rows + (size_t)y * source->stride, source->stride);
}

/* What a decoder makes of filtered rows (PNG 1.2, chapter 6), written from its formulas; in place, row by row. */
static void unfilter(uint8_t *rows, size_t stride, size_t pixel, int height)
{
    for (int y = 0; y < height; y++) {
        uint8_t *row = rows + (size_t)y * (stride + 1) + 1, *above = row - stride - 1;
        for (size_t i = 0; i < stride; i++) {
            int a = i < pixel ? 0 : row[i - pixel], b = y ? above[i] : 0, c = i < pixel || !y ? 0 : above[i - pixel];
            int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
            int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
            const int predictor[5] = {0, a, b, (a + b) / 2, paeth};
            assert_in_range(row[-1], 0, 4);
            row[i] = (uint8_t)(row[i] + predictor[row[-1]]);
        }
    }
}

static void check_data(int width, int height, size_t pixel, int level)
{
    struct source source = {.stride = (size_t)width * pixel};
    size_t size = source.stride * (size_t)height, packed = (source.stride + 1) * (size_t)height;
    uint8_t *rows = malloc(size), *back = malloc(packed);
    unsigned seed = 7;
    for (size_t i = 0; i < size; i++) { /* a third of it smooth, a third constant, a third noise */
        size_t y = i / source.stride, part = 3 * y / (size_t)height;
        rows[i] = (uint8_t)(part == 0 ? y + i % source.stride / 3 : part == 1 ? 9 : picture_random(&seed));
    }
    source.rows = rows;
    const struct png_data data = {source.stride, pixel, height, level, &source, give_row, NULL};
    struct stream streams[2] = {{0}, {0}};
    struct error err = ERROR_INIT;
    for (int t = 0; t < 2; t++) {
        thread_set_count(t ? 5 : 1);
        assert_int_equal(png_data_encode(&data, keep, &streams[t], &err), OK);
    }
    thread_set_count(0);
    assert_int_equal(streams[0].size, streams[1].size);
    assert_memory_equal(streams[0].bytes, streams[1].bytes, streams[0].size);
    uLongf got = packed;
    assert_int_equal(uncompress(back, &got, streams[0].bytes, streams[0].size), Z_OK); /* checks Adler-32, too */
    assert_int_equal(got, packed);
    unfilter(back, source.stride, pixel, height);
    for (int y = 0; y < height; y++)
        assert_memory_equal(back + (size_t)y * (source.stride + 1) + 1, rows + (size_t)y * source.stride,
                            source.stride);
    if (level > 0 && size > 10000)
        assert_true(streams[0].size < size * 6 / 10); /* two thirds of it pack well */
    free(rows);
    free(back);
    free(streams[0].bytes);
    free(streams[1].bytes);
}

static void png_data_comes_back(void **state)
{
    (void)state;
    static const int levels[] = {0, 1, 2, 6, 9};
    for (int i = 0; i < 5; i++) {
        check_data(1, 1, 3, levels[i]);
        check_data(300, 7, 1, levels[i]);
        check_data(900, 1500, 3, levels[i]); /* several strips */
        check_data(70, 600, 8, levels[i]);
    }
    check_data(200000, 3, 3, 1);  /* a row is longer than a strip */
    check_data(3000, 2500, 3, 1); /* more strips than are in memory at once */
    check_data(1, 70000, 1, 6);   /* rows of one byte */
}

static void png_data_says_when_memory_is_out(void **state)
{
    (void)state;
    uint8_t rows[300] = {0};
    struct source source = {100, rows};
    const struct png_data data = {100, 1, 3, 1, &source, give_row, NULL};
    for (int fail_at = 1; fail_at <= 3; fail_at++) {
        struct stream stream = {.fail_at = fail_at};
        struct error err = ERROR_INIT;
        assert_int_equal(png_data_encode(&data, keep, &stream, &err), ERROR_NO_MEMORY);
        assert_int_equal(stream.writes, fail_at);
        free(stream.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item_is_done_once),
        cmocka_unit_test(loops_share_the_threads),
        cmocka_unit_test(all_wake_before_the_first_loop),
        cmocka_unit_test(who_waits_looks_for_a_while),
        cmocka_unit_test(loops_run_beside_and_within_each_other),
        cmocka_unit_test(bands_cover_all_rows),
        cmocka_unit_test(rounding_is_to_the_nearest_and_even),
        cmocka_unit_test(png_data_comes_back),
        cmocka_unit_test(png_data_says_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
