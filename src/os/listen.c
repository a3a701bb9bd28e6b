/* listen.c: addresses and listening sockets (see listen.h). */
#include "os/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/err.h"

#define BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

/* ---- addresses ---- */

static int parse_port(const char *text, uint16_t *out)
{
    unsigned long port = 0;
    size_t n = strlen(text);
    if (n == 0 || n > 5)
        return WEIR_INVALID;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return WEIR_INVALID;
        port = port * 10 + (unsigned long)(*text - '0');
    }
    if (port > 65535)
        return WEIR_INVALID;
    *out = (uint16_t)port;
    return 0;
}

static bool parse_ipv4(const char *host, struct listen_address *address)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&address->sockaddr;
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
        return false;
    in->sin_family = AF_INET;
    in->sin_port = htons(address->port);
    address->sockaddr_bytes = sizeof *in;
    address->loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
    return true;
}

static bool parse_ipv6(const char *host, struct listen_address *address)
{
    struct sockaddr_in6 *in = (struct sockaddr_in6 *)&address->sockaddr;
    if (inet_pton(AF_INET6, host, &in->sin6_addr) != 1)
        return false;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(address->port);
    address->sockaddr_bytes = sizeof *in;
    address->loopback = IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
    return true;
}

int listen_parse(const char *text, struct listen_address *out, struct diag *diag)
{
    struct listen_address address = {0};
    char host[INET6_ADDRSTRLEN + 1];
    const char *from = text, *end, *colon;
    bool brackets = text[0] == '[';
    if (brackets) {
        from = text + 1;
        end = strchr(text, ']');
        colon = end ? end + 1 : NULL;
    } else {
        end = colon = strrchr(text, ':');
    }
    if (!end || *colon != ':' || (size_t)(end - from) >= sizeof host ||
        parse_port(colon + 1, &address.port))
        goto invalid;
    memcpy(host, from, (size_t)(end - from));
    host[end - from] = 0;
    if (!(brackets ? parse_ipv6(host, &address) : parse_ipv4(host, &address)))
        goto invalid;
    *out = address;
    return 0;
invalid:
    return diag_set(diag, WEIR_INVALID,
                    "\"%s\" is not an address to listen on; write it like 127.0.0.1:8080 or "
                    "[::1]:8080",
                    text);
}

static void set_port(struct listen_address *address, uint16_t port)
{
    address->port = port;
    if (address->sockaddr.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->sockaddr)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)&address->sockaddr)->sin_port = htons(port);
}

/* ---- listeners ---- */

static int failed(const struct listen_address *address, struct diag *diag)
{
    int error = errno;
    char host[INET6_ADDRSTRLEN] = "?";
    bool v6 = address->sockaddr.ss_family == AF_INET6;
    inet_ntop(address->sockaddr.ss_family,
              v6 ? (const void *)&((const struct sockaddr_in6 *)&address->sockaddr)->sin6_addr
                 : (const void *)&((const struct sockaddr_in *)&address->sockaddr)->sin_addr,
              host, sizeof host);
    int code = error == EADDRINUSE ? WEIR_EXISTS : error == EACCES ? WEIR_DENIED : WEIR_NET;
    return diag_set(diag, code, "cannot listen on %s%s%s:%u: %s", v6 ? "[" : "", host,
                    v6 ? "]" : "", address->port,
                    error == EADDRINUSE ? "another process listens there" : strerror(error));
}

