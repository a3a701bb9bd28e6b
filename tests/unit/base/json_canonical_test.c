/* json: the canonical form, doubles as text, the content hash, and strings as JSON writes them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"

static struct json_parser *parser;

static struct json_value parse(struct buf *text)
{
    struct json_value root;
    struct json_error error = {0, ""};
    size_t n = text->n;
    buf_reserve(text, JSON_PADDING);
    if (json_parse(parser, text->p, n, &root, &error))
        fail_msg("%.200s: refused at %llu: %s", text->p, (unsigned long long)error.offset,
                 error.reason);
    return root;
}

static void canonical_is(const char *text, const char *expected)
{
    struct buf in = {0}, out = {0};
    buf_put_str(&in, text);
    json_canonical(parse(&in), &out);
    assert_string_equal(buf_str(&out), expected);
    buf_fini(&in);
    buf_fini(&out);
}

static void test_members_are_sorted_by_their_bytes(void **state)
{
    (void)state;
    canonical_is(" { \"b\" : 1 , \"a\" : [ ] , \"\" : { } } ", "{\"\":{},\"a\":[],\"b\":1}");
    canonical_is("{\"aa\":1,\"a\":2,\"B\":3,\"a\\u0001\":4}",
                 "{\"B\":3,\"a\":2,\"a\\u0001\":4,\"aa\":1}");
    /* UTF-16 would put the surrogate pair before U+FF5E; bytes do not. */
    canonical_is("{\"\\ud83d\\ude00\":1,\"\\uff5e\":2}",
                 "{\"\xEF\xBD\x9E\":2,\"\xF0\x9F\x98\x80\":1}");
    canonical_is("[{\"b\":{\"d\":1,\"c\":2},\"a\":[{\"z\":0,\"y\":0}]}]",
                 "[{\"a\":[{\"y\":0,\"z\":0}],\"b\":{\"c\":2,\"d\":1}}]");
}

static void test_many_members(void **state)
{
    (void)state;
    struct buf in = {0}, out = {0}, expected = {0};
    for (unsigned n = 15; n < 2000; n = n * 2 + 1) {
        buf_clear(&in);
        buf_clear(&out);
        buf_clear(&expected);
        for (unsigned i = 0; i < n; i++) {
            buf_printf(&in, "%c\"m%05u\":{\"y\":[],\"x\":%u}", i ? ',' : '{', (i * 7919u + 5) % n,
                       i);
            buf_printf(&expected, "%c\"m%05u\":{\"x\":", i ? ',' : '{', i);
            unsigned at = 0;
            while ((at * 7919u + 5) % n != i)
                at++;
            buf_printf(&expected, "%u,\"y\":[]}", at);
        }
        buf_put_char(&in, '}');
        buf_put_char(&expected, '}');
        json_canonical(parse(&in), &out);
        assert_string_equal(buf_str(&out), buf_str(&expected));
    }
    buf_fini(&in);
    buf_fini(&out);
    buf_fini(&expected);
}

static void test_the_deepest_document(void **state)
{
    (void)state;
    struct buf in = {0}, out = {0};
    for (unsigned i = 0; i < 512; i++)
        buf_put_str(&in, "[{\"a\":");
    buf_put_char(&in, '1');
    for (unsigned i = 0; i < 512; i++)
        buf_put_str(&in, "}]");
    json_canonical(parse(&in), &out);
    assert_true(slice_equal(buf_slice(&in), buf_slice(&out)));
    buf_fini(&in);
    buf_fini(&out);
}

static void test_numbers(void **state)
{
    (void)state;
    canonical_is("[9223372036854775807,-9223372036854775808,-0,0]",
                 "[9223372036854775807,-9223372036854775808,0,0]");
    canonical_is("[1.0,1e0,-0.0,0.10,1e5,123e-2]", "[1.0,1.0,-0.0,0.1,100000.0,1.23]");
}

