/* json: what is read, what is refused and where, and that both ways of reading agree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/json_scan.h"
#include "base/mem.h"
#include "weir/err.h"

static struct json_parser *parser;
static char padded[1 << 21];

static int parse(const char *text, size_t n, struct json_value *root, struct json_error *error)
{
    assert_true(n + JSON_PADDING <= sizeof padded);
    memcpy(padded, text, n);
    /* What follows a text must not matter: digits would go on with a number. */
    memset(padded + n, '7', JSON_PADDING);
    return json_parse(parser, padded, n, root, error);
}

static struct json_value good(const char *text)
{
    struct json_value root;
    struct json_error error = {0, ""};
    int err = parse(text, strlen(text), &root, &error);
    if (err)
        fail_msg("%s: refused at %llu: %s", text, (unsigned long long)error.offset, error.reason);
    return root;
}

static void bad_bytes(const char *text, size_t n, uint64_t offset, const char *reason)
{
    struct json_value root;
    struct json_error error = {12345, ""};
    assert_int_equal(parse(text, n, &root, &error), WEIR_SYNTAX);
    if (!strstr(error.reason, reason) || error.offset != offset)
        fail_msg("%.*s: at %llu: %s; expected %llu: %s", (int)n, text,
                 (unsigned long long)error.offset, error.reason, (unsigned long long)offset,
                 reason);
}

static void bad(const char *text, uint64_t offset, const char *reason)
{
    bad_bytes(text, strlen(text), offset, reason);
}

static void test_types(void **state)
{
    (void)state;
    struct json_value
        root =
            good(" {\"a\":null,\"b\":true,\"c\":false,\"d\":-7,\"e\":2.5,\"f\":\"x\",\"g\":[1,2,3],"
                 "\"h\":{}} "),
        v;
    assert_int_equal(json_type(root), JSON_OBJECT);
    assert_int_equal(json_count(root), 8);
    assert_true(json_member(root, "a", &v));
    assert_int_equal(json_type(v), JSON_NULL);
    assert_true(json_member(root, "b", &v));
    assert_true(json_bool(v));
    assert_true(json_member(root, "c", &v));
    assert_false(json_bool(v));
    assert_true(json_member(root, "d", &v));
    assert_int_equal(json_type(v), JSON_INT);
    assert_int_equal(json_int(v), -7);
    assert_true(json_double(v) == -7.0);
    assert_true(json_member(root, "e", &v));
    assert_int_equal(json_type(v), JSON_DOUBLE);
    assert_true(json_double(v) == 2.5);
    assert_true(json_member(root, "f", &v));
    assert_true(slice_is(json_string(v), "x"));
    assert_true(json_member(root, "g", &v));
    assert_int_equal(json_type(v), JSON_ARRAY);
    assert_int_equal(json_count(v), 3);
    assert_true(json_member(root, "h", &v));
    assert_int_equal(json_count(v), 0);
    assert_false(json_member(root, "i", &v));
    assert_false(json_member(root, "", &v));
}

static void test_iteration_keeps_the_order_of_the_text(void **state)
{
    (void)state;
    struct json_value root = good("{\"z\":[[],{}],\"y\":1.5,\"x\":-1,\"w\":{\"z\":1}}"), v;
    struct json_iter iter = json_iter(root);
    struct slice name;
    const char *expected[] = {"z", "y", "x", "w"};
    for (unsigned i = 0; i < 4; i++) {
        assert_true(json_next(&iter, &name, &v));
        assert_true(slice_is(name, expected[i]));
    }
    assert_false(json_next(&iter, &name, &v));
    assert_false(json_next(&iter, &name, &v));
}

static void test_scalars_as_documents(void **state)
{
    (void)state;
    assert_int_equal(json_int(good("12")), 12);
    assert_true(json_double(good("1.5")) == 1.5);
    assert_true(slice_is(json_string(good("\"x\"")), "x"));
    assert_int_equal(json_type(good("null")), JSON_NULL);
    bad("", 0, "the text ends");
    bad("  \n", 3, "the text ends");
    bad("1 2", 2, "the end of the text");
}

