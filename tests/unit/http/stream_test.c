/* stream_test.c: answers that stream: chunks, order, peers that are slow or go away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "peer.h"

/* A producer on the loop: writes pieces as long as the peer keeps up, then waits for it. */
static struct {
    struct http_request *request; /* one at a time */
    unsigned piece, pieces, piece_bytes;
    bool ends; /* after the last piece; otherwise it stays open */
    bool regardless;
    _Atomic unsigned waited;
    _Atomic bool ended;
} stream;

static void produce(struct http_request *request)
{
    char *bytes = mem_alloc(stream.piece_bytes);
    while (stream.piece < stream.pieces) {
        memset(bytes, 'a' + (int)(stream.piece % 26), stream.piece_bytes);
        stream.piece++;
        if (!http_stream_write(request, (struct slice){bytes, stream.piece_bytes}) &&
            !stream.regardless) {
            atomic_fetch_add(&stream.waited, 1);
            break;
        }
    }
    mem_free(bytes);
    if (stream.piece == stream.pieces && stream.ends) {
        stream.ends = false;
        http_stream_end(request);
        atomic_store(&stream.ended, true);
    }
}

static void gone(struct http_request *request)
{
    assert(request->client_gone && request == stream.request);
    atomic_fetch_add(&peer.gone, 1);
    /* Whoever streams still ends what it began; what it writes goes nowhere. */
    assert(http_stream_write(request, SLICE_LIT("for nobody")));
    http_stream_end(request);
    atomic_store(&stream.ended, true);
}

static void begin(struct http_request *request)
{
    stream.request = request;
    stream.piece = 0;
    http_stream_begin(request, 200, "text/plain", SLICE_LIT("X-Extra: 1\r\n"));
    http_stream_on_writable(request, produce);
    http_on_gone(request, gone);
    produce(request);
}

static int setup(void **state)
{
    (void)state;
    memset(&stream, 0, sizeof stream);
    stream.ends = true;
    peer_configure();
    peer.other = begin;
    peer_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop();
    return 0;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static size_t count_of(const struct buf *all, char c)
{
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++)
        n += all->p[i] == c;
    return n;
}

static void test_chunks_between_other_answers(void **state)
{
    (void)state;
    struct buf all = {0};
    stream.pieces = 3;
    stream.piece_bytes = 20;
    int fd = peer_connect();
    peer_say(fd, GET("/held") GET("/stream") "GET /echo HTTP/1.1\r\nHost: x\r\n"
                                             "Connection: close\r\n\r\n");
    /* Written before it is its turn: told to wait after each piece. */
    PEER_WAIT(atomic_load(&stream.waited) == 1);
    assert_true(peer_is_silent(fd));
    peer_answer_held(false);
    assert_true(peer_read_all(fd, &all));
    const char *text = buf_str(&all);
    assert_string_equal(peer_statuses(&all), "200 200 200");
    assert_non_null(strstr(text, "\r\nTransfer-Encoding: chunked\r\nX-Extra: 1\r\n\r\n"
                                 "14\r\naaaaaaaaaaaaaaaaaaaa\r\n14\r\nbbbbbbbbbbbbbbbbbbbb\r\n"
                                 "14\r\ncccccccccccccccccccc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"));
    close(fd);
    buf_fini(&all);
}

static void test_http_1_0_and_head(void **state)
{
    (void)state;
    struct buf all = {0};
    stream.pieces = 2;
    stream.piece_bytes = 3;
    static const char old[] = "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    peer_exchange(old, sizeof old - 1, &all);
    const char *text = buf_str(&all);
    assert_null(strstr(text, "Transfer-Encoding"));
    assert_non_null(strstr(text, "\r\nConnection: close\r\n"));
    assert_non_null(strstr(text, "\r\n\r\naaabbb"));
    assert_int_equal(memcmp(all.p + all.n - 6, "aaabbb", 6), 0);
    stream.ends = true;
    static const char head[] = "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /echo HTTP/1.0\r\n\r\n";
    assert_string_equal(peer_exchange(head, sizeof head - 1, &all), "200 200");
    assert_null(strstr(buf_str(&all), "aaabbb"));
    buf_fini(&all);
}

