/* restored healthcheck: asks the server of this configuration whether it is ready. */
#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"

#define TIMEOUT_SECONDS 5L

/* What the server answered to GET /readyz. */
struct healthcheck_answer {
    long status; /* 0: it does not speak HTTP */
    size_t used;
    char body[32768];
};

static size_t healthcheck_write(char *bytes, size_t one, size_t count, void *context)
{
    struct healthcheck_answer *answer = context;
    const size_t size = one * count, room = sizeof answer->body - answer->used;
    const size_t kept = size < room ? size : room; /* so long an answer is not the report */
    memcpy(answer->body + answer->used, bytes, kept);
    answer->used += kept;
    return size;
}

/* "http://HOST:PORT/readyz", or https; a server that listens on every address is asked on this machine. */
static enum error_code healthcheck_url(const struct config *config, bool tls, char *out, size_t size, struct error *err)
{
    char host[128], port[8];
    if (!config_split_listen(config->listen, host, sizeof host, port, sizeof port) || !strcmp(port, "0"))
        return error_set(err, ERROR_INVALID, "listen: \"%s\" names no port to ask", config->listen);
    const char *name = !strcmp(host, "0.0.0.0") ? "127.0.0.1" : !strcmp(host, "::") ? "::1" : host;
    const bool ipv6 = strchr(name, ':');
    snprintf(out, size, "http%s://%s%s%s:%s/readyz", tls ? "s" : "", ipv6 ? "[" : "", name, ipv6 ? "]" : "", port);
    return OK;
}

/* The server has to show the certificate of the configuration, whatever names it has. insecure: any certificate. */
static enum error_code healthcheck_ask(const struct config *config, bool insecure, struct healthcheck_answer *answer,
                                       struct error *err)
{
    char url[256], message[CURL_ERROR_SIZE] = "";
    enum error_code code = healthcheck_url(config, insecure || *config->tls_cert, url, sizeof url, err);
    if (code)
        return code;
    CURL *curl = curl_global_init(CURL_GLOBAL_ALL) ? NULL : curl_easy_init();
    if (!curl)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the request");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, TIMEOUT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, healthcheck_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, insecure ? 0L : 1L);
    if (!insecure && *config->tls_cert)
        curl_easy_setopt(curl, CURLOPT_CAINFO, config->tls_cert);
    const CURLcode failed = curl_easy_perform(curl);
    long number = 0;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &number);
    if (failed == CURLE_GOT_NOTHING || failed == CURLE_UNSUPPORTED_PROTOCOL || failed == CURLE_WEIRD_SERVER_REPLY)
        answer->status = 0;
    else if (failed)
        code = error_set(err, ERROR_IO, "%s: %s", config->listen,
                         failed == CURLE_COULDNT_CONNECT && number ? strerror((int)number)
                         : *message                                ? message
                                                                   : curl_easy_strerror(failed));
    else
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_easy_cleanup(curl);
    curl_global_cleanup();
    return code;
}

/* What the answer says: ready, or why not. Anything that does not answer like /readyz is another program. */
static int healthcheck_read(const struct healthcheck_answer *answer, const char *listen)
{
    const long status = answer->status;
    json_t *json = json_loadb(answer->body, answer->used, 0, NULL), *reason;
    const json_t *ready = json_object_get(json, "ready");
    if (!json_is_boolean(ready) && !status)
        fprintf(stderr,
                "restored: what answers at %s is not restored: it does not speak HTTP (HTTPS: say --tls_cert or "
                "--insecure)\n",
                listen);
    else if (!json_is_boolean(ready))
        fprintf(stderr,
                "restored: what answers at %s is not restored: GET /readyz gave status %ld and not its report\n",
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
    static const char *const own[] = {"insecure", NULL};
    static struct healthcheck_answer answer;
    bool help = false, insecure = false;
    enum error_code code = cli_begin(&cli, argc, argv, &config, &err);
    cli.own = own;
    while (!code && cli_next(&cli, "")) {
        if (!*cli.name)
            code = error_set(&err, ERROR_INVALID, "healthcheck takes no \"%s\"", cli.value);
        else if (!strcmp(cli.name, "help") || !strcmp(cli.name, "h"))
            code = cli_flag(&cli, &help, &err);
        else if (!strcmp(cli.name, "insecure"))
            code = cli_flag(&cli, &insecure, &err);
        else
            code = cli_config(&cli, &config, &err);
    }
    if (help) {
        printf("restored healthcheck [--listen ADDRESS:PORT] [--tls_cert FILE] [--insecure] [--config FILE]\n\n"
               "Exits 0 if the server there answers that it is ready, else 1 and says why not. With tls_cert it asks "
               "over\n"
               "HTTPS, and the server must show that certificate. It needs no token.\n\n"
               "  --insecure                 ask over HTTPS, whatever certificate the server shows\n");
        return CLI_OK;
    }
    if (code)
        return cli_fail(&err, CLI_USAGE);
    if (healthcheck_ask(&config, insecure, &answer, &err))
        return cli_fail(&err, CLI_FAILED);
    return healthcheck_read(&answer, config.listen);
}
