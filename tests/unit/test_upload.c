/* What a request may carry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/upload.h"

static struct upload *make(bool detect, size_t limit)
{
    struct upload *upload;
    struct error err = ERROR_INIT;
    assert_int_equal(upload_create(&upload, detect, limit, &err), OK);
    return upload;
}

static enum error_code field(struct upload *upload, const char *name, const char *value, struct error *err)
{
    error_clear(err);
    return upload_field(upload, name, value, strlen(value), err);
}

/* A form of these parts ("name=value", or "image:file name=value"), sent whole or byte by byte; cut: without its end.
 */
static enum error_code form(struct upload *upload, const char *const *parts, bool cut, size_t step, struct error *err)
{
    char body[4096];
    size_t size = 0;
    error_clear(err);
    for (; *parts; parts++) {
        const char *value = strchr(*parts, '='), *file = memchr(*parts, ':', (size_t)(value - *parts));
        size +=
            (size_t)snprintf(body + size, sizeof body - size, "--part\r\nContent-Disposition: form-data; name=\"%.*s\"",
                             (int)((file ? file : value) - *parts), *parts);
        if (file)
            size += (size_t)snprintf(body + size, sizeof body - size, "; filename=\"%.*s\"", (int)(value - file - 1),
                                     file + 1);
        size += (size_t)snprintf(body + size, sizeof body - size, "\r\n\r\n%s\r\n", value + 1);
    }
    size += (size_t)snprintf(body + size, sizeof body - size, "--part%s", cut ? "" : "--\r\n");
    assert_true(size < sizeof body);
    enum error_code code = upload_begin(upload, "multipart/form-data; boundary=part", size, err);
    for (size_t at = 0; at < size && code == OK; at += step)
        code = upload_feed(upload, body + at, step < size - at ? step : size - at, err);
    return code ? code : upload_finish(upload, err);
}

static void says(const struct error *err, const char *text)
{
    if (!strstr(err->text, text))
        fail_msg("\"%s\" does not say \"%s\"", err->text, text);
}

static void test_fields(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct upload *upload = make(false, 1000);
    assert_int_equal(field(upload, "upscale", "1.5", &err), OK);
    assert_true(upload_options(upload)->upscale == 1.5);
    assert_int_equal(field(upload, "upscale", "2", &err), ERROR_INVALID);
    says(&err, "upscale: sent more than once");
    assert_int_equal(field(upload, "suffix", "", &err), OK);
    assert_int_equal(field(upload, "version", "", &err), ERROR_INVALID);
    says(&err, "version: the value is empty; allowed is");
    assert_int_equal(field(upload, "scale", "2", &err), ERROR_INVALID);
    says(&err, "scale: there is no such field; known are: version, upscale");
    assert_int_equal(field(upload, "ima\x1bge\xff", "2", &err), ERROR_INVALID);
    says(&err, "ima?ge?: there is no such field");
    char name[80] = {0}; /* up to 60 characters of a name are shown */
    memset(name, 'a', 61);
    assert_int_equal(field(upload, name, "2", &err), ERROR_INVALID);
    memcpy(name + 60, "...: there", 10);
    assert_int_equal(strncmp(err.text, name, 70), 0);
    name[60] = 0;
    assert_int_equal(field(upload, name, "2", &err), ERROR_INVALID);
    memcpy(name + 60, ": there", 7);
    assert_int_equal(strncmp(err.text, name, 67), 0);
    assert_int_equal(field(upload, "async", "false", &err), OK);
    assert_int_equal(field(upload, "async", "false", &err), ERROR_INVALID);
    error_clear(&err);
    assert_int_equal(upload_field(upload, "weight", "0\0001", 3, &err), ERROR_INVALID);
    says(&err, "zero byte");
    assert_int_equal(field(upload, "bg_tile", "\xff\xfe", &err), ERROR_INVALID);
    says(&err, "bg_tile: \"??\" is not UTF-8; allowed is auto, 0, or 32 to 4096");
    upload_destroy(&upload);

    static const char *const bad[][2] = {
        {"upscale", "0"},   {"upscale", "nan"},   {"upscale", "9"},     {"upscale", "2x"},
        {"weight", "1.01"}, {"bg_tile", "31"},    {"aligned", "maybe"}, {"quality", "0"},
        {"batch", "a/b"},   {"async", "perhaps"}, {"precision", "fp8"}, {"seed", "-1"},
        {"faces", "a"},     {"ext", "gif"},       {"suffix", "a/b"},    {"suffix", "a\\b"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        upload = make(false, 1000);
        if (field(upload, bad[i][0], bad[i][1], &err) != ERROR_INVALID)
            fail_msg("%s=%s was taken", bad[i][0], bad[i][1]);
        says(&err, bad[i][0]);
        says(&err, bad[i][1]);
        upload_destroy(&upload);
    }

    upload = make(true, 1000); /* a detection knows three fields */
    assert_int_equal(field(upload, "precision", "fp32", &err), OK);
    assert_int_equal(field(upload, "upscale", "2", &err), ERROR_INVALID);
    says(&err, "known are: ");
    says(&err, "detector, device, precision, compat");
    assert_int_equal(field(upload, "faces_out", "false", &err), ERROR_INVALID);
    upload_destroy(&upload);
}

/* A form that is refused, by what is wrong with it. */
static void form_refused(size_t limit, enum error_code want, const char *text, bool cut, const char *const *parts)
{
    for (size_t step = 1; step < 5000; step += 4096) {
        struct error err = ERROR_INIT;
        struct upload *upload = make(false, limit);
        if (form(upload, parts, cut, step, &err) != want)
            fail_msg("not refused: %s", text);
        says(&err, text);
        upload_destroy(&upload);
    }
}

#define PARTS(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, NULL                                                                                              \
    }

