/* server_limits_test.c: limits, deadlines, peers that go away or do not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <sys/resource.h>

#include "peer.h"

static int setup(void **state)
{
    (void)state;
    peer_configure();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop();
    return 0;
}

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: x\r\n"

/* ---- sizes ---- */

static void test_heads_beyond_the_limits(void **state)
{
    (void)state;
    peer_start();
    struct buf in = {0};
    buf_put_str(&in, "GET /");
    for (unsigned i = 0; i < 20000; i++)
        buf_put_char(&in, 'a');
    assert_string_equal(peer_exchange(in.p, in.n, NULL), "431");
    buf_clear(&in);
    buf_put_str(&in, POST("/echo"));
    for (unsigned i = 0; i < 100; i++)
        buf_put_str(&in, "A: b\r\n");
    buf_put_str(&in, "\r\n");
    assert_string_equal(peer_exchange(in.p, in.n, NULL), "431");
    /* One whose head fills the limit is served. */
    buf_clear(&in);
    buf_put_str(&in, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: ");
    while (in.n < 16384 - 4)
        buf_put_char(&in, 'a');
    buf_put_str(&in, "\r\n\r\n");
    assert_string_equal(peer_exchange(in.p, in.n, NULL), "200");
    buf_fini(&in);
}

static void test_bodies_beyond_the_limit(void **state)
{
    (void)state;
    peer.config.limits.body_bytes = 1000;
    peer_start();
    static const char exact[] = POST("/echo") "Connection: close\r\nContent-Length: 1000\r\n\r\n";
    static const char over[] = POST("/echo") "Content-Length: 1001\r\n\r\n";
    static const char chunked[] = POST("/echo") "Transfer-Encoding: chunked\r\n\r\n";
    struct buf in = {0};
    buf_put_str(&in, exact);
    for (unsigned i = 0; i < 1000; i++)
        buf_put_char(&in, 'x');
    assert_string_equal(peer_exchange(in.p, in.n, NULL), "200");
    assert_string_equal(peer_exchange(over, sizeof over - 1, NULL), "413");
    buf_clear(&in);
    buf_put_str(&in, chunked);
    for (unsigned i = 0; i < 101; i++)
        buf_put_str(&in, "a\r\n0123456789\r\n");
    assert_string_equal(peer_exchange(in.p, in.n, NULL), "413");
    assert_int_equal(atomic_load(&peer.handled), 1);
    buf_fini(&in);
}

/* A client that sends all of a refused body before it reads must still get the answer. */
static void test_a_refused_body_is_drained(void **state)
{
    (void)state;
    peer.config.limits.body_bytes = 1000;
    peer_start();
    struct buf all = {0};
    size_t n = 8 << 20;
    char *body = mem_zalloc(n);
    int fd = peer_connect();
    peer_say(fd, POST("/echo") "Content-Length: 8388608\r\n\r\n");
    peer_send(fd, body, n);
    assert_true(peer_read_all(fd, &all)); /* not reset */
    assert_string_equal(peer_statuses(&all), "413");
    close(fd);
    mem_free(body);
    buf_fini(&all);
}

static void test_memory_for_bodies_is_bounded(void **state)
{
    (void)state;
    peer.config.limits.body_bytes = 1 << 20;
    peer.config.limits.body_memory = (2 << 20) + 1000;
    peer_start();
    char *body = mem_zalloc(1 << 20);
    struct buf all = {0};
    int fds[3];
    /* Promising costs nothing: only what has come is held. */
    for (int i = 0; i < 3; i++) {
        fds[i] = peer_connect();
        peer_say(fds[i], POST("/held") "Connection: close\r\nContent-Length: 1048576\r\n\r\n");
    }
    peer_send(fds[0], body, 900000);
    peer_send(fds[1], body, 900000);
    PEER_WAIT(PEER_COUNTER(bytes_in_total) > 1800000);
    peer_send(fds[2], body, 900000);
    assert_true(peer_read_all(fds[2], &all));
    assert_string_equal(peer_statuses(&all), "503");
    assert_non_null(strstr(buf_str(&all), "\r\nRetry-After: "));
    for (int i = 0; i < 2; i++) {
        peer_send(fds[i], body, (1 << 20) - 900000);
        PEER_WAIT(peer_held() == 1);
        peer_answer_held(false);
        buf_clear(&all);
        assert_true(peer_read_all(fds[i], &all));
        assert_string_equal(peer_statuses(&all), "200");
    }
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    mem_free(body);
    buf_fini(&all);
}

/* Bodies that were answered, and those whose clients left, have given theirs back. */
static void test_memory_for_bodies_comes_back(void **state)
{
    (void)state;
    peer.config.limits.body_bytes = 1 << 20;
    peer.config.limits.body_memory = (2 << 20) + 1000;
    peer_start();
    char *body = mem_zalloc(1 << 20);
    struct buf all = {0};
    for (int i = 0; i < 12; i++) {
        int fd = peer_connect();
        peer_say(fd, POST("/empty") "Connection: close\r\nContent-Length: 1048576\r\n\r\n");
        if (i % 3 == 2) {
            uint64_t before = PEER_COUNTER(bytes_in_total);
            peer_send(fd, body, 900000);
            PEER_WAIT(PEER_COUNTER(bytes_in_total) - before > 890000);
        } else {
            peer_send(fd, body, 1 << 20);
            buf_clear(&all);
            assert_true(peer_read_all(fd, &all));
            assert_int_equal(peer_statuses(&all)[0], '2');
        }
        close(fd);
        PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    }
    mem_free(body);
    buf_fini(&all);
}

/* Answers that wait behind one that is slow hold memory: no more requests are taken meanwhile. */
static void test_answers_that_are_held_pause_reading(void **state)
{
    (void)state;
    peer_start();
    struct peer_answer answer = {0};
    struct buf in = {0};
    const unsigned big = 60, fits = 3; /* of 100,000 bytes each, in 256 KiB */
    buf_put_str(&in, GET("/held"));
    for (unsigned i = 0; i < big; i++)
        buf_put_str(&in, GET("/big"));
    int fd = peer_connect(), other = peer_connect();
    peer_send(fd, in.p, in.n);
    PEER_WAIT(atomic_load(&peer.handled) >= 1 + fits);
    peer_say(other, GET("/echo")); /* turns of the loop have passed with its answer */
    peer_read_answer(other, &answer, false);
    assert_int_equal(atomic_load(&peer.handled), 1 + fits + 1);
    PEER_WAIT(http_server_unsent(peer.server) == 1);
    peer_answer_held(false);
    for (unsigned i = 0; i < 1 + big; i++)
        peer_read_answer(fd, &answer, false);
    PEER_WAIT(http_server_unsent(peer.server) == 0);
    close(fd);
    close(other);
    buf_fini(&in);
    peer_answer_fini(&answer);
}

/* Over the bound no body is taken, because it would be answered; what has none is. */
static void test_memory_for_answers_is_bounded(void **state)
{
    (void)state;
    peer.config.limits.body_bytes = peer.config.limits.body_memory = 150000;
    peer_start();
    struct peer_answer answer = {0};
    struct buf all = {0};
    for (int round = 0; round < 3; round++) {
        int fd = peer_connect(), other = peer_connect();
        peer_say(fd, GET("/held") GET("/big") GET("/big"));
        PEER_WAIT(atomic_load(&peer.handled) >= 3);
        peer_say(other, GET("/echo"));
        peer_read_answer(other, &answer, false);
        peer_say(other, POST("/echo") "Content-Length: 1\r\n\r\nx");
        buf_clear(&all);
        assert_true(peer_read_all(other, &all));
        assert_string_equal(peer_statuses(&all), "503");
        assert_non_null(strstr(buf_str(&all), "\r\nRetry-After: "));
        assert_true(http_server_answers_full(peer.server));
        close(other);
        if (round == 1)
            peer_reset(fd); /* to nobody: the memory comes back all the same */
        PEER_WAIT(round != 1 || PEER_COUNTER(connections_open) == 0);
        peer_answer_held(false);
        for (int i = 0; i < 3 && round != 1; i++)
            peer_read_answer(fd, &answer, false);
        PEER_WAIT(http_server_unsent(peer.server) == 0);
        assert_false(http_server_answers_full(peer.server));
        other = peer_connect();
        peer_say(other, POST("/echo") "Content-Length: 1\r\n\r\nx");
        peer_read_answer(other, &answer, false);
        assert_int_equal(answer.status, 200);
        close(other);
        if (round != 1)
            close(fd);
        atomic_store(&peer.handled, 0);
    }
    buf_fini(&all);
    peer_answer_fini(&answer);
}

/* Reading pauses at the limit of unanswered requests, and goes on. */
static void test_pipelining_pauses(void **state)
{
    (void)state;
    peer.config.limits.pipelined = 4;
    peer_start();
    struct peer_answer answer = {0};
    struct buf in = {0};
    for (unsigned i = 0; i < 50; i++)
        buf_put_str(&in, GET("/held"));
    int fd = peer_connect();
    peer_send(fd, in.p, in.n);
    for (unsigned answered = 0; answered < 50;) {
        PEER_WAIT(peer_held() == (50 - answered < 4 ? 50 - answered : 4));
        unsigned n = peer_held();
        peer_answer_held(answered % 8 == 0);
        for (unsigned i = 0; i < n; i++, answered++)
            peer_read_answer(fd, &answer, false);
    }
    assert_int_equal(atomic_load(&peer.most_unanswered), 4);
    close(fd);
    buf_fini(&in);
    peer_answer_fini(&answer);
}

/* Who asks for much and reads nothing is not read from, and after a while cut off. */
static void test_a_peer_that_does_not_read(void **state)
{
    (void)state;
    peer.config.limits.write_ms = 300;
    peer_start();
    struct peer_answer answer = {0};
    struct timeval soon = {.tv_usec = 50000};
    int fd = peer_connect(), other = peer_connect(), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    struct buf in = {0};
    for (unsigned i = 0; i < 500; i++)
        buf_put_str(&in, GET("/big"));
    unsigned sent = 0;
    while (sent < 10000 && send(fd, in.p, in.n, MSG_NOSIGNAL) > 0)
        sent++;
    assert_in_range(sent, 0, 9999);
    peer_say(other, GET("/echo"));
    peer_read_answer(other, &answer, false);
    assert_int_equal(answer.status, 200);
    /* 100,000 bytes an answer: what was taken on is what fits into buffers, not all 50 MB. */
    assert_in_range(atomic_load(&peer.handled), 2, 150);
    PEER_WAIT(PEER_COUNTER(timeouts_total) == 1 && PEER_COUNTER(connections_open) == 1);
    close(fd);
    close(other);
    buf_fini(&in);
    peer_answer_fini(&answer);
}

/* ---- deadlines ---- */

static void test_deadlines(void **state)
{
    (void)state;
    peer.config.limits.head_ms = 60;
    peer.config.limits.body_ms = 80;
    peer.config.limits.idle_ms = 100;
    peer_start();
    assert_string_equal(peer_exchange("GET /ec", 7, NULL), "408");
    static const char body[] = GET("/echo") POST("/echo") "Content-Length: 9\r\n\r\nabc";
    assert_string_equal(peer_exchange(body, sizeof body - 1, NULL), "200 408");
    static const char chunks[] = POST("/echo") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
    assert_string_equal(peer_exchange(chunks, sizeof chunks - 1, NULL), "408");
    assert_int_equal(PEER_COUNTER(timeouts_total), 3);
    /* Idle: closed without a word, at the start, after an answer, and after an empty line. */
    assert_string_equal(peer_exchange("", 0, NULL), "");
    assert_string_equal(peer_exchange("\r\n", 2, NULL), "");
    assert_string_equal(peer_exchange(GET("/echo"), sizeof GET("/echo") - 1, NULL), "200");
    assert_int_equal(PEER_COUNTER(timeouts_total), 3);
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
}

/* A byte now and then does not put the deadline of a head, or of a body, off. */
static void drip(const char *begin)
{
    struct buf all = {0};
    int fd = peer_connect();
    struct pollfd wait = {fd, POLLIN, 0};
    unsigned sent = 0;
    peer_say(fd, begin);
    while (poll(&wait, 1, 20) == 0) {
        peer_say(fd, "x");
        assert_true(++sent < 1000);
    }
    peer_read_all(fd, &all);
    assert_string_equal(peer_statuses(&all), "408");
    close(fd);
    buf_fini(&all);
}

static void test_a_slow_head_or_body_is_cut_off_all_the_same(void **state)
{
    (void)state;
    peer.config.limits.head_ms = 200;
    peer.config.limits.body_ms = 200;
    peer_start();
    drip("x");
    drip(POST("/echo") "Content-Length: 100000\r\n\r\n");
}

/* While an answer is due there is no deadline: the handler decides how long it takes. */
static void test_waiting_for_an_answer_is_not_idle(void **state)
{
    (void)state;
    peer.config.limits.idle_ms = 30;
    peer.config.limits.head_ms = 30;
    peer.config.limits.body_ms = 40;
    peer_start();
    struct peer_answer answer = {0};
    int fd = peer_connect(), idle = peer_connect();
    /* Nor does the time of a body run that we have not asked for yet. */
    peer_say(fd, GET("/held") POST("/echo") "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    PEER_WAIT(peer_held() == 1);
    for (int i = 0; i < 3; i++) { /* others come and are cut off meanwhile */
        struct buf all = {0};
        peer_read_all(idle, &all);
        close(idle);
        idle = peer_connect();
        buf_fini(&all);
    }
    peer_answer_held(false);
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 200);
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 100);
    peer_read_answer(fd, &answer, false); /* and then it does */
    assert_int_equal(answer.status, 408);
    close(fd);
    close(idle);
    peer_answer_fini(&answer);
}

