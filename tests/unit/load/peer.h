/* peer.h: a tiny HTTP server inside a test: one thread per connection, blocking, scripted.
 *
 * `answer` is called for every whole request with its number (over all connections, from 0) and its
 * body; it writes to fd what it likes. Returning false closes the connection. */
#ifndef WEIR_TESTS_LOAD_PEER_H
#define WEIR_TESTS_LOAD_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEER_CONNECTIONS 512

struct peer {
    bool (*answer)(struct peer *peer, int fd, unsigned number, const char *head, const char *body);
    void *context;
    int listener;
    unsigned port;
    atomic_uint requests, connections;
    atomic_bool stopping;
    pthread_t acceptor;
    struct peer_connection {
        struct peer *peer;
        int fd;
        pthread_t thread;
    } list[PEER_CONNECTIONS];
};

static void peer_write(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n > 0) {
        ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        text += sent;
        n -= (size_t)sent;
    }
}

static void *peer_serve(void *argument)
{
    struct peer_connection *c = argument;
    size_t n = 0, room = 1 << 20;
    char *in = malloc(room);
    for (;;) {
        char *end = NULL;
        size_t need = 0;
        for (;;) { /* one request */
            in[n] = 0;
            end = strstr(in, "\r\n\r\n");
            if (end) {
                char *length = strstr(in, "Content-Length: ");
                need = (size_t)(end + 4 - in) + (length ? strtoul(length + 16, NULL, 10) : 0);
                if (n >= need)
                    break;
            }
            ssize_t got = recv(c->fd, in + n, room - 1 - n, 0);
            if (got <= 0)
                goto out;
            n += (size_t)got;
        }
        end[2] = 0;
        char saved = in[need];
        in[need] = 0;
        unsigned number = atomic_fetch_add(&c->peer->requests, 1);
        if (!c->peer->answer(c->peer, c->fd, number, in, end + 4))
            goto out;
        in[need] = saved;
        memmove(in, in + need, n - need);
        n -= need;
    }
out:
    shutdown(c->fd, SHUT_RDWR);
    free(in);
    return NULL;
}

static void *peer_accept(void *argument)
{
    struct peer *peer = argument;
    for (;;) {
        int fd = accept(peer->listener, NULL, NULL);
        if (atomic_load(&peer->stopping) || fd < 0) {
            if (fd >= 0)
                close(fd);
            return NULL;
        }
        unsigned i = atomic_load(&peer->connections);
        if (i == PEER_CONNECTIONS)
            abort();
        peer->list[i].peer = peer;
        peer->list[i].fd = fd;
        pthread_create(&peer->list[i].thread, NULL, peer_serve, &peer->list[i]);
        atomic_store(&peer->connections, i + 1);
    }
}

/* port 0: any. */
static void peer_start(struct peer *peer, unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof address;
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    peer->listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(peer->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(peer->listener, (struct sockaddr *)&address, n) || listen(peer->listener, 512) ||
        getsockname(peer->listener, (struct sockaddr *)&address, &n))
        abort();
    peer->port = ntohs(address.sin_port);
    pthread_create(&peer->acceptor, NULL, peer_accept, peer);
}

static void peer_stop(struct peer *peer)
{
    atomic_store(&peer->stopping, true);
    shutdown(peer->listener, SHUT_RDWR);
    pthread_join(peer->acceptor, NULL);
    close(peer->listener);
    for (unsigned i = 0; i < atomic_load(&peer->connections); i++) {
        shutdown(peer->list[i].fd, SHUT_RDWR);
        pthread_join(peer->list[i].thread, NULL);
        close(peer->list[i].fd);
    }
}

#endif
