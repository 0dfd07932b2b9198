/* restored healthcheck: asks the server of this configuration whether it is ready. */
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "server/cli/cli.h"

#define TIMEOUT_SECONDS 5

/* The whole answer to GET /readyz. */
static enum error_code healthcheck_ask(const char *listen, char *answer, size_t size, struct error *err)
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
    char request[256];
    const bool ipv6 = strchr(host, ':');
    int length = snprintf(request, sizeof request, "GET /readyz HTTP/1.0\r\nHost: %s%s%s:%s\r\n\r\n", ipv6 ? "[" : "",
                          host, ipv6 ? "]" : "", port);
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

/* What the answer says: ready, or why not. Anything that does not answer like /readyz is another program. */
static int healthcheck_read(const char *answer, const char *listen)
{
    int status = 0;
    const char *body = strstr(answer, "\r\n\r\n");
    json_t *json = body ? json_loads(body + 4, 0, NULL) : NULL, *reason;
    const json_t *ready = json_object_get(json, "ready");
    const bool http = sscanf(answer, "HTTP/%*d.%*d %d", &status) == 1;
    if (!json_is_boolean(ready) && !http)
        fprintf(stderr, "restored: what answers at %s is not restored: it does not speak HTTP\n", listen);
    else if (!json_is_boolean(ready))
        fprintf(stderr, "restored: what answers at %s is not restored: GET /readyz gave status %d and not its report\n",
                listen, status);
    else if (!json_is_true(ready) || status != 200) {
        size_t index;
        fprintf(stderr, "restored: the server at %s is not ready\n", listen);
        json_array_foreach(json_object_get(json, "reasons"), index, reason)
            fprintf(stderr, "  %s\n", json_string_value(reason));
    }
    const bool good = json_is_true(ready) && status == 200;
    json_decref(json);
    return good ? CLI_OK : CLI_FAILED;
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
    char answer[32768];
    if (healthcheck_ask(config.listen, answer, sizeof answer, &err))
        return cli_fail(&err, CLI_FAILED);
    return healthcheck_read(answer, config.listen);
}
