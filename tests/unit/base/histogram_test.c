/* histogram: the promised error over the whole range, exact totals, and its text form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/histogram.h"
#include "weir/err.h"

static void test_empty(void **state)
{
    (void)state;
    struct histogram *h = histogram_create();
    assert_int_equal(histogram_count(h), 0);
    assert_int_equal(histogram_min(h), 0);
    assert_int_equal(histogram_max(h), 0);
    assert_int_equal(histogram_quantile(h, 0.5), 0);
    assert_int_equal(histogram_count_below(h, UINT64_MAX), 0);
    assert_true(histogram_mean(h) == 0);
    histogram_destroy(h);
    histogram_destroy(NULL);
}

static void test_the_error_is_below_a_128th_everywhere(void **state)
{
    (void)state;
    struct histogram *h = histogram_create();
    for (unsigned bit = 0; bit < 64; bit++) {
        for (unsigned step = 0; step < 50; step++) {
            uint64_t low = 1ull << bit;
            uint64_t value = low + (low / 50) * step + (step & 1);
            histogram_reset(h);
            histogram_record(h, value);
            histogram_record(h, UINT64_MAX);
            uint64_t got = histogram_quantile(h, 0.5);
            assert_true(got >= value);
            assert_true(value >= 256 ? got - value < value / 128 + 1 : got == value);
            assert_int_equal(histogram_count_below(h, value), value >= 0xFF00000000000000u ? 2 : 1);
            assert_int_equal(histogram_count_below(h, value / 2), 0);
        }
    }
    histogram_destroy(h);
}

static void test_quantiles_by_rank(void **state)
{
    (void)state;
    struct histogram *h = histogram_create();
    for (uint64_t v = 1; v <= 100; v++)
        histogram_record(h, v);
    assert_int_equal(histogram_quantile(h, 0), 1);
    assert_int_equal(histogram_quantile(h, 0.01), 1);
    assert_int_equal(histogram_quantile(h, 0.5), 50);
    assert_int_equal(histogram_quantile(h, 0.501), 51);
    assert_int_equal(histogram_quantile(h, 0.99), 99);
    assert_int_equal(histogram_quantile(h, 1), 100);
    assert_int_equal(histogram_quantile(h, -3), 1);
    assert_int_equal(histogram_quantile(h, 7), 100);
    assert_int_equal(histogram_min(h), 1);
    assert_int_equal(histogram_max(h), 100);
    assert_int_equal(histogram_sum(h), 5050);
    assert_true(histogram_mean(h) == 50.5);
    assert_int_equal(histogram_count_below(h, 42), 42);
    /* The highest value is exact, and no quantile is above it. */
    histogram_record_n(h, 1000003, 1000);
    assert_int_equal(histogram_quantile(h, 0.999), 1000003);
    assert_int_equal(histogram_max(h), 1000003);
    histogram_record_n(h, 5, 0);
    assert_int_equal(histogram_count(h), 1100);
    histogram_destroy(h);
}

static void same(const struct histogram *a, const struct histogram *b)
{
    struct buf x = {0}, y = {0};
    histogram_encode(a, &x);
    histogram_encode(b, &y);
    assert_string_equal(buf_str(&x), buf_str(&y));
    assert_true(histogram_count(a) == histogram_count(b));
    buf_fini(&x);
    buf_fini(&y);
}

static void test_merging_is_recording_all(void **state)
{
    (void)state;
    const char *text = getenv("WEIR_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : hash_process_seed();
    print_message("WEIR_SEED=%llu\n", (unsigned long long)seed);
    struct histogram *all = histogram_create(), *parts[3], *merged = histogram_create(),
                     *decoded = histogram_create();
    for (unsigned i = 0; i < 3; i++)
        parts[i] = histogram_create();
    for (unsigned i = 0; i < 5000; i++) {
        uint64_t v = hash64_seeded(&i, sizeof i, seed);
        v >>= v % 64;
        histogram_record(all, v);
        histogram_record(parts[i % 3], v);
    }
    for (unsigned i = 0; i < 3; i++) {
        struct buf line = {0};
        histogram_add(merged, parts[i]);
        histogram_encode(parts[i], &line);
        for (size_t k = 0; k < line.n; k++)
            assert_true(line.p[k] > ' ' && line.p[k] < 0x7F && line.p[k] != '"' &&
                        line.p[k] != '\\');
        assert_int_equal(histogram_decode(decoded, buf_slice(&line)), 0);
        buf_fini(&line);
        histogram_destroy(parts[i]);
    }
    same(all, merged);
    same(all, decoded);
    histogram_destroy(all);
    histogram_destroy(merged);
    histogram_destroy(decoded);
}

static void test_bad_text_changes_nothing(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "h1",
        "h2;0;0;0;",
        "h1;0;0;0",
        "h1;5;5;5;6:1,",
        "h1;5;5;5;6:1,,7:1",
        "h1;5;5;5;0:1",
        "h1;5;5;5;6:0",
        "h1;5;5;5;6:1x",
        "h1;5;5;5;6:-1",
        "h1;5;5;5;99999:1",
        "h1;5;5;5;6:1,99999:1",
        "h1;5;4;5;6:1",
        "h1;5;5;9;6:1",
        "h1;5;0;0;",
        "h1;5;5;5;6:18446744073709551615,1:1",
        "h1;18446744073709551616;5;5;6:1",
        "h1;5;5;5;18446744073709551615:1",
        "h1;5;5;5;6:1,18446744073709551615:1",
    };
    struct histogram *h = histogram_create(), *before = histogram_create();
    histogram_record(h, 77);
    histogram_record(before, 77);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (histogram_decode(h, slice_of(bad[i])) != WEIR_SYNTAX)
            fail_msg("\"%s\" was taken", bad[i]);
        same(h, before);
    }
    assert_int_equal(histogram_decode(h, slice_of("h1;0;0;0;")), 0);
    same(h, before);
    assert_int_equal(histogram_decode(h, slice_of("h1;5;5;5;6:1")), 0);
    assert_int_equal(histogram_min(h), 5);
    assert_int_equal(histogram_count(h), 2);
    histogram_destroy(h);
    histogram_destroy(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_the_error_is_below_a_128th_everywhere),
        cmocka_unit_test(test_quantiles_by_rank),
        cmocka_unit_test(test_merging_is_recording_all),
        cmocka_unit_test(test_bad_text_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
