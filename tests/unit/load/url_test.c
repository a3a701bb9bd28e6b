/* url: what is taken, what is refused, and that nothing can smuggle a line into the request. */
#include "cmocka_all.h"

#include <string.h>

#include "load/url.h"

static void check(const char *text, const char *host, const char *port, const char *authority,
                  const char *target)
{
    struct load_url url;
    struct diag diag;
    assert_int_equal(load_url_parse(text, &url, &diag), 0);
    assert_string_equal(url.host, host);
    assert_string_equal(url.port, port);
    assert_string_equal(url.authority, authority);
    assert_string_equal(url.target, target);
}

static void test_parts(void **state)
{
    (void)state;
    check("http://127.0.0.1:8080", "127.0.0.1", "8080", "127.0.0.1:8080", "/v1/streams/events");
    check("http://127.0.0.1:8080/", "127.0.0.1", "8080", "127.0.0.1:8080", "/v1/streams/events");
    check("http://localhost", "localhost", "80", "localhost", "/v1/streams/events");
    check("http://[::1]:9/v1/streams/orders?ack=stored", "::1", "9", "[::1]:9",
          "/v1/streams/orders?ack=stored");
    check("http://[::1]", "::1", "80", "[::1]", "/v1/streams/events");
    check("http://h:1?ack=received", "h", "1", "h:1", "/v1/streams/events?ack=received");
    check("http://h:00080/x#part", "h", "80", "h:00080", "/x");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "127.0.0.1:80",
        "https://h",
        "ftp://h",
        "http://",
        "http://:80",
        "http://h:",
        "http://h:0",
        "http://h:65536",
        "http://h:8x",
        "http://h:123456",
        "http://[::1",
        "http://[]:80",
        "http://[::1]8",
        "http://u@h/",
        "http://h/a b",
        "http://h/a\r\nX: y",
        "http://h\n/",
        "http://h/\x7f",
        "HTTP://h",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct load_url url;
        memset(&url, 0x5a, sizeof url);
        struct load_url before = url;
        struct diag diag = {0};
        assert_int_not_equal(load_url_parse(bad[i], &url, &diag), 0);
        assert_true(strlen(diag.text) > 10);
        assert_memory_equal(&url, &before, sizeof url); /* untouched on failure */
    }
    char long_path[4000] = "http://h/";
    memset(long_path + 9, 'a', sizeof long_path - 10);
    struct load_url url;
    assert_int_not_equal(load_url_parse(long_path, &url, NULL), 0);
    char long_host[400] = "http://";
    memset(long_host + 7, 'a', sizeof long_host - 8);
    assert_int_not_equal(load_url_parse(long_host, &url, NULL), 0);
}

static void test_stream_and_query(void **state)
{
    (void)state;
    struct load_url url;
    assert_int_equal(load_url_parse("http://h/v1/streams/orders?x=1", &url, NULL), 0);
    assert_true(slice_is(load_url_stream(&url), "orders"));
    assert_int_equal(load_url_add_query(&url, "ack", "stored", NULL), 0);
    assert_string_equal(url.target, "/v1/streams/orders?x=1&ack=stored");
    assert_int_equal(load_url_parse("http://h", &url, NULL), 0);
    assert_int_equal(load_url_add_query(&url, "ack", "stored", NULL), 0);
    assert_string_equal(url.target, "/v1/streams/events?ack=stored");
    assert_true(slice_is(load_url_stream(&url), "events"));
    assert_int_equal(load_url_parse("http://h/other", &url, NULL), 0);
    assert_int_equal(load_url_stream(&url).n, 0);

    memset(url.target, 'a', sizeof url.target - 4);
    url.target[0] = '/';
    url.target[sizeof url.target - 4] = 0;
    char before[sizeof url.target];
    memcpy(before, url.target, sizeof before);
    assert_int_not_equal(load_url_add_query(&url, "ack", "stored", NULL), 0);
    assert_string_equal(url.target, before);
}

static void test_resolve(void **state)
{
    (void)state;
    struct load_url url;
    struct addrinfo *list;
    struct diag diag;
    assert_int_equal(load_url_parse("http://127.0.0.1:81", &url, NULL), 0);
    assert_int_equal(load_url_resolve(&url, &list, &diag), 0);
    assert_int_equal(list->ai_family, AF_INET);
    freeaddrinfo(list);
    assert_int_equal(load_url_parse("http://[::1]:81", &url, NULL), 0);
    assert_int_equal(load_url_resolve(&url, &list, &diag), 0);
    assert_int_equal(list->ai_family, AF_INET6);
    freeaddrinfo(list);
    assert_int_equal(load_url_parse("http://127.0.0.1.256:81", &url, NULL), 0);
    assert_int_equal(load_url_resolve(&url, &list, &diag), WEIR_UNAVAILABLE);
    assert_non_null(strstr(diag.text, "127.0.0.1.256"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_stream_and_query),
        cmocka_unit_test(test_resolve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
