/* client_test.c: the blocking client, against our server and against canned answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "http/client.h"
#include "peer.h"

static char url[256], unix_path[64];

static int setup(void **state)
{
    (void)state;
    peer_configure();
    snprintf(unix_path, sizeof unix_path, "/tmp/weir-client-%d.sock", (int)getpid());
    peer.config.unix_path = unix_path;
    peer_start();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop();
    return 0;
}

static const char *url_of(const char *target)
{
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", peer.port, target);
    return url;
}

static void test_calls(void **state)
{
    (void)state;
    struct buf body = {0}, large = {0};
    struct diag diag;
    int status = 0;
    struct http_client_request request = {
        .url = url_of("/echo?a"), .method = "GET", .timeout_ms = 10000};
    buf_put_str(&body, "what was there before");
    assert_int_equal(http_client_call(&request, &status, &body, &diag), 0);
    assert_int_equal(status, 200);
    assert_string_equal(buf_str(&body), "GET /echo?a 0:");
    for (unsigned i = 0; i < 3000000; i++)
        buf_put_char(&large, (char)('a' + i % 26));
    request = (struct http_client_request){.unix_path = unix_path,
                                           .target = "/take",
                                           .method = "POST",
                                           .token = "secret",
                                           .content_type = "text/plain",
                                           .body = buf_slice(&large),
                                           .timeout_ms = 10000};
    assert_int_equal(http_client_call(&request, &status, &body, &diag), 0);
    assert_int_equal(status, 200);
    assert_int_equal(body.n, strlen("POST /take 3000000:") + large.n);
    assert_memory_equal(body.p + body.n - large.n, large.p, large.n);
    assert_int_equal(atomic_load(&peer.locals), 1);
    request =
        (struct http_client_request){.url = url_of("/none"), .method = "HEAD", .timeout_ms = 10000};
    assert_int_equal(http_client_call(&request, &status, &body, &diag), 0);
    assert_true(status == 404 && body.n == 0);
    buf_fini(&body);
    buf_fini(&large);
}

static void test_no_answer(void **state)
{
    (void)state;
    struct buf body = {0};
    struct diag diag;
    int status = 0;
    uint64_t began = clock_mono_ns();
    struct http_client_request request = {
        .url = url_of("/held"), .method = "GET", .timeout_ms = 50};
    assert_int_equal(http_client_call(&request, &status, &body, &diag), WEIR_TIMEOUT);
    assert_non_null(strstr(diag.text, "50 ms"));
    assert_true(clock_mono_ns() - began >= 50000000);
    request.url = "http://127.0.0.1:1/";
    assert_int_equal(http_client_call(&request, &status, &body, &diag), WEIR_UNAVAILABLE);
    assert_non_null(strstr(diag.text, "http://127.0.0.1:1/"));
    request = (struct http_client_request){
        .unix_path = "/nowhere/weir.sock", .method = "GET", .timeout_ms = 50};
    assert_int_equal(http_client_call(&request, &status, &body, &diag), WEIR_UNAVAILABLE);
    assert_int_equal(status, 0);
    assert_int_equal(body.n, 0);
}

static void test_bad_requests(void **state)
{
    (void)state;
    static const char *const bad[] = {"https://a/",      "http://",        "http:///x",
                                      "127.0.0.1:80",    "http://a b/",    "http://u@a/",
                                      "http://a:x/",     "http://a:/",     "http://a/b c",
                                      "http://a/\r\nX:", "http://a:1?b",   "http://a/#c",
                                      "http://[::1/",    "http://a:99999/"};
    struct buf body = {0};
    struct diag diag;
    int status;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_client_request request = {.url = bad[i], .method = "GET", .timeout_ms = 50};
        assert_int_equal(http_client_call(&request, &status, &body, &diag), WEIR_INVALID);
    }
    struct http_client_request request = {
        .url = url_of("/"), .method = "GET", .token = "a\r\nb", .timeout_ms = 50};
    assert_int_equal(http_client_call(&request, &status, &body, &diag), WEIR_INVALID);
}

/* ---- answers of others ---- */

struct canned {
    const char *text;
    int rc, status;
    const char *body;
};

static int canned_fd;

static void *serve_canned(void *argument)
{
    const struct canned *canned = argument;
    char in[4096];
    int fd = accept(canned_fd, NULL, NULL);
    size_t n = 0;
    while (n < 4 || memcmp(in + n - 4, "\r\n\r\n", 4) != 0)
        n += (size_t)read(fd, in + n, 1);
    for (const char *at = canned->text; *at; at++) /* a byte at a time */
        send(fd, at, 1, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void test_answers_of_others(void **state)
{
    (void)state;
    static const struct canned all[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 0, 200, "hi"},
        {"HTTP/1.1 200\r\n\r\nuntil the end", 0, 200, "until the end"},
        {"HTTP/1.0 404 Not Found\r\n\r\n", 0, 404, ""},
        {"HTTP/1.1 204 No Content\r\n\r\n", 0, 204, ""},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", 0, 201,
         "x"},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n1\r\n!\r\n0\r\nA: "
         "b\r\n\r\n",
         0, 200, "hi!"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", WEIR_NET, 0, NULL},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", WEIR_NET, 0, NULL},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", WEIR_NET, 0, NULL},
        {"HTTP/1.1 200 OK\r\nContent-Len", WEIR_NET, 0, NULL},
        {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", WEIR_NET, 0, NULL},
        {"", WEIR_NET, 0, NULL},
        {"SSH-2.0-OpenSSH_9.2\r\n", WEIR_NET, 0, NULL},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", WEIR_TOO_LARGE, 0, NULL},
    };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t at_bytes = sizeof at;
    canned_fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(canned_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(canned_fd, 5), 0);
    getsockname(canned_fd, (struct sockaddr *)&at, &at_bytes);
    snprintf(url, sizeof url, "http://127.0.0.1:%u", ntohs(at.sin_port));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct http_client_request request = {.url = url, .method = "GET", .timeout_ms = 10000};
        struct buf body = {0};
        struct diag diag = {0};
        pthread_t thread;
        int status = 0;
        pthread_create(&thread, NULL, serve_canned, (void *)(uintptr_t)&all[i]);
        int rc = http_client_call(&request, &status, &body, &diag);
        pthread_join(thread, NULL);
        if (rc != all[i].rc)
            print_message("%s: %s\n", all[i].text, diag.text);
        assert_int_equal(rc, all[i].rc);
        assert_int_equal(status, all[i].status);
        if (all[i].body)
            assert_string_equal(buf_str(&body), all[i].body);
        else
            assert_non_null(strstr(diag.text, url));
        buf_fini(&body);
    }
    close(canned_fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_calls),
        TEST(test_no_answer),
        TEST(test_bad_requests),
        TEST(test_answers_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
