/* listen.h: addresses and listening sockets. Any thread, at start. */
#ifndef WEIR_OS_LISTEN_H
#define WEIR_OS_LISTEN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/diag.h"

struct listen_address {
    struct sockaddr_storage sockaddr;
    socklen_t sockaddr_bytes;
    uint16_t port;
    bool loopback; /* only this machine can reach it */
};

/* "127.0.0.1:8080", "[::1]:8080", "localhost:8080"; a port from 0 to 65535, 0: any free one.
 * WEIR_INVALID. */
int listen_parse(const char *text, struct listen_address *out, struct diag *diag);

/* Opens n listeners for one address: each gets its share of the connections (SO_REUSEPORT).
 * Non-blocking, close-on-exec, TCP_NODELAY (which accepted sockets inherit). An address that
 * anything else listens on is WEIR_EXISTS, though it might let us share. With port 0, all get the
 * same free port; address->port says which. On failure none is open. */
int listen_tcp(struct listen_address *address, unsigned n, int *out_fds, struct diag *diag);

/* A unix socket with mode 0600; a socket that is left there is replaced (the caller holds the lock
 * of the directory), anything else is WEIR_EXISTS. Any length of path. */
int listen_unix(const char *path, int *out_fd, struct diag *diag);

/* Connects to a unix socket, blocking. Any length of path. WEIR_UNAVAILABLE. */
int listen_connect_unix(const char *path, int *out_fd, struct diag *diag);

/* Raises the limit of open files to the hard limit; returns the limit then. */
uint64_t listen_raise_file_limit(void);

#endif
