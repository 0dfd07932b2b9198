/* Forms: whatever way a body is cut, the same parts come out of it, and what is no form is refused by what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/multipart.h"

/* What came out, as text: "<name|file name|encoding>", the data, and "$". */
struct record {
    char text[65536];
    size_t size;
    enum error_code fail_at_begin, fail_at_data, fail_at_end;
};

static enum error_code record_begin(void *context, const struct multipart_part *part, struct error *err)
{
    struct record *record = context;
    record->size += (size_t)sprintf(record->text + record->size, "<%s|%s|%s>", part->name ? part->name : "-",
                                    part->file_name ? part->file_name : "-", part->encoding ? part->encoding : "-");
    return record->fail_at_begin ? error_set(err, record->fail_at_begin, "begin") : OK;
}

static enum error_code record_data(void *context, const char *data, size_t size, struct error *err)
{
    struct record *record = context;
    assert_true(size > 0);
    assert_true(size < sizeof record->text - record->size);
    memcpy(record->text + record->size, data, size);
    record->size += size;
    return record->fail_at_data ? error_set(err, record->fail_at_data, "data") : OK;
}

static enum error_code record_end(void *context, struct error *err)
{
    struct record *record = context;
    record->text[record->size++] = '$';
    return record->fail_at_end ? error_set(err, record->fail_at_end, "end") : OK;
}

static const struct multipart_events events = {record_begin, record_data, record_end};

/* Feeds a part of the body from memory of its exact size, so that a sanitizer sees any read beyond it. */
static enum error_code feed(struct multipart *multipart, const char *data, size_t size, struct error *err)
{
    char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    enum error_code code = multipart_feed(multipart, copy, size, err);
    free(copy);
    return code;
}

/* The body in pieces: `first` bytes, then `step` at a time. */
static enum error_code take(const char *type, const char *body, size_t size, size_t first, size_t step,
                            struct record *record, struct error *err)
{
    struct multipart *multipart;
    error_clear(err);
    record->size = 0;
    enum error_code code = multipart_create(&multipart, type, &events, record, err);
    if (code)
        return code;
    for (size_t at = 0, n = first; at < size && code == OK; at += n, n = step) {
        n = n < size - at ? n : size - at;
        code = feed(multipart, body + at, n, err);
    }
    if (code == OK)
        code = multipart_finish(multipart, err);
    multipart_destroy(&multipart);
    assert_null(multipart);
    record->text[record->size] = 0;
    return code;
}

static struct record record;

/* Cut at every place, and byte by byte, the body has to give this. */
static void gives(const char *type, const char *body, size_t size, enum error_code want, const char *text)
{
    struct error err = ERROR_INIT;
    for (size_t first = 0; first <= size; first++) {
        enum error_code code = take(type, body, size, first, size + 1, &record, &err);
        if (code != want)
            fail_msg("cut at %zu: %s", first, err.text);
        if (want == OK && (record.size != strlen(text) || memcmp(record.text, text, record.size) != 0))
            fail_msg("cut at %zu: %s", first, record.text);
        if (want && !strstr(err.text, text))
            fail_msg("cut at %zu: \"%s\" does not say \"%s\"", first, err.text, text);
    }
    for (size_t step = 1; step < 8; step++) {
        assert_int_equal(take(type, body, size, step, step, &record, &err), want);
        if (want == OK)
            assert_string_equal(record.text, text);
    }
}

#define FORM "multipart/form-data; boundary=b"
#define PART "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n"
#define GIVES(body, text) gives(FORM, body, sizeof(body) - 1, OK, text)
#define REFUSED(body, text) gives(FORM, body, sizeof(body) - 1, ERROR_INVALID, text)

static void test_parts(void **state)
{
    (void)state;
    GIVES("--b--", "");
    GIVES(PART "\r\n--b--", "<a|-|->$");
    GIVES(PART "x\r\n--b--\r\n", "<a|-|->x$");
    GIVES("\r\n" PART "x\r\n--b--\r\nand more --b\r\n--b\r\n", "<a|-|->x$");
    GIVES("a preamble --b\r\n-\r\n--a\r\n" PART "x\r\n--b--", "<a|-|->x$");
    GIVES(PART "\r\n" PART "1\r\n" PART "\r\n\r\n--b--", "<a|-|->$<a|-|->1$<a|-|->\r\n$");
    /* what only begins as a delimiter */
    GIVES(PART "\r\r\n-\r\n--\r\n\r\n--c\r\n--\rb\r\n-\r\n--b \t \r\nContent-Disposition:form-data ; "
               "name=c\r\n\r\n\r\n\r\n--b--",
          "<a|-|->\r\r\n-\r\n--\r\n\r\n--c\r\n--\rb\r\n-$<c|-|->\r\n$");
    GIVES(PART "\n--b\r--b--\r\n --b\r\n--b--", "<a|-|->\n--b\r--b--\r\n --b$");
    /* a delimiter at the place where data may begin stands behind an empty line, not behind one that is missing */
    GIVES(PART "--b\r\n\r\n--b--", "<a|-|->--b\r\n$");
}

