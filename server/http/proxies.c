#include "server/http/proxies.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct in6_addr proxies_address(const struct sockaddr *address)
{
    struct in6_addr out = IN6ADDR_ANY_INIT;
    if (address && address->sa_family == AF_INET6) {
        struct sockaddr_in6 six;
        memcpy(&six, address, sizeof six);
        out = six.sin6_addr;
    } else if (address && address->sa_family == AF_INET) {
        struct sockaddr_in four;
        memcpy(&four, address, sizeof four);
        out.s6_addr[10] = out.s6_addr[11] = 0xff;
        memcpy(out.s6_addr + 12, &four.sin_addr, 4);
    }
    return out;
}

/* A plain address; *bits: the number of bits in its family, 32 or 128. */
static bool proxies_parse(const char *text, size_t size, struct in6_addr *out, int *bits)
{
    char copy[INET6_ADDRSTRLEN];
    struct in_addr four;
    if (size >= sizeof copy)
        return false;
    memcpy(copy, text, size);
    copy[size] = 0;
    *bits = 128;
    if (inet_pton(AF_INET6, copy, out) == 1)
        return true;
    if (inet_pton(AF_INET, copy, &four) != 1)
        return false;
    *out = (struct in6_addr)IN6ADDR_ANY_INIT;
    out->s6_addr[10] = out->s6_addr[11] = 0xff;
    memcpy(out->s6_addr + 12, &four, 4);
    *bits = 32;
    return true;
}

/* An entry of the list: an address, or ADDRESS/BITS. */
static bool proxies_parse_range(const char *text, size_t size, struct in6_addr *out, int *bits)
{
    const char *slash = memchr(text, '/', size);
    int family, given = 0;
    if (!proxies_parse(text, slash ? (size_t)(slash - text) : size, out, &family))
        return false;
    *bits = 128;
    if (!slash)
        return true;
    const char *end = text + size, *digit = slash + 1;
    for (; digit < end && *digit >= '0' && *digit <= '9' && given <= 128; digit++)
        given = given * 10 + (*digit - '0');
    if (digit != end || digit == slash + 1 || given > family)
        return false;
    *bits = given + 128 - family;
    return true;
}

/* The next entry of a comma-separated list, without spaces around it; NULL after the last. */
static const char *proxies_next(const char **list, size_t *size)
{
    const char *at = *list + strspn(*list, ", \t");
    if (!*at)
        return NULL;
    *size = strcspn(at, ",");
    *list = at + *size;
    while (*size && strchr(" \t", at[*size - 1]))
        --*size;
    return at;
}

enum error_code proxies_check_list(const char *trusted, struct error *err)
{
    struct in6_addr address;
    size_t size;
    int bits;
    for (const char *entry; (entry = proxies_next(&trusted, &size));)
        if (!proxies_parse_range(entry, size, &address, &bits))
            return error_set(err, ERROR_INVALID,
                             "trusted_proxies: \"%.*s\" is not an address or range, such as 10.0.0.0/8 or ::1",
                             (int)size, entry);
    return OK;
}

bool proxies_is_listed(const char *trusted, const struct in6_addr *address)
{
    struct in6_addr range;
    size_t size;
    int bits;
    for (const char *entry; (entry = proxies_next(&trusted, &size));) {
        if (!proxies_parse_range(entry, size, &range, &bits) || memcmp(&range, address, (size_t)bits / 8) != 0)
            continue;
        const int rest = bits % 8;
        if (!rest || (range.s6_addr[bits / 8] ^ address->s6_addr[bits / 8]) >> (8 - rest) == 0)
            return true;
    }
    return false;
}

/* The address of one hop: ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT, perhaps in quotes; in Forwarded after "for=". */
static bool proxies_parse_hop(const char *text, size_t size, bool forwarded, struct in6_addr *out)
{
    int bits;
    if (forwarded) {
        const char *end = text + size;
        while (text < end && strncasecmp(text, "for=", 4) != 0) {
            const char *next = memchr(text, ';', (size_t)(end - text));
            if (!next)
                return false;
            text = next + 1 + strspn(next + 1, " \t");
        }
        if (end - text < 4)
            return false;
        text += 4;
        const char *stop = memchr(text, ';', (size_t)(end - text));
        size = (size_t)((stop ? stop : end) - text);
    }
    if (size >= 2 && text[0] == '"' && text[size - 1] == '"') {
        text++;
        size -= 2;
    }
    if (size && *text == '[') {
        const char *end = memchr(text, ']', size);
        return end && proxies_parse(text + 1, (size_t)(end - text - 1), out, &bits);
    }
    const char *colon = memchr(text, ':', size);
    if (colon && !memchr(colon + 1, ':', size - (size_t)(colon - text) - 1)) /* a port behind an IPv4 address */
        size = (size_t)(colon - text);
    return proxies_parse(text, size, out, &bits);
}

static void proxies_print(const struct in6_addr *address, char out[INET6_ADDRSTRLEN])
{
    if (IN6_IS_ADDR_V4MAPPED(address))
        inet_ntop(AF_INET, address->s6_addr + 12, out, INET6_ADDRSTRLEN);
    else
        inet_ntop(AF_INET6, address, out, INET6_ADDRSTRLEN);
}

void proxies_client(const char *trusted, const struct in6_addr *peer, const char *x_forwarded_for,
                    const char *forwarded, char out[INET6_ADDRSTRLEN])
{
    struct in6_addr client = *peer;
    const char *list = x_forwarded_for ? x_forwarded_for : forwarded ? forwarded : "", *end = list + strlen(list);
    while (end > list && proxies_is_listed(trusted, &client)) { /* from the last hop to the first */
        const char *begin = end;
        while (begin > list && begin[-1] != ',')
            begin--;
        const char *next = begin;
        size_t size;
        struct in6_addr hop;
        const char *entry = proxies_next(&next, &size);
        if (!entry || entry >= end || !proxies_parse_hop(entry, size, !x_forwarded_for, &hop))
            break;
        client = hop;
        end = begin > list ? begin - 1 : list;
    }
    proxies_print(&client, out);
}