static int open_one(const struct listen_address *address, bool share, int *out_fd)
{
    int on = 1;
    int fd = socket(address->sockaddr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (address->sockaddr.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if ((share && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) < 0) ||
        bind(fd, (const struct sockaddr *)&address->sockaddr, address->sockaddr_bytes) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    *out_fd = fd;
    return 0;
}

int listen_tcp(struct listen_address *address, unsigned n, int *out_fds, struct diag *diag)
{
    struct listen_address chosen = *address;
    unsigned opened = 0;
    int fd;
    /* SO_REUSEPORT would let two gateways share a port, each seeing half of the requests. */
    if (chosen.port != 0) {
        if (open_one(&chosen, false, &fd) < 0)
            return failed(&chosen, diag);
        close(fd);
    }
    for (; opened < n; opened++) {
        if (open_one(&chosen, true, &fd) < 0)
            goto fail;
        out_fds[opened] = fd;
        if (chosen.port == 0) {
            struct sockaddr_storage bound;
            socklen_t bytes = sizeof bound;
            getsockname(fd, (struct sockaddr *)&bound, &bytes);
            set_port(&chosen,
                     ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                       : ((struct sockaddr_in *)&bound)->sin_port));
        }
        if (listen(fd, BACKLOG) < 0) {
            opened++;
            goto fail;
        }
    }
    *address = chosen;
    return 0;
fail:;
    int rc = failed(&chosen, diag);
    while (opened)
        close(out_fds[--opened]);
    return rc;
}

/* ---- unix sockets ---- */

struct unix_path { /* reaches a socket whose path is longer than a sockaddr_un */
    int dir_fd;    /* -1: not needed */
    struct sockaddr_un sockaddr;
};

static int unix_path(const char *path, struct unix_path *out)
{
    *out = (struct unix_path){.dir_fd = -1, .sockaddr.sun_family = AF_UNIX};
    if (strlen(path) < sizeof out->sockaddr.sun_path) {
        memcpy(out->sockaddr.sun_path, path, strlen(path) + 1);
        return 0;
    }
    const char *slash = strrchr(path, '/');
    char dir[4096];
    if (!slash || (size_t)(slash - path) >= sizeof dir) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = 0;
    out->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (out->dir_fd < 0)
        return -1;
    int n = snprintf(out->sockaddr.sun_path, sizeof out->sockaddr.sun_path, "/proc/self/fd/%d/%s",
                     out->dir_fd, slash + 1);
    if (n >= (int)sizeof out->sockaddr.sun_path) {
        close(out->dir_fd);
        out->dir_fd = -1;
        errno = ENAMETOOLONG;
        return -1;
    }
    return 0;
}

int listen_unix(const char *path, int *out_fd, struct diag *diag)
{
    struct unix_path where;
    struct stat there;
    int fd = -1;
    if (lstat(path, &there) == 0) {
        if (!S_ISSOCK(there.st_mode))
            return diag_set(diag, WEIR_EXISTS, "%s is there and is not a socket; move it away",
                            path);
        unlink(path);
    }
    if (unix_path(path, &where) < 0)
        goto fail;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* The file gets the socket's mode, so that there is no moment at which others may connect. */
    if (fd < 0 || fchmod(fd, 0600) < 0 ||
        bind(fd, (const struct sockaddr *)&where.sockaddr, sizeof where.sockaddr) < 0 ||
        chmod(path, 0600) < 0 || listen(fd, BACKLOG) < 0)
        goto fail;
    if (where.dir_fd >= 0)
        close(where.dir_fd);
    *out_fd = fd;
    return 0;
fail:;
    int rc = diag_set(diag, errno == EACCES ? WEIR_DENIED : WEIR_NET, "cannot listen on %s: %s",
                      path, strerror(errno));
    if (fd >= 0)
        close(fd);
    if (where.dir_fd >= 0)
        close(where.dir_fd);
    return rc;
}

int listen_connect_unix(const char *path, int *out_fd, struct diag *diag)
{
    struct unix_path where;
    int fd = -1, rc = 0;
    if (unix_path(path, &where) < 0)
        return diag_set(diag, WEIR_UNAVAILABLE, "%s: %s", path, strerror(errno));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 ||
        connect(fd, (const struct sockaddr *)&where.sockaddr, sizeof where.sockaddr) < 0) {
        rc = diag_set(diag, WEIR_UNAVAILABLE, "%s: nothing answers there: %s", path,
                      strerror(errno));
        if (fd >= 0)
            close(fd);
    } else {
        *out_fd = fd;
    }
    if (where.dir_fd >= 0)
        close(where.dir_fd);
    return rc;
}

/* ---- limits ---- */

uint64_t listen_raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 1024;
    if (limit.rlim_cur < limit.rlim_max) {
        struct rlimit raised = {limit.rlim_max, limit.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            limit = raised;
    }
    return limit.rlim_cur;
}