/* ---- connections ---- */

static void test_surplus_connections_are_refused(void **state)
{
    (void)state;
    peer.config.limits.connections = 3;
    peer_start();
    struct peer_answer answer = {0};
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = peer_connect();
        peer_say(fds[i], GET("/echo"));
        peer_read_answer(fds[i], &answer, false);
    }
    for (int i = 0; i < 5; i++)
        assert_string_equal(peer_exchange(GET("/echo"), sizeof GET("/echo") - 1, NULL), "503");
    assert_int_equal(PEER_COUNTER(refused_connections_total), 5);
    assert_int_equal(PEER_COUNTER(connections_open), 3);
    close(fds[0]);
    PEER_WAIT(PEER_COUNTER(connections_open) == 2);
    fds[0] = peer_connect();
    peer_say(fds[0], GET("/echo"));
    peer_read_answer(fds[0], &answer, false);
    assert_int_equal(answer.status, 200);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    peer_answer_fini(&answer);
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void test_clients_that_leave_in_mid_body(void **state)
{
    (void)state;
    peer_start();
    unsigned base = open_files();
    for (int i = 0; i < 500; i++) {
        int fd = peer_connect();
        peer_say(fd, i % 2 ? POST("/echo") "Content-Length: 100000\r\n\r\nabc"
                           : POST("/echo") "Transfer-Encoding: chunked\r\n\r\n4\r\nab");
        close(fd);
    }
    PEER_WAIT(open_files() <= base);
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    assert_int_equal(atomic_load(&peer.handled), 0);
}

