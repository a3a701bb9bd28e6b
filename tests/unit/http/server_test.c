/* server_test.c: requests and answers: keep-alive, pipelining, order, bodies, expectations, and
 * what is refused. Limits and endings are in server_limits_test.c, streams in stream_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../seeded.h"
#include "peer.h"

static int setup(void **state)
{
    (void)state;
    peer_configure();
    peer_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop();
    return 0;
}

static void assert_body(const struct peer_answer *answer, const char *wanted)
{
    if (answer->body.n != strlen(wanted) || memcmp(answer->body.p, wanted, answer->body.n) != 0)
        fail_msg("%.*s instead of %s", (int)answer->body.n, answer->body.p, wanted);
}

static void test_keep_alive(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    int fd = peer_connect();
    for (int i = 0; i < 3; i++) {
        peer_say(fd, "POST /echo?a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
        peer_read_answer(fd, &answer, false);
        assert_int_equal(answer.status, 200);
        assert_body(&answer, "POST /echo?a 5:hello");
        assert_true(peer_has(&answer, "\r\nDate: ") && peer_has(&answer, " GMT\r\n"));
        assert_true(peer_has(&answer, "\r\nContent-Type: text/plain\r\n"));
        assert_false(peer_has(&answer, "onnection:"));
    }
    close(fd);
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    assert_int_equal(PEER_COUNTER(connections_total), 1);
    assert_int_equal(PEER_COUNTER(requests_total), 3);
    assert_int_equal(PEER_COUNTER(bad_requests_total), 0);
    assert_true(PEER_COUNTER(bytes_in_total) > 100 && PEER_COUNTER(bytes_out_total) > 100);
    assert_int_equal(http_server_unanswered(peer.server), 0);
    peer_answer_fini(&answer);
}

static void test_versions_and_closing(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    int fd = peer_connect();
    peer_say(fd, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    peer_read_answer(fd, &answer, false);
    assert_true(peer_has(&answer, "\r\nConnection: keep-alive\r\n"));
    peer_say(fd, "GET /echo HTTP/1.0\r\n\r\n");
    peer_read_answer(fd, &answer, false);
    assert_true(peer_has(&answer, "\r\nConnection: close\r\n"));
    struct buf rest = {0};
    assert_true(peer_read_all(fd, &rest));
    assert_int_equal(rest.n, 0);
    close(fd);
    static const char twice[] = "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                                "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_string_equal(peer_exchange(twice, sizeof twice - 1, NULL), "200");
    peer_answer_fini(&answer);
    buf_fini(&rest);
}

static void test_answers_without_a_body(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    int fd = peer_connect();
    peer_say(fd, "HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\nGET /empty HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /same HTTP/1.1\r\nHost: x\r\n\r\nHEAD /none HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    peer_read_answer(fd, &answer, true);
    assert_true(answer.status == 200 && peer_has(&answer, "\r\nContent-Length: 13\r\n"));
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 204);
    assert_true(peer_has(&answer, "\r\nX-Extra: 1\r\n") && !peer_has(&answer, "Content-Length"));
    peer_read_answer(fd, &answer, false);
    assert_true(answer.status == 304 && !peer_has(&answer, "Content-Length"));
    peer_read_answer(fd, &answer, true);
    assert_int_equal(answer.status, 404);
    peer_read_answer(fd, &answer, false);
    assert_body(&answer, "GET /echo 0:");
    close(fd);
    peer_answer_fini(&answer);
}

/* ---- order ---- */

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    struct buf in = {0};
    struct peer_answer answer = {0};
    char wanted[64];
    for (unsigned i = 0; i < 1000; i++)
        buf_printf(&in, "POST /echo?%u HTTP/1.1\r\nHost: x\r\nContent-Length: %u\r\n\r\n%.*s", i,
                   i % 7, (int)(i % 7), "abcdefg");
    int fd = peer_connect();
    peer_send(fd, in.p, in.n);
    for (unsigned i = 0; i < 1000; i++) {
        peer_read_answer(fd, &answer, false);
        snprintf(wanted, sizeof wanted, "POST /echo?%u %u:%.*s", i, i % 7, (int)(i % 7), "abcdefg");
        assert_body(&answer, wanted);
    }
    close(fd);
    buf_fini(&in);
    peer_answer_fini(&answer);
}

/* Whatever the order in which they are answered, and whatever is answered at once. */
static void test_late_answers_leave_in_order(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    char wanted[64];
    int fd = peer_connect();
    for (int round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 9; i++) {
            char text[128];
            snprintf(text, sizeof text,
                     "POST %s?%u HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%u",
                     i % 3 == 1 ? "/echo" : "/held", i, i);
            peer_say(fd, text);
        }
        PEER_WAIT(peer_held() == 6);
        assert_true(peer_is_silent(fd));
        assert_int_equal(http_server_unanswered(peer.server), 6);
        peer_answer_held(round % 2);
        for (unsigned i = 0; i < 9; i++) {
            peer_read_answer(fd, &answer, false);
            snprintf(wanted, sizeof wanted, "POST %s?%u 1:%u", i % 3 == 1 ? "/echo" : "/held", i,
                     i);
            assert_body(&answer, wanted);
        }
    }
    close(fd);
    peer_answer_fini(&answer);
}

