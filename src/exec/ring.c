/* ring.c: a bounded ring of pointers, many producers, one consumer (see ring.h).
 * Source: D. Vyukov, "Bounded MPMC queue", with the consumer's exchange left out.
 *
 * Positions count up for ever; a position's slot is its low bits, its lap the rest. A slot's `turn`
 * says what it waits for:
 *   lap        empty, waits for the producer of that lap
 *   lap + 1    filled in that lap, waits for the consumer
 * A lap is a multiple of the capacity (2 or more), so the two cannot be mixed up; and as all turns
 * begin at 0, a new ring is zeroed memory that costs no page before it is used.
 *
 * Invariants: 1. a producer owns a slot from its exchange on `head` to its store of `turn`;
 * 2. `tail` is written by the consumer alone; 3. what a producer wrote before ring_push is seen by
 * the consumer after ring_pop (release and acquire on `turn`).
 * A producer that stops between exchange and store hides the slots behind it until it goes on: the
 * consumer sees an empty ring, and nothing is lost. */
#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/mem.h"
#include "exec/ring.h"

#define APART 128 /* two cache lines: the prefetcher takes them in pairs */

struct slot {
    _Atomic size_t turn;
    void *p;
};

struct ring {
    struct slot *slots; /* constant */
    size_t mask;        /* constant */
    char apart_1[APART];
    _Atomic size_t head; /* the next position to fill; producers */
    char apart_2[APART];
    _Atomic size_t tail; /* the next position to take; written by the consumer */
    char apart_3[APART];
};

struct ring *ring_create(size_t capacity)
{
    assert(capacity >= 2 && (capacity & (capacity - 1)) == 0);
    assert(capacity <= SIZE_MAX / sizeof(struct slot));
    struct ring *ring = mem_zalloc(sizeof *ring);
    ring->slots = mem_zalloc(capacity * sizeof *ring->slots);
    ring->mask = capacity - 1;
    return ring;
}

void ring_destroy(struct ring *ring)
{
    if (!ring)
        return;
    mem_free(ring->slots);
    mem_free(ring);
}

bool ring_push(struct ring *ring, void *p)
{
    assert(p);
    /* relaxed: a position only chooses the slot; the slot's turn carries the order */
    size_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    for (;;) {
        struct slot *slot = &ring->slots[position & ring->mask];
        size_t lap = position & ~ring->mask;
        /* acquire: the consumer has read the old pointer before we write over it */
        size_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);
        if (turn == lap) {
            if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1,
                                                      memory_order_relaxed, memory_order_relaxed)) {
                slot->p = p;
                atomic_store_explicit(&slot->turn, lap + 1, memory_order_release);
                return true;
            }
        } else if ((intptr_t)(turn - lap) < 0) {
            return false; /* still holds what was put there a lap ago */
        } else {
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
        }
    }
}

void *ring_pop(struct ring *ring)
{
    size_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    struct slot *slot = &ring->slots[position & ring->mask];
    size_t lap = position & ~ring->mask;
    /* acquire: sees what the producer wrote before its push */
    if (atomic_load_explicit(&slot->turn, memory_order_acquire) != lap + 1)
        return NULL;
    void *p = slot->p;
    /* release: we have read the pointer before the producer of the next lap writes it */
    atomic_store_explicit(&slot->turn, lap + ring->mask + 1, memory_order_release);
    atomic_store_explicit(&ring->tail, position + 1, memory_order_relaxed); /* for ring_count */
    return p;
}

size_t ring_count(const struct ring *ring)
{
    /* relaxed: a figure for people and for gauges, from two moments */
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    intptr_t count = (intptr_t)(head - tail);
    if (count < 0)
        return 0;
    return (size_t)count > ring->mask + 1 ? ring->mask + 1 : (size_t)count;
}

size_t ring_capacity(const struct ring *ring)
{
    return ring->mask + 1;
}
