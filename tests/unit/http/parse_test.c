/* parse_test.c: what the strict parser accepts, and what it refuses and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "http/parse.h"

static const struct parse_limits limits = {1024, 10};

struct parsed {
    enum parse_result result;
    struct parse_head head;
    struct parse_fields fields;
    struct parse_error error;
    struct http_header headers[10];
};

static void parse(struct parsed *out, const char *p, size_t n)
{
    *out = (struct parsed){0};
    out->result = parse_head(&out->head, &limits, p, n, &out->error);
    if (out->result == PARSE_DONE)
        out->result = parse_fields(&out->head, &limits, p, out->headers, &out->fields, &out->error);
}

#define PARSE(out, literal) parse(out, literal, sizeof(literal) - 1)

static void assert_slice(struct slice got, const char *wanted)
{
    assert_int_equal(got.n, strlen(wanted));
    assert_memory_equal(got.p, wanted, got.n);
}

/* ---- what is accepted ---- */

static void test_a_request(void **state)
{
    (void)state;
    struct parsed it;
    PARSE(&it, "POST /v1/streams/orders?ack=stored HTTP/1.1\r\nHost: a.example:8080\r\n"
               "X-Empty:\r\nX-Text: \t a\tb \xc3\xa9 \t\r\nContent-Length: 5\r\n\r\nhello");
    assert_int_equal(it.result, PARSE_DONE);
    assert_int_equal(it.head.minor, 1);
    assert_slice(it.fields.target, "/v1/streams/orders?ack=stored");
    assert_slice(it.fields.path, "/v1/streams/orders");
    assert_slice(it.fields.query, "ack=stored");
    assert_slice(it.fields.host, "a.example:8080");
    assert_int_equal(it.fields.n_headers, 4);
    assert_slice(it.headers[1].name, "X-Empty");
    assert_slice(it.headers[1].value, "");
    assert_slice(it.headers[2].value, "a\tb \xc3\xa9");
    assert_true(it.fields.has_length && it.fields.keep_alive && !it.fields.chunked);
    assert_int_equal(it.fields.content_length, 5);
}

static void test_one_empty_line_in_front(void **state)
{
    (void)state;
    struct parsed it;
    PARSE(&it, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(it.result, PARSE_DONE);
    assert_int_equal(it.head.skipped, 2);
    PARSE(&it, "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(it.result, PARSE_REFUSED);
    PARSE(&it, "\r\n");
    assert_int_equal(it.result, PARSE_MORE);
}

static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *line, *path, *query;
    } good[] = {
        {"GET /", "/", NULL},
        {"GET /?", "/", ""},
        {"GET /a/b?c?d", "/a/b", "c?d"},
        {"GET /a|{b}\"<>^`\\", "/a|{b}\"<>^`\\", NULL},
        {"GET http://host", "/", NULL},
        {"GET http://host?a=b", "/", "a=b"},
        {"GET HTTPS://HOST/x", "/x", NULL},
        {"OPTIONS *", "*", NULL},
    };
    struct buf text = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct parsed it;
        buf_clear(&text);
        buf_printf(&text, "%s HTTP/1.1\r\nHost: host\r\n\r\n", good[i].line);
        parse(&it, text.p, text.n);
        assert_int_equal(it.result, PARSE_DONE);
        assert_slice(it.fields.path, good[i].path);
        assert_true(!good[i].query == !it.fields.query.p);
        if (good[i].query)
            assert_slice(it.fields.query, good[i].query);
    }
    buf_fini(&text);
}

