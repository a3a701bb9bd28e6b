/* refused_test.c: records that a sink refuses: versions below, bisection, dead letters and what
 * happens when they cannot be kept (see stage.h for what is always checked). */
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

static void append_some(unsigned n, unsigned keys)
{
    for (unsigned i = 0; i < n; i++) {
        char id[32], key[32];
        snprintf(id, sizeof(id), "r%zu", stage->n);
        snprintf(key, sizeof(key), "key%u", i % keys);
        stage_append(0, i % keys % stage->config.partitions, id, key, 20);
    }
}

static int refuse_versions_from_4(struct stage_sink *s, const struct batch *batch,
                                  struct sink_result *results, struct diag *diag)
{
    (void)s;
    (void)diag;
    for (size_t i = 0; i < batch->n; i++)
        if (batch->records[i].version >= 4 && slice_is(batch->records[i].id, "same"))
            stage_refuse(&results[i], "too new for me");
        else
            results[i].outcome = OUTCOME_STORED;
    return 0;
}

static void when_the_highest_version_is_refused_the_next_is_sent(void **state)
{
    (void)state;
    stage_create(1, 1, 8);
    stage->sinks[0].plan = refuse_versions_from_4;
    for (int i = 0; i < 5; i++)
        stage_append(0, 0, "same", "k", 5);
    stage_append(0, 0, "other", "k", 5);
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    stage_stop(1000);
    static const unsigned sent[] = {0, 0, 1, 1, 1, 1};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(stage->entries[i].sent[0], sent[i]);
        assert_int_equal(stage->entries[i].dead[0], i == 3 || i == 4);
        assert_int_equal(stage->entries[i].stored[0], i == 2 || i == 5);
        assert_true(stage->entries[i].told[0]);
    }
    assert_int_equal(stage->sinks[0].calls, 3);
}

/* Two loops stamp and append at once: the log's order is not always that of the versions. */
static void the_highest_version_is_sent_wherever_it_stands(void **state)
{
    (void)state;
    for (unsigned highest = 0; highest < 4; highest++) {
        if (stage)
            stage_destroy();
        stage_create(1, 1, 8);
        for (unsigned i = 0; i < 4; i++) {
            stage_append(0, 0, "same", "k", 5);
            stage->entries[i].record.version = 10 + (i + 3 - highest) % 4;
        }
        stage_start();
        WAIT_UNTIL(stage_drained(0));
        stage_stop(1000);
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(stage->entries[i].sent[0], i == highest);
    }
}

static int refuse_all_as_a_whole(struct stage_sink *s, const struct batch *batch,
                                 struct sink_result *results, struct diag *diag)
{
    (void)s;
    (void)results;
    return diag_set(diag, WEIR_REFUSED, "never %zu", batch->n);
}

static void all_versions_of_an_id_refused(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].plan = refuse_all_as_a_whole;
    for (int i = 0; i < 8; i++)
        stage_append(0, i % 2 ? 1 : 0, "same", i % 2 ? "a" : "b", 5);
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    stage_stop(1000);
    for (int i = 0; i < 8; i++)
        assert_true(stage->entries[i].dead[0] && stage->entries[i].sent[0] == 1);
    assert_int_equal(stage->sinks[0].calls, 8); /* each alone: nothing to halve */
}

static int refuse_poison(struct stage_sink *s, const struct batch *batch,
                         struct sink_result *results, struct diag *diag)
{
    (void)s;
    for (size_t i = 0; i < batch->n; i++) {
        results[i].outcome = OUTCOME_STORED;
        if (slice_is(batch->records[i].key, "poison"))
            return diag_set(diag, WEIR_REFUSED, "it violates a constraint");
    }
    return 0;
}

static void a_refused_batch_is_halved_down_to_the_bad_record(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].plan = refuse_poison;
    for (unsigned i = 0; i < 500; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r%u", i);
        stage_append(0, i % 4, id, i == 137 ? "poison" : "k", 5);
    }
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    struct delivery_sink_stats stats = stage_sink_stats(0);
    assert_int_equal(stats.stored, 499);
    assert_int_equal(stats.refused, 1);
    assert_int_equal(stats.dead_letters, 1);
    assert_int_equal(stats.bisections, 1);
    assert_int_equal(stats.failures, 0); /* it is the data, not the store */
    assert_true(stage->sinks[0].calls <= 1 + 18);
    assert_true(stage->entries[137].dead[0]);
    WAIT_UNTIL(stage_reported("r137"));
    assert_true(stage_reported("it violates a constraint"));
    stage_stop(1000);
}

/* The store goes away in the middle of a bisection. */
static int refuse_poison_and_fail(struct stage_sink *s, const struct batch *batch,
                                  struct sink_result *results, struct diag *diag)
{
    if (s->calls % 3 == 0)
        return diag_set(diag, WEIR_UNAVAILABLE, "gone for a moment");
    return refuse_poison(s, batch, results, diag);
}

