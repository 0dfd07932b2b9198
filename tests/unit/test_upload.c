/* What a request may carry, and what its headers become. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/utf8.h"
#include "server/http/framing.h"
#include "server/http/header.h"
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

static void disposition(const char *name, const char *suffix, const char *extension, const char *want)
{
    char out[1024];
    header_disposition(name, suffix, extension, out, sizeof out);
    assert_string_equal(out, want);
}

static void test_disposition(void **state)
{
    (void)state;
    disposition("photo.jpeg", "", "jpg", "attachment; filename=\"photo.jpg\"");
    disposition("photo", "x2", "png", "attachment; filename=\"photo_x2.png\"");
    disposition(NULL, NULL, "png", "attachment; filename=\"restored.png\"");
    disposition("../../etc/passwd", "", "png", "attachment; filename=\"passwd.png\"");
    disposition("C:\\dir\\a b.tar.png", "", "png", "attachment; filename=\"a b.tar.png\"");
    disposition("..", "", "png", "attachment; filename=\"restored.png\"");
    disposition(".png", "", "png", "attachment; filename=\"png.png\"");
    disposition("a\"b\r\nSet-Cookie: x=1;\x7f.png", "", "png", "attachment; filename=\"abSet-Cookie x=1.png\"");
    disposition("\xc3\xa4 \xe2\x82\xac.jpg", "", "jpg",
                "attachment; filename=\"_ _.jpg\"; filename*=UTF-8''%C3%A4%20%E2%82%AC.jpg");
    disposition("a\xff\xc0\x80z\xed\xa0\x80.png", "", "png", "attachment; filename=\"az.png\""); /* not UTF-8 */
    disposition("x\xc2\x85y.png", "", "png", "attachment; filename=\"xy.png\"");                 /* a C1 control */
    char name[2000], out[1024];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    header_disposition(name, name, "png", out, sizeof out);
    assert_true(strlen(out) < 300);
    /* the longest stem beside the longest suffix: both are cut there, and the extension stays */
    char *stem = out + strlen("attachment; filename=\"");
    assert_int_equal(strspn(stem, "a"), 120);
    assert_int_equal(stem[120], '_');
    assert_int_equal(strspn(stem + 121, "a"), 127);
    assert_string_equal(stem + 121 + 127, ".png\"");
    for (size_t i = 0; i + 1 < sizeof name; i += 2)
        memcpy(name + i, "\xc3\xa4", 2);
    name[1998] = 0;
    memset(out, '!', sizeof out);
    header_disposition(name, name, "jpeg", out, sizeof out);
    assert_int_equal(strspn(stem, "_"), 60 + 1 + 63); /* characters of two bytes, and the one between */
    assert_int_equal(strncmp(stem + 124, ".jpeg\"; filename*=UTF-8''%C3%A4", 31), 0);
    assert_string_equal(out + strlen(out) - 17, "%C3%A4%C3%A4.jpeg");
    memset(name, 'a', sizeof name);
    name[127] = 0; /* as long as a suffix may be: nothing of it is lost */
    header_disposition("a", name, "png", out, sizeof out);
    assert_int_equal(strlen(out), strlen("attachment; filename=\"a_.png\"") + 127);
    char most[2000];
    memset(most, 'b', sizeof most - 1);
    most[sizeof most - 1] = 0;
    header_disposition(most, name, "jpeg", out, sizeof out); /* as long as both may be: the extension is there */
    assert_non_null(strstr(out, "b_aaa"));
    assert_string_equal(out + strlen(out) - 6, ".jpeg\"");
    for (size_t i = 0; i + 2 < sizeof most; i += 2) /* a long name leaves nothing to a short one after it */
        memcpy(most + i, "\xc3\xa4", 2);
    most[sizeof most - 2] = 0;
    header_disposition(most, name, "png", out, sizeof out);
    disposition("\xc3\xa4.jpg", "", "jpg", "attachment; filename=\"_.jpg\"; filename*=UTF-8''%C3%A4.jpg");
}