static void test_keep_alive(void **state)
{
    (void)state;
    static const struct {
        const char *version, *connection;
        bool keep_alive;
    } cases[] = {
        {"1.1", "", true},
        {"1.1", "Connection: close\r\n", false},
        {"1.1", "Connection: CLOSE\r\n", false},
        {"1.1", "Connection: x , Close\r\n", false},
        {"1.1", "Connection: keep-alive\r\nConnection: close\r\n", false},
        {"1.1", "Connection: closed\r\n", true},
        {"1.0", "", false},
        {"1.0", "Connection: keep-alive\r\n", true},
        {"1.0", "Connection: Keep-Alive, x\r\n", true},
        {"1.0", "Connection: keep-alive, close\r\n", false},
    };
    struct buf text = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed it;
        buf_clear(&text);
        buf_printf(&text, "GET / HTTP/%s\r\nHost: host\r\n%s\r\n", cases[i].version,
                   cases[i].connection);
        parse(&it, text.p, text.n);
        assert_int_equal(it.result, PARSE_DONE);
        assert_int_equal(it.fields.keep_alive, cases[i].keep_alive);
    }
    buf_fini(&text);
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",   "a",      "a.example", "127.0.0.1:80", "[::1]",          "[::1]:8",
        "a:", "A-b_c~", "%41b",      "a:65535",      "[fe80::1.2.3.4]"};
    static const char *const bad[] = {
        "a b",    "a,b", "a/b", "a@b",  "[::1",  "[]",    "[x]", "a:b", ":",    ":80",  "a:65536",
        "[::1]8", "%4",  "%zz", "a:-1", "a\x80", "a:1:2", "a?b", "a#b", "a[b]", "\"a\""};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(parse_is_host(slice_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(parse_is_host(slice_of(bad[i])));
}

static void test_expectations(void **state)
{
    (void)state;
    struct parsed it;
    PARSE(&it, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n");
    assert_true(it.result == PARSE_DONE && it.fields.expect_continue);
    PARSE(&it, "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    assert_true(it.result == PARSE_DONE && !it.fields.expect_continue);
    PARSE(&it, "PUT / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n");
    assert_true(it.result == PARSE_REFUSED && it.error.status == 417);
}

static void test_responses(void **state)
{
    (void)state;
    static const char text[] = "HTTP/1.1 207 \r\nContent-Length: 2\r\n\r\n";
    struct parse_head head = {.response = true};
    struct parse_fields fields;
    struct parse_error error;
    struct http_header headers[10];
    assert_int_equal(parse_head(&head, &limits, text, sizeof text - 1, &error), PARSE_DONE);
    assert_int_equal(head.status, 207);
    assert_int_equal(parse_fields(&head, &limits, text, headers, &fields, &error), PARSE_DONE);
    assert_int_equal(fields.content_length, 2);
    static const char *const bad[] = {
        "HTTP/1.1 20\r\n",     "HTTP/2.0 200 OK\r\n", "\r\n",
        "HTTP/1.1 2x0 OK\r\n", "HTTP/1.1 2000\r\n",   "ICY 200 OK\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        head = (struct parse_head){.response = true};
        assert_int_equal(parse_head(&head, &limits, bad[i], strlen(bad[i]), &error), PARSE_REFUSED);
    }
}

/* ---- what is refused ---- */

#define CASE(status, text)                                                                         \
    {                                                                                              \
        status, text, sizeof(text) - 1                                                             \
    }
#define HOST "Host: a\r\n"
#define GET  "GET / HTTP/1.1\r\n" HOST

static const struct {
    int status;
    const char *p;
    size_t n;
} refused[] = {
    /* the first line */
    CASE(400, "GET  / HTTP/1.1\r\n"),
    CASE(400, "GET /  HTTP/1.1\r\n"),
    CASE(400, " GET / HTTP/1.1\r\n"),
    CASE(400, "GET / HTTP/1.1 \r\n"),
    CASE(400, "GET\t/ HTTP/1.1\r\n"),
    CASE(400, "GET /\tHTTP/1.1\r\n"),
    CASE(400, "G(T / HTTP/1.1\r\n"),
    CASE(400, "G\xc3\xa9T / HTTP/1.1\r\n"),
    CASE(400, "GET /\r\n"),
    CASE(400, "GET\r\n"),
    CASE(400, "GET / http/1.1\r\n"),
    CASE(400, "GET / HTTP/1.x\r\n"),
    CASE(400, "GET / HTTP/11.1\r\n"),
    CASE(400, "GET / HTTP/1.10\r\n"),
    CASE(505, "GET / HTTP/1.2\r\n"),
    CASE(505, "GET / HTTP/0.9\r\n"),
    CASE(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    CASE(400, "GET /#a HTTP/1.1\r\n"),
    CASE(400, "GET /\xc3\xa9 HTTP/1.1\r\n"),
    CASE(400, "GET /\x7f HTTP/1.1\r\n"),
    CASE(400, "GET a HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "GET * HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "OPTIONS ** HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "GET http:///x HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "GET http://b/x HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "GET http://u@a/x HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "GET ftp://a/x HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "CONNECT / HTTP/1.1\r\n" HOST "\r\n"),
    CASE(400, "\x16\x03\x01\x02"),
    /* lines */
    CASE(400, "\n"),
    CASE(400, "GET / HTTP/1.1\n"),
    CASE(400, "GET / HTTP/1.1\r\r\n"),
    CASE(400, GET "\n"),
    CASE(400, GET "A: b\n\r\n"),
    CASE(400, GET "A: b\rc\r\n\r\n"),
    CASE(400, GET "A: b\0c\r\n\r\n"),
    CASE(400, GET "A: b\x01\r\n\r\n"),
    CASE(400, GET "A: b\x7f\r\n\r\n"),
    CASE(400, GET "A\0: b\r\n\r\n"),
    CASE(400, "GET / HTTP/1.1\r\n " HOST "\r\n"),
    CASE(400, GET "A: b\r\n c\r\n\r\n"),
    CASE(400, GET "A: b\r\n\tc\r\n\r\n"),
    CASE(400, GET " \r\n\r\n"),
    /* names */
    CASE(400, GET "A : b\r\n\r\n"),
    CASE(400, GET "A\t: b\r\n\r\n"),
    CASE(400, GET "A B: b\r\n\r\n"),
    CASE(400, GET ": b\r\n\r\n"),
    CASE(400, GET "A\r\n\r\n"),
    CASE(400, GET "A(: b\r\n\r\n"),
    CASE(400, GET "\"A\": b\r\n\r\n"),
    CASE(400, GET "\xc3\xa9: b\r\n\r\n"),
    CASE(400, GET "Transfer-EncodingX: chunked\r\n\r\n"),
    /* hosts */
    CASE(400, "GET / HTTP/1.1\r\n\r\n"),
    CASE(400, "GET / HTTP/1.1\r\nX: y\r\n\r\n"),
    CASE(400, GET HOST "\r\n"),
    CASE(400, GET "hOSt: b\r\n\r\n"),
    CASE(400, "GET / HTTP/1.0\r\n" HOST HOST "\r\n"),
    CASE(400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    CASE(400, "GET / HTTP/1.0\r\nHost: a/b\r\n\r\n"),
    /* lengths */
    CASE(400, GET "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
    CASE(400, GET "Content-Length: 1\r\ncontent-length: 2\r\n\r\n"),
    CASE(400, GET "Content-Length: 1, 1\r\n\r\n"),
    CASE(400, GET "Content-Length: 1,\r\n\r\n"),
    CASE(400, GET "Content-Length: +1\r\n\r\n"),
    CASE(400, GET "Content-Length: -1\r\n\r\n"),
    CASE(400, GET "Content-Length: 0x1\r\n\r\n"),
    CASE(400, GET "Content-Length: 1 1\r\n\r\n"),
    CASE(400, GET "Content-Length: 1.0\r\n\r\n"),
    CASE(400, GET "Content-Length: \"1\"\r\n\r\n"),
    CASE(400, GET "Content-Length:\r\n\r\n"),
    CASE(400, GET "Content-Length:\t1\r\n\r\n"),
    CASE(400, GET "Content-Length: 1 \t \r\n\r\n"),
    CASE(400, GET "Content-Length: 18446744073709551616\r\n\r\n"),
    CASE(400, GET "Content-Length: 99999999999999999999999\r\n\r\n"),
    /* codings */
    CASE(400, GET "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: chunked, chunked\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: gzip, chunked\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: gzip\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: identity\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: xchunked\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: chunked;a=b\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: \"chunked\"\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: ,chunked\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding:\r\n\r\n"),
    CASE(400, GET "Transfer-Encoding: \tchunked\r\n\r\n"),
    CASE(400, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
};

static void test_what_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct parsed it;
        parse(&it, refused[i].p, refused[i].n);
        if (it.result != PARSE_REFUSED || it.error.status != refused[i].status)
            print_message("%s: result %d, status %d\n", refused[i].p, it.result, it.error.status);
        assert_int_equal(it.result, PARSE_REFUSED);
        assert_int_equal(it.error.status, refused[i].status);
        assert_true(strlen(it.error.detail) > 10);
    }
}

/* Cut off anywhere, a good head asks for more; with one byte more than the end it is complete. */
static void test_every_prefix_wants_more(void **state)
{
    (void)state;
    static const char text[] = "\r\n" GET "A: b\r\nContent-Length: 3\r\n\r\nabc";
    size_t end = sizeof text - 1 - 3;
    for (size_t n = 0; n <= sizeof text - 1; n++) {
        struct parsed it;
        parse(&it, text, n);
        assert_int_equal(it.result, n < end ? PARSE_MORE : PARSE_DONE);
    }
}

static void test_limits(void **state)
{
    (void)state;
    struct parsed it;
    struct buf text = {0};
    /* Exactly the limit is fine; a byte more is not, whether the end is there or not. */
    for (size_t extra = 0; extra < 2; extra++) {
        buf_clear(&text);
        buf_put_str(&text, GET "X: ");
        while (text.n < limits.head_bytes + extra - 4)
            buf_put_char(&text, 'x');
        buf_put_str(&text, "\r\n\r\n");
        parse(&it, text.p, text.n);
        assert_int_equal(it.result, extra ? PARSE_REFUSED : PARSE_DONE);
        assert_true(!extra || it.error.status == 431);
    }
    parse(&it, text.p, limits.head_bytes - 1);
    assert_int_equal(it.result, PARSE_MORE);
    parse(&it, text.p, limits.head_bytes);
    assert_true(it.result == PARSE_REFUSED && it.error.status == 431);
    for (unsigned n = 9; n <= 10; n++) {
        buf_clear(&text);
        buf_put_str(&text, GET);
        for (unsigned i = 0; i < n; i++)
            buf_put_str(&text, "A: b\r\n");
        buf_put_str(&text, "\r\n");
        parse(&it, text.p, text.n);
        assert_int_equal(it.result, n == 9 ? PARSE_DONE : PARSE_REFUSED);
    }
    assert_int_equal(it.error.status, 431);
    buf_fini(&text);
}

/* ---- chunks ---- */

static enum parse_result chunks(const char *p, size_t n, uint64_t limit, struct buf *body,
                                struct parse_error *error, size_t *consumed)
{
    struct parse_chunks it;
    enum parse_result result = PARSE_MORE;
    parse_chunks_init(&it, &limits, limit);
    buf_clear(body);
    *consumed = 0;
    *error = (struct parse_error){0};
    while (*consumed < n && result == PARSE_MORE) {
        size_t used = 0;
        struct slice data;
        result = parse_chunks(&it, p + *consumed, n - *consumed, &used, &data, error);
        if (result != PARSE_REFUSED)
            buf_put_slice(body, data);
        *consumed += used;
    }
    return result;
}

static void test_chunks(void **state)
{
    (void)state;
    static const struct {
        const char *text, *body;
    } good[] = {
        {"0\r\n\r\n", ""},
        {"5\r\nhello\r\n0\r\n\r\n", "hello"},
        {"05\r\nhello\r\n00\r\n\r\n", "hello"},
        {"1\r\na\r\nA\r\n0123456789\r\n0\r\n\r\n", "a0123456789"},
        {"1;a\r\na\r\n0;b=c;d=\"e\\\"\t\xff\"\r\n\r\n", "a"},
        {"1\r\n\r\r\n0\r\nX-A: b\r\nX-B:\r\n\r\n", "\r"},
    };
    struct buf body = {0};
    struct parse_error error;
    size_t used;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct buf text = {0};
        buf_put_str(&text, good[i].text);
        size_t n = text.n;
        buf_put_str(&text, "GET / HTTP/1.1");
        assert_int_equal(chunks(text.p, text.n, 100, &body, &error, &used), PARSE_DONE);
        assert_int_equal(used, n); /* what follows belongs to the next request */
        assert_slice(buf_slice(&body), good[i].body);
        buf_fini(&text);
    }
    buf_fini(&body);
}

static void test_chunks_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int status;
    } bad[] = {
        {"\r\n", 400},
        {"x\r\n", 400},
        {"0x5\r\nhello\r\n", 400},
        {"+5\r\nhello\r\n", 400},
        {"-5\r\nhello\r\n", 400},
        {" 5\r\nhello\r\n", 400},
        {"5 \r\nhello\r\n", 400},
        {"5\t\r\nhello\r\n", 400},
        {"5\nhello\r\n", 400},
        {"5\rhello\r\n", 400},
        {"5\r\nhello\n", 400},
        {"5\r\nhello0\r\n", 400},
        {"5\r\nhellox\r\n", 400},
        {"5 ;a\r\n", 400},
        {"5; a\r\n", 400},
        {"5;\r\n", 400},
        {"5;a=\r\n", 400},
        {"5;a b\r\n", 400},
        {"5;a=\"b\r\n", 400},
        {"5;a=\"b\"c\r\n", 400},
        {"5;a=\"\\\r\"\r\n", 400},
        {"5;a\n", 400},
        {"00000000000000005\r\n", 400},
        {"10000000000000005\r\n", 400},
        {"ffffffffffffffff\r\n", 413},
        {"65\r\n", 413},
        {"64\r\n", 0},
        {"0\r\n\n", 400},
        {"0\r\nA: b\n\r\n", 400},
        {"0\r\nA : b\r\n\r\n", 400},
        {"0\r\n: b\r\n\r\n", 400},
        {"0\r\nA\r\n\r\n", 400},
        {"0\r\nA: b\r\n c\r\n\r\n", 400},
        {"0\r\nA: \x01\r\n\r\n", 400},
        {"0\r\nContent-Length: 5\r\n\r\n", 400},
        {"0\r\ntransfer-encoding: chunked\r\n\r\n", 400},
        {"0\r\nHost: b\r\n\r\n", 400},
    };
    struct buf body = {0};
    struct parse_error error;
    size_t used;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum parse_result result =
            chunks(bad[i].text, strlen(bad[i].text), 100, &body, &error, &used);
        if (error.status != bad[i].status)
            print_message("%s: %d\n", bad[i].text, error.status);
        assert_int_equal(result, bad[i].status ? PARSE_REFUSED : PARSE_MORE);
        assert_int_equal(error.status, bad[i].status);
    }
    buf_fini(&body);
}

static void test_chunk_overhead_is_bounded(void **state)
{
    (void)state;
    struct buf text = {0}, body = {0};
    struct parse_error error;
    size_t used;
    /* Any number of small chunks is fine; any number of extension bytes is not. */
    for (unsigned i = 0; i < 5000; i++)
        buf_put_str(&text, "1\r\nx\r\n");
    buf_put_str(&text, "0\r\n\r\n");
    assert_int_equal(chunks(text.p, text.n, 5000, &body, &error, &used), PARSE_DONE);
    assert_int_equal(body.n, 5000);
    buf_clear(&text);
    for (unsigned i = 0; i < 1000; i++)
        buf_put_str(&text, "1;a\r\nx\r\n");
    assert_int_equal(chunks(text.p, text.n, 5000, &body, &error, &used), PARSE_REFUSED);
    assert_int_equal(error.status, 431);
    buf_clear(&text);
    buf_put_str(&text, "0\r\n");
    for (unsigned i = 0; i < 11; i++)
        buf_put_str(&text, "A: b\r\n");
    assert_int_equal(chunks(text.p, text.n, 5000, &body, &error, &used), PARSE_REFUSED);
    assert_int_equal(error.status, 431);
    buf_fini(&text);
    buf_fini(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request),
        cmocka_unit_test(test_one_empty_line_in_front),
        cmocka_unit_test(test_targets),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_expectations),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_every_prefix_wants_more),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunks_refused),
        cmocka_unit_test(test_chunk_overhead_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
