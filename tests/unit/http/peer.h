/* peer.h: a server in this process and raw clients, for the tests of the server.
 *
 * The server answers by path:
 *   /echo     200 with "METHOD TARGET BYTES:" and the body
 *   /take     the same, with the body taken
 *   /held     waits until the test answers it: peer_answer_held()
 *   /empty    204;  /same 304
 *   /big      200 with 100,000 bytes
 * Everything else is 404. All waits are for conditions, with a limit that only a failure meets. */
#ifndef WEIR_TESTS_PEER_H
#define WEIR_TESTS_PEER_H

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "http/server.h"

#define PEER_PATIENCE_S 20
#define PEER_HELD_MAX   256

struct peer { /* the server and what its handler noted */
    struct http_server *server;
    unsigned port;
    struct http_server_config config;
    _Atomic unsigned handled, gone, most_unanswered, locals;
    pthread_mutex_t mutex;
    struct http_request *held[PEER_HELD_MAX];    /* guarded by mutex */
    unsigned n_held;                             /* guarded by mutex */
    void (*other)(struct http_request *request); /* for other paths; NULL: 404 */
};

static struct peer peer;

/* ---- waiting ---- */

#define PEER_WAIT(condition)                                                                       \
    do {                                                                                           \
        for (unsigned peer_left = PEER_PATIENCE_S * 1000; !(condition); peer_left--) {             \
            if (!peer_left) {                                                                      \
                fprintf(stderr, "%s:%d: waited in vain for: %s\n", __FILE__, __LINE__,             \
                        #condition);                                                               \
                abort();                                                                           \
            }                                                                                      \
            poll(NULL, 0, 1);                                                                      \
        }                                                                                          \
    } while (0)

static inline uint64_t peer_counter(size_t offset)
{
    const struct http_counters *counters = http_server_counters(peer.server);
    return atomic_load((const _Atomic uint64_t *)((const char *)counters + offset));
}
#define PEER_COUNTER(name) peer_counter(offsetof(struct http_counters, name))

/* ---- the server ---- */

static void peer_gone(struct http_request *request)
{
    assert(request->client_gone);
    atomic_fetch_add(&peer.gone, 1);
}

static void peer_hold(struct http_request *request)
{
    pthread_mutex_lock(&peer.mutex);
    assert(peer.n_held < PEER_HELD_MAX);
    peer.held[peer.n_held++] = request;
    pthread_mutex_unlock(&peer.mutex);
    http_on_gone(request, peer_gone);
}

static void peer_echo(struct http_request *request, const char *body)
{
    struct buf text = {0};
    buf_printf(&text, "%.*s %.*s %zu:", (int)request->method.n, request->method.p,
               (int)request->target.n, request->target.p, request->body_bytes);
    buf_put(&text, body, request->body_bytes);
    http_answer(request, 200, "text/plain", (struct slice){NULL, 0}, buf_slice(&text));
    buf_fini(&text);
}

static void peer_handle(void *context, struct http_request *request)
{
    assert(context == &peer && loop_is_current(request->loop));
    atomic_fetch_add(&peer.handled, 1);
    if (request->local)
        atomic_fetch_add(&peer.locals, 1);
    unsigned waiting = http_server_unanswered(peer.server);
    if (waiting > atomic_load(&peer.most_unanswered))
        atomic_store(&peer.most_unanswered, waiting);
    unsigned padding = 0;
    for (size_t i = 0; i < HTTP_BODY_PADDING && request->body; i++) /* readable: ASan looks */
        padding += (unsigned char)request->body[request->body_bytes + i];
    assert(padding < 1 << 20);
    if (slice_is(request->path, "/echo")) {
        peer_echo(request, request->body);
    } else if (slice_is(request->path, "/take")) {
        size_t n = request->body_bytes;
        char *body = http_take_body(request);
        assert(!request->body && !request->body_bytes && !body == !n);
        request->body_bytes = n;
        peer_echo(request, body);
        mem_free(body);
    } else if (slice_is(request->path, "/held")) {
        peer_hold(request);
    } else if (slice_is(request->path, "/empty")) {
        http_answer(request, 204, NULL, SLICE_LIT("X-Extra: 1\r\n"), SLICE_LIT(""));
    } else if (slice_is(request->path, "/same")) {
        http_answer(request, 304, "text/plain", SLICE_LIT(""), SLICE_LIT("no body"));
    } else if (slice_is(request->path, "/big")) {
        char *big = mem_zalloc(100000);
        http_answer(request, 200, "text/plain", SLICE_LIT(""), (struct slice){big, 100000});
        mem_free(big);
    } else if (peer.other) {
        peer.other(request);
    } else {
        http_answer_problem(request, 404, SLICE_LIT(""), "there is nothing here");
    }
}

static inline void peer_configure(void)
{
    peer = (struct peer){.mutex = PTHREAD_MUTEX_INITIALIZER};
    peer.config = (struct http_server_config){
        .address = "127.0.0.1:0", .loops = 1, .handle = peer_handle, .context = &peer};
    http_limits_default(&peer.config.limits);
}

static inline void peer_start(void)
{
    struct diag diag = {0};
    int rc = http_server_start(&peer.config, &peer.server, &diag);
    if (rc)
        fprintf(stderr, "%s\n", diag.text);
    assert(rc == 0);
    peer.port = http_server_port(peer.server);
}

static inline void peer_stop(void)
{
    http_server_destroy(peer.server);
    peer.server = NULL;
}

static inline unsigned peer_held(void)
{
    pthread_mutex_lock(&peer.mutex);
    unsigned n = peer.n_held;
    pthread_mutex_unlock(&peer.mutex);
    return n;
}

/* Answers what is held, on the loop: in the order in which it came, or the reverse. */
struct peer_task {
    struct loop_message message; /* first */
    bool reverse;
    _Atomic bool done;
};

static void peer_answer_now(struct loop_message *message)
{
    struct peer_task *task = (struct peer_task *)message;
    pthread_mutex_lock(&peer.mutex);
    unsigned n = peer.n_held;
    struct http_request *held[PEER_HELD_MAX];
    memcpy(held, peer.held, sizeof held);
    peer.n_held = 0;
    pthread_mutex_unlock(&peer.mutex);
    for (unsigned i = 0; i < n; i++) {
        struct http_request *request = held[task->reverse ? n - 1 - i : i];
        peer_echo(request, request->body);
    }
    atomic_store(&task->done, true);
}

static inline void peer_answer_held(bool reverse)
{
    struct peer_task task = {.message.run = peer_answer_now, .reverse = reverse};
    loop_post(http_server_loop(peer.server, 0), &task.message);
    PEER_WAIT(atomic_load(&task.done));
}

/* All connections are closed and counted: whole turns have passed since. */
static inline void peer_settle(void)
{
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    peer_answer_held(false);
    peer_answer_held(false);
}

/* ---- clients ---- */

static inline int peer_connect(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct timeval patience = {.tv_sec = PEER_PATIENCE_S};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)peer.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    int rc = connect(fd, (struct sockaddr *)&to, sizeof to);
    assert(rc == 0);
    return fd;
}

