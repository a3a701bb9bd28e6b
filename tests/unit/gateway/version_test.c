/* version: versions rise strictly over threads and restarts, and never pass the ceiling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>

#include "gateway/version.h"
#include "weir/err.h"

#define MS(ms) ((uint64_t)(ms) << VERSION_SHIFT)

static void test_nothing_before_the_first_ceiling(void **state)
{
    (void)state;
    struct version_counter counter;
    uint64_t first = 7;
    version_init(&counter, 0);
    assert_int_equal(version_take(&counter, 1000, 1, &first), WEIR_UNAVAILABLE);
    assert_int_equal(first, 7);
    uint64_t wanted = version_ceiling_wanted(&counter, 1000);
    assert_true(wanted >= MS(1000 + VERSION_RAISE_WHEN_MS));
    version_raise(&counter, wanted);
    assert_int_equal(version_ceiling_wanted(&counter, 1000), 0);
    assert_int_equal(version_take(&counter, 1000, 1, &first), 0);
    assert_int_equal(first, MS(1000));
}

static void test_follows_the_clock_and_never_goes_back(void **state)
{
    (void)state;
    struct version_counter counter;
    uint64_t first, last;
    version_init(&counter, 0);
    version_raise(&counter, MS(100000));
    assert_int_equal(version_take(&counter, 1000, 5, &first), 0);
    assert_int_equal(first, MS(1000));
    assert_int_equal(version_take(&counter, 1000, 1, &first), 0);
    assert_int_equal(first, MS(1000) + 5);
    assert_int_equal(version_take(&counter, 2000, 1, &first), 0);
    assert_int_equal(first, MS(2000));
    assert_int_equal(version_take(&counter, 10, 2, &last), 0); /* the clock was set back */
    assert_int_equal(last, MS(2000) + 1);
    assert_int_equal(version_take(&counter, 10, 1, &last), 0);
    assert_int_equal(last, MS(2000) + 3);
}

static void test_more_than_a_millisecond_holds(void **state)
{
    (void)state;
    struct version_counter counter;
    uint64_t first;
    version_init(&counter, 0);
    version_raise(&counter, MS(100000));
    assert_int_equal(version_take(&counter, 1000, (1u << VERSION_SHIFT) + 10, &first), 0);
    assert_int_equal(version_take(&counter, 1001, 1, &first), 0);
    assert_int_equal(first, MS(1001) + 10);
}

static void test_the_ceiling_holds_exactly(void **state)
{
    (void)state;
    struct version_counter counter;
    uint64_t first;
    version_init(&counter, 0);
    version_raise(&counter, MS(1000) + 3);
    assert_int_equal(version_take(&counter, 1000, 5, &first), WEIR_UNAVAILABLE);
    assert_int_equal(version_take(&counter, 1000, 4, &first), 0);
    assert_int_equal(first, MS(1000));
    assert_int_equal(version_take(&counter, 1000, 1, &first), WEIR_UNAVAILABLE);
    assert_int_equal(version_take(&counter, 5000, 1, &first), WEIR_UNAVAILABLE);
    version_raise(&counter, MS(6000));
    assert_int_equal(version_take(&counter, 5000, 1, &first), 0);
    assert_int_equal(first, MS(5000));
}

static void test_raised_ahead_of_use(void **state)
{
    (void)state;
    struct version_counter counter;
    version_init(&counter, 0);
    uint64_t now = 1000000, used;
    version_raise(&counter, version_ceiling_wanted(&counter, now));
    for (int step = 0; step < 1000; step++) {
        now += 1000;
        uint64_t wanted = version_ceiling_wanted(&counter, now);
        if (wanted)
            version_raise(&counter, wanted);
        /* at least the time of RAISE_WHEN is left after each look */
        assert_int_equal(version_take(&counter, now + VERSION_RAISE_WHEN_MS - 1000, 1, &used), 0);
        now += VERSION_RAISE_WHEN_MS - 1000;
    }
}

static void test_a_restart_begins_above_all_that_may_have_been_used(void **state)
{
    (void)state;
    uint64_t meta = 0, last = 0, now = 50000;
    for (int run = 0; run < 20; run++) {
        struct version_counter counter;
        version_init(&counter, meta);
        meta = version_ceiling_wanted(&counter, now); /* durable from here on */
        version_raise(&counter, meta);
        for (int i = 0; i < 100; i++) {
            uint64_t first;
            assert_int_equal(version_take(&counter, now, 3, &first), 0);
            assert_true(first > last);
            last = first + 2;
            assert_true(last <= meta);
        }
        if (run % 2) { /* a clean stop: nothing is wasted, nothing is used again */
            assert_int_equal(version_close(&counter), last);
            meta = last;
        }
        now += run % 3 ? 10 : -20; /* clocks may go either way meanwhile */
    }
}

static void test_the_end_of_time(void **state)
{
    (void)state;
    struct version_counter counter;
    uint64_t first;
    version_init(&counter, 0);
    uint64_t wanted = version_ceiling_wanted(&counter, UINT64_MAX);
    assert_int_equal(wanted, VERSION_LIMIT - 1);
    version_raise(&counter, wanted);
    assert_int_equal(version_ceiling_wanted(&counter, UINT64_MAX), 0);
    assert_int_equal(version_take(&counter, UINT64_MAX, 1, &first), 0);
    assert_true(first < VERSION_LIMIT);
    assert_int_equal(version_take(&counter, UINT64_MAX, UINT32_MAX, &first), WEIR_UNAVAILABLE);
}

#define THREADS 4
#define EACH    20000

static struct version_counter shared;

static void *take_many(void *out)
{
    uint64_t *firsts = out;
    for (int i = 0; i < EACH; i++)
        assert_int_equal(version_take(&shared, 1000, 1 + (uint32_t)i % 3, &firsts[i]), 0);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_threads_never_share_a_version(void **state)
{
    (void)state;
    static uint64_t firsts[THREADS][EACH], all[THREADS * EACH * 3];
    pthread_t threads[THREADS];
    size_t n = 0;
    version_init(&shared, 0);
    version_raise(&shared, MS(100000));
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, take_many, firsts[t]), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++) {
        for (int i = 0; i < EACH; i++) {
            assert_true(i == 0 || firsts[t][i] > firsts[t][i - 1]);
            for (int k = 0; k < 1 + i % 3; k++)
                all[n++] = firsts[t][i] + (uint64_t)k;
        }
    }
    qsort(all, n, sizeof(all[0]), by_value);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(all[i], MS(1000) + i); /* none twice, none left out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_before_the_first_ceiling),
        cmocka_unit_test(test_follows_the_clock_and_never_goes_back),
        cmocka_unit_test(test_more_than_a_millisecond_holds),
        cmocka_unit_test(test_the_ceiling_holds_exactly),
        cmocka_unit_test(test_raised_ahead_of_use),
        cmocka_unit_test(test_a_restart_begins_above_all_that_may_have_been_used),
        cmocka_unit_test(test_the_end_of_time),
        cmocka_unit_test(test_threads_never_share_a_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