/* The second is read while the first waits; what each points at stays where it is. */
static void test_many_unanswered_requests_keep_their_bytes(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    struct buf body = {0};
    char head[128];
    int fd = peer_connect();
    for (unsigned i = 0; i < 40; i++) {
        buf_clear(&body);
        for (unsigned k = 0; k < 3000 + i * 100; k++)
            buf_put_char(&body, (char)('a' + (i + k) % 26));
        snprintf(head, sizeof head,
                 "PUT /held?%u HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", i, body.n);
        peer_say(fd, head);
        peer_send(fd, body.p, body.n);
    }
    PEER_WAIT(peer_held() == 40);
    peer_answer_held(true);
    for (unsigned i = 0; i < 40; i++) {
        buf_clear(&body);
        buf_printf(&body, "PUT /held?%u %u:", i, 3000 + i * 100);
        for (unsigned k = 0; k < 3000 + i * 100; k++)
            buf_put_char(&body, (char)('a' + (i + k) % 26));
        peer_read_answer(fd, &answer, false);
        assert_body(&answer, buf_str(&body));
    }
    close(fd);
    buf_fini(&body);
    peer_answer_fini(&answer);
}

/* ---- bodies ---- */

static void put_body(struct buf *in, const struct buf *body, bool chunked, struct seeded *random)
{
    if (!chunked) {
        buf_printf(in, "Content-Length: %zu\r\n\r\n", body->n);
        buf_put_slice(in, buf_slice(body));
        return;
    }
    buf_put_str(in, "Transfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < body->n;) {
        size_t n = 1 + (size_t)seeded_below(random, body->n > 5000 ? 9000 : 50);
        n = n > body->n - at ? body->n - at : n;
        buf_printf(in, "%zx\r\n", n);
        buf_put(in, body->p + at, n);
        buf_put_str(in, "\r\n");
        at += n;
    }
    buf_put_str(in, "0\r\nX-Trailer: dropped\r\n\r\n");
}

/* In the block, on its edge, in memory of their own; taken or not; sent in pieces of any size. */
static void test_bodies_of_all_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,     1,     170,   4096,  8191,  8192,   8193,   16319,
                                   16320, 16384, 20000, 20480, 65536, 100001, 1000003};
    struct seeded random = {seeded_choose()};
    struct buf body = {0}, in = {0}, wanted = {0};
    struct peer_answer answer = {0};
    int fd = peer_connect();
    for (unsigned round = 0; round < 4; round++) {
        const char *path = round & 1 ? "/take" : "/echo";
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            buf_clear(&body);
            buf_clear(&in);
            while (body.n < sizes[s])
                buf_put_char(&body, (char)('A' + seeded_below(&random, 50)));
            buf_printf(&in, "POST %s HTTP/1.1\r\nHost: x\r\n", path);
            put_body(&in, &body, round & 2, &random);
            for (size_t at = 0; at < in.n;) {
                size_t n = 1 + (size_t)seeded_below(&random, in.n);
                n = n > in.n - at ? in.n - at : n;
                peer_send(fd, in.p + at, n);
                at += n;
            }
            peer_read_answer(fd, &answer, false);
            buf_clear(&wanted);
            buf_printf(&wanted, "POST %s %zu:", path, body.n);
            buf_put_slice(&wanted, buf_slice(&body));
            assert_int_equal(answer.body.n, wanted.n);
            assert_memory_equal(answer.body.p, wanted.p, wanted.n);
        }
    }
    close(fd);
    buf_fini(&body);
    buf_fini(&in);
    buf_fini(&wanted);
    peer_answer_fini(&answer);
}

/* The same sequence, cut into two reads at every place, has the same answers. */
static void test_every_cut_has_the_same_answers(void **state)
{
    (void)state;
    static const char in[] =
        "\r\nPOST /echo?1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
        "POST /take?2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "5;a=b\r\nworld\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n"
        "GET http://x/echo?3 HTTP/1.1\r\nHost: x\r\n\r\n"
        "GET /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"
        "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    size_t n = sizeof in - 1, end = (size_t)(strstr(in, "\r\n\r\nxGET") - in) + 4;
    struct buf all = {0};
    for (size_t cut = 1; cut < n; cut++) {
        peer_settle();
        uint64_t before = PEER_COUNTER(bytes_in_total);
        int fd = peer_connect();
        buf_clear(&all);
        peer_send(fd, in, cut);
        if (cut <= end) /* later, the connection is already refused, and drained */
            PEER_WAIT(PEER_COUNTER(bytes_in_total) - before == cut);
        peer_send(fd, in + cut, n - cut);
        assert_true(peer_read_all(fd, &all));
        close(fd);
        assert_string_equal(peer_statuses(&all), "200 200 200 400");
        assert_non_null(memmem(all.p, all.n, "POST /echo?1 5:hello", 20));
        assert_non_null(memmem(all.p, all.n, "POST /take?2 6:world!", 21));
        assert_non_null(memmem(all.p, all.n, "GET http://x/echo?3 0:", 22));
    }
    assert_int_equal(atomic_load(&peer.handled), 3 * (n - 1));
    buf_fini(&all);
}

