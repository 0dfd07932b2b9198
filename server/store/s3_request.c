#include "server/store/s3_request.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/log.h"

#define S3_CONNECT_SECONDS 10L
#define S3_FIRST_PAUSE_MS 100
#define S3_HURRY_MS 5000

/* One try of a request. */
struct s3_try {
    struct s3 *s3;
    struct s3_request *request;
    CURL *curl;
    uint64_t sent; /* of the body */
    uint64_t skip; /* bytes of the answer that were taken before: the store began at the front again */
    bool stopped, changed;
    curl_off_t moved; /* bytes, both ways, and when it was so many for the first time */
    double moved_ms;
    char message[CURL_ERROR_SIZE];
};

/* ---- what is sent ---- */

/* Bytes of the body from `at` on; 0: the file is shorter than it was. */
static size_t s3_source_read(const struct s3_source *source, uint64_t at, void *out, size_t size)
{
    if (source->data) {
        memcpy(out, (const char *)source->data + at, size);
        return size;
    }
    for (;;) {
        const ssize_t n = pread(source->fd, out, size, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        return n > 0 ? (size_t)n : 0;
    }
}

static size_t s3_try_read(char *out, size_t size, size_t count, void *user)
{
    struct s3_try *self = user;
    const struct s3_request *request = self->request;
    const uint64_t left = request->size - self->sent;
    size *= count;
    if (size > left)
        size = (size_t)left;
    if (!size)
        return 0;
    const size_t n = s3_source_read(request->source, request->offset + self->sent, out, size);
    self->sent += n;
    return n ? n : CURL_READFUNC_ABORT;
}

static int s3_try_seek(void *user, curl_off_t offset, int origin)
{
    struct s3_try *self = user;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > self->request->size)
        return CURL_SEEKFUNC_FAIL;
    self->sent = (uint64_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* The SHA-256 of the body, in hexadecimal. */
static enum error_code s3_request_hash(const struct s3_request *request, char out[65], struct error *err)
{
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE], block[65536];
    sha256_init(&hash);
    for (uint64_t at = 0; request->source && at < request->size;) {
        const uint64_t left = request->size - at;
        const size_t n = s3_source_read(request->source, request->offset + at, block,
                                        left < sizeof block ? (size_t)left : sizeof block);
        if (!n)
            return error_set(err, ERROR_IO, "what is to be stored as %s cannot be read: %m", request->key);
        sha256_update(&hash, n, block);
        at += n;
    }
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return OK;
}

/* ---- what comes back ---- */

static size_t s3_try_write(char *data, size_t size, size_t count, void *user)
{
    struct s3_try *self = user;
    struct s3_request *request = self->request;
    long status = 0;
    const size_t all = size * count;
    size = all;
    curl_easy_getinfo(self->curl, CURLINFO_RESPONSE_CODE, &status);
    if (!request->take || status >= 300) {
        const size_t room = sizeof request->body - 1 - request->body_size, n = size < room ? size : room;
        memcpy(request->body + request->body_size, data, n);
        request->body_size += n;
        request->body[request->body_size] = 0;
        return all;
    }
    if (self->changed)
        return 0;
    if (self->skip) {
        const size_t n = size < self->skip ? size : (size_t)self->skip;
        self->skip -= n;
        data += n;
        size -= n;
    }
    if (request->length && size > request->length)
        size = (size_t)request->length;
    if (size && !request->take(request->context, data, size)) {
        self->stopped = true;
        return 0;
    }
    request->from += size;
    if (request->length && !(request->length -= size))
        self->stopped = true; /* all that was asked for is here */
    return self->stopped ? 0 : all;
}

/* The value of a header of this name, without the spaces around it; false: it is another one. */
static bool s3_header_is(const char *line, size_t size, const char *name, char *out, size_t room)
{
    const size_t length = strlen(name);
    if (size <= length || strncasecmp(line, name, length) || line[length] != ':')
        return false;
    const char *begin = line + length + 1, *end = line + size;
    while (begin < end && (*begin == ' ' || *begin == '\t'))
        begin++;
    while (end > begin && (end[-1] == '\r' || end[-1] == '\n' || end[-1] == ' '))
        end--;
    snprintf(out, room, "%.*s", (int)(end - begin), begin);
    return true;
}

static size_t s3_try_header(char *line, size_t size, size_t count, void *user)
{
    struct s3_try *self = user;
    struct s3_request *request = self->request;
    char value[128];
    long status = 0;
    size *= count;
    curl_easy_getinfo(self->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status >= 300)
        return size;
    if (s3_header_is(line, size, "ETag", value, sizeof value)) {
        if (*request->etag && request->take && strcmp(request->etag, value))
            self->changed = true;
        snprintf(request->etag, sizeof request->etag, "%s", value);
    } else if (s3_header_is(line, size, "Content-Range", value, sizeof value)) {
        const char *slash = strchr(value, '/');
        if (slash)
            request->whole = strtoull(slash + 1, NULL, 10);
        self->skip = 0; /* it goes on where it was told to */
    } else if (status != 206 && s3_header_is(line, size, "Content-Length", value, sizeof value)) {
        request->whole = strtoull(value, NULL, 10);
    }
    return size;
}

bool s3_request_element(const struct s3_request *request, const char *name, char *out, size_t size)
{
    char open[64], close[64];
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *begin = strstr(request->body, open), *end = begin ? strstr(begin, close) : NULL;
    if (!end || (size_t)(end - begin) - strlen(open) >= size)
        return false;
    begin += strlen(open);
    snprintf(out, size, "%.*s", (int)(end - begin), begin);
    return true;
}

/* ---- one try ---- */

static CURL *s3_handle_take(struct s3 *s3)
{
    pthread_mutex_lock(&s3->lock);
    CURL *curl = s3->idle_count ? s3->idle[--s3->idle_count] : NULL;
    pthread_mutex_unlock(&s3->lock);
    if (curl)
        curl_easy_reset(curl);
    return curl ? curl : curl_easy_init();
}

static void s3_handle_give(struct s3 *s3, CURL *curl)
{
    pthread_mutex_lock(&s3->lock);
    const bool kept = s3->idle_count < S3_IDLE;
    if (kept)
        s3->idle[s3->idle_count++] = curl;
    pthread_mutex_unlock(&s3->lock);
    if (!kept)
        curl_easy_cleanup(curl);
}

static bool s3_header_add(struct curl_slist **list, const char *format, const char *value)
{
    char line[4200];
    snprintf(line, sizeof line, format, value);
    struct curl_slist *longer = curl_slist_append(*list, line);
    if (longer)
        *list = longer;
    return longer != NULL;
}

static void s3_try_method(struct s3_try *self)
{
    const struct s3_request *request = self->request;
    CURL *curl = self->curl;
    if (!strcmp(request->method, "PUT")) {
        curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)request->size);
    } else if (!strcmp(request->method, "POST")) {
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->size);
    } else if (!strcmp(request->method, "HEAD")) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else if (strcmp(request->method, "GET")) {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
    }
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, s3_try_read);
    curl_easy_setopt(curl, CURLOPT_READDATA, self);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, s3_try_seek);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, self);
}

