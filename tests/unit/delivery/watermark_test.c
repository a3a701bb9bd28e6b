/* watermark_test.c: the mark is always the longest settled prefix, whatever the order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "../seeded.h"
#include "delivery/fifo.h"
#include "delivery/watermark.h"
#include "delivery/window.h"

static uint64_t seed;

static void moves_only_over_a_settled_prefix(void **state)
{
    (void)state;
    struct watermark w = {0};
    uint64_t offset, a = watermark_add(&w, 10, 1), b = watermark_add(&w, 20, 2),
                     c = watermark_add(&w, 21, 1);
    assert_false(watermark_take(&w, &offset));
    watermark_settle(&w, b);
    watermark_settle(&w, c);
    assert_false(watermark_take(&w, &offset));
    watermark_settle(&w, a);
    assert_true(watermark_take(&w, &offset));
    assert_int_equal(offset, 10);
    assert_false(watermark_take(&w, &offset));
    watermark_settle(&w, b);
    assert_true(watermark_take(&w, &offset));
    assert_int_equal(offset, 21);
    assert_int_equal(watermark_span(&w), 0);
    watermark_fini(&w);
}

static void records_that_nobody_wants_settle_at_once(void **state)
{
    (void)state;
    struct watermark w = {0};
    uint64_t offset;
    watermark_add(&w, 1, 0);
    watermark_add(&w, 5, 0);
    assert_true(watermark_take(&w, &offset));
    assert_int_equal(offset, 5);
    uint64_t place = watermark_add(&w, 6, 1);
    watermark_add(&w, 7, 0);
    assert_false(watermark_take(&w, &offset));
    watermark_settle(&w, place);
    assert_true(watermark_take(&w, &offset));
    assert_int_equal(offset, 7);
    watermark_fini(&w);
}

static void forgets_on_reset(void **state)
{
    (void)state;
    struct watermark w = {0};
    uint64_t offset;
    watermark_add(&w, 100, 1);
    watermark_reset(&w);
    assert_int_equal(watermark_span(&w), 0);
    uint64_t place = watermark_add(&w, 50, 1);
    watermark_settle(&w, place);
    assert_true(watermark_take(&w, &offset));
    assert_int_equal(offset, 50);
    watermark_fini(&w);
}

/* Against a plain array that is searched from the start each time. */
static void agrees_with_the_obvious_way(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct seeded random = {seed};
    struct watermark w = {0};
    static unsigned pending[N];
    static uint64_t places[N], offsets[N];
    size_t added = 0, passed = 0, open = 0;
    uint64_t next_offset = 0, offset;
    static size_t waiting[N * 3];
    while (passed < N) {
        if (added < N && (open == 0 || seeded_below(&random, 5) < 3)) {
            next_offset += 1 + seeded_below(&random, 4);
            pending[added] = (unsigned)seeded_below(&random, 4);
            offsets[added] = next_offset;
            places[added] = watermark_add(&w, next_offset, pending[added]);
            for (unsigned i = 0; i < pending[added]; i++)
                waiting[open++] = added;
            added++;
        } else if (open) {
            size_t i = seeded_below(&random, open), record = waiting[i];
            waiting[i] = waiting[--open];
            pending[record]--;
            watermark_settle(&w, places[record]);
        }
        size_t before = passed;
        while (passed < added && pending[passed] == 0)
            passed++;
        if (seeded_below(&random, 3) == 0 || passed == N) {
            bool moved = watermark_take(&w, &offset);
            if (moved)
                assert_int_equal(offset, offsets[passed - 1]);
            else
                assert_int_equal(before, passed);
            assert_int_equal(watermark_span(&w), added - passed);
        }
        if (watermark_span(&w) != added - passed)
            fail();
    }
    watermark_fini(&w);
}

static void a_fifo_keeps_its_order_at_both_ends(void **state)
{
    (void)state;
    struct fifo q = {0};
    for (uint32_t i = 100; i < 150; i++)
        fifo_push(&q, i);
    for (uint32_t i = 100; i-- > 0;)
        fifo_push_front(&q, i);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(fifo_pop(&q), i);
    assert_int_equal(q.n, 0);
    fifo_fini(&q);
}

static void a_window_counts_each_chunk_once(void **state)
{
    (void)state;
    struct window w;
    window_init(&w);
    struct chunk *one = chunk_create(1000), *two = chunk_create(50);
    struct record r = {.id = SLICE_LIT("a"), .key = SLICE_LIT("a"), .doc = SLICE_LIT("{}")};
    uint32_t a = window_add(&w, &r, one, 2), b = window_add(&w, &r, one, 1),
             c = window_add(&w, &r, two, 1);
    chunk_unref(one);
    chunk_unref(two);
    assert_int_equal(w.bytes, 1050);
    assert_false(window_done(&w, a));
    assert_true(window_done(&w, b));
    assert_int_equal(w.bytes, 1050);
    assert_true(window_done(&w, a));
    assert_int_equal(w.bytes, 50);
    /* A slot is used again, a growing array moves none. */
    for (int i = 0; i < 1000; i++)
        window_add(&w, &r, NULL, 1);
    assert_int_equal(w.slots[c].record.doc.n, 2);
    assert_true(window_done(&w, c));
    assert_int_equal(w.bytes, 0);
    assert_int_equal(w.records, 1000);
    window_fini(&w);
}

int main(void)
{
    seed = seeded_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moves_only_over_a_settled_prefix),
        cmocka_unit_test(records_that_nobody_wants_settle_at_once),
        cmocka_unit_test(forgets_on_reset),
        cmocka_unit_test(agrees_with_the_obvious_way),
        cmocka_unit_test(a_fifo_keeps_its_order_at_both_ends),
        cmocka_unit_test(a_window_counts_each_chunk_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
