/* restored healthcheck: asks the server of this configuration whether it is ready. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "server/cli/cli.h"

#define TIMEOUT_SECONDS 5

/* The first line of GET /readyz, and its body. */
static enum error_code ask(const char *listen, char *answer, size_t size, struct error *err)
{
    char host[128], port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (!config_split_listen(listen, host, sizeof host, port, sizeof port) || !strcmp(port, "0"))
        return error_set(err, ERROR_INVALID, "listen: \"%s\" names no port to ask", listen);
    if (!strcmp(host, "0.0.0.0"))
        strcpy(host, "127.0.0.1");
    if (!strcmp(host, "::"))
        strcpy(host, "::1");
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return error_set(err, ERROR_IO, "%s: %s", listen, gai_strerror(failed));
    struct timeval time = {.tv_sec = TIMEOUT_SECONDS};
    enum error_code code = OK;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char request[64];
    int length = snprintf(request, sizeof request, "GET /readyz HTTP/1.0\r\n\r\n");
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) || connect(fd, found->ai_addr, found->ai_addrlen) ||
        write(fd, request, (size_t)length) != length)
        code = error_set(err, ERROR_IO, "%s: %m", listen);
    size_t used = 0;
    ssize_t n = 0;
    while (!code && used + 1 < size && (n = read(fd, answer + used, size - 1 - used)) > 0)
        used += (size_t)n;
    if (n < 0)
        code = error_set(err, ERROR_IO, "%s: %m", listen);
    answer[used] = 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    return code;
}

int cli_healthcheck(int argc, char **argv)
{
    struct cli cli;
    struct config config;
    struct error err = ERROR_INIT;
    bool help = false;
    enum error_code code = cli_begin(&cli, argc, argv, &config, &err);
    while (!code && cli_next(&cli, "")) {
        if (!*cli.name)
            code = error_set(&err, ERROR_INVALID, "healthcheck takes no \"%s\"", cli.value);
        else if (!strcmp(cli.name, "help") || !strcmp(cli.name, "h"))
            code = cli_flag(&cli, &help, &err);
        else
            code = cli_config(&cli, &config, &err);
    }
    if (help) {
        printf("restored healthcheck [--listen ADDRESS:PORT] [--config FILE]\n\n"
               "Exits 0 if the server there answers that it is ready, else 1 and says why not.\n");
        return CLI_OK;
    }
    if (code)
        return cli_fail(&err, CLI_USAGE);
    char answer[8192];
    if (ask(config.listen, answer, sizeof answer, &err))
        return cli_fail(&err, CLI_FAILED);
    int status = 0;
    if (sscanf(answer, "HTTP/%*d.%*d %d", &status) == 1 && status / 100 == 2)
        return CLI_OK;
    const char *body = strstr(answer, "\r\n\r\n");
    fprintf(stderr, "restored: not ready: %s", body ? body + 4 : answer);
    return CLI_FAILED;
}
