#include "server/cli/download.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/file.h"
#include "runtime/base/mem.h"
#include "server/version.h"

#define DOWNLOAD_TRIES 5 /* in a row, each of which brought something */
#define DOWNLOAD_CONNECT_SECONDS 30L
#define DOWNLOAD_STALL_SECONDS 60L /* without a byte */

struct download_transfer {
    const struct download *download;
    int fd;
    uint64_t had, came; /* bytes: of the part before this try, and of this try */
    int write_errno;
    bool shown; /* a progress line is on the screen */
    double started, drawn;
    char message[CURL_ERROR_SIZE];
};

static double download_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The SHA-256 of the open file. */
static enum error_code download_hash(int fd, char out[65], struct error *err)
{
    enum { PIECE = 1 << 20 };
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE], *piece = mem_alloc(PIECE, 1);
    ssize_t n;
    if (!piece)
        return error_set(err, ERROR_NO_MEMORY, "no memory to check the file");
    sha256_init(&hash);
    for (off_t at = 0; (n = pread(fd, piece, PIECE, at)) > 0; at += n)
        sha256_update(&hash, (size_t)n, piece);
    free(piece);
    if (n < 0)
        return error_set(err, ERROR_IO, "it cannot be read: %m");
    sha256_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return OK;
}

static uint64_t download_size(int fd)
{
    struct stat status;
    return fstat(fd, &status) ? 0 : (uint64_t)status.st_size;
}

/* Whether the open file is what was published, as far as we know. whole: the server said that this is all. */
static bool download_matches(struct download *download, int fd, bool whole)
{
    struct error ignored = ERROR_INIT;
    if (download->bytes ? download_size(fd) != download->bytes : !whole && !*download->sha256)
        return false;
    return !download_hash(fd, download->found, &ignored) &&
           (!*download->sha256 || !strcmp(download->found, download->sha256));
}

static bool download_path(const struct download *download, const char *ending, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/%s%s", download->folder, download->file, ending) < PATH_MAX;
}

bool download_is_there(struct download *download)
{
    char path[PATH_MAX];
    int fd = download_path(download, "", path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return false;
    bool there = download_matches(download, fd, true);
    close(fd);
    return there;
}

/* ---- the transfer ---- */

static size_t download_write(char *bytes, size_t one, size_t count, void *user)
{
    struct download_transfer *transfer = user;
    size_t done = 0;
    while (done < one * count) {
        ssize_t n = write(transfer->fd, bytes + done, one * count - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            transfer->write_errno = errno;
            return 0;
        }
        done += (size_t)n;
        transfer->came += (uint64_t)n;
    }
    return done;
}

static int download_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up)
{
    struct download_transfer *transfer = user;
    const struct download *download = transfer->download;
    const double time = download_now(), all = download->bytes ? (double)download->bytes : (double)total;
    const double came = (double)(transfer->had + transfer->came), seconds = time - transfer->started;
    struct winsize window;
    char line[512], left[48] = "";
    (void)now;
    (void)up_total;
    (void)up;
    if (!isatty(STDERR_FILENO) || time - transfer->drawn < 0.2)
        return 0;
    const double rate = seconds > 0 ? (double)transfer->came / seconds : 0;
    if (rate > 0 && all > came) {
        const double rest = (all - came) / rate;
        snprintf(left, sizeof left, "  %d:%02d left", (int)(rest < 1e7 ? rest / 60 : 99999), (int)rest % 60);
    }
    snprintf(line, sizeof line, "%.0f%%  %.0f of %.0f MB  %.1f MB/s%s  %s", all > 0 ? 100 * came / all : 0, came / 1e6,
             all / 1e6, rate / 1e6, left, download->file);
    const int columns = !ioctl(STDERR_FILENO, TIOCGWINSZ, &window) && window.ws_col ? window.ws_col - 1 : 79;
    fprintf(stderr, "\r\033[K%.*s", columns, line);
    transfer->drawn = time;
    transfer->shown = true;
    return 0;
}

