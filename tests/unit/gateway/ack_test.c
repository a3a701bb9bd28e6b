/* ack: every waiter comes back exactly once, with what its sinks said and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "../seeded.h"
#include "base/mem.h"
#include "gateway/ack.h"

/* A waiter with its records, made for `sinks` (bits). */
struct entry {
    struct ack_waiter waiter;
    struct record records[8];
    uint64_t pending[8];
};

static struct entry *entry_create(uint32_t n, uint32_t partition, uint64_t offset, uint64_t sinks)
{
    struct entry *entry = mem_zalloc(sizeof(*entry));
    assert_true(n <= 8);
    for (uint32_t i = 0; i < n; i++) {
        entry->records[i].partition = partition;
        entry->records[i].offset = offset + i;
        entry->pending[i] = sinks;
    }
    entry->waiter.records = entry->records;
    entry->waiter.pending = entry->pending;
    entry->waiter.n = entry->waiter.left = n;
    return entry;
}

static void entry_free(struct entry *entry)
{
    while (entry->waiter.refusals) {
        struct ack_refusal *refusal = entry->waiter.refusals;
        entry->waiter.refusals = refusal->next;
        mem_free(refusal);
    }
    mem_free(entry);
}

static void enter(struct ack_table *table, struct entry *entry)
{
    struct ack_waiter *refused;
    entry->waiter.next = NULL;
    ack_enter(table, &entry->waiter, &refused);
    assert_null(refused);
}

static struct ack_waiter *settle(struct ack_table *table, unsigned sink, uint32_t partition,
                                 uint64_t offset, const char *refused)
{
    struct settlement one = {.partition = partition,
                             .offset = offset,
                             .outcome = refused ? OUTCOME_REFUSED : OUTCOME_STORED,
                             .reason = refused};
    return ack_settled(table, sink, &one, 1);
}

static void test_complete_when_every_sink_has_every_record(void **state)
{
    (void)state;
    struct ack_table *table = ack_create();
    struct entry *entry = entry_create(2, 1, 100, 0x5);
    enter(table, entry);
    assert_int_equal(ack_waiting(table), 2);
    assert_null(settle(table, 0, 1, 100, NULL));
    assert_null(settle(table, 0, 1, 100, NULL)); /* told twice */
    assert_null(settle(table, 1, 1, 100, NULL)); /* a sink that was not asked */
    assert_null(settle(table, 2, 0, 100, NULL)); /* another partition */
    assert_null(settle(table, 2, 1, 99, NULL));
    assert_null(settle(table, 2, 1, 101, NULL));
    assert_null(settle(table, 2, 1, 100, NULL));
    assert_int_equal(entry->waiter.left, 1);
    assert_int_equal(ack_waiting(table), 1);
    assert_ptr_equal(settle(table, 0, 1, 101, NULL), &entry->waiter);
    assert_int_equal(entry->waiter.state, ACK_COMPLETE);
    assert_int_equal(entry->waiter.left, 0);
    assert_null(entry->waiter.refusals);
    assert_int_equal(ack_waiting(table), 0);
    assert_null(settle(table, 2, 1, 101, NULL));
    assert_int_equal(ack_forget(table, &entry->waiter), ACK_COMPLETE);
    entry_free(entry);
    ack_destroy(table);
}

static void test_a_refusal_decides_its_record(void **state)
{
    (void)state;
    struct ack_table *table = ack_create();
    struct entry *entry = entry_create(3, 0, 10, 0x3);
    enter(table, entry);
    assert_null(settle(table, 1, 0, 11, "too blue"));
    assert_int_equal(entry->waiter.left, 2);
    assert_null(settle(table, 0, 0, 11, NULL)); /* the other sink's word does not mend it */
    assert_null(settle(table, 0, 0, 10, NULL));
    assert_null(settle(table, 1, 0, 10, NULL));
    assert_null(settle(table, 0, 0, 12, NULL));
    assert_ptr_equal(settle(table, 1, 0, 12, NULL), &entry->waiter);
    assert_non_null(entry->waiter.refusals);
    assert_null(entry->waiter.refusals->next);
    assert_int_equal(entry->waiter.refusals->index, 1);
    assert_int_equal(entry->waiter.refusals->sink, 1);
    assert_string_equal(entry->waiter.refusals->reason, "too blue");
    entry_free(entry);
    ack_destroy(table);
}

static void test_giving_up(void **state)
{
    (void)state;
    struct ack_table *table = ack_create();
    struct ack_waiter *refused;
    struct entry *never = entry_create(2, 0, 1, 1), *entered = entry_create(2, 0, 5, 1);
    /* before it was entered: whoever brings it gets it back */
    assert_int_equal(ack_forget(table, &never->waiter), ACK_NEW);
    ack_enter(table, &never->waiter, &refused);
    assert_ptr_equal(refused, &never->waiter);
    assert_null(refused->next);
    assert_int_equal(ack_waiting(table), 0);
    /* after: it is out, and what is settled later finds nobody */
    enter(table, entered);
    assert_null(settle(table, 0, 0, 5, NULL));
    assert_int_equal(ack_forget(table, &entered->waiter), ACK_ENTERED);
    assert_int_equal(entered->waiter.left, 1);
    assert_int_equal(entered->waiter.pending[0], 0);
    assert_int_equal(entered->waiter.pending[1], 1);
    assert_int_equal(ack_waiting(table), 0);
    assert_null(settle(table, 0, 0, 6, NULL));
    entry_free(never);
    entry_free(entered);
    ack_destroy(table);
}