static void test_accept(void **state)
{
    (void)state;
    bool named;
    assert_int_equal(header_accept(NULL, "image/png", NULL), 1000);
    assert_int_equal(header_accept("", "image/png", NULL), 1000);
    assert_int_equal(header_accept("*/*", "image/png", &named), 1000);
    assert_false(named);
    assert_int_equal(header_accept("image/*;q=0.8", "image/png", &named), 800);
    assert_true(named);
    assert_int_equal(header_accept("text/html, image/PNG ; q=0.25, */*;q=0.1", "image/png", NULL), 250);
    assert_int_equal(header_accept("text/html, */*;q=0.1", "image/png", NULL), 100);
    assert_int_equal(header_accept("image/webp;q=.1", "image/webp", NULL), 100); /* no 0 */
    assert_int_equal(header_accept("image/webp;q=.,image/png", "image/webp", NULL), 1000);
    assert_int_equal(header_accept("image/jpeg", "image/png", NULL), 0);
    assert_int_equal(header_accept("image/*;q=0, */*", "image/png", NULL), 0);
    assert_int_equal(header_accept("application/json;version=1;q=0.5", "application/json", NULL), 500);
    assert_int_equal(header_accept("image/p", "image/png", NULL), 0);
    assert_int_equal(header_accept(",,, ;q", "image/png", NULL), 0);
}

static void test_tokens(void **state)
{
    (void)state;
    assert_true(header_is_request_id("a-Z_09"));
    assert_false(header_is_request_id(""));
    assert_false(header_is_request_id("a b"));
    assert_false(header_is_request_id("a\r\nb"));
    char id[66];
    memset(id, 'a', 65);
    id[65] = 0;
    assert_false(header_is_request_id(id));
    id[64] = 0;
    assert_true(header_is_request_id(id));
    assert_true(header_is_token("Content-Length", 14));
    assert_false(header_is_token("Content-Length ", 15));
    assert_false(header_is_token("", 0));
    assert_false(header_is_token("a\0b", 3));
    assert_true(header_is_length("0123", 4));
    assert_false(header_is_length("+1", 2));
    assert_false(header_is_length("1,1", 3));
    assert_false(header_is_length("", 0));
    assert_false(header_is_length("00000000000000000001", 20));
}

