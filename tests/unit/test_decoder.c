/* Decoding in processes of their own beside decoding in this one, and what is done when such a process fails. Where
 * the program with the fault layer is not built, its tests say that they were skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/file.h"
#include "server/image/decoder.h"
#include "tests/common/shared.h"

static const char *program(void)
{
    const char *named = getenv("RESTORED_FAULTY_BINARY");
    return named ? named : "build/tests/restored";
}

static int started(void **state)
{
    struct error err = ERROR_INIT;
    (void)state;
    return access(program(), X_OK) == 0 && decoder_start(program(), &err) ? -1 : 0;
}

static int stopped(void **state)
{
    (void)state;
    decoder_stop();
    return 0;
}

static struct file opened(const char *name)
{
    char path[600];
    struct file file;
    struct error err = ERROR_INIT;
    snprintf(path, sizeof path, "%s/%s", shared_fixtures(), name);
    if (file_map(&file, path, &err))
        fail_msg("%s", err.text);
    return file;
}

static void assert_same_blob(const struct image_blob *a, const struct image_blob *b)
{
    assert_int_equal(a->size, b->size);
    if (a->size)
        assert_memory_equal(a->data, b->data, a->size);
}

static void pictures_are_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {
        "picture.jpg",       "picture.jpg",      "gray.jpg",           "cmyk.jpg",           "deep.png",
        "rgba.png",          "one_pixel.png",    "exif_6.jpg",         "formats/alpha.webp", "formats/turned.tif",
        "formats/pages.tif", "formats/deep.jxl", "formats/turned.heic"};
    if (access(program(), X_OK))
        skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct file file = opened(names[i]);
        struct image *here, *there;
        struct codec_info info[2];
        struct error err = ERROR_INIT;
        bool died;
        const struct decoder_job job = {.bytes = file.data, .size = file.size, .fd = -1, .page = 1};
        const enum error_code code = codec_decode_page(file.data, file.size, 1, 0, &here, &info[0], NULL, &err);
        if (code == ERROR_UNSUPPORTED) { /* not in this build */
            file_unmap(&file);
            continue;
        }
        assert_int_equal(code, OK);
        if (decoder_decode(&job, &there, &info[1], NULL, &died, &err))
            fail_msg("%s: %s (%s)", names[i], err.text, err.detail);
        assert_false(died);
        assert_true(there->pixels_mapped);
        assert_int_equal(here->width, there->width);
        assert_int_equal(here->height, there->height);
        assert_int_equal(here->bits, there->bits);
        assert_int_equal(here->channels, there->channels);
        assert_int_equal(here->notes, there->notes);
        assert_int_equal(here->format, there->format);
        const size_t pixels = (size_t)here->width * (size_t)here->height, sample = (size_t)here->bits / 8;
        assert_memory_equal(here->pixels, there->pixels, pixels * sample * (size_t)here->channels);
        assert_int_equal(here->alpha != NULL, there->alpha != NULL);
        if (here->alpha)
            assert_memory_equal(here->alpha, there->alpha, pixels * sample);
        assert_same_blob(&here->icc, &there->icc);
        assert_same_blob(&here->exif, &there->exif);
        assert_same_blob(&here->xmp, &there->xmp);
        /* and it can be worked with as any other */
        assert_int_equal(image_reduce(there, false, &err), OK);
        assert_int_equal(image_orient(there, 6, &err), OK);
        image_drop_alpha(there);
        assert_int_equal(image_add_alpha(there, &err), OK);
        image_destroy(&here);
        image_destroy(&there);
        file_unmap(&file);
    }
}

#define ROOM (3 * (uint64_t)65536)

/* What a picture leaves. alive: its process has not ended. Returns where its memory was. */
static const uint8_t *leave_a_room(bool alive, int *other)
{
    int ends[2];
    struct plane_room *room = plane_room_take(ROOM);
    assert_non_null(room);
    plane_room_fill(room);
    assert_non_null(room->data);
    memset(room->data, 0xa5, ROOM);
    assert_int_equal(ftruncate(room->fd, (off_t)(2 * ROOM)), 0); /* as the process may */
    assert_int_equal(pwrite(room->fd, "secret", 6, (off_t)(ROOM + 100)), 6);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    const uint8_t *data = room->data;
    plane_room_hold(room, 2, ends[0]);
    if (!alive)
        close(ends[1]);
    *other = ends[1];
    assert_true(plane_room_leave(data));
    assert_true(plane_room_leave(data + ROOM / 2));
    return data;
}