/* One request that continues from the part's end. *answer: the HTTP status, 0 for none. */
static CURLcode download_try(CURL *curl, struct download_transfer *transfer, long *answer)
{
    const struct download *download = transfer->download;
    transfer->had = download_size(transfer->fd);
    transfer->came = 0;
    transfer->write_errno = 0;
    transfer->started = transfer->drawn = download_now();
    *transfer->message = 0;
    *answer = 0;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, download->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, download->any_http ? "https,http,file" : "https,file");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, download->any_http ? "https,http" : "https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "restored/" RESTORED_VERSION);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, DOWNLOAD_CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, DOWNLOAD_STALL_SECONDS);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, (curl_off_t)transfer->had);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, download_write);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, download_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, transfer);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, transfer->message);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, answer);
    if (transfer->shown)
        fputs("\r\033[K", stderr);
    transfer->shown = false;
    return code;
}

/* Whether the connection broke; what arrived is good. */
static bool download_broke(CURLcode code, long answer)
{
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
           code == CURLE_OPERATION_TIMEDOUT || code == CURLE_HTTP2 || code == CURLE_HTTP2_STREAM ||
           (code == CURLE_HTTP_RETURNED_ERROR && answer >= 500);
}

/* Whether the part cannot be continued: it is complete, or the server cannot resume. */
static bool download_cannot_resume(CURLcode code, long answer)
{
    return code == CURLE_RANGE_ERROR || code == CURLE_BAD_DOWNLOAD_RESUME ||
           (code == CURLE_HTTP_RETURNED_ERROR && answer == 416);
}

void download_shown(char *out, size_t size, const char *url)
{
    const char *host = strstr(url, "://");
    host = host ? host + strlen("://") : url;
    const size_t authority = strcspn(host, "/?#");
    const char *from = host;
    for (size_t i = 0; i < authority; i++)
        if (host[i] == '@')
            from = host + i + 1;
    snprintf(out, size, "%.*s%.*s", (int)(host - url), url, (int)strcspn(from, "?#"), from);
}

static enum error_code download_failed(const struct download_transfer *transfer, CURLcode code, long answer,
                                       struct error *err)
{
    const struct download *download = transfer->download;
    const char *text = *transfer->message ? transfer->message : curl_easy_strerror(code);
    char shown[1024];
    download_shown(shown, sizeof shown, download->url);
    const char *again = !download_size(transfer->fd) ? ""
                        : download_cannot_resume(code, answer)
                            ? "; run the same command again to begin anew"
                            : "; run the same command again to continue where it stopped";
    switch (code) {
    case CURLE_WRITE_ERROR:
        return error_set(err, ERROR_IO, "%s cannot be written to %s: %s%s", download->file, download->folder,
                         strerror(transfer->write_errno), again);
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        return error_set(err, ERROR_IO, "no connection for %s (%s). Without internet access, %s%s", shown, text,
                         download->offline, again);
    case CURLE_HTTP_RETURNED_ERROR:
        return error_set(err, ERROR_IO, "%s answers %ld%s%s", shown, answer,
                         answer == 404 ? ": there is no such file" : "", again);
    case CURLE_FILE_COULDNT_READ_FILE:
        return error_set(err, ERROR_IO, "%s: there is no such file, or it cannot be read", shown);
    case CURLE_UNSUPPORTED_PROTOCOL:
        return error_set(err, ERROR_IO, "%s: only https:// %s (%s)", shown,
                         download->any_http ? "and http:// are allowed" : "is allowed, and http:// for a --mirror",
                         text);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return error_set(err, ERROR_IO, "%s: its certificate cannot be verified (%s); is ca-certificates installed?",
                         shown, text);
    default:
        return error_set(err, ERROR_IO, "%s: %s%s", shown, text, again);
    }
}

