/* Any lines as what clients send in headers: Accept, file names, addresses, Host and Origin. What is made of them for
 * our own answers has to be a header's value: nobody adds a header, or ends a quoted text, by what he sends. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/utf8.h"
#include "server/http/header.h"
#include "server/http/proxies.h"
#include "server/http/site.h"
#include "tests/fuzz/exercise.h"

#define LINES 4

static void check_name(const char *name, const char *suffix)
{
    char file[HEADER_FILE_MAX], text[1024];
    int quotes = 0;
    header_file_name(name, suffix, "png", file);
    if (!utf8_valid(file) || file[0] == '.' || strpbrk(file, "/\\\"\r\n") ||
        strcmp(file + strlen(file) - 4, ".png") != 0)
        abort();
    header_disposition(name, suffix, "png", text, sizeof text);
    for (const char *c = text; *c; c++)
        quotes += *c == '"';
    if (!header_is_value(text, strlen(text)) || quotes != 2 || strncmp(text, "attachment; filename=\"", 22) != 0)
        abort();
}

static void check_notes(const char *const *notes)
{
    char text[HEADER_NOTES_MAX + 1];
    header_notes(notes, LINES, text);
    if (!header_is_value(text, strlen(text)) || text[0] != '[' || text[strlen(text) - 1] != ']')
        abort();
}

static void check_address(const char *trusted, const char *x_forwarded, const char *forwarded)
{
    struct error err = ERROR_INIT;
    struct in6_addr peer = IN6ADDR_LOOPBACK_INIT;
    char client[INET6_ADDRSTRLEN];
    if (proxies_check_list(trusted, &err) != err.code)
        abort();
    proxies_client(err.code ? "::1" : trusted, &peer, x_forwarded, forwarded, client);
    if (strspn(client, "0123456789abcdefABCDEF:.") != strlen(client))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1), *at = copy;
    const char *line[LINES] = {"", "", "", ""};
    struct error err = ERROR_INIT;
    bool named;
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    copy[size] = 0;
    for (int i = 0; i < LINES && at; i++)
        line[i] = strsep(&at, "\n");
    check_name(line[0], line[1]);
    check_notes(line);
    check_address(line[0], line[1], line[2]);
    const int quality = header_accept(line[0], "image/png", &named);
    if (quality < 0 || quality > 1000)
        abort();
    if (header_is_request_id(line[0]) && strlen(line[0]) > 64)
        abort();
    const struct site_request request = {line[0], line[1], line[2], line[3], line[1], line[2]};
    if (site_is_foreign_read(&request) && !site_is_foreign(&request)) /* what reads may do is a part of what all may */
        abort();
    if (!site_check_list(line[1], &err))
        site_host_is_ours(line[0], line[1], "127.0.0.1:8080", false);
    error_clear(&err);
    if (!site_check_origins(line[1], &err) && site_is_listed_origin(line[0], line[1]) && !strchr(line[0], ':'))
        abort();
    exercise_opened++; /* there is nothing to refuse as a whole */
    free(copy);
    return 0;
}
