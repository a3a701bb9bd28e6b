/* response: framing, every split of it, what is refused, and garbage. */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "../seeded.h"
#include "base/mem.h"
#include "load/response.h"
#include "weir/err.h"

struct answer {
    const char *text;
    int status;
    const char *body;
    bool close;
};

static const struct answer good[] = {
    {"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok", 202, "ok", false},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", false},
    {"HTTP/1.1 304\r\nContent-Length: 5\r\n\r\n", 304, "", false},
    {"HTTP/1.1 200 \r\ncontent-LENGTH:\t0\r\n\r\n", 200, "", false},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 201 "
     "C\r\nContent-Length:1\r\n\r\nx",
     201, "x", false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
     "chunked\r\n\r\n3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\n\r\n",
     200, "abc0123456789", false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n", 200, "",
     false},
    {"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 503, "", true},
    {"HTTP/1.1 503 No\r\nConnection: foo, Close\r\nContent-Length: 0\r\n\r\n", 503, "", true},
    {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", true},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", 200, "", false},
};

static void check(const struct answer *want, const size_t *cuts, size_t n_cuts)
{
    struct response r = {.keep_body = true};
    size_t n = strlen(want->text), at = 0, used;
    int result = RESPONSE_MORE;
    response_begin(&r);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t end = i < n_cuts ? cuts[i] : n;
        /* A copy of just this piece, so that a sanitizer sees a read beyond it. */
        char *piece = mem_dup(want->text + at, end - at ? end - at : 1);
        result = response_feed(&r, piece, end - at, &used);
        mem_free(piece);
        assert_int_equal(used, end - at);
        assert_int_equal(result, end == n ? RESPONSE_DONE : RESPONSE_MORE);
        at = end;
    }
    assert_int_equal(r.status, want->status);
    assert_true(slice_is(buf_slice(&r.body), want->body));
    assert_int_equal(r.close, want->close);
    response_fini(&r);
}

static void test_good_answers_at_every_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t n = strlen(good[i].text);
        check(&good[i], NULL, 0);
        for (size_t a = 1; a < n; a++) {
            check(&good[i], (size_t[]){a}, 1);
            if (a + 1 < n)
                check(&good[i], (size_t[]){a, a + 1}, 2);
        }
    }
}

static void test_one_after_the_other(void **state)
{
    (void)state;
    struct response r = {.keep_body = true};
    char text[4096];
    size_t n = 0, at = 0, used;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", good[i].text);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        response_begin(&r);
        assert_false(response_begun(&r));
        assert_int_equal(response_feed(&r, text + at, n - at, &used), RESPONSE_DONE);
        assert_int_equal(r.status, good[i].status);
        assert_true(slice_is(buf_slice(&r.body), good[i].body));
        assert_int_equal(used, strlen(good[i].text));
        at += used;
    }
    assert_int_equal(at, n);
    response_fini(&r);
}

static void test_read_to_the_end(void **state)
{
    (void)state;
    struct response r = {.keep_body = true};
    size_t used;
    response_begin(&r);
    assert_int_equal(response_end(&r), WEIR_CLOSED);
    static const char text[] = "HTTP/1.1 200 OK\r\n\r\nabc";
    assert_int_equal(response_feed(&r, text, sizeof text - 1, &used), RESPONSE_MORE);
    assert_true(r.close && response_begun(&r));
    assert_int_equal(response_end(&r), RESPONSE_DONE);
    assert_true(slice_is(buf_slice(&r.body), "abc"));
    response_begin(&r);
    static const char half[] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
    assert_int_equal(response_feed(&r, half, sizeof half - 1, &used), RESPONSE_MORE);
    assert_int_equal(response_end(&r), WEIR_CLOSED);
    response_fini(&r);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 101 Switch\r\n\r\n",
        "\r\n",
        "junk\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1g\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1111111111111111\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\nab\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct response r = {0};
        size_t used;
        response_begin(&r);
        if (response_feed(&r, bad[i], strlen(bad[i]), &used) != WEIR_SYNTAX)
            fail_msg("taken: %s", bad[i]);
        response_fini(&r);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct response r = {0};
    size_t used, n = RESPONSE_LINE_MAX + 10;
    char *line = mem_alloc(n);
    memset(line, 'a', n);
    response_begin(&r);
    assert_int_equal(response_feed(&r, line, n, &used), WEIR_TOO_LARGE);
    response_begin(&r);
    int result = RESPONSE_MORE;
    for (size_t i = 0; i < n && result == RESPONSE_MORE; i++)
        result = response_feed(&r, "a", 1, &used);
    assert_int_equal(result, WEIR_TOO_LARGE);

    response_begin(&r);
    assert_int_equal(response_feed(&r, "HTTP/1.1 200 OK\r\n", 17, &used), RESPONSE_MORE);
    result = RESPONSE_MORE;
    for (int i = 0; i < 20000 && result == RESPONSE_MORE; i++)
        result = response_feed(&r, "Header: x\r\n", 11, &used);
    assert_int_equal(result, WEIR_TOO_LARGE);

    /* Endless 1xx answers are a head without end, too. */
    response_begin(&r);
    result = RESPONSE_MORE;
    for (int i = 0; i < 20000 && result == RESPONSE_MORE; i++)
        result = response_feed(&r, "HTTP/1.1 100 C\r\n\r\n", 18, &used);
    assert_int_equal(result, WEIR_TOO_LARGE);

    /* Many small chunks are not. */
    response_begin(&r);
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_int_equal(response_feed(&r, head, sizeof head - 1, &used), RESPONSE_MORE);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(response_feed(&r, "1\r\na\r\n", 6, &used), RESPONSE_MORE);
    assert_int_equal(response_feed(&r, "0\r\n\r\n", 5, &used), RESPONSE_DONE);
    assert_int_equal(r.body.n, 0); /* not asked to keep it */
    response_fini(&r);
    mem_free(line);
}

/* Answers with a few bytes changed, fed in random pieces: never a crash, and the same verdict
 * whatever the pieces. */
static void test_garbage(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    for (int round = 0; round < 20000; round++) {
        const char *from = good[seeded_below(&random, sizeof good / sizeof *good)].text;
        size_t n = strlen(from);
        char *text = mem_dup(from, n);
        for (uint64_t i = seeded_below(&random, 4); i > 0; i--)
            text[seeded_below(&random, n)] = (char)seeded_next(&random);
        int verdict[2], status[2];
        size_t consumed[2];
        for (int pass = 0; pass < 2; pass++) {
            struct response r = {.keep_body = true};
            size_t used = 0, at = 0;
            int result = RESPONSE_MORE;
            response_begin(&r);
            while (result == RESPONSE_MORE && at < n) {
                size_t more = pass ? 1 + seeded_below(&random, n - at) : n;
                char *piece = mem_dup(text + at, more);
                result = response_feed(&r, piece, more, &used);
                mem_free(piece);
                at += used;
            }
            verdict[pass] = result;
            status[pass] = r.status;
            consumed[pass] = result == RESPONSE_DONE ? at : 0;
            response_fini(&r);
        }
        assert_int_equal(verdict[0], verdict[1]);
        assert_int_equal(status[0], status[1]);
        assert_int_equal(consumed[0], consumed[1]);
        mem_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_answers_at_every_split),
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_read_to_the_end),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_garbage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
