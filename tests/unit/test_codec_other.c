/* What is in no format that is read is called by its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/image/codec.h"

static void expect(const void *data, size_t size, const char *words)
{
    struct codec_info info;
    struct error err = ERROR_INIT;
    const enum error_code code = codec_probe(data, size, &info, &err);
    if (code == ERROR_CORRUPT && !*words) /* a raw file that is cut is like a TIFF */
        return;
    assert_int_equal(code, ERROR_UNSUPPORTED);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" lacks \"%s\"", err.text, words);
}

/* Of each kind the beginning of a real file. */
static void what_people_send_instead_is_named(void **state)
{
#define FILE_OF(begin, words)                                                                                          \
    {                                                                                                                  \
        begin, sizeof begin - 1, words                                                                                 \
    }
    static const struct {
        const char *begin;
        size_t size;
        const char *words;
    } files[] = {
        FILE_OF("GIF89a\1\0\1\0", "a GIF"),
        FILE_OF("\0\0\0\x18"
                "ftypcrx \0\0\0\1crx isom",
                "raw file"),
        FILE_OF("\0\0\0\x18"
                "ftypisom\0\0\0\1isommp42",
                "a video"),
        FILE_OF("\xff\xff\xff\xff"
                "ftypisom",
                "a video"),
        FILE_OF("II*\0\x10\0\0\0CR\2\0", "raw file"),
        FILE_OF("II*\0\x08\0\0\0\1\0\x12\xc6\1\0\4\0\0\0\1\4\0\0", "raw file"),                        /* DNG */
        FILE_OF("MM\0*\0\0\0\x08\0\2\1\x0f\0\2\0\0\0\1N\0\0\0\1\x4a\0\4\0\0\0\1\0\0\0\0", "raw file"), /* NEF */
        FILE_OF("IIU\0\x18\0\0\0", "raw file"),
        FILE_OF("FUJIFILMCCD-RAW 0201", "raw file"),
        FILE_OF("BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", "a BMP"),
        FILE_OF("8BPS\0\1", "Photoshop"),
        FILE_OF("%PDF-1.7\n%\xe2\xe3\xcf\xd3", "a PDF"),
        FILE_OF("\x1f\x8b\x08\0\0", "gzip"),
        FILE_OF("PK\3\4\x14\0", "ZIP"),
        FILE_OF("P6\n2 2\n255\n\0\1", "PNM"),
        FILE_OF("<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "an SVG"),
        FILE_OF("\xef\xbb\xbf<?xml version=\"1.0\"?>\n<svg/>", "an SVG"),
        FILE_OF("\n<!DOCTYPE html><title>x</title>", "a web page"),
        FILE_OF("{\"image\": \"/9j/4AAQSkZJRg\"}", "JSON"),
        FILE_OF("data:image/png;base64,iVBORw0KGgo=", "a data: URL"),
        FILE_OF("https://example.com/photo.jpg\n", "the address of a picture"),
        FILE_OF("/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0a\r\nHBwg", "base64"),
        FILE_OF("--x\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\n\xff\xd8\xff\0", "a form"),
        FILE_OF("a few words, and that is all of them; surely no picture, however long one looks at it",
                "this is text"),
    };
#undef FILE_OF
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        expect(files[i].begin, files[i].size, files[i].words);
        for (size_t size = 0; size < files[i].size; size++) { /* none is read beyond its end */
            uint8_t *cut = malloc(size ? size : 1);
            memcpy(cut, files[i].begin, size);
            expect(cut, size, "");
            free(cut);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_people_send_instead_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
