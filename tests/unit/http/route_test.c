/* route_test.c: the route table, percent-encoding, query parameters, headers, status texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "http/route.h"
#include "peer.h"

static void answer_first(void *context, struct http_request *request, const struct slice *params)
{
    assert(context == &peer);
    http_answer(request, 200, "text/plain", SLICE_LIT(""), params[0]);
}

static void answer_second(void *context, struct http_request *request, const struct slice *params)
{
    assert(context == &peer);
    http_answer(request, 201, "text/plain", SLICE_LIT(""), params[1]);
}

static const struct http_route routes[] = {
    {"POST", "/v1/streams/{stream}", answer_first},
    {"GET", "/v1/streams/{stream}/{id}", answer_second},
    {"GET", "/v1/hot/{app}/rules", answer_first},
    {"PUT", "/v1/hot/{app}/rules", answer_first},
    {"DELETE", "/v1/hot/{app}/rules", answer_first},
    {"GET", "/", answer_first},
};
#define N_ROUTES (sizeof routes / sizeof *routes)

static enum route_result find(const char *method, const char *path, struct route_match *match)
{
    return route_find(routes, N_ROUTES, slice_of(method), slice_of(path), match);
}

static void assert_slice(struct slice got, const char *wanted)
{
    assert_int_equal(got.n, strlen(wanted));
    assert_memory_equal(got.p, wanted, got.n);
}

static void test_finding(void **state)
{
    (void)state;
    struct route_match match;
    assert_int_equal(find("POST", "/v1/streams/orders", &match), ROUTE_FOUND);
    assert_ptr_equal(match.route, &routes[0]);
    assert_int_equal(match.n_params, 1);
    assert_slice(match.params[0], "orders");
    assert_int_equal(find("HEAD", "/v1/streams/orders/a%2Fb", &match), ROUTE_FOUND);
    assert_int_equal(match.n_params, 2);
    assert_slice(match.params[1], "a%2Fb");
    assert_int_equal(find("GET", "/", &match), ROUTE_FOUND);
    assert_int_equal(match.n_params, 0);
    static const char *const nowhere[] = {"/v1/streams",
                                          "/v1/streams/",
                                          "/v1/streams/a/b/c",
                                          "/v1/streams//a",
                                          "//",
                                          "/v1/streams/a/",
                                          "*",
                                          "/V1/streams/a",
                                          "/v1/hot/x/rulesy"};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++)
        assert_int_equal(find("GET", nowhere[i], &match), ROUTE_NOT_FOUND);
    assert_int_equal(find("GET", "/v1/streams/a", &match), ROUTE_METHOD);
    assert_string_equal(match.allow, "POST");
    assert_int_equal(find("post", "/v1/hot/a/rules", &match), ROUTE_METHOD);
    assert_string_equal(match.allow, "GET, HEAD, PUT, DELETE");
}

static void serve(struct http_request *request)
{
    route_serve(routes, N_ROUTES, &peer, request);
}

static void test_serving(void **state)
{
    (void)state;
    struct peer_answer answer = {0};
    peer_configure();
    peer.other = serve;
    peer_start();
    int fd = peer_connect();
    peer_say(fd, "POST /v1/streams/orders?x HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /v1/streams/orders HTTP/1.1\r\nHost: x\r\n\r\n"
                 "OPTIONS /v1/hot/a/rules HTTP/1.1\r\nHost: x\r\n\r\n"
                 "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
    peer_read_answer(fd, &answer, false);
    assert_true(answer.status == 200 && answer.body.n == 6);
    peer_read_answer(fd, &answer, false);
    assert_true(answer.status == 405 && peer_has(&answer, "\r\nAllow: POST\r\n"));
    peer_read_answer(fd, &answer, false);
    assert_true(answer.status == 204 && peer_has(&answer, "\r\nAllow: GET, HEAD, PUT, DELETE\r\n"));
    peer_read_answer(fd, &answer, false);
    assert_int_equal(answer.status, 404);
    assert_true(peer_has(&answer, "\r\nContent-Type: application/problem+json\r\n"));
    close(fd);
    peer_stop();
    peer_answer_fini(&answer);
}

static void test_percent_decoding(void **state)
{
    (void)state;
    char out[32];
    size_t n;
    assert_int_equal(http_percent_decode(SLICE_LIT("a%2Fb%00%c3%A9+"), out, &n), 0);
    assert_int_equal(n, 7);
    assert_memory_equal(out, "a/b\0\xc3\xa9+", 7);
    assert_int_equal(http_percent_decode(SLICE_LIT(""), out, &n), 0);
    assert_int_equal(n, 0);
    static const char *const bad[] = {"%", "%4", "a%", "%zz", "%4g", "%%41", "% 41", "a%4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(http_percent_decode(slice_of(bad[i]), out, &n), WEIR_SYNTAX);
}

static void test_queries_and_headers(void **state)
{
    (void)state;
    static const struct http_header headers[] = {
        {SLICE_LIT("Content-TYPE"), SLICE_LIT("a")},
        {SLICE_LIT("X-A"), SLICE_LIT("")},
        {SLICE_LIT("X-A"), SLICE_LIT("second")},
    };
    struct http_request request = {
        .query = SLICE_LIT("acks=1&ack=stored&b=&c&ack=2&&d=x=y"),
        .headers = headers,
        .n_headers = 3,
    };
    assert_slice(http_query(&request, "ack"), "stored");
    assert_slice(http_query(&request, "acks"), "1");
    assert_slice(http_query(&request, "d"), "x=y");
    assert_slice(http_query(&request, "b"), "");
    assert_non_null(http_query(&request, "c").p);
    assert_null(http_query(&request, "a").p);
    assert_null(http_query(&request, "e").p);
    assert_slice(http_header(&request, "content-type"), "a");
    assert_slice(http_header(&request, "x-a"), "");
    assert_non_null(http_header(&request, "x-a").p);
    assert_null(http_header(&request, "x-").p);
    assert_string_equal(http_status_text(202), "Accepted");
    assert_string_equal(http_status_text(599), "Unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finding),
        cmocka_unit_test(test_serving),
        cmocka_unit_test(test_percent_decoding),
        cmocka_unit_test(test_queries_and_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
