/* client.c: one blocking HTTP/1.1 exchange (see client.h). One request, one connection, one
 * deadline over all of it; every wait is a poll for what is left of it. */
#include "http/client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/wait.h"
#include "http/parse.h"
#include "os/listen.h"

#define HEAD_BYTES      (64 * 1024)
#define HEADERS         200
#define BODY_BYTES_MAX  ((uint64_t)1 << 30)
#define READ_ROOM_BYTES (64 * 1024)

struct exchange {
    const struct http_client_request *request;
    struct diag *diag;
    const char *where; /* for messages: the URL or the path of the socket */
    uint64_t deadline_ns;
    char host[256], port[6]; /* of a URL; an address in brackets without them */
    struct slice authority;  /* as in the URL */
    const char *target;
    const char *unix_path;
    int fd;
    struct buf in; /* what was read and not yet used: from `used` on */
    size_t used;
};

static int wait_for(struct exchange *x, short events)
{
    uint64_t now = clock_mono_ns();
    if (now >= x->deadline_ns)
        return WEIR_TIMEOUT;
    return exec_wait_fd(x->fd, events, (int)((x->deadline_ns - now + 999999) / 1000000));
}

static int timed_out(struct exchange *x)
{
    return diag_set(x->diag, WEIR_TIMEOUT, "%s: no answer within %u ms", x->where,
                    x->request->timeout_ms);
}

static int failed(struct exchange *x, int rc, const char *what)
{
    if (rc == WEIR_TIMEOUT)
        return timed_out(x);
    return diag_set(x->diag, WEIR_NET, "%s: %s: %s", x->where, what, strerror(errno));
}

static int malformed(struct exchange *x, const char *detail)
{
    return diag_set(x->diag, WEIR_NET, "%s: the answer is not valid HTTP: %s", x->where, detail);
}

/* ---- where to ---- */

static bool has_control(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s <= 0x20 || *s == 0x7f)
            return true;
    }
    return false;
}

static int parse_url(struct exchange *x, const char *url)
{
    if (strncasecmp(url, "http://", 7) != 0)
        return WEIR_INVALID;
    const char *from = url + 7, *end = from + strcspn(from, "/?#");
    x->authority = (struct slice){from, (size_t)(end - from)};
    /* "http://host?query" has no path, which the request line cannot do without. */
    x->target = *end == '/' ? end : *end ? NULL : "/";
    if (!x->target || strchr(x->target, '#') || x->authority.n == 0 || !parse_is_host(x->authority))
        return WEIR_INVALID;
    const char *colon = memrchr(from, ':', x->authority.n);
    if (colon && memchr(colon, ']', (size_t)(end - colon)))
        colon = NULL; /* inside the brackets */
    const char *host_end = colon ? colon : end;
    snprintf(x->port, sizeof x->port, "%.*s", colon ? (int)(end - colon - 1) : 2,
             colon ? colon + 1 : "80");
    if (from[0] == '[') {
        from++;
        host_end--;
    }
    if (host_end <= from || (size_t)(host_end - from) >= sizeof x->host || !x->port[0])
        return WEIR_INVALID;
    snprintf(x->host, sizeof x->host, "%.*s", (int)(host_end - from), from);
    return 0;
}

static int parse_destination(struct exchange *x)
{
    const struct http_client_request *request = x->request;
    x->unix_path = request->unix_path;
    if (!x->unix_path && request->url && strncmp(request->url, "unix:", 5) == 0)
        x->unix_path = request->url + 5;
    x->where = x->unix_path ? x->unix_path : request->url;
    if (x->unix_path) {
        x->authority = SLICE_LIT("localhost");
        x->target = request->target ? request->target : "/";
    } else if (!request->url || parse_url(x, request->url)) {
        return diag_set(x->diag, WEIR_INVALID, "\"%s\" is not a URL like http://HOST:PORT/PATH",
                        request->url ? request->url : "");
    }
    if (x->target[0] != '/' || has_control(x->target))
        return diag_set(x->diag, WEIR_INVALID, "\"%s\" is not a path that can be asked for",
                        x->target);
    if (request->token && has_control(request->token))
        return diag_set(x->diag, WEIR_INVALID, "the token holds white space or control bytes");
    return 0;
}