static void test_form(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    for (size_t step = 1; step < 5000; step += 4096) {
        struct upload *upload = make(false, 1000);
        assert_int_equal(
            form(upload, PARTS("upscale=1.5", "image:a\\\".png=abcdef", "suffix=", "faces_out=on"), false, step, &err),
            OK);
        assert_true(upload_options(upload)->upscale == 1.5);
        assert_true(upload_faces_out(upload));
        assert_string_equal(upload_file_name(upload), "a\".png");
        assert_true(upload_has_picture(upload));
        struct body body;
        upload_take(upload, &body);
        assert_int_equal(body.size, 6);
        assert_memory_equal(body.data, "abcdef", 6);
        assert_false(upload_has_picture(upload));
        body_clear(&body);
        upload_destroy(&upload);
    }
    form_refused(1000, ERROR_INVALID, "image: sent more than once", false, PARTS("image=abc", "image=abc"));
    form_refused(1000, ERROR_INVALID, "image: sent more than once", false, PARTS("image=", "image=abc"));
    form_refused(1000, ERROR_INVALID, "upscale: the value is empty; allowed is", false,
                 PARTS("upscale=", "upscale=1", "image=abc"));
    form_refused(1000, ERROR_INVALID, "suffix: sent more than once", false, PARTS("suffix=", "suffix=a", "image=abc"));
    form_refused(1000, ERROR_INVALID, "image: there is no picture in the form", false, PARTS("weight=0.5"));
    form_refused(1000, ERROR_INVALID, "image: the picture is empty", false, PARTS("image:a.png="));
    form_refused(1000, ERROR_INVALID, "cut off", true, PARTS("image=abc"));
    form_refused(1000, ERROR_INVALID, "a part of the form has no name", false, PARTS("=abc"));
    form_refused(1000, ERROR_INVALID, "file: there is no such field; the picture goes in \"image\"", false,
                 PARTS("file:a.png=abc"));
    form_refused(1000, ERROR_INVALID, "scale: there is no such field; known are:", false, PARTS("scale=2"));
    form_refused(1000, ERROR_INVALID, "breadth: there is no such field", false, PARTS("breadth=2"));
    form_refused(80, ERROR_TOO_LARGE, "the body is over the limit of 80 bytes", false, PARTS("image=abc", "suffix=a"));

    struct upload *upload = make(false, 1000);
    assert_int_equal(field(upload, "weight", "1", &err), OK); /* from the query, and then from the body */
    assert_int_equal(form(upload, PARTS("weight=1", "image=abc"), false, 1, &err), ERROR_INVALID);
    says(&err, "weight: sent more than once");
    upload_destroy(&upload);

    static const char encoded[] = "--part\r\nContent-Disposition: form-data; name=image\r\n"
                                  "Content-Transfer-Encoding: base64\r\n\r\nabc\r\n--part--";
    upload = make(false, 1000);
    error_clear(&err);
    assert_int_equal(upload_begin(upload, "multipart/form-data; boundary=part", 100, &err), OK);
    assert_int_equal(upload_feed(upload, encoded, sizeof encoded - 1, &err), ERROR_INVALID);
    says(&err, "image: Content-Transfer-Encoding is not supported");
    upload_destroy(&upload);

    /* as long as a value may be, in one piece and in many, and one byte more */
    for (size_t length = UPLOAD_VALUE_MAX - 1; length <= UPLOAD_VALUE_MAX; length++)
        for (size_t step = 1; step < 5000; step += 4096) {
            char longer[16 + UPLOAD_VALUE_MAX] = "suffix=";
            memset(longer + 7, 'a', length);
            upload = make(false, 5000);
            assert_int_equal(form(upload, PARTS(longer, "image=abc"), false, step, &err), ERROR_INVALID);
            says(&err, length < UPLOAD_VALUE_MAX ? "suffix: " : "suffix: the value is longer than 511 bytes");
            if (length < UPLOAD_VALUE_MAX)
                assert_null(strstr(err.text, "longer than 511"));
            upload_destroy(&upload);
            memcpy(longer, "scale=", 6); /* by its name at once, however long its value is */
            form_refused(5000, ERROR_INVALID, "scale: there is no such field", false, PARTS(longer));
        }
    char name[UPLOAD_VALUE_MAX + 4];
    memset(name, 'a', sizeof name);
    strcpy(name + UPLOAD_VALUE_MAX, "=1");
    form_refused(5000, ERROR_INVALID, "there is no such field", false, PARTS(name));
}

