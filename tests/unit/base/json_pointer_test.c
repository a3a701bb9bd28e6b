/* json: JSON Pointer (with RFC 6901's own examples) and the raw elements of an array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/json.h"
#include "weir/err.h"

static struct json_parser *parser;
static char text[4096];

static struct json_value parse(const char *from)
{
    struct json_value root;
    struct json_error error;
    snprintf(text, sizeof text - JSON_PADDING, "%s", from);
    assert_int_equal(json_parse(parser, text, strlen(text), &root, &error), 0);
    return root;
}

static void test_the_examples_of_the_rfc(void **state)
{
    (void)state;
    struct json_value root =
                          parse("{\"foo\":[\"bar\",\"baz\"],\"\":0,\"a/b\":1,\"c%d\":2,\"e^f\":3,"
                                "\"g|h\":4,\"i\\\\j\":5,\"k\\\"l\":6,\" \":7,\"m~n\":8}"),
                      v;
    static const char *const pointers[] = {"/",     "/a~1b", "/c%d", "/e^f", "/g|h",
                                           "/i\\j", "/k\"l", "/ ",   "/m~0n"};
    for (unsigned i = 0; i < 9; i++) {
        assert_int_equal(json_pointer_check(slice_of(pointers[i])), 0);
        assert_true(json_pointer(root, slice_of(pointers[i]), &v));
        assert_int_equal(json_int(v), i);
    }
    assert_true(json_pointer(root, slice_of(""), &v));
    assert_int_equal(json_type(v), JSON_OBJECT);
    assert_true(json_pointer(root, slice_of("/foo/0"), &v));
    assert_true(slice_is(json_string(v), "bar"));
    assert_true(json_pointer(root, slice_of("/foo/1"), &v));
    assert_true(slice_is(json_string(v), "baz"));
}

static void test_what_is_not_there(void **state)
{
    (void)state;
    struct json_value root = parse("{\"a\":[1,2],\"b\":\"x\",\"m~0n\":1,\"~\":2,\"~1\":3}"), v;
    static const char *const missing[] = {
        "/c",           "/a/2", "/a/-",   "/a/00",
        "/a/01",        "/a/",  "/a/1x",  "/a/-1",
        "/b/0",         "/b/",  "/a/0/",  "/A",
        "/m~0n",        "/aa",  "/~01/x", "/a/18446744073709551616",
        "/a/4294967296"};
    for (unsigned i = 0; i < sizeof missing / sizeof missing[0]; i++)
        assert_false(json_pointer(root, slice_of(missing[i]), &v));
    assert_true(json_pointer(root, slice_of("/m~00n"), &v));
    assert_true(json_pointer(root, slice_of("/~0"), &v));
    assert_int_equal(json_int(v), 2);
    assert_true(json_pointer(root, slice_of("/~01"), &v));
    assert_int_equal(json_int(v), 3);
}

static void test_check(void **state)
{
    (void)state;
    static const char *const bad[] = {"a", "a/b", "/~", "/a~", "/~2", "/a/b~x", "~0"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(json_pointer_check(slice_of(bad[i])), WEIR_SYNTAX);
    static const char *const good[] = {"", "/", "//", "/~0~1", "/\xC3\xA9"};
    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(json_pointer_check(slice_of(good[i])), 0);
}

struct pieces {
    struct buf joined;
    unsigned n;
};

static void piece(void *context, struct slice raw)
{
    struct pieces *pieces = context;
    pieces->n++;
    buf_put_slice(&pieces->joined, raw);
    buf_put_char(&pieces->joined, '|');
}

static void split_is(const char *from, unsigned n, const char *joined)
{
    struct pieces pieces = {{0}, 0};
    parse(from);
    json_split_array(slice_of(from), piece, &pieces);
    assert_int_equal(pieces.n, n);
    assert_string_equal(buf_str(&pieces.joined), joined);
    buf_fini(&pieces.joined);
}

static void test_split(void **state)
{
    (void)state;
    split_is("[]", 0, "");
    split_is(" [ \n ] ", 0, "");
    split_is("[1]", 1, "1|");
    split_is(" [ {\"a\" : [1, 2]} ,\t\"x,]\" , null,[[],[]],\"\" ] ", 5,
             "{\"a\" : [1, 2]}|\"x,]\"|null|[[],[]]|\"\"|");
    split_is("[\"\\\"\",\"\\\\\",\"]\\\\\\\"[\",{\"}\":\"{\"}]", 4,
             "\"\\\"\"|\"\\\\\"|\"]\\\\\\\"[\"|{\"}\":\"{\"}|");
}

static int start(void **state)
{
    (void)state;
    parser = json_parser_create();
    return 0;
}

static int end(void **state)
{
    (void)state;
    json_parser_destroy(parser);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_examples_of_the_rfc),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_split),
    };
    return cmocka_run_group_tests(tests, start, end);
}
