/* server/store/s3.h by hand, for tests/api/s3.test.mjs and for measuring a store:
 *   s3_tool put|get|part|head|delete KEY FILE …, with the settings in S3_ENDPOINT, S3_BUCKET, S3_PREFIX, S3_REGION,
 *   S3_STYLE (host), S3_CREDENTIALS, S3_CA, S3_STALL and S3_TRIES.
 * With S3_PAYLOAD (s3://BUCKET/PREFIX?…) put, get and delete go through server/store/payload.h, by its names.
 * `part KEY FILE OFFSET SIZE` reads some bytes. Prints the object's size, and at last the process's largest size in
 * KiB. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/store/payload.h"
#include "server/store/s3.h"

static bool take_to_file(void *context, const void *data, size_t size)
{
    const int fd = *(int *)context;
    const char *at = data;
    while (size) {
        const ssize_t n = write(fd, at, size);
        if (n <= 0)
            return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static enum error_code take_payload(void *context, const void *data, size_t size, struct error *err)
{
    return take_to_file(context, data, size) ? OK : error_set(err, ERROR_IO, "the file cannot be written: %m");
}

/* put, get and delete of a payload, as the setting `payload` names its store. */
static enum error_code run_payload(const char *where, int count, char **words, struct error *err)
{
    const struct payload_settings settings = {.where = where, .store = "postgresql://nowhere", .password_file = ""};
    const char *what = words[1], *name = words[2];
    struct payload *payload;
    struct stat status;
    enum error_code code = payload_open(&payload, &settings, err);
    if (code)
        return code;
    const int fd = count > 3 ? open(words[3], O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (!strcmp(what, "put") && !fstat(fd, &status))
        code = payload->engine->put(payload, name, fd, (uint64_t)status.st_size, err);
    else if (!strcmp(what, "get"))
        code = payload->engine->get(payload, name, take_payload, (void *)&fd, err);
    else
        code = payload->engine->remove(payload, name, err);
    if (fd >= 0)
        close(fd);
    payload_close(&payload);
    printf("0\n");
    return code;
}

static enum error_code run(struct s3 *s3, int count, char **words, struct error *err)
{
    const char *what = words[1], *key = words[2], *file = count > 3 ? words[3] : "";
    uint64_t whole = 0;
    enum error_code code = OK;
    int fd;
    if (!strcmp(what, "put")) {
        struct stat status;
        fd = open(file, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status))
            return error_set(err, ERROR_IO, "%s: %m", file);
        const struct s3_source source = {.fd = fd, .size = (uint64_t)status.st_size};
        whole = source.size;
        code = s3_put(s3, key, &source, err);
        close(fd);
    } else if (!strcmp(what, "get") || !strcmp(what, "part")) {
        const uint64_t offset = count > 5 ? strtoull(words[4], NULL, 10) : 0;
        const uint64_t size = count > 5 ? strtoull(words[5], NULL, 10) : 0;
        fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
            return error_set(err, ERROR_IO, "%s: %m", file);
        code = s3_get(s3, key, offset, size, &whole, take_to_file, &fd, err);
        close(fd);
    } else if (!strcmp(what, "head")) {
        code = s3_head(s3, key, &whole, err);
    } else {
        code = s3_delete(s3, key, err);
    }
    if (!code)
        printf("%llu\n", (unsigned long long)whole);
    return code;
}

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

/* getrusage tells the parent's size as well, from before exec. */
static void print_memory(void)
{
    char line[256];
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, "VmHWM:", 6))
            printf("%ld\n", atol(line + 6));
    if (file)
        fclose(file);
}

int main(int count, char **words)
{
    struct error err = ERROR_INIT;
    struct s3 *s3;
    const char *style = getenv("S3_STYLE");
    const struct s3_settings settings = {.endpoint = getenv("S3_ENDPOINT"),
                                         .bucket = getenv("S3_BUCKET"),
                                         .prefix = getenv("S3_PREFIX"),
                                         .region = getenv("S3_REGION"),
                                         .host_style = style && !strcmp(style, "host"),
                                         .credentials = getenv("S3_CREDENTIALS"),
                                         .ca_file = getenv("S3_CA"),
                                         .stall_seconds = number("S3_STALL"),
                                         .tries = number("S3_TRIES")};
    if (count < 3) {
        fprintf(stderr, "usage: s3_tool put|get|part|head|delete KEY [FILE [OFFSET SIZE]]\n");
        return 2;
    }
    const char *where = getenv("S3_PAYLOAD");
    enum error_code code = where ? run_payload(where, count, words, &err) : s3_open(&s3, &settings, &err);
    if (!code && !where) {
        code = run(s3, count, words, &err);
        s3_close(&s3);
    }
    if (code)
        fprintf(stderr, "%s: %s\n", error_code_name(code), err.text);
    print_memory();
    return code ? 1 : 0;
}
