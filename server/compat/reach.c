#include "server/compat/reach.h"

#include <string.h>
#include <sys/socket.h>

#include "server/http/proxies.h"
#include "server/version.h"

/* IANA's special-purpose registries: what is not reachable from everywhere, and what leads there (NAT64, 6to4). */
static const char reach_private[] =
    "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.0.2.0/24, "
    "192.88.99.0/24, 192.168.0.0/16, 198.18.0.0/15, 198.51.100.0/24, 203.0.113.0/24, 224.0.0.0/3, ::/96, 64:ff9b::/96, "
    "64:ff9b:1::/48, 100::/64, 2001::/23, 2001:db8::/32, 2002::/16, 3fff::/20, 5f00::/16, fc00::/7, fe80::/9, ff00::/8";

bool reach_origin(const char *url, char out[REACH_ORIGIN_MAX])
{
    const size_t scheme = !strncmp(url, "http://", 7) ? 7 : !strncmp(url, "https://", 8) ? 8 : 0;
    const size_t host = strcspn(url + scheme, "/?#"), size = strlen(url);
    if (!scheme || !host || scheme + host >= REACH_ORIGIN_MAX || memchr(url + scheme, '@', host))
        return false;
    for (size_t i = 0; i < size; i++)
        if (url[i] <= 0x20 || url[i] >= 0x7f || strchr("\"\\<>^`{|}", url[i]))
            return false;
    memcpy(out, url, scheme + host);
    out[scheme + host] = 0;
    return true;
}

bool reach_may_connect(const struct sockaddr *address, const char *listed)
{
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
        return false;
    const struct in6_addr plain = proxies_address(address);
    return !proxies_is_listed(reach_private, &plain) || proxies_is_listed(listed, &plain);
}

static curl_socket_t reach_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct reach *reach = user;
    (void)purpose;
    if (reach_may_connect(&address->addr, reach->listed)) {
        reach->allowed = true;
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    }
    reach->refused = true;
    return CURL_SOCKET_BAD;
}

void reach_prepare(CURL *curl, struct reach *reach)
{
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, reach_socket);
    curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, reach);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L); /* waits for no name server when the time is over */
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "restored/" RESTORED_VERSION);
}