/* Much more than fits into buffers: the producer waits, and is called when the peer has read. */
static void test_a_slow_reader_sets_the_pace(void **state)
{
    (void)state;
    struct buf all = {0};
    int fd = peer_connect();
    stream.pieces = 3000;
    stream.piece_bytes = 10000;
    peer_say(fd, "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    PEER_WAIT(atomic_load(&stream.waited) > 0);
    assert_false(atomic_load(&stream.ended));
    assert_true(peer_read_all(fd, &all));
    assert_true(atomic_load(&stream.ended) && atomic_load(&stream.waited) > 5);
    assert_true(all.n > 30000000 && count_of(&all, 'z') == 115 * 10000);
    assert_memory_equal(all.p + all.n - 5, "0\r\n\r\n", 5);
    close(fd);
    buf_fini(&all);
}

/* Events for ever, and a client that closes: noticed though nothing is written. */
static void test_a_client_that_leaves_a_stream(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    static const char *const ways[] = {
        GET("/stream"), "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"};
    for (unsigned i = 0; i < 2; i++) {
        stream.ends = false;
        stream.pieces = 1;
        stream.piece_bytes = 10;
        atomic_store(&stream.ended, false);
        int fd = peer_connect();
        peer_say(fd, ways[i]);
        peer_read_answer(fd, &answer, false);
        assert_true(peer_has(&answer, "\r\nTransfer-Encoding: chunked\r\n"));
        peer_read_exactly(fd, &answer.body, strlen("a\r\naaaaaaaaaa\r\n"));
        assert_int_equal(http_server_unanswered(peer.server), 1);
        close(fd); /* all is read: the server sees an end, not a reset */
        PEER_WAIT(atomic_load(&stream.ended));
        PEER_WAIT(http_server_unanswered(peer.server) == 0);
        assert_int_equal(atomic_load(&peer.gone), i + 1);
        PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    }
    peer_answer_fini(&answer);
}

/* A producer that does not wait loses the connection, not the server its memory. */
static void test_a_producer_that_does_not_wait(void **state)
{
    (void)state;
    stream.regardless = true;
    stream.ends = false;
    stream.pieces = 4000;
    stream.piece_bytes = 10000;
    int fd = peer_connect();
    peer_say(fd, GET("/stream"));
    PEER_WAIT(atomic_load(&peer.gone) == 1);
    assert_int_equal(stream.piece, 4000);
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    close(fd);
}

/* A client that closed its side at once still gets a stream that ends in the same turn. */
static void test_a_short_stream_for_a_half_closed_peer(void **state)
{
    (void)state;
    struct buf all = {0};
    stream.pieces = 5;
    stream.piece_bytes = 100;
    int fd = peer_connect();
    peer_say(fd, GET("/stream"));
    shutdown(fd, SHUT_WR);
    assert_true(peer_read_all(fd, &all));
    assert_memory_equal(all.p + all.n - 5, "0\r\n\r\n", 5);
    close(fd);
    buf_fini(&all);
}

static void test_destroying_with_an_open_stream(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    stream.ends = false;
    stream.pieces = 1;
    stream.piece_bytes = 10;
    int fd = peer_connect();
    peer_say(fd, GET("/stream"));
    peer_read_answer(fd, &answer, false);
    peer_stop();
    assert_int_equal(atomic_load(&peer.gone), 1);
    close(fd);
    peer_answer_fini(&answer);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chunks_between_other_answers),   TEST(test_http_1_0_and_head),
        TEST(test_a_slow_reader_sets_the_pace),    TEST(test_a_client_that_leaves_a_stream),
        TEST(test_a_producer_that_does_not_wait),  TEST(test_a_short_stream_for_a_half_closed_peer),
        TEST(test_destroying_with_an_open_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