static int unreachable(struct exchange *x, const char *why)
{
    return diag_set(x->diag, WEIR_UNAVAILABLE, "%s: nothing answers there: %s", x->where, why);
}

static int connect_one(struct exchange *x, const struct addrinfo *address)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    x->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (x->fd < 0)
        return failed(x, 0, "a socket cannot be opened");
    if (connect(x->fd, address->ai_addr, address->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return unreachable(x, strerror(errno));
        int rc = wait_for(x, POLLOUT);
        if (rc)
            return failed(x, rc, "connecting failed");
        getsockopt(x->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        if (error)
            return unreachable(x, strerror(error));
    }
    return 0;
}

static int connect_tcp(struct exchange *x)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found;
    int rc = getaddrinfo(x->host, x->port, &hints, &found);
    if (rc)
        return unreachable(x, gai_strerror(rc));
    for (struct addrinfo *at = found; at; at = at->ai_next) {
        rc = connect_one(x, at);
        if (rc == 0 || rc == WEIR_TIMEOUT)
            break;
        if (x->fd >= 0)
            close(x->fd);
        x->fd = -1;
    }
    freeaddrinfo(found);
    return rc;
}

static int connect_unix(struct exchange *x)
{
    int rc = listen_connect_unix(x->unix_path, &x->fd, x->diag);
    if (rc)
        return rc;
    if (fcntl(x->fd, F_SETFL, O_NONBLOCK) < 0)
        return failed(x, 0, "the socket cannot be set up");
    return 0;
}

/* ---- the request ---- */

static int send_request(struct exchange *x)
{
    const struct http_client_request *request = x->request;
    struct buf out = {0};
    int rc = 0;
    buf_printf(&out, "%s %s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\nAccept: */*\r\n",
               request->method, x->target, (int)x->authority.n, x->authority.p);
    if (request->token)
        buf_printf(&out, "Authorization: Bearer %s\r\n", request->token);
    if (request->content_type)
        buf_printf(&out, "Content-Type: %s\r\n", request->content_type);
    if (request->body.n || strcmp(request->method, "GET") != 0)
        buf_printf(&out, "Content-Length: %zu\r\n", request->body.n);
    buf_put_str(&out, "\r\n");
    buf_put_slice(&out, request->body);
    for (size_t sent = 0; sent < out.n;) {
        ssize_t n = send(x->fd, out.p + sent, out.n - sent, MSG_NOSIGNAL);
        if (n >= 0) {
            sent += (size_t)n;
        } else if (errno == EAGAIN) {
            rc = wait_for(x, POLLOUT);
            if (rc) {
                rc = failed(x, rc, "sending failed");
                break;
            }
        } else if (errno == EPIPE || errno == ECONNRESET) {
            break; /* refused before it read it all: the answer may be there */
        } else if (errno != EINTR) {
            rc = failed(x, 0, "sending failed");
            break;
        }
    }
    buf_fini(&out);
    return rc;
}

/* ---- the answer ---- */

static struct slice unread(const struct exchange *x)
{
    if (x->used == x->in.n)
        return (struct slice){"", 0};
    return (struct slice){x->in.p + x->used, x->in.n - x->used};
}

/* Reads what is there, waiting for it. WEIR_END (without words) when the peer has ended. */
static int read_more(struct exchange *x)
{
    for (;;) {
        buf_reserve(&x->in, READ_ROOM_BYTES);
        ssize_t n = recv(x->fd, x->in.p + x->in.n, READ_ROOM_BYTES, 0);
        if (n > 0) {
            x->in.n += (size_t)n;
            return 0;
        }
        if (n == 0)
            return WEIR_END;
        if (errno != EAGAIN && errno != EINTR)
            return failed(x, 0, "reading the answer failed");
        int rc = wait_for(x, POLLIN);
        if (rc)
            return failed(x, rc, "reading the answer failed");
    }
}

