/* buf, mem: bytes that grow, numbers and strings as text. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"

static void test_empty(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put(&buf, NULL, 0);
    buf_put_slice(&buf, (struct slice){NULL, 0});
    assert_int_equal(buf.n, 0);
    assert_string_equal(buf_str(&buf), "");
    assert_int_equal(buf.n, 0);
    buf_fini(&buf);
    assert_null(buf.p);
    assert_int_equal(buf.capacity, 0);
    buf_fini(&buf);
}

static void test_growth_keeps_the_bytes(void **state)
{
    (void)state;
    struct buf buf = {0};
    unsigned moves = 0;
    for (unsigned i = 0; i < 100000; i++) {
        size_t capacity = buf.capacity;
        buf_put_char(&buf, (char)(i * 31));
        moves += buf.capacity != capacity;
    }
    for (unsigned i = 0; i < 100000; i++)
        assert_int_equal(buf.p[i], (char)(i * 31));
    assert_true(moves < 20);
    buf_clear(&buf);
    assert_int_equal(buf.n, 0);
    buf_reserve(&buf, 1 << 20);
    assert_true(buf.capacity >= 1 << 20);
    buf_fini(&buf);
}

static void test_extend(void **state)
{
    (void)state;
    struct buf buf = {0};
    assert_non_null(buf_extend(&buf, 0));
    char *at = buf_extend(&buf, 1000);
    memset(at, 'x', 1000);
    buf_put_str(&buf, "end");
    assert_int_equal(buf.n, 1003);
    assert_memory_equal(buf.p + 998, "xxend", 5);
    buf_fini(&buf);
}

static void test_numbers(void **state)
{
    (void)state;
    struct buf buf = {0};
    static const int64_t values[] = {0, 7, -7, 10, -10, INT64_MAX, INT64_MIN, 1234567890123};
    for (unsigned i = 0; i < sizeof values / sizeof values[0]; i++) {
        char expected[32];
        buf_clear(&buf);
        buf_put_i64(&buf, values[i]);
        snprintf(expected, sizeof expected, "%lld", (long long)values[i]);
        assert_string_equal(buf_str(&buf), expected);
    }
    buf_clear(&buf);
    buf_put_u64(&buf, UINT64_MAX);
    buf_put_char(&buf, ' ');
    buf_put_u64(&buf, 0);
    buf_put_char(&buf, ' ');
    buf_put_double(&buf, 0.1);
    assert_string_equal(buf_str(&buf), "18446744073709551615 0 0.1");
    buf_fini(&buf);
}

static void test_json_strings(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_put_json_string(&buf, (struct slice){NULL, 0});
    assert_string_equal(buf_str(&buf), "\"\"");
    buf_clear(&buf);
    buf_put_json_string(&buf, SLICE_LIT("\"\\/\b\f\n\r\t\v\x01\x1f\x7f"
                                        "\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80"
                                        "a\0"));
    assert_string_equal(buf_str(&buf), "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u000b\\u0001\\u001f\x7f"
                                       "\xC3\xA9\xE2\x80\xA8\xF0\x9F\x98\x80"
                                       "a\\u0000\"");
    buf_fini(&buf);
}

static void test_printf(void **state)
{
    (void)state;
    struct buf buf = {0};
    buf_printf(&buf, "%s", "");
    buf_printf(&buf, "%d-%s", 5, "x");
    assert_string_equal(buf_str(&buf), "5-x");
    /* Every length around the capacity. */
    for (int width = 1; width < 300; width++) {
        buf_clear(&buf);
        buf_printf(&buf, "%*d", width, 1);
        assert_int_equal(buf.n, width);
        assert_int_equal(buf.p[width - 1], '1');
        buf_fini(&buf);
    }
    buf_printf(&buf, "ab");
    buf_printf(&buf, "%0200d", 0);
    assert_int_equal(buf.n, 202);
    assert_memory_equal(buf.p, "ab00", 4);
    buf_fini(&buf);
}

static void test_memory(void **state)
{
    (void)state;
    char *zeros = mem_zalloc(100);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(zeros[i], 0);
    zeros = mem_realloc(zeros, 200);
    char *copy = mem_dup(zeros, 100), *text = mem_strdup("weir");
    char *printed = mem_printf("%s-%d", text, 7);
    assert_memory_equal(copy, zeros, 100);
    assert_string_equal(printed, "weir-7");
    void *nothing = mem_alloc(0), *empty = mem_dup(NULL, 0);
    assert_non_null(nothing);
    assert_non_null(empty);
    mem_free(nothing);
    mem_free(empty);
    mem_free(printed);
    mem_free(text);
    mem_free(copy);
    mem_free(zeros);
    mem_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),        cmocka_unit_test(test_growth_keeps_the_bytes),
        cmocka_unit_test(test_extend),       cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_json_strings), cmocka_unit_test(test_printf),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