/* Descriptors run out: what is open is served, what waits is accepted later. */
static void test_no_descriptors_left(void **state)
{
    (void)state;
    peer_start();
    struct peer_answer answer = {0};
    struct rlimit before, tight;
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)peer.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = peer_connect(), waiting[20], highest = 0;
    peer_say(fd, GET("/echo"));
    peer_read_answer(fd, &answer, false);
    for (int i = 0; i < 20; i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        highest = waiting[i] > highest ? waiting[i] : highest;
    }
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    tight.rlim_cur = (rlim_t)highest + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(connect(waiting[i], (struct sockaddr *)&to, sizeof to), 0);
    for (int i = 0; i < 20; i++) {
        peer_say(fd, GET("/echo"));
        peer_read_answer(fd, &answer, false);
        assert_int_equal(answer.status, 200);
    }
    assert_in_range(PEER_COUNTER(connections_total), 1, 20);
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < 20; i++) {
        peer_say(waiting[i], GET("/echo"));
        peer_read_answer(waiting[i], &answer, false);
        assert_int_equal(answer.status, 200);
        close(waiting[i]);
    }
    close(fd);
    peer_answer_fini(&answer);
}

/* ---- peers that go away ---- */

static void test_half_closed_peers_get_their_answers(void **state)
{
    (void)state;
    peer_start();
    struct buf all = {0};
    int fd = peer_connect();
    peer_say(fd, GET("/held") GET("/echo") GET("/held") "GET /cut o");
    shutdown(fd, SHUT_WR);
    PEER_WAIT(peer_held() == 2);
    peer_answer_held(true);
    assert_true(peer_read_all(fd, &all));
    assert_string_equal(peer_statuses(&all), "200 200 200");
    close(fd);
    buf_fini(&all);
}