/* Called about once a second, also while nothing moves. */
static int s3_try_watch(void *user, curl_off_t to_come, curl_off_t come, curl_off_t to_go, curl_off_t gone)
{
    struct s3_try *self = user;
    (void)to_come, (void)to_go;
    if (come + gone != self->moved || !self->moved_ms)
        self->moved_ms = log_clock_ms();
    self->moved = come + gone;
    return atomic_load(&self->s3->hurry) && log_clock_ms() - self->moved_ms > S3_HURRY_MS;
}

static void s3_try_connection(struct s3_try *self)
{
    const struct s3 *s3 = self->s3;
    CURL *curl = self->curl;
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https,http");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, S3_CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, s3_try_watch);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, self);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)s3->stall_seconds);
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, s3->signer);
    curl_easy_setopt(curl, CURLOPT_USERNAME, s3->access);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, s3->secret);
    if (*s3->ca_file)
        curl_easy_setopt(curl, CURLOPT_CAINFO, s3->ca_file);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, self->message);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, s3_try_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, self);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, s3_try_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, self);
}

static CURLcode s3_try_perform(struct s3_try *self, const char *hash)
{
    struct s3_request *request = self->request;
    struct curl_slist *headers = NULL;
    char url[sizeof self->s3->url + S3_KEY_MAX + 512], range[64];
    CURL *curl = self->curl;
    request->status = 0;
    request->body_size = 0;
    *request->body = 0;
    self->skip = request->from;
    snprintf(url, sizeof url, "%s%s%s%s", self->s3->url, request->key, request->query ? "?" : "",
             request->query ? request->query : "");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    s3_try_method(self);
    s3_try_connection(self);
    /* No "Expect:" to do without 100-continue: libcurl 7.88 would sign that header and not send it. */
    bool made = s3_header_add(&headers, "x-amz-content-sha256: %s", hash);
    if (*self->s3->session)
        made = made && s3_header_add(&headers, "x-amz-security-token: %s", self->s3->session);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (request->from || request->length) {
        if (request->length)
            snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)request->from,
                     (unsigned long long)(request->from + request->length - 1));
        else
            snprintf(range, sizeof range, "%llu-", (unsigned long long)request->from);
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
    const CURLcode how = made ? curl_easy_perform(curl) : CURLE_OUT_OF_MEMORY;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &request->status);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return how;
}

