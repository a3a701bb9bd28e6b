/* consumer_test.c: what becomes of records under every kind of answer a sink can give: order,
 * retry, breaker, sessions, the cursor (see stage.h for what is always checked). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../seeded.h"
#include "stage.h"

static uint64_t seed;
static pthread_mutex_t random_lock = PTHREAD_MUTEX_INITIALIZER;
static struct seeded random_state;

static uint64_t below(uint64_t n)
{
    pthread_mutex_lock(&random_lock);
    uint64_t value = seeded_below(&random_state, n);
    pthread_mutex_unlock(&random_lock);
    return value;
}

static int end(void **state)
{
    (void)state;
    stage_destroy();
    return 0;
}

/* Records r0.. of `keys` keys; the partition follows the key, as it does in the log. */
static void append_some(unsigned n, unsigned keys)
{
    static unsigned serial;
    for (unsigned i = 0; i < n; i++) {
        char id[32], key[32];
        unsigned k = (unsigned)below(keys);
        snprintf(id, sizeof(id), "r%u", serial++);
        snprintf(key, sizeof(key), "key%u", k);
        stage_append(0, k % stage->config.partitions, id, key, 20);
    }
}

static void expect_all_stored(unsigned sink)
{
    pthread_mutex_lock(&stage->mutex);
    for (size_t i = 0; i < stage->n; i++)
        assert_true(stage->entries[i].stored[sink] || stage->entries[i].record.stream != 0);
    pthread_mutex_unlock(&stage->mutex);
}

static void everything_arrives_once_where_nothing_fails(void **state)
{
    (void)state;
    stage_create(2, 2, 8);
    stage->delivery_sinks[0].split = 4;
    stage_start();
    for (int i = 0; i < 20; i++)
        append_some(100, 30);
    WAIT_UNTIL(stage_drained(0) && stage_drained(1));
    expect_all_stored(0);
    expect_all_stored(1);
    for (size_t i = 0; i < stage->n; i++)
        assert_int_equal(stage->entries[i].sent[0], 1);
    struct delivery_sink_stats stats = stage_sink_stats(0);
    assert_int_equal(stats.stored, 2000);
    assert_int_equal(stats.failures + stats.retries + stats.refused, 0);
    assert_int_equal(histogram_sum(stats.batch_records), 2000);
    WAIT_UNTIL(stage_consumer_stats(0).settled == 2000);
    WAIT_UNTIL(stage_consumer_stats(0).inflight_bytes == 0);
    assert_int_equal(stage_consumer_stats(0).lag, 0);
    stage_stop(1000);
}

static bool is_bad(uint64_t offset)
{
    return offset % 97 == 13 || offset % 101 == 7;
}

/* Every kind of failure at random: whole calls that fail before or after the work, records that
 * must wait, records refused, batches refused as a whole. */
static int anything_may_happen(struct stage_sink *s, const struct batch *batch,
                               struct sink_result *results, struct diag *diag)
{
    bool poison = false, bad = false;
    for (size_t i = 0; i < batch->n; i++) {
        poison = poison || batch->records[i].offset % 97 == 13;
        bad = bad || is_bad(batch->records[i].offset);
    }
    switch (below(12)) {
    case 0:
        return diag_set(diag, WEIR_UNAVAILABLE, "no connection");
    case 1: /* it was done, and nobody heard of it */
        if (!bad)
            for (size_t i = 0; i < batch->n; i++)
                stage_store(s, &batch->records[i]);
        return diag_set(diag, WEIR_UNKNOWN, "the connection was lost");
    case 2:
        return diag_set(diag, WEIR_NO_SPACE, "full");
    case 3:
        return WEIR_IO;
    }
    if (poison && (batch->n > 1 || below(2)))
        return diag_set(diag, WEIR_REFUSED, "somewhere in there is poison");
    for (size_t i = 0; i < batch->n; i++) {
        results[i].outcome = OUTCOME_STORED;
        if (is_bad(batch->records[i].offset)) {
            stage_refuse(&results[i], "bad");
        } else if (below(20) == 0) {
            results[i].outcome = OUTCOME_RETRY;
            snprintf(results[i].reason, sizeof(results[i].reason), "busy");
        }
    }
    return 0;
}

static void under_random_failures(unsigned writers, unsigned split, unsigned batch_records)
{
    stage_create(2, 3, writers);
    for (int i = 0; i < 2; i++) {
        stage->delivery_sinks[i].split = split;
        stage->delivery_sinks[i].batch_records = batch_records;
        stage->delivery_sinks[i].bisect_calls = 8;
    }
    stage->sinks[0].plan = anything_may_happen;
    stage_start();
    for (int i = 0; i < 15; i++) {
        append_some(100, 25);
        stage_nap();
    }
    WAIT_UNTIL(stage_drained(0) && stage_drained(1));
    stage_stop(1000);
    for (size_t i = 0; i < stage->n; i++) {
        struct entry *e = &stage->entries[i];
        bool bad = is_bad(e->record.offset);
        assert_true(e->stored[0] != e->dead[0]);
        assert_int_equal(e->dead[0], bad);
        assert_true(e->stored[1]);
        assert_true(e->told[0] && e->told[1]);
    }
}