static void test_headers(void **state)
{
    (void)state;
#define HEADER(header, text) GIVES("--b\r\n" header "\r\n\r\n\r\n--b--", text)
    HEADER("content-DISPOSITION: form-data; name=\"image\"; filename=\"a b.png\"\r\nContent-Type: image/png",
           "<image|a b.png|->$");
    HEADER("X-Any: \xc3\xa4\r\nContent-Transfer-Encoding:  8bit \t\r\nContent-Disposition: FORM-DATA;NAME=a;filename=b",
           "<a|b|8bit>$");
    HEADER("Content-Disposition: form-data; name=\"a\"; filename*=UTF-8''x; filename=\"\xc3\xa4.png\";",
           "<a|\xc3\xa4.png|->$");
    HEADER("Content-Disposition: form-data; name=\"\"; filename=\"\"", "<||->$");
    HEADER("Content-Disposition: form-data", "<-|-|->$");
    HEADER("Content-Disposition: form-data ;", "<-|-|->$");
    HEADER("Content-Type: text/plain", "<-|-|->$");
    GIVES("--b\r\n\r\nx\r\n--b--", "<-|-|->x$");
    /* as curl and browsers escape, and what they leave alone */
    HEADER("Content-Disposition: form-data; name=\"a\"; filename=\"q\\\"q\\\\q%22q%0d%0Aq%2fq\\q;q=q\"",
           "<a|q\"q\\q\"q\r\nq%2fq\\q;q=q|->$");
    HEADER("Content-Disposition: form-data; name=\"a\"; filename=\"%2\"", "<a|%2|->$");
#undef HEADER
}

static void test_refused(void **state)
{
    (void)state;
    REFUSED("", "the boundary that the Content-Type names is not in the form");
    REFUSED("--c--", "is not in the form");
    REFUSED("x--b--", "is not in the form");
    REFUSED("\n--b--", "is not in the form");
    REFUSED("--b", "cut off");
    REFUSED("--b-", "cut off");
    REFUSED("--b\r\nContent-", "cut off");
    REFUSED(PART, "cut off");
    REFUSED(PART "x\r\n--b", "cut off");
    REFUSED(PART "x\n--b--\n", "cut off");
    REFUSED("--bx", "a boundary of the form is followed neither by a new line nor by \"--\"");
    REFUSED("--b\nContent", "is followed neither");
    REFUSED("--b\rx", "is followed neither");
    REFUSED("--b-x", "is followed neither");
    REFUSED("--b --", "is followed neither");
    REFUSED(PART "x\r\n--b\r\r", "is followed neither");
#define HEADER(header, text) REFUSED("--b\r\n" header "\r\n\r\n\r\n--b--", text)
    HEADER("Content-Disposition: attachment; name=\"a\"", "is not form-data");
    HEADER("Content-Disposition: form-datax; name=\"a\"", "is not form-data");
    HEADER("Content-Disposition: form-data name=\"a\"", "is not form-data");
    HEADER("Content-Disposition: form-data; name=\"a", "is not understood");
    HEADER("Content-Disposition: form-data; name=\"a\\\"", "is not understood");
    HEADER("Content-Disposition: form-data; name=\"a\" x", "is not understood");
    HEADER("Content-Disposition: form-data; name", "is not understood");
    HEADER("Content-Disposition: form-data; na me=a", "is not understood");
    HEADER("Content-Disposition: form-data;; name=a", "is not understood");
    HEADER("Content-Disposition: form-data; =a", "is not understood");
    HEADER("Content-Disposition: form-data; name=a\"b\"", "is not understood");
    HEADER("Content-Disposition: form-data; name=a; name=b", "more than one name");
    HEADER("Content-Disposition: form-data; filename=a; filename=b", "more than one filename");
    HEADER("Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=b",
           "more than one Content-Disposition");
    HEADER("Content-Disposition: form-data;\r\n name=a", "is not \"Name: value\"");
    HEADER("Content-Disposition : form-data", "is not \"Name: value\"");
    HEADER("Content-Disposition", "is not \"Name: value\"");
    HEADER(": form-data", "is not \"Name: value\"");
    HEADER("A: b\r\n\rContent-Disposition: form-data", "is not \"Name: value\"");
    HEADER("A: b\rc", "holds control characters");
    HEADER("Content-Disposition: form-data; name=\"a\0\"", "holds control characters");
    HEADER("A: b\nc: d", "does not end with CR LF");
    HEADER("A: b\n", "does not end with CR LF");
    HEADER("\nA: b", "does not end with CR LF");
    HEADER("Content-Type: Multipart/mixed; boundary=c", "is multipart itself");
#undef HEADER
}

