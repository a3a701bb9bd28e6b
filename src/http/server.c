/* server.c: starting and stopping the server, listening and accepting (see server.h and
 * server_conn.h).
 *
 * Stopping: http_server_stop_accepting posts a message to each loop, which takes what the listeners
 * still hold, closes them, reads once from every idle connection (its request may be on the way)
 * and closes those that stay idle. http_server_destroy posts another, which closes everything. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/mem.h"
#include "http/server_conn.h"
#include "os/listen.h"
#include "os/thread.h"

#define ACCEPTS_PER_TURN 64
#define ACCEPT_AGAIN_MS  100 /* after descriptors or memory ran out */
#define SURPLUS          64  /* refused with an answer at the same time, per loop; others are cut */

void http_limits_default(struct http_limits *limits)
{
    *limits = (struct http_limits){
        .head_bytes = 16384,
        .headers = 100,
        .body_bytes = 16 << 20,
        .body_memory = 128 << 20,
        .connections = 20000,
        .pipelined = 64,
        .head_ms = 10000,
        .body_ms = 30000,
        .idle_ms = 75000,
        .write_ms = 30000,
    };
}

/* ---- accepting ---- */

static void accept_one(struct server_listener *listener, int fd)
{
    struct server_loop *loop = listener->loop;
    struct http_server *server = loop->server;
    unsigned open = atomic_fetch_add_explicit(&server->connections, 1, memory_order_relaxed);
    if (open < server->limits.connections) {
        server_conn_open(loop, fd, listener->local, false);
        return;
    }
    atomic_fetch_sub_explicit(&server->connections, 1, memory_order_relaxed);
    if (loop->surplus < SURPLUS) {
        server_conn_open(loop, fd, listener->local, true);
    } else {
        server_count(&loop->counters.refused_connections_total, 1);
        close(fd);
    }
}

/* Accepts at most `most`. While descriptors are out, what is open goes on; new connections wait in
 * the kernel's queue. */