static void test_strings(void **state)
{
    (void)state;
    canonical_is("\"\\u0061\\/\\u00e9\\u007f\\ud83d\\ude00\"",
                 "\"a/\xC3\xA9\x7F\xF0\x9F\x98\x80\"");
    canonical_is("\"\\u0000\\u0001\\u0008\\u0009\\u000a\\u000b\\u000c\\u000d\\u001f\\\"\\\\\"",
                 "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\\"");
}

static void double_is(double v, const char *expected)
{
    struct buf out = {0};
    buf_put_double(&out, v);
    assert_string_equal(buf_str(&out), expected);
    buf_fini(&out);
}

static void test_the_layout_of_doubles(void **state)
{
    (void)state;
    double_is(0, "0.0");
    double_is(-0.0, "-0.0");
    double_is(1, "1.0");
    double_is(-1.5, "-1.5");
    double_is(0.1, "0.1");
    double_is(100, "100.0");
    double_is(123456.789, "123456.789");
    double_is(1e15, "1000000000000000.0");
    double_is(9999999999999998, "9999999999999998.0");
    double_is(1e16, "1e+16");
    double_is(1.2345e16, "1.2345e+16");
    double_is(0.0001, "0.0001");
    double_is(0.00012345, "0.00012345");
    double_is(0.00001, "1e-05");
    double_is(1.5e-7, "1.5e-07");
    double_is(5e-324, "5e-324");
    double_is(1.7976931348623157e308, "1.7976931348623157e+308");
    double_is(-2.2250738585072014e-308, "-2.2250738585072014e-308");
    double_is(5.684341886080802e-14, "5.684341886080802e-14");
    double_is(9007199254740993.0, "9007199254740992.0");
    double_is(INFINITY, "null");
    double_is(NAN, "null");
}

static void test_doubles_read_back(void **state)
{
    (void)state;
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : hash_process_seed();
    print_message("WEIR_SEED=%llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t bits = hash64_seeded(&i, sizeof i, seed);
        double v;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v))
            continue;
        char out[JSON_DOUBLE_TEXT + 1];
        size_t n = json_format_double(v, out);
        assert_true(n <= 24);
        out[n] = '\0';
        assert_true(strpbrk(out, ".e") != NULL);
        double back = strtod(out, NULL);
        assert_memory_equal(&back, &v, sizeof v);
        /* No shorter text does: one digit fewer reads back as another double. */
        unsigned digits = 0;
        for (size_t k = 0; k < n && out[k] != 'e'; k++)
            digits += out[k] >= '0' && out[k] <= '9';
        if (digits > 1 && v != 0 && fabs(v) >= 1e16) {
            char shorter[40];
            snprintf(shorter, sizeof shorter, "%.*e", (int)digits - 2, v);
            assert_true(strtod(shorter, NULL) != v);
        }
    }
}

static void test_equal_values_have_equal_hashes(void **state)
{
    (void)state;
    static const char *const same[] = {
        "{\"a\":1,\"b\":[\"\xC3\xA9\",1.5]}",
        "{ \"b\" : [ \"\\u00e9\" , 15e-1 ] , \"\\u0061\" : 1 }",
    };
    static const char *const other[] = {"{\"a\":1.0,\"b\":[\"\xC3\xA9\",1.5]}",
                                        "{\"a\":1,\"b\":[1.5,\"\xC3\xA9\"]}",
                                        "{\"a\":\"1\",\"b\":[\"\xC3\xA9\",1.5]}", "{\"a\":1}"};
    struct buf in = {0}, scratch = {0};
    struct hash128 hashes[2];
    for (unsigned i = 0; i < 2; i++) {
        buf_clear(&in);
        buf_put_str(&in, same[i]);
        hashes[i] = json_content_hash(parse(&in), &scratch);
    }
    assert_true(hash128_equal(hashes[0], hashes[1]));
    for (unsigned i = 0; i < 4; i++) {
        buf_clear(&in);
        buf_put_str(&in, other[i]);
        assert_false(hash128_equal(hashes[0], json_content_hash(parse(&in), &scratch)));
    }
    /* Fixed for all time: what a store holds was hashed by some earlier weir. */
    char hex[33];
    hash128_format(hashes[0], hex);
    assert_string_equal(hex, "c60287cabd3a5c19155ddefd9664d9e9");
    buf_fini(&in);
    buf_fini(&scratch);
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
        cmocka_unit_test(test_members_are_sorted_by_their_bytes),
        cmocka_unit_test(test_many_members),
        cmocka_unit_test(test_the_deepest_document),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings),
        cmocka_unit_test(test_the_layout_of_doubles),
        cmocka_unit_test(test_doubles_read_back),
        cmocka_unit_test(test_equal_values_have_equal_hashes),
    };
    return cmocka_run_group_tests(tests, start, end);
}