static inline void peer_send(int fd, const void *p, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        assert(sent > 0);
        p = (const char *)p + sent;
        n -= (size_t)sent;
    }
}

/* Closes so that the server meets an error (RST). */
static inline void peer_reset(int fd)
{
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
}

static inline void peer_say(int fd, const char *text)
{
    peer_send(fd, text, strlen(text));
}

/* Everything until the server closes; a reset counts as the end, and is told. */
static inline bool peer_read_all(int fd, struct buf *out)
{
    for (;;) {
        char *at = buf_extend(out, 65536);
        ssize_t n = recv(fd, at, 65536, 0);
        out->n -= 65536 - (size_t)(n > 0 ? n : 0);
        if (n == 0)
            return true;
        if (n < 0) {
            assert(errno == ECONNRESET);
            return false;
        }
    }
}

static inline bool peer_is_silent(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

/* One answer with a Content-Length (or none), byte by byte up to its end. Its head is terminated.
 */
struct peer_answer {
    int status;
    struct buf head, body;
};

static inline void peer_answer_fini(struct peer_answer *answer)
{
    buf_fini(&answer->head);
    buf_fini(&answer->body);
}

static inline void peer_read_exactly(int fd, struct buf *out, size_t n)
{
    while (n) {
        char *at = buf_extend(out, n);
        ssize_t got = recv(fd, at, n, 0);
        assert(got > 0);
        out->n -= n - (size_t)got;
        n -= (size_t)got;
    }
}

static inline void peer_read_answer(int fd, struct peer_answer *answer, bool head_only)
{
    buf_clear(&answer->head);
    buf_clear(&answer->body);
    do
        peer_read_exactly(fd, &answer->head, 1);
    while (answer->head.n < 4 || memcmp(answer->head.p + answer->head.n - 4, "\r\n\r\n", 4) != 0);
    const char *head = buf_str(&answer->head);
    int rc = sscanf(head, "HTTP/1.1 %d ", &answer->status);
    assert(rc == 1);
    const char *length = strstr(head, "\r\nContent-Length: ");
    if (length && !head_only)
        peer_read_exactly(fd, &answer->body, strtoull(length + 18, NULL, 10));
}

static inline bool peer_has(const struct peer_answer *answer, const char *text)
{
    return memmem(answer->head.p, answer->head.n, text, strlen(text)) != NULL;
}

/* The statuses in what was read until the end, as "200 400". */
static inline const char *peer_statuses(const struct buf *all)
{
    static char text[4096];
    size_t n = 0;
    text[0] = 0;
    for (size_t i = 0; i + 12 <= all->n && n < sizeof text - 8; i++) {
        if (memcmp(all->p + i, "HTTP/1.1 ", 9) == 0)
            n +=
                (size_t)snprintf(text + n, sizeof text - n, "%s%.3s", n ? " " : "", all->p + i + 9);
    }
    return text;
}

/* Sends text, reads until the end: the statuses. `all` may be NULL. */
static inline const char *peer_exchange(const void *p, size_t n, struct buf *all)
{
    struct buf mine = {0};
    struct buf *out = all ? all : &mine;
    buf_clear(out);
    int fd = peer_connect();
    peer_send(fd, p, n);
    peer_read_all(fd, out);
    close(fd);
    const char *statuses = peer_statuses(out);
    buf_fini(&mine);
    return statuses;
}

#endif