static void rooms_are_used_again_and_clean(void **state)
{
    (void)state;
    bool again = false;
    for (int turn = 0; turn < 50 && !again; turn++) { /* one that nobody takes in time is given back */
        int other;
        const uint8_t *data = leave_a_room(false, &other);
        for (int ms = 0; ms < 5000 && plane_room_kept() < ROOM; ms++)
            usleep(1000);
        struct plane_room *room = plane_room_take(ROOM);
        char behind[6] = "";
        again = room->data == data;
        for (uint64_t i = 0; again && i < ROOM; i++)
            assert_int_equal(room->data[i], 0);
        if (again) {
            assert_int_equal(pread(room->fd, behind, 6, (off_t)(ROOM + 100)), 6);
            assert_memory_equal(behind, "\0\0\0\0\0", 6);
        }
        plane_room_drop(room);
    }
    assert_true(again);
}

static void a_room_of_a_process_that_lives_is_not(void **state)
{
    (void)state;
    int other;
    const uint8_t *data = leave_a_room(true, &other);
    struct plane_room *room = plane_room_take(ROOM);
    assert_ptr_not_equal(room->data, data);
    plane_room_drop(room);
    close(other);
}

static enum error_code cancel(void *context, struct error *err)
{
    return ++*(int *)context < 3 ? OK : error_set(err, ERROR_CANCELLED, "cancelled");
}

static void a_decoder_that_fails_is_told_apart(void **state)
{
    (void)state;
    struct file file = opened("picture.jpg");
    int asked = 0;
    bool died;
    struct image *image;
    struct codec_damage damage;
    struct decoder_job job = {.bytes = file.data, .size = file.size, .fd = -1, .page = 1, .fault = DECODER_CRASH};
    if (access(program(), X_OK)) {
        file_unmap(&file);
        skip();
    }
    struct error err = ERROR_INIT;
    assert_int_equal(decoder_decode(&job, &image, NULL, NULL, &died, &err), ERROR_CORRUPT);
    assert_true(died);
    assert_null(image);
    assert_non_null(strstr(err.detail, "signal 11"));
    error_clear(&err);
    job.fault = DECODER_BOMB;
    assert_int_equal(decoder_decode(&job, &image, NULL, NULL, &died, &err), ERROR_CORRUPT);
    assert_true(died);
    error_clear(&err);
    job.fault = DECODER_HANG; /* cancelled before its time is over */
    job.check = cancel;
    job.context = &asked;
    assert_int_equal(decoder_decode(&job, &image, NULL, NULL, &died, &err), ERROR_CANCELLED);
    assert_int_equal(asked, 3);
    error_clear(&err);
    job = (struct decoder_job){.bytes = file.data, .size = file.size / 2, .fd = -1, .page = 1};
    assert_int_equal(decoder_decode(&job, &image, NULL, NULL, &died, &err), ERROR_CORRUPT);
    assert_false(died);
    error_clear(&err);
    job.salvage = true;
    assert_int_equal(decoder_decode(&job, &image, NULL, &damage, &died, &err), OK);
    assert_in_range(damage.good, 1, damage.rows - 1);
    image_destroy(&image);
    job.max_pixels = 10;
    assert_int_equal(decoder_decode(&job, &image, NULL, &damage, &died, &err), ERROR_TOO_LARGE);
    error_clear(&err);
    file_unmap(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rooms_are_used_again_and_clean),
        cmocka_unit_test(a_room_of_a_process_that_lives_is_not),
        cmocka_unit_test(pictures_are_the_same),
        cmocka_unit_test(a_decoder_that_fails_is_told_apart),
    };
    return cmocka_run_group_tests(tests, started, stopped);
}