static void order_and_no_loss_in_many_parts(void **state)
{
    (void)state;
    under_random_failures(8, 4, 7);
}

static void order_and_no_loss_in_one_part(void **state)
{
    (void)state;
    under_random_failures(1, 4, 50);
}

static void order_and_no_loss_one_record_a_call(void **state)
{
    (void)state;
    under_random_failures(8, 2, 1);
}

/* Ids that come again and again, under failures: versions stand in for each other. */
static void the_same_ids_over_and_over_under_failures(void **state)
{
    (void)state;
    stage_create(1, 3, 8);
    stage->delivery_sinks[0].split = 3;
    stage->delivery_sinks[0].batch_records = 20;
    stage->sinks[0].plan = anything_may_happen;
    stage_start();
    for (int i = 0; i < 1500; i++) {
        char id[32], key[32];
        unsigned n = (unsigned)below(40);
        snprintf(id, sizeof(id), "same%u", n);
        snprintf(key, sizeof(key), "key%u", n % 10);
        stage_append(0, n % 10 % 4, id, key, 5);
        if (i % 50 == 0)
            stage_nap();
    }
    WAIT_UNTIL(stage_drained(0));
    stage_stop(1000);
    /* What stays of an id is its highest version that is not bad. */
    for (size_t i = 0; i < stage->n; i++) {
        struct entry *e = &stage->entries[i];
        bool bad = is_bad(e->record.offset), last = !bad;
        for (size_t j = i + 1; last && j < stage->n; j++)
            if (slice_equal(stage->entries[j].record.id, e->record.id))
                last = is_bad(j + 1);
        if (last)
            assert_true(e->stored[0]);
        assert_false(bad && e->stored[0]);
    }
}

static _Atomic unsigned failures_left;

static int fail_some_times(struct stage_sink *s, const struct batch *batch,
                           struct sink_result *results, struct diag *diag)
{
    (void)s;
    if (failures_left > 0) {
        failures_left--;
        return diag_set(diag, WEIR_UNAVAILABLE, "still down");
    }
    for (size_t i = 0; i < batch->n; i++)
        results[i].outcome = OUTCOME_STORED;
    return 0;
}

static void the_breaker_opens_probes_and_closes(void **state)
{
    (void)state;
    stage_create(1, 4, 8);
    stage->delivery_sinks[0].split = 8;
    stage->sinks[0].plan = fail_some_times;
    failures_left = UINT32_MAX;
    append_some(400, 100);
    stage_start();
    WAIT_UNTIL(delivery_breaker_open(stage->delivery, 0));
    WAIT_UNTIL(stage_reported("breaker open after 5"));
    assert_true(stage_reported("still down"));
    /* What was in flight when it opened has ended; from now on one call at a time. */
    unsigned calls = stage->sinks[0].calls + 8;
    WAIT_UNTIL(stage->sinks[0].calls >= calls);
    WAIT_UNTIL(stage->sinks[0].in_calls == 0);
    stage->sinks[0].most_in_calls = 0;
    calls = stage->sinks[0].calls + 10;
    WAIT_UNTIL(stage->sinks[0].calls >= calls);
    assert_int_equal(stage->sinks[0].most_in_calls, 1);
    struct delivery_sink_stats stats = stage_sink_stats(0);
    assert_true(stats.breaker_open && stats.failures >= 10 && stats.next_try_ms <= 5);
    assert_string_equal(stats.last_error, "still down");
    failures_left = 0;
    WAIT_UNTIL(stage_drained(0));
    assert_false(delivery_breaker_open(stage->delivery, 0));
    assert_true(stage_reported("works again"));
    expect_all_stored(0);
    stage_stop(1000);
}

static void a_session_that_failed_is_opened_anew(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].plan = fail_some_times;
    failures_left = 3;
    append_some(10, 3);
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    assert_int_equal(stage->sinks[0].sessions_opened, 4);
    append_some(10, 3);
    WAIT_UNTIL(stage_drained(0));
    assert_int_equal(stage->sinks[0].sessions_opened, 4);
    stage->sinks[0].refuse_sessions = true;
    failures_left = 1;
    append_some(10, 3);
    WAIT_UNTIL(stage_reported("nobody answers"));
    stage->sinks[0].refuse_sessions = false;
    WAIT_UNTIL(stage_drained(0));
    stage_stop(1000);
}

