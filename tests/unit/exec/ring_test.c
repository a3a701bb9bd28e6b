/* ring_test.c: nothing is lost, doubled or reordered within a producer; full and empty are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <stdlib.h>

#include "exec/ring.h"
#include "os/thread.h"

static void *number(uintptr_t n)
{
    return (void *)(n + 1);
}

static void fills_and_empties_in_order(void **state)
{
    (void)state;
    for (size_t capacity = 2; capacity <= 64; capacity *= 2) {
        struct ring *ring = ring_create(capacity);
        assert_int_equal(ring_capacity(ring), capacity);
        assert_null(ring_pop(ring));
        uintptr_t in = 0, out = 0;
        for (int lap = 0; lap < 5; lap++) {
            while (ring_push(ring, number(in)))
                in++;
            assert_int_equal(in - out, capacity); /* every slot is used */
            assert_int_equal(ring_count(ring), capacity);
            for (size_t i = 0; i < capacity - (size_t)(lap % 2); i++)
                assert_ptr_equal(ring_pop(ring), number(out++));
            assert_int_equal(ring_count(ring), in - out);
        }
        while (out < in)
            assert_ptr_equal(ring_pop(ring), number(out++));
        assert_null(ring_pop(ring));
        assert_int_equal(ring_count(ring), 0);
        ring_destroy(ring);
    }
    ring_destroy(NULL);
}

#define PRODUCERS 4
#define EACH      20000

struct item {
    unsigned producer, number; /* plain: the ring must order their writes */
};

struct producer {
    struct ring *ring;
    struct item *items;
    unsigned index;
    _Atomic unsigned *refused;
};

static void *produce(void *argument)
{
    struct producer *self = argument;
    for (unsigned i = 0; i < EACH; i++) {
        self->items[i].producer = self->index;
        self->items[i].number = i;
        while (!ring_push(self->ring, &self->items[i])) {
            atomic_fetch_add_explicit(self->refused, 1, memory_order_relaxed);
            sched_yield();
        }
    }
    return NULL;
}

static void run_producers(size_t capacity)
{
    struct ring *ring = ring_create(capacity);
    _Atomic unsigned refused = 0;
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){ring, calloc(EACH, sizeof(struct item)), i, &refused};
        assert_int_equal(thread_start(&threads[i], "producer", 0, produce, &producers[i]), 0);
    }
    unsigned next[PRODUCERS] = {0}, got = 0;
    while (got < PRODUCERS * EACH) {
        struct item *item = ring_pop(ring);
        if (!item) {
            assert_true(ring_count(ring) <= capacity);
            sched_yield();
            continue;
        }
        assert_true(item->producer < PRODUCERS);
        assert_int_equal(item->number, next[item->producer]);
        next[item->producer]++;
        got++;
    }
    for (unsigned i = 0; i < PRODUCERS; i++) {
        thread_join(threads[i]);
        free(producers[i].items);
    }
    assert_null(ring_pop(ring));
    assert_int_equal(ring_count(ring), 0);
    ring_destroy(ring);
}

static void many_producers_small_ring(void **state)
{
    (void)state;
    run_producers(2);
    run_producers(8);
}

static void many_producers_large_ring(void **state)
{
    (void)state;
    run_producers(1 << 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_and_empties_in_order),
        cmocka_unit_test(many_producers_small_ring),
        cmocka_unit_test(many_producers_large_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