/* ---- expectations ---- */

static void test_expect_continue(void **state)
{
    (void)state;
    static const char head[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    struct peer_answer answer = {0};
    struct buf all = {0};
    int fd = peer_connect();
    peer_say(fd, head);
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 100);
    peer_say(fd, "hi");
    peer_read_answer(fd, &answer, false);
    assert_body(&answer, "POST /echo 2:hi");
    /* Not when the body is there already. */
    buf_put_str(&all, head);
    buf_put_str(&all, "hi");
    peer_send(fd, all.p, all.n);
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 200);
    /* Not before what was asked for earlier is answered. */
    peer_say(fd, "GET /held HTTP/1.1\r\nHost: x\r\n\r\n");
    peer_say(fd, head);
    PEER_WAIT(peer_held() == 1);
    assert_true(peer_is_silent(fd));
    peer_answer_held(false);
    peer_read_answer(fd, &answer, false);
    assert_body(&answer, "GET /held 0:");
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 100);
    peer_say(fd, "hi");
    peer_read_answer(fd, &answer, false);
    assert_body(&answer, "POST /echo 2:hi");
    /* Not for a body that will not be read. */
    static const char large[] = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                                "Content-Length: 99999999999\r\n\r\n";
    assert_string_equal(peer_exchange(large, sizeof large - 1, NULL), "413");
    static const char tea[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nContent-Length: 2\r\n\r\nhi";
    assert_string_equal(peer_exchange(tea, sizeof tea - 1, NULL), "417");
    close(fd);
    buf_fini(&all);
    peer_answer_fini(&answer);
}

/* ---- what is refused ---- */

static void test_a_refusal_is_a_problem_and_the_end(void **state)
{
    (void)state;
    static const char *const doubts[] = {
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nX: y\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n",
        "POST /echo HTTP/1.1\r\n\r\n",
    };
    static const char smuggled[] = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    struct buf in = {0}, all = {0};
    for (size_t i = 0; i < sizeof doubts / sizeof *doubts; i++) {
        buf_clear(&in);
        buf_printf(&in, "%s%s%s", smuggled, doubts[i], smuggled);
        assert_string_equal(peer_exchange(in.p, in.n, &all), "200 400");
        const char *text = buf_str(&all);
        assert_non_null(strstr(text, "\r\nContent-Type: application/problem+json\r\n"));
        assert_non_null(strstr(text, "\r\nConnection: close\r\n"));
        assert_non_null(strstr(text,
                               "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":"
                               "400,\"detail\":\""));
        assert_int_equal(atomic_load(&peer.handled), i + 1);
        assert_int_equal(PEER_COUNTER(bad_requests_total), i + 1);
    }
    buf_fini(&in);
    buf_fini(&all);
}

/* A refusal waits for the answers before it. */
static void test_a_refusal_waits_for_its_turn(void **state)
{
    (void)state;
    struct buf all = {0};
    int fd = peer_connect();
    peer_say(fd, "GET /held HTTP/1.1\r\nHost: x\r\n\r\nGET /held HTTP/1.1\r\nHost: x\r\n\r\nx\n");
    PEER_WAIT(peer_held() == 2 && PEER_COUNTER(bad_requests_total) == 1);
    assert_true(peer_is_silent(fd));
    peer_answer_held(true);
    assert_true(peer_read_all(fd, &all));
    assert_string_equal(peer_statuses(&all), "200 200 400");
    close(fd);
    buf_fini(&all);
}

static void test_an_error_of_the_handler_leaves_the_connection_usable(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    int fd = peer_connect();
    peer_say(fd, "POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\r\n\r\n"
                 "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n");
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 404);
    peer_read_answer(fd, &answer, false);
    assert_body(&answer, "GET /echo 0:");
    close(fd);
    peer_answer_fini(&answer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_keep_alive),
        TEST(test_versions_and_closing),
        TEST(test_answers_without_a_body),
        TEST(test_pipelined_requests_are_answered_in_order),
        TEST(test_late_answers_leave_in_order),
        TEST(test_many_unanswered_requests_keep_their_bytes),
        TEST(test_bodies_of_all_sizes),
        TEST(test_every_cut_has_the_same_answers),
        TEST(test_expect_continue),
        TEST(test_a_refusal_is_a_problem_and_the_end),
        TEST(test_a_refusal_waits_for_its_turn),
        TEST(test_an_error_of_the_handler_leaves_the_connection_usable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
