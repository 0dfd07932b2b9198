#include "server/http/site.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define SITE_NAME_MAX 256 /* bytes of a host's name with its final 0; DNS allows no longer ones */

/* A host without port and final dot, an IPv6 address without its brackets; false when it is too long to be one. */
static bool site_name(const char *host, size_t size, char out[SITE_NAME_MAX])
{
    const char *end = host + size, *colon = memchr(host, ':', size);
    if (size && *host == '[') {
        host++;
        end = memchr(host, ']', size - 1);
        if (!end)
            return false;
    } else if (colon) {
        end = colon;
    }
    if (end > host && end[-1] == '.')
        end--;
    if (end - host >= SITE_NAME_MAX)
        return false;
    memcpy(out, host, (size_t)(end - host));
    out[end - host] = 0;
    return end > host;
}

static bool site_is_address(const char *name)
{
    struct in6_addr any;
    return inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1;
}

static bool site_ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && !strcasecmp(name + n - m, ending);
}

/* Browsers resolve localhost and names under it to this machine without asking anybody. */
static bool site_is_loopback(const char *name)
{
    struct in_addr four;
    struct in6_addr six;
    if (!strcasecmp(name, "localhost") || site_ends_with(name, ".localhost"))
        return true;
    if (inet_pton(AF_INET, name, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, name, &six) == 1 &&
           (IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127));
}

/* Names that only the local network can define: public DNS has none without a dot, and none under these two (RFC 6762,
 * and ICANN's resolution of 2024). */
static bool site_is_private(const char *name)
{
    char own[SITE_NAME_MAX] = "";
    if (site_is_address(name) || !strchr(name, '.') || site_ends_with(name, ".local") ||
        site_ends_with(name, ".internal"))
        return true;
    return !gethostname(own, sizeof own - 1) && !strcasecmp(name, own);
}

/* The next entry of a comma-separated list, without blanks around it; false at its end. */
static bool site_next(const char **list, const char **entry, size_t *size)
{
    *list += strspn(*list, ", \t");
    *entry = *list;
    *size = strcspn(*list, ",");
    *list += *size;
    while (*size && strchr(" \t", (*entry)[*size - 1]))
        --*size;
    return *size > 0;
}

enum error_code site_check_list(const char *allowed, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    const char *entry;
    size_t size;
    while (site_next(&allowed, &entry, &size)) {
        char name[SITE_NAME_MAX];
        size_t star = *entry == '*' ? (size > 1 && entry[1] == '.' ? 2 : 1) : 0;
        bool bracket = *entry == '[' && entry[size - 1] == ']' && size < SITE_NAME_MAX;
        bool good = (star == 1 && size == 1) || (!bracket && size < SITE_NAME_MAX && size > star && star != 1 &&
                                                 strspn(entry + star, letters) >= size - star);
        if (bracket)
            good = site_name(entry, size, name) && site_is_address(name);
        if (!good)
            return error_set(err, ERROR_INVALID,
                             "allowed_hosts: \"%.*s\" is not a host name; write names without port and path, such as "
                             "photos.example.com, *.example.com for all below it, or * for every name",
                             (int)(size < 100 ? size : 100), entry);
    }
    return OK;
}

/* "http://host", with a port that is not the scheme's own; nothing behind it. */
static bool site_is_origin(const char *text, size_t size)
{
    const size_t scheme = !strncmp(text, "https://", 8) ? 8 : !strncmp(text, "http://", 7) ? 7 : 0;
    const char *host = text + scheme, *end = text + size;
    if (!scheme || size <= scheme || size >= SITE_NAME_MAX)
        return false;
    const char *colon =
        *host == '[' ? memchr(host, ']', (size_t)(end - host)) : memchr(host, ':', (size_t)(end - host));
    if (*host == '[' && (!colon || (++colon < end && *colon != ':')))
        return false;
    const char *port = colon && colon < end ? colon + 1 : end;
    const size_t digits = (size_t)(end - port);
    if (port < end ? strspn(port, "0123456789") < digits || *port == '0' : colon && colon < end)
        return false;
    if (digits == (scheme == 8 ? 3u : 2u) && !strncmp(port, scheme == 8 ? "443" : "80", digits))
        return false;
    const size_t name = (size_t)((colon ? colon : end) - host);
    return name && digits <= 5 && strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-._[]:") >= name;
}