static const char *expected;
static size_t expected_size = 300000;

/* Stands for the pipeline: the input is what was sent. */
static enum error_code read_all(struct restoration *r, const struct model_store *store, struct error *err)
{
    (void)store;
    assert_int_equal(r->input_bytes, expected_size);
    assert_memory_equal(r->input, expected, expected_size);
    return error_set(err, ERROR_TIMEOUT, "read");
}

/* The picture's room grows with it: none of it is lost, whatever the pieces, and no byte more than the limit is taken.
 */
static void test_growth(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 4097, 65535, 65536, 65537, 131072, 300000};
    const size_t size = 300000;
    char *sent = malloc(size + 1);
    assert_non_null(sent);
    for (size_t at = 0; at <= size; at++)
        sent[at] = (char)(at * 31 % 251);
    char folder[] = "/tmp/test_upload.XXXXXX", command[64];
    struct spool *spool;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(spool_open(&spool, folder, 2 * size, NULL), OK);
    for (size_t i = 0; i < 2 * (sizeof pieces / sizeof *pieces); i++) {
        struct error err = ERROR_INIT;
        struct upload *upload = make(false, size);
        struct body body;
        const size_t piece = pieces[i / 2];
        if (i % 2)
            upload_use_spool(upload, spool);
        assert_int_equal(upload_begin(upload, "image/png", size, &err), OK);
        for (size_t at = 0; at < size; at += piece) {
            assert_int_equal(upload_feed(upload, sent + at, piece < size - at ? piece : size - at, &err), OK);
            const size_t now = piece < size - at ? at + piece : size;
            assert_int_equal(spool_used(spool), i % 2 && now > BODY_MEMORY ? now : 0);
        }
        assert_int_equal(upload_received(upload), size);
        assert_int_equal(upload_finish(upload, &err), OK);
        upload_take(upload, &body);
        assert_false(upload_has_picture(upload));
        assert_int_equal(upload_feed(upload, sent, 1, &err), ERROR_TOO_LARGE);
        struct restoration *r;
        assert_int_equal(restoration_create(&r, &err), OK);
        expected = sent;
        assert_int_equal(body_read(&body, r, read_all, NULL, NULL), ERROR_TIMEOUT); /* its own error */
        assert_null(r->input);
        restoration_destroy(&r);
        body_clear(&body);
        assert_int_equal(spool_used(spool), 0);
        upload_destroy(&upload);
    }
    spool_close(&spool);

    /* what does not fit is refused, and leaves its room at once */
    struct upload *upload = make(false, size);
    struct error err = ERROR_INIT;
    assert_int_equal(spool_open(&spool, folder, size - 1, NULL), OK);
    upload_use_spool(upload, spool);
    assert_int_equal(upload_begin(upload, "image/png", size, &err), OK);
    assert_int_equal(upload_feed(upload, sent, BODY_MEMORY, &err), OK);
    assert_int_equal(upload_feed(upload, sent, 1, &err), OK);
    assert_int_equal(spool_used(spool), BODY_MEMORY + 1);
    assert_int_equal(upload_feed(upload, sent, size - BODY_MEMORY - 1, &err), ERROR_FULL);
    assert_int_equal(spool_used(spool), 0);
    upload_destroy(&upload);

    /* a body moves to the spool under an id, and is read from there */
    static const char id[] = "0123456789abcdef0123456789abcdef";
    for (size_t length = 1000; length < size; length += BODY_MEMORY) { /* from memory, and from a file without a name */
        struct body body = {.spool = spool}, kept;
        struct restoration *r;
        expected = sent;
        expected_size = length;
        assert_int_equal(body_append(&body, sent, 500, NULL), OK);
        assert_int_equal(body_append(&body, sent + 500, length - 500, NULL), OK);
        assert_int_equal(body_keep(&body, spool, id, NULL), OK);
        assert_int_equal(body.size, 0);
        assert_int_equal(body_kept(&kept, spool, id, NULL), OK);
        assert_int_equal(kept.size, length);
        assert_int_equal(restoration_create(&r, &err), OK);
        assert_int_equal(body_read(&kept, r, read_all, NULL, NULL), ERROR_TIMEOUT);
        restoration_destroy(&r);
        body_clear(&kept);
        spool_remove(spool, id, SPOOL_INPUT);
        assert_int_equal(body_kept(&kept, spool, id, NULL), ERROR_NOT_FOUND);
        body_clear(&kept);
    }
    spool_close(&spool);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(sent);
}

