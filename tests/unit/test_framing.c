/* framing_read behind libmicrohttpd itself: requests as bytes, and why each is refused. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/http/framing.h"

static void *look(void *context, const char *text, struct MHD_Connection *connection)
{
    static struct framing_target target; /* one request at a time */
    (void)context;
    (void)connection;
    framing_look(&target, text);
    return &target;
}

/* Answers with what framing_read says: the reason, or "LENGTH has_length chunked has_body". */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *data, size_t *size, void **request)
{
    struct framing framing;
    char text[256];
    (void)context;
    (void)url;
    (void)data;
    (void)size;
    framing_read(&framing, connection, method, *request, version);
    snprintf(text, sizeof text, "%llu %d %d %d", (unsigned long long)framing.length, framing.has_length,
             framing.chunked, framing.has_body);
    const char *says = framing.wrong ? framing.wrong : text;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(says), (void *)(uintptr_t)says, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result queued = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return queued;
}

static struct MHD_Daemon *served;
static struct sockaddr_in address;

static void asks(const char *request, size_t size, const char *want)
{
    char text[4096];
    size_t used = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(fd, request, size, MSG_NOSIGNAL), (ssize_t)size);
    shutdown(fd, SHUT_WR);
    for (ssize_t n; used < sizeof text - 1 && (n = recv(fd, text + used, sizeof text - 1 - used, 0)) > 0;)
        used += (size_t)n;
    text[used] = 0;
    close(fd);
    const char *body = strstr(text, "\r\n\r\n");
    if (!body || !strstr(body, want))
        fail_msg("%s\nis answered by\n%s\nand not by: %s", request, text, want);
}

#define ASKS(request, want) asks(request, sizeof(request) - 1, want)
#define POST(headers) "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" headers "\r\n"

static void test_read(void **state)
{
    (void)state;
    ASKS(POST(""), "0 0 0 0");
    ASKS(POST("Content-Length: 12\r\n"), "12 1 0 1");
    ASKS(POST("content-length: 0\r\n"), "0 1 0 0");
    ASKS(POST("Transfer-Encoding: Chunked \r\n"), "0 0 1 1");
    ASKS("POST / HTTP/1.0\r\n\r\n", "0 0 0 0");
    ASKS("POST /?a=%00 HTTP/1.1\r\nHost: a:80 \r\nConnection: close\r\nEmpty:\r\n\r\n", "0 0 0 0");
    ASKS(POST("Content-Length: 12\r\nContent-Length: 12\r\n"), "more than one Content-Length");
    ASKS(POST("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), "exclude each other");
    ASKS(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "more than one Transfer-Encoding");
    ASKS(POST("Transfer-Encoding: chunkedx\r\n"), "only chunked is supported");
    ASKS(POST("Transfer-Encoding: chunkex\r\n"), "only chunked is supported");
    ASKS(POST("Host: a\r\n"), "exactly one Host header is required");
    ASKS("POST / HTTP/1.1\r\nConnection: close\r\n\r\n", "exactly one Host header is required");
    ASKS("POST / HTTP/1.1\r\nHost: a/b\r\nConnection: close\r\n\r\n", "Host is not a host");
    ASKS("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 has no Transfer-Encoding");
    ASKS("POST /%00 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "path holds a zero byte");
    ASKS(POST("A b: c\r\n"), "a header's name holds characters");
    ASKS(POST("A: b\x7f\r\n"), "a header's value holds control characters");
    ASKS(POST("A: b\r\n c\r\n"), "a line that goes on in the next one");
    ASKS(POST("A: b\nC: d\r\n"), "does not end with CR LF");
    ASKS(POST("A: b\0c\r\n"), "zero byte");
    ASKS("POST  / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "one blank between them");
}

/* 256 arguments, and one more. */
static void test_arguments(void **state)
{
    (void)state;
    char request[2048];
    for (int count = 256; count <= 257; count++) {
        size_t size = (size_t)sprintf(request, "POST /?");
        for (int i = 1; i < count; i++)
            size += (size_t)sprintf(request + size, "a&");
        size += (size_t)sprintf(request + size, "a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        asks(request, size, count > 256 ? "more than 256 arguments" : "0 0 0 0");
    }
}

static int setup(void **state)
{
    (void)state;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    served = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, NULL, MHD_OPTION_SOCK_ADDR,
                              &address, MHD_OPTION_URI_LOG_CALLBACK, look, NULL, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = served ? MHD_get_daemon_info(served, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    if (info)
        address.sin_port = htons(info->port);
    return info ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    MHD_stop_daemon(served);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read), cmocka_unit_test(test_arguments)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