static void test_who_waits_is_told_that_the_peer_is_gone(void **state)
{
    (void)state;
    peer_start();
    int fd = peer_connect();
    peer_say(fd, GET("/held") GET("/echo") GET("/held"));
    PEER_WAIT(peer_held() == 2);
    peer_reset(fd);
    PEER_WAIT(atomic_load(&peer.gone) == 2);
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    assert_int_equal(http_server_unanswered(peer.server), 2);
    pthread_mutex_lock(&peer.mutex);
    assert_true(peer.held[0]->client_gone && peer.held[1]->client_gone);
    pthread_mutex_unlock(&peer.mutex);
    peer_answer_held(true); /* to nobody */
    assert_int_equal(http_server_unanswered(peer.server), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_heads_beyond_the_limits),
        TEST(test_bodies_beyond_the_limit),
        TEST(test_a_refused_body_is_drained),
        TEST(test_memory_for_bodies_is_bounded),
        TEST(test_memory_for_bodies_comes_back),
        TEST(test_answers_that_are_held_pause_reading),
        TEST(test_memory_for_answers_is_bounded),
        TEST(test_pipelining_pauses),
        TEST(test_a_peer_that_does_not_read),
        TEST(test_deadlines),
        TEST(test_a_slow_head_or_body_is_cut_off_all_the_same),
        TEST(test_waiting_for_an_answer_is_not_idle),
        TEST(test_surplus_connections_are_refused),
        TEST(test_clients_that_leave_in_mid_body),
        TEST(test_no_descriptors_left),
        TEST(test_half_closed_peers_get_their_answers),
        TEST(test_who_waits_is_told_that_the_peer_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