static int read_head(struct exchange *x, struct parse_head *head, struct parse_fields *fields)
{
    static const struct parse_limits limits = {HEAD_BYTES, HEADERS};
    struct http_header headers[HEADERS];
    struct parse_error error = {0};
    enum parse_result result;
    do {
        *head = (struct parse_head){.response = true};
        while ((result = parse_head(head, &limits, unread(x).p, unread(x).n, &error)) ==
               PARSE_MORE) {
            int rc = read_more(x);
            if (rc == WEIR_END)
                return malformed(x, "it ends before its head is complete");
            if (rc)
                return rc;
        }
        if (result == PARSE_DONE)
            result = parse_fields(head, &limits, unread(x).p, headers, fields, &error);
        if (result == PARSE_REFUSED)
            return malformed(x, error.detail);
        x->used += head->head_bytes;
    } while (head->status < 200);
    return 0;
}

static int read_chunked(struct exchange *x, struct buf *body)
{
    static const struct parse_limits limits = {HEAD_BYTES, HEADERS};
    struct parse_chunks chunks;
    struct parse_error error = {0};
    enum parse_result result = PARSE_MORE;
    parse_chunks_init(&chunks, &limits, BODY_BYTES_MAX);
    while (result != PARSE_DONE) {
        struct slice in = unread(x), data;
        size_t used = 0;
        if (in.n == 0) {
            x->used = x->in.n = 0;
            int rc = read_more(x);
            if (rc == WEIR_END)
                return malformed(x, "it ends before its last chunk");
            if (rc)
                return rc;
            continue;
        }
        result = parse_chunks(&chunks, in.p, in.n, &used, &data, &error);
        if (result == PARSE_REFUSED)
            return malformed(x, error.detail);
        buf_put_slice(body, data);
        x->used += used;
    }
    return 0;
}

/* A body of known length, or one that lasts until the end of the connection. */
static int read_plain(struct exchange *x, const struct parse_fields *fields, struct buf *body)
{
    uint64_t left = fields->has_length ? fields->content_length : BODY_BYTES_MAX;
    if (left > BODY_BYTES_MAX)
        return diag_set(x->diag, WEIR_TOO_LARGE, "%s: the answer is larger than 1 GiB", x->where);
    while (left) {
        struct slice in = unread(x);
        if (in.n > left)
            in.n = (size_t)left;
        buf_put_slice(body, in);
        left -= in.n;
        x->used = x->in.n = 0;
        if (!left)
            break;
        int rc = read_more(x);
        if (rc == WEIR_END && !fields->has_length)
            return 0;
        if (rc == WEIR_END)
            return malformed(x, "it ends before its body does");
        if (rc)
            return rc;
    }
    return 0;
}

static int read_answer(struct exchange *x, int *status, struct buf *body)
{
    struct parse_head head;
    struct parse_fields fields;
    int rc = read_head(x, &head, &fields);
    if (rc)
        return rc;
    if (strcmp(x->request->method, "HEAD") == 0 || head.status == 204 || head.status == 304)
        rc = 0;
    else if (fields.chunked)
        rc = read_chunked(x, body);
    else
        rc = read_plain(x, &fields, body);
    if (rc == 0)
        *status = head.status;
    return rc;
}

int http_client_call(const struct http_client_request *request, int *status, struct buf *body,
                     struct diag *diag)
{
    struct exchange x = {.request = request, .diag = diag, .fd = -1};
    struct buf got = {0};
    x.deadline_ns = clock_mono_ns() + (uint64_t)request->timeout_ms * 1000000;
    int rc = parse_destination(&x);
    if (rc)
        return rc;
    rc = x.unix_path ? connect_unix(&x) : connect_tcp(&x);
    if (rc)
        goto out;
    rc = send_request(&x);
    if (rc)
        goto out;
    rc = read_answer(&x, status, &got);
    if (rc)
        goto out;
    buf_clear(body);
    buf_put_slice(body, buf_slice(&got));
out:
    if (x.fd >= 0)
        close(x.fd);
    buf_fini(&x.in);
    buf_fini(&got);
    return rc;
}
