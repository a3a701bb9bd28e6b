/* pressure: the budget holds, Retry-After comes from the drain rate, each cause is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "gateway/pressure.h"

static void test_retry_after_is_the_way_back_at_the_drain_rate(void **state)
{
    (void)state;
    unsigned seen_low = 99, seen_high = 0;
    for (uint32_t random = 0; random < 100000; random += 7) {
        unsigned seconds = pressure_seconds(1000, 50, random); /* 20 s, a quarter either way */
        assert_in_range(seconds, 15, 25);
        seen_low = seconds < seen_low ? seconds : seen_low;
        seen_high = seconds > seen_high ? seconds : seen_high;
        assert_int_equal(pressure_seconds(1000, 0, random), 60);
        assert_int_equal(pressure_seconds(1000, -3, random), 60);
        assert_in_range(pressure_seconds(0, 0, random), 1, 2);
        assert_in_range(pressure_seconds(-5, 10, random), 1, 2);
        assert_in_range(pressure_seconds(1, 1e9, random), 1, 2);
        assert_int_equal(pressure_seconds(1e18, 1, random), 60);
        assert_in_range(pressure_seconds(59, 1, random), 45, 60);
    }
    assert_true(seen_high > seen_low + 5); /* clients do not come back all at once */
}

static void test_budget(void **state)
{
    (void)state;
    struct pressure pressure;
    pressure_init(&pressure, 1000);
    assert_true(pressure_charge(&pressure, 600));
    assert_false(pressure_charge(&pressure, 401));
    assert_true(pressure_charge(&pressure, 400));
    assert_false(pressure_charge(&pressure, 1));
    pressure_release(&pressure, 400);
    assert_true(pressure_charge(&pressure, 400));
    pressure_charge_more(&pressure, 100);
    assert_int_equal(pressure.memory_used, 1100);
    pressure_release(&pressure, 1100);
    assert_int_equal(pressure.memory_used, 0);
}

static void *charge_and_release(void *argument)
{
    struct pressure *pressure = argument;
    for (int i = 0; i < 50000; i++) {
        if (pressure_charge(pressure, 300)) {
            assert_true(atomic_load(&pressure->memory_used) >= 300);
            pressure_release(pressure, 300);
        }
    }
    return NULL;
}

static void test_budget_over_threads_comes_back_to_nothing(void **state)
{
    (void)state;
    struct pressure pressure;
    pthread_t threads[4];
    pressure_init(&pressure, 700);
    for (int t = 0; t < 4; t++)
        pthread_create(&threads[t], NULL, charge_and_release, &pressure);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(pressure.memory_used, 0);
}

static void test_what_blocks(void **state)
{
    (void)state;
    struct pressure pressure;
    struct pressure_observation now = {.lag = 100, .lag_limit = 100};
    pressure_init(&pressure, 1000);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_CAUSES);
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_CAUSES);
    now.lag = 101;
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_LAG);
    now.lag_limit = 0; /* none */
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_CAUSES);
    now.log_full = true;
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_LOG);
    now.log_full = false;
    now.log_failed = true;
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_FAILED);
    now.log_failed = false;
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_CAUSES);
    pressure_log_failed(&pressure); /* until the restart, whatever is seen later */
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_FAILED);
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_blocked(&pressure), PRESSURE_FAILED);
}

static void test_refusals_are_counted_with_their_wait(void **state)
{
    (void)state;
    struct pressure pressure;
    struct pressure_observation now = {.lag = 1100, .lag_limit = 100, .lag_drain_per_s = 100};
    pressure_init(&pressure, 1000);
    pressure_observe(&pressure, &now);
    for (uint32_t i = 0; i < 100; i++)
        assert_in_range(pressure_refuse(&pressure, PRESSURE_LAG, i * 77777), 8, 13);
    now.lag_drain_per_s = 0; /* nothing drains */
    pressure_observe(&pressure, &now);
    assert_int_equal(pressure_refuse(&pressure, PRESSURE_LAG, 1), 60);
    now.log_full = true;
    now.log_excess_bytes = 64 << 20;
    now.log_drain_bytes_per_s = 16 << 20;
    pressure_observe(&pressure, &now);
    assert_in_range(pressure_refuse(&pressure, PRESSURE_LOG, 5), 3, 5);
    assert_int_equal(pressure.refused[PRESSURE_LAG], 101);
    assert_int_equal(pressure.refused[PRESSURE_LOG], 1);
    assert_int_equal(pressure.refused[PRESSURE_RING], 0);
    for (unsigned i = 0; i < PRESSURE_CAUSES; i++) {
        assert_true(strlen(pressure_name((enum pressure_cause)i)) > 0);
        assert_true(strlen(pressure_text((enum pressure_cause)i)) > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retry_after_is_the_way_back_at_the_drain_rate),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_budget_over_threads_comes_back_to_nothing),
        cmocka_unit_test(test_what_blocks),
        cmocka_unit_test(test_refusals_are_counted_with_their_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