/* A body of application/x-www-form-urlencoded, which POST /v1/estimate takes. */
static enum error_code fields(struct upload **upload, const char *body, size_t size, struct error *err)
{
    *upload = make(false, 100000);
    upload_take_size(*upload);
    error_clear(err);
    enum error_code code = upload_begin(*upload, "application/x-www-form-urlencoded; charset=utf-8", size, err);
    for (size_t at = 0; at < size && code == OK; at++)
        code = upload_feed(*upload, body + at, 1, err);
    return code ? code : upload_finish(*upload, err);
}

static void test_urlencoded(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct upload *upload;
    static const char good[] = "&width=1%300&%68eight=20&&face_count=3&suffix=%C3%a4+%2B%zz%4";
    assert_int_equal(fields(&upload, good, sizeof good - 1, &err), OK);
    assert_int_equal(upload_size(upload)->width, 100);
    assert_int_equal(upload_size(upload)->height, 20);
    assert_int_equal(upload_size(upload)->faces, 3);
    assert_string_equal(upload_options(upload)->suffix, "\xc3\xa4 +%zz%4");
    assert_false(upload_has_picture(upload));
    upload_destroy(&upload);
    static const char largest[] = "width=500000&height=500000";
    assert_int_equal(fields(&upload, largest, sizeof largest - 1, &err), OK);
    assert_int_equal(upload_size(upload)->height, 500000);
    upload_destroy(&upload);
    static const struct {
        const char *body, *text;
    } bad[] = {{"width=500001&height=1", "width: \"500001\" is not allowed"},
               {"width=0&height=1", "width: \"0\" is not allowed"},
               {"width=1&width=2&height=1", "width: sent more than once"},
               {"upscale=&upscale=1", "upscale: the value is empty"},
               {"upscale&upscale=1", "upscale: the value is empty"},
               {"width=1%00&height=1", "width: \"1\" is not allowed"},
               {"wid%00th=1&height=1", "the name of a field holds a zero byte"},
               {"=1&height=1", "a field has no name"},
               {"width=1", "send the picture's width and height"},
               {"&", "send the picture's width and height"},
               {"colour=1", "colour: there is no such field"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (fields(&upload, bad[i].body, strlen(bad[i].body), &err) != ERROR_INVALID)
            fail_msg("%s was taken", bad[i].body);
        says(&err, bad[i].text);
        upload_destroy(&upload);
    }
    char *large = malloc(16385);
    assert_non_null(large);
    memset(large, '&', 16385);
    assert_int_equal(fields(&upload, large, 16384, &err), ERROR_INVALID);
    says(&err, "send the picture's width and height");
    upload_destroy(&upload);
    assert_int_equal(fields(&upload, large, 16385, &err), ERROR_TOO_LARGE);
    says(&err, "the fields are over the limit of 16 KiB");
    upload_destroy(&upload);
    free(large);
}

static void test_raw(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct upload *upload = make(false, 8);
    assert_int_equal(upload_begin(upload, "application/x-www-form-urlencoded", 6, &err), OK);
    assert_int_equal(upload_feed(upload, "a=b&c", 5, &err), OK);
    assert_int_equal(upload_finish(upload, &err), OK);
    assert_int_equal(upload_feed(upload, "1234", 4, &err), ERROR_TOO_LARGE);
    says(&err, "over the limit of 8 bytes");
    upload_destroy(&upload);

    upload = make(false, 8);
    error_clear(&err);
    assert_int_equal(upload_begin(upload, NULL, 0, &err), ERROR_INVALID);
    says(&err, "the body is empty");
    error_clear(&err);
    assert_int_equal(upload_begin(upload, "multipart/mixed; boundary=x", 5, &err), ERROR_UNSUPPORTED);
    upload_destroy(&upload);
    upload_destroy(&upload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields), cmocka_unit_test(test_form), cmocka_unit_test(test_urlencoded),
        cmocka_unit_test(test_growth), cmocka_unit_test(test_raw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
