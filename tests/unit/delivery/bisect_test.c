/* bisect_test.c: exactly the bad records are refused, in order, within the promised calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "../seeded.h"
#include "delivery/bisect.h"

#define MAX 4096

static uint64_t seed;

/* A sink that refuses a call as a whole when it holds a bad record, and a record alone when it is
 * bad. Returns the calls made after the first refusal. */
static unsigned run(size_t n, const bool *bad, unsigned budget, unsigned *stored, unsigned *refused)
{
    struct bisect b = {0};
    unsigned calls = 0;
    size_t at = 0;
    *stored = *refused = 0;
    bisect_begin(&b, n, budget);
    while (bisect_active(&b)) {
        size_t take = bisect_take(&b);
        assert_true(take >= 1 && take <= n - at);
        calls++;
        unsigned wrong = 0;
        for (size_t i = at; i < at + take; i++)
            wrong += bad[i];
        if (wrong && take > 1) {
            bisect_refused(&b, take);
            continue;
        }
        *refused += wrong;
        *stored += (unsigned)take - wrong;
        at += take;
        bisect_answered(&b, take, 0, wrong == 0);
    }
    assert_int_equal(at, n);
    return calls;
}

static void one_bad_record_costs_a_few_calls(void **state)
{
    (void)state;
    static bool bad[MAX];
    for (size_t n = 2; n <= 1024; n = n * 2 + n % 3) {
        unsigned log2 = 0;
        while (((size_t)1 << log2) < n)
            log2++;
        for (size_t i = 0; i < n; i += 1 + n / 50) {
            unsigned stored, refused;
            memset(bad, 0, sizeof(bad));
            bad[i] = true;
            unsigned calls = run(n, bad, 10000, &stored, &refused);
            assert_int_equal(refused, 1);
            assert_int_equal(stored, n - 1);
            assert_true(calls <= 2 * log2);
        }
    }
}

static void the_last_one_bad_is_found_by_elimination(void **state)
{
    (void)state;
    static bool bad[MAX];
    unsigned stored, refused;
    memset(bad, 0, sizeof(bad));
    bad[1023] = true;
    /* Each left half is clean, so no right half is asked as a whole: 10 halves and the record. */
    assert_int_equal(run(1024, bad, 10000, &stored, &refused), 11);
    assert_int_equal(refused, 1);
}

static void all_bad(void **state)
{
    (void)state;
    static bool bad[MAX];
    unsigned stored, refused;
    memset(bad, 1, sizeof(bad));
    unsigned calls = run(500, bad, 64, &stored, &refused);
    assert_int_equal(refused, 500);
    assert_int_equal(stored, 0);
    assert_true(calls <= 64 + 500);
}

static void a_spent_budget_refuses_no_good_record(void **state)
{
    (void)state;
    struct seeded random = {seed};
    static bool bad[MAX];
    for (int round = 0; round < 300; round++) {
        size_t n = 2 + seeded_below(&random, MAX - 2);
        unsigned budget = (unsigned)seeded_below(&random, 100), stored, refused, wrong = 0;
        uint64_t odds = 1 + seeded_below(&random, round % 2 ? 10 : 1000);
        memset(bad, 0, sizeof(bad));
        for (size_t i = 0; i < n; i++)
            wrong += bad[i] = seeded_below(&random, odds) == 0;
        if (!wrong)
            wrong = bad[n / 2] = true;
        unsigned calls = run(n, bad, budget, &stored, &refused);
        assert_int_equal(refused, wrong);
        assert_int_equal(stored, n - wrong);
        assert_true(calls <= budget + n);
    }
}

/* A sink may refuse for the batch's size: then no record is bad, and all must come through. */
static void a_batch_that_was_only_too_large(void **state)
{
    (void)state;
    struct bisect b = {0};
    size_t stored = 0;
    unsigned calls = 0;
    bisect_begin(&b, 1000, 64);
    while (bisect_active(&b)) {
        size_t take = bisect_take(&b);
        calls++;
        if (take > 300) {
            bisect_refused(&b, take);
            continue;
        }
        stored += take;
        bisect_answered(&b, take, 0, true);
    }
    assert_int_equal(stored, 1000);
    assert_true(calls < 40); /* each clean left half casts suspicion on a right one, down to 1 */
}

/* Some records of a span are to be sent again: the span shrinks to them, nothing is skipped. */
static void records_left_for_later_stay_in_front(void **state)
{
    (void)state;
    struct seeded random = {seed};
    for (int round = 0; round < 200; round++) {
        struct bisect b = {0};
        size_t n = 2 + seeded_below(&random, 500), left = n;
        bisect_begin(&b, n, 1 + (unsigned)seeded_below(&random, 64));
        while (bisect_active(&b)) {
            size_t take = bisect_take(&b);
            assert_true(take <= left);
            if (take > 1 && seeded_below(&random, 4) == 0) {
                bisect_refused(&b, take);
                continue;
            }
            size_t again = seeded_below(&random, 3) == 0 ? seeded_below(&random, take + 1) : 0;
            bisect_answered(&b, take, again, seeded_below(&random, 4) > 0);
            left -= take - again;
        }
        assert_int_equal(left, 0);
    }
}

int main(void)
{
    seed = seeded_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_bad_record_costs_a_few_calls),
        cmocka_unit_test(the_last_one_bad_is_found_by_elimination),
        cmocka_unit_test(all_bad),
        cmocka_unit_test(a_spent_budget_refuses_no_good_record),
        cmocka_unit_test(a_batch_that_was_only_too_large),
        cmocka_unit_test(records_left_for_later_stay_in_front),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
