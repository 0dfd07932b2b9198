/* The watch over open connections: what becomes of one whose client has closed its own direction, and which one goes
 * where there is no place left. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/http/connection.h"
#include "tests/common/shared.h"

#define WAIT_MS 60000 /* longer than the slowest machine takes for one round of the watch */

static struct model_store *store;
static struct worker_pool *pool;

/* A connection over loopback: the client's end and ours. */
static void connect_both(int *client, int *ours)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    *client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(*client, (struct sockaddr *)&address, size), 0);
    *ours = accept(listener, NULL, NULL);
    assert_true(*ours >= 0);
    close(listener);
}

/* As libmicrohttpd does it: told of news by an edge, it reads the request, thinks it over for as long as it likes, and
 * learns by a new edge of the end that came together with the request. Then it may still answer. */
static void an_end_is_told_again_and_nothing_is_cut(void **state)
{
    (void)state;
    const struct connection_limits limits = {.request_seconds = 600, .per_address = 8, .most = {8, 8}};
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const char request[] = "GET / HTTP/1.1\r\n\r\n", answer[] = "HTTP/1.1 200 OK\r\n\r\n";
    struct connections *all;
    struct error err = ERROR_INIT;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    char bytes[64];
    int client, ours;
    connect_both(&client, &ours);
    assert_int_equal(connections_create(&all, pool, &limits, &err), OK);
    assert_int_equal(send(client, request, sizeof request, 0), sizeof request);
    assert_int_equal(shutdown(client, SHUT_WR), 0);
    int epoll = epoll_create1(0);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, ours, &event), 0);
    assert_int_equal(epoll_wait(epoll, &event, 1, WAIT_MS), 1);
    assert_int_equal(recv(ours, bytes, sizeof bytes, 0), sizeof request);
    struct connection *link = connection_open(all, CONNECTION_SERVICE, ours, (const struct sockaddr *)&from);
    for (int round = 0; round < 3; round++)
        assert_int_equal(epoll_wait(epoll, &event, 1, WAIT_MS), 1);
    assert_int_equal(recv(ours, bytes, sizeof bytes, 0), 0);
    assert_int_equal(send(ours, answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
    assert_int_equal(recv(client, bytes, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_string_equal(bytes, answer);
    connection_close(&link);
    connections_destroy(&all);
    close(epoll);
    close(ours);
    close(client);
}

static bool is_cut(int client)
{
    char byte;
    return recv(client, &byte, 1, MSG_DONTWAIT) == 0; /* the end; -1: nothing yet */
}

/* Where all places are taken, the one that has kept us waiting the longest goes; a request that we work on does not. */
static void the_idlest_makes_room(void **state)
{
    (void)state;
    const struct connection_limits limits = {.request_seconds = 600, .per_address = 8, .most = {2, 2}};
    const struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct connections *all;
    struct error err = ERROR_INIT;
    struct connection *links[4];
    int clients[4], ours[4];
    assert_int_equal(connections_create(&all, pool, &limits, &err), OK);
    for (int i = 0; i < 4; i++) {
        connect_both(&clients[i], &ours[i]);
        links[i] = connection_open(all, CONNECTION_SERVICE, ours[i], (const struct sockaddr *)&from);
        assert_non_null(links[i]);
        if (i == 0)
            connection_holding(links[i]);
    }
    assert_false(is_cut(clients[0]));
    assert_true(is_cut(clients[1]));
    assert_true(is_cut(clients[2]));
    assert_false(is_cut(clients[3]));
    for (int i = 0; i < 4; i++) {
        connection_close(&links[i]);
        close(clients[i]);
        close(ours[i]);
    }
    connections_destroy(&all);
}

static int start(void **state)
{
    (void)state;
    const struct model_defaults none = {.name = {""}};
    const struct worker_settings settings = {.device = "cpu", .workers = 1, .queue = 1};
    struct error err = ERROR_INIT;
    assert_int_equal(model_store_create(&store, shared_fixtures(), &none, &err), OK);
    assert_int_equal(worker_pool_create(&pool, &settings, store, &err), OK);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    worker_pool_destroy(&pool);
    model_store_destroy(&store);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_end_is_told_again_and_nothing_is_cut),
        cmocka_unit_test(the_idlest_makes_room),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