static void test_int64_is_exact_and_beyond_it_is_refused(void **state)
{
    (void)state;
    assert_true(json_int(good("9223372036854775807")) == INT64_MAX);
    assert_true(json_int(good("-9223372036854775808")) == INT64_MIN);
    assert_int_equal(json_int(good("-0")), 0);
    assert_int_equal(json_type(good("-0")), JSON_INT);
    assert_int_equal(json_type(good("-0.0")), JSON_DOUBLE);
    bad("9223372036854775808", 0, "integer outside");
    bad("[1, 18446744073709551615]", 4, "integer outside");
    bad("{\"a\":18446744073709551616}", 5, "integer outside");
    bad("{\"a\":{\"b\":[1,{\"c\":9223372036854775808}]}}", 18, "integer outside");
    bad("-9223372036854775809", 0, "integer outside");
    bad("123456789012345678901234567890", 0, "integer outside");
    /* With a point or an exponent it is a double, and those are rounded. */
    assert_true(json_double(good("9223372036854775808.0")) == 9223372036854775808.0);
    assert_true(json_double(good("1e19")) == 1e19);
}

static void test_doubles_beyond_the_range_are_refused(void **state)
{
    (void)state;
    bad("1e400", 0, "beyond the range");
    bad("[-1e309]", 1, "beyond the range");
    bad("1e99999999999999999999999", 0, "beyond the range");
    bad("1.7976931348623159e308", 0, "beyond the range");
    assert_true(json_double(good("1.7976931348623157e308")) == 1.7976931348623157e308);
    assert_true(json_double(good("1e-400")) == 0);
    assert_true(json_double(good("5e-324")) == 5e-324);
    assert_true(json_double(good("0e99999999999999999999")) == 0);
}

static void test_malformed_numbers(void **state)
{
    (void)state;
    bad("01", 0, "leading zero");
    bad("-01", 0, "leading zero");
    bad("-", 0, "digit after '-'");
    bad("1.", 0, "digit after '.'");
    bad("1.e5", 0, "digit after '.'");
    bad("1e", 0, "digit in its exponent");
    bad("1e+", 0, "digit in its exponent");
    bad("+1", 0, "unexpected '+'");
    bad(".5", 0, "unexpected '.'");
    bad("0x1", 1, "unexpected 'x'");
    bad("NaN", 0, "unexpected 'N'");
    bad("Infinity", 0, "unexpected 'I'");
    bad("1a", 1, "unexpected 'a'");
}

static void test_structure(void **state)
{
    (void)state;
    bad("{\"a\":1", 6, "',' or '}'");
    bad("{\"a\" 1}", 5, "':'");
    bad("{\"a\":1,}", 7, "member name");
    bad("{a:1}", 1, "member name");
    bad("{,}", 1, "member name");
    bad("[1,]", 3, "a value");
    bad("[1 2]", 3, "',' or ']'");
    bad("[1}", 2, "',' or ']'");
    bad("{}}", 2, "the end");
    bad("[", 1, "a value");
    bad("tru", 0, "unexpected 't'");
    bad("nul", 0, "unexpected 'n'");
    bad("[truefalse]", 5, "',' or ']'");
    bad("\"abc", 4, "does not end");
    bad("// x\n1", 0, "unexpected '/'");
    bad("\xEF\xBB\xBF{}", 0, "byte order mark");
    bad("{}\f", 2, "0x0c");
    bad_bytes("{}\0", 3, 2, "0x00");
    bad_bytes("\0", 1, 0, "0x00");
    bad_bytes("[1\0]", 4, 2, "0x00");
}

static void test_strings(void **state)
{
    (void)state;
    struct slice s = json_string(good("\"a\\u0000b\\n\\\"\\\\\\/\\ud83d\\ude00\\u20ac\""));
    assert_true(slice_equal(s, SLICE_LIT("a\0b\n\"\\/\xF0\x9F\x98\x80\xE2\x82\xAC")));
    assert_true(slice_is(json_string(good("\"\xF4\x8F\xBF\xBF\"")), "\xF4\x8F\xBF\xBF"));
    bad("\"a\\x\"", 2, "no such escape");
    bad("\"\\u12g4\"", 1, "four hex digits");
    bad("\"\\u12", 1, "four hex digits");
    bad("\"a\tb\"", 2, "control character 0x09");
    bad_bytes("\"a\0b\"", 5, 2, "control character 0x00");
}

