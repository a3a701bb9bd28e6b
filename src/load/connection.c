/* connection.c: see connection.h. */
#include "load/connection.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

static void put_after(struct connection_list *list, struct connection *connection,
                      struct connection *before)
{
    connection->before = before;
    connection->next = before ? before->next : list->first;
    if (connection->next)
        connection->next->before = connection;
    else
        list->last = connection;
    if (before)
        before->next = connection;
    else
        list->first = connection;
    list->n++;
}

void connection_list_push(struct connection_list *list, struct connection *connection)
{
    put_after(list, connection, list->last);
}

void connection_list_insert(struct connection_list *list, struct connection *connection)
{
    struct connection *before = list->last;
    while (before && before->retry_ns > connection->retry_ns)
        before = before->before;
    put_after(list, connection, before);
}

void connection_list_remove(struct connection_list *list, struct connection *connection)
{
    if (connection->before)
        connection->before->next = connection->next;
    else
        list->first = connection->next;
    if (connection->next)
        connection->next->before = connection->before;
    else
        list->last = connection->before;
    connection->next = connection->before = NULL;
    list->n--;
}

int connection_open(struct connection *connection, int epoll, const struct sockaddr *address,
                    socklen_t address_n)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int cause = 0;
    if (connect(fd, address, address_n) != 0 && errno != EINPROGRESS && errno != EINTR)
        cause = errno;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = connection};
    if (!cause && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        cause = errno;
    if (cause) {
        close(fd);
        return cause;
    }
    connection->fd = fd;
    return 0;
}

int connection_error(const struct connection *connection)
{
    int cause = 0;
    socklen_t n = sizeof cause;
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &cause, &n) != 0)
        cause = errno;
    return cause;
}

void connection_close(struct connection *connection)
{
    if (connection->fd >= 0)
        close(connection->fd); /* leaves the epoll by itself */
    connection->fd = -1;
    buf_clear(&connection->rest);
    connection->rest_at = 0;
}

void connection_fini(struct connection *connection)
{
    connection_close(connection);
    response_fini(&connection->response);
    buf_fini(&connection->rest);
    buf_fini(&connection->docs);
}

int connection_send(struct connection *connection, const char *p, size_t n)
{
    ssize_t sent = send(connection->fd, p, n, MSG_NOSIGNAL);
    if (sent == (ssize_t)n)
        return 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return errno;
    if (sent < 0)
        sent = 0;
    buf_put(&connection->rest, p + sent, n - (size_t)sent);
    return connection_send_rest(connection); /* a new edge comes only after EAGAIN */
}

int connection_send_rest(struct connection *connection)
{
    while (connection->rest_at < connection->rest.n) {
        ssize_t sent = send(connection->fd, connection->rest.p + connection->rest_at,
                            connection->rest.n - connection->rest_at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN)
            return 0;
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno;
        connection->rest_at += (size_t)sent;
    }
    buf_clear(&connection->rest);
    connection->rest_at = 0;
    return 0;
}