static void accept_some(struct server_listener *listener, unsigned most)
{
    struct server_loop *loop = listener->loop;
    while (most--) {
        int fd = accept4(listener->io.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            accept_one(listener, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            for (unsigned i = 0; i < SERVER_LISTENERS; i++) {
                if (loop->listeners[i].io.fd >= 0)
                    loop_modify(loop->loop, &loop->listeners[i].io, 0);
            }
            loop_timer_set(loop->loop, &loop->accept_again,
                           loop_now_ns(loop->loop) + ACCEPT_AGAIN_MS * 1000000ull);
            return;
        }
        if (errno == EAGAIN)
            return;
        /* Others concern the connection that was to be accepted (ECONNABORTED, EPROTO). */
    }
}

static void listener_ready(struct loop_fd *self, uint32_t events)
{
    (void)events;
    accept_some((struct server_listener *)self, ACCEPTS_PER_TURN);
}

static void accept_again(struct loop_timer *timer)
{
    struct server_loop *loop =
        (struct server_loop *)((char *)timer - offsetof(struct server_loop, accept_again));
    for (unsigned i = 0; i < SERVER_LISTENERS; i++) {
        if (loop->listeners[i].io.fd >= 0)
            loop_modify(loop->loop, &loop->listeners[i].io, EPOLLIN);
    }
}

static int add_listener(struct server_loop *loop, int fd, bool local)
{
    struct server_listener *listener = &loop->listeners[local];
    listener->io = (struct loop_fd){fd, EPOLLIN, listener_ready};
    listener->local = local;
    return loop_add(loop->loop, &listener->io);
}

static void close_listeners(struct server_loop *loop)
{
    loop_timer_clear(loop->loop, &loop->accept_again);
    for (unsigned i = 0; i < SERVER_LISTENERS; i++) {
        struct server_listener *listener = &loop->listeners[i];
        if (listener->io.fd < 0)
            continue;
        loop_remove(loop->loop, &listener->io);
        close(listener->io.fd);
        listener->io.fd = -1;
        if (listener->local)
            unlink(loop->server->unix_path);
    }
}

/* ---- a loop ---- */

static void *run(void *argument)
{
    struct server_loop *loop = argument;
    loop_run(loop->loop);
    return NULL;
}

static void count_bytes(struct loop_hook *hook)
{
    struct server_loop *loop =
        (struct server_loop *)((char *)hook - offsetof(struct server_loop, count));
    atomic_store_explicit(&loop->counters.bytes_in_total, loop->pool.bytes_in,
                          memory_order_relaxed);
    atomic_store_explicit(&loop->counters.bytes_out_total, loop->pool.bytes_out,
                          memory_order_relaxed);
}

static void stop_accepting(struct loop_message *message)
{
    struct server_loop *loop =
        (struct server_loop *)((char *)message - offsetof(struct server_loop, stop));
    /* The kernel resets what waits in a listener that is closed. */
    for (unsigned i = 0; i < SERVER_LISTENERS; i++) {
        if (loop->listeners[i].io.fd >= 0)
            accept_some(&loop->listeners[i], loop->server->limits.connections);
    }
    close_listeners(loop);
    for (struct server_conn *conn = loop->connections, *next; conn; conn = next) {
        next = conn->next;
        if (!server_conn_is_idle(conn))
            continue;
        conn->conn.kind->readable(&conn->conn);
        if (conn->conn.open && server_conn_is_idle(conn))
            server_conn_gone(conn);
    }
}

static void end(struct loop_message *message)
{
    struct server_loop *loop =
        (struct server_loop *)((char *)message - offsetof(struct server_loop, end));
    close_listeners(loop);
    while (loop->connections)
        server_conn_gone(loop->connections);
    loop_stop(loop->loop);
}

static int init_loop(struct http_server *server, unsigned index)
{
    struct server_loop *loop = &server->loops[index];
    loop->server = server;
    loop->index = index;
    loop->stop.run = stop_accepting;
    loop->end.run = end;
    loop->accept_again.fire = accept_again;
    for (unsigned i = 0; i < SERVER_LISTENERS; i++)
        loop->listeners[i] = (struct server_listener){.io.fd = -1, .loop = loop};
    int rc = loop_create(&loop->loop);
    if (rc)
        return rc;
    /* A whole head fits into a block, and so does a small body. */
    conn_pool_init(&loop->pool, loop->loop, server->limits.head_bytes + 4096, HTTP_BODY_PADDING);
    loop->headers = mem_alloc(server->limits.headers * sizeof *loop->headers);
    loop->count.run = count_bytes;
    loop_hook_add(loop->loop, &loop->count);
    return 0;
}

static void fini_loop(struct server_loop *loop)
{
    if (!loop->loop)
        return;
    close_listeners(loop);
    /* Requests that nobody answered hold connections that are long closed. */
    for (struct server_conn *conn = loop->gone, *next; conn; conn = next) {
        next = conn->next;
        for (struct server_request *request; (request = conn->first);) {
            conn->first = request->next;
            server_request_release(request);
        }
    }
    conn_pool_fini(&loop->pool);
    for (struct server_request *request; (request = loop->free_requests);) {
        loop->free_requests = request->next;
        server_request_free(request);
    }
    mem_free(loop->headers);
    loop_destroy(loop->loop);
}

/* ---- the server ---- */

static int check_config(const struct http_server_config *config, struct diag *diag)
{
    const struct http_limits *limits = &config->limits;
    if (config->loops < 1 || config->loops > 1024)
        return diag_set(diag, WEIR_INVALID, "a server needs 1 to 1024 loops, not %u",
                        config->loops);
    if (limits->head_bytes < 1024 || limits->head_bytes > 1 << 20)
        return diag_set(diag, WEIR_INVALID, "the limit of a head must be 1 KiB to 1 MiB");
    if (!limits->headers || !limits->connections || !limits->pipelined || !limits->head_ms ||
        !limits->body_ms || !limits->idle_ms || !limits->write_ms)
        return diag_set(diag, WEIR_INVALID, "no limit of the HTTP server may be 0");
    if (limits->body_bytes > (uint64_t)1 << 40)
        return diag_set(diag, WEIR_INVALID, "the limit of a body must be at most 1 TiB");
    return 0;
}

static int open_listeners(struct http_server *server, const struct http_server_config *config,
                          struct diag *diag)
{
    struct listen_address address;
    int unix_fd, rc;
    if (config->address) {
        int *fds = mem_alloc(server->n_loops * sizeof *fds);
        rc = listen_parse(config->address, &address, diag);
        if (!rc)
            rc = listen_tcp(&address, server->n_loops, fds, diag);
        for (unsigned i = 0; i < server->n_loops && rc == 0; i++) {
            rc = add_listener(&server->loops[i], fds[i], false);
            if (rc) {
                diag_set(diag, rc, "a listener cannot be watched: %s", weir_err_text(rc));
                for (unsigned left = i + 1; left < server->n_loops; left++)
                    close(fds[left]);
            }
        }
        mem_free(fds);
        if (rc)
            return rc;
        server->port = address.port;
    }
    if (config->unix_path) {
        server->unix_path = mem_strdup(config->unix_path);
        rc = listen_unix(config->unix_path, &unix_fd, diag);
        if (!rc)
            rc = add_listener(&server->loops[0], unix_fd, true);
        if (rc)
            return rc;
    }
    return 0;
}

int http_server_start(const struct http_server_config *config, struct http_server **out,
                      struct diag *diag)
{
    int rc = check_config(config, diag);
    if (rc)
        return rc;
    listen_raise_file_limit();
    struct http_server *server = mem_zalloc(sizeof *server);
    server->limits = config->limits;
    if (server->limits.body_memory < server->limits.body_bytes + HTTP_BODY_PADDING)
        server->limits.body_memory = server->limits.body_bytes + HTTP_BODY_PADDING;
    server->parse_limits = (struct parse_limits){config->limits.head_bytes, config->limits.headers};
    server->handle = config->handle;
    server->context = config->context;
    server->n_loops = config->loops;
    server->loops = mem_zalloc(config->loops * sizeof *server->loops);
    for (unsigned i = 0; i < config->loops; i++) {
        rc = init_loop(server, i);
        if (rc) {
            diag_set(diag, rc, "an event loop cannot be created: %s", weir_err_text(rc));
            goto fail;
        }
    }
    rc = open_listeners(server, config, diag);
    if (rc)
        goto fail;
    for (unsigned i = 0; i < config->loops; i++) {
        char name[16];
        snprintf(name, sizeof name, "http-%u", i);
        rc = thread_start(&server->loops[i].thread, name, 0, run, &server->loops[i]);
        if (rc) {
            diag_set(diag, rc, "a thread for HTTP cannot be started: %s", weir_err_text(rc));
            goto fail;
        }
        server->loops[i].started = true;
    }
    *out = server;
    return 0;
fail:
    http_server_destroy(server);
    return rc;
}

void http_server_destroy(struct http_server *server)
{
    if (!server)
        return;
    for (unsigned i = 0; i < server->n_loops; i++) {
        if (server->loops[i].started)
            loop_post(server->loops[i].loop, &server->loops[i].end);
    }
    for (unsigned i = 0; i < server->n_loops; i++) {
        if (server->loops[i].started)
            thread_join(server->loops[i].thread);
    }
    for (unsigned i = 0; i < server->n_loops; i++)
        fini_loop(&server->loops[i]);
    mem_free(server->unix_path);
    mem_free(server->loops);
    mem_free(server);
}

void http_server_stop_accepting(struct http_server *server)
{
    /* Relaxed: it is a hint for answers until each loop has run its message. */
    if (atomic_exchange_explicit(&server->stopping, true, memory_order_relaxed))
        return;
    for (unsigned i = 0; i < server->n_loops; i++)
        loop_post(server->loops[i].loop, &server->loops[i].stop);
}

unsigned http_server_port(const struct http_server *server)
{
    return server->port;
}

struct loop *http_server_loop(struct http_server *server, unsigned index)
{
    assert(index < server->n_loops);
    return server->loops[index].loop;
}

unsigned http_server_unanswered(const struct http_server *server)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < server->n_loops; i++)
        sum += atomic_load_explicit(&server->loops[i].unanswered, memory_order_acquire);
    return sum;
}

