/* Who a request comes from behind proxies: only what a trusted one says counts, from the last hop to the first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <arpa/inet.h>
#include <cmocka.h>

#include "server/http/proxies.h"

static struct in6_addr address(const char *text)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return proxies_address((struct sockaddr *)&four);
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return proxies_address((struct sockaddr *)&six);
}

static void test_list(void **state)
{
    (void)state;
    static const char *const good[] = {"",          " , ",  "10.0.0.1",    "10.0.0.0/8, fd00::/8,::1",
                                       "0.0.0.0/0", "::/0", "10.0.0.1/32", "::1/128"};
    static const struct {
        const char *list, *say;
    } bad[] = {{"10.0.0", "\"10.0.0\""},
               {"10.0.0.0/33", "\"10.0.0.0/33\""},
               {"::/129", "\"::/129\""},
               {"10.0.0.0/", "\"10.0.0.0/\""},
               {"10.0.0.1,proxy", "\"proxy\""},
               {"10.0.0.0/8x", "\"10.0.0.0/8x\""},
               {"/8", "\"/8\""},
               {"10.0.0.1 10.0.0.2", "10.0.0.1 10."},
               {"::/99999999999", "::/999"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(proxies_check_list(good[i], NULL), OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = ERROR_INIT;
        assert_int_equal(proxies_check_list(bad[i].list, &err), ERROR_INVALID);
        if (!strstr(err.text, bad[i].say))
            fail_msg("%s gives \"%s\"", bad[i].list, err.text);
    }
}

static void test_client(void **state)
{
    (void)state;
    static const struct {
        const char *trusted, *peer, *x, *forwarded, *client;
    } cases[] = {
        {"", "192.0.2.7", "198.51.100.1", NULL, "192.0.2.7"},
        {"10.0.0.0/8", "192.0.2.7", "198.51.100.1", NULL, "192.0.2.7"},
        {"10.0.0.0/8", "10.1.2.3", NULL, NULL, "10.1.2.3"},
        {"10.0.0.0/8", "10.1.2.3", "198.51.100.1", NULL, "198.51.100.1"},
        /* what a client put there itself is before what the proxy adds */
        {"10.0.0.0/8", "10.1.2.3", "203.0.113.9, 198.51.100.1", NULL, "198.51.100.1"},
        {"10.0.0.0/8", "10.1.2.3", "203.0.113.9,198.51.100.1 , 10.9.9.9", NULL, "198.51.100.1"},
        {"10.0.0.0/8", "10.1.2.3", "10.7.7.7, 10.9.9.9", NULL, "10.7.7.7"},
        {"10.0.0.0/8", "10.1.2.3", "garbage, 10.9.9.9", NULL, "10.9.9.9"},
        {"10.0.0.0/8", "10.1.2.3", "", NULL, "10.1.2.3"},
        {"10.0.0.0/8", "10.1.2.3", ",, ,", NULL, "10.1.2.3"},
        {"10.0.0.0/8", "10.1.2.3", ",198.51.100.1", NULL, "198.51.100.1"},
        /* edges of a range that ends inside a byte */
        {"10.0.0.0/9", "10.127.255.255", "198.51.100.1", NULL, "198.51.100.1"},
        {"10.0.0.0/9", "10.128.0.0", "198.51.100.1", NULL, "10.128.0.0"},
        {"0.0.0.0/0", "192.0.2.7", "2001:db8::1", NULL, "2001:db8::1"}, /* of IPv4 alone */
        {"::1", "::1", "198.51.100.1:4711", NULL, "198.51.100.1"},
        {"fd00::/8", "fd12::1", "[2001:db8::1]:4711", NULL, "2001:db8::1"},
        {"fd00::/8", "fe12::1", "198.51.100.1", NULL, "fe12::1"},
        {"127.0.0.1", "127.0.0.1", NULL, "for=198.51.100.1", "198.51.100.1"},
        {"127.0.0.1", "127.0.0.1", NULL, "by=203.0.113.1; FOR=\"[2001:db8::1]:80\";proto=https", "2001:db8::1"},
        {"127.0.0.1", "127.0.0.1", NULL, "for=203.0.113.9, for=198.51.100.1;by=127.0.0.1", "198.51.100.1"},
        {"127.0.0.1", "127.0.0.1", NULL, "for=unknown", "127.0.0.1"},
        {"127.0.0.1", "127.0.0.1", NULL, "for=", "127.0.0.1"},
        {"127.0.0.1", "127.0.0.1", NULL, "proto=https", "127.0.0.1"},
        {"127.0.0.1", "127.0.0.1", "198.51.100.1", "for=203.0.113.9", "198.51.100.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[INET6_ADDRSTRLEN];
        const struct in6_addr peer = address(cases[i].peer);
        proxies_client(cases[i].trusted, &peer, cases[i].x, cases[i].forwarded, out);
        if (strcmp(out, cases[i].client) != 0)
            fail_msg("case %zu gives %s, not %s", i, out, cases[i].client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_list), cmocka_unit_test(test_client)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