static void test_lone_surrogates(void **state)
{
    (void)state;
    bad("\"\\ud800\"", 1, "surrogate");
    bad("\"ab\\udc00\"", 3, "surrogate");
    bad("\"\\udc00\\ud800\"", 1, "surrogate");
    bad("\"\\ud800\\ud800\\udc00\"", 1, "surrogate");
    bad("\"\\udc00\\udc00\"", 1, "surrogate");
    bad("\"\\ud800x\"", 1, "surrogate");
    bad("\"\\ud800\\u0041\"", 1, "surrogate");
    bad("{\"\\udfff\":1}", 2, "surrogate");
    bad("[\"\xED\x95\x9C\",\"\\udead\"]", 8, "surrogate");
    assert_true(slice_is(json_string(good("\"\\ud7ff\\ue000\"")), "\xED\x9F\xBF\xEE\x80\x80"));
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    static const char *const sequences[] = {
        "\x80",
        "\xBF",
        "\xC0\xAF",
        "\xC1\x81",
        "\xE0\x80\x80",
        "\xED\xA0\x80",
        "\xED\xBF\xBF",
        "\xF0\x80\x80\x80",
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xFE",
        "\xFF",
        "\xC3",
        "\xE2\x82",
        "\xF0\x9F\x98",
    };
    for (unsigned i = 0; i < sizeof sequences / sizeof sequences[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "[\"ab%s\"]", sequences[i]);
        bad(text, 4, "invalid UTF-8");
        snprintf(text, sizeof text, "{\"ab%s\":1}", sequences[i]);
        bad(text, 4, "invalid UTF-8");
        snprintf(text, sizeof text, "[1,%s]", sequences[i]);
        bad(text, 3, "unexpected byte");
    }
}

static void test_names(void **state)
{
    (void)state;
    bad("{\"a\\u0000\":1}", 3, "U+0000 in a member name");
    bad("[{\"x\":{\"\\u0000\":1}}]", 8, "U+0000 in a member name");
    good("{\"a\":\"\\u0000\"}");
    good("{\"\":1}");
}

static void test_duplicate_names(void **state)
{
    (void)state;
    bad("{\"a\":1,\"a\":2}", 7, "duplicate member name \"a\"");
    bad("{\"\":1,\"\":2}", 6, "duplicate member name \"\"");
    bad("{\"abcd\":1,\"abcde\":2,\"abcd\":3}", 20, "duplicate member name \"abcd\"");
    bad("{\"\\u0061\":1,\"a\":2}", 12, "duplicate member name \"a\"");
    bad("[0,{\"x\":{\"k\":[1,2],\"k\":2}}]", 19, "duplicate member name \"k\"");
    bad("{\"o\":{\"b\":1,\"b\":2},\"o\":3}", 12, "duplicate member name \"b\"");
    /* The same name in another object is not the same name. */
    good("{\"a\":{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]}}}");
    /* Names that agree in length and in their first bytes. */
    good("{\"abcd1\":1,\"abcd2\":2,\"abcd3\":3,\"abc\":4,\"ab\":5,\"a\":6,\"\":7,\"b\":8}");
    /* The first thing that is wrong is the one that is named. */
    bad("{\"a\":1,\"a\":9223372036854775808}", 7, "duplicate");
    bad("{\"a\":9223372036854775808,\"a\":1}", 5, "integer outside");
}

/* An object of n members "mI": I, then one more with the given name. */
static size_t big_object(char *out, unsigned n, const char *last)
{
    size_t at = 0;
    out[at++] = '{';
    for (unsigned i = 0; i < n; i++)
        at += (size_t)sprintf(out + at, "\"m%u\":{\"in\":[%u]},", i, i);
    at += (size_t)sprintf(out + at, "\"%s\":0}", last);
    return at;
}

static void test_duplicate_names_in_large_objects(void **state)
{
    (void)state;
    static char text[1 << 20];
    struct json_value root, v;
    struct json_error error;
    static const unsigned sizes[] = {7, 8, 9, 31, 32, 33, 1000, 30000};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t n = big_object(text, sizes[i], "other");
        assert_int_equal(parse(text, n, &root, &error), 0);
        assert_int_equal(json_count(root), sizes[i] + 1);
        assert_true(json_member(root, "other", &v));
        char first[16], middle[16];
        snprintf(first, sizeof first, "m0");
        snprintf(middle, sizeof middle, "m%u", sizes[i] / 2);
        n = big_object(text, sizes[i], first);
        bad_bytes(text, n, n - strlen(first) - 5, "duplicate member name \"m0\"");
        n = big_object(text, sizes[i], middle);
        bad_bytes(text, n, n - strlen(middle) - 5, "duplicate member name");
    }
}