/* While records keep coming, calls follow each other on the lane without a turn in between. */
static void the_next_call_follows_at_once(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->delivery_sinks[0].batch_records = 10;
    stage->check = false;
    stage_start();
    struct lane_counts counts;
    do {
        append_some(50, 10);
        WAIT_UNTIL(stage_drained(0));
        lane_counts(stage->lanes[0], &counts);
    } while (counts.submitted >= stage->sinks[0].calls);
    struct delivery_sink_stats stats = stage_sink_stats(0);
    assert_int_equal(stats.stored, stage->n);
    assert_int_equal(histogram_sum(stats.batch_records), stage->n);
    assert_true(histogram_max(stats.batch_records) <= 10);
    expect_all_stored(0);
    stage_stop(1000);
}

static _Atomic bool stuck;

static int one_key_is_stuck(struct stage_sink *s, const struct batch *batch,
                            struct sink_result *results, struct diag *diag)
{
    (void)s;
    (void)diag;
    for (size_t i = 0; i < batch->n; i++)
        results[i].outcome =
            stuck && slice_is(batch->records[i].key, "stuck") ? OUTCOME_RETRY : OUTCOME_STORED;
    return 0;
}

static unsigned stored_count(unsigned sink)
{
    unsigned n = 0;
    pthread_mutex_lock(&stage->mutex);
    for (size_t i = 0; i < stage->n; i++)
        n += stage->entries[i].stored[sink];
    pthread_mutex_unlock(&stage->mutex);
    return n;
}

/* Only the part of the stuck key waits; without order, only its records do. */
static void a_record_in_retry_holds_up_what_it_must(bool ordered)
{
    stage_create(1, 2, 8);
    stage->delivery_sinks[0].ordered = ordered;
    stage->delivery_sinks[0].breaker_failures = 1000000;
    stage->sinks[0].plan = one_key_is_stuck;
    stuck = true;
    stage->check = ordered;
    stage_append(0, 0, "first", "stuck", 5);
    stage_start();
    WAIT_UNTIL(stage->sinks[0].calls > 0);
    for (unsigned i = 0; i < 40; i++) {
        char id[16];
        char key[16];
        snprintf(id, sizeof(id), "r%u", i);
        snprintf(key, sizeof(key), "key%u", i % 8);
        stage_append(0, i % 4, id, key, 5);
    }
    WAIT_UNTIL(stored_count(0) == (ordered ? 30u : 40u));
    unsigned calls = stage->sinks[0].calls + 3;
    WAIT_UNTIL(stage->sinks[0].calls > calls);
    assert_int_equal(stored_count(0), ordered ? 30 : 40);
    assert_int_equal(stage->readers[0].settled[0], 0);
    stuck = false;
    WAIT_UNTIL(stage_drained(0));
    expect_all_stored(0);
    stage_stop(1000);
}

static void a_record_in_retry_holds_up_its_part(void **state)
{
    (void)state;
    a_record_in_retry_holds_up_what_it_must(true);
}

static void without_order_it_holds_up_nothing(void **state)
{
    (void)state;
    a_record_in_retry_holds_up_what_it_must(false);
}

static void streams_that_no_sink_takes_settle_at_once(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    for (unsigned i = 0; i < 10; i++)
        stage_append(i % 2 ? 1 : 77777, 0, "x", "y", 3); /* 77777: a stream since removed */
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    assert_int_equal(stage->sinks[0].calls, 0);
    stage_stop(1000);
}

/* One consumer that feeds two sinks: the cursor waits for both. */
static void a_shared_cursor_waits_for_all_its_sinks(void **state)
{
    (void)state;
    stage_create(2, 1, 1);
    static const unsigned both[] = {0, 1};
    stage->consumers[0].sinks = both;
    stage->consumers[0].n_sinks = 2;
    stage->config.n_consumers = 1;
    stage->sinks[1].hang = true;
    append_some(50, 5);
    stage_start();
    WAIT_UNTIL(stored_count(0) == 50);
    for (int p = 0; p < 4; p++)
        assert_int_equal(stage->readers[0].settled[p], 0);
    stage->sinks[1].hang = false;
    WAIT_UNTIL(stage_drained(0));
    expect_all_stored(1);
    stage_stop(1000);
}

int main(void)
{
    seed = seeded_choose();
    random_state.state = seed;
#define T(test) cmocka_unit_test_teardown(test, end)
    const struct CMUnitTest tests[] = {
        T(everything_arrives_once_where_nothing_fails),
        T(order_and_no_loss_in_many_parts),
        T(order_and_no_loss_in_one_part),
        T(order_and_no_loss_one_record_a_call),
        T(the_same_ids_over_and_over_under_failures),
        T(the_breaker_opens_probes_and_closes),
        T(a_session_that_failed_is_opened_anew),
        T(the_next_call_follows_at_once),
        T(a_record_in_retry_holds_up_its_part),
        T(without_order_it_holds_up_nothing),
        T(streams_that_no_sink_takes_settle_at_once),
        T(a_shared_cursor_waits_for_all_its_sinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