static bool is_host(const char *text)
{
    return header_is_host(text, strlen(text));
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const good[] = {"a",     "a.example:80", "127.0.0.1:8080", "[::1]", "[::ffff:1.2.3.4]:80",
                                       "a_b-c", "localhost:",   "a%20b"};
    static const char *const bad[] = {"",   ":80", "a/b", "a b", "a:b", "a:80:80", "user@a", "[::1",
                                      "[]", "[g]", "a\\", "a\"", "a\t", "[::1]a",  "a,b c",  "\xc3\xa4"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!is_host(good[i]))
            fail_msg("\"%s\" is a host", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (is_host(bad[i]))
            fail_msg("\"%s\" is no host", bad[i]);
    assert_true(header_is_host("a/path", 1));
    assert_false(header_is_host("a/path", 6));
    assert_true(header_is_value("a\tb \xff", 5));
    assert_true(header_is_value("", 0));
    assert_false(header_is_value("a\rb", 3));
    assert_false(header_is_value("a\0b", 3));
    assert_false(header_is_value("\x7f", 1));
    assert_true(header_is_target("/%20?a=\xff", 8));
    assert_false(header_is_target("/a b", 4));
    assert_false(header_is_target("/\t", 2));
    assert_false(header_is_target("", 0));
    char host[FRAMING_HOST_MAX];
    assert_string_equal(framing_path("HTTP://a:80/healthz", host), "/healthz");
    assert_string_equal(host, "a:80");
    assert_string_equal(framing_path("/healthz", host), "/healthz");
    assert_string_equal(host, "");
    assert_string_equal(framing_path("https://[::1]", host), "/");
    assert_string_equal(host, "[::1]");
    assert_null(framing_path("http:///healthz", host));
    assert_null(framing_path("http://user@a/healthz", host));
    assert_string_equal(framing_path("ftp://a/", host), "ftp://a/");
    assert_string_equal(host, "");
}

static void test_utf8(void **state)
{
    (void)state;
    char out[8];
    assert_true(utf8_valid(""));
    assert_true(utf8_valid("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"));
    static const char *const bad[] = {"\xff\xfe", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\xc3", "\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(utf8_valid(bad[i]));
    assert_string_equal(utf8_copy(out, sizeof out, "a\xff\xc3\xa4\xc3"), "a?\xc3\xa4?");
    assert_string_equal(utf8_copy(out, sizeof out, "123456\xc3\xa4"), "123456"); /* not half of it */
    assert_string_equal(utf8_copy(out, sizeof out, "12345\xc3\xa4"), "12345\xc3\xa4");
    char escaped[32], text[] = "a\033[2J\xc3\xa4\xff\xc2\x9b\x7f";
    assert_string_equal(utf8_escape(escaped, sizeof escaped, text), "a\\x1B[2J\xc3\xa4\\xFF\\xC2\\x9B\\x7F");
    assert_string_equal(utf8_escape(escaped, 7, "abc\033d"), "abc"); /* not half of an escape */
    utf8_clean(text);
    assert_string_equal(text, "a?[2J\xc3\xa4????");
    struct error err = ERROR_INIT;
    assert_int_equal(error_set(&err, ERROR_IO, "%s: gone", "\033]0;x\a"), ERROR_IO);
    assert_string_equal(err.text, "?]0;x?: gone");
}

static void notes(const char *const *list, int count, const char *want)
{
    char out[HEADER_NOTES_MAX + 1];
    header_notes(list, count, out);
    assert_string_equal(out, want);
}

static void test_notes(void **state)
{
    (void)state;
    notes((const char *const[]){"one"}, 1, "[\"one\"]");
    notes((const char *const[]){"a \"b\" \\", "5 \xe2\x82\xac", "\xff\n"}, 3,
          "[\"a \\\"b\\\" \\\\\", \"5 \\u20AC\", \"?\\n\"]");
    /* sixteen of every length that a note may have, escaped and not */
    for (size_t size = 1; size < 200; size++) {
        char text[200], out[HEADER_NOTES_MAX + 1];
        const char *list[16];
        for (size_t at = 0; at < size; at++)
            text[at] = size % 2 ? 'x' : '\1';
        text[size] = 0;
        for (int i = 0; i < 16; i++)
            list[i] = text;
        memset(out, '!', sizeof out);
        header_notes(list, 16, out);
        size_t length = strlen(out), one = (size % 2 ? size : 6 * size) + 4; /* quotes, comma and blank */
        assert_true(length <= HEADER_NOTES_MAX);
        assert_int_equal(out[0], '[');
        assert_int_equal(out[length - 1], ']');
        const char *rest = strstr(out, "\"... and ");
        if (rest) { /* no more would have fitted */
            int left = 0;
            assert_int_equal(sscanf(rest, "\"... and %d more\"]", &left), 1);
            assert_int_equal((size_t)(rest - out - 1), (size_t)(16 - left) * one);
            assert_true((size_t)(rest - out) + one + 64 > HEADER_NOTES_MAX);
        } else {
            assert_int_equal(length, 16 * one);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_notes),       cmocka_unit_test(test_fields), cmocka_unit_test(test_form),
        cmocka_unit_test(test_urlencoded),  cmocka_unit_test(test_growth), cmocka_unit_test(test_raw),
        cmocka_unit_test(test_disposition), cmocka_unit_test(test_accept), cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_hosts),       cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
