/* problem, utf8, trace: an error's text is always UTF-8, and what is no trace context is left out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "gateway/problem.h"
#include "gateway/trace.h"
#include "gateway/utf8.h"
#include "record/attributes.h"

static bool valid(const char *s)
{
    return utf8_valid(slice_of(s));
}

static void test_utf8(void **state)
{
    (void)state;
    const char *good[] = {"",
                          "plain",
                          "\x7f",
                          "\xc2\x80",
                          "\xdf\xbf",
                          "\xe0\xa0\x80",
                          "\xed\x9f\xbf",
                          "\xee\x80\x80",
                          "\xef\xbf\xbf",
                          "\xf0\x90\x80\x80",
                          "\xf4\x8f\xbf\xbf",
                          "a\xf0\x9f\x98\xad-b"};
    const char *bad[] = {"\x80",
                         "\xbf",
                         "\xc0\x80",
                         "\xc1\xbf",
                         "\xc2",
                         "\xc2\x7f",
                         "\xe0\x9f\xbf",
                         "\xe0\xa0",
                         "\xed\xa0\x80",
                         "\xed\xbf\xbf",
                         "\xf0\x8f\xbf\xbf",
                         "\xf4\x90\x80\x80",
                         "\xf5\x80\x80\x80",
                         "\xff",
                         "\xf0\x9f\x98",
                         "ok\xfe"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(valid(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(valid(bad[i]));
    assert_int_equal(utf8_valid_prefix(slice_of("ab\xc3\xa9\xff")), 4);
}

static void test_a_detail_is_utf8_whatever_went_in(void **state)
{
    (void)state;
    struct problem problem;
    char text[1000];
    assert_int_equal(problem_set(&problem, 404, "x", "no \xff stream \xc3\xa9\xc3"), 404);
    assert_string_equal(problem.detail, "no ? stream \xc3\xa9?");
    for (size_t n = 590; n < 610; n++) { /* cut off at any place of a character */
        memset(text, 'x', sizeof(text));
        memcpy(text + n, "\xf0\x9f\x98\xad\xf0\x9f\x98\xad", 8);
        text[n + 8] = 0;
        problem_set(&problem, 400, "x", "%s", text);
        assert_true(valid(problem.detail));
        assert_true(strlen(problem.detail) < sizeof(problem.detail));
        assert_null(strchr(problem.detail, '?'));
        problem_prefix(&problem, "line %d: ", 12345);
        assert_true(valid(problem.detail));
        assert_memory_equal(problem.detail, "line 12345: xxx", 15);
    }
}

static void test_problem_json(void **state)
{
    (void)state;
    struct problem problem;
    struct buf out = {0};
    struct json_parser *parser = json_parser_create();
    struct json_value root, value;
    struct json_error error;
    problem_set(&problem, 400, "not_json", "a \"quote\"\nand a line");
    problem.line = 3;
    problem.offset = 0;
    problem_open_json(&problem, &out);
    problem_close_json(&out);
    size_t n = out.n;
    buf_reserve(&out, JSON_PADDING);
    assert_int_equal(json_parse(parser, out.p, n, &root, &error), 0);
    assert_true(json_member(root, "status", &value) && json_int(value) == 400);
    assert_true(json_member(root, "title", &value) && slice_is(json_string(value), "Bad Request"));
    assert_true(json_member(root, "type", &value) && slice_is(json_string(value), "about:blank"));
    assert_true(json_member(root, "detail", &value) &&
                slice_is(json_string(value), "a \"quote\"\nand a line"));
    assert_true(json_member(root, "line", &value) && json_int(value) == 3);
    assert_true(json_member(root, "offset", &value) && json_int(value) == 0);
    assert_false(json_member(root, "index", &value));
    json_parser_destroy(parser);
    buf_fini(&out);
}

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static void test_trace_parents(void **state)
{
    (void)state;
    const char *good[] = {PARENT, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
                          "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes"};
    const char *bad[] = {"",
                         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
                         "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                         "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                         "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                         "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                         "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                         "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                         "zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                         "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(trace_parent_valid(slice_of(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(trace_parent_valid(slice_of(bad[i])));
}

static void test_trace_attributes(void **state)
{
    (void)state;
    struct buf encoded = {0};
    struct slice value;
    trace_attributes(slice_of(PARENT), slice_of("a=1,b=2"), &encoded);
    assert_true(attributes_get(buf_slice(&encoded), "traceparent", &value));
    assert_true(slice_is(value, PARENT));
    assert_true(attributes_get(buf_slice(&encoded), "tracestate", &value));
    assert_true(slice_is(value, "a=1,b=2"));
    buf_clear(&encoded);
    trace_attributes(slice_of("nonsense"), slice_of("a=1"), &encoded);
    assert_int_equal(encoded.n, 0);
    trace_attributes(slice_of(PARENT), slice_of("a=\x01"), &encoded);
    assert_false(attributes_get(buf_slice(&encoded), "tracestate", &value));
    buf_fini(&encoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_a_detail_is_utf8_whatever_went_in),
        cmocka_unit_test(test_problem_json),
        cmocka_unit_test(test_trace_parents),
        cmocka_unit_test(test_trace_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
