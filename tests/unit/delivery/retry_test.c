/* retry_test.c: the waits of the backoff, and the breaker's states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../seeded.h"
#include "delivery/retry.h"

#define MS UINT64_C(1000000)

static uint64_t seed;

static void waits_double_up_to_the_limit_with_full_jitter(void **state)
{
    (void)state;
    uint64_t highest[16] = {0}, lowest[16];
    for (int i = 0; i < 16; i++)
        lowest[i] = UINT64_MAX;
    for (uint64_t run = 0; run < 2000; run++) {
        struct backoff b;
        backoff_init(&b, 50, 10000, seed + run * 7919);
        for (int i = 0; i < 16; i++) {
            uint64_t wait = backoff_next_ns(&b);
            uint64_t ceiling = i < 8 ? (50 * MS) << i : 10000 * MS;
            if (ceiling > 10000 * MS)
                ceiling = 10000 * MS;
            assert_true(wait >= MS && wait <= ceiling);
            highest[i] = wait > highest[i] ? wait : highest[i];
            lowest[i] = wait < lowest[i] ? wait : lowest[i];
        }
    }
    for (int i = 0; i < 16; i++) {
        uint64_t ceiling = i < 8 ? (50 * MS) << i : 10000 * MS;
        assert_true(highest[i] > ceiling * 9 / 10);
        assert_true(lowest[i] < ceiling / 10);
    }
}

static void a_success_starts_over(void **state)
{
    (void)state;
    struct backoff b;
    backoff_init(&b, 10, 60000, seed);
    for (int i = 0; i < 1000; i++)
        backoff_next_ns(&b);
    backoff_reset(&b);
    assert_true(backoff_next_ns(&b) <= 10 * MS);
}

static void odd_limits_are_made_sense_of(void **state)
{
    (void)state;
    struct backoff b;
    backoff_init(&b, 0, 0, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(backoff_next_ns(&b), MS);
    backoff_init(&b, 500, 10, seed); /* the least counts */
    for (int i = 0; i < 100; i++)
        assert_true(backoff_next_ns(&b) <= 500 * MS);
    backoff_init(&b, UINT32_MAX, UINT32_MAX, seed);
    for (int i = 0; i < 100; i++)
        assert_true(backoff_next_ns(&b) <= UINT32_MAX * MS);
}

static void opens_after_failures_in_a_row(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, 3, 50, 1000, seed);
    assert_false(breaker_failed(&b, 0));
    assert_false(breaker_failed(&b, 0));
    assert_false(breaker_succeeded(&b)); /* not in a row any more */
    assert_false(breaker_failed(&b, 0));
    assert_false(breaker_failed(&b, 0));
    assert_true(breaker_may_call(&b, 0));
    assert_true(breaker_failed(&b, 0));
    assert_int_equal(b.state, BREAKER_OPEN);
    assert_false(breaker_may_call(&b, 0));
}

static void one_probe_in_each_period(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, 1, 50, 50, seed);
    assert_true(breaker_failed(&b, 1000 * MS));
    uint64_t next = b.next_try_ns;
    assert_true(next > 1000 * MS && next <= 1050 * MS);
    assert_false(breaker_may_call(&b, next - 1));
    assert_true(breaker_may_call(&b, next));
    for (int i = 0; i < 10; i++)
        assert_false(breaker_may_call(&b, next + (uint64_t)i * 1000 * MS));
    assert_false(breaker_failed(&b, next)); /* it was open all the time */
    assert_true(b.next_try_ns > next);
    next = b.next_try_ns;
    assert_true(breaker_may_call(&b, next));
    assert_true(breaker_succeeded(&b));
    assert_true(breaker_may_call(&b, next) && breaker_may_call(&b, next));
    assert_false(breaker_succeeded(&b));
}

static void late_failures_do_not_move_the_next_try(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, 2, 50, 1000, seed);
    breaker_failed(&b, 0);
    assert_true(breaker_failed(&b, 0));
    uint64_t next = b.next_try_ns;
    for (int i = 0; i < 5; i++)
        assert_false(breaker_failed(&b, 40 * MS));
    assert_int_equal(b.next_try_ns, next);
}

static void a_probe_that_was_not_made_costs_no_wait(void **state)
{
    (void)state;
    struct breaker b;
    breaker_init(&b, 1, 50, 50, seed);
    breaker_failed(&b, 0);
    uint64_t next = b.next_try_ns;
    assert_true(breaker_may_call(&b, next));
    breaker_gave_up(&b);
    assert_true(breaker_may_call(&b, next));
}

int main(void)
{
    seed = seeded_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_double_up_to_the_limit_with_full_jitter),
        cmocka_unit_test(a_success_starts_over),
        cmocka_unit_test(odd_limits_are_made_sense_of),
        cmocka_unit_test(opens_after_failures_in_a_row),
        cmocka_unit_test(one_probe_in_each_period),
        cmocka_unit_test(late_failures_do_not_move_the_next_try),
        cmocka_unit_test(a_probe_that_was_not_made_costs_no_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