static enum error_code download_transfer(struct download *download, int fd, struct error *err)
{
    CURL *curl = curl_global_init(CURL_GLOBAL_DEFAULT) ? NULL : curl_easy_init();
    char shown[1024];
    struct download_transfer transfer = {.download = download, .fd = fd};
    if (!curl)
        return error_set(err, ERROR_NO_MEMORY, "libcurl cannot be started");
    enum error_code code = OK;
    download_shown(shown, sizeof shown, download->url);
    bool again = true; /* a part that turns out wrong, or that the server does not continue, is dropped once */
    for (int tries = 0;; tries++) {
        long answer;
        const CURLcode how = download_try(curl, &transfer, &answer);
        const bool done = how == CURLE_OK || download_cannot_resume(how, answer);
        if (done && download_matches(download, fd, how == CURLE_OK))
            break;
        if (done && again && transfer.had) {
            fprintf(stderr,
                    "restored: %s: the part that was there does not match, or cannot be continued; starting again\n",
                    download->file);
            again = false;
            if (ftruncate(fd, 0)) {
                code = error_set(err, ERROR_IO, "%s: %m", download->file);
                break;
            }
        } else if (how == CURLE_OK) {
            code = error_set(err, ERROR_CORRUPT, "%s is not the file that was published: its SHA-256 is %s and not %s",
                             shown, *download->found ? download->found : "another",
                             *download->sha256 ? download->sha256 : "known");
            break;
        } else if (!download_broke(how, answer) || !transfer.came || tries >= DOWNLOAD_TRIES) {
            code = download_failed(&transfer, how, answer, err);
            break;
        }
    }
    curl_easy_cleanup(curl);
    return code;
}

/* ---- the file ---- */

static enum error_code download_room(const struct download *download, uint64_t had, struct error *err)
{
    struct statvfs disk;
    if (!download->bytes || statvfs(download->folder, &disk))
        return OK;
    const double left = (double)disk.f_bavail * (double)disk.f_frsize, need = (double)download->bytes - (double)had;
    return left >= need ? OK
                        : error_set(err, ERROR_IO, "%s needs %.0f MB more, and %s has %.0f MB free", download->file,
                                    need / 1e6, download->folder, left / 1e6);
}

enum error_code download_get(struct download *download, struct error *err)
{
    char path[PATH_MAX], part[PATH_MAX];
    enum error_code code = file_make_folders(download->folder, 0777, err);
    if (code)
        return code;
    if (!download_path(download, "", path) || !download_path(download, ".part", part))
        return error_set(err, ERROR_INVALID, "the path of %s is too long", download->folder);
    int fd = open(part, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set(err, ERROR_IO, "%s: %m", part);
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        close(fd);
        return error_set(err, ERROR_BUSY, "%s: another process is downloading it", part);
    }
    if (download->bytes && download_size(fd) > download->bytes && ftruncate(fd, 0))
        code = error_set(err, ERROR_IO, "%s: %m", part);
    if (!code)
        code = download_room(download, download_size(fd), err);
    if (!code)
        code = download_transfer(download, fd, err);
    if (!code && (fsync(fd) || rename(part, path)))
        code = error_set(err, ERROR_IO, "%s: %m", path);
    if (code == ERROR_CORRUPT || (code && !download_size(fd)))
        unlink(part);
    close(fd);
    return code;
}

enum error_code download_mirror_url(char *out, size_t size, const char *mirror, const char *file, struct error *err)
{
    size_t used;
    if (strstr(mirror, "://")) {
        size_t length = strlen(mirror);
        while (length && mirror[length - 1] == '/')
            length--;
        used = (size_t)snprintf(out, size, "%.*s/%s", (int)length, mirror, file);
        return used < size ? OK : error_set(err, ERROR_INVALID, "--mirror: the URL is too long");
    }
    char *folder = realpath(mirror, NULL), *path = NULL;
    struct stat status;
    if (!folder || stat(folder, &status) || !S_ISDIR(status.st_mode) || asprintf(&path, "%s/%s", folder, file) < 0) {
        free(folder);
        return error_set(err, ERROR_NOT_FOUND, "--mirror: there is no folder %s", mirror);
    }
    used = (size_t)snprintf(out, size, "file://");
    for (const char *p = path; *p && used + 4 < size; p++)
        if (strchr("/-._~", *p) || (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z'))
            out[used++] = *p;
        else
            used += (size_t)snprintf(out + used, 4, "%%%02X", (unsigned char)*p);
    out[used] = 0;
    free(folder);
    free(path);
    return used + 4 < size ? OK : error_set(err, ERROR_INVALID, "--mirror: the path is too long");
}