static void a_transient_failure_does_not_disturb_a_bisection(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].plan = refuse_poison_and_fail;
    for (unsigned i = 0; i < 300; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r%u", i);
        stage_append(0, 0, id, i == 20 || i == 250 ? "poison" : "k", 5);
    }
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    assert_int_equal(stage_sink_stats(0).refused, 2);
    assert_int_equal(stage_sink_stats(0).stored, 298);
    stage_stop(1000);
}

static int refuse_everything(struct stage_sink *s, const struct batch *batch,
                             struct sink_result *results, struct diag *diag)
{
    (void)s;
    (void)diag;
    for (size_t i = 0; i < batch->n; i++)
        stage_refuse(&results[i], "no such table");
    return 0;
}

static uint64_t nothing_settled(void)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&stage->mutex);
    for (int p = 0; p < STAGE_PARTITIONS; p++)
        sum += stage->readers[0].settled[p];
    pthread_mutex_unlock(&stage->mutex);
    return sum == 0;
}

static void without_room_for_dead_letters_nothing_settles(void **state)
{
    (void)state;
    stage_create(1, 2, 8);
    stage->sinks[0].plan = refuse_everything;
    trial.only = "/dead/";
    trial.fail_writes = true;
    append_some(20, 4);
    stage_start();
    WAIT_UNTIL(stage_consumer_stats(0).stopped);
    unsigned calls = stage->sinks[0].calls + 5;
    WAIT_UNTIL(stage->sinks[0].calls > calls); /* it tries again */
    assert_true(nothing_settled());
    assert_non_null(strstr(stage_consumer_stats(0).why_stopped, "/dead/sink0"));
    assert_false(delivery_breaker_open(stage->delivery, 0)); /* the sink is well */
    trial.fail_writes = false;
    WAIT_UNTIL(stage_drained(0));
    assert_int_equal(stage_sink_stats(0).dead_letters, 20);
    assert_false(stage_consumer_stats(0).stopped);
    assert_true(stage_reported("goes on"));
    stage_stop(1000);
}

static void a_failed_sync_of_dead_letters_stops_for_good(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].plan = refuse_everything;
    append_some(1, 1);
    stage_start();
    WAIT_UNTIL(stage_drained(0));
    trial.only = "/dead/";
    trial.fail_syncs = true;
    append_some(20, 4);
    WAIT_UNTIL(strstr(stage_consumer_stats(0).why_stopped, "restart"));
    trial.fail_syncs = false;
    unsigned calls = stage->sinks[0].calls;
    append_some(20, 4);
    for (int i = 0; i < 20; i++)
        stage_nap();
    assert_int_equal(stage->sinks[0].calls, calls);
    assert_false(stage_drained(0));
    stage_stop(1000);
}

static int collect(void *context, const struct dead_letter *letter)
{
    unsigned *n = context;
    ++*n;
    assert_string_equal(letter->stream_name, "orders");
    assert_string_equal(letter->reason, "no such table");
    assert_true(letter->position[0] && letter->time_ms > 0);
    return 0;
}

static int drop_first(void *context, const struct dead_letter *letter)
{
    *(uint64_t *)context = letter->number;
    return 1;
}

static void at_the_cap_it_stands_and_goes_on_when_there_is_room(void **state)
{
    (void)state;
    stage_create(1, 1, 1);
    stage->sinks[0].plan = refuse_everything;
    stage->config.dead_max_bytes = 3000;
    append_some(40, 4);
    stage_start();
    WAIT_UNTIL(stage_consumer_stats(0).stopped);
    assert_non_null(strstr(stage_consumer_stats(0).why_stopped, "cap"));
    struct dead *dead = delivery_dead(stage->delivery, 0);
    unsigned n = 0;
    assert_int_equal(dead_scan(dead, collect, &n, NULL), 0);
    assert_true(n > 5 && n < 40); /* as many as there is room for */
    unsigned calls = stage->sinks[0].calls;
    for (int i = 0; i < 20; i++)
        stage_nap();
    assert_int_equal(stage->sinks[0].calls, calls); /* it does not knock all the time */
    while (!stage_drained(0)) {
        uint64_t number, letters, bytes;
        if (dead_scan(dead, drop_first, &number, NULL) == 1)
            assert_int_equal(dead_drop(dead, number, NULL), 0);
        dead_stats(dead, &letters, &bytes);
        assert_true(bytes <= 3000);
        stage_nap();
    }
    assert_int_equal(stage_sink_stats(0).refused, 40);
    WAIT_UNTIL(!stage_consumer_stats(0).stopped);
    stage_stop(1000);
}

int main(void)
{
#define T(test) cmocka_unit_test_teardown(test, end)
    const struct CMUnitTest tests[] = {
        T(the_highest_version_is_sent_wherever_it_stands),
        T(when_the_highest_version_is_refused_the_next_is_sent),
        T(all_versions_of_an_id_refused),
        T(a_refused_batch_is_halved_down_to_the_bad_record),
        T(a_transient_failure_does_not_disturb_a_bisection),
        T(without_room_for_dead_letters_nothing_settles),
        T(a_failed_sync_of_dead_letters_stops_for_good),
        T(at_the_cap_it_stands_and_goes_on_when_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
