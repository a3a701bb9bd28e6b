/* uuid: the format of RFC 9562, and ids that rise whatever the clock does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/uuid.h"

static void test_format(void **state)
{
    (void)state;
    struct uuid_generator generator;
    char out[UUID_TEXT];
    uuid_generator_init(&generator);
    uuid_v7(&generator, 0x0123456789ab, out);
    assert_memory_equal(out, "01234567-89ab-7", 15);
    for (unsigned i = 0; i < UUID_TEXT; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        assert_true(dash ? out[i] == '-' : strchr("0123456789abcdef", out[i]) != NULL);
    }
    assert_non_null(strchr("89ab", out[19]));
}

static void test_ids_rise(void **state)
{
    (void)state;
    struct uuid_generator generator;
    char last[UUID_TEXT], out[UUID_TEXT];
    uuid_generator_init(&generator);
    uint64_t ms = 1700000000000;
    uuid_v7(&generator, ms, last);
    for (unsigned i = 0; i < 200000; i++) {
        /* Stands still, goes on, and jumps back. */
        if (i % 1000 == 0)
            ms++;
        if (i % 50000 == 49999)
            ms -= 3600000;
        uuid_v7(&generator, ms, out);
        assert_true(memcmp(last, out, UUID_TEXT) < 0);
        memcpy(last, out, UUID_TEXT);
    }
}

static void test_a_full_counter_borrows_from_the_clock(void **state)
{
    (void)state;
    struct uuid_generator generator;
    char last[UUID_TEXT], out[UUID_TEXT];
    uuid_generator_init(&generator);
    uuid_v7(&generator, 1000, last);
    generator.counter = (1u << 26) - 2;
    for (unsigned i = 0; i < 4; i++) {
        uuid_v7(&generator, 1000, out);
        if (i)
            assert_true(memcmp(last, out, UUID_TEXT) < 0);
        memcpy(last, out, UUID_TEXT);
    }
    assert_int_equal(generator.last_ms, 1001);
}

static void test_generators_differ(void **state)
{
    (void)state;
    struct uuid_generator a, b;
    char x[UUID_TEXT], y[UUID_TEXT];
    uuid_generator_init(&a);
    uuid_generator_init(&b);
    uuid_v7(&a, 5, x);
    uuid_v7(&b, 5, y);
    assert_memory_not_equal(x, y, UUID_TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_ids_rise),
        cmocka_unit_test(test_a_full_counter_borrows_from_the_clock),
        cmocka_unit_test(test_generators_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
