#include "server/store/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/mem.h"
#include "server/store/s3_request.h"

#define S3_PARTS_MAX 10000
#define S3_TAG "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>"

/* ---- settings ---- */

static bool s3_only(const char *text, const char *more)
{
    for (; *text; text++)
        if (!((*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9') || strchr(more, *text)))
            return false;
    return true;
}

#define S3_CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static bool s3_key_is_valid(const char *key)
{
    const size_t length = strlen(key);
    return length && length <= S3_KEY_MAX && s3_only(key, S3_CAPITALS "/._-") && *key != '/' && !strstr(key, "//") &&
           !strstr(key, "..");
}

static const char *s3_text(const char *text, const char *otherwise)
{
    return text && *text ? text : otherwise;
}

static enum error_code s3_open_url(struct s3 *s3, const struct s3_settings *settings, struct error *err)
{
    const char *region = s3_text(settings->region, "us-east-1"), *prefix = s3_text(settings->prefix, "");
    const char *bucket = s3_text(settings->bucket, "");
    char aws[128];
    if (strlen(bucket) < 3 || strlen(bucket) > 63 || !s3_only(bucket, ".-"))
        return error_set(err, ERROR_INVALID, "\"%s\" is no S3 bucket: 3 to 63 of a-z, 0-9, '.' and '-'", bucket);
    if (*prefix && (!s3_key_is_valid(prefix) || prefix[strlen(prefix) - 1] == '/'))
        return error_set(err, ERROR_INVALID, "\"%s\" is no prefix of S3 keys: letters, digits and / . _ -", prefix);
    if (!s3_only(region, "-") || strlen(region) > 60)
        return error_set(err, ERROR_INVALID, "\"%s\" is no S3 region, such as eu-central-1", region);
    snprintf(aws, sizeof aws, "https://s3.%s.amazonaws.com", region);
    const char *endpoint = s3_text(settings->endpoint, aws), *host = strstr(endpoint, "://");
    s3->encrypted = !strncmp(endpoint, "https://", 8);
    if (!host || (!s3->encrypted && strncmp(endpoint, "http://", 7)) || !host[3] ||
        !s3_only(host + 3, S3_CAPITALS ".-:[]"))
        return error_set(err, ERROR_INVALID, "\"%s\" is no S3 endpoint: https://HOST or https://HOST:PORT, no path",
                         endpoint);
    host += 3;
    const char *slash = *prefix ? "/" : "";
    const int used = settings->host_style
                         ? snprintf(s3->url, sizeof s3->url, "%.*s%s.%s/%s%s", (int)(host - endpoint), endpoint, bucket,
                                    host, prefix, slash)
                         : snprintf(s3->url, sizeof s3->url, "%s/%s/%s%s", endpoint, bucket, prefix, slash);
    if (used < 0 || (size_t)used >= sizeof s3->url)
        return error_set(err, ERROR_INVALID, "the S3 endpoint and prefix are too long");
    snprintf(s3->bucket, sizeof s3->bucket, "%s", bucket);
    snprintf(s3->signer, sizeof s3->signer, "aws:amz:%s:s3", region);
    snprintf(s3->ca_file, sizeof s3->ca_file, "%s", s3_text(settings->ca_file, ""));
    return OK;
}

/* A line "name = value" of the file, or "NAME=value". */
static void s3_credential_line(struct s3 *s3, char *line)
{
    char *value = strchr(line, '=');
    if (!value)
        return;
    *value++ = 0;
    line += strspn(line, " \t");
    line[strcspn(line, " \t")] = 0;
    value += strspn(value, " \t\"");
    value[strcspn(value, " \t\r\n\"")] = 0;
    if (!strcasecmp(line, "aws_access_key_id"))
        snprintf(s3->access, sizeof s3->access, "%s", value);
    else if (!strcasecmp(line, "aws_secret_access_key"))
        snprintf(s3->secret, sizeof s3->secret, "%s", value);
    else if (!strcasecmp(line, "aws_session_token"))
        snprintf(s3->session, sizeof s3->session, "%s", value);
}

static enum error_code s3_open_credentials(struct s3 *s3, const char *path, struct error *err)
{
    if (path && *path) {
        char line[4400];
        FILE *file = fopen(path, "re");
        if (!file)
            return error_set(err, ERROR_NOT_FOUND, "the S3 credentials in %s cannot be read: %m", path);
        while (fgets(line, sizeof line, file))
            s3_credential_line(s3, line);
        fclose(file);
        explicit_bzero(line, sizeof line);
        if (!*s3->access || !*s3->secret)
            return error_set(err, ERROR_NOT_FOUND,
                             "%s wants the lines aws_access_key_id = … and "
                             "aws_secret_access_key = …",
                             path);
        return OK;
    }
    snprintf(s3->access, sizeof s3->access, "%s", s3_text(getenv("AWS_ACCESS_KEY_ID"), ""));
    snprintf(s3->secret, sizeof s3->secret, "%s", s3_text(getenv("AWS_SECRET_ACCESS_KEY"), ""));
    snprintf(s3->session, sizeof s3->session, "%s", s3_text(getenv("AWS_SESSION_TOKEN"), ""));
    if (!*s3->access || !*s3->secret)
        return error_set(err, ERROR_NOT_FOUND,
                         "the S3 store wants credentials: a file of them, or "
                         "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment");
    return OK;
}

enum error_code s3_open(struct s3 **out, const struct s3_settings *settings, struct error *err)
{
    *out = NULL;
    struct s3 *s3 = curl_global_init(CURL_GLOBAL_DEFAULT) ? NULL : mem_calloc(1, sizeof *s3);
    if (!s3)
        return error_set(err, ERROR_NO_MEMORY, "libcurl cannot be started");
    pthread_mutex_init(&s3->lock, NULL);
    s3->stall_seconds = settings->stall_seconds > 0 ? settings->stall_seconds : 30;
    s3->tries = settings->tries > 0 ? settings->tries : 6;
    enum error_code code = s3_open_url(s3, settings, err);
    if (!code)
        code = s3_open_credentials(s3, settings->credentials, err);
    if (code)
        s3_close(&s3);
    *out = s3;
    return code;
}

void s3_hurry(struct s3 *s3)
{
    atomic_store(&s3->hurry, true);
}

void s3_close(struct s3 **s3)
{
    struct s3 *old = *s3;
    *s3 = NULL;
    if (!old)
        return;
    for (int i = 0; i < old->idle_count; i++)
        curl_easy_cleanup(old->idle[i]);
    pthread_mutex_destroy(&old->lock);
    explicit_bzero(old, sizeof *old);
    free(old);
}

/* ---- objects ---- */

static enum error_code s3_check_key(const char *key, struct error *err)
{
    return s3_key_is_valid(key) ? OK : error_set(err, ERROR_INTERNAL, "\"%s\" is no key for the S3 store", key);
}

enum error_code s3_get(struct s3 *s3, const char *key, uint64_t offset, uint64_t size, uint64_t *whole,
                       s3_take_fn *take, void *context, struct error *err)
{
    struct s3_request request = {
        .method = "GET", .key = key, .take = take, .context = context, .from = offset, .length = size};
    enum error_code code = s3_check_key(key, err);
    if (!code)
        code = s3_request_send(s3, &request, err);
    if (whole)
        *whole = request.whole;
    /* Without an announced length a cut looks like the end. */
    if (!code && (size ? request.length > 0 : request.from != request.whole))
        code = error_set(err, ERROR_IO, "S3: of %s in bucket %s %llu bytes came, and it has %llu", key, s3->bucket,
                         (unsigned long long)request.from, (unsigned long long)request.whole);
    return code;
}

enum error_code s3_head(struct s3 *s3, const char *key, uint64_t *size, struct error *err)
{
    struct s3_request request = {.method = "HEAD", .key = key};
    enum error_code code = s3_check_key(key, err);
    if (!code)
        code = s3_request_send(s3, &request, err);
    *size = code ? 0 : request.whole;
    return code;
}

enum error_code s3_delete(struct s3 *s3, const char *key, struct error *err)
{
    struct s3_request request = {.method = "DELETE", .key = key};
    struct error why = ERROR_INIT;
    enum error_code code = s3_check_key(key, err);
    if (!code)
        code = s3_request_send(s3, &request, &why);
    return code && code != ERROR_NOT_FOUND ? error_copy(err, code, &why) : OK;
}

/* ---- in parts ---- */

/* An upload in parts: what the store calls it, and the list of parts that ends it. */
struct s3_upload {
    struct s3 *s3;
    const char *key;
    char id[1024]; /* as it stands in a query */
    char *list;
    size_t used, room;
};

/* The id is the store's own text: escaped as RFC 3986 has it. */
static bool s3_upload_escape(struct s3_upload *upload, const char *id)
{
    size_t used = 0;
    for (; *id; id++) {
        if (used + 4 > sizeof upload->id)
            return false;
        const char one[2] = {*id, 0};
        used += (size_t)snprintf(upload->id + used, 4, s3_only(one, S3_CAPITALS "-._~") ? "%c" : "%%%02X",
                                 (unsigned char)*id);
    }
    return used > 0;
}

static enum error_code s3_upload_begin(struct s3_upload *upload, struct error *err)
{
    struct s3_request request = {.method = "POST", .key = upload->key, .query = "uploads="};
    char id[512];
    enum error_code code = s3_request_send(upload->s3, &request, err);
    if (!code && (!s3_request_element(&request, "UploadId", id, sizeof id) || !s3_upload_escape(upload, id)))
        code =
            error_set(err, ERROR_IO, "S3: bucket %s began no upload in parts of %s", upload->s3->bucket, upload->key);
    return code;
}

static enum error_code s3_upload_part(struct s3_upload *upload, const struct s3_source *source, int number,
                                      struct error *err)
{
    char query[sizeof upload->id + 64];
    const uint64_t offset = (uint64_t)(number - 1) * S3_PART, left = source->size - offset;
    struct s3_request request = {.method = "PUT", .key = upload->key, .query = query, .source = source};
    snprintf(query, sizeof query, "partNumber=%d&uploadId=%s", number, upload->id);
    request.offset = offset;
    request.size = left < S3_PART ? left : S3_PART;
    enum error_code code = s3_request_send(upload->s3, &request, err);
    if (!code && (!*request.etag || strpbrk(request.etag, "<&")))
        code = error_set(err, ERROR_IO, "S3: bucket %s names no ETag of a part of %s", upload->s3->bucket, upload->key);
    if (!code)
        upload->used +=
            (size_t)snprintf(upload->list + upload->used, upload->room - upload->used, S3_TAG, number, request.etag);
    return code;
}

static enum error_code s3_upload_end(struct s3_upload *upload, struct error *err)
{
    char query[sizeof upload->id + 16], code_text[64];
    upload->used +=
        (size_t)snprintf(upload->list + upload->used, upload->room - upload->used, "</CompleteMultipartUpload>");
    const struct s3_source source = {.data = upload->list, .size = upload->used};
    struct s3_request request = {
        .method = "POST", .key = upload->key, .query = query, .source = &source, .size = source.size};
    snprintf(query, sizeof query, "uploadId=%s", upload->id);
    enum error_code code = s3_request_send(upload->s3, &request, err);
    /* The store may find out that it failed after it has said 200. */
    if (!code && strstr(request.body, "<Error>"))
        code = error_set(err, ERROR_IO, "S3: bucket %s did not put the parts of %s together: %s", upload->s3->bucket,
                         upload->key,
                         s3_request_element(&request, "Code", code_text, sizeof code_text) ? code_text : "no reason");
    return code;
}

static void s3_upload_abort(struct s3_upload *upload)
{
    char query[sizeof upload->id + 16];
    struct s3_request request = {.method = "DELETE", .key = upload->key, .query = query};
    struct error ignored = ERROR_INIT; /* the bucket's rule for unfinished uploads removes them as well */
    snprintf(query, sizeof query, "uploadId=%s", upload->id);
    if (s3_request_send(upload->s3, &request, &ignored))
        return;
}

static enum error_code s3_put_parts(struct s3 *s3, const char *key, const struct s3_source *source, struct error *err)
{
    const uint64_t parts = (source->size + S3_PART - 1) / S3_PART;
    struct s3_upload upload = {.s3 = s3, .key = key};
    if (parts > S3_PARTS_MAX)
        return error_set(err, ERROR_TOO_LARGE, "%s has %llu bytes, more than %d parts of 64 MiB", key,
                         (unsigned long long)source->size, S3_PARTS_MAX);
    upload.room = 128 + (size_t)parts * (sizeof S3_TAG + sizeof(((struct s3_request *)0)->etag) + 8);
    upload.list = mem_alloc(upload.room, 1);
    if (!upload.list)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of an upload's parts");
    upload.used = (size_t)snprintf(upload.list, upload.room, "<CompleteMultipartUpload>");
    enum error_code code = s3_upload_begin(&upload, err);
    const bool begun = !code;
    for (int number = 1; !code && (uint64_t)number <= parts; number++)
        code = s3_upload_part(&upload, source, number, err);
    if (!code)
        code = s3_upload_end(&upload, err);
    if (code && begun)
        s3_upload_abort(&upload);
    free(upload.list);
    return code;
}

enum error_code s3_put(struct s3 *s3, const char *key, const struct s3_source *source, struct error *err)
{
    struct s3_request request = {.method = "PUT", .key = key, .source = source, .size = source->size};
    enum error_code code = s3_check_key(key, err);
    if (code)
        return code;
    return source->size > S3_PART ? s3_put_parts(s3, key, source, err) : s3_request_send(s3, &request, err);
}
