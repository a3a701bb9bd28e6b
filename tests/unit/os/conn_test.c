/* conn_test.c: connections over a transport that is as awkward as TLS may be: it shakes hands
 * first, holds input back, and at times must write before it reads. Blocks, deadlines and closing
 * in every callback. The HTTP server's tests are the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/conn.h"
#include "weir/err.h"

#define MASK 0x5a /* what goes over the wire is disguised */

static struct loop *loop;
static struct conn_pool pool;

/* ---- the transport ---- */

struct awkward {
    unsigned steps; /* of the handshake, a byte each way */
    char held[64];  /* taken from the socket */
    size_t at, n;
    unsigned reads;
    bool *freed;
};

static ssize_t awkward_read(struct conn *conn, void *p, size_t n)
{
    struct awkward *it = conn->transport_state;
    conn->want = 0;
    if (++it->reads % 5 == 0) { /* first I must write */
        conn->want = EPOLLOUT;
        return WEIR_AGAIN;
    }
    if (it->at == it->n) {
        ssize_t got = recv(conn->io.fd, it->held, sizeof it->held, 0);
        if (got <= 0)
            return got == 0 ? 0 : WEIR_AGAIN;
        it->at = 0;
        it->n = (size_t)got;
    }
    size_t give = it->n - it->at < 7 ? it->n - it->at : 7;
    give = give < n ? give : n;
    for (size_t i = 0; i < give; i++)
        ((char *)p)[i] = it->held[it->at + i] ^ MASK;
    it->at += give;
    return (ssize_t)give;
}

static ssize_t awkward_write(struct conn *conn, const void *p, size_t n)
{
    char disguised[100];
    n = n < sizeof disguised ? n : sizeof disguised;
    for (size_t i = 0; i < n; i++)
        disguised[i] = ((const char *)p)[i] ^ MASK;
    ssize_t sent = send(conn->io.fd, disguised, n, MSG_NOSIGNAL);
    return sent >= 0 ? sent : WEIR_AGAIN;
}

static int awkward_handshake(struct conn *conn)
{
    struct awkward *it = conn->transport_state;
    char c;
    if (recv(conn->io.fd, &c, 1, 0) != 1)
        return WEIR_AGAIN;
    if (c != 'h')
        return WEIR_NET;
    assert_int_equal(send(conn->io.fd, "H", 1, MSG_NOSIGNAL), 1);
    return --it->steps ? WEIR_AGAIN : 0;
}

static void awkward_shutdown(struct conn *conn)
{
    shutdown(conn->io.fd, SHUT_WR);
}

static bool awkward_buffered(const struct conn *conn)
{
    const struct awkward *it = conn->transport_state;
    return it->at < it->n;
}

static void awkward_fini(struct conn *conn)
{
    struct awkward *it = conn->transport_state;
    *it->freed = true;
    free(it);
}

static const struct conn_transport awkward = {
    .name = "awkward",
    .read = awkward_read,
    .write = awkward_write,
    .handshake = awkward_handshake,
    .shutdown = awkward_shutdown,
    .buffered = awkward_buffered,
    .fini = awkward_fini,
};

/* ---- an echo ---- */

struct echo {
    struct conn conn; /* first */
    bool *destroyed;
    bool at_end; /* ends when the peer does */
    void (*at_readable)(struct conn *);
};

static void echo_readable(struct conn *conn)
{
    struct echo *echo = (struct echo *)conn;
    if (echo->at_readable) {
        echo->at_readable(conn);
        return;
    }
    ssize_t n = conn_read(conn);
    if (n > 0) {
        buf_put(conn_out(conn), conn_input(conn), conn_input_bytes(conn));
        conn_consume(conn, conn_input_bytes(conn));
    } else if (n == 0) {
        echo->at_end = true;
        conn_touch(conn);
    }
}

static void echo_flushed(struct conn *conn)
{
    if (((struct echo *)conn)->at_end && !conn_unsent(conn))
        conn_close(conn);
}

static void echo_close(struct conn *conn)
{
    conn_close(conn);
    conn_close(conn); /* twice is fine */
}

static void echo_destroy(struct conn *conn)
{
    bool *destroyed = ((struct echo *)conn)->destroyed;
    free(conn);
    *destroyed = true;
    loop_stop(loop);
}

static const struct conn_kind echo_kind = {
    .readable = echo_readable,
    .flushed = echo_flushed,
    .expired = echo_close,
    .broken = echo_close,
    .destroy = echo_destroy,
};

static bool destroyed, freed;

static struct echo *open_echo(int fd, const struct conn_transport *transport)
{
    struct echo *echo = calloc(1, sizeof *echo);
    struct awkward *it = NULL;
    destroyed = freed = false;
    echo->destroyed = &destroyed;
    if (transport == &awkward) {
        it = calloc(1, sizeof *it);
        it->steps = 3;
        it->freed = &freed;
    }
    assert_int_equal(conn_open(&echo->conn, &pool, fd, &echo_kind, transport, it), 0);
    return echo;
}

static void make_pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
}

static int setup(void **state)
{
    (void)state;
    if (loop_create(&loop))
        return -1;
    conn_pool_init(&pool, loop, 4096, 64);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    conn_pool_fini(&pool);
    loop_destroy(loop);
    return 0;
}

/* ---- tests ---- */

#define TALK_BYTES 100000

