/* units: sizes and durations as people write them, and what they do not mean. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/units.h"
#include "weir/err.h"

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"7B", 7},
        {"64KiB", 65536},
        {"64MiB", 64u << 20},
        {"10GiB", 10ull << 30},
        {"3TiB", 3ull << 40},
        {"1KB", 1000},
        {"2MB", 2000000},
        {"5GB", 5000000000},
        {"007", 7},
        {"18446744073709551615", UINT64_MAX},
        {"16777215TiB", 16777215ull << 40},
    };
    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        assert_int_equal(units_parse_bytes(slice_of(good[i].text), &bytes), 0);
        assert_true(bytes == good[i].bytes);
    }
    static const char *const bad[] = {
        "",           "MiB", "-1", "+1",   "1.5GiB", "64 MiB", "64mib", "64MB0",
        "1e3",        " 1",  "1 ", "0x10", "5s",     "1K",     "1KiBx", "18446744073709551616",
        "16777216TiB"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 12345;
        if (units_parse_bytes(slice_of(bad[i]), &bytes) != WEIR_SYNTAX)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_int_equal(bytes, 12345);
    }
}

static void test_durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {
        {"0s", 0},       {"250ms", 250},    {"5s", 5000}, {"1m", 60000},
        {"2h", 7200000}, {"3d", 259200000}, {"007ms", 7}, {"18446744073709551615ms", UINT64_MAX}};
    for (unsigned i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t ms = 1;
        assert_int_equal(units_parse_duration(slice_of(good[i].text), &ms), 0);
        assert_true(ms == good[i].ms);
    }
    static const char *const bad[] = {"",
                                      "5",
                                      "0",
                                      "s",
                                      "5 s",
                                      "-5s",
                                      "1.5s",
                                      "5S",
                                      "5us",
                                      "5M",
                                      "1h30m",
                                      "5sec",
                                      "5KiB",
                                      "18446744073709551616ms",
                                      "213503982335d"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t ms = 12345;
        if (units_parse_duration(slice_of(bad[i]), &ms) != WEIR_SYNTAX)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_int_equal(ms, 12345);
    }
}

static void test_bytes_as_text(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536, "1.5 KiB"},
                 {64u << 20, "64 MiB"},
                 {(1ull << 30) + (1ull << 29), "1.5 GiB"},
                 {(1u << 20) - 1, "1 MiB"},
                 {(1ull << 40) - 1, "1 TiB"},
                 {1100, "1.1 KiB"},
                 {UINT64_MAX, "16 EiB"}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char out[24];
        units_format_bytes(cases[i].bytes, out);
        assert_string_equal(out, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_bytes_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