static void test_a_long_duplicate_is_quoted_in_part(void **state)
{
    (void)state;
    /* 47 letters and then a four-byte character, so that the cut would fall inside it. */
    char name[128], text[400];
    memset(name, 'n', 47);
    strcpy(name + 47, "\xF0\x9F\x98\x80tail");
    snprintf(text, sizeof text, "{\"%s\":1,\"%s\":2}", name, name);
    struct json_value root;
    struct json_error error;
    assert_int_equal(parse(text, strlen(text), &root, &error), WEIR_SYNTAX);
    assert_non_null(strstr(error.reason, "nnn\"..."));
    for (size_t i = 0; error.reason[i]; i++)
        assert_true((unsigned char)error.reason[i] < 0x80);
    bad("{\"\\n\\u0001\":1,\"\\n\\u0001\":2}", 14, "\"\\n\\u0001\"");
}

static size_t nested(char *out, unsigned depth, const char *open, const char *inner,
                     const char *close)
{
    size_t at = 0;
    for (unsigned i = 0; i < depth; i++)
        at += (size_t)sprintf(out + at, "%s", open);
    at += (size_t)sprintf(out + at, "%s", inner);
    for (unsigned i = 0; i < depth; i++)
        at += (size_t)sprintf(out + at, "%s", close);
    return at;
}

static void test_depth(void **state)
{
    (void)state;
    static char text[1 << 20];
    struct json_value root;
    struct json_error error;
    static const struct {
        const char *open, *inner, *close;
    } shapes[] = {{"[", "", "]"},
                  {"[", "1", "]"},
                  {"{\"a\":", "1", "}"},
                  {"[{\"a\":1,\"b\":", "0", "}]"},
                  {"[0,", "1", "]"}};
    for (unsigned i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        unsigned per = i == 3 ? 2 : 1;
        size_t n =
            nested(text, JSON_DEPTH_MAX / per, shapes[i].open, shapes[i].inner, shapes[i].close);
        assert_int_equal(parse(text, n, &root, &error), 0);
        n = nested(text, JSON_DEPTH_MAX / per + 1, shapes[i].open, shapes[i].inner,
                   shapes[i].close);
        assert_int_equal(parse(text, n, &root, &error), WEIR_SYNTAX);
        assert_string_equal(error.reason, "nesting over 1024");
        assert_int_equal(error.offset, JSON_DEPTH_MAX / per * strlen(shapes[i].open));
    }
    memset(text, '[', sizeof text);
    assert_int_equal(parse(text, sizeof text, &root, &error), WEIR_SYNTAX);
    assert_int_equal(error.offset, JSON_DEPTH_MAX);
}

static void test_a_parser_goes_on_after_errors_and_sizes(void **state)
{
    (void)state;
    struct json_value root;
    struct json_error error;
    static char text[1 << 20];
    for (unsigned round = 0; round < 3; round++) {
        bad("{\"a\":", 5, "a value");
        size_t n = big_object(text, 30000, "z");
        assert_int_equal(parse(text, n, &root, &error), 0);
        memset(text, ' ', sizeof text);
        text[sizeof text - 1] = '5';
        assert_int_equal(parse(text, sizeof text, &root, &error), 0);
        assert_int_equal(json_int(root), 5);
        assert_int_equal(json_int(good("3")), 3);
    }
}

static void test_hostile_names_take_linear_time(void **state)
{
    (void)state;
    /* Names that agree in length and first bytes: comparing them pairwise would take 5 * 10^9
     * steps, and the test would time out. */
    static char text[1 << 21];
    struct json_value root;
    struct json_error error;
    size_t at = 0;
    text[at++] = '{';
    for (unsigned i = 0; i < 100000; i++)
        at += (size_t)sprintf(text + at, "%s\"aaaa%06u\":1", i ? "," : "", i);
    text[at++] = '}';
    assert_int_equal(parse(text, at, &root, &error), 0);
    assert_int_equal(json_count(root), 100000);
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
    json_parser_destroy(NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_iteration_keeps_the_order_of_the_text),
        cmocka_unit_test(test_scalars_as_documents),
        cmocka_unit_test(test_int64_is_exact_and_beyond_it_is_refused),
        cmocka_unit_test(test_doubles_beyond_the_range_are_refused),
        cmocka_unit_test(test_malformed_numbers),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_lone_surrogates),
        cmocka_unit_test(test_invalid_utf8),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_duplicate_names),
        cmocka_unit_test(test_duplicate_names_in_large_objects),
        cmocka_unit_test(test_a_long_duplicate_is_quoted_in_part),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_a_parser_goes_on_after_errors_and_sizes),
        cmocka_unit_test(test_hostile_names_take_linear_time),
    };
    return cmocka_run_group_tests(tests, start, end);
}
