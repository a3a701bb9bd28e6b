/* connection.h: one keep-alive connection of the generator and the lists that it is on. Owned by
 * one worker thread.
 *
 * A connection is on exactly one list of its worker, or dead:
 *
 *   WAITING --try--> CONNECTING --connected--> IDLE --send--> BUSY --answered--> IDLE
 *      ^                 |                       |              |
 *      +--(retry_ns)-----+<----------------------+--------------+  lost
 *                        +--> DEAD (refused, and not told to keep trying)
 *
 * The WAITING list is in the order of retry_ns, every other in the order of entering. As timeouts
 * are of one length, the head is always the one whose time is over first, and no timer per
 * connection is needed. */
#ifndef WEIR_LOAD_CONNECTION_H
#define WEIR_LOAD_CONNECTION_H

#include <sys/socket.h>

#include "load/response.h"

enum connection_state {
    CONNECTION_WAITING,
    CONNECTION_CONNECTING,
    CONNECTION_IDLE,
    CONNECTION_BUSY,
    CONNECTION_DEAD, /* last: one list for each state before it */
};

struct connection {
    struct connection *next, *before;
    enum connection_state state;
    int fd;               /* -1 while WAITING or DEAD */
    uint64_t since_ns;    /* when it entered its state; while BUSY: when the request was sent */
    uint64_t retry_ns;    /* while WAITING */
    uint64_t intended_ns; /* while BUSY: from when the latency counts */
    struct response response;
    struct buf rest; /* of the request: what the socket did not take yet */
    size_t rest_at;
    struct buf docs; /* the records of the request, when their ids are kept; then padding */
};

struct connection_list {
    struct connection *first, *last;
    unsigned n;
};

void connection_list_push(struct connection_list *list, struct connection *connection);
void connection_list_insert(struct connection_list *list,
                            struct connection *connection); /* by retry_ns, after its equals */
void connection_list_remove(struct connection_list *list, struct connection *connection);

/* Opens a socket, registers it (edge-triggered, for everything) and begins to connect. 0 or an
 * errno; EINPROGRESS is 0. */
int connection_open(struct connection *connection, int epoll, const struct sockaddr *address,
                    socklen_t address_n);
int connection_error(const struct connection *connection); /* why connecting failed, or 0 */
void connection_close(struct connection *connection);
void connection_fini(struct connection *connection);

/* Sends, or keeps what the socket does not take. 0 or an errno. */
int connection_send(struct connection *connection, const char *p, size_t n);
int connection_send_rest(struct connection *connection); /* when it became writable */

#endif
