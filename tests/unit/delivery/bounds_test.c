/* bounds_test.c: what delivery does not do: grow without limit, wait longer than told, drag others
 * down, hold on to what was taken away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stage.h"

static int end(void **state)
{
    (void)state;
    stage_destroy();
    return 0;
}

static void append_some(unsigned n, size_t doc_bytes)
{
    for (unsigned i = 0; i < n; i++) {
        char id[32], key[32];
        snprintf(id, sizeof(id), "r%zu", stage->n);
        snprintf(key, sizeof(key), "key%zu", stage->n % 4);
        stage_append(0, (uint32_t)(stage->n % 4), id, key, doc_bytes);
    }
}

static size_t read_so_far(unsigned consumer)
{
    pthread_mutex_lock(&stage->mutex);
    size_t n = stage->readers[consumer].next;
    pthread_mutex_unlock(&stage->mutex);
    return n;
}

static int not_now(struct stage_sink *s, const struct batch *batch, struct sink_result *results,
                   struct diag *diag)
{
    (void)s;
    (void)batch;
    (void)results;
    return diag_set(diag, WEIR_UNAVAILABLE, "not now");
}

static void memory_is_bounded_in_bytes(bool hangs)
{
    stage_create(2, 2, 8);
    stage->config.inflight_bytes = 100000;
    stage->sinks[0].hang = hangs;
    stage->sinks[0].plan = hangs ? NULL : not_now;
    append_some(2000, 1000);
    stage_start();
    WAIT_UNTIL(stage_drained(1)); /* it had the same records, and time enough */
    WAIT_UNTIL(stage_consumer_stats(0).inflight_bytes >= 100000);
    for (int i = 0; i < 20; i++) {
        stage_nap();
        assert_true(stage_consumer_stats(0).inflight_bytes < 100000 + 2000);
    }
    size_t n = read_so_far(0);
    assert_true(n >= 90 && n <= 110);
    assert_int_equal(stage_consumer_stats(0).lag, 2000);
    stage->sinks[0].hang = false;
    stage->sinks[0].plan = NULL;
    WAIT_UNTIL(stage_drained(0));
    WAIT_UNTIL(stage_consumer_stats(0).inflight_bytes == 0);
    stage_stop(1000);
}

static void memory_is_bounded_while_a_sink_hangs(void **state)
{
    (void)state;
    memory_is_bounded_in_bytes(true);
}

static void memory_is_bounded_while_a_sink_fails(void **state)
{
    (void)state;
    memory_is_bounded_in_bytes(false);
}

static void memory_is_bounded_in_records(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->check = false;
    stage->sinks[0].hang = true;
    append_some(70000, 1);
    stage_start();
    WAIT_UNTIL(stage_consumer_stats(0).inflight_records == 65536);
    stage_nap();
    assert_int_equal(read_so_far(0), 65536);
    stage->sinks[0].hang = false;
    WAIT_UNTIL(read_so_far(0) == 70000 && stage_consumer_stats(0).inflight_records == 0);
    stage_stop(1000);
}

static int stuck_forever(struct stage_sink *s, const struct batch *batch,
                         struct sink_result *results, struct diag *diag)
{
    (void)s;
    (void)diag;
    for (size_t i = 0; i < batch->n; i++)
        results[i].outcome = batch->records[i].offset == 1 ? OUTCOME_RETRY : OUTCOME_STORED;
    return 0;
}

/* One record that never settles: the marks behind it are bounded too. */
static void what_stands_behind_one_record_is_bounded(void **state)
{
    (void)state;
    stage_create(1, 2, 8);
    stage->check = false;
    stage->delivery_sinks[0].ordered = false;
    stage->sinks[0].plan = stuck_forever;
    stage->config.partitions = 1;
    for (int i = 0; i < 300000; i++)
        stage_append(0, 0, i ? "x" : "first", "y", 0);
    stage_start();
    WAIT_UNTIL(read_so_far(0) >= 1 << 18);
    WAIT_UNTIL(stage_consumer_stats(0).inflight_records == 1);
    for (int i = 0; i < 10; i++)
        stage_nap();
    assert_true(read_so_far(0) < (1 << 18) + 4096);
    stage_stop(1000);
}

