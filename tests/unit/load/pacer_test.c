/* pacer: the schedule is exact, shared out without gaps, and cannot be slowed by the server: the
 * last tests drive a whole run with a clock of their own, against a server that pauses. */
#include "cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "../seeded.h"
#include "base/histogram.h"
#include "load/pacer.h"

#define SECOND 1000000000ull
#define MS     1000000ull

static void test_every_number_is_dealt_once(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 7; threads++)
        for (uint64_t requests = 0; requests < 30; requests++) {
            bool seen[32] = {false};
            uint64_t taken = 0, intended;
            for (unsigned t = 0; t < threads; t++) {
                struct pacer pacer;
                pacer_init(&pacer, 0, requests, t, threads);
                pacer_start(&pacer, 5, PACER_NEVER);
                while (!pacer_done(&pacer)) {
                    uint64_t number = pacer_take(&pacer, 77, &intended);
                    assert_true(number < requests && !seen[number]);
                    assert_int_equal(intended, 77); /* closed loop: when it is sent */
                    seen[number] = true;
                    taken++;
                }
                assert_true(pacer_due_ns(&pacer) == PACER_NEVER);
                assert_int_equal(pacer_waiting(&pacer, PACER_NEVER), 0);
            }
            assert_int_equal(taken, requests);
        }
}

static void test_the_time_holds_exactly_its_requests(void **state)
{
    (void)state;
    static const struct {
        double rate;
        uint64_t duration, requests;
    } cases[] = {
        {1000, SECOND, 1000},     {500, 2 * SECOND, 1000}, {3, SECOND, 3},
        {1, SECOND, 1},           {0.5, SECOND, 1},        {0.5, 2 * SECOND + 1, 2},
        {1e9, 1000, 1000},        {7, 10 * SECOND, 70},    {300000, 3600 * SECOND, 1080000000},
        {1.0 / 3, 9 * SECOND, 3},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pacer pacer;
        pacer_init(&pacer, cases[i].rate, PACER_NEVER, 0, 1);
        pacer_start(&pacer, 12345, 12345 + cases[i].duration);
        assert_int_equal(pacer.end, cases[i].requests);
        assert_true(pacer.timed);
    }
    struct pacer pacer; /* a number of requests that is smaller stays */
    pacer_init(&pacer, 1000, 10, 0, 1);
    pacer_start(&pacer, 0, SECOND);
    assert_int_equal(pacer.end, 10);
    assert_false(pacer.timed);
}

static void test_it_does_not_drift(void **state)
{
    (void)state;
    struct pacer pacer;
    pacer_init(&pacer, 30000, PACER_NEVER, 0, 1); /* an interval that is no whole number */
    pacer_start(&pacer, 7, PACER_NEVER);
    pacer.next = 30000ull * 86400; /* a day later */
    uint64_t due = pacer_due_ns(&pacer), want = 7 + 86400 * SECOND;
    assert_true(due >= want - 1 && due <= want + 1);
}

static void test_waiting_counts_what_is_due(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    for (int round = 0; round < 300; round++) {
        unsigned threads = 1 + (unsigned)seeded_below(&random, 4);
        double rate = 1 + (double)seeded_below(&random, 5000);
        uint64_t start = seeded_below(&random, 1000000);
        struct pacer pacer;
        pacer_init(&pacer, rate, seeded_below(&random, 2) ? PACER_NEVER : 200,
                   (unsigned)seeded_below(&random, threads), threads);
        pacer_start(&pacer, start, start + SECOND / 4);
        uint64_t now = start + seeded_below(&random, SECOND / 3);
        uint64_t waiting = pacer_waiting(&pacer, now), taken = 0, intended, last = 0;
        while (pacer_due_ns(&pacer) <= now) {
            pacer_take(&pacer, now, &intended);
            assert_true(intended <= now && intended >= last && intended >= start);
            last = intended;
            taken++;
        }
        assert_int_equal(waiting, taken);
        assert_int_equal(pacer_waiting(&pacer, now), 0);
    }
    struct pacer pacer;
    pacer_init(&pacer, 10, PACER_NEVER, 0, 1);
    pacer_start(&pacer, SECOND, PACER_NEVER);
    assert_int_equal(pacer_waiting(&pacer, SECOND - 1), 0); /* not before the start */
    assert_int_equal(pacer_waiting(&pacer, SECOND), 1);
}

/* A server that takes 1 ms for each request, one after the other, and stands still from `from` to
 * `to`. */
static uint64_t server_answer(uint64_t sent, uint64_t *free_at, uint64_t from, uint64_t to)
{
    uint64_t begin = sent > *free_at ? sent : *free_at;
    uint64_t end = begin + MS;
    if (begin < to && end > from)
        end = to + (end - from < MS ? end - from : MS);
    *free_at = end;
    return end;
}

/* One connection, ten simulated seconds, a pause of one second. */
static void simulate(double rate, struct histogram *latency, uint64_t *requests)
{
    struct pacer pacer;
    uint64_t now = 0, free_at = 0, intended;
    *requests = 0;
    pacer_init(&pacer, rate, PACER_NEVER, 0, 1);
    pacer_start(&pacer, 0, 10 * SECOND);
    while (!pacer_done(&pacer) && now < 10 * SECOND) {
        uint64_t due = pacer_due_ns(&pacer);
        if (now < due)
            now = due;
        pacer_take(&pacer, now, &intended);
        now = server_answer(now, &free_at, 4 * SECOND, 5 * SECOND);
        histogram_record(latency, now - intended);
        ++*requests;
    }
}

static void test_a_pause_shows_in_an_open_loop(void **state)
{
    (void)state;
    struct histogram *latency = histogram_create();
    uint64_t requests;
    simulate(200, latency, &requests);
    assert_int_equal(requests, 2000); /* none was left out because of the pause */
    /* 200 were meant for the second of the pause; they waited between 1 s and nothing. */
    assert_true(histogram_quantile(latency, 0.99) > 850 * MS);
    assert_true(histogram_quantile(latency, 0.95) > 400 * MS);
    assert_true(histogram_max(latency) >= 995 * MS);
    assert_true(histogram_quantile(latency, 0.5) < 2 * MS);
    histogram_destroy(latency);
}

static void test_the_same_pause_hides_in_a_closed_loop(void **state)
{
    (void)state;
    struct histogram *latency = histogram_create();
    uint64_t requests;
    simulate(0, latency, &requests);
    assert_true(requests > 8000);
    assert_true(histogram_quantile(latency, 0.999) < 2 * MS); /* one sample in 9,000 */
    assert_true(histogram_max(latency) >= 1000 * MS);
    histogram_destroy(latency);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_is_dealt_once),
        cmocka_unit_test(test_the_time_holds_exactly_its_requests),
        cmocka_unit_test(test_it_does_not_drift),
        cmocka_unit_test(test_waiting_counts_what_is_due),
        cmocka_unit_test(test_a_pause_shows_in_an_open_loop),
        cmocka_unit_test(test_the_same_pause_hides_in_a_closed_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
