/* differential_test.c: random and mutated requests through our parser and libhttp-parser (see
 * differential.h), and through ours in two pieces for every cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../seeded.h"
#include "differential.h"

static struct seeded random_state;

static size_t below(size_t n)
{
    return (size_t)seeded_below(&random_state, n);
}

static bool chance(unsigned percent)
{
    return below(100) < percent;
}

#define PICK(list) (list)[below(sizeof(list) / sizeof *(list))]

/* ---- requests ---- */

static const char *const methods[] = {"GET",  "POST",    "PUT",    "DELETE", "HEAD",
                                      "POST", "OPTIONS", "PATCH",  "BREW",   "CONNECT",
                                      "POST", "MKCOL",   "SEARCH", "get",    "M-SEARCH"};
static const char *const targets[] = {"/",
                                      "/v1/streams/events",
                                      "/a?b=c&d",
                                      "/%41/|{}\"",
                                      "*",
                                      "/x",
                                      "http://example.org/a?b",
                                      "https://[::1]:80",
                                      "http://example.org",
                                      "/a#b",
                                      "//",
                                      "x",
                                      "/\xc3\xa9"};
static const char *const hosts[] = {
    "example.org", "example.org", "example.org:80", "[::1]:8080", "",   "a b", "a,b",
    "[::1",        "a:b",         "EXAMPLE.ORG",    "%41",        "a@b"};
static const char *const names[] = {"X-A",        "Accept",  "connection", "Connection",
                                    "x!#$%&'*+-", "Upgrade", "Expect",     "Proxy-Connection",
                                    "TE",         "Trailer", "X-B "};
static const char *const values[] = {"",       "close",        "keep-alive", "Upgrade",
                                     "a, b",   "100-continue", "websocket",  "keep-alive, close",
                                     "\"q\"",  "\xff\xfe",     "a\tb",       "close, x",
                                     "clos e", "x, Close"};
static const char *const lengths[] = {"0",
                                      "5",
                                      "+5",
                                      "5, 5",
                                      "",
                                      "0x5",
                                      "18446744073709551621",
                                      "-1",
                                      "005",
                                      "5 5",
                                      "99999999999999999999999"};
static const char *const codings[] = {"chunked",          "Chunked",    "gzip", "gzip, chunked",
                                      "chunked, chunked", "identity",   "",     "xchunked",
                                      "chunked;a=b",      "\"chunked\""};

static void put_header(struct buf *out, const char *name, const char *value)
{
    static const char *const spaces[] = {" ", " ", "", "  ", "\t", " \t "};
    buf_printf(out, "%s:%s%s%s\r\n", name, PICK(spaces), value, chance(10) ? PICK(spaces) : "");
}

static void put_chunks(struct buf *out)
{
    static const char *const extensions[] = {"",       "",    "",    ";a",  ";a=b", ";a=\"b\\\"c\"",
                                             ";a;b=c", " ;a", "; a", ";a=", ";"};
    for (size_t left = below(4); left; left--) {
        size_t n = 1 + below(20);
        buf_printf(out, chance(50) ? "%zx%s\r\n" : "%zX%s\r\n", n, PICK(extensions));
        for (size_t i = 0; i < n; i++)
            buf_put_char(out, (char)(chance(80) ? 'a' + (int)below(26) : (int)below(256)));
        buf_put_str(out, "\r\n");
    }
    buf_printf(out, "%s%s\r\n", chance(90) ? "0" : "000", PICK(extensions));
    for (size_t left = chance(20) ? below(3) : 0; left; left--)
        put_header(out, chance(80) ? PICK(names) : "Content-Length", PICK(values));
    buf_put_str(out, "\r\n");
}