unsigned http_server_unsent(const struct http_server *server)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < server->n_loops; i++)
        sum += atomic_load_explicit(&server->loops[i].unsent, memory_order_acquire);
    return sum;
}

bool http_server_answers_full(const struct http_server *server)
{
    return atomic_load_explicit(&server->answer_memory, memory_order_relaxed) >
           server->limits.body_memory;
}

const struct http_counters *http_server_counters(const struct http_server *server)
{
    /* The sums are the server's only to be read; whoever asks brings them up to date. */
    struct http_counters *sum = &((struct http_server *)(uintptr_t)server)->sum;
    static const size_t fields[] = {
        offsetof(struct http_counters, connections_total),
        offsetof(struct http_counters, connections_open),
        offsetof(struct http_counters, requests_total),
        offsetof(struct http_counters, bad_requests_total),
        offsetof(struct http_counters, timeouts_total),
        offsetof(struct http_counters, refused_connections_total),
        offsetof(struct http_counters, bytes_in_total),
        offsetof(struct http_counters, bytes_out_total),
    };
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
        uint64_t total = 0;
        for (unsigned i = 0; i < server->n_loops; i++)
            total += atomic_load_explicit(
                (_Atomic uint64_t *)((char *)&server->loops[i].counters + fields[f]),
                memory_order_relaxed);
        atomic_store_explicit((_Atomic uint64_t *)((char *)sum + fields[f]), total,
                              memory_order_relaxed);
    }
    return sum;
}