/* A sink that hangs or fails leaves the other consumer's lag where it is: at nothing. */
static void one_sink_down_leaves_the_other_alone(void **state)
{
    (void)state;
    stage_create(3, 1, 1);
    stage->sinks[0].hang = true;
    stage->sinks[2].plan = not_now;
    stage_start();
    for (int i = 0; i < 50; i++) {
        append_some(20, 50);
        WAIT_UNTIL(stage_consumer_stats(1).lag == 0);
    }
    assert_int_equal(stage_consumer_stats(0).lag, 1000);
    assert_int_equal(stage_consumer_stats(2).lag, 1000);
    stage->sinks[0].hang = false;
    stage->sinks[2].plan = NULL;
    WAIT_UNTIL(stage_drained(0) && stage_drained(2));
    stage_stop(1000);
}

static uint64_t stop_ms(uint32_t deadline_ms)
{
    uint64_t start = clock_mono_ns();
    stage_stop(deadline_ms);
    return (clock_mono_ns() - start) / 1000000;
}

static void *release_the_hang(void *argument)
{
    for (int i = 0; i < 20; i++)
        stage_nap(); /* delivery_stop is on its way; if not, the test only proves less */
    stage->sinks[0].hang = false;
    return argument;
}

static void stopping_waits_for_what_is_in_flight(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].hang = true;
    append_some(10, 10);
    stage_start();
    WAIT_UNTIL(stage->sinks[0].in_calls == 1);
    append_some(10, 10);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_the_hang, NULL), 0);
    assert_true(stop_ms(20000) < 10000);
    pthread_join(thread, NULL);
    assert_true(stage->readers[0].settled[0] > 0); /* the call's outcome was not thrown away */
}

static int refuse(struct stage_sink *s, const struct batch *batch, struct sink_result *results,
                  struct diag *diag)
{
    (void)s;
    (void)diag;
    for (size_t i = 0; i < batch->n; i++)
        stage_refuse(&results[i], "too late");
    return 0;
}

/* The calls end later, whatever they say, when delivery is long gone. */
static void stopping_with_a_hung_sink_ends_at_the_deadline(void **state)
{
    (void)state;
    static stage_plan *const plans[] = {NULL, not_now, refuse};
    for (int i = 0; i < 3; i++) {
        stage_create(2, 2, 8);
        stage->sinks[0].hang = true;
        stage->sinks[0].plan = plans[i];
        append_some(100, 10);
        stage_start();
        WAIT_UNTIL(stage->sinks[0].in_calls == 2 && stage_drained(1));
        uint64_t took = stop_ms(30);
        assert_true(took >= 30 && took < 5000);
        assert_int_equal(stage->sinks[0].in_calls, 2);
        for (int p = 0; p < 4; p++)
            assert_int_equal(stage->readers[0].settled[p], 0);
        if (i < 2)
            stage_destroy();
    }
}

static void a_deadline_of_zero_does_not_wait(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].hang = true;
    append_some(100, 10);
    stage_start();
    WAIT_UNTIL(stage->sinks[0].in_calls == 1);
    assert_true(stop_ms(0) < 5000);
}

static void stopping_does_not_wait_for_a_retry(void **state)
{
    (void)state;
    for (unsigned failures = 1; failures < 100; failures *= 50) { /* breaker, then backoff only */
        stage_create(1, 2, 8);
        stage->delivery_sinks[0].retry_min_ms = stage->delivery_sinks[0].retry_max_ms = 3600000;
        stage->delivery_sinks[0].breaker_failures = failures;
        stage->sinks[0].plan = not_now;
        append_some(100, 10);
        stage_start();
        WAIT_UNTIL(stage_sink_stats(0).failures > 0);
        WAIT_UNTIL(stage->sinks[0].in_calls == 0);
        assert_true(stop_ms(60000) < 10000);
        if (failures == 1)
            stage_destroy();
    }
}

static void stopping_at_once_after_starting(void **state)
{
    (void)state;
    stage_create(2, 2, 8);
    append_some(1000, 10);
    for (int i = 0; i < 20; i++) {
        stage->n_readers = 0;
        memset(stage->readers, 0, sizeof(stage->readers));
        for (size_t e = 0; e < stage->n; e++)
            memset(stage->entries[e].told, 0, sizeof(stage->entries[e].told));
        stage_start();
        if (i % 2)
            WAIT_UNTIL(stage->sinks[i % 4 / 2].calls > 0);
        stage_stop(10000);
    }
}

static void a_lane_that_is_full_delays_and_no_more(void **state)
{
    (void)state;
    stage_create(1, 1, 8);
    lane_close(stage->lanes[0], 1000);
    struct lane_config lane = {"narrow", 1, 1, 0}; /* one task may wait; 32 parts want to */
    assert_int_equal(lane_create(&lane, &stage->lanes[0], NULL), 0);
    stage->delivery_sinks[0].lane = stage->lanes[0];
    stage->delivery_sinks[0].split = 8;
    for (unsigned i = 0; i < 3000; i++) {
        char id[16], key[16];
        snprintf(id, sizeof(id), "r%u", i);
        snprintf(key, sizeof(key), "k%u", i % 100);
        stage_append(0, i % 4, id, key, 5);
    }
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    stage_stop(1000);
}

