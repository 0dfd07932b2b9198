/* Whether the threads that serve HTTP still do: each is handed a connection and has to answer it. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/request.h"
#include "server/http/server.h"

/* libmicrohttpd gives a socket of that number to that thread of its pool; -1 when there is none. Closes fd or returns
 * it. */
static int server_number_socket(int fd, unsigned thread, unsigned threads)
{
    for (int tries = 0; fd >= 0 && (unsigned)fd % threads != thread && tries < 64; tries++) {
        const int next = fcntl(fd, F_DUPFD_CLOEXEC, fd + 1);
        close(fd);
        fd = next;
    }
    return fd;
}

/* A thread that cannot be asked, because there are no more sockets or its connections are all taken, counts as one that
 * answers: it is busy, and a restart would not help it. */
static bool server_thread_answers(const struct listener *listener, unsigned thread, int milliseconds)
{
    static const char request[] = "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n";
    const struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
        return true;
    ends[1] = server_number_socket(ends[1], thread, listener->threads);
    struct pollfd fd = {.fd = ends[0], .events = POLLIN};
    bool answers = true;
    if (send(ends[0], request, sizeof request - 1, MSG_NOSIGNAL) == (ssize_t)sizeof request - 1 && ends[1] >= 0) {
        /* from here on the library closes it, also when it refuses */
        if (MHD_add_connection(listener->daemon, ends[1], (const struct sockaddr *)&loopback, sizeof loopback) ==
            MHD_YES)
            answers = poll(&fd, 1, milliseconds) > 0; /* with TLS it is the end: this is no handshake */
    } else if (ends[1] >= 0) {
        close(ends[1]);
    }
    close(ends[0]);
    return answers;
}

bool server_answers(const struct server *server, int milliseconds)
{
    bool answers = true;
    for (int side = 0; side < CONNECTION_SIDES; side++)
        for (unsigned thread = 0; server->listeners[side].daemon && thread < server->listeners[side].threads; thread++)
            answers = answers && server_thread_answers(&server->listeners[side], thread, milliseconds);
    return answers;
}