static void test_drain_gives_all_back_and_lets_none_in(void **state)
{
    (void)state;
    enum { N = 500 };
    struct ack_table *table = ack_create();
    struct entry *entries[N], *late;
    unsigned back = 0;
    for (unsigned i = 0; i < N; i++) {
        entries[i] = entry_create(1 + i % 8, i % 3, i * 8, 1);
        enter(table, entries[i]);
    }
    for (struct ack_waiter *w = ack_drain(table); w; w = w->next, back++)
        assert_int_equal(w->state, ACK_COMPLETE); /* forget leaves it to whoever brings it */
    assert_int_equal(back, N);
    assert_int_equal(ack_waiting(table), 0);
    late = entry_create(1, 0, 9999, 1);
    struct ack_waiter *refused;
    ack_enter(table, &late->waiter, &refused);
    assert_ptr_equal(refused, &late->waiter);
    assert_int_equal(ack_forget(table, &late->waiter), ACK_COMPLETE);
    for (unsigned i = 0; i < N; i++)
        entry_free(entries[i]);
    entry_free(late);
    ack_destroy(table);
}

/* Many waiters come and go; a plain model says what must be left. */
static void test_against_a_model(void **state)
{
    (void)state;
    enum { WAITERS = 3000, LIVE = 200 };
    struct seeded random = {seeded_choose()};
    struct ack_table *table = ack_create();
    struct entry *live[LIVE] = {0};
    uint64_t next[4] = {1, 1, 1, 1}, made = 0, back = 0, records = 0;
    while (back < WAITERS) {
        struct entry **place = &live[seeded_below(&random, LIVE)];
        if (!*place) {
            if (made == WAITERS)
                continue;
            uint32_t n = 1 + (uint32_t)seeded_below(&random, 8);
            uint32_t partition = (uint32_t)seeded_below(&random, 4);
            *place = entry_create(n, partition, next[partition], 1 + seeded_below(&random, 7));
            next[partition] += n + seeded_below(&random, 3);
            enter(table, *place);
            made++;
            records += n;
        } else if (seeded_below(&random, 20) == 0) {
            records -= (*place)->waiter.left;
            assert_int_equal(ack_forget(table, &(*place)->waiter), ACK_ENTERED);
            entry_free(*place);
            *place = NULL;
            back++;
        } else {
            struct entry *entry = *place;
            uint32_t i = (uint32_t)seeded_below(&random, entry->waiter.n);
            unsigned sink = (unsigned)seeded_below(&random, 3);
            bool open = entry->pending[i] != 0, last = entry->pending[i] == UINT64_C(1) << sink;
            uint32_t left = entry->waiter.left;
            struct ack_waiter *done =
                settle(table, sink, entry->records[i].partition, entry->records[i].offset, NULL);
            if (open && last) {
                records--;
                assert_int_equal(entry->waiter.left, left - 1);
            }
            if (open && last && left == 1) {
                assert_ptr_equal(done, &entry->waiter);
                entry_free(entry);
                *place = NULL;
                back++;
            } else {
                assert_null(done);
            }
        }
        assert_int_equal(ack_waiting(table), records);
    }
    ack_destroy(table);
}

/* One thread enters, two settle for their sinks, one gives up: each waiter ends exactly once. */
enum { RACED = 20000 };
static struct ack_table *raced_table;
static struct entry *raced[RACED];
static _Atomic unsigned raced_entered, raced_ends[RACED], raced_total;

static void ended(struct ack_waiter *waiter)
{
    uint64_t i = waiter->records[0].offset;
    assert_int_equal(atomic_fetch_add(&raced_ends[i], 1), 0);
    atomic_fetch_add(&raced_total, 1);
}

static void *raced_settle(void *sink)
{
    for (unsigned i = 0; i < RACED;) {
        if (i == atomic_load(&raced_entered))
            continue;
        struct settlement list[16];
        unsigned n = 0, until = atomic_load(&raced_entered);
        for (; n < 16 && i < until; n++, i++)
            list[n] = (struct settlement){.offset = i, .outcome = OUTCOME_STORED};
        for (struct ack_waiter *w = ack_settled(raced_table, (unsigned)(uintptr_t)sink, list, n);
             w;) {
            struct ack_waiter *next = w->next;
            ended(w);
            w = next;
        }
    }
    return NULL;
}

static void *raced_forget(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < RACED; i += 3) {
        while (i >= atomic_load(&raced_entered))
            ;
        if (ack_forget(raced_table, &raced[i]->waiter) == ACK_ENTERED)
            ended(&raced[i]->waiter);
    }
    return NULL;
}

static void test_races(void **state)
{
    (void)state;
    pthread_t threads[3];
    raced_table = ack_create();
    for (unsigned i = 0; i < RACED; i++)
        raced[i] = entry_create(1, 0, i, 3);
    pthread_create(&threads[0], NULL, raced_settle, (void *)0);
    pthread_create(&threads[1], NULL, raced_settle, (void *)1);
    pthread_create(&threads[2], NULL, raced_forget, NULL);
    for (unsigned i = 0; i < RACED; i++) {
        enter(raced_table, raced[i]);
        atomic_store(&raced_entered, i + 1);
    }
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(raced_total, RACED);
    assert_int_equal(ack_waiting(raced_table), 0);
    for (unsigned i = 0; i < RACED; i++)
        entry_free(raced[i]);
    ack_destroy(raced_table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete_when_every_sink_has_every_record),
        cmocka_unit_test(test_a_refusal_decides_its_record),
        cmocka_unit_test(test_giving_up),
        cmocka_unit_test(test_drain_gives_all_back_and_lets_none_in),
        cmocka_unit_test(test_against_a_model),
        cmocka_unit_test(test_races),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