static void *talk(void *argument)
{
    int fd = *(int *)argument;
    char c, out[999], in[999];
    for (int step = 0; step < 3; step++) {
        assert(send(fd, "h", 1, MSG_NOSIGNAL) == 1);
        assert(recv(fd, &c, 1, 0) == 1 && c == 'H');
    }
    for (size_t at = 0; at < TALK_BYTES;) {
        size_t n = TALK_BYTES - at < sizeof out ? TALK_BYTES - at : 1 + at % sizeof out;
        for (size_t i = 0; i < n; i++)
            out[i] = (char)((at + i) % 251) ^ MASK;
        assert(send(fd, out, n, MSG_NOSIGNAL) == (ssize_t)n);
        assert(recv(fd, in, n, MSG_WAITALL) == (ssize_t)n);
        assert(memcmp(in, out, n) == 0);
        at += n;
    }
    shutdown(fd, SHUT_WR);
    assert(recv(fd, &c, 1, 0) == 0);
    return NULL;
}

static void test_an_awkward_transport(void **state)
{
    (void)state;
    int fds[2];
    pthread_t thread;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    struct echo *echo = open_echo(fds[0], &awkward);
    assert_true(echo->conn.handshaking);
    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0); /* ours alone */
    pthread_create(&thread, NULL, talk, &fds[1]);
    loop_run(loop);
    pthread_join(thread, NULL);
    close(fds[1]);
    assert_true(destroyed && freed);
    assert_int_equal(pool.bytes_in, TALK_BYTES);
    assert_int_equal(pool.bytes_out, TALK_BYTES);
    assert_int_equal(pool.n_blocks, 1);
}

static void test_a_failed_handshake(void **state)
{
    (void)state;
    int fds[2];
    make_pair(fds);
    struct echo *echo = open_echo(fds[0], &awkward);
    buf_put_str(conn_out(&echo->conn), "never sent");
    assert_int_equal(send(fds[1], "x", 1, 0), 1);
    loop_run(loop);
    char c;
    assert_int_equal(recv(fds[1], &c, 1, 0), 0);
    close(fds[1]);
    assert_true(destroyed && freed);
}

/* Bytes that somebody points at stay; reading goes on behind them, then elsewhere. */
static struct conn_block *kept[64];
static const char *kept_at[64];
static unsigned n_kept;

static void keep_hundred_bytes(struct conn *conn)
{
    ssize_t n = conn_read(conn);
    if (n == 0) {
        conn_close(conn);
        return;
    }
    while (conn_input_bytes(conn) >= 100) {
        kept[n_kept] = conn_block_ref(conn->block);
        kept_at[n_kept++] = conn_input(conn);
        conn_consume(conn, 100);
    }
}

static void test_blocks_stay_while_they_are_held(void **state)
{
    (void)state;
    int fds[2];
    char piece[64];
    make_pair(fds);
    n_kept = 0;
    struct echo *echo = open_echo(fds[0], &conn_plain);
    echo->at_readable = keep_hundred_bytes;
    for (unsigned i = 0; i < 100; i++) {
        memset(piece, 0, sizeof piece);
        for (unsigned k = 0; k < sizeof piece; k++)
            piece[k] = (char)((i * sizeof piece + k) / 100);
        assert_int_equal(send(fds[1], piece, sizeof piece, 0), sizeof piece);
        echo->conn.kind->readable(&echo->conn); /* one read for each, whatever epoll would do */
    }
    shutdown(fds[1], SHUT_WR);
    loop_run(loop);
    assert_true(destroyed);
    assert_int_equal(n_kept, 64);
    for (unsigned i = 0; i < n_kept; i++) {
        for (unsigned k = 0; k < 100; k++)
            assert_int_equal(kept_at[i][k], (char)i);
    }
    for (unsigned i = 0; i < n_kept; i++)
        conn_block_unref(&pool, kept[i]);
    assert_in_range(pool.n_blocks, 2, 4);
    close(fds[1]);
}

static void later(struct loop_timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

/* Put off, a deadline does not fire; moved nearer, it does. */
static void test_deadlines_are_lazy(void **state)
{
    (void)state;
    int fds[2];
    struct loop_timer timer = {.fire = later};
    make_pair(fds);
    struct echo *echo = open_echo(fds[0], &conn_plain);
    uint64_t now = clock_mono_ns(), second = 1000000000;
    conn_deadline(&echo->conn, now + second / 100);
    conn_deadline(&echo->conn, now + 1000 * second);
    assert_true(echo->conn.timer.deadline_ns == now + second / 100); /* no heap work */
    loop_timer_set(loop, &timer, now + second / 25);
    loop_run(loop);
    assert_true(!destroyed && echo->conn.timer.deadline_ns == now + 1000 * second);
    conn_deadline(&echo->conn, now + second / 20);
    loop_run(loop);
    assert_true(destroyed);
    assert_true(clock_mono_ns() >= now + second / 20);
    close(fds[1]);
}

static void close_and_touch(struct conn *conn)
{
    conn_touch(conn);
    conn_close(conn);
    conn_touch(conn);
}

static void test_closing_in_a_callback(void **state)
{
    (void)state;
    int fds[2];
    make_pair(fds);
    struct echo *echo = open_echo(fds[0], &conn_plain);
    echo->at_readable = close_and_touch;
    conn_ref(&echo->conn); /* somebody still has it */
    assert_int_equal(send(fds[1], "x", 1, 0), 1);
    struct loop_timer timer = {.fire = later};
    loop_timer_set(loop, &timer, clock_mono_ns() + 10000000);
    loop_run(loop);
    assert_true(!destroyed && !echo->conn.open);
    conn_unref(&echo->conn);
    assert_false(destroyed); /* at the end of a turn */
    loop_stop(loop);
    loop_run(loop);
    assert_true(destroyed);
    close(fds[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_awkward_transport),
        TEST(test_a_failed_handshake),
        TEST(test_blocks_stay_while_they_are_held),
        TEST(test_deadlines_are_lazy),
        TEST(test_closing_in_a_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