struct blocker {
    struct lane_task task;
    _Atomic bool started, go, done;
};

static void block(struct lane_task *task)
{
    struct blocker *b = (struct blocker *)task;
    b->started = true;
    while (!b->go)
        stage_nap();
}

static void blocked(struct lane_task *task, enum lane_completion how)
{
    (void)how;
    ((struct blocker *)task)->done = true;
}

/* Others' tasks fill the lane: no call of ours ends, so only time can tell when to try again. */
static void a_lane_full_of_others_is_tried_again(void **state)
{
    (void)state;
    stage_create(1, 1, 8);
    lane_close(stage->lanes[0], 1000);
    struct lane_config lane = {"narrow", 1, 1, 0};
    assert_int_equal(lane_create(&lane, &stage->lanes[0], NULL), 0);
    stage->delivery_sinks[0].lane = stage->lanes[0];
    static struct blocker blockers[2];
    memset(blockers, 0, sizeof(blockers));
    for (int i = 0; i < 2; i++) {
        blockers[i].task.run = block;
        blockers[i].task.finish = blocked;
        assert_int_equal(lane_submit(stage->lanes[0], NULL, &blockers[i].task), 0);
        if (i == 0)
            WAIT_UNTIL(blockers[0].started);
    }
    append_some(10, 10);
    stage_start();
    struct lane_counts counts;
    WAIT_UNTIL((lane_counts(stage->lanes[0], &counts), counts.rejected >= 3));
    assert_int_equal(stage->sinks[0].calls, 0);
    blockers[0].go = blockers[1].go = true;
    WAIT_UNTIL(stage_drained(0));
    stage_stop(1000);
}

static void a_closed_lane_ends_delivery_there_and_it_can_be_stopped(void **state)
{
    (void)state;
    stage_create(2, 1, 8);
    lane_refuse(stage->lanes[0]);
    append_some(10, 10);
    stage_start();
    WAIT_UNTIL(strstr(stage_sink_stats(0).last_error, "closed"));
    WAIT_UNTIL(stage_drained(1));
    assert_true(stop_ms(60000) < 10000);
}

static atomic_uint asked;

static bool nobody_waits(void *context)
{
    (void)context;
    atomic_fetch_add(&asked, 1);
    return false;
}

/* Reads are put off while nobody waits, and never for good; who hurries is served. */
static void nothing_stays_behind_while_nobody_waits(void **state)
{
    (void)state;
    stage_create(1, 1, 4);
    stage->config.events.waited_for = nobody_waits;
    stage_start();
    for (unsigned i = 0; i < 300; i++) {
        append_some(1, 10);
        if (i % 7 == 0)
            delivery_hurry(stage->delivery);
        if (i % 50 == 0)
            WAIT_UNTIL(stage_drained(0));
    }
    WAIT_UNTIL(stage_drained(0));
    assert_int_not_equal(atomic_load(&asked), 0);
    assert_true(stage->sinks[0].calls < 300 * 4);
    assert_true(stop_ms(60000) < 10000);
}

static void a_damaged_log_stops_its_consumer_with_a_reason(void **state)
{
    (void)state;
    stage_create(2, 1, 1);
    append_some(10, 10);
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    stage->readers[0].error = WEIR_CORRUPT;
    append_some(10, 10);
    WAIT_UNTIL(stage_consumer_stats(0).stopped);
    assert_non_null(strstr(stage_consumer_stats(0).why_stopped, "byte 4711"));
    assert_true(stage_reported("stopped: the log cannot be read: stage: damaged at byte 4711"));
    WAIT_UNTIL(stage_drained(1));
    assert_false(stage_consumer_stats(1).stopped);
    assert_true(stop_ms(60000) < 10000);
}

static void a_log_that_cannot_be_read_for_a_while(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->readers[0].error = WEIR_IO;
    stage_start();
    append_some(10, 10);
    WAIT_UNTIL(stage_consumer_stats(0).stopped);
    stage->readers[0].error = 0;
    WAIT_UNTIL(stage_drained(0));
    assert_false(stage_consumer_stats(0).stopped);
    assert_true(stage_reported("can be read again"));
    stage_stop(1000);
}

