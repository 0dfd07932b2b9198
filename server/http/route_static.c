/* GET / and the page's files, from the binary. */
#include <nettle/base64.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "runtime/base/embed.h"
#include "server/http/header.h"
#include "server/http/router.h"

#define POLICY_MAX 512
#define POLICY                                                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'%s; img-src 'self' blob: data:; connect-src 'self'; "      \
    "worker-src 'self'; manifest-src 'self'; "                                                                         \
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

/* By extension; files with any other, such as SPIR-V and models.conf, are embedded only for the program. */
static const struct {
    const char *extension, *type;
} types[] = {{".html", "text/html; charset=utf-8"},
             {".js", "text/javascript; charset=utf-8"},
             {".css", "text/css; charset=utf-8"},
             {".svg", "image/svg+xml"},
             {".jpg", "image/jpeg"},
             {".png", "image/png"},
             {".ico", "image/x-icon"},
             {".webmanifest", "application/manifest+json"}};

static const uint8_t *route_static_find(const char *path, size_t *size, const char **type)
{
    const char *name = !strcmp(path, "/") ? "index.html" : path + 1;
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].extension, dot)) {
            *type = types[i].type;
            return embed_find(name, size);
        }
    return NULL;
}

bool route_static_has(const char *path)
{
    size_t size;
    const char *type;
    return *path == '/' && route_static_find(path, &size, &type) != NULL;
}

/* Whether it is worth compressing, and the client takes that. */
static bool route_static_shrinks(const struct request *request, const struct route_file *file)
{
    const int takes = header_accept_coding(router_header(request, MHD_HTTP_HEADER_ACCEPT_ENCODING), "gzip");
    return takes > 0 && file->size > 512 && file->size < UINT32_MAX &&
           (strncmp(file->type, "image/", 6) != 0 || strstr(file->type, "svg"));
}

/* The bytes as gzip, owned; false: no memory, they stay. */
static bool route_static_shrink(struct route_file *file)
{
    z_stream stream = {.next_in = (void *)(uintptr_t)file->bytes, .avail_in = (uInt)file->size};
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    const uLong most = deflateBound(&stream, (uLong)file->size);
    uint8_t *bytes = malloc(most);
    stream.next_out = bytes;
    stream.avail_out = (uInt)most;
    const bool done = bytes && deflate(&stream, Z_FINISH) == Z_STREAM_END;
    deflateEnd(&stream);
    if (!done) {
        free(bytes);
        return false;
    }
    if (file->owned)
        free((void *)(uintptr_t)file->bytes);
    file->bytes = bytes;
    file->size = stream.total_out;
    file->owned = true;
    return true;
}

static char route_static_policy[POLICY_MAX];

/* The page's one inline sheet is allowed by its hash (CSP 3, 2.3.1). */
static void route_static_make_policy(void)
{
    static const char begin[] = "<style>", end[] = "</style>";
    size_t size = 0;
    const uint8_t *page = embed_find("index.html", &size);
    const uint8_t *from = page ? memmem(page, size, begin, sizeof begin - 1) : NULL;
    const uint8_t *to = from ? memmem(from, size - (size_t)(from - page), end, sizeof end - 1) : NULL;
    char source[80] = "", text[BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) + 1] = "";
    if (to) {
        uint8_t digest[SHA256_DIGEST_SIZE];
        struct sha256_ctx sha;
        from += sizeof begin - 1;
        sha256_init(&sha);
        sha256_update(&sha, (size_t)(to - from), from);
        sha256_digest(&sha, sizeof digest, digest);
        base64_encode_raw(text, sizeof digest, digest);
        snprintf(source, sizeof source, " 'sha256-%s'", text);
    }
    snprintf(route_static_policy, sizeof route_static_policy, POLICY, source);
}

enum MHD_Result route_static_send(struct request *request, const struct route_file *sent)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct route_file file = *sent;
    pthread_once(&once, route_static_make_policy);
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* 64-bit FNV-1a */
    for (size_t i = 0; i < file.size; i++)
        hash = (hash ^ ((const uint8_t *)file.bytes)[i]) * UINT64_C(0x100000001b3);
    const bool shrinks = route_static_shrinks(request, &file);
    char etag[32];
    snprintf(etag, sizeof etag, "\"%016llx%s\"", (unsigned long long)hash, shrinks ? "z" : "");
    const char *known = router_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
    const bool same = known && strstr(known, etag);
    const bool shrunk = !same && shrinks && route_static_shrink(&file);
    request->answer_bytes = same ? 0 : file.size;
    void *bytes = (void *)(uintptr_t)file.bytes;
    if (same && file.owned)
        free(bytes);
    struct MHD_Response *response =
        same ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
             : MHD_create_response_from_buffer(file.size, bytes,
                                               file.owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response) {
        if (!same && file.owned)
            free(bytes);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, etag);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, MHD_HTTP_HEADER_VARY,
                            strcmp(request->path, "/") != 0 ? "Accept-Encoding" : "Accept, Accept-Encoding");
    if (shrunk)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
    MHD_add_response_header(response, "Content-Security-Policy", route_static_policy);
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    return reply_send(request, same ? REPLY_NOT_MODIFIED : REPLY_OK, response, file.type);
}

enum MHD_Result route_static(struct request *request)
{
    struct route_file file = {0};
    file.bytes = route_static_find(request->path, &file.size, &file.type);
    return file.bytes ? route_static_send(request, &file) : MHD_NO;
}