enum error_code site_check_origins(const char *origins, struct error *err)
{
    const char *entry;
    size_t size;
    while (site_next(&origins, &entry, &size))
        if (!site_is_origin(entry, size))
            return error_set(err, ERROR_INVALID,
                             "cors_origins: \"%.*s\" is not an origin; write http:// or https:// and a host in lower "
                             "case, with its port where that is not the usual one, and nothing behind it",
                             (int)(size < 100 ? size : 100), entry);
    return OK;
}

bool site_is_listed_origin(const char *origin, const char *origins)
{
    const char *entry;
    size_t size;
    while (origin && site_next(&origins, &entry, &size))
        if (strlen(origin) == size && !memcmp(origin, entry, size))
            return true;
    return false;
}

static bool site_is_listed(const char *name, const char *allowed)
{
    const char *entry;
    size_t size;
    while (site_next(&allowed, &entry, &size)) {
        char want[SITE_NAME_MAX];
        if (size == 1 && *entry == '*')
            return true;
        if (!site_name(entry, size, want))
            continue;
        if (*want == '*' ? site_ends_with(name, want + 1) : !strcasecmp(name, want))
            return true;
    }
    return false;
}

/* The host of `listen`. */
static bool site_listen(const char *listen, char out[SITE_NAME_MAX])
{
    const char *colon = strrchr(listen, ':');
    return site_name(listen, colon ? (size_t)(colon - listen) : strlen(listen), out);
}

bool site_is_local(const char *listen)
{
    char name[SITE_NAME_MAX];
    return site_listen(listen, name) && site_is_loopback(name);
}

bool site_host_is_ours(const char *host, const char *allowed, const char *listen, bool address)
{
    char name[SITE_NAME_MAX], own[SITE_NAME_MAX];
    if (!host)
        return true; /* HTTP/1.0, so not a browser */
    if (!site_name(host, strlen(host), name))
        return false;
    if (site_is_loopback(name) || (address && site_is_address(name)) || site_is_listed(name, allowed))
        return true;
    if (!site_listen(listen, own))
        return false;
    return !strcasecmp(name, own) || (!site_is_loopback(own) && site_is_private(name));
}

/* Whether an Origin has this host and port; the scheme's default port may be omitted. */
static bool site_same(const char *origin, const char *host)
{
    const char *port = !strncasecmp(origin, "http://", 7) ? ":80" : !strncasecmp(origin, "https://", 8) ? ":443" : NULL;
    if (!port || !host)
        return false;
    const char *from = strstr(origin, "://") + 3;
    size_t a = strlen(from), b = strcspn(host, ", \t"), n = strlen(port);
    if (a > n && !strcmp(from + a - n, port))
        a -= n;
    if (b > n && !strncmp(host + b - n, port, n))
        b -= n;
    return a && a == b && !strncasecmp(from, host, a);
}

bool site_is_foreign(const struct site_request *request)
{
    if (request->origin && !strcasecmp(request->origin, "null"))
        return true;
    if (request->fetch_site)
        return strcmp(request->fetch_site, "same-origin") != 0 && strcmp(request->fetch_site, "none") != 0;
    if (!request->origin)
        return false;
    return !site_same(request->origin, request->host) && !site_same(request->origin, request->forwarded_host);
}

bool site_is_foreign_read(const struct site_request *request)
{
    bool visit = request->fetch_mode && !strcmp(request->fetch_mode, "navigate") && request->fetch_dest &&
                 !strcmp(request->fetch_dest, "document");
    return !visit && site_is_foreign(request);
}
