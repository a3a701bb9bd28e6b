/* hash, clock: fixed values, so that what is on disk keeps its meaning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "weir/err.h"

static void test_fixed_values(void **state)
{
    (void)state;
    char hex[33];
    assert_true(hash64("", 0) == 0x2d06800538d394c2u);
    assert_true(hash64("weir", 4) == 0x09831dc741817118u);
    assert_true(hash64_seeded("weir", 4, 0) == hash64("weir", 4));
    assert_true(hash64_seeded("weir", 4, 1) != hash64("weir", 4));
    hash128_format(hash128("weir", 4), hex);
    assert_string_equal(hex, "58611f8d7be1fe2c3921234764190df9");
}

static void test_parse(void **state)
{
    (void)state;
    struct hash128 h, back;
    char hex[33];
    for (unsigned i = 0; i < 100; i++) {
        h = hash128(&i, sizeof i);
        hash128_format(h, hex);
        assert_int_equal(strlen(hex), 32);
        assert_int_equal(hash128_parse(hex, 32, &back), 0);
        assert_true(hash128_equal(h, back));
    }
    assert_int_equal(hash128_parse("00112233445566778899AABBCCDDEEFF", 32, &back), 0);
    assert_true(back.low == 0x8899aabbccddeeffu && back.high == 0x0011223344556677u);
    assert_int_equal(hash128_parse(hex, 31, &back), WEIR_SYNTAX);
    assert_int_equal(hash128_parse(hex, 33, &back), WEIR_SYNTAX);
    assert_int_equal(hash128_parse("0011223344556677889 aabbccddeeff", 32, &back), WEIR_SYNTAX);
    assert_int_equal(hash128_parse("0x112233445566778899aabbccddeeff", 32, &back), WEIR_SYNTAX);
    h.high ^= 1;
    assert_false(hash128_equal(h, hash128("", 0)));
}

static void test_the_process_has_one_seed(void **state)
{
    (void)state;
    assert_true(hash_process_seed() != 0);
    assert_true(hash_process_seed() == hash_process_seed());
}

static void test_clocks(void **state)
{
    (void)state;
    uint64_t mono = clock_mono_ns(), wall = clock_wall_ms();
    assert_true(clock_mono_ns() >= mono);
    assert_true(wall > 1700000000000u && wall < 4102444800000u);
}

static void test_wall_times_as_text(void **state)
{
    (void)state;
    char out[25];
    clock_format_wall(0, out);
    assert_string_equal(out, "1970-01-01T00:00:00.000Z");
    clock_format_wall(1709210096007u, out);
    assert_string_equal(out, "2024-02-29T12:34:56.007Z");
    clock_format_wall(253402300799999u, out);
    assert_string_equal(out, "9999-12-31T23:59:59.999Z");
    clock_format_wall(UINT64_MAX, out);
    assert_string_equal(out, "9999-12-31T23:59:59.999Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_values),
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_the_process_has_one_seed),
        cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_wall_times_as_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