static void take_away(uint32_t partition)
{
    pthread_mutex_lock(&stage->mutex);
    stage->readers[0].revoke = (int)partition;
    pthread_cond_broadcast(&stage->grown);
    pthread_mutex_unlock(&stage->mutex);
}

static bool is_released(uint32_t partition)
{
    pthread_mutex_lock(&stage->mutex);
    bool released = stage->readers[0].released[partition];
    pthread_mutex_unlock(&stage->mutex);
    return released;
}

/* Taken away with records in flight, in retry and waiting, in one part and in many. */
static void a_partition_taken_away(unsigned writers, bool retrying)
{
    stage_create(1, 2, writers);
    stage->delivery_sinks[0].batch_records = 10;
    stage->sinks[0].hang = !retrying;
    stage->sinks[0].plan = retrying ? not_now : NULL;
    append_some(200, 10);
    stage_start();
    WAIT_UNTIL(stage->sinks[0].calls > 0 && read_so_far(0) == 200);
    take_away(2);
    append_some(200, 10);
    if (!retrying) {
        WAIT_UNTIL(read_so_far(0) == 400);
        if (writers == 1)
            assert_false(is_released(2)); /* some of it is in flight */
    }
    stage->sinks[0].hang = false;
    stage->sinks[0].plan = NULL;
    WAIT_UNTIL(is_released(2));
    WAIT_UNTIL(stage_drained(0)); /* the others */
    WAIT_UNTIL(stage_consumer_stats(0).inflight_records == 0);
    unsigned given_up = 0;
    pthread_mutex_lock(&stage->mutex);
    for (size_t i = 0; i < stage->n; i++) {
        const struct entry *e = &stage->entries[i];
        if (e->record.partition == 2)
            given_up += !e->stored[0];
        else
            assert_true(e->stored[0]);
    }
    pthread_mutex_unlock(&stage->mutex);
    assert_true(given_up >= 80);
    stage_stop(1000);
}

static void a_partition_taken_away_from_many_parts(void **state)
{
    (void)state;
    a_partition_taken_away(8, false);
}

static void a_partition_taken_away_from_one_part(void **state)
{
    (void)state;
    a_partition_taken_away(1, false);
}

static void a_partition_taken_away_while_in_retry(void **state)
{
    (void)state;
    a_partition_taken_away(1, true);
}

static void wrong_configurations(void **state)
{
    (void)state;
    stage_create(2, 1, 1);
    struct delivery *delivery;
    static const unsigned missing = 7;
    stage->consumers[1].sinks = &missing;
    assert_int_equal(delivery_start(&stage->config, &delivery, NULL), WEIR_INVALID);
    stage->consumers[1].sinks = &stage->sink_indexes[0]; /* fed twice */
    assert_int_equal(delivery_start(&stage->config, &delivery, NULL), WEIR_INVALID);
    stage->consumers[1].sinks = &stage->sink_indexes[1];
    stage->delivery_sinks[0].split = 65;
    assert_int_equal(delivery_start(&stage->config, &delivery, NULL), WEIR_INVALID);
    stage->delivery_sinks[0].split = 1;
    stage->delivery_sinks[0].name = "not/a/file";
    assert_int_equal(delivery_start(&stage->config, &delivery, NULL), WEIR_INVALID);
}

int main(void)
{
#define T(test) cmocka_unit_test_teardown(test, end)
    const struct CMUnitTest tests[] = {
        T(memory_is_bounded_while_a_sink_hangs),
        T(memory_is_bounded_while_a_sink_fails),
        T(memory_is_bounded_in_records),
        T(what_stands_behind_one_record_is_bounded),
        T(one_sink_down_leaves_the_other_alone),
        T(stopping_waits_for_what_is_in_flight),
        T(stopping_with_a_hung_sink_ends_at_the_deadline),
        T(a_deadline_of_zero_does_not_wait),
        T(stopping_does_not_wait_for_a_retry),
        T(stopping_at_once_after_starting),
        T(a_lane_that_is_full_delays_and_no_more),
        T(a_lane_full_of_others_is_tried_again),
        T(a_closed_lane_ends_delivery_there_and_it_can_be_stopped),
        T(nothing_stays_behind_while_nobody_waits),
        T(a_damaged_log_stops_its_consumer_with_a_reason),
        T(a_log_that_cannot_be_read_for_a_while),
        T(a_partition_taken_away_from_many_parts),
        T(a_partition_taken_away_from_one_part),
        T(a_partition_taken_away_while_in_retry),
        T(wrong_configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