/* ---- again, or what went wrong ---- */

/* Whether it may go better the next time. */
static bool s3_try_again(const struct s3_try *self, CURLcode how)
{
    const long status = self->request->status;
    switch (how) {
    case CURLE_OK:
        return status == 429 || status >= 500;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}

static enum error_code s3_try_failed(const struct s3_try *self, CURLcode how, struct error *err)
{
    const struct s3_request *request = self->request;
    const char *bucket = self->s3->bucket, *key = request->key;
    char code[64] = "", text[256] = "";
    if (self->changed)
        return error_set(err, ERROR_IO, "S3: %s in bucket %s was replaced while it was read", key, bucket);
    if (how != CURLE_OK)
        return error_set(err, ERROR_IO, "S3: %s of %s in bucket %s: %s", request->method, key, bucket,
                         *self->message ? self->message : curl_easy_strerror(how));
    s3_request_element(request, "Code", code, sizeof code);
    s3_request_element(request, "Message", text, sizeof text);
    /* A HEAD's answer has no body that could say what is missing. */
    if (request->status == 404 && strcmp(code, "NoSuchBucket"))
        return error_set(err, ERROR_NOT_FOUND, "S3: there is no %s in bucket %s", key, bucket);
    if (request->status == 404)
        return error_set(err, ERROR_IO, "S3: there is no bucket %s; make it, or name another in the setting", bucket);
    const char *help = "";
    if (request->status == 403)
        help = "; check the credentials, what they may do in this bucket, and this machine's clock";
    else if (request->status == 301 || request->status == 307 || request->status == 400)
        help = "; check the endpoint, the region and the style (path or host)";
    return error_set(err, ERROR_IO, "S3: %s of %s in bucket %s was answered by %ld%s%s%s%s%s", request->method, key,
                     bucket, request->status, *code ? " " : "", code, *text ? ": " : "", text, help);
}

/* Longer each time, and not the same for all that wait. */
static void s3_pause(int tries, const void *seed)
{
    const long step = (long)S3_FIRST_PAUSE_MS << (tries < 6 ? tries : 6);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const long ms = step / 2 + (long)(((uintptr_t)seed / 64 + (uintptr_t)now.tv_nsec / 1000) % (uintptr_t)step);
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

enum error_code s3_request_send(struct s3 *s3, struct s3_request *request, struct error *err)
{
    char hash[65] = "UNSIGNED-PAYLOAD";
    enum error_code code = s3->encrypted ? OK : s3_request_hash(request, hash, err);
    struct s3_try one = {.s3 = s3, .request = request};
    const bool ranged = request->length > 0;
    *request->etag = 0;
    for (int tries = 0; !code; tries++) {
        one.curl = s3_handle_take(s3);
        if (!one.curl)
            return error_set(err, ERROR_NO_MEMORY, "no memory for a request to the S3 store");
        one.sent = 0;
        one.moved_ms = 0;
        *one.message = 0;
        const CURLcode how = s3_try_perform(&one, hash);
        s3_handle_give(s3, one.curl);
        if (ranged && !request->length)
            break; /* complete, though the store had more to say */
        if (one.stopped)
            return error_set(err, ERROR_CANCELLED, "S3: %s in bucket %s is not wanted any more", request->key,
                             s3->bucket);
        if (how == CURLE_OK && request->status >= 200 && request->status < 300)
            break;
        struct error why = ERROR_INIT;
        const enum error_code failed = s3_try_failed(&one, how, &why);
        if (!s3_try_again(&one, how) || tries + 1 >= s3->tries || atomic_load(&s3->hurry))
            code = error_copy(err, failed, &why);
        else {
            log_event(LOG_DEBUG, "s3-again", "try=%d reason=\"%s\"", tries + 1, why.text);
            s3_pause(tries, &one);
        }
    }
    return code;
}
