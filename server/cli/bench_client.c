#include "server/cli/bench_client.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define CHUNK 65536

struct bench_client {
    int fd;
    char buffer[CHUNK + 1]; /* what was received last, with a final 0 */
};

enum error_code bench_client_create(struct bench_client **out, int port, struct error *err)
{
    struct bench_client *client = *out = mem_calloc(1, sizeof *client);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (!client)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for a client");
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd >= 0 && !connect(client->fd, (const struct sockaddr *)&address, sizeof address))
        return OK;
    enum error_code code = error_set(err, ERROR_IO, "no connection to port %d: %m", port);
    bench_client_destroy(out);
    return code;
}

void bench_client_destroy(struct bench_client **client)
{
    if (*client && (*client)->fd >= 0)
        close((*client)->fd);
    free(*client);
    *client = NULL;
}

static enum error_code bench_client_send_all(struct bench_client *client, const void *data, size_t size,
                                             struct error *err)
{
    const char *at = data;
    while (size) {
        ssize_t sent = send(client->fd, at, size, MSG_NOSIGNAL);
        if (sent < 0)
            return error_set(err, ERROR_IO, "the request could not be sent: %m");
        at += sent;
        size -= (size_t)sent;
    }
    return OK;
}

/* Reads more after what is in the buffer; *used grows. */
static enum error_code bench_client_receive(struct bench_client *client, size_t *used, struct error *err)
{
    ssize_t got = *used < CHUNK ? recv(client->fd, client->buffer + *used, CHUNK - *used, 0) : 0;
    if (got <= 0)
        return error_set(err, ERROR_IO, got ? "the answer did not come: %m" : "the server closed the connection");
    *used += (size_t)got;
    client->buffer[*used] = 0;
    return OK;
}

/* A header's value in the answer's head; "" if there is none. */
static const char *bench_client_header(const char *head, const char *name)
{
    const size_t length = strlen(name);
    for (const char *line = head; (line = strstr(line, "\r\n")) && line[2] != '\r';) {
        line += 2;
        if (!strncasecmp(line, name, length) && line[length] == ':')
            return line + length + 1 + strspn(line + length + 1, " ");
    }
    return "";
}

enum error_code bench_client_post(struct bench_client *client, const char *head, const uint8_t *body, size_t size,
                                  int *faces, struct error *err)
{
    char *end = NULL;
    int status = 0;
    size_t used = 0;
    enum error_code code = bench_client_send_all(client, head, strlen(head), err);
    if (!code)
        code = bench_client_send_all(client, body, size, err);
    while (!code && (used == 0 || !(end = strstr(client->buffer, "\r\n\r\n"))))
        code = bench_client_receive(client, &used, err);
    if (code)
        return code;
    *faces = atoi(bench_client_header(client->buffer, "X-Restored-Faces"));
    size_t left = strtoul(bench_client_header(client->buffer, "Content-Length"), NULL, 10);
    const size_t there = used - (size_t)(end + 4 - client->buffer);
    if (sscanf(client->buffer, "HTTP/%*d.%*d %d", &status) != 1 || status != 200) {
        const char *detail = strstr(end, "\"detail\": \"");
        detail = detail ? detail + strlen("\"detail\": \"") : end + 4;
        return error_set(err, ERROR_IO, "the server answered %d: %.*s", status, (int)strcspn(detail, "\"\n"), detail);
    }
    left = left > there ? left - there : 0;
    for (; !code && left; left -= used) {
        used = 0;
        code = bench_client_receive(client, &used, err);
        used = used < left ? used : left;
    }
    return code;
}