static void put_request(struct buf *out)
{
    if (chance(5))
        buf_put_str(out, "\r\n");
    bool plain = chance(70);
    buf_printf(out, "%s %s HTTP/%s\r\n", plain ? methods[below(8)] : PICK(methods),
               plain ? targets[below(3)] : PICK(targets),
               chance(85)   ? "1.1"
               : chance(80) ? "1.0"
                            : "2.0");
    if (!chance(5))
        put_header(out, chance(80) ? "Host" : "hOST", plain ? hosts[below(4)] : PICK(hosts));
    for (size_t left = below(4); left; left--)
        put_header(out, PICK(names), plain ? values[below(5)] : PICK(values));
    unsigned kind = (unsigned)below(100);
    if (kind < 30) {
        size_t n = below(40);
        buf_printf(out, "Content-Length: %zu\r\n\r\n", n);
        for (size_t i = 0; i < n; i++)
            buf_put_char(out, (char)below(256));
    } else if (kind < 70) {
        if (chance(3))
            put_header(out, "Content-Length", PICK(lengths));
        put_header(out, "Transfer-Encoding", "chunked");
        buf_put_str(out, "\r\n");
        put_chunks(out);
    } else if (kind < 85) {
        buf_put_str(out, "\r\n");
    } else {
        put_header(out, "Content-Length", PICK(lengths));
        if (chance(50))
            put_header(out, "Transfer-Encoding", PICK(codings));
        if (chance(20))
            put_header(out, "Content-Length", PICK(lengths));
        buf_put_str(out, "\r\nhello");
    }
}

/* One small change, of a kind that parsers have disagreed about. */
static void mutate(struct buf *in)
{
    static const char *const breaks[] = {"\n", "\r", "x\n", "\rx", " \r\n", "\r\r\n", "\n\r", ""};
    static const char bytes[] = "\r\n\0 \t:;,=0aZ+-\"\x7f\x80\xff\x01#";
    size_t at = in->n ? below(in->n) : 0;
    struct buf out = {0};
    buf_put(&out, in->p, at);
    size_t skip = 0;
    switch (below(6)) {
    case 0: /* replace */
        buf_put_char(&out, bytes[below(sizeof bytes - 1)]);
        skip = 1;
        break;
    case 1: /* insert */
        buf_put_char(&out, bytes[below(sizeof bytes - 1)]);
        break;
    case 2: /* remove */
        skip = 1 + below(3);
        break;
    case 3: /* repeat */
        buf_put(&out, in->p + at, below(in->n - at + 1) % 40);
        break;
    case 4: /* a line break of another kind */
        for (; at < in->n && in->p[at] != '\r'; at++)
            buf_put_char(&out, in->p[at]);
        buf_put_str(&out, PICK(breaks));
        skip = 2;
        break;
    default: /* flip a bit */
        buf_put_char(&out, (char)(in->p[at] ^ (1 << below(8))));
        skip = 1;
        break;
    }
    if (at + skip < in->n)
        buf_put(&out, in->p + at + skip, in->n - at - skip);
    buf_fini(in);
    *in = out;
}

/* ---- tests ---- */

static void test_what_we_accept_libhttp_parser_accepts(void **state)
{
    (void)state;
    unsigned accepted = 0, inputs = 30000;
    struct buf in = {0};
    for (unsigned i = 0; i < inputs; i++) {
        buf_clear(&in);
        for (size_t left = 1 + below(3); left; left--)
            put_request(&in);
        for (size_t left = chance(60) ? 1 + below(3) : 0; left && in.n; left--)
            mutate(&in);
        size_t cuts[2] = {below(in.n + 1), below(in.n + 1)};
        accepted += differential_check(in.p, in.n, cuts, 2);
    }
    buf_fini(&in);
    print_message("%u messages of %u inputs accepted\n", accepted, inputs);
    assert_in_range(accepted, inputs / 10, inputs * 3); /* the comparison is not empty */
}

static void test_every_cut_gives_the_same(void **state)
{
    (void)state;
    struct buf in = {0};
    for (unsigned i = 0; i < 300; i++) {
        buf_clear(&in);
        put_request(&in);
        put_request(&in);
        if (chance(50))
            mutate(&in);
        size_t cuts[2048], n = in.n < 2048 ? in.n : 2048;
        for (size_t cut = 0; cut < n; cut++)
            cuts[cut] = cut;
        differential_check(in.p, in.n, cuts, n);
    }
    buf_fini(&in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_we_accept_libhttp_parser_accepts),
        cmocka_unit_test(test_every_cut_gives_the_same),
    };
    random_state.state = seeded_choose();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