static void test_boundaries(void **state)
{
    (void)state;
#define LONG "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'()+_,-."
    static const char *const good[][2] = {{"multipart/form-data; boundary=" LONG, LONG},
                                          {"Multipart/Form-Data ;\tBOUNDARY=\"a b?\"", "a b?"},
                                          {"multipart/form-data;boundary=_=_x;", "_=_x"},
                                          {"multipart/form-data; charset=\"a;b\"; boundary=-", "-"}};
    static const char *const bad[] = {
        "multipart/form-data",
        "multipart/form-data; charset=utf-8",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=a b",
        "multipart/form-data; boundary=\xc3\xa4",
        "multipart/form-data; boundary=a*",
        "multipart/form-data; boundary=\"a%0d\"",
        "multipart/form-data; boundary=" LONG "/",
        "multipart/form-data; boundary=a; boundary=a",
        "multipart/form-data boundary=a",
        "multipart/mixed; boundary=a",
    };
    struct error err = ERROR_INIT;
    char body[2 * sizeof LONG + 64];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        sprintf(body, "--%s\r\n\r\nx\r\n-\r\n--%s--", good[i][1], good[i][1]);
        gives(good[i][0], body, strlen(body), OK, "<-|-|->x\r\n-$");
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (take(bad[i], "", 0, 0, 1, &record, &err) != ERROR_INVALID || !strstr(err.text, "boundary"))
            fail_msg("%s: %s", bad[i], err.text);
    char *huge = malloc(MULTIPART_HEADER_MAX + 2);
    assert_non_null(huge);
    memset(huge, 'a', MULTIPART_HEADER_MAX + 1);
    huge[MULTIPART_HEADER_MAX + 1] = 0;
    assert_int_equal(take(huge, "", 0, 0, 1, &record, &err), ERROR_INVALID);
    free(huge);
}

/* Headers and parts up to their bounds, and one more. */
static void test_bounds(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    char *body = malloc(MULTIPART_HEADER_MAX + 64);
    assert_non_null(body);
    for (size_t more = 0; more < 2; more++)
        for (size_t step = 1; step < 10000; step += 7777) {
            const size_t filler = MULTIPART_HEADER_MAX - 7 + more; /* "A: " and two line ends */
            size_t size = (size_t)sprintf(body, "--b\r\nA: ");
            memset(body + size, 'a', filler);
            size += filler;
            size += (size_t)sprintf(body + size, "\r\n\r\n\r\n--b--");
            assert_int_equal(take(FORM, body, size, step, step, &record, &err), more ? ERROR_INVALID : OK);
            if (more)
                assert_string_equal(err.text, "the header of a part is longer than 8192 bytes");
        }
    for (int parts = MULTIPART_PARTS; parts <= MULTIPART_PARTS + 1; parts++) {
        size_t size = 0;
        for (int i = 0; i < parts; i++)
            size += (size_t)sprintf(body + size, "--b\r\n\r\n\r\n");
        size += (size_t)sprintf(body + size, "--b--");
        assert_int_equal(take(FORM, body, size, size, 1, &record, &err), parts > MULTIPART_PARTS ? ERROR_INVALID : OK);
        if (parts > MULTIPART_PARTS)
            assert_string_equal(err.text, "the form has more than 128 parts");
    }
    free(body);
}

/* What the receiver says ends the parse, wherever it says it. */
static void test_errors(void **state)
{
    (void)state;
    static const char body[] = PART "xy\r\n" PART "z\r\n--b--";
    struct error err = ERROR_INIT;
    for (size_t step = 1; step <= sizeof body; step++) {
        record.fail_at_begin = ERROR_TOO_LARGE;
        assert_int_equal(take(FORM, body, sizeof body - 1, step, step, &record, &err), ERROR_TOO_LARGE);
        assert_string_equal(record.text, "<a|-|->");
        record.fail_at_begin = OK;
        record.fail_at_data = ERROR_NO_MEMORY;
        assert_int_equal(take(FORM, body, sizeof body - 1, step, step, &record, &err), ERROR_NO_MEMORY);
        assert_memory_equal(record.text, "<a|-|->x", 8);
        assert_true(record.size <= 9);
        record.fail_at_data = OK;
        record.fail_at_end = ERROR_UNSUPPORTED;
        assert_int_equal(take(FORM, body, sizeof body - 1, step, step, &record, &err), ERROR_UNSUPPORTED);
        assert_string_equal(record.text, "<a|-|->xy$");
        record.fail_at_end = OK;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),      cmocka_unit_test(test_headers), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_boundaries), cmocka_unit_test(test_bounds),  cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
